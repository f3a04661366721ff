"""Chang, Flokas & Lipson, *Principled Weight Initialization for Hypernetworks*, ICLR 2020.

The mainnet's layer is y = W·x + b with W = H·h(e) + β and, if biases are generated, b = G·g(e2) + γ.

Hyperfan-in keeps the forward variance: d_j·Var(W)·Var(x) + Var(b) = Var(x). With generated biases each side
carries one half. Hyperfan-out keeps the backward variance, d_i·Var(W) = 1, where biases play no part; they then get
what the weights leave of the forward variance, 1 − d_j/d_i, if anything. Both at once is Table 1 once the generator
divides by ‖h‖² = d_k·Var(e).
"""

from functools import partial

from hyperfan.errors import InitError
from hyperfan.formulas import targets
from hyperfan.generators.aims import Aim
from hyperfan.init.classical import MEANS
from hyperfan.init.registry import Method, Reading, register

PAPER = "Chang, Flokas & Lipson 2020"


def hyperfan_in(read: Reading, bias_share: float = 0.5) -> Aim:
    """Forward variance kept."""
    if not 0 <= bias_share < 1:
        raise InitError(f"bias_share={bias_share:g}: the biases' share of the variance lies in [0, 1)")
    if read.role == "bias":
        v = targets.fan_in_bias(read.output, bias_share) * read.branch / read.logits / read.summands
        return Aim(_divided("v = bias_share·output", read), target=v)
    part = bias_share if read.bias_generated else 0.0
    v = targets.fan_in_weight(read.fan_in, read.gain_in, part) * read.entry * read.branch * read.row / read.logits
    equation = "v = (1 − bias_share)·gain/fan_in" if part else "v = gain/fan_in"
    equation += ("·entry" if read.entry != 1 else "") + ("·row" if read.row != 1 else "")
    return Aim(_divided(equation, read), target=v, gain=read.gain_in)


def hyperfan_out(read: Reading) -> Aim:
    """Backward variance kept."""
    weight = targets.fan_out_weight(read.fan_out, read.gain_out)
    if read.role == "bias":
        v = targets.fan_out_bias(read.fan_in, weight, read.consumed, read.output) * read.branch / read.summands
        v /= read.logits
        return Aim(_divided("v = max(output − fan_in·v_W·consumed, 0)", read), target=v)
    target = weight * read.branch / read.logits
    return Aim(_divided("v = gain/fan_out", read), target=target, gain=read.gain_out)


def gist(read: Reading) -> Aim:
    """As the authors' public code has it: 2 for every layer, and 2 again on the output layer that chunks share.

    It makes no biases; where they are generated, they start at zero.
    """
    if read.role == "bias":
        return Aim("H = 0", head=lambda fans: 0.0)
    return Aim("v = 4/fan_in", target=4 / read.fan_in, gain=2.0, shared_gain=2.0)


def _divided(equation: str, read: Reading) -> str:
    divisors = {"/blocks": read.branch != 1, "/logits": read.logits != 1, "/biases": read.summands > 1}
    return equation + "".join(name for name, divides in divisors.items() if divides)


def mean_of_both(read: Reading, bias_share: float = 0.5, *, name: str) -> Aim:
    """A mean of hyperfan-in and -out."""
    forward, backward = hyperfan_in(read, bias_share), hyperfan_out(read)
    assert forward.target is not None
    assert backward.target is not None
    return Aim(f"v = {name} mean of in and out", target=MEANS[name][0](forward.target, backward.target))


_BIAS_SHARE = {"bias_share": 0.5}
_GIST = "hyperfan-in as in the authors' code, with twice the variance"
register(Method("hyperfan-in", PAPER, "keeps the mainnet's forward variance", hyperfan_in, _BIAS_SHARE))
register(Method("hyperfan-out", PAPER, "keeps the mainnet's backward variance", hyperfan_out))
register(Method("chang2020-gist", PAPER, _GIST, gist, needs_nonlinearity=False))
for _name in ("harmonic", "geometric", "arithmetic"):
    _summary = f"{_name} mean of hyperfan-in and -out"
    register(Method(f"hyperfan-{_name}", PAPER, _summary, partial(mean_of_both, name=_name), _BIAS_SHARE))
