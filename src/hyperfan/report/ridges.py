"""Histograms of several settings, one above the other, layer by layer."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperfan.report.canvas import canvas, short, styled, tick
from hyperfan.report.density import edges, turning_point, wide_enough
from hyperfan.report.setting import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 0.8
"""Of a ridge, where the next one stands at 1."""


@styled
def ridges(
    settings: Sequence[Setting], quantity: str, panels: Sequence[Sequence[tuple[str, str]]], title: str, *, last: bool
) -> "Figure":
    """How often each value occurs in each layer: a ridge for each setting, its standard deviation beside it.

    Values lie on an axis that is linear around zero and logarithmic far from it, so that scales that differ by orders
    of magnitude fit in one panel. A ridge's height is how densely values lie, each scaled to the same height.

    Args:
        settings: what is compared.
        quantity: which of the probe's quantities.
        panels: rows of panels, each a layer as the probe calls it, and its title.
        title: of the figure.
        last: whether at the end of training or before its start.
    """
    size = (12.5, 0.75 + len(panels) * (0.75 + 0.36 * len(settings)))
    figure, axes = canvas(len(panels), len(panels[0]), title, size, sharey=True, sharex=True)
    steps = [_step(s, last) for s in settings]
    found = [s.layers("histograms", quantity, step) or {} for s, step in zip(settings, steps, strict=True)]
    spread = [s.layers("moments", quantity, step) or {} for s, step in zip(settings, steps, strict=True)]
    names = [where for row in panels for where, _ in row]
    unit = turning_point([layers[w][1] for layers in spread for w in names if w in layers])
    for i, row in enumerate(panels):
        for j, (where, label) in enumerate(row):
            ax = axes[i][j]
            for k, s in enumerate(settings):
                y = len(settings) - 1 - k
                _ridge(ax, y, s, found[k].get(where), spread[k].get(where))
            ax.set_xscale("asinh", linear_width=unit)
            ax.set_title(label)
            ax.tick_params(axis="x", labelsize=7)
            ax.axvline(0, color="#bbbbbb", linewidth=0.6, zorder=0)
    bottom = axes[-1][0]
    bottom.set_yticks(range(len(settings)), [s.label for s in reversed(settings)])
    bottom.set_ylim(-0.15, len(settings) - 0.05)
    for row_axes in axes:
        for ax in row_axes:
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
    tick(bottom.xaxis, unit, apart=0.28)
    figure.supxlabel("value: linear around 0, logarithmic beyond, with a mark at each power of ten", fontsize=7.5)
    return figure


def _ridge(ax: "Axes", y: float, s: Setting, histogram: Mapping[str, Any] | None, pair: Sequence[Any] | None) -> None:
    if histogram is None or pair is None or pair[1] is None:
        end = s.end()
        diverged = end is not None and end["outcome"] == "diverged"
        _say(ax, y, f"diverged at batch {end['step'] + 1}" if diverged and end is not None else "not measured")
        return
    counts = wide_enough(histogram["counts"])
    if not counts:  # all values are the same
        ax.plot([pair[0]] * 2, [y, y + HEIGHT], color=s.colour, linewidth=1.2)
    else:
        ends = edges(histogram["centre"], histogram["unit"], histogram["reach"], len(counts))
        middles = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
        density = [c / (b - a) for c, (a, b) in zip(counts, itertools.pairwise(ends), strict=True)]
        x = [ends[0], *middles, ends[-1]]
        heights = [y, *(y + HEIGHT * d / max(density) for d in density), y]
        ax.fill_between(x, [y] * len(x), heights, color=s.colour, alpha=0.35, linewidth=0)
        ax.plot(x, heights, color=s.colour, linewidth=0.9)
    _say(ax, y, f"σ {short(pair[1])}")


def _say(ax: "Axes", y: float, text: str) -> None:
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
    where = (1.0, y + HEIGHT / 2)
    ax.annotate(text, where, xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7, bbox=behind)


def _step(s: Setting, last: bool) -> int:
    if not last:
        return 0
    end = s.end()
    return -1 if end is None else int(end["step"])
