"""``Evidence``: everything measured on a subject and on its *twins*, before it is judged.

The theory says that a hypernet at the right scale behaves like a plain net with independent weights of the target
variances. So the prediction is made with such nets, *twins*, on the same inputs: it holds for any architecture,
whatever norms, sums and nonlinearities stand between the layers, and comes with the scatter of nets of this width.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hyperfan.errors import CallError, HyperfanError
from hyperfan.mainnet.replay import tensors
from hyperfan.probe.diagnosis import PLAIN_PART, Diagnosis, LayerReading, PartReading, TensorReading, head_part
from hyperfan.probe.first_step import FirstStep
from hyperfan.probe.losses import (
    Loss,
    UserLoss,
    float_tensors,
    guessing_loss,
    main_output,
    mean_loss,
    random_direction,
    returned_loss,
    target_square,
)
from hyperfan.probe.moments import (
    Histogram,
    Moments,
    Scale,
    mean_square,
    measured_scale,
    predicted_scale,
    sum_of_squares,
)
from hyperfan.probe.per_code import in_one_batch, sources
from hyperfan.probe.subject import SEED, Subject
from hyperfan.probe.trial import Trial, motionless, stepped, try_step, visible_step

TWINS = 5
"""Number of twins that the prediction is made of."""


class Pass:
    """One pass of the mainnet with these tensors, forward, and backward from a loss that is summed over inputs.

    The gradient goes back to layers, to the tensors and, if they have a graph, to the parameters given. The loss is
    flat if none of it arrives at what the mainnet puts out.
    """

    def __init__(
        self, subject: Subject, generated: Mapping[str, Tensor], loss: Loss, parameters: Sequence[Tensor] = ()
    ) -> None:
        tensors = {name: t if t.requires_grad else t.detach().requires_grad_() for name, t in generated.items()}
        with torch.enable_grad():
            output, self.recording = subject.run(tensors)
            value = loss(output)
        layers = sources(self.recording.outputs)
        ends = [t for t in float_tensors(output) if t.ndim and t.requires_grad]
        wanted = [*(piece for pieces in layers.values() for piece in pieces), *tensors.values(), *parameters, *ends]
        found: list[Tensor | None] = [None] * len(wanted)
        if torch.isfinite(value) and value.requires_grad:
            found = list(torch.autograd.grad(value, wanted, allow_unused=True))
        gradients = iter(found)
        values = main_output(output).detach()
        self.output, self.returns_loss = in_one_batch(values, subject.grouped), returned_loss(output) is not None
        self.loss = value.item() if torch.isfinite(value) else None
        self.gradients: dict[str, Tensor] = {}
        for label, pieces in layers.items():
            of_pieces = [g for _, g in zip(pieces, gradients, strict=False) if g is not None]
            if of_pieces:
                self.gradients[label] = torch.cat(of_pieces) if len(pieces) > 1 else of_pieces[0]
        self.tensor_gradients: dict[str, Tensor] = {}
        for name, g in zip(tensors, gradients, strict=False):
            if g is not None:  # of many tensors, what one for all inputs would get
                self.tensor_gradients[name] = g.sum(0) if subject.has_many(name, g) else g
        self.parameter_gradients = [next(gradients) for _ in parameters]
        self.loss_is_flat = self._is_flat([g for g in gradients if g is not None], len(ends))

    def _is_flat(self, gradients: Sequence[Tensor], ends: int) -> bool:
        """Whether no gradient arrives at the mainnet's outputs, which a loss of its own need not have come through."""
        seen = bool(gradients) if self.returns_loss else ends > 0
        arrived = (*gradients, *self.tensor_gradients.values())
        return seen and self.loss is not None and not any(bool(g.any()) for g in arrived)

    @property
    def backward_growth(self) -> float:
        """Squared norm of the gradient at the first layer, over that at the last; 0 where there is none."""
        squares = [sum_of_squares(g) for g in self.gradients.values()]
        return squares[0] / squares[-1] if len(squares) > 1 and all(0 < s < math.inf for s in squares) else 0.0


class PassSummary:
    """The numbers of a pass that are kept of a twin, and none of its tensors; mean squares are by layer."""

    def __init__(self, p: Pass) -> None:
        self.activations = {label: mean_square(o.values) for label, o in p.recording.outputs.items()}
        self.gradients = {label: mean_square(g) for label, g in p.gradients.items()}
        self.nonlinearity_inputs = p.recording.nonlinearity_inputs
        self.input_variation = input_variation(p.output)
        self.backward_growth = p.backward_growth


class Evidence:
    """The measurements that the checks judge.

    Attributes:
        measured, twins: a pass of the net, and what plain nets at the target variances do.
        readings: of layers, tensors and parts, and the loss: a diagnosis without findings.
        input_scale: mean square of the inputs, if they are numbers.
        target_scale: mean square of the targets, if the loss is a squared error.
        conditions: those that it is looked at under, if there are any.
        unconditioned: tensors that do not change with the embedding at the start.
        constant: tensors that do not change with the embedding, and neither will after a step.
        parts: the parameters of each part that is trained.
        built, user_parameters: the user's optimiser, if it was passed, and all that it should hold, by name.
        stuck: ids of parameters whose gradient is zero, and still is after a step of the others.
        noise: share of noise in the mean square of each tensor, where it has any.
        trial: one step of the optimiser, if a learning rate was given.
    """

    def __init__(
        self,
        subject: Subject,
        y: Any,
        loss: UserLoss | None,
        lr: float | None,
        optimiser: FirstStep,
        built: Optimizer | None = None,
    ) -> None:
        self.subject = subject
        torch.manual_seed(SEED)
        self.generated = subject.generate()
        subject.accept_phases(self.generated)
        self.parts = parts = subject.trained_parts(self.generated)
        self.built, self.user_parameters = built, subject.user_parameters(parts)
        trained = [p for parameters in parts.values() for p in parameters]
        inputs = subject.inputs
        count = next((t.shape[: 1 + subject.grouped].numel() for t in inputs if t.ndim), 1)
        if not count:
            raise CallError("x is empty: give as many inputs as a training batch has")

        returns_loss = False

        targets = in_one_batch(y, subject.grouped)

        def mean(out: object) -> Tensor:
            if y is not None and loss is not None:
                return mean_loss(out, y, loss)
            if y is not None:
                return mean_loss(in_one_batch(out, subject.grouped), targets, None)
            returned = returned_loss(out, per_code=returns_loss)
            return random_direction(in_one_batch(out, subject.grouped)) if returned is None else returned

        def summed(out: object) -> Tensor:
            return mean(out) * count

        squares, self.noise = _over_draws(subject)
        self.measured = Pass(subject, self.generated, summed, trained)
        returns_loss = self.measured.returns_loss
        self.has_loss = y is not None or returns_loss
        self.twins = [PassSummary(Pass(subject, twin, summed)) for twin in subject.twins(self.generated, TWINS)]
        value = None if self.measured.loss is None or not self.has_loss else self.measured.loss / count
        if lr is not None and not self.has_loss:
            raise HyperfanError("lr= was given without y=: a step needs a loss, as diagnose(net, x, y, lr=…)")
        self.trial: Trial | None = None
        if lr is not None and value is not None:
            pairs = zip(trained, self.measured.parameter_gradients, strict=True)
            gradients = ((p, g / count) for p, g in pairs if g is not None)
            self.trial = try_step(subject, mean, value, gradients, optimiser, lr)
        self.readings = Diagnosis(
            subject.name,
            subject.method.name,
            count,
            TWINS,
            _read_layers(subject, self.measured, self.twins),
            _read_tensors(subject, squares, self.measured, count),
            _read_parts(subject, parts, self.measured, count, optimiser),
            findings=(),
            loss=value,
            expected_loss=None if y is None else guessing_loss(self.measured.output, targets, loss),
            stable_rate=None if self.trial is None else self.trial.stable_rate,
            optimiser=optimiser.name,
            codes=subject.codes,
            correlation=subject.correlation(),
        )
        self.conditions = subject.conditions()
        self.target_scale = target_square(self.measured.output, targets, loss)
        self.input_scale = next((mean_square(t) for t in inputs if t.is_floating_point()), None)
        self.constant = [name for name in subject.constant() if subject.generated[name].target]
        self.unconditioned = tuple(self.constant)
        slopes = self.measured.parameter_gradients
        self.stuck = motionless(trained, slopes) if self.measured.loss is not None else set()
        if self.measured.loss is not None and (self.stuck or self.constant):
            with stepped(visible_step(trained, slopes), 1.0):
                again = subject.generate()
                if any(t is self.generated[name] and not t.is_leaf for name, t in again.items()):
                    raise CallError(
                        "generated() returned the very tensors of its last call, which a step does not change: let it "
                        "compute them, as generated=lambda: {'0.weight': head(code).view(64, 8)}"
                    )
                later = Pass(subject, again, summed, trained)
                self.stuck &= motionless(trained, later.parameter_gradients)
                self.constant = [name for name in subject.constant() if name in self.constant]
        self.y_is_finite = all(bool(t.isfinite().all()) for t in tensors(y))


def input_variation(values: Tensor) -> float:
    """Variance over inputs (dimension 0), as a share of the mean square."""
    v = values.detach().double()
    if not v.ndim:
        return 1.0
    return (v.var(0, correction=0).mean() / v.square().mean()).item() if len(v) > 1 else 1.0


@torch.no_grad()
def _over_draws(subject: Subject) -> tuple[dict[str, float], dict[str, float]]:
    """The mean square of each tensor about its mean, over draws, and the share of noise in it where there is any."""
    sums: dict[str, Tensor] = {}
    squares: dict[str, float] = dict.fromkeys(subject.generated, 0.0)
    draws = 0
    for generated in subject.draws():
        draws += 1
        for name, tensor in generated.items():
            deviation = tensor.detach() - subject.generated[name].mean
            sums[name] = deviation if draws == 1 else sums[name] + deviation
            squares[name] += mean_square(deviation)
    squares = {name: total / draws for name, total in squares.items()}
    if draws == 1:
        return squares, {}
    # The mean over draws still has 1/draws of the noise in it.
    noise = {n: (squares[n] - mean_square(sums[n] / draws)) * draws / (draws - 1) for n in squares}
    return squares, {n: v / squares[n] for n, v in noise.items() if v > 1e-12 * squares[n]}


def _read_layers(subject: Subject, measured: Pass, twins: Sequence[PassSummary]) -> tuple[LayerReading, ...]:
    """Read every layer in forward order, beside the twins."""
    # A code that is larger than expected makes every layer larger, one after the other.
    drift = 2 * math.sqrt(subject.code_scatter)
    rows, count = [], len(measured.recording.outputs)
    for i, (label, out) in enumerate(measured.recording.outputs.items(), 1):
        weights, gradient = subject.weights_of(out), measured.gradients.get(label)
        wanted = [subject.generated[w] for w in weights if w in subject.generated]
        activations = [t.activations[label] for t in twins if label in t.activations]
        gradients = [t.gradients[label] for t in twins if label in t.gradients]
        rows.append(
            LayerReading(
                label,
                type(out.module).__name__,
                weights,
                generated=bool(wanted) or not weights,
                target=wanted[0].layer_output if wanted and out.sums else None,
                predicted=predicted_scale(activations).widened(drift * i) if activations else None,
                measured=measured_scale(out.values, out.units),
                predicted_gradient=predicted_scale(gradients).widened(drift * (count - i + 1)) if gradients else None,
                measured_gradient=None if gradient is None else measured_scale(gradient, out.units),
                histogram=Histogram.around(out.values, Moments.of(out.values)),
            )
        )
    return tuple(rows)


def _read_tensors(
    subject: Subject, squares: Mapping[str, float], measured: Pass, count: int
) -> tuple[TensorReading, ...]:
    """Read every generated tensor, by its mean square, beside its target."""
    rows = []
    for name, t in subject.generated.items():
        # With the scatter of the code, if the head was not fitted to that.
        realised = Scale.around(squares[name], 2 * math.sqrt(2 / t.spec.numel + subject.code_scatter))
        gradient = measured.tensor_gradients.get(name)
        rms = math.nan if gradient is None else math.sqrt(mean_square(gradient)) / count
        rows.append(TensorReading(name, t.spec.role, t.spec.shape, t.head, t.target, t.equation, realised, rms))
    return tuple(rows)


def _read_parts(
    subject: Subject, parts: Mapping[str, Sequence[Tensor]], measured: Pass, count: int, optimiser: FirstStep
) -> tuple[PartReading, ...]:
    """Read everything that is trained: ``measured`` has the gradients of all parts' parameters, in order."""
    rows, unread = [], iter(measured.parameter_gradients)
    of_tensors = {name: optimiser.slope(g) for name, g in measured.tensor_gradients.items()}
    for part, parameters in parts.items():
        gradients = [next(unread) for _ in parameters]
        tensors = [name for name, t in subject.generated.items() if part == head_part(t.head)] or list(of_tensors)
        of_its_tensors = sum(of_tensors.get(name, 0.0) for name in tensors)
        slope, square = sum(map(optimiser.slope, gradients)), sum(map(sum_of_squares, gradients))
        rate = slope / of_its_tensors if of_its_tensors and part != PLAIN_PART else None
        norm = math.nan if measured.loss is None else math.sqrt(square) / count
        rows.append(PartReading(part, sum(p.numel() for p in parameters), norm, rate))
    return tuple(rows)
