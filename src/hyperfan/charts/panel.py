"""One chart as SVG: a title, two axes with their marks, curves and notes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hyperfan.charts.axis import Axis
from hyperfan.charts.curve import SILENT, Curve, Frame, draw_curve
from hyperfan.charts.markup import Markup, Value, pixels, short_name, svg, tag, text
from hyperfan.charts.palette import CLASSICAL, Look

MAX_POINTS = 400
"""Points in a curve; longer ones are thinned, and keep their extremes."""
LABEL_WIDTH = 5.9
"""Of a character beside an axis, in pixels."""
LINE_HEIGHT = 13.0
MAX_TURNED = 15
"""Characters of a name that is written at an angle."""
SMALL, LARGE = (250.0, 175.0), (390.0, 250.0)
"""Sizes in pixels: of one panel among many, and of one among a few."""
GAPS = {"start": 5.0, "middle": 0.0, "end": -5.0}
"""Between a point and the note beside it, in pixels."""


@dataclass(frozen=True)
class Note:
    """Text in a panel, in the colour of a curve, at a point of the axes or else at the top right.

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

    @property
    def description(self) -> str:
        """The title and the names of the curves, for who cannot see them."""
        named = dict.fromkeys(c.label for c in self.curves if c.kind not in SILENT)
        return f"{self.title}: {', '.join(named)}"


def draw(panel: Panel, max_points: int = MAX_POINTS, tips: bool = True, **where: Value) -> Markup:
    """The SVG of a panel, for a page or a figure that has the style sheet of charts."""
    width, height = panel.size
    left, right = panel.margins
    slot = (width - left - right) / max(len(panel.x.marks), 1)
    turned = panel.x.names and any(1.1 * LABEL_WIDTH * len(name) > slot for _, name in panel.x.marks)
    below = (66 if turned else 20 if panel.x.marks else 6) + (14 if panel.x_label else 0)
    frame = Frame(panel.x, panel.y, left, 24 if panel.title else 4, width - right, height - below)
    inside = [
        tag("text", text(short_name(panel.title, 90)), class_="title", x=left if panel.y_label else 2, y=13),
        *_y_marks(frame),
        *_x_marks(frame, turned),
        *(draw_curve(curve, frame, panel.x_label, max_points, tips) for curve in sorted(panel.curves, key=_order)),
        *_labels(panel, frame),
        *_notes(panel, frame),
    ]
    return svg(panel.size, panel.description if tips else "", inside, **where)


def _order(curve: Curve) -> int:
    """Dashes are drawn over solid lines, those of the classical net over all others, and points over lines."""
    if curve.kind in ("dots", "crosses", "points"):
        return 3
    return 2 if curve.look == CLASSICAL else int(curve.look.dash > 0)


def _y_marks(frame: Frame) -> Iterable[Markup]:
    for value, mark in frame.y_axis.marks:
        if (y := frame.y(value)) is not None:
            yield tag("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y)
            yield tag("text", text(mark), class_="tick", x=frame.left - 4, y=y + 3.5, text_anchor="end")


def _x_marks(frame: Frame, turned: bool) -> Iterable[Markup]:
    """Those that would run into each other are left without text."""
    yield tag("line", class_="edge", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)
    end = -math.inf
    for value, mark in frame.x_axis.marks:
        if (x := frame.x(value)) is None:
            continue
        yield tag("line", class_="edge", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 3)
        half = LINE_HEIGHT / 2 if turned else LABEL_WIDTH * len(mark) / 2 + 2
        if x - half < end:
            continue
        end = x + half
        if turned:
            turn = f"translate({pixels(x)},{pixels(frame.bottom + 11)})rotate(-40)"
            yield tag("text", text(short_name(mark, MAX_TURNED)), class_="tick", transform=turn, text_anchor="end")
        else:
            yield tag("text", text(mark), class_="tick", x=x, y=frame.bottom + 14, text_anchor="middle")


def _labels(panel: Panel, frame: Frame) -> Iterable[Markup]:
    if panel.x_label:
        place = {"x": (frame.left + frame.right) / 2, "y": panel.size[1] - 3}
        yield tag("text", text(panel.x_label), class_="label", text_anchor="middle", **place)
    if panel.y_label:
        turn = f"translate(10,{pixels((frame.top + frame.bottom) / 2)})rotate(-90)"
        yield tag("text", text(panel.y_label), class_="label", transform=turn, text_anchor="middle")


def _notes(panel: Panel, frame: Frame) -> Iterable[Markup]:
    placed = [(frame.y(note.at[1], clip=True) or 0.0 if note.at else math.inf, note) for note in panel.notes]
    corner, beside = frame.top + 9, 0.0
    for y, note in sorted(placed, key=lambda pair: pair[0]):
        if note.at is None:
            x, y = frame.right, corner
            corner += 12
        else:
            x = (frame.x(note.at[0], clip=True) or 0.0) + GAPS[note.anchor]
            if note.at[0] == math.inf and note.anchor == "start":
                y = max(y + 4, beside + (14 if note.kind == "label" else 18))
                beside = y
        classes = f"{note.kind} {note.look.classes}" if note.look else note.kind
        yield tag("text", text(note.text), class_=classes, x=x, y=y, text_anchor=note.anchor)
