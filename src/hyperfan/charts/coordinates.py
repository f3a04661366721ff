"""The picture of a coordinate check: scales over those of plain nets, along the width and along the depth."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from hyperfan.charts.axis import Axis, digits, log_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import THEORY, looks
from hyperfan.charts.panel import Curve, Note, Panel
from hyperfan.charts.scale import Interval, Signal

Along = Literal["width", "depth"]
"""What is varied from net to net."""
WORDS = {"activations": "Outputs", "gradients": "Gradients"}
MAX_NAMED = 5
"""Curves of a panel that are named beside it."""
HEIGHT = 215.0
NOTE = (
    "Flat lines at 1 are right. Grey line: plain nets with weights of the variances wanted; "
    "band: where 95 % of them lie."
)


class AlongPanel(NamedTuple):
    """Ratios to plain nets along a size: curve → size → ratio; ``at`` is the size that is held, if there is one."""

    along: Along
    at: int | None
    of: Signal
    curves: Mapping[str, Mapping[int, Interval]]


def coordinate_chart(panels: Sequence[AlongPanel], title: str = "") -> str:
    """A self-contained SVG: flat lines at 1 are what the theory promises."""
    drawn = coordinate_panels(panels)
    described = "Root mean square of each layer over that of plain nets at the target scale, along the size of the net"
    return figure(title, drawn, 2, note=NOTE, description=f"{described}: {'; '.join(panel.title for panel in drawn)}.")


def coordinate_panels(panels: Sequence[AlongPanel]) -> list[Panel]:
    """Outputs at the left and gradients at the right, a row for each size that is held."""
    values = [r.value for panel in panels for curve in panel.curves.values() for r in curve.values()]
    y = log_axis([1.0, *values])
    along_depth = [panel for panel in panels if panel.along == "depth"]
    shown = [_panel(panel, y) for panel in panels if panel.along == "width"]
    for of in dict.fromkeys(panel.of for panel in along_depth):
        of_widths = [panel for panel in along_depth if panel.of == of]
        curves = {
            f"width {panel.at}" if panel.at is not None else name: curve
            for panel in of_widths
            for name, curve in panel.curves.items()
        }
        where = "the last layer" if of == "activations" else "the first layer"
        shown.append(_panel(AlongPanel("depth", None, of, curves), y, f" at {where}"))
    return shown


def _panel(panel: AlongPanel, y: Axis, where: str = "") -> Panel:
    """One curve for each layer, or each width, and a band in which 95 % of plain nets lie."""
    sizes = sorted({size for curve in panel.curves.values() for size in curve})
    held = "" if panel.at is None else f", {'depth' if panel.along == 'width' else 'width'} {panel.at}"
    curves = [_band(panel.curves.values(), sizes)]
    notes = []
    named = _spread(list(panel.curves), MAX_NAMED)
    for (name, curve), look in zip(panel.curves.items(), looks(list(panel.curves)), strict=True):
        points = [(math.log2(size), curve[size].value) for size in sizes]
        tips = [f"{panel.along} {size}: {digits(curve[size].value)} times plain" for size in sizes]
        label = f"layer {name}" if panel.along == "width" else name
        curves.append(Curve(label, points, look, tips, kind="line"))
        ends = [value for _, value in points if math.isfinite(value)]
        if ends and name in named:
            notes.append(Note(label, look, (math.inf, ends[-1]), "start", "name"))
    ends_of_axis = math.log2(sizes[0]) - 0.2, math.log2(sizes[-1]) + 0.2
    x = Axis(lambda place: place, *ends_of_axis, tuple((math.log2(size), f"{size:,}") for size in sizes))
    right = 24 + 7.4 * max((len(note.text) for note in notes), default=0)
    title = f"{WORDS[panel.of]}{where}{held}, over plain nets"
    return Panel(title, curves, x, y, panel.along, size=(460, HEIGHT), notes=notes, right=right)


def _band(curves: Iterable[Mapping[int, Interval]], sizes: Sequence[int]) -> Curve:
    """A line at 1, and the reach of plain nets, as wide as that of the layer which scatters most."""
    reaches = dict.fromkeys(sizes, 1.0)
    for curve in curves:
        for size, r in curve.items():
            if math.isfinite(r.value):
                reaches[size] = max(reaches[size], r.high / r.value)
    points = [(math.log2(size), 1.0) for size in sizes]
    return Curve("plain nets", points, THEORY, (), [(1 / reaches[s], reaches[s]) for s in sizes], "theory")


def _spread(names: Sequence[str], count: int) -> set[str]:
    """A number of the names, evenly spaced from the first to the last."""
    if len(names) <= count:
        return set(names)
    return {names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)}
