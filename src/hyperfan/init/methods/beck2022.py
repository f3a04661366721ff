"""Beck, Jackson, Vuorio & Whiteson, *Hypernetworks in Meta-Reinforcement Learning*, CoRL 2022 (arXiv 2210.11348).

Their two starts give the mainnet its usual init, variance v = gain/fan_in of a weight and biases of zero.

*Bias-HyperInit*: H = 0 and β ~ the usual init, so that all conditions start with one and the same net, and differ only
once H is trained. It is the share ρ = 0 of hyperfan-in: ``HyperNet(…, share=0)`` starts weights in the same way and,
to be preferred, generated biases with a part of the variance, which are zero here; a small share lets conditions differ
from the first step. As for any net on a base, a trunk by widths makes small codes of given conditions, on which nothing
of this start depends; ``fidelity="paper"`` leaves them as they are. Use it where the condition is given at the call or
is one of many; in their meta-RL it is as good as hyperfan-in or better.

*Weight-HyperInit*: β = 0, and each column of H ~ the usual init: Var(H) = v, so that a one-hot code picks a net of its
own. For such codes ‖h‖² = 1, and it is hyperfan-in. With any other code the weights are off by ‖h‖: √50 times too large
for an embedding of 50. Use it for one-hot codes only, or hyperfan-in, which is right for all.

Their usual init is normc, orthogonal or Kaiming, chosen by environment; here it is fan-in with the exact gain. A third
variant takes one half of each. They make one head for each tensor, as ``heads="separate"`` does.
"""

from hyperfan.formulas import targets
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register

PAPER = "Beck, Jackson, Vuorio & Whiteson 2022"


def usual(read: Reading) -> float:
    """Variance that the tensor would have in a plain net: fan-in for weights, zero for biases."""
    if read.role == "bias":
        return 0.0
    return targets.fan_in_weight(read.fan_in, read.gain_in) * read.entry * read.branch


def bias_hyperinit(read: Reading) -> Aim:
    """All of the variance in the head's bias."""
    v = usual(read)
    equation = f"H = 0, {'Var(β) = v = gain/fan_in' if v else 'β = 0'}"
    return Aim(equation, head=lambda fans: 0.0, base=lambda fans: v, gain=read.gain_in)


def weight_hyperinit(read: Reading) -> Aim:
    """All of the variance in each column of the head's weight."""
    v = usual(read)
    equation = "Var(H) = v = gain/fan_in" if v else "H = 0, β = 0"
    return Aim(equation, head=lambda fans: v, gain=read.gain_in)


register(
    Method("beck2022-bias", PAPER, "Bias-HyperInit: one net for all conditions, in the heads' biases", bias_hyperinit)
)
register(Method("beck2022-weight", PAPER, "Weight-HyperInit: a usual net for each one-hot code", weight_hyperinit))
