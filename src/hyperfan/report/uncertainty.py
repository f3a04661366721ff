"""Whether a net knows what it does not know: its confidence against its accuracy, and what it says to the unknown."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperfan.report.canvas import canvas, styled
from hyperfan.report.setting import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Told = Mapping[str, Any]
"""A run's line of metrics about its uncertainty."""


@styled
def uncertainty(found: Mapping[str, Sequence[Told]], classes: int, title: str) -> "Figure":
    """A column for each label, its runs put together: reliability above, entropy of known and unknown classes below.

    Args:
        found: label → the lines of its runs.
        classes: how many the nets were trained on.
        title: of the figure.
    """
    figure, axes = canvas(2, len(found), title, (max(3.1 * len(found), 4), 5.6), sharey="row")
    for j, (label, told) in enumerate(found.items()):
        top, bottom = axes[0][j], axes[1][j]
        top.set_title(label)
        _reliability(top, [t["reliability"] for t in told])
        bins = len(told[0]["known"]["entropy"])
        edges = [math.log(classes) * i / bins for i in range(bins + 1)]
        for name, (colour, line) in zip(("known", "unknown"), looks(3)[1:], strict=True):
            if name in told[0]:
                counts = [sum(column) for column in zip(*(t[name]["entropy"] for t in told), strict=True)]
                shares = [c / max(sum(counts), 1) for c in counts]
                bottom.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.5, label=f"{name} classes")
        bottom.axvline(math.log(classes), color="#999999", linewidth=0.8, linestyle="--")
        bottom.set_xlabel("predictive entropy, nats\n(dashed: guessing)")
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("share of pictures")
    axes[1][0].legend(frameon=False)
    return figure


def _reliability(ax: "Axes", tables: Sequence[Sequence[tuple[int, float, float]]]) -> None:
    """Bins of several runs together; a bin's bar is as dark as it is full."""
    bins = len(tables[0])
    total = sum(n for table in tables for n, _, _ in table)
    for i in range(bins):
        n = sum(table[i][0] for table in tables)
        if n:
            accuracy = sum(table[i][0] * table[i][2] for table in tables) / n
            shade = 0.25 + 0.75 * min(4 * n / total, 1)
            ax.bar((i + 0.5) / bins, accuracy, 0.92 / bins, color="#0072B2", alpha=shade)
    ax.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xlabel("confidence (dashed: honest)")
