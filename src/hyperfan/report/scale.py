"""The scale of layers and generated tensors, as parts of a page."""

from collections.abc import Mapping, Sequence

from hyperfan.charts.dots import DotChart, Dots, Interval, Spread, beyond, draw_dots
from hyperfan.charts.html import MAX_NAMES
from hyperfan.charts.markup import Markup, tag
from hyperfan.charts.palette import NEUTRAL, Look
from hyperfan.charts.scale import distance, scale_dots
from hyperfan.probe.diagnosis import LayerReading, TensorReading
from hyperfan.report.page import figure, section

SIZE = (580, 330)


def scale_section(
    theory: str, layers: Mapping[str, Sequence[LayerReading]], switch: str = "row", looks: Sequence[Look] = ()
) -> Markup:
    """Outputs of layers and gradients at them, as theory predicts them and as they are.

    Args:
        theory: the init method that predicts.
        layers: label → layers of the net.
        switch: prefix of the switch of a label, before its number.
        looks: of the labels, by default that of the init they start with.
    """
    charts = [scale_dots(layers, "activations", SIZE, switch, looks)]
    if any(r.measured_gradient is not None for readings in layers.values() for r in readings):
        charts.append(scale_dots(layers, "gradients", SIZE, switch, looks))
    caption = (
        f"From the first layer to the last. Dashed line and band: what a plain net with independent weights of the "
        f"variances that {theory} wants does on the same inputs, and where 95 % of such nets lie. Points: this net, "
        "with its 95 % sampling interval."
    )
    return section("Scale by layer", dots_figure(caption, charts, "Scale by layer"))


def tensor_dots(tensors: Sequence[TensorReading]) -> DotChart:
    """The chart of generated tensors: realised over target variance."""
    ratios: dict[str, Interval] = {
        t.tensor: Spread(t.realised.value / t.target, t.realised.low / t.target, t.realised.high / t.target)
        for t in tensors
        if t.target
    }
    one: dict[str, Interval] = dict.fromkeys(ratios, Spread(1.0, 1.0, 1.0))
    row = Dots("realised", ratios, one, distance(ratios, one, "target"))
    title = "Realised over target variance of each generated tensor, on a logarithmic axis"
    return DotChart(title, list(ratios), [row], "target", "", "generated tensor", SIZE, "tensor", line=NEUTRAL)


def dots_figure(caption: str, charts: Sequence[DotChart], label: str) -> Markup:
    """Charts side by side, and sentences about values that have no place on their axes."""
    lost = [sentence for chart in charts for sentence in beyond(chart.rows)]
    if lost:
        more = f"; and {len(lost) - MAX_NAMES} more" if len(lost) > MAX_NAMES else ""
        caption += f" Not on the axis: {'; '.join(lost[:MAX_NAMES])}{more}."
    return figure(caption, *(tag("div", draw_dots(c), class_="panel") for c in charts), label=label, wide=True)
