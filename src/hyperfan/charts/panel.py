"""One chart of curves as SVG: frame, marks, curves, notes."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hyperfan.charts.axis import Axis, digits, thinned
from hyperfan.charts.markup import Markup, Value, pixels, short_name, svg, tag, text
from hyperfan.charts.palette import CLASSICAL, FIRST, Look

MAX_POINTS = 400
"""Points in a curve; longer ones are thinned, and keep their extremes."""
LABEL_WIDTH = 5.9
"""Of a character beside an axis, in pixels."""
NOTE_GAP = 4.0
"""Between a point and the note beside it, in pixels."""
SILENT = ("extent", "backdrop", "reference")
"""Kinds of curve without tips."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Curve:
    """Points in a panel, and how they are drawn.

    Args:
        label: name of the curve.
        points: x and y; a line has a gap where y is ``None`` or not on the axis.
        look: its colour and dash.
        tips: text for each point on hover; by default its value.
        band: low and high beside each point, if there is an interval.
        kind: a line; a line with the area between it and ``base`` filled; dots; crosses; or, without tips, a thick bar
            along an interval, a wide grey line behind others, or a thin grey line to compare with.
        base: where an area ends, by default at the bottom.
        switches: names of the switches that show it, as "setting-x"; it is hidden while any of them is off.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    look: Look = FIRST
    tips: Sequence[str] = ()
    band: Sequence[tuple[float | None, float | None]] = ()
    kind: Literal["line", "area", "dots", "crosses", "extent", "backdrop", "reference"] = "line"
    base: float | None = None
    switches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """Text in a panel, in the colour of a curve, at a point of the axes or else at the top right."""

    text: str
    look: Look | None = None
    at: tuple[float, float] | None = None
    anchor: Literal["start", "middle", "end"] = "end"


@dataclass(frozen=True)
class Panel:
    """A chart.

    Args:
        title: above it.
        curves: what it shows.
        x, y: its axes, and ``x_label`` and ``y_label``, what lies on them.
        switches: names of the switches that show it; it is hidden while any of them is off.
        size: in pixels.
        notes: text inside it.
        left, right: room beside the axes, for marks and notes.
    """

    title: str
    curves: Sequence[Curve]
    x: Axis
    y: Axis
    x_label: str = ""
    y_label: str = ""
    switches: tuple[str, ...] = ()
    size: tuple[float, float] = (250, 165)
    notes: Sequence[Note] = ()
    left: float = 46
    right: float = 10


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


def draw(panel: Panel, max_points: int = MAX_POINTS, tips: bool = True, **where: Value) -> Markup:
    """The SVG of a panel, for a page or a figure that has the style sheet of charts."""
    width, height = panel.size
    left = panel.left + (14 if panel.y_label else 0)
    below = (20 if panel.x.marks else 6) + (14 if panel.x_label else 0)
    frame = Frame(left, 24, width - panel.right, height - below)
    inside = [
        tag("text", text(short_name(panel.title, 60)), class_="title", x=frame.left if panel.y_label else 2, y=13),
        *_grid(panel, frame),
        *(_curve(curve, panel, frame, max_points, tips) for curve in sorted(panel.curves, key=_order)),
        *_labels(panel, frame),
        *_notes(panel, frame),
    ]
    named = [c.label for c in panel.curves if c.kind not in SILENT]
    return svg(panel.size, f"{panel.title}: {', '.join(named)}" if tips else "", inside, **where)


def _order(curve: Curve) -> int:
    """Dashes are drawn over solid lines, and those of the classical net over all others, so that all can be seen."""
    return 2 if curve.look == CLASSICAL else int(curve.look.dash > 0 or curve.kind in ("dots", "crosses"))


def path(runs: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A line with gaps; a single point is a dot, where lines have round ends."""
    return "".join(f"M{_xy(run[0])}{'L' + ' '.join(map(_xy, run[1:])) if len(run) > 1 else 'h0'}" for run in runs)


def _grid(panel: Panel, frame: Frame) -> Iterable[Markup]:
    for value, mark in panel.y.marks:
        part = panel.y.at(value)
        if part is not None:
            y = frame.y(part)
            yield tag("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y)
            yield tag("text", text(mark), class_="tick", x=frame.left - 4, y=y + 3.5, text_anchor="end")
    end = -1e9
    for value, mark in panel.x.marks:
        part = panel.x.at(value)
        if part is not None:
            x, half = frame.x(part), LABEL_WIDTH * len(mark) / 2
            yield tag("line", class_="edge", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 3)
            if x - half > end:  # marks that would run into each other are left without text
                yield tag("text", text(mark), class_="tick", x=x, y=frame.bottom + 14, text_anchor="middle")
                end = x + half + 4
    yield tag("line", class_="edge", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)


def _labels(panel: Panel, frame: Frame) -> Iterable[Markup]:
    if panel.x_label:
        place = {"x": frame.x(0.5), "y": panel.size[1] - 3}
        yield tag("text", text(panel.x_label), class_="label", text_anchor="middle", **place)
    if panel.y_label:
        turn = f"translate(10,{pixels(frame.y(0.5))})rotate(-90)"
        yield tag("text", text(panel.y_label), class_="label", transform=turn, text_anchor="middle")


def _notes(panel: Panel, frame: Frame) -> Iterable[Markup]:
    stacked = 0
    for note in panel.notes:
        if note.at is None:
            x, y = frame.right, frame.top + 9 + 12 * stacked
            stacked += 1
        else:
            across, up = panel.x.nearest(note.at[0]), panel.y.nearest(note.at[1])
            beside = {"start": NOTE_GAP, "middle": 0.0, "end": -NOTE_GAP}[note.anchor]
            x, y = frame.x(across or 0.0) + beside, frame.y(up or 0.0)
        classes = f"note {note.look.classes}" if note.look else "note"
        yield tag("text", text(note.text), class_=classes, x=x, y=y, text_anchor=note.anchor)


def _curve(curve: Curve, panel: Panel, frame: Frame, max_points: int, tips: bool) -> Markup:
    kept = thinned([y for _, y in curve.points], max_points)
    placed = [(i, _point(panel, frame, *curve.points[i])) for i in kept]
    seen = [(i, p) for i, p in placed if p is not None]
    runs = _runs([p for _, p in placed])
    if curve.kind in SILENT:
        return tag("path", class_=f"{curve.kind} {curve.look.classes}", d=path(runs), data_in=switched(curve.switches))
    inside = []
    if curve.band:
        inside.append(_band(curve, panel, frame, max_points))
    if curve.kind == "area" and runs:
        base = pixels(frame.y(panel.y.nearest(curve.base) or 0.0))
        area = "".join(f"M{run[0][0]},{base}L{' '.join(map(_xy, run))}V{base}Z" for run in runs)
        inside.append(tag("path", class_="area", d=area))
    joined_tips = "|".join(_tip(curve, i, panel) for i, _ in seen) if tips else None
    inside.append(tag("path", class_=_line_class(curve), d=_marks(curve, seen, runs), data_tip=joined_tips))
    if len(seen) == 1 and curve.kind in ("line", "area"):
        x, y = seen[0][1]
        inside.append(tag("circle", class_="dot", cx=float(x), cy=float(y), r=3))
    names = {"data_in": switched(curve.switches), "data_label": curve.label} if tips else {}
    return tag("g", *inside, class_=f"series {curve.look.classes}", **names)


def switched(switches: Sequence[str]) -> str | None:
    """The value of the attribute that names an element's switches."""
    return " ".join(switches) or None


def _line_class(curve: Curve) -> str:
    return f"line {curve.kind}" if curve.kind in ("dots", "crosses") else "line"


def _marks(curve: Curve, seen: Sequence[tuple[int, tuple[str, str]]], runs: list[list[tuple[str, str]]]) -> str:
    if curve.kind == "dots":
        return "".join(f"M{_xy(p)}h0" for _, p in seen)
    if curve.kind == "crosses":
        return "".join(f"M{_xy(p)}m-4-4l8 8m0-8l-8 8" for _, p in seen)
    return path(runs)


def _band(curve: Curve, panel: Panel, frame: Frame, max_points: int) -> Markup:
    """Between the low and the high ends, each clipped to the frame; extremes of the high ends are kept."""
    edges: list[tuple[tuple[str, str], tuple[str, str]] | None] = []
    for i in thinned([high for _, high in curve.band], max_points):
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


def _tip(curve: Curve, i: int, panel: Panel) -> str:
    if curve.tips:
        return curve.tips[i]
    x, y = curve.points[i]
    return f"{panel.x_label} {digits(x)}: {digits(y)}"


def _runs(points: Sequence[_T | None]) -> list[list[_T]]:
    """Points that follow each other without a gap."""
    grouped = itertools.groupby(points, lambda p: p is None)
    return [[p for p in run if p is not None] for gap, run in grouped if not gap]
