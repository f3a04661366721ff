"""One chart as SVG: curves and notes in a frame of two axes with their marks."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from hyperfan.charts.axis import Axis, thinned
from hyperfan.charts.markup import Markup, Value, pixels, short_name, svg, tag, text
from hyperfan.charts.palette import CLASSICAL, FIRST, Look

MAX_POINTS, MAX_FIGURE_POINTS = 400, 80
"""Points in a curve of a page, and of a figure without tips; longer ones are thinned, and keep their extremes."""
LABEL_WIDTH = 5.9
"""The width of a character beside an axis, in pixels."""
LINE_HEIGHT = 13.0
MAX_TURNED = 15
"""Characters of a name that is written at an angle."""
SMALL, LARGE = (250.0, 175.0), (390.0, 250.0)
"""Sizes in pixels: of one panel among many, and of one among a few."""
GAPS = {"start": 5.0, "middle": 0.0, "end": -5.0}
"""Between a point and the note beside it, in pixels."""
SILENT = ("theory", "extent", "bar", "backdrop", "reference")
"""Kinds of curve without tips."""
UP, DOWN, SQUARE = "M0,-5L5,4H-5Z", "M0,5L5,-4H-5Z", "M-4,-4H4V4H-4Z"
SHAPES = (
    "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0Z",
    SQUARE,
    UP,
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    DOWN,
    SQUARE,
    "M-1.5,-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",
    "M-4.5,-4.5L0,-2L4.5,-4.5L2,0L4.5,4.5L0,2L-4.5,4.5L-2,0Z",
)
"""The shape of points, by the dash that a line of the same look has."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Curve:
    """Points in a panel.

    Args:
        label: name of the curve.
        points: x and y; a line has a gap where y is ``None`` or not on the axis.
        look: its colour and dash.
        tips: text for each point on hover; by default its value.
        band: low and high beside each point, if there is an interval.
        kind: a line; a line with the area between it and ``base`` filled; dots; crosses; or linked points with error
            bars, those beyond the axis as arrows at its end. Without tips: a wide line with the prediction of a
            theory, a thick bar along an interval, a bar from zero, a wide grey line behind others, or a thin grey
            line to compare with.
        base: where an area ends, by default at the bottom.
        switches: names of the switches that show it, as "setting-x"; it is hidden while any of them is off.
        point_switch: prefix of the switch of each of its linked points, before their number.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    look: Look = FIRST
    tips: Sequence[str] = ()
    band: Sequence[tuple[float | None, float | None]] = ()
    kind: Literal["line", "area", "dots", "crosses", "points", "theory", "extent", "bar", "backdrop", "reference"] = (
        "line"
    )
    base: float | None = None
    switches: tuple[str, ...] = ()
    point_switch: str = ""


@dataclass(frozen=True)
class Note:
    """Text in a panel, in the colour of a curve, at a point of the axes or else to the right of the title.

    At an infinite x it stands beside the axes, below the notes there that would cover it.
    """

    text: str
    look: Look | None = None
    at: tuple[float, float] | None = None
    anchor: Literal["start", "middle", "end"] = "end"
    kind: Literal["note", "name", "label", "category"] = "note"


@dataclass(frozen=True)
class Panel:
    """A chart: curves and notes on two axes.

    It is hidden while any of its switches is off. ``left`` and ``right`` are room beside the axes, for marks and notes.
    """

    title: str
    curves: Sequence[Curve]
    x: Axis
    y: Axis
    x_label: str = ""
    y_label: str = ""
    switches: tuple[str, ...] = ()
    size: tuple[float, float] = SMALL
    notes: Sequence[Note] = ()
    left: float = 46
    right: float = 10

    @property
    def margins(self) -> tuple[float, float]:
        """Room beside the axes for all that stands there."""
        return self.left + (14 if self.y_label else 0), self.right


def draw(panel: Panel, *, tips: bool = True, **where: Value) -> Markup:
    """The SVG of a panel, for a page, with tips, or for a figure, whose style sheet is that of charts."""
    (width, height), (left, right) = panel.size, panel.margins
    slot = (width - left - right) / max(len(panel.x.marks), 1)
    turned = panel.x.names and any(1.1 * LABEL_WIDTH * len(name) > slot for _, name in panel.x.marks)
    below = (66 if turned else 20 if panel.x.marks else 6) + (14 if panel.x_label else 0)
    x = replace(panel.x, start=left, end=width - right)
    y = replace(panel.y, start=height - below, end=24 if panel.title else 4)
    named = dict.fromkeys(c.label for c in panel.curves if c.kind not in SILENT)
    inside = [
        tag("text", text(short_name(panel.title, 90)), class_="title", x=left if panel.y_label else 2, y=LINE_HEIGHT),
        *_y_marks(x, y),
        *_x_marks(x, y, turned),
        *(_curve(curve, x, y, panel.x_label, tips) for curve in sorted(panel.curves, key=_order)),
        *_labels(panel, x, y),
        *_notes(panel, x, y),
    ]
    return svg(panel.size, f"{panel.title}: {', '.join(named)}" if tips else "", inside, **where)


def switched(switches: Sequence[str]) -> str | None:
    """The value of the attribute that names an element's switches."""
    return " ".join(switches) or None


def _order(curve: Curve) -> int:
    """Dashes are drawn over solid lines, those of the classical net over all others, and points over lines."""
    if curve.kind in ("dots", "crosses", "points"):
        return 3
    return 2 if curve.look == CLASSICAL else int(curve.look.dash > 0)


def _curve(curve: Curve, x: Axis, y: Axis, x_label: str, tips: bool) -> Markup:
    silent, texts = curve.kind in SILENT, list(curve.tips)
    if not tips or silent:
        texts = []
    elif not texts:
        texts = [f"{x_label} {x.words(a)}: {y.words(b)}" for a, b in curve.points]
    inside = _points(curve, x, y, texts) if curve.kind == "points" else _line(curve, x, y, tips, texts)
    return tag(
        "g",
        *inside,
        class_=f"{curve.kind if silent else 'series'} {curve.look.classes}",
        data_in=switched(curve.switches) if tips else None,
        data_label=curve.label if texts else None,
    )


def _line(curve: Curve, x: Axis, y: Axis, tips: bool, texts: Sequence[str]) -> Iterable[Markup]:
    max_points = MAX_POINTS if tips else MAX_FIGURE_POINTS
    kept = thinned([b for _, b in curve.points], max_points)
    placed = [_xy(x.at(curve.points[i][0]), y.at(curve.points[i][1])) for i in kept]
    runs = _runs(placed)
    tip = "|".join(texts[i] for i, point in zip(kept, placed, strict=True) if point) if texts else None
    if curve.band:
        edges: list[tuple[str, str] | None] = []
        for i in thinned([high for _, high in curve.band], max_points):
            low, high = (_xy(x.at(curve.points[i][0]), y.at(end, clip=True)) for end in curve.band[i])
            edges.append((low, high) if low and high else None)
        outlines = [[*(high for _, high in run), *(low for low, _ in reversed(run))] for run in _runs(edges)]
        yield tag("path", class_="band", d="".join(f"M{' '.join(outline)}Z" for outline in outlines))
    if curve.kind == "area":
        base = pixels(y.start if curve.base is None else y.at(curve.base, clip=True) or 0.0)
        area = "".join(f"M{run[0].partition(',')[0]},{base}L{' '.join(run)}V{base}Z" for run in runs)
        yield tag("path", class_="area", d=area)
    if curve.kind in ("dots", "crosses"):
        mark = "h0" if curve.kind == "dots" else "m-4-4l8 8m0-8l-8 8"
        marks = "".join(f"M{point}{mark}" for point in placed if point)
        yield tag("path", class_=f"line {curve.kind}", d=marks, data_tip=tip)
        return
    line = "".join(f"M{run[0]}{'L' + ' '.join(run[1:]) if len(run) > 1 else 'h0'}" for run in runs)
    yield tag("path", class_="line", d=line, data_tip=tip)
    if [len(run) for run in runs] == [1]:
        cx, cy = runs[0][0].split(",")
        yield tag("circle", class_="dot", cx=cx, cy=cy, r=3)


def _points(curve: Curve, x: Axis, y: Axis, tips: Sequence[str]) -> Iterable[Markup]:
    placed = [(x.at(a), y.at(b, clip=True), y.at(b) is not None) for a, b in curve.points]
    names = [f"{curve.point_switch}-{i}" for i in range(len(placed))]
    for i, ((x1, y1, on), (x2, y2, next_on)) in enumerate(itertools.pairwise(placed)):
        if on and next_on:
            yield tag("line", class_="link", x1=x1, y1=y1, x2=x2, y2=y2, data_in=switched(names[i : i + 2]))
    for i, (left, top, on) in enumerate(placed):
        if left is None or top is None:
            continue
        beyond = UP if top == y.end else DOWN
        shape = SHAPES[curve.look.dash] if on else beyond
        inside = [tag("path", class_="dot", d=shape, transform=f"translate({pixels(left)},{pixels(top)})")]
        low, high = (y.at(end, clip=True) for end in curve.band[i])
        if on and low is not None and high is not None:
            inside.insert(0, tag("line", class_="error", x1=left, x2=left, y1=low, y2=high))
        tip = tips[i] if tips else None
        yield tag("g", *inside, class_="point", data_x=left, data_y=top, data_tip=tip, data_in=names[i])


def _xy(x: float | None, y: float | None) -> str | None:
    return None if x is None or y is None else f"{pixels(x)},{pixels(y)}"


def _runs(points: Sequence[_T | None]) -> list[list[_T]]:
    """Points that follow each other without a gap."""
    grouped = itertools.groupby(points, lambda p: p is None)
    return [[p for p in run if p is not None] for gap, run in grouped if not gap]


def _y_marks(x: Axis, y: Axis) -> Iterable[Markup]:
    for value, mark in y.marks:
        if (at := y.at(value)) is not None:
            yield tag("line", class_="grid", x1=x.start, x2=x.end, y1=at, y2=at)
            yield tag("text", text(mark), class_="tick", x=x.start - 4, y=at + 3.5, text_anchor="end")


def _x_marks(x: Axis, y: Axis, turned: bool) -> Iterable[Markup]:
    """The marks of the horizontal axis; those that would run into each other are left without text."""
    bottom, free = y.start, -math.inf
    yield tag("line", class_="edge", x1=x.start, x2=x.end, y1=bottom, y2=bottom)
    for value, mark in x.marks:
        if (at := x.at(value)) is None:
            continue
        yield tag("line", class_="edge", x1=at, x2=at, y1=bottom, y2=bottom + 3)
        half = LINE_HEIGHT / 2 if turned else LABEL_WIDTH * len(mark) / 2 + 2
        if at - half < free:
            continue
        free = at + half
        if turned:
            turn = f"translate({pixels(at)},{pixels(bottom + 11)})rotate(-40)"
            yield tag("text", text(short_name(mark, MAX_TURNED)), class_="tick", transform=turn, text_anchor="end")
        else:
            yield tag("text", text(mark), class_="tick", x=at, y=bottom + 14, text_anchor="middle")


def _labels(panel: Panel, x: Axis, y: Axis) -> Iterable[Markup]:
    if panel.x_label:
        place = {"x": (x.start + x.end) / 2, "y": panel.size[1] - 3}
        yield tag("text", text(panel.x_label), class_="label", text_anchor="middle", **place)
    if panel.y_label:
        turn = f"translate(10,{pixels((y.start + y.end) / 2)})rotate(-90)"
        yield tag("text", text(panel.y_label), class_="label", transform=turn, text_anchor="middle")


def _notes(panel: Panel, x: Axis, y: Axis) -> Iterable[Markup]:
    placed = [(y.at(note.at[1], clip=True) or 0.0 if note.at else math.inf, note) for note in panel.notes]
    free_from, free_to, line, beside = 1.3 * LABEL_WIDTH * len(panel.title), x.end, LINE_HEIGHT, 0.0
    for top, note in sorted(placed, key=lambda pair: pair[0]):
        if note.at is None:  # from right to left, below if there is no more room beside the title
            width = LABEL_WIDTH * len(note.text) + 10
            if free_to - width < free_from:
                free_from, free_to, line = x.start, x.end, line + LINE_HEIGHT
            left, top, free_to = free_to, line, free_to - width
        else:
            left = (x.at(note.at[0], clip=True) or 0.0) + GAPS[note.anchor]
            if note.at[0] == math.inf and note.anchor == "start":
                top = max(top + 4, beside + (14 if note.kind == "label" else 18))
                beside = top
        classes = f"{note.kind} {note.look.classes}" if note.look else note.kind
        yield tag("text", text(note.text), class_=classes, x=left, y=top, text_anchor=note.anchor)
