"""Learning task after task: losses of many runs, and what one run has learnt and kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hyperfan.report.canvas import canvas, short, styled
from hyperfan.report.setting import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADROOM = 10.0
"""How far above the highest median a panel reaches; means are pulled higher by a few runs."""


@styled
def losses_by_task(
    curves: Mapping[str, Tensor], iterations: Sequence[int], tasks: Sequence[str], title: str
) -> "Figure":
    """Mean with standard error above, median with quartiles below, a column for each task.

    Args:
        curves: label → losses, (seed, task, measurement), NaN from where a run diverged.
        iterations: of the measurements in a task.
        tasks: their names.
        title: of the figure.
    """
    figure, axes = canvas(2, len(tasks), title, (12.5, 6.2), sharex=True, sharey="col")
    for (label, losses), (colour, line) in zip(curves.items(), looks(len(curves)), strict=True):
        for j in range(len(tasks)):
            mine = losses[:, j]
            for ax, (middle, low, high) in zip((axes[0][j], axes[1][j]), (_means(mine), _medians(mine)), strict=True):
                ax.plot(iterations, middle, color=colour, linestyle=line, linewidth=1.5, label=label)
                ax.fill_between(iterations, low, high, color=colour, alpha=0.18, linewidth=0)
    for j, task in enumerate(tasks):
        axes[0][j].set_title(f"task {j + 1}: {task}")
        axes[0][j].set_yscale("log")
        axes[0][j].set_ylim(*_limits([losses[:, j] for losses in curves.values()]))
        axes[1][j].set_xlabel("iteration")
        for row in axes:
            row[j].grid(color="#e5e5e5", linewidth=0.6)
    axes[0][0].set_ylabel("mean ± standard error\nof training loss, finite runs")
    axes[1][0].set_ylabel("median and quartiles\nof training loss, all runs")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    return figure


def _means(losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the runs that are finite."""
    n = losses.isfinite().sum(0)
    mean = losses.nanmean(0)
    spread = ((losses - mean).square().nansum(0) / (n - 1).clamp_min(1) / n.clamp_min(1)).sqrt()
    return mean, mean - spread, mean + spread


def _medians(losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, middle, high = quartiles(losses)
    return middle, low, high


def quartiles(losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Low, median and high over the first dimension, of all runs, those that diverged being the largest.

    >>> [q.item() for q in quartiles(torch.tensor([1.0, 2.0, 3.0, math.nan]))]
    [1.75, 2.5, inf]
    """
    ordered = losses.nan_to_num(math.inf, math.inf).sort(0).values
    found = []
    for quarter in (1, 2, 3):
        place, part = divmod(quarter * (len(ordered) - 1), 4)
        below = ordered[place]
        if part:  # infinity less infinity is no number
            below = torch.lerp(below, ordered[place + 1], part / 4).nan_to_num(math.inf, math.inf)
        found.append(below)
    return found[0], found[1], found[2]


def _limits(losses: Sequence[Tensor]) -> tuple[float, float]:
    medians = torch.cat([_medians(one)[0] for one in losses])
    lows = torch.cat([_medians(one)[1] for one in losses])
    medians, lows = medians[medians.isfinite()], lows[lows.isfinite() & (lows > 0)]
    low = lows.min().item() / 1.5 if len(lows) else 1e-3
    high = medians.max().item() * HEADROOM if len(medians) else 1.0
    return low, max(high, low * HEADROOM)


@dataclass(frozen=True)
class Fit:
    """What one run has learnt.

    Args:
        label: which run.
        predictions: (after, task, point).
        errors: (after, task).
    """

    label: str
    predictions: Tensor
    errors: Tensor


@styled
def fits(runs: Sequence[Fit], x: Tensor, y: Tensor, tasks: Sequence[str], title: str) -> "Figure":
    """A row for each run, a column after each task: the tasks themselves, and the fits to those learnt so far.

    Args:
        runs: the runs.
        x, y: the functions to learn, (task, point).
        tasks: their names.
        title: of the figure.
    """
    figure, axes = canvas(len(runs), len(tasks), title, (12.5, 0.9 + 2.1 * len(runs)), sharex=True, sharey=True)
    low, high = y.min().item(), y.max().item()
    room = 0.25 * (high - low)
    for row, run in zip(axes, runs, strict=True):
        for after, ax in enumerate(row):
            for task in range(len(tasks)):
                ax.plot(x[task], y[task], color="#c8c8c8", linewidth=5, solid_capstyle="round", zorder=1)
            for task, (colour, line) in enumerate(looks(len(tasks) + 1)[1 : after + 2]):
                look: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 1.8, "zorder": 2}
                ax.plot(x[task], run.predictions[after, task], **look)
                says = f"error {short(run.errors[after, task].item())}"
                place = (x[task].mean().item(), high + 0.55 * room)
                ax.annotate(says, place, color=colour, ha="center", va="center", fontsize=7.5)
            ax.set_ylim(low - room, high + room)
        row[0].set_ylabel(run.label)
    for after, ax in enumerate(axes[0]):
        ax.set_title(f"after task {after + 1}: {tasks[after]}")
    return figure
