"""The scale of every layer, as part of a page."""

from collections.abc import Mapping, Sequence

from hyperfan.probe.diagnosis import LayerReading
from hyperfan.report.dots import DotChart, beyond, draw_dots
from hyperfan.report.findings import MANY
from hyperfan.report.markup import Markup, tag
from hyperfan.report.page import figure, section
from hyperfan.report.scale import scale_dots

SIZE = (580, 330)


def scale_section(theory: str, layers: Mapping[str, Sequence[LayerReading]], switch: str = "row") -> Markup:
    """Outputs of layers and gradients at them, as theory has them and as they are.

    Args:
        theory: whose prediction it is.
        layers: what is compared, by label.
        switch: what a label is called in switches, before its number.
    """
    charts = [scale_dots(layers, "activations", SIZE, switch)]
    if any(r.measured_gradient is not None for readings in layers.values() for r in readings):
        charts.append(scale_dots(layers, "gradients", SIZE, switch))
    caption = (
        f"From the first layer to the last. Line and band: what a plain net with independent weights of the variances "
        f"that {theory} wants does on the same inputs, and where 95 % of such nets lie. Points: this net, with its "
        "95 % sampling interval."
    )
    return section("Scale by layer", dots_figure(caption, charts, "Scale by layer"))


def dots_figure(caption: str, charts: Sequence[DotChart], label: str) -> Markup:
    """Charts side by side, and in words what has no place on their axes."""
    lost = [words for chart in charts for words in beyond(chart.rows)]
    if lost:
        more = f"; and {len(lost) - MANY} more" if len(lost) > MANY else ""
        caption += f" Not on the axis: {'; '.join(lost[:MANY])}{more}."
    return figure(caption, *(tag("div", draw_dots(c), class_="panel") for c in charts), label=label, wide=True)
