"""The calls that mend things, for the net at hand."""

import math
from collections.abc import Sequence

from torch import nn

from hyperfan.mainnet.spec import TensorSpec
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.subject import OurNet

_OWN = "hyperfan.init.hyperfan_in_uniform_(head.weight, {shape}{more})"


def rebuild(e: Evidence) -> str:
    """Start the net anew, by its own method if that aims at variances."""
    if not isinstance(e.subject, OurNet):
        first = _call(e, e.subject.generated[0])
        return f"start each head with hyperfan.init: {first}, torch.nn.init.zeros_(head.bias)"
    if e.subject.net.init.name == e.subject.method.name:
        return "net.reset_parameters()"
    return forward(e)


def forward(e: Evidence) -> str:
    """Start it so that activations keep their scale."""
    if isinstance(e.subject, OurNet) and e.subject.net.init.name != "hyperfan-in":
        return f"HyperNet(mainnet, embedding={e.subject.net.embeddings.config.size}, init='hyperfan-in')"
    return rebuild(e)


def calibrated(e: Evidence) -> str:
    """Scale by what is measured, where every weight is at its target."""
    if not isinstance(e.subject, OurNet):
        return rebuild(e)
    if e.subject.net.init.name == "hyperfan-out":
        return forward(e)
    return "hyperfan.calibrate_(net, x)"


def remake(e: Evidence, tensors: Sequence[str]) -> str:
    """Start the heads of these tensors anew, or multiply what they make."""
    if isinstance(e.subject, OurNet):
        if e.subject.net.embeddings.config.given:
            return "Embedding(…, given=True, normalise=True); or std= that of the embeddings given"
        return rebuild(e)
    more = " and so on" if len(tensors) > 1 else ""
    call = f"{_call(e, e.subject.spec[tensors[0]])}{more}, for a code of mean square 1"
    ratios = {t.tensor: t.realised.value / t.target for t in e.tensors if t.target and t.realised.value > 0}
    factors = [f"'{n}' by {1 / math.sqrt(ratios[n]):.3g}" for n in tensors if n in ratios]
    return (
        f"multiply {', '.join(factors[:3])}{' and so on' if len(factors) > 3 else ''}; or {call}" if factors else call
    )


def _call(e: Evidence, t: TensorSpec) -> str:
    """The init of a head of one's own. Its table puts ReLU's gain on the layer before it, other gains behind."""
    read = t.consumes.name if t.consumes else "linear"
    name = "" if read in ("linear", "relu") or "·" in read else f", '{read}'"
    if t.followed_by is not None and t.followed_by.name == "relu":
        name = ", 'relu'"
    layer = e.subject.module.get_submodule(t.layer)
    if isinstance(layer, nn.modules.conv._ConvNd):
        name += f", groups={layer.groups}" if layer.groups > 1 else ""
        name += f", stride={layer.stride}, transposed=True" if layer.transposed else ""
    return _OWN.format(shape=t.shape, more=name)
