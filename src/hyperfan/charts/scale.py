"""The scale of every layer, as theory predicts it and as it was measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from hyperfan.charts.axis import ten_to
from hyperfan.charts.dots import DotChart, Dots, Interval, Spread, beyond, draw_dots
from hyperfan.charts.figure import svg_file
from hyperfan.charts.markup import tag, text
from hyperfan.charts.palette import Look, looks

Of = Literal["activations", "gradients"]


class Reading(Protocol):
    """A layer: mean squares of its output and of the gradient at it, as predicted and as measured."""

    @property
    def layer(self) -> str:
        """Its name."""

    @property
    def predicted(self) -> Interval | None:
        """Of the output, by theory."""

    @property
    def measured(self) -> Interval:
        """Of the output."""

    @property
    def predicted_gradient(self) -> Interval | None:
        """Of the gradient, by theory."""

    @property
    def measured_gradient(self) -> Interval | None:
        """Of the gradient."""


AXES = {
    "activations": "Root mean square of each layer's output, on a logarithmic axis",
    "gradients": "Root mean square of the gradient at each layer, on a logarithmic axis",
}
CLOSE_FACTOR = 1.5
"""Up to this factor a layer counts as being where theory has it."""
MAX_SENTENCES = 2
"""About values that are not on the axis; further ones are counted."""


def scale_chart(
    series: Mapping[str, Sequence[Reading]],
    of: Of = "activations",
    title: str = "",
    size: tuple[float, float] = (820, 360),
) -> str:
    """A self-contained SVG: root mean squares by layer, a dashed line for the theory and points for measurements.

    Args:
        series: label → layers in forward order, of the same net each time.
        of: outputs of layers, or gradients at them.
        title: a headline.
        size: in pixels.
    """
    chart = scale_dots(series, of, size)
    lost = beyond(chart.rows)
    more = f"; and {len(lost) - MAX_SENTENCES} more" if len(lost) > MAX_SENTENCES else ""
    note = f"Not on the axis: {'; '.join(lost[:MAX_SENTENCES])}{more}." if lost else ""
    top = 34 if title else 10
    width, height = size[0] + 24, size[1] + top + (24 if note else 10)
    inside = [
        draw_dots(chart, x=12, y=top, width=size[0], height=size[1]),
        tag("text", text(note), class_="tick", x=14, y=height - 10),
    ]
    rows = "; ".join(f"{row.label} {row.note}".strip() for row in chart.rows)
    return svg_file((width, height), title, f"{title or AXES[of]}: {rows}.", inside)


def scale_dots(
    series: Mapping[str, Sequence[Reading]],
    of: Of,
    size: tuple[float, float],
    switch: str = "row",
    given: Sequence[Look] = (),
) -> DotChart:
    """The chart of layers, to be drawn into a page; by default each label has the look of the init it starts with."""
    names = list(dict.fromkeys(reading.layer for readings in series.values() for reading in readings))
    rows = []
    for (label, readings), look in zip(series.items(), given or looks(list(series)), strict=True):
        measured = _roots({r.layer: r.measured if of == "activations" else r.measured_gradient for r in readings})
        theory = _roots({r.layer: r.predicted if of == "activations" else r.predicted_gradient for r in readings})
        rows.append(Dots(label, measured, theory, distance(measured, theory), look))
    return DotChart(AXES[of], names, rows, size=size, row_switch=switch)


def root(value: float) -> float:
    """The root of a mean square; NaN stays NaN."""
    return math.sqrt(value) if value > 0 else math.nan if math.isnan(value) else 0.0


def distance(values: Mapping[str, Interval], theory: Mapping[str, Interval], name: str = "theory") -> str:
    """The largest distance from theory, in a few words."""
    pairs = [(s.value, theory[n].value) for n, s in values.items() if n in theory]
    ratios = [math.log(a) - math.log(b) for a, b in pairs if 0 < a < math.inf and 0 < b < math.inf]
    if not ratios:
        return ""
    worst = max(ratios, key=abs)
    if abs(worst) < math.log(CLOSE_FACTOR):
        return f"within {max(math.exp(abs(worst)), 1.01):.3g}× of {name}"
    factor = _factor(abs(worst))
    return f"up to {factor}× {name}" if worst > 0 else f"down to 1/{factor} of {name}"


def _roots(squares: Mapping[str, Interval | None]) -> dict[str, Interval]:
    """Root mean squares, of the layers that have one."""
    return {n: Spread(root(s.value), root(s.low), root(s.high)) for n, s in squares.items() if s is not None}


def _factor(log: float) -> str:
    if log > math.log(1e5):
        return ten_to(round(log / math.log(10)))
    return f"{math.exp(log):.2g}" if log < math.log(10) else f"{float(f'{math.exp(log):.2g}'):,.0f}"
