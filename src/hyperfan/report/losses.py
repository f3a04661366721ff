"""Loss and accuracy against training steps, as the mean over runs with their range, and against the learning rate."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from hyperfan.charts.axis import Axis, linear_axis, log_axis, share_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import NO_INITS, looks
from hyperfan.charts.panel import LARGE, Curve, Note, Panel
from hyperfan.metrics import Kind, divergence, last_step, series
from hyperfan.report.run_data import Setting, legend

MAX_MEANS = 60
"""Points in a curve of a figure; longer ones are averaged over neighbours, so that a noisy line can be followed."""
Loss = tuple[Kind, str, str, Callable[[Iterable[float | None]], Axis]]
"""Kind and key in the metrics, title, and axis for some values."""
Accuracies = Mapping[float, Sequence[float | None]]
"""Learning rate → the accuracy of each run at it; ``None`` for a run that diverged."""
LOSSES: tuple[Loss, ...] = (
    (Kind.TRAIN, "loss", "Training loss", lambda values: log_axis(values, 1)),
    (Kind.TEST, "loss", "Test loss, summed over the test set", lambda values: log_axis(values, 1)),
    (Kind.TEST, "accuracy", "Test accuracy", share_axis),
)


def loss_and_accuracy(settings: Sequence[Setting], epoch_batches: int, title: str, unit: str = "epoch") -> str:
    """Training loss, test loss and test accuracy by epoch, as an SVG; where the unit is a batch, it has one batch."""
    panels = loss_panels(settings, unit, epoch_batches, MAX_MEANS)
    return figure(title, panels, len(LOSSES), legend(settings), _note(settings))


def training_losses(panels: Mapping[str, Sequence[Setting]], title: str) -> str:
    """Training loss by batch, as an SVG: a panel for each label, the same settings in all of them."""
    return _by_label(panels, LOSSES[:1], title)


def losses_and_accuracies(panels: Mapping[str, Sequence[Setting]], title: str) -> str:
    """Training loss by batch, and below it test accuracy, as an SVG: a column for each label."""
    return _by_label(panels, (LOSSES[0], LOSSES[-1]), title)


def _by_label(panels: Mapping[str, Sequence[Setting]], rows: Sequence[Loss], title: str) -> str:
    drawn = [
        _panel(compared, (kind, key, f"{what}: {label}" if len(rows) > 1 else label, axis), "batch", 1, MAX_MEANS)
        for kind, key, what, axis in rows
        for label, compared in panels.items()
    ]
    entries = [(s.label, s.look) for s in next(iter(panels.values()))]
    what, everything = " and ".join(what for _, _, what, _ in rows), list(itertools.chain(*panels.values()))
    return figure(title, drawn, len(panels), entries, f"{what.capitalize()}: {_note(everything).lower()}")


def loss_panels(settings: Sequence[Setting], unit: str, batches: int, max_means: int | None = None) -> list[Panel]:
    """Training loss, test loss and test accuracy, as far as they were recorded."""
    panels = [_panel(settings, loss, unit, batches, max_means) for loss in LOSSES]
    return [p for p in panels if any(y is not None for curve in p.curves for _, y in curve.points)]


def _panel(settings: Sequence[Setting], loss: Loss, unit: str, batches: int, max_means: int | None) -> Panel:
    """A curve for each setting, and a note where all runs of one diverged at once."""
    kind, key, title, axis = loss
    curves = [_curve(s, kind, key, batches, max_means) for s in settings]
    notes = []
    for s, curve in zip(settings, curves, strict=True):
        seen = [(x, y) for x, y in curve.points if y is not None]
        if len(seen) == 1 and kind == Kind.TRAIN and all(divergence(rows) for rows in s.runs):
            notes.append(Note("← diverges at once", s.look, seen[0], "start"))
    values = [v for c in curves for v in (*(y for _, y in c.points), *itertools.chain(*c.band))]
    x = linear_axis(0, max((last_step(rows) for s in settings for rows in s.runs), default=1) / batches, 4)
    return Panel(title, curves, x, axis(values), unit, size=LARGE, notes=notes)


def _curve(s: Setting, kind: Kind, key: str, batches: int, max_means: int | None) -> Curve:
    """The mean of the runs that got so far, and a band from the lowest to the highest if there are several."""
    runs = [series(rows, kind, key) for rows in s.runs]
    size = 1 if max_means is None else max(-(-max(map(len, runs)) // max_means), 1)
    values = [dict(_averaged(run, size)) for run in runs]
    points: list[tuple[float, float | None]] = []
    band: list[tuple[float | None, float | None]] = []
    for step in sorted({step for run in values for step in run}):
        found = [y for run in values if (y := run.get(step)) is not None]
        points.append((step / batches, sum(found) / len(found) if found else None))
        band.append((min(found), max(found)) if found else (None, None))
    return Curve(s.label, points, s.look, band=band if len(runs) > 1 else (), switches=s.switches)


def _averaged(run: list[tuple[int, float | None]], size: int) -> Iterable[tuple[int, float | None]]:
    """Means of neighbours, ``size`` at a time."""
    for i in range(0, len(run), size):
        found = [y for _, y in run[i : i + size] if y is not None]
        yield run[min(i + size, len(run)) - 1][0], sum(found) / len(found) if found else None


def _note(settings: Sequence[Setting]) -> str:
    count = max(len(s.runs) for s in settings)
    return f"Mean of up to {count} runs; bands reach from the lowest to the highest." if count > 1 else "One run each."


def accuracy_by_rate(
    found: Mapping[str, Accuracies], guess: float, title: str, inits: Mapping[str, str] = NO_INITS
) -> str:
    """Accuracy at the end against the learning rate, as an SVG: dots are runs, crosses runs that diverged.

    Args:
        found: label → accuracies; a panel for each.
        guess: the accuracy of guessing, drawn as a line, on which runs that diverged stand.
        title: of the figure.
        inits: label → init.
    """
    y = share_axis([guess, *(a for rates in found.values() for runs in rates.values() for a in runs)])
    panels = []
    for (label, rates), look in zip(found.items(), looks(list(found), inits), strict=True):
        points = [(lr, accuracy) for lr, runs in rates.items() for accuracy in runs]
        x = log_axis([min(rates) / 2, max(rates) * 2], 0)
        ends = [(10**end, guess) for end in (x.low, x.high)]
        curves = [
            Curve("guessing", ends, kind="reference"),
            Curve(f"{label}, finished", [p for p in points if p[1] is not None], look, kind="dots"),
            Curve(f"{label}, diverged", [(lr, guess) for lr, a in points if a is None], look, kind="crosses"),
        ]
        notes = [Note("guessing", None, (ends[1][0], guess * 0.7))]
        panels.append(Panel(label, curves, x, y, "learning rate", size=LARGE, notes=notes))
    return figure(title, panels, len(found), note="● test accuracy at the end of a run   × a run that diverged")
