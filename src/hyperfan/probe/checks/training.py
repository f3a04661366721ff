"""The checks on training: values that are not finite, a flat loss, the loss at the start, and the learning rate."""

import math
from collections.abc import Iterator

import torch

from hyperfan.hypernet.adapter import CAUSAL_LM, task_type
from hyperfan.probe.checks.remedies import restart
from hyperfan.probe.checks.tensors import off_target
from hyperfan.probe.diagnosis import ENCODER_PART, HYPERNET_PART
from hyperfan.probe.evidence import Evidence
from hyperfan.probe.findings import Finding, FindingName, Severity
from hyperfan.probe.first_step import ADAM_EPSILON
from hyperfan.probe.moments import mean_square
from hyperfan.probe.trial import ROUNDING

MAX_LOSS_OVER_GUESSING = 2.0
"""Excess of the loss over that of guessing. Logits of unit variance exceed it by one half."""
MAX_TARGET_SQUARE = 50.0
"""Mean square of the targets over that of the outputs and over 1, or the other way round."""
MIN_GRADIENT_OVER_EPSILON = 1000.0
"""Gradients over Adam's epsilon, from which on it does not matter."""


def not_finite(e: Evidence) -> Iterator[Finding]:
    """Find the first layer whose output is not finite, or a loss that is not."""
    first = next((r.layer for r in e.readings.layers if not math.isfinite(r.measured.value)), None)
    if first is not None:
        cause, remedy = "the weights before it are too large", restart(e)
        tensors = {f"the generated tensor '{name}'": t for name, t in e.generated.items()}
        tensors |= {f"the mainnet's plain tensor '{name}'": t for name, t in e.subject.plain.items()}
        bad = [title for title, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
        if bad:
            cause = f"{bad[0]} holds values that are not finite"
        elif not all(torch.isfinite(t).all() for t in e.subject.inputs):
            cause, remedy = "the inputs hold values that are not finite", "x = torch.nan_to_num(x), or mend the data"
        seen = f"'{first}' is the first layer whose output overflows or is not a number"
        yield Finding(FindingName.VALUES_NOT_FINITE, "error", (first,), seen, cause, remedy)
    elif e.measured.loss is None:
        cause, remedy = "the loss overflows on outputs of this scale, or counts none of them", restart(e)
        if not e.y_is_finite:
            cause, remedy = "y holds values that are not finite", "mend y"
        seen = "every layer is finite, the loss is not"
        yield Finding(FindingName.LOSS_NOT_FINITE, "error", (), seen, cause, remedy)


def left_out(e: Evidence) -> Iterator[Finding]:
    """Find parameters that the user's optimiser does not hold, so that no step moves them."""
    optimiser, trained = e.built, e.user_parameters
    if optimiser is None:
        return
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    lacking = {name: p for name, p in trained.items() if id(p) not in held}
    if not lacking:
        return
    makers = [name for name in trained if name.startswith(("heads.", HYPERNET_PART))]
    severity: Severity = "error" if all(name in lacking for name in makers) else "warning"
    values, of = (sum(p.numel() for p in some.values()) for some in (lacking, trained))
    kind, is_ours = type(optimiser).__name__, type(optimiser).__module__.startswith("hyperfan")
    seen = f"{values:,} of {of:,} values that require gradients are in no group of the {kind}"
    cause = "it was built from a part of the parameters, from those of another net, or before these were made"
    given = "net"
    if any(name.startswith(ENCODER_PART) for name in lacking):
        given, cause = "nn.ModuleList([net, encoder])", f"{cause}; of an encoder, another optimiser may hold them"
    call = f"hyperfan.{kind}({given}, …)" if is_ours else f"{kind}({given}.parameters(), …)"
    remedy = f"{call}; what should stay as it is, requires_grad_(False)"
    yield Finding(FindingName.LEFT_OUT, severity, tuple(lacking), seen, cause, remedy)


def flat_loss(e: Evidence) -> Iterator[Finding]:
    """Find a loss without a gradient at the mainnet's output, so that nothing before it can learn."""
    if e.measured.loss_is_flat:
        seen = "the gradient of the loss at what the mainnet puts out is exactly 0"
        cause = (
            "the loss is flat for outputs like these, as one with a margin that all keep, a clamp, or a saturated "
            "sigmoid; or it was computed behind argmax, round() or detach(); or the outputs are y already"
        )
        remedy = "a loss that falls towards y from these outputs, such as mean squared error or cross-entropy of logits"
        yield Finding(FindingName.FLAT_LOSS, "error", (), seen, cause, remedy)


def below_epsilon(e: Evidence) -> Iterator[Finding]:
    """Find gradients that Adam's epsilon drowns, so that its steps are far smaller than the learning rate."""
    groups = [] if e.built is None else e.built.param_groups
    eps = min((group["eps"] for group in groups if "eps" in group), default=ADAM_EPSILON)
    largest = max((p.gradient / math.sqrt(p.parameters) for p in e.readings.parts), default=0.0)
    if not e.has_loss or not 0 < largest < eps:
        return
    severity: Severity = "note" if e.readings.optimiser == "sgd" else "warning"
    seen = f"gradients have a root mean square of {largest:.2g} at most; Adam's eps is {eps:g}"
    cause = (
        "the loss is scaled down: a step of Adam is lr·g/(|g| + eps), so that it moves a parameter by "
        f"{largest / eps:.2g} of the learning rate"
    )
    enough = MIN_GRADIENT_OVER_EPSILON
    remedy = f"multiply the loss by {enough * eps / largest:.0e} or more; or eps={largest / enough:.0e}"
    yield Finding(FindingName.BELOW_EPSILON, severity, (), seen, cause, remedy)


def targets_off_scale(e: Evidence) -> Iterator[Finding]:
    """Find targets of a squared error that are far from mean square 1, and from the outputs."""
    square, outputs = e.target_scale, mean_square(e.measured.output)
    if not square or not math.isfinite(square) or not math.isfinite(outputs):
        return
    large = square > MAX_TARGET_SQUARE * max(outputs, 1.0)
    small = square * MAX_TARGET_SQUARE < min(outputs, 1.0)
    if large or small:
        seen = f"y has mean square {square:.3g}, the outputs {outputs:.3g}; the theory starts outputs at 1 or less"
        cause = "the targets are not standardised, so that the net must learn their size before anything else"
        cause += "; what it puts out at the start drowns them" if small else ""
        remedy = "y = (y - mean) / std, with those of the training data; and outputs * std + mean where they are used"
        yield Finding(FindingName.TARGETS_OFF_SCALE, "warning", (), seen, cause, remedy)


def loss(e: Evidence) -> Iterator[Finding]:
    """Find a loss far from that of guessing."""
    value, expected = e.readings.loss, e.readings.expected_loss
    if value is None or expected is None:
        return
    seen = f"{value:.4g}; a net that knows nothing has ln(classes) = {expected:.3g}"
    if value > expected + MAX_LOSS_OVER_GUESSING:
        cause = (
            f"the outputs are too large: their mean square is {mean_square(e.measured.output):.3g}, where 1 is usual"
        )
        remedy = _scale_outputs(e)
        if _shifts_labels(e):
            cause = (
                f"y was compared with the outputs place by place, and a {type(e.subject.skeleton.module).__name__} "
                "predicts the next token: its own loss shifts labels by one"
            )
            remedy = "diagnose(net, {**inputs, 'labels': labels}) without y, which takes the loss of the mainnet itself"
        yield Finding(FindingName.LOSS_TOO_LARGE, "warning", (), seen, cause, remedy)
    elif value < expected / 2:
        cause = "the net is trained already, or the inputs give the class away"
        remedy = "nothing, if so: the targets of a diagnosis are those of a net at its start"
        yield Finding(FindingName.LOSS_BELOW_GUESSING, "note", (), seen, cause, remedy)


def _scale_outputs(e: Evidence) -> str:
    """Scale outputs down that are too large, unless a frozen layer makes them, which may be right."""
    net, last = e.subject.net, e.readings.layers[-1] if e.readings.layers else None
    if last is not None and not last.generated:
        if any(_is_trained(e, w) for w in last.weights):
            return f"scale '{last.layer}' down, which is not generated"
        if not off_target(e):
            return f"check that y holds the classes that '{last.layer}' was trained for, which is frozen; or loss="
    if net is None or net.init.name == "hyperfan-out" or off_target(e):
        return f"scale the last layer down: {restart(e, 'hyperfan-in')}"
    return "scale the last layer down: hyperfan.calibrate_(net, x)"


def _shifts_labels(e: Evidence) -> bool:
    """Whether the mainnet is a language model by its name, whose own loss compares outputs with the next labels."""
    predicts_next = task_type(e.subject.skeleton.module) == CAUSAL_LM
    return predicts_next and e.measured.output.ndim == 3 and not e.measured.returns_loss


def _is_trained(e: Evidence, weight: str) -> bool:
    plain = e.subject.plain.get(weight)
    return plain is None or plain.requires_grad


def rate(e: Evidence) -> Iterator[Finding]:
    """Find a learning rate that the effective rate makes too large for the curvature seen in one step."""
    trial = e.trial
    if trial is None or trial.after <= trial.before + ROUNDING * abs(trial.before):
        return
    largest = max((p for p in e.readings.parts if p.rate), key=lambda p: p.rate or 0.0, default=None)
    effective = f"; '{largest.part}' multiplies it by {largest.rate:.3g}" if largest and largest.rate else ""
    if trial.stable_rate is None:
        allowed, remedy = "is too large for it", f"a smaller rate, such as lr={trial.lr / 100:.1g}; and try again"
    else:
        allowed, remedy = f"allows {trial.stable_rate:.2g} at most", f"lr={trial.stable_rate / 2:.2g}"
    step, change = trial.optimiser, f"the loss from {trial.before:.4g} to {trial.after:.4g}"
    seen = f"one step of {step.title} at {trial.lr:g} takes {change}{effective}"
    cause = (
        f"a step on a head moves the generated weights {step.multiple} times as far as one on the weights themselves, "
        f"and the curvature along it {allowed}"
    )
    yield Finding(FindingName.RATE_TOO_LARGE, "warning", (), seen, cause, remedy)
