"""Bars from zero, one below the other, each with its name at the left and its length in words at its end."""

from collections.abc import Sequence

from hyperfan.charts.axis import Axis, category_axis
from hyperfan.charts.palette import Look
from hyperfan.charts.panel import Curve, Note, Panel

Bar = tuple[str, float, str, Look]
"""Name, length, the length in words, and look."""


def bar_panel(
    title: str, bars: Sequence[Bar], x: Axis, *, size: tuple[float, float], left: float, right: float
) -> Panel:
    """A panel of bars, from top to bottom; ``left`` and ``right`` are room for the names and for the words."""
    rows = list(enumerate(reversed(bars)))
    y = category_axis([name for _, (name, *_) in rows])
    curves = [Curve(name, [(0, k), (length, k)], look, kind="bar") for k, (name, length, _, look) in rows]
    notes = [Note(words, None, (length, k - 0.15), "start", "category") for k, (_, length, words, _) in rows]
    return Panel(title, curves, x, y, size=size, notes=notes, left=left, right=right)
