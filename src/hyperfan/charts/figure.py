"""Figures as files: panels under a title, with a legend, in one self-contained SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hyperfan.charts.markup import Markup, svg, tag, text
from hyperfan.charts.palette import Look, style
from hyperfan.charts.panel import LABEL_WIDTH, Panel, draw

WIDTH = 940.0
"""The width of a figure in pixels; about that of a page on GitHub."""
MARGIN = 12.0
HEADLINE_SIZE = 16
"""The height of a headline in pixels, as ``chart.css`` has it."""
SWATCH = 30.0
"""Width of a line in a legend."""


def figure(
    title: str,
    panels: Sequence[Panel],
    columns: int,
    legend: Iterable[tuple[str, Look]] = (),
    note: str = "",
    *,
    width: float = WIDTH,
    description: str = "",
) -> str:
    """A self-contained SVG of panels, with a background that follows the reader's choice of light or dark.

    Panels go from left to right and from top to bottom; the axes of a row share its width equally. The description is
    for who cannot see it, by default the titles of the panels; the note is a line below it all.
    """
    inside: list[Markup] = []
    y = 40.0 if title else 10.0
    for i in range(0, len(panels), columns):
        row = panels[i : i + columns]
        full = [*row, *[row[-1]] * (columns - len(row))]
        axes = (width - 2 * MARGIN - sum(sum(panel.margins) for panel in full)) / columns
        x = MARGIN
        for panel in row:
            size = (sum(panel.margins) + axes, panel.size[1])
            place = {"x": x, "y": y, "width": size[0], "height": size[1]}
            inside.append(draw(replace(panel, size=size), tips=False, **place))
            x += size[0]
        y += max(panel.size[1] for panel in row) + 6
    keys, height = _legend(list(legend), y + 12, width)
    y += height
    if note:
        y += 18
        inside.append(tag("text", text(note), class_="label", x=MARGIN, y=y - 4))
    titles = "; ".join(dict.fromkeys(panel.title for panel in panels))
    described = f"{title}. {description or f'Panels: {titles}.'} {note}".strip()
    height = y + 10
    content = [
        tag("title", text(title or titles)),
        tag("desc", text(described)),
        tag("style", Markup(style())),
        tag("rect", class_="paper", width=width, height=height, rx=8),
        tag("text", text(title), class_="headline", x=14, y=26, style=_fitted(title, width - 28)),
        *inside,
        *keys,
    ]
    xmlns = "http://www.w3.org/2000/svg"
    return svg((width, height), title or titles, content, width=width, height=height, xmlns=xmlns) + "\n"


def swatch(look: Look) -> Markup:
    """A short line that looks like a curve, for a legend in a page."""
    line = tag("g", tag("path", class_="line", d="M1,6H25"), class_=look.classes)
    return svg((26, 12), "", [line], width=26, height=12)


def _fitted(title: str, width: float) -> str | None:
    """A smaller font for a title that would be wider than this."""
    size = width / (0.62 * max(len(title), 1))
    return f"font-size: {size:.1f}px" if size < HEADLINE_SIZE else None


def _legend(entries: Sequence[tuple[str, Look]], y: float, width: float) -> tuple[list[Markup], float]:
    """Names beside short lines, from left to right in as many rows as they need; and its height."""
    drawn: list[Markup] = []
    x, top = width, y - 18
    y = top
    for label, look in entries:
        needed = SWATCH + 24 + 1.1 * LABEL_WIDTH * len(label)
        if x + needed > width:
            x, y = MARGIN + 34, y + 18
        line = tag("path", class_="line", d=f"M{x:.0f},{y - 4:.0f}h{SWATCH:.0f}")
        drawn.append(tag("g", line, class_=look.classes))
        drawn.append(tag("text", text(label), class_="category", x=x + SWATCH + 6, y=y))
        x += needed
    return drawn, y - top + (4 if entries else 0)
