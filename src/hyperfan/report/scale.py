"""The scale of layers and generated tensors, as parts of a page."""

import itertools
from collections.abc import Mapping, Sequence

from hyperfan.charts.html import MAX_NAMES
from hyperfan.charts.markup import Markup
from hyperfan.charts.palette import NEUTRAL, Look
from hyperfan.charts.scale import AXES, Interval, Measurements, interval_panel, layer_names, layer_scales, not_on_axis
from hyperfan.probe.diagnosis import LayerReading, TensorReading
from hyperfan.report.page import figure, section


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
    found = {AXES[of]: layer_scales(layers, of, looks) for of in ("activations", "gradients")}
    shown = {title: rows for title, rows in found.items() if any(row.values for row in rows)}
    names = layer_names(layers)
    panels = [interval_panel(title, names, rows, switches=("layer", switch)) for title, rows in shown.items()]
    caption = (
        f"From the first layer to the last. Dashed line and band: what a plain net with independent weights of the "
        f"variances that {theory} wants does on the same inputs, and where 95 % of such nets lie. Points: this net, "
        f"with its 95 % sampling interval. {not_on_axis(itertools.chain(*shown.values()), MAX_NAMES)}"
    )
    return section("Scale by layer", figure(caption.strip(), panels, "Scale by layer", wide=True))


def tensor_figure(tensors: Sequence[TensorReading]) -> list[Markup]:
    """The variance of each generated tensor over its target, if any has one."""
    ratios = tensor_ratios(tensors)
    if not ratios.values:
        return []
    title = "Realised over target variance of each generated tensor, on a logarithmic axis"
    panel = interval_panel(
        title, list(ratios.values), [ratios], "generated tensor", band="", switches=("tensor", "row"), line=NEUTRAL
    )
    without = [t.tensor for t in tensors if not t.target]
    caption = "Points: the variance that each generated tensor has over the one it should have, with 95 % interval."
    caption += f" Without a target: {', '.join(without[:MAX_NAMES])}." if without else ""
    return [figure(f"{caption} {not_on_axis([ratios], MAX_NAMES)}".strip(), [panel], "Generated tensors", wide=True)]


def tensor_ratios(tensors: Sequence[TensorReading]) -> Measurements:
    """Realised over target variance of the tensors that have a target."""
    ratios = {
        t.tensor: Interval(*(end / t.target for end in (t.realised.value, t.realised.low, t.realised.high)))
        for t in tensors
        if t.target
    }
    return Measurements("realised", ratios, dict.fromkeys(ratios, Interval(1.0, 1.0, 1.0)), theory_name="target")
