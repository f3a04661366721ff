"""The charts of runs side by side: losses, what moved inside them, and how values lie."""

from collections.abc import Callable, Iterable, Sequence

from hyperfan.metrics import Kind
from hyperfan.report.axis import Axis, asinh_axis, digits, linear_axis, log_axis, plain_axis, share_axis
from hyperfan.report.density import density, turning_point
from hyperfan.report.panel import Curve, Panel
from hyperfan.report.run_data import RunData

WIDE = (390, 250)
FEW = 4
"""Up to so many runs have their standard deviations written into a histogram."""
LOSSES: tuple[tuple[Kind, str, str, Callable[[Iterable[float | None]], Axis]], ...] = (
    (Kind.TRAIN, "loss", "Training loss", lambda values: log_axis(values, 1)),
    (Kind.TEST, "loss", "Test loss, summed over the test set", lambda values: log_axis(values, 1)),
    (Kind.TEST, "accuracy", "Test accuracy", share_axis),
)
Shown = Sequence[tuple[str, str, tuple[str, ...]]]
"""Of layers or tensors: the name in the metrics, the title, and the switches of its panel."""


def unit(runs: Sequence[RunData]) -> tuple[str, int]:
    """What steps are counted in: the stages that all runs share, if one got through any, or else batches."""
    stages = {run.stage for run in runs}
    name, batches = min(stages)
    through = max((run.steps() for run in runs), default=0) >= batches
    return (name, batches) if len(stages) == 1 and through else ("batch", 1)


def loss_panels(runs: Sequence[RunData]) -> list[Panel]:
    """Those of training loss, test loss and test accuracy that there is something for."""
    panels = []
    name, batches = unit(runs)
    x = steps_axis(runs)
    for kind, key, title, axis in LOSSES:
        found = [run.series(kind, key) for run in runs]
        if any(v is not None for series in found for _, v in series):
            curves = [
                Curve(run.name, [(s / batches, v) for s, v in series], k, switches=(f"run-{k}",),
                      says=[f"{name} {digits(s / batches)}: {_told(v, key)}" for s, v in series])
                for k, (run, series) in enumerate(zip(runs, found, strict=True))
            ]  # fmt: skip
            values = [v for series in found for _, v in series]
            panels.append(Panel(title, curves, x, axis(values), name, size=WIDE))
    return panels


def evolution_panels(runs: Sequence[RunData], quantity: str, where: Shown) -> list[Panel]:
    """For each layer its standard deviation against steps, and, thin, how far its mean is from 0."""
    histories = [run.history(quantity) for run in runs]
    name, batches = unit(runs)
    x = steps_axis(runs)
    y = log_axis(std for h in histories for series in h.values() for _, _, std in series)
    panels = []
    for layer, title, switches in where:
        curves = []
        for k, (run, history) in enumerate(zip(runs, histories, strict=True)):
            series = history.get(layer, [])
            says = [f"{name} {digits(s / batches)}: std {digits(d)}, mean {digits(m)}" for s, m, d in series]
            deviations = [(s / batches, d) for s, _, d in series]
            means = [(s / batches, None if m is None else abs(m)) for s, m, _ in series]
            curves.append(Curve(run.name, means, k, kind="faint", switches=(f"run-{k}",)))
            curves.append(Curve(run.name, deviations, k, says=says, switches=(f"run-{k}",)))
        panels.append(Panel(title, curves, x, y, name, switches))
    return panels


def histogram_panels(runs: Sequence[RunData], quantity: str, where: Shown, *, last: bool) -> list[Panel]:
    """For each layer how densely its values lie, on an axis that all layers and runs share."""
    taken = [run.histograms(quantity, last=last) for run in runs]
    lines = [{name: density(**h) for name, h in histograms.items()} for histograms in taken]
    if not any(line for named in lines for line in named.values()):
        return []
    deviations = [_deviations(run, quantity, last) for run in runs]
    reach = max(abs(x) for named in lines for line in named.values() for x, _ in line) or 1.0
    axis = asinh_axis(reach, min(turning_point([d for named in deviations for d in named.values()]), reach), 0.4)
    panels = []
    for layer, title, switches in where:
        curves, notes = [], []
        for k, run in enumerate(runs):
            line = lines[k].get(layer, [])
            says = [f"{digits(x)}: {height:.0%} of the densest" for x, height in line]
            curves.append(Curve(run.name, line, k, says, kind="area", switches=(f"run-{k}",)))
            notes.append((f"std {digits(deviations[k].get(layer))}" if line else "no spread", k))
        few = notes if len(notes) <= FEW else []
        panels.append(Panel(title, curves, axis, plain_axis(0, 1.05 + 0.14 * len(few)), "", switches, notes=few))
    return panels


def steps_axis(runs: Sequence[RunData]) -> Axis:
    """From the start to the end of the longest run."""
    return linear_axis(0, max((run.steps() for run in runs), default=1) / unit(runs)[1])


def _deviations(run: RunData, quantity: str, last: bool) -> dict[str, float | None]:
    """Standard deviations before training, or the last ones taken."""
    return {name: series[-1 if last else 0][2] for name, series in run.history(quantity).items()}


def _told(value: float | None, key: str) -> str:
    return f"{value:.2%}" if key == "accuracy" and value is not None else digits(value)
