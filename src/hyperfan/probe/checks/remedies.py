"""Remedies: the calls that mend a fault, for the net at hand."""

import math
from collections.abc import Sequence

from torch import nn

from hyperfan.mainnet.gains import has_gain
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.probe.evidence import Evidence

MAX_FACTORS_SHOWN = 3
STANDARDISED = "(e - e.mean(0)) / e.std(0)"
"""The conditions e, standardised."""
MAX_SQUARE = 100.0
"""Mean square of conditions, beyond which they do not learn well even if the net was told of it."""
MIN_GIVEN_SPREAD = 0.1
"""Variance between conditions given, as a share of their mean square, below which their mean should be subtracted."""
MAX_RATIO_TO_EXPECTED = 2.0
"""Mean square of conditions, over what the heads were started for, that does not explain a wrong scale."""


def restart(e: Evidence, init: str = "") -> str:
    """Restart the net with this method, or else by its own if that aims at variances."""
    net = e.subject.net
    if net is None:
        first = _head_init(e, next(iter(e.subject.generated.values())).spec)
        return f"start each head, whose input is code: {first}, torch.nn.init.zeros_(head.bias)"
    init = init or e.subject.method.name
    if net.init.name == init:
        return "net.reset_parameters(), unless the net is trained: it draws all values anew"
    return f"HyperNet(mainnet, embedding={net.embeddings.config.size}, init='{init}')"


def restart_trunk(e: Evidence) -> str:
    """Restart what lies between embeddings and heads, also where it is a module that a restart leaves as it is."""
    net = e.subject.net
    if net is None or net.trunk is None or not net.kept_values.keeps_trunk:
        return restart(e)
    return (
        "the trunk was given, so net.reset_parameters() keeps it: HyperNet(…, trunk=trunk, init_trunk=True) draws it, "
        "which mends values that saturate it; if its forward() calls detach() or torch.no_grad(), or does not use the "
        "embedding, only a change of forward() does"
    )


def standardise(e: Evidence) -> str:
    """Standardise the conditions given, or tell their size, where it is all that sets them apart from usual ones.

    Codes of an encoder that is trained are not standardised: a small deviation would multiply the encoder's steps.
    """
    c, call = e.conditions, f"standardise them, {STANDARDISED} of many conditions"
    if c is not None and c.learnt:
        return "HyperNet(…, example_embeddings=e), with codes of a batch by the encoder as it starts"
    if c is None or c.square > MAX_SQUARE or (c.spread is not None and c.spread < MIN_GIVEN_SPREAD):
        return call
    return f"{call}; or std= that of the conditions given"


def restart_heads(e: Evidence, tensors: Sequence[str]) -> str:
    """Restart the heads of these tensors, or multiply their outputs."""
    net, c = e.subject.net, e.conditions
    if net is not None:
        expected = c is not None and abs(math.log(c.ratio or math.inf)) < math.log(MAX_RATIO_TO_EXPECTED)
        if expected or not net.embeddings.config.given:
            return restart(e)
        return standardise(e)
    more = " and so on" if len(tensors) > 1 else ""
    call = f"{_head_init(e, e.subject.spec[tensors[0]])}{more}, torch.nn.init.zeros_(head.bias), where code is what "
    call += f"enters the head{_seen_code(e, tensors[0])}"
    ratios = {t.tensor: t.ratio for t in e.readings.tensors if t.ratio}
    factors = [f"'{n}' by {1 / math.sqrt(ratios[n]):.3g}" for n in tensors if n in ratios]
    if not factors:
        return call
    others = " and so on" if len(factors) > MAX_FACTORS_SHOWN else ""
    return f"multiply weight and bias of the head of {', '.join(factors[:MAX_FACTORS_SHOWN])}{others}; or {call}"


def _seen_code(e: Evidence, name: str) -> str:
    """The mean square of the code that enters a foreign head, in words, where its values tell it."""
    tensor, realised = e.subject.generated[name], {t.tensor: t.realised.value for t in e.readings.tensors}[name]
    code = (realised - tensor.bias_square) / (tensor.head_square * tensor.width) if tensor.head_square else math.nan
    return f", of mean square {code:.2g} here" if 0 < code < math.inf else ""


def _head_init(e: Evidence, t: TensorSpec) -> str:
    """The init of a user's head. Its table puts ReLU's gain on the layer before it, other gains behind."""
    beside = {other.role: other for other in e.subject.spec if other.layer == t.layer}
    bias, t = t.role == "bias", beside["weight"] if t.role == "bias" and "weight" in beside else t
    consumed = t.consumes.name if t.consumes else "linear"
    settings = f", '{consumed}'" if has_gain(consumed) and consumed not in ("linear", "relu") else ""
    if t.followed_by is not None and t.followed_by.name == "relu":
        settings = ", 'relu'"
    layer = e.subject.skeleton.module.get_submodule(t.layer)
    if isinstance(layer, nn.modules.conv._ConvNd):
        settings += f", groups={layer.groups}" if layer.groups > 1 else ""
        settings += f", stride={layer.stride}, transposed=True" if layer.transposed else ""
    if bias:
        settings += ", bias=True"
    elif "bias" in beside and beside["bias"].name in e.subject.generated:
        settings += ", biases_generated=True"
    code = "embedding_var=code.square().mean().item()"
    return f"hyperfan.init.hyperfan_in_uniform_(head.weight, {t.shape}{settings}, {code})"
