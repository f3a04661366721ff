"""Curves: points in a frame of two axes, and how they are drawn."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hyperfan.charts.axis import Axis, Number, thinned
from hyperfan.charts.markup import Markup, pixels, tag
from hyperfan.charts.palette import FIRST, Look

SILENT = ("theory", "extent", "bar", "backdrop", "reference")
"""Kinds of curve without tips."""
UP, DOWN = "M0,-5L5,4H-5Z", "M0,5L5,-4H-5Z"
SQUARE = "M-4,-4H4V4H-4Z"
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
            bars, those beyond the axis as arrows at its end. Without tips: a line with the prediction of a theory, a
            thick bar along an interval, a bar from zero, a wide grey line behind others, or a thin grey line to
            compare with.
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
class Frame:
    """Two axes, and where in an SVG they are, in pixels."""

    x_axis: Axis
    y_axis: Axis
    left: float
    top: float
    right: float
    bottom: float

    def x(self, value: Number, *, clip: bool = False) -> float | None:
        """The pixel of a value, as :meth:`Axis.at` places it."""
        part = self.x_axis.at(value, clip=clip)
        return None if part is None else self.left + part * (self.right - self.left)

    def y(self, value: Number, *, clip: bool = False) -> float | None:
        """The pixel of a value, from the bottom up."""
        part = self.y_axis.at(value, clip=clip)
        return None if part is None else self.bottom - part * (self.bottom - self.top)


def draw_curve(curve: Curve, frame: Frame, x_label: str, max_points: int, tips: bool) -> Markup:
    """The SVG of a curve, with tips for a page or without."""
    silent = curve.kind in SILENT
    said: Sequence[str] = ()
    if tips and not silent:
        said = curve.tips or [f"{x_label} {frame.x_axis.words(x)}: {frame.y_axis.words(y)}" for x, y in curve.points]
    inside = _points(curve, frame, said) if curve.kind == "points" else _line(curve, frame, max_points, said)
    return tag(
        "g",
        *inside,
        class_=f"{curve.kind if silent else 'series'} {curve.look.classes}",
        data_in=switched(curve.switches) if tips else None,
        data_label=curve.label if said else None,
    )


def switched(switches: Sequence[str]) -> str | None:
    """The value of the attribute that names an element's switches."""
    return " ".join(switches) or None


def _line(curve: Curve, frame: Frame, max_points: int, tips: Sequence[str]) -> Iterable[Markup]:
    kept = thinned([y for _, y in curve.points], max_points)
    placed = [_xy(frame.x(curve.points[i][0]), frame.y(curve.points[i][1])) for i in kept]
    seen = [point for point in placed if point]
    runs = _runs(placed)
    if curve.band:
        yield _band(curve, frame, max_points)
    if curve.kind == "area":
        base = pixels(frame.bottom if curve.base is None else frame.y(curve.base, clip=True) or 0.0)
        area = "".join(f"M{run[0].partition(',')[0]},{base}L{' '.join(run)}V{base}Z" for run in runs)
        yield tag("path", class_="area", d=area)
    said = "|".join(tips[i] for i, point in zip(kept, placed, strict=True) if point) if tips else None
    if curve.kind == "dots":
        yield tag("path", class_="line dots", d="".join(f"M{point}h0" for point in seen), data_tip=said)
    elif curve.kind == "crosses":
        crosses = "".join(f"M{point}m-4-4l8 8m0-8l-8 8" for point in seen)
        yield tag("path", class_="line crosses", d=crosses, data_tip=said)
    else:
        line = "".join(f"M{run[0]}{'L' + ' '.join(run[1:]) if len(run) > 1 else 'h0'}" for run in runs)
        yield tag("path", class_="line", d=line, data_tip=said)
        if len(seen) == 1:
            x, y = seen[0].split(",")
            yield tag("circle", class_="dot", cx=x, cy=y, r=3)


def _band(curve: Curve, frame: Frame, max_points: int) -> Markup:
    """Between the low and the high ends, each clipped to the frame; extremes of the high ends are kept."""
    edges: list[tuple[str, str] | None] = []
    for i in thinned([high for _, high in curve.band], max_points):
        x = frame.x(curve.points[i][0])
        low, high = (_xy(x, frame.y(end, clip=True)) for end in curve.band[i])
        edges.append((low, high) if low and high else None)
    outlines = [[*(high for _, high in run), *(low for low, _ in reversed(run))] for run in _runs(edges)]
    return tag("path", class_="band", d="".join(f"M{' '.join(outline)}Z" for outline in outlines))


def _points(curve: Curve, frame: Frame, tips: Sequence[str]) -> Iterable[Markup]:
    placed = [(frame.x(x), frame.y(y, clip=True), frame.y(y) is not None) for x, y in curve.points]
    for i, ((x1, y1, on), (x2, y2, next_on)) in enumerate(itertools.pairwise(placed)):
        if on and next_on:
            both = f"{curve.point_switch}-{i} {curve.point_switch}-{i + 1}"
            yield tag("line", class_="link", x1=x1, y1=y1, x2=x2, y2=y2, data_in=both)
    for i, (x, y, on) in enumerate(placed):
        if x is None or y is None:
            continue
        beyond = UP if y == frame.top else DOWN
        shape = SHAPES[curve.look.dash] if on else beyond
        inside = [tag("path", class_="dot", d=shape, transform=f"translate({pixels(x)},{pixels(y)})")]
        low, high = (frame.y(end, clip=True) for end in curve.band[i])
        if on and low is not None and high is not None:
            inside.insert(0, tag("line", class_="error", x1=x, x2=x, y1=low, y2=high))
        tip = tips[i] if tips else None
        yield tag("g", *inside, class_="point", data_x=x, data_y=y, data_tip=tip, data_in=f"{curve.point_switch}-{i}")


def _xy(x: float | None, y: float | None) -> str | None:
    return None if x is None or y is None else f"{pixels(x)},{pixels(y)}"


def _runs(points: Sequence[_T | None]) -> list[list[_T]]:
    """Points that follow each other without a gap."""
    grouped = itertools.groupby(points, lambda p: p is None)
    return [[p for p in run if p is not None] for gap, run in grouped if not gap]
