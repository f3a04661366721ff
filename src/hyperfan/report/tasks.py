"""Learning task after task: losses of many runs, and what one run has learnt and kept."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hyperfan.charts.axis import Axis, digits, linear_axis, log_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import NO_INITS, Look, looks
from hyperfan.charts.panel import LARGE, Curve, Note, Panel

HEADROOM = 10.0
"""Factor from the highest median to the top of a panel; means are pulled higher by a few runs."""
MAX_BANDS = 5
"""Curves in a panel of a page that have bands; more would hide each other."""


def losses_by_task(
    curves: Mapping[str, Tensor],
    iterations: Sequence[int],
    tasks: Sequence[str],
    title: str,
    inits: Mapping[str, str] = NO_INITS,
) -> str:
    """Mean with standard error above, median with quartiles below, a column for each task, as an SVG.

    Args:
        curves: label → losses, (seed, task, measurement), NaN from where a run diverged.
        iterations: of the measurements in a task.
        tasks: their names.
        title: a headline.
        inits: label → init.
    """
    panels = []
    rows = {"mean ± standard error, finite runs": _means, "median and quartiles, all runs": quartiles}
    for label, statistics in rows.items():
        row = task_panels(curves, iterations, tasks, statistics=statistics, inits=inits)
        row = [replace(panel, y=_limits([t[:, j] for t in curves.values()])) for j, panel in enumerate(row)]
        panels += [replace(row[0], y_label=label), *row[1:]]
    legend = zip(curves, looks(list(curves), inits), strict=True)
    return figure(title, panels, len(tasks), legend, "Training loss of each task while it is learnt.")


def quartiles(losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Low, median and high over the first dimension, of all runs, those that diverged being the largest.

    >>> [q.item() for q in quartiles(torch.tensor([1.0, 2.0, 3.0, math.nan]))]
    [1.75, 2.5, inf]
    """
    shares = torch.tensor([0.25, 0.5, 0.75], dtype=losses.dtype)
    found = torch.quantile(losses.nan_to_num(math.inf, math.inf), shares, dim=0)
    low, middle, high = found.nan_to_num(math.inf, math.inf)  # infinity less infinity is no number
    return low, middle, high


def task_panels(
    curves: Mapping[str, Tensor],
    iterations: Sequence[int],
    tasks: Sequence[str],
    switches: Sequence[str] = (),
    statistics: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]] = quartiles,
    inits: Mapping[str, str] = NO_INITS,
) -> list[Panel]:
    """A panel for each task; arguments as for :func:`losses_by_task`, a switch per label, and low, middle and high."""
    panels, chosen = [], looks(list(curves), inits)
    for j, task in enumerate(tasks):
        drawn = []
        for k, ((label, losses), look) in enumerate(zip(curves.items(), chosen, strict=True)):
            low, middle, high = (t.tolist() for t in statistics(losses[:, j]))
            band = list(zip(low, high, strict=True)) if not switches or len(curves) <= MAX_BANDS else ()
            points = list(zip(iterations, middle, strict=True))
            drawn.append(Curve(label, points, look, band=band, switches=tuple(switches[k : k + 1])))
        y = log_axis(v for curve in drawn for _, v in curve.points)
        panels.append(
            Panel(f"Task {j + 1}: {task}", drawn, linear_axis(0, iterations[-1], 3), y, "iteration", size=LARGE)
        )
    return panels


def _means(losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over the runs that are finite, and one standard error to each side."""
    n = losses.isfinite().sum(0)
    mean = losses.nanmean(0)
    spread = ((losses - mean).square().nansum(0) / (n - 1).clamp_min(1) / n.clamp_min(1)).sqrt()
    return mean - spread, mean, mean + spread


def _limits(losses: Sequence[Tensor]) -> Axis:
    """From a little below the lowest quartile to far above the highest median."""
    lows, medians = (torch.cat([quartiles(one)[i] for one in losses]) for i in (0, 1))
    lows, medians = lows[lows.isfinite() & (lows > 0)], medians[medians.isfinite()]
    low = lows.min().item() / 1.5 if len(lows) else 1e-3
    high = medians.max().item() * HEADROOM if len(medians) else 1.0
    return log_axis([low, max(high, low * HEADROOM)], 0)


@dataclass(frozen=True)
class Fit:
    """What one run has learnt: predictions, (after, task, point), and errors, (after, task); and its init."""

    label: str
    predictions: Tensor
    errors: Tensor
    init: str = ""


def fits(runs: Sequence[Fit], x: Tensor, y: Tensor, tasks: Sequence[str], title: str) -> str:
    """Tasks and the fits to those learnt so far, as an SVG: a row for each run, a column after each task.

    ``x`` and ``y`` are the functions to learn, (task, point).
    """
    low, high = y.min().item(), y.max().item()
    room = 0.25 * (high - low)
    across, up = linear_axis(x.min().item() - 0.2, x.max().item() + 0.2), linear_axis(low - room, high + 1.4 * room, 3)
    behind = [Curve(name, _points(x[j], y[j]), kind="backdrop") for j, name in enumerate(tasks)]
    panels = []
    chosen = looks([run.label for run in runs], {run.label: run.init for run in runs})
    for run, look in zip(runs, chosen, strict=True):
        for after, name in enumerate(tasks):
            curves, notes = list(behind), []
            for j in range(after + 1):
                curves.append(Curve(tasks[j], _points(x[j], run.predictions[after, j]), Look(look.colour)))
                error = f"error {digits(run.errors[after, j].item(), 2)}"
                notes.append(Note(error, look, (x[j].mean().item(), high + room), "middle"))
            heading = f"after task {after + 1}: {name}" if after else run.label
            panels.append(Panel(heading, curves, across, up, size=(250, 140), notes=notes, left=34))
    note = "Columns: after each task. Grey: the functions to learn. Coloured: the fits to those learnt so far."
    return figure(title, panels, len(tasks), note=note)


def _points(x: Tensor, y: Tensor) -> list[tuple[float, float | None]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))
