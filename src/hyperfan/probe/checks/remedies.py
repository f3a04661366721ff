"""Remedies: the calls that mend a fault, for the net at hand."""

import math
from collections.abc import Sequence

from torch import nn

from hyperfan.mainnet.gains import has_gain
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.hypernet_subject import HyperNetSubject

MAX_FACTORS_SHOWN = 3


def restart(e: Evidence) -> str:
    """Restart the net, by its own method if that aims at variances."""
    if not isinstance(e.subject, HyperNetSubject):
        first = _head_init(e, e.subject.generated[0])
        return f"start each head with hyperfan.init: {first}, torch.nn.init.zeros_(head.bias)"
    if e.subject.net.init.name == e.subject.method.name:
        return "net.reset_parameters()"
    return restart_forward(e)


def restart_forward(e: Evidence) -> str:
    """Restart the net so that activations keep their scale."""
    if isinstance(e.subject, HyperNetSubject) and e.subject.net.init.name != "hyperfan-in":
        return f"HyperNet(mainnet, embedding={e.subject.embedding_config.size}, init='hyperfan-in')"
    return restart(e)


def calibrate(e: Evidence) -> str:
    """Scale by what is measured, where every weight is at its target."""
    if not isinstance(e.subject, HyperNetSubject):
        return restart(e)
    if e.subject.net.init.name == "hyperfan-out":
        return restart_forward(e)
    return "hyperfan.calibrate_(net, x)"


def calibrate_layers(e: Evidence) -> str:
    """Scale each layer by what is measured, where the analysis does not fit."""
    if isinstance(e.subject, HyperNetSubject):
        return "hyperfan.calibrate_(net, x), which corrects each layer by what it measures"
    return "scale each layer by what it puts out on data; hyperfan.calibrate_ does so for a HyperNet"


def standardise_inputs(e: Evidence) -> str:
    """Bring the inputs to the theory's scale, or the net to theirs."""
    more = "; or hyperfan.calibrate_(net, x)" if isinstance(e.subject, HyperNetSubject) else ""
    return "x = (x - mean) / std, with those of the training data" + more


def reduce_noise(e: Evidence) -> str:
    """Make the noise on the embedding smaller than the embedding."""
    if isinstance(e.subject, HyperNetSubject):
        return "Embedding(…, noise=…) below √3·std, the half-width at which both are equal"
    return "less noise; or, if each call is meant to make another net, generated= with one embedding held fixed"


def restart_heads(e: Evidence, tensors: Sequence[str]) -> str:
    """Restart the heads of these tensors, or multiply their outputs."""
    if isinstance(e.subject, HyperNetSubject):
        if e.subject.embedding_config.given:
            return "Embedding(…, given=True, normalise=True); or std= that of the embeddings given"
        return restart(e)
    more = " and so on" if len(tensors) > 1 else ""
    call = f"{_head_init(e, e.subject.spec[tensors[0]])}{more}, for a code of mean square 1"
    ratios = {t.tensor: t.ratio for t in e.readings.tensors if t.ratio}
    factors = [f"'{n}' by {1 / math.sqrt(ratios[n]):.3g}" for n in tensors if n in ratios]
    if not factors:
        return call
    others = " and so on" if len(factors) > MAX_FACTORS_SHOWN else ""
    return f"multiply {', '.join(factors[:MAX_FACTORS_SHOWN])}{others}; or {call}"


def _head_init(e: Evidence, t: TensorSpec) -> str:
    """The init of a user's head. Its table puts ReLU's gain on the layer before it, other gains behind."""
    consumed = t.consumes.name if t.consumes else "linear"
    settings = f", '{consumed}'" if has_gain(consumed) and consumed not in ("linear", "relu") else ""
    if t.followed_by is not None and t.followed_by.name == "relu":
        settings = ", 'relu'"
    layer = e.subject.skeleton.module.get_submodule(t.layer)
    if isinstance(layer, nn.modules.conv._ConvNd):
        settings += f", groups={layer.groups}" if layer.groups > 1 else ""
        settings += f", stride={layer.stride}, transposed=True" if layer.transposed else ""
    return f"hyperfan.init.hyperfan_in_uniform_(head.weight, {t.shape}{settings})"
