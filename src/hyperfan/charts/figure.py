"""Figures as files: panels under a title, with a legend, in one self-contained SVG."""

from collections.abc import Iterable, Sequence

from hyperfan.charts.markup import Markup, svg, tag, text
from hyperfan.charts.palette import Look, style
from hyperfan.charts.panel import LABEL_WIDTH, Panel, draw

WIDTH = 940.0
"""Of a figure, in pixels; about as wide as a page on GitHub."""
MARGIN = 12.0
MAX_POINTS = 120
"""Points in a curve of a figure."""
HEADLINE_SIZE = 16
"""In pixels, as ``chart.css`` has it."""
SWATCH = 30.0
"""Width of a line in a legend."""


def figure(
    title: str,
    rows: Sequence[Sequence[Panel]],
    legend: Iterable[tuple[str, Look]] = (),
    note: str = "",
    max_points: int = MAX_POINTS,
) -> str:
    """The SVG of rows of panels.

    Args:
        title: a headline.
        rows: panels from left to right, and from top to bottom.
        legend: names and looks of the curves.
        note: a line below it all.
        max_points: in a curve; longer ones are thinned.
    """
    inside: list[Markup] = []
    y = 40.0
    for row in rows:
        x = MARGIN
        for panel in row:
            width, height = panel.size
            inside.append(draw(panel, max_points, tips=False, x=x, y=y, width=width, height=height))
            x += width
        y += max((panel.size[1] for panel in row), default=0) + 6
    keys, height = _legend(list(legend), y + 12)
    y += height
    if note:
        y += 18
        inside.append(tag("text", text(note), class_="label", x=MARGIN, y=y - 4))
    panels = "; ".join(dict.fromkeys(panel.title for row in rows for panel in row))
    return svg_file((WIDTH, y + 10), title, f"{title}. Panels: {panels}. {note}".strip(), [*inside, *keys])


def svg_file(size: tuple[float, float], title: str, description: str, inside: Iterable[Markup]) -> str:
    """A self-contained SVG file, with a background that follows the reader's choice of light or dark."""
    width, height = size
    content = [
        tag("title", text(title or description)),
        tag("desc", text(description)),
        tag("style", Markup(style())),
        tag("rect", class_="paper", width=width, height=height, rx=8),
        tag("text", text(title), class_="headline", x=14, y=26, style=_fitted(title, width - 28)),
        *inside,
    ]
    xmlns = "http://www.w3.org/2000/svg"
    return svg(size, title or description, content, width=width, height=height, xmlns=xmlns) + "\n"


def _fitted(title: str, width: float) -> str | None:
    """A smaller font for a title that would be wider than this."""
    size = width / (0.62 * max(len(title), 1))
    return f"font-size: {size:.1f}px" if size < HEADLINE_SIZE else None


def swatch(look: Look) -> Markup:
    """A short line that looks like a curve, for a legend in a page."""
    line = tag("g", tag("path", class_="line", d="M1,6H25"), class_=look.classes)
    return svg((26, 12), "", [line], width=26, height=12)


def _legend(entries: Sequence[tuple[str, Look]], y: float) -> tuple[list[Markup], float]:
    """Names beside short lines, from left to right in as many rows as they need; and its height."""
    if not entries:
        return [], 0.0
    drawn: list[Markup] = []
    x, top = MARGIN + 34, y
    for label, look in entries:
        width = SWATCH + 24 + 1.1 * LABEL_WIDTH * len(label)
        if x + width > WIDTH and x > MARGIN + 34:
            x, y = MARGIN + 34, y + 18
        line = tag("path", class_="line", d=f"M{x:.0f},{y - 4:.0f}h{SWATCH:.0f}")
        drawn.append(tag("g", line, class_=look.classes))
        drawn.append(tag("text", text(label), class_="category", x=x + SWATCH + 6, y=y))
        x += width
    return drawn, y - top + 22
