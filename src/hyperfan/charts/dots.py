"""A chart by name: measured points with intervals, and a line for the theory, on a logarithmic axis."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hyperfan.charts.axis import Axis, digits, log_axis
from hyperfan.charts.markup import Markup, short_name, svg, tag, text
from hyperfan.charts.palette import CLASSICAL, FIRST, Look
from hyperfan.charts.panel import Frame, path

SHAPES = (
    "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0Z",
    "M-4,-4H4V4H-4Z",
    "M0,-5L5,4H-5Z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "M0,5L5,-4H-5Z",
)
UP, DOWN = "M0,-5L5,4H-5Z", "M0,5L5,-4H-5Z"


class Interval(Protocol):
    """A value with the ends of its interval."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def low(self) -> float:
        """The low end."""

    @property
    def high(self) -> float:
        """The high end."""


class Spread(NamedTuple):
    """An interval that was computed here."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Dots:
    """A row of points, by name.

    Args:
        label: name of the row.
        values: name → value and interval.
        theory: name → value and interval that theory predicts.
        note: a second line below the label.
        look: its colour; the shape of its points is that of its place among the rows.
    """

    label: str
    values: Mapping[str, Interval]
    theory: Mapping[str, Interval]
    note: str = ""
    look: Look = FIRST


@dataclass(frozen=True)
class DotChart:
    """Rows of points beside the theory.

    Args:
        title: what the vertical axis measures.
        names: along the horizontal axis, in order.
        rows: the points; where two have the same theory, it is drawn once.
        theory: name of the line, and ``band``, of the band around it; ``line``, their look.
        x_label: what the names are.
        size: in pixels.
        switch: prefix of the switch of a name, before its number; and ``row_switch``, of a row.
    """

    title: str
    names: Sequence[str]
    rows: Sequence[Dots]
    theory: str = "theory"
    band: str = "band: 95 % of plain nets"
    x_label: str = "layer, from input to output"
    size: tuple[float, float] = (560, 330)
    switch: str = "layer"
    row_switch: str = "row"
    line: Look = CLASSICAL


def draw_dots(chart: DotChart, **where: float) -> Markup:
    """The SVG, for a page that has the style sheet of charts, or for a place in another picture."""
    axis = log_axis(_extent(chart.rows))
    frame = _frame(chart)
    inside = [
        tag("text", text(chart.title), class_="title", x=2, y=14),
        *_grid(chart, axis, frame),
        *_theory(chart, axis, frame),
        *(_row(k, row, chart, axis, frame) for k, row in enumerate(chart.rows)),
        *_labels(chart, axis, frame),
    ]
    description = f"{chart.title}. Points: {', '.join(r.label for r in chart.rows)}; line: {chart.theory}."
    return svg(chart.size, description, inside, **where)


def beyond(rows: Iterable[Dots]) -> list[str]:
    """Sentences about values that have no place on a logarithmic axis."""
    found = []
    for row in rows:
        for what, values in ((row.label, row.values), (f"{row.label}, theory", row.theory)):
            found += [f"{what} of '{n}' is {digits(s.value)}" for n, s in values.items() if not _drawable(s.value)]
    return found


def _drawable(value: float) -> bool:
    return 0 < value < math.inf


def _extent(rows: Iterable[Dots]) -> Iterable[float]:
    """Values, and the ends of intervals that are not much further out."""
    for row in rows:
        for scale in (*row.values.values(), *row.theory.values()):
            if _drawable(scale.value):
                yield scale.value
                yield from (end for end in (scale.low, scale.high) if scale.value / 30 < end < scale.value * 30)


def _frame(chart: DotChart) -> Frame:
    width, height = chart.size
    widest = max((len(w) for r in chart.rows for w in (r.label, r.note, chart.band)), default=0)
    room = min(max(6.2 * widest + 20, 60), 0.32 * width)
    slot = (width - room - 50) / max(len(chart.names), 1)
    below = 38 if _fits(chart.names, slot) else 84
    return Frame(50, 30, width - room, height - below)


def _fits(names: Sequence[str], slot: float) -> bool:
    return all(6.5 * len(n) < slot for n in names)


def _x(i: int, chart: DotChart, frame: Frame) -> float:
    return frame.x((i + 0.5) / len(chart.names))


def _grid(chart: DotChart, axis: Axis, frame: Frame) -> Iterable[Markup]:
    for value, mark in axis.marks:
        y = frame.y(axis.nearest(value) or 0.0)
        yield tag("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y)
        yield tag("text", text(mark), class_="tick", x=frame.left - 6, y=y + 4, text_anchor="end")
    slot = (frame.right - frame.left) / max(len(chart.names), 1)
    upright = _fits(chart.names, slot)
    every = max(math.ceil(13 / slot), 1)
    for i, name in enumerate(chart.names):
        x, y = _x(i, chart, frame), frame.bottom + 15
        if upright:
            yield tag("text", text(name), class_="tick", x=x, y=y, text_anchor="middle")
        elif i % every == 0:
            turn = f"translate({x:.1f},{y - 4:.1f})rotate(-40)"
            yield tag("text", text(short_name(name, 15)), class_="tick", transform=turn, text_anchor="end")
    middle = {"x": frame.x(0.5), "y": chart.size[1] - 4}
    yield tag("text", text(chart.x_label), class_="label", text_anchor="middle", **middle)
    yield tag("line", class_="edge", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)


def _theory(chart: DotChart, axis: Axis, frame: Frame) -> list[Markup]:
    """A band and a line for each theory that differs from those before. By default it is about plain nets."""
    drawn: dict[Markup, None] = {}
    for row in chart.rows:
        half = (frame.right - frame.left) / max(len(chart.names), 1) / 2
        pieces: list[list[tuple[float, float, float, float]]] = [[]]
        for i, name in enumerate(chart.names):
            scale = row.theory.get(name)
            ends = [axis.nearest(v) for v in (scale.low, scale.value, scale.high)] if scale else [None]
            if scale is None or None in ends or not _drawable(scale.value):
                pieces.append([])
                continue
            low, middle, high = (frame.y(e) for e in ends if e is not None)
            pieces[-1].append((_x(i, chart, frame), low, middle, high))
        marks = tag(
            "g", *(m for piece in pieces if piece for m in _piece(piece, half)), class_=f"theory {chart.line.classes}"
        )
        drawn.setdefault(marks)
    return list(drawn)


def _piece(piece: list[tuple[float, float, float, float]], half: float) -> Iterable[Markup]:
    """Out to the middle between two names at its ends, so that a single one can be seen too."""
    first, last = piece[0], piece[-1]
    points = [(first[0] - 0.6 * half, *first[1:]), *piece, (last[0] + 0.6 * half, *last[1:])]
    upper = " ".join(f"{x:.1f},{high:.1f}" for x, _, _, high in points)
    lower = " ".join(f"{x:.1f},{low:.1f}" for x, low, _, _ in reversed(points))
    yield tag("path", class_="band", d=f"M{upper} {lower}Z")
    yield tag("path", class_="line", d=path([[(f"{x:.1f}", f"{y:.1f}") for x, _, y, _ in points]]))


def _row(k: int, row: Dots, chart: DotChart, axis: Axis, frame: Frame) -> Markup:
    placed = []
    for i, name in enumerate(chart.names):
        scale = row.values.get(name)
        up = axis.nearest(scale.value) if scale else None
        if scale is not None and up is not None:
            placed.append((i, name, scale, _x(i, chart, frame), frame.y(up)))
    inside = []
    for (i, _, a, x1, y1), (j, _, b, x2, y2) in itertools.pairwise(placed):
        if j == i + 1 and _drawable(a.value) and _drawable(b.value):
            both = f"{chart.switch}-{i} {chart.switch}-{j}"
            inside.append(tag("line", class_="link", x1=x1, y1=y1, x2=x2, y2=y2, data_in=both))
    inside += [_point(k, row, chart, axis, frame, *where) for where in placed]
    return tag(
        "g", *inside, class_=f"series {row.look.classes}", data_label=row.label, data_in=f"{chart.row_switch}-{k}"
    )


def _point(
    k: int, row: Dots, chart: DotChart, axis: Axis, frame: Frame, i: int, name: str, scale: Interval, x: float, y: float
) -> Markup:
    shape = SHAPES[k % len(SHAPES)] if _drawable(scale.value) else UP if scale.value > 0 else DOWN
    inside = [tag("path", class_="dot", d=shape, transform=f"translate({x:.1f},{y:.1f})")]
    low, high = axis.nearest(scale.low), axis.nearest(scale.high)
    if low is not None and high is not None and _drawable(scale.value):
        inside.insert(0, tag("line", class_="error", x1=x, x2=x, y1=frame.y(low), y2=frame.y(high)))
    theory = row.theory.get(name)
    tip = f"{name}: {digits(scale.value)} [{digits(scale.low)}, {digits(scale.high)}]"
    tip += f", {chart.theory} {digits(theory.value)}" if theory else ", no theory for it"
    return tag("g", *inside, class_="point", data_x=x, data_y=y, data_tip=tip, data_in=f"{chart.switch}-{i}")


def _labels(chart: DotChart, axis: Axis, frame: Frame) -> Iterable[Markup]:
    """At the right, each beside the last of what it names, and none upon another."""
    wanted: list[tuple[float, str, str, str]] = []
    first = next((k for k, row in enumerate(chart.rows) if row.theory), 0)
    for k, row in enumerate(chart.rows):
        for values, label, note, classes in (
            (row.values, row.label, row.note, f"name {row.look.classes}"),
            (row.theory if k == first else {}, chart.theory, chart.band, f"name {chart.line.classes}"),
        ):
            ends = [axis.nearest(values[n].value) for n in chart.names if n in values]
            places = [e for e in ends if e is not None]
            if places:
                wanted.append((frame.y(places[-1]), label, note, classes))
    bottom = frame.top - 12
    for y, label, note, classes in sorted(wanted):
        y = max(y + 4, bottom + 18)
        bottom = y + (14 if note else 0)
        yield tag("text", text(short_name(label, 26)), class_=classes, x=frame.right + 8, y=y)
        if note:
            yield tag("text", text(note), class_="label", x=frame.right + 8, y=y + 14)
