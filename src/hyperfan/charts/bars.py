"""Horizontal bars with a name and a number each."""

from collections.abc import Sequence

from hyperfan.charts.figure import svg_file
from hyperfan.charts.markup import tag, text
from hyperfan.charts.palette import Look

ROW_HEIGHT = 27.0
NAME_WIDTH = 7.0
"""Of a character, in pixels."""


def bar_chart(title: str, bars: Sequence[tuple[str, float, str, Look]], width: float = 820) -> str:
    """A self-contained SVG of bars from zero.

    Args:
        title: a headline.
        bars: name, length, the length in words, and look of each.
        width: in pixels.
    """
    left = 24 + NAME_WIDTH * max(len(name) for name, *_ in bars)
    scale = (width - left - 80) / max(length for _, length, *_ in bars)
    inside = []
    for k, (name, length, words, look) in enumerate(bars):
        y = 46 + ROW_HEIGHT * k
        inside += [
            tag("text", text(name), class_="category", x=left - 8, y=y + 14, text_anchor="end"),
            tag("rect", class_=f"bar {look.classes}", x=left, y=y, width=max(scale * length, 1), height=19, rx=2),
            tag("text", text(words), class_="category", x=left + scale * length + 7, y=y + 14),
        ]
    description = f"{title}: {', '.join(f'{name} {words}' for name, _, words, _ in bars)}."
    return svg_file((width, 56 + ROW_HEIGHT * len(bars)), title, description, inside)
