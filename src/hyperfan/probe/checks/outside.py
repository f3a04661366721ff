"""What comes from outside the heads: inputs, norms, noise, the loss, the learning rate, and overflow."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.probe.checks.remedies import calibrated, forward, rebuild
from hyperfan.probe.checks.scale import wrong_scale
from hyperfan.probe.diagnosis import Finding
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.subject import OurNet

INPUTS = (0.02, 50.0)
"""Mean square of the inputs."""
LOSS = 2.0
"""By how much the loss may exceed that of guessing. Logits of unit variance exceed it by one half."""
NORM = 0.1
"""Root mean square distance of norm parameters from where they start."""


def not_finite(e: Evidence) -> Iterator[Finding]:
    """Overflow, and where it began."""
    first = next((r.layer for r in e.layers if not math.isfinite(r.measured.value)), None)
    if first is not None:
        yield Finding(
            "values that are not finite",
            "error",
            (first,),
            f"'{first}' is the first layer whose output overflows or is not a number",
            *_origin(e),
        )
    elif e.seen.loss is None:
        yield Finding(
            "a loss that is not finite",
            "error",
            (),
            "every layer is finite, the loss is not",
            "the loss overflows on outputs of this scale, or counts none of them"
            if e.y_is_finite
            else "y holds values that are not finite",
            rebuild(e) if e.y_is_finite else "mend y",
        )


def _origin(e: Evidence) -> tuple[str, str]:
    """Where what is not finite came from, and what mends it."""
    for names, what in ((e.made, "the generated tensor"), (e.subject.own, "the mainnet's own")):
        bad = [n for n, t in names.items() if t.is_floating_point() and not torch.isfinite(t).all()]
        if bad:
            return f"{what} '{bad[0]}' holds values that are not finite", rebuild(e)
    given = [t for t in pytree.tree_leaves((e.subject.args, e.subject.kwargs)) if isinstance(t, Tensor)]
    if not all(torch.isfinite(t).all() for t in given):
        return "the inputs hold values that are not finite", "x = torch.nan_to_num(x), or mend the data"
    return "the weights before it are too large", rebuild(e)


def inputs_off_scale(e: Evidence) -> Iterator[Finding]:
    """The theory wants inputs of mean square 1, unless the first layer makes up for it."""
    first = next((r.measured.value / r.target for r in e.layers if r.target), None)
    made_up_for = first is not None and INPUTS[0] <= first <= INPUTS[1]
    if e.input_scale is None or not math.isfinite(e.input_scale):
        return
    if not INPUTS[0] <= e.input_scale <= INPUTS[1] and not made_up_for:
        yield Finding(
            "inputs off scale",
            "warning",
            (),
            f"the inputs have mean square {e.input_scale:.3g}; the theory starts from 1",
            "they are not standardised" + (", pixels from 0 to 255 for example" if e.input_scale > 1 else ""),
            "x = (x - mean) / std, with those of the training data"
            + ("; or hyperfan.calibrate_(net, x)" if isinstance(e.subject, OurNet) else ""),
        )


def noise(e: Evidence) -> Iterator[Finding]:
    """More noise than signal."""
    loud = {name: share for name, share in e.noise.items() if share > 0.5}
    if loud:
        worst = max(loud.values())
        ratio = "all there is" if worst > 0.999 else f"{worst / (1 - worst):.3g} times the signal"
        yield Finding(
            "noise larger than signal",
            "warning",
            tuple(loud),
            f"in the generated tensor's mean square, the noise is {ratio}",
            "the noise on the embedding is wider than the embedding itself, so each draw is nearly another net",
            "Embedding(…, noise=…) below √3·std, the half-width at which both are equal"
            if isinstance(e.subject, OurNet)
            else "less noise; or, if each call is meant to make another net, generated= with one embedding held fixed",
        )


def norms(e: Evidence) -> Iterator[Finding]:
    """Norm parameters away from 1 and 0."""
    values = {**e.subject.own, **e.made}
    off: dict[str, float] = {}
    for t in e.subject.spec:
        if t.role in ("scale", "shift") and t.start is not None:
            off[t.name] = math.sqrt((values[t.name].detach().double() - t.start).square().mean().item())
    off = {name: distance for name, distance in off.items() if distance > NORM}
    silent = [n for n in off if n not in e.made and not values[n].detach().any()]
    trained = [n for n in off if n not in e.made and values[n].numel() > 1 and values[n].detach().std() > 0]
    if silent:
        yield Finding(
            "norm scales at 0",
            "note",
            tuple(silent),
            "every value is exactly 0",
            "often on purpose, so that a residual branch starts silent",
            "torch.nn.init.ones_(norm.weight), if it is not",
        )
    if trained:
        yield Finding(
            "trained norm parameters",
            "note",
            tuple(trained),
            f"root mean square distance up to {max(off[n] for n in trained):.3g} from where a norm starts",
            "the mainnet comes with parameters of its own",
            "nothing, if so",
        )
    loud = [n for n in off if n not in silent and n not in trained]
    if loud:
        made = any(n in e.made for n in loud)
        yield Finding(
            "norm parameters not at 1 and 0",
            "warning",
            tuple(loud),
            f"root mean square distance {max(off[n] for n in loud):.3g} from where a norm starts: scale 1, shift 0",
            "the hypernet makes them like weights" if made else "they were set by hand",
            "leave norms out of generate=, or start their heads at weight 0 and bias 1 (scale) or 0 (shift)"
            if made
            else "norm.reset_parameters(), if the net is meant to be at its start",
        )


def loss(e: Evidence) -> Iterator[Finding]:
    """Far from that of guessing."""
    if e.loss is None or e.expected_loss is None:
        return
    told = f"{e.loss:.4g}; a net that knows nothing has ln(classes) = {e.expected_loss:.3g}"
    if e.loss > e.expected_loss + LOSS:
        square = e.seen.output.double().square().mean().item()
        yield Finding(
            "loss far from ln(classes)",
            "warning",
            (),
            told,
            f"the outputs are too large: their mean square is {square:.3g}, where 1 is usual",
            f"scale '{e.layers[-1].layer}' down, which is not generated"
            if e.layers and not e.layers[-1].generated
            else "scale the last layer down: " + (calibrated(e) if next(wrong_scale(e), None) is None else forward(e)),
        )
    elif e.loss < e.expected_loss / 2:
        yield Finding(
            "loss below that of guessing",
            "note",
            (),
            told,
            "the net is trained already, or the inputs tell the class",
            "nothing, if so: the targets of a diagnosis are those of a net at its start",
        )


def rate(e: Evidence) -> Iterator[Finding]:
    """A learning rate that the effective rate makes too large for the curvature seen in one step."""
    trial = e.trial
    if trial is None or not trial.too_large:
        return
    largest = max((p for p in e.parts if p.rate), key=lambda p: p.rate or 0.0, default=None)
    effective = f"; '{largest.part}' multiplies it by {largest.rate:.3g}" if largest and largest.rate else ""
    if trial.stable is None:
        allowed, remedy = "is too large for it", f"a smaller rate, such as lr={trial.lr / 100:.1g}; and try again"
    else:
        allowed, remedy = f"allows {trial.stable:.2g} at most", f"lr={trial.stable / 2:.2g}"
    yield Finding(
        "learning rate too large",
        "warning",
        (),
        f"one step of SGD at {trial.lr:g} takes the loss from {trial.before:.4g} to {trial.after:.4g}{effective}",
        "a step on a head moves the generated weights ‖h‖² + 1 times as far as one on the weights themselves, and the "
        f"curvature along it {allowed}",
        remedy,
    )


def unpredicted(e: Evidence) -> Iterator[Finding]:
    """Weights that no theory tells the scale of, so that nothing was compared with it."""
    dark = {t.name: e.wanted[t.name].equation for t in e.subject.generated if e.wanted[t.name].variance is None}
    if dark:
        yield Finding(
            "no prediction",
            "warning" if len(dark) == len(e.wanted) else "note",
            tuple(dark),
            "its scale was not compared with anything: in the plain nets it is as it is here",
            next(iter(dark.values())),
            "tell what the layer does with @hyperfan.rule",
        )
