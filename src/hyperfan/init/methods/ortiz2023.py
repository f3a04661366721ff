"""Gonzalez Ortiz, Guttag & Dalca, *Magnitude Invariant Parametrizations Improve Hypernetwork Learning*, 2023
(arXiv 2304.07645): MIP.

With a linear or piecewise linear hypernet without biases, what is generated is proportional to the size of the
condition. MIP takes that dependence away by two changes:

- The condition z in [0, 1] enters as (cos(π·z/2), sin(π·z/2)), whose norm is constant: ‖·‖² is the number of
  coordinates. :class:`hyperfan.codes.CosSin` is that layer, to be put in front of a trunk.
- W = θ₀ + H·h: the base θ₀ is independent of the condition and starts as the mainnet would, Kaiming fan-in with the
  gain of their leaky ReLU, 2/(1 + 0.01²); biases at zero. H is Kaiming fan-out, Var(H) = 1/outputs, and the layers of
  the trunk fan-out with that gain.

What is generated at the start then has the variance ‖h‖²/outputs of each head, a small share: of a 500×500 weight and
‖h‖² = 50 it is 2e-4, where the base has 4e-3. In their code one layer makes all tensors, so that ``outputs`` is the
size of the mainnet; here it is that of the head. They draw from a normal distribution: ``distribution="normal"``.

Use it to repeat the paper, or where conditions of one net differ in size by orders of magnitude. Elsewhere
``Embedding(…, normalise=True)`` makes every code's norm constant behind any trunk, and ``share=`` sets how much is
generated.

>>> import torch, hyperfan as hf
>>> from hyperfan.codes import CosSin
>>> trunk = torch.nn.Sequential(CosSin(), torch.nn.Linear(2 * 3, 16), torch.nn.LeakyReLU())
>>> mainnet = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LeakyReLU(), torch.nn.Linear(8, 1))
>>> condition = hf.Embedding(3, given=True, per="net")
>>> settings = {"init": "ortiz2023", "init_trunk": True, "example_embeddings": torch.rand(100, 3)}
>>> net = hf.HyperNet(mainnet, condition, trunk=trunk, **settings)
>>> net(torch.randn(5, 8), embedding=torch.rand(5, 3)).shape
torch.Size([5, 1])
"""

from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

LEAKY_GAIN = 2 / (1 + 0.01**2)
"""Kaiming's gain of a leaky ReLU with torch's slope."""


def independent_weights(read: Reading) -> Aim:
    """A base as in the mainnet alone, and a head by its fan-out."""
    v = 0.0 if read.role == "bias" else LEAKY_GAIN / read.fan_in
    equation = "Var(H) = 1/outputs, Var(θ₀) = " + ("0" if read.role == "bias" else "gain/fan_in")
    return Aim(equation, head=lambda fans: 1 / fans.fan_out, base=lambda fans: v, gain=LEAKY_GAIN)


def trunk(read: Reading) -> float:
    """Kaiming fan-out with the gain of a leaky ReLU."""
    return LEAKY_GAIN / read.fan_out


register(
    Method(
        "ortiz2023",
        "Gonzalez Ortiz, Guttag & Dalca 2023",
        "MIP: a base as in the mainnet alone, heads by fan-out, codes of constant norm",
        independent_weights,
        trunk=trunk,
        needs_nonlinearity=False,
    )
)
