"""Auddy et al., *Effect of Optimizer, Initializer, and Architecture of Hypernetworks on Continual Learning from
Demonstration*, 2024: the inits of their code, which they compare under the names "kaiming" and "principled".

"Kaiming" is torch's default for linear layers, ``kaiming_uniform_(a=√5)``: variance 1/(3·fan_in) for every weight of
the hypernet, its output layer too.

"Principled" is meant to be hyperfan-in, and is not. Hyperfan-in divides the variance that a *mainnet's* layer needs,
gain/d_j with d_j its fan-in, by ‖h‖² ≈ d_k of the code, and so gives a head Var(H) = gain/(d_j·d_k). Their code gives
*every* layer of the hypernet the variance c/(fan_in·d_k), c = 2 in hidden layers and 1 in the output layer, where d_k
is the fan-in of the output layer:

- In the output layer that is 1/d_k², the same for all tensors: where d_j should be, there is d_k. With ‖h‖² = d_k the
  mainnet's weights would have variance 1/d_k, right by chance where d_j = d_k.
- But hidden layers get the factor 1/d_k too, which belongs to the output layer alone. With 2/fan_in a hidden ReLU layer
  keeps the code's scale, so each of the L layers divides E[h²] by d_k. The mainnet's weights then start with variance
  d_k·1/d_k²·E[h²] = E[e²]/d_k^(L+1): with L = 3 and d_k = 300 that is 1e-10, where a layer that reads 100 ELUs
  needs 8e-3 beside generated biases.
- The normal variant passes this number, a variance, as a standard deviation. With embeddings of 256 values the weights
  then start with a variance of 2e-29.

All generated tensors then start at zero for every purpose, as far as they come from these weights: the mainnet puts out
zero, and the gradient of a tensor, which has the weights after it as factors, is as small. Adam divides by the
gradient's own scale and lifts the tensors all the same, but only where it is not far below its ε = 1e-8.

Their code does not start from zero, because it also draws the hypernet's *biases*, under every init as torch does:
uniform with variance 1/(3·fan_in). The biases β of the output layer are then what the mainnet starts from, with
variance 1/(3·d_k), equal in all tasks. Their "Kaiming" has them too, so that both start at a similar scale. The methods
here leave biases at zero, as Chang et al. have them; the experiment ``demonstrations`` has both. The normal variant
cannot have been used: it expects three values where its caller passes two.

Where each tensor has an output layer of its own, their code gives c = 1 to the last one only, and 2 to the others; here
all have 1. A layer of the trunk does not know d_k here. Its own fan-out stands for it, which is d_k where all hidden
layers have the same width, as theirs have. Their variant for drawn biases, which halves all variances, is left out.
"""

from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

PAPER = "Auddy et al. 2024"
TORCH_GAIN = 1 / 3
"""``kaiming_uniform_(a=√5)``: 2/(1 + a²)."""


def torch_default(read: Reading) -> Aim:
    """The head like any linear layer of torch."""
    return Aim("Var(H) = 1/(3·d_k)", head=lambda fans: TORCH_GAIN / fans.fan_in)


def torch_default_trunk(read: Reading) -> float:
    """A hidden layer like any linear layer of torch."""
    return TORCH_GAIN / read.fan_in


def uniform(read: Reading) -> Aim:
    """Their variance for the output layer."""
    return Aim("Var(H) = 1/d_k²", head=_head_variance)


def uniform_trunk(read: Reading) -> float:
    """Their variance for a hidden layer, the factor of the output layer included."""
    return 2 / (read.fan_in * read.fan_out)


def normal(read: Reading) -> Aim:
    """Their number for the uniform distribution as a standard deviation."""
    return Aim("Var(H) = (1/d_k²)²", head=lambda fans: _head_variance(fans) ** 2)


def normal_trunk(read: Reading) -> float:
    """Their number for a hidden layer as a standard deviation."""
    return uniform_trunk(read) ** 2


def _head_variance(fans: Fans) -> float:
    return 1 / fans.fan_in**2


for _name, _summary, _aim, _trunk in (
    ("kaiming", "torch's default on every layer of the hypernet", torch_default, torch_default_trunk),
    ("uniform", "their 'principled' init: the output layer's factor on every layer", uniform, uniform_trunk),
    ("normal", "the same with a variance taken for a standard deviation", normal, normal_trunk),
):
    register(
        Method(f"auddy2024-{_name}", PAPER, _summary, _aim, trunk=_trunk, needs_nonlinearity=False, needs_fans=False)
    )
