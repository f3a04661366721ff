"""The library's picture: the scale of every layer, as theory has it and as it is."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from hyperfan.probe.diagnosis import LayerReading, Scale, TensorReading
from hyperfan.report.assets import asset
from hyperfan.report.axis import ten_to
from hyperfan.report.dots import DotChart, Dots, beyond, draw_dots
from hyperfan.report.markup import Markup, tag, text
from hyperfan.report.panel import svg

Of = Literal["activations", "gradients"]
AXES = {
    "activations": "Root mean square of each layer's output, on a logarithmic axis",
    "gradients": "Root mean square of the gradient at each layer, on a logarithmic axis",
}
CLOSE = 1.5
"""Up to this factor a layer counts as being where theory has it."""


def scale_chart(
    series: Mapping[str, Sequence[LayerReading]],
    of: Of = "activations",
    title: str = "",
    size: tuple[float, float] = (820, 360),
) -> str:
    """An SVG file of its own: root mean squares by layer in forward order, the theory's line and the measured points.

    Colours follow the reader's choice of light or dark.

    Args:
        series: what is compared, by label, the same net each time: layers of a :class:`hyperfan.probe.Diagnosis`.
        of: outputs of layers, or gradients at them.
        title: a headline above what the axis says.
        size: in pixels.
    """
    chart = scale_dots(series, of, size)
    lost = beyond(chart.rows)
    below = f"Not on the axis: {'; '.join(lost[:2])}{f'; and {len(lost) - 2} more' if len(lost) > 2 else ''}."
    above, under = 34 if title else 10, 24 if lost else 10
    width, height = size[0] + 24, size[1] + above + under
    inside = [
        tag("style", Markup(asset("chart.css"))),
        tag("rect", class_="paper", width=width, height=height, rx=8),
        tag("text", text(title), class_="headline", x=14, y=26) if title else text(""),
        draw_dots(chart, x=12, y=above, width=size[0], height=size[1]),
        tag("text", text(below), class_="tick", x=14, y=height - 10) if lost else text(""),
    ]
    says = f"{title or AXES[of]}: {', '.join(series)}"
    return svg((width, height), says, inside, width=width, height=height, xmlns="http://www.w3.org/2000/svg") + "\n"


def scale_dots(
    series: Mapping[str, Sequence[LayerReading]], of: Of, size: tuple[float, float], switch: str = "row"
) -> DotChart:
    """The chart of layers, to be drawn into a page."""
    names = list(dict.fromkeys(layer.layer for layers in series.values() for layer in layers))
    rows = []
    for label, layers in series.items():
        measured = {r.layer: r.measured if of == "activations" else r.measured_gradient for r in layers}
        theory = {r.layer: r.predicted if of == "activations" else r.predicted_gradient for r in layers}
        seen, predicted = _roots(measured), _roots(theory)
        rows.append(Dots(label, seen, predicted, _distance(seen, predicted)))
    return DotChart(AXES[of], names, rows, size=size, row_switch=switch)


def tensor_dots(tensors: Sequence[TensorReading], size: tuple[float, float]) -> DotChart:
    """The chart of generated tensors: realised over target variance."""
    ratios = {t.tensor: _over(t.realised, t.target) for t in tensors if t.target}
    one = dict.fromkeys(ratios, Scale(1.0, 1.0, 1.0))
    row = Dots("realised", ratios, one, _distance(ratios, one, "target"))
    title = "Realised over target variance of each generated tensor, on a logarithmic axis"
    return DotChart(
        title, list(ratios), [row], theory="target", band="", x_label="generated tensor", size=size, switch="tensor"
    )


def _roots(scales: Mapping[str, Scale | None]) -> dict[str, Scale]:
    """Of those that there are: how large values typically are, which is what is too large or too small in a net."""
    return {n: Scale(root(s.value), root(s.low), root(s.high)) for n, s in scales.items() if s is not None}


def root(value: float) -> float:
    """Of a mean square; what is no number stays none."""
    return math.sqrt(value) if value > 0 else math.nan if math.isnan(value) else 0.0


def _over(scale: Scale, target: float) -> Scale:
    return Scale(scale.value / target, scale.low / target, scale.high / target)


def _distance(values: Mapping[str, Scale], theory: Mapping[str, Scale], what: str = "theory") -> str:
    """How far the worst is from theory, in a few words."""
    pairs = [(s.value, theory[n].value) for n, s in values.items() if n in theory]
    ratios = [math.log(a) - math.log(b) for a, b in pairs if 0 < a < math.inf and 0 < b < math.inf]
    if not ratios:
        return ""
    worst = max(ratios, key=abs)
    if abs(worst) < math.log(CLOSE):
        return f"within {max(math.exp(abs(worst)), 1.01):.3g}× of {what}"
    factor = _factor(abs(worst))
    return f"up to {factor}× {what}" if worst > 0 else f"down to 1/{factor} of {what}"


def _factor(log: float) -> str:
    if log > math.log(1e5):
        return ten_to(round(log / math.log(10)))
    return f"{math.exp(log):.2g}" if log < math.log(10) else f"{float(f'{math.exp(log):.2g}'):,.0f}"
