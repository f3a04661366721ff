"""One small chart of lines as SVG: frame, marks, curves."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hyperfan.report.axis import Axis, digits, thinned
from hyperfan.report.markup import Markup, Value, pixels, tag, text

MOST = 400
"""Points in a curve; longer ones are thinned, and keep their extremes."""
LOOKS = 7
_T = TypeVar("_T")


@dataclass(frozen=True)
class Curve:
    """A line in a panel.

    Args:
        label: what it is.
        points: x and y; a line has a gap where y is ``None`` or not on the axis.
        look: number of its colour and dash.
        says: what is told of each point on hover; by default its value.
        band: low and high beside each point, if there is an interval.
        kind: a line, one with its area filled, or a thin one beside another, which says nothing.
        switches: what it belongs to, as "setting-x"; it is hidden while any of them is off.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    look: int = 0
    says: Sequence[str] = ()
    band: Sequence[tuple[float | None, float | None]] = ()
    kind: Literal["line", "area", "faint"] = "line"
    switches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """A chart.

    Args:
        title: above it.
        curves: what it shows.
        x, y: its axes, and ``x_label``, what lies on the first.
        switches: what it belongs to; it is hidden while any of them is off.
        size: in pixels.
        notes: what is written into it, and the look of what that is about.
    """

    title: str
    curves: Sequence[Curve]
    x: Axis
    y: Axis
    x_label: str = ""
    switches: tuple[str, ...] = ()
    size: tuple[float, float] = (250, 165)
    notes: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Frame:
    """Where in an SVG the axes are."""

    left: float
    top: float
    right: float
    bottom: float

    def x(self, part: float) -> float:
        """A part of the way from left to right."""
        return self.left + part * (self.right - self.left)

    def y(self, part: float) -> float:
        """A part of the way from the bottom up."""
        return self.bottom - part * (self.bottom - self.top)


def draw(panel: Panel) -> Markup:
    """The SVG of a panel, for a page that has the style sheet of charts."""
    width, height = panel.size
    frame = Frame(46, 24, width - 10, height - 34)
    inside = [
        tag("text", text(short_name(panel.title, 40)), class_="title", x=2, y=13),
        *_grid(panel, frame),
        *(_curve(curve, panel, frame) for curve in panel.curves),
        tag("text", text(panel.x_label), class_="label", x=frame.x(0.5), y=height - 4, text_anchor="middle"),
    ]
    for i, (note, number) in enumerate(panel.notes):
        where = {"x": frame.right, "y": frame.top + 9 + 12 * i}
        inside.append(tag("text", text(note), class_=f"aside {look(number)}", text_anchor="end", **where))
    return svg(panel.size, f"{panel.title}: {', '.join(c.label for c in panel.curves if c.kind != 'faint')}", inside)


def svg(size: tuple[float, float], says: str, inside: Iterable[Markup], **where: Value) -> Markup:
    """A picture, what it says to those who do not see it, and where it lies in another picture, if it does."""
    told: dict[str, Value] = {"role": "img", "aria_label": says} if says else {"aria_hidden": "true"}
    told["viewBox"] = f"0 0 {pixels(size[0])} {pixels(size[1])}"
    return tag("svg", *inside, class_="chart", **told, **where)


def look(number: int) -> str:
    """Classes of a colour and a dash; the first 49 differ."""
    return f"s{number % LOOKS} d{(number + number // LOOKS) % LOOKS}"


def short_name(name: str, most: int) -> str:
    """A name without its middle, if it is long.

    >>> short_name("layer4.2.conv1.weight", 12)
    'layer4…eight'
    """
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"


def switched(switches: Sequence[str]) -> str | None:
    """The value of the attribute that says what an element belongs to."""
    return " ".join(switches) or None


def _grid(panel: Panel, frame: Frame) -> Iterable[Markup]:
    for value, mark in panel.y.marks:
        part = panel.y.at(value)
        if part is not None:
            y = frame.y(part)
            yield tag("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y)
            yield tag("text", text(mark), class_="tick", x=frame.left - 4, y=y + 3.5, text_anchor="end")
    for value, mark in panel.x.marks:
        part = panel.x.at(value)
        if part is not None:
            x = frame.x(part)
            yield tag("line", class_="grid", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 3)
            yield tag("text", text(mark), class_="tick", x=x, y=frame.bottom + 14, text_anchor="middle")
    yield tag("line", class_="edge", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)


def _curve(curve: Curve, panel: Panel, frame: Frame) -> Markup:
    kept = thinned([y for _, y in curve.points], MOST)
    placed = [(i, _point(panel, frame, *curve.points[i])) for i in kept]
    seen = [(i, p) for i, p in placed if p is not None]
    runs = _runs([p for _, p in placed])
    inside = []
    if curve.band:
        inside.append(_band(curve, panel, frame, kept))
    if curve.kind == "area" and runs:
        area = "".join(f"M{run[0][0]},{frame.bottom:g}L{' '.join(map(_xy, run))}V{frame.bottom:g}Z" for run in runs)
        inside.append(tag("path", class_="area", d=area))
    says = None if curve.kind == "faint" else "|".join(_said(curve, i, panel) for i, _ in seen)
    inside.append(tag("path", class_="faint" if curve.kind == "faint" else "line", d=path(runs), data_says=says))
    if len(seen) == 1:
        x, y = seen[0][1]
        inside.append(tag("circle", class_="dot", cx=float(x), cy=float(y), r=3))
    group = "series" if curve.kind != "faint" else "beside"
    classes = f"{group} {look(curve.look)}"
    return tag("g", *inside, class_=classes, data_in=switched(curve.switches), data_label=curve.label)


def path(runs: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A line with gaps; a single point is a dot, where lines have round ends."""
    return "".join(f"M{_xy(run[0])}{'L' + ' '.join(map(_xy, run[1:])) if len(run) > 1 else 'h0'}" for run in runs)


def _band(curve: Curve, panel: Panel, frame: Frame, kept: Sequence[int]) -> Markup:
    edges: list[tuple[tuple[str, str], tuple[str, str]] | None] = []
    for i in kept:
        x = panel.x.at(curve.points[i][0])
        low, high = (panel.y.nearest(v) for v in curve.band[i])
        if x is None or low is None or high is None:
            edges.append(None)
        else:
            edges.append((_at(frame, x, low), _at(frame, x, high)))
    bands = [
        f"M{' '.join(_xy(high) for _, high in run)} {' '.join(_xy(low) for low, _ in reversed(run))}Z"
        for run in _runs(edges)
    ]
    return tag("path", class_="band", d="".join(bands))


def _point(panel: Panel, frame: Frame, x: float, y: float | None) -> tuple[str, str] | None:
    across, up = panel.x.at(x), panel.y.at(y)
    return None if across is None or up is None else _at(frame, across, up)


def _at(frame: Frame, across: float, up: float) -> tuple[str, str]:
    return pixels(frame.x(across)), pixels(frame.y(up))


def _xy(point: tuple[str, str]) -> str:
    return f"{point[0]},{point[1]}"


def _said(curve: Curve, i: int, panel: Panel) -> str:
    if curve.says:
        return curve.says[i]
    x, y = curve.points[i]
    return f"{panel.x_label} {digits(x)}: {digits(y)}"


def _runs(points: Sequence[_T | None]) -> list[list[_T]]:
    """Those that follow each other without a gap."""
    grouped = itertools.groupby(points, lambda p: p is None)
    return [[p for p in run if p is not None] for gap, run in grouped if not gap]
