"""How training went: loss and accuracy, and what the probe saw, against batches."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperfan.report.canvas import canvas, styled, tick
from hyperfan.report.setting import Rows, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 180
"""At most so many in a line of losses."""
GOOD = 0.6
"""An accuracy from which small gains count."""


@styled
def loss_and_accuracy(settings: Sequence[Setting], epoch_batches: int, title: str, unit: str = "epoch") -> "Figure":
    """Training loss, test loss and test accuracy by epoch: the mean over a setting's runs, and their range.

    The axis of accuracy has as much room between 90 and 99 % as between 50 and 90, if anyone gets there. Where the
    unit is a batch, ``epoch_batches`` is 1.
    """
    from matplotlib.ticker import NullLocator

    figure, [axes] = canvas(1, 3, title, (12.5, 3.8))
    best = 0.0
    for s in settings:
        for ax, (kind, key) in zip(axes, (("train", "loss"), ("test", "loss"), ("test", "accuracy")), strict=True):
            middle = _draw_mean_and_range(ax, s, kind, key, epoch_batches)
            best = max([best, *middle]) if key == "accuracy" else best
    for ax, label in zip(axes, ("training loss, mean", "test loss, summed", "test accuracy"), strict=True):
        ax.set_title(label)
        ax.set_xlabel(unit)
        ax.grid(color="#e5e5e5", linewidth=0.6)
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    if best > GOOD:
        axes[2].set_yscale("logit")
        axes[2].set_yticks([0.1, 0.5, 0.9, 0.95, 0.98, 0.99], ["10 %", "50 %", "90 %", "95 %", "98 %", "99 %"])
        axes[2].yaxis.set_minor_locator(NullLocator())
    else:
        axes[2].set_ylim(bottom=0)
        axes[2].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    _legend(figure, settings)
    return figure


@styled
def training_losses(panels: Mapping[str, Sequence[Setting]], title: str) -> "Figure":
    """Training loss by batch, a panel for each label: the mean over a setting's runs, and their range.

    The settings are the same in all panels.
    """
    figure, [axes] = canvas(1, len(panels), title, (12.5, 3.8))
    for ax, (label, settings) in zip(axes, panels.items(), strict=True):
        for s in settings:
            _draw_mean_and_range(ax, s, "train", "loss", 1)
        ax.set_title(label)
        ax.set_xlabel("batch")
        ax.set_yscale("log")
        ax.grid(color="#e5e5e5", linewidth=0.6)
    axes[0].set_ylabel("training loss")
    _legend(figure, next(iter(panels.values())), diverged=False)
    return figure


@styled
def evolution(
    settings: Sequence[Setting],
    quantity: str,
    panels: Sequence[Sequence[tuple[str, str]]],
    epoch_batches: int,
    title: str,
) -> "Figure":
    """Mean with one standard deviation to each side, by epoch, layer by layer; arguments as for ``ridges``."""
    size = (12.5, 0.8 + 2.3 * len(panels))
    figure, axes = canvas(len(panels), len(panels[0]), title, size, sharex=True, sharey="row")
    for i, row in enumerate(panels):
        stds = []
        for j, (where, label) in enumerate(row):
            ax = axes[i][j]
            for s in settings:
                steps, means, deviations = s.history(quantity, where)
                seen = [
                    (step / epoch_batches, m, d)
                    for step, m, d in zip(steps, means, deviations, strict=True)
                    if m is not None and d is not None
                ]
                x = [step for step, _, _ in seen]
                stds += [d for _, _, d in seen if d > 0]
                low, high = [m - d for _, m, d in seen], [m + d for _, m, d in seen]
                dot = "o" if len(x) == 1 else None  # a run that diverged at once
                look: dict[str, Any] = {
                    "color": s.colour,
                    "linestyle": s.line,
                    "linewidth": 1.1,
                    "marker": dot,
                    "markersize": 3,
                }
                ax.plot(x, high, label=s.label, **look)
                ax.plot(x, low, **look)
                ax.fill_between(x, low, high, color=s.colour, alpha=0.12, linewidth=0)
            ax.set_title(label)
            ax.axhline(0, color="#bbbbbb", linewidth=0.6, zorder=0)
        unit = sorted(stds)[len(stds) // 20] if stds else 1.0
        axes[i][0].set_yscale("asinh", linear_width=unit)
        tick(axes[i][0].yaxis, unit, apart=0.2)
        axes[i][0].tick_params(axis="y", labelsize=7)
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    axes[0][0].set_ylabel("mean ± std")
    _legend(figure, settings)
    return figure


def _draw_mean_and_range(ax: "Axes", s: Setting, kind: str, key: str, epoch_batches: int) -> list[float]:
    """A line for the mean over a setting's runs, and a band for their range; returns the mean."""
    steps, columns = _columns([_series(r, kind, key, epoch_batches) for r in s.runs])
    middle = [sum(c) / len(c) for c in columns]
    dot = "o" if len(steps) == 1 else None  # a run that diverged at once
    ax.plot(steps, middle, color=s.colour, linestyle=s.line, linewidth=1.5, marker=dot, label=s.label)
    if dot:
        ax.annotate("diverges at once", (steps[0], middle[0]), xytext=(8, 0), textcoords="offset points", va="center")
    if len(s.runs) > 1:
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        ax.fill_between(steps, low, high, color=s.colour, alpha=0.2, linewidth=0)
    return middle


def _legend(figure: "Figure", settings: Sequence[Setting], diverged: bool = True) -> None:
    """Below the panels: each setting and, if wanted, how many of its runs diverged."""
    from matplotlib.lines import Line2D

    looks: list[dict[str, Any]] = [{"color": s.colour, "linestyle": s.line, "linewidth": 1.5} for s in settings]
    handles = [Line2D([], [], **look) for look in looks]
    gone = [sum(r[-1].get("outcome") == "diverged" for r in s.runs) for s in settings]
    labels = [
        f"{s.label} ({n} of {len(s.runs)} diverged)" if n and diverged else s.label
        for s, n in zip(settings, gone, strict=True)
    ]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(settings), frameon=False)


def _series(rows: Rows, kind: str, key: str, epoch_batches: int) -> list[tuple[float, float]]:
    return [(r["step"] / epoch_batches, r[key]) for r in rows if r["kind"] == kind and r[key] is not None]


def _thinned(series: list[tuple[float, float]], many: int) -> list[tuple[float, float]]:
    """Means of so many neighbours, so that a long noisy line can be followed."""
    pieces = [series[i : i + many] for i in range(0, len(series), many)]
    return [(piece[-1][0], sum(y for _, y in piece) / len(piece)) for piece in pieces]


def _columns(series: Sequence[list[tuple[float, float]]]) -> tuple[list[float], list[list[float]]]:
    """Where the runs were measured, and at each such place the values of those that got so far; long ones thinned."""
    many = max(-(-max(map(len, series)) // POINTS), 1)
    values = [dict(_thinned(one, many)) for one in series]
    steps = sorted({x for one in values for x in one})
    return steps, [[v[x] for v in values if x in v] for x in steps]
