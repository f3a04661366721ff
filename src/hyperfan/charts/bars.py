"""Horizontal bars with a name and a number each."""

from collections.abc import Sequence

from hyperfan.charts.axis import Axis, category_axis
from hyperfan.charts.curve import Curve
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import Look
from hyperfan.charts.panel import Note, Panel

ROW_HEIGHT = 27
NAME_WIDTH = 6.5
"""Of a character, in pixels."""


def bar_chart(title: str, bars: Sequence[tuple[str, float, str, Look]], width: float = 820) -> str:
    """A self-contained SVG of bars from zero: name, length, the length in words, and look of each."""
    rows = list(enumerate(reversed(bars)))
    x = Axis(lambda length: length, 0, max(length for _, length, _, _ in bars), ())
    y = category_axis([name for _, (name, *_) in rows])
    curves = [Curve(name, [(0, k), (length, k)], look, kind="bar") for k, (name, length, _, look) in rows]
    notes = [Note(words, None, (length, k - 0.15), "start", "category") for k, (_, length, words, _) in rows]
    left = 12 + NAME_WIDTH * max(len(name) for name, *_ in bars)
    size = (width, 10 + ROW_HEIGHT * len(bars))
    panel = Panel("", curves, x, y, size=size, notes=notes, left=left, right=70)
    described = ", ".join(f"{name} {words}" for name, _, words, _ in bars)
    return figure(title, [panel], 1, width=width, description=described)
