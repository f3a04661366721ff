"""A diagnosis as a page: findings first, then the scale of every layer and generated tensor, then all numbers."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from hyperfan.charts.axis import digits
from hyperfan.charts.html import MAX_NAMES, findings, table
from hyperfan.charts.markup import Markup, tag, text
from hyperfan.charts.palette import FIRST, Look, looks
from hyperfan.charts.scale import (
    AXES,
    Interval,
    Measurements,
    interval_panel,
    layer_names,
    not_on_axis,
    root,
    scale_measurements,
)
from hyperfan.probe.diagnosis import Diagnosis, LayerReading, TensorReading
from hyperfan.report.inside import RIDGES, Layers, ridge_panels
from hyperfan.report.page import Switch, compared, figure, page, section, switches
from hyperfan.report.run_data import Setting

EFFECTIVE_RATE = (
    "The effective rate is how far along their gradient a step on the part moves the generated tensors, over "
    "the same step on them."
)


def diagnosis_page(
    diagnosis: Diagnosis,
    environment: Mapping[str, str] = MappingProxyType({}),
    others: Mapping[str, Diagnosis] = MappingProxyType({}),
) -> str:
    """A self-contained HTML page.

    Args:
        diagnosis: of the net.
        environment: names and versions of the software it ran on.
        others: label → diagnosis of the same net started otherwise; shown in the chart of scales.
    """
    d, body = diagnosis, []
    seen = {"as it is": d, **others} if others else {"measured": d}
    named = enumerate(zip(seen, looks(list(seen)), strict=True))
    groups: dict[str, list[Switch]] = {
        "Settings": [(f"row-{k}", label, look) for k, (label, look) in named],
        "Layers": [(f"layer-{i}", r.layer, None) for i, r in enumerate(d.layers)],
    }
    if d.layers:
        body.append(scale_section(d.theory, {label: one.layers for label, one in seen.items()}))
    if d.tensors:
        body.append(section("Generated tensors", *_tensor_figure(d.tensors), _tensor_table(d.tensors)))
    if d.layers:
        note = tag("p", text(f"Mean squares, in forward order. {d.scatter_note}".strip()), class_="soft")
        body += [_histograms(d.layers), section("Layers", note, table(*d.layer_table(_write), switch="layer"))]
    if d.parts:
        note = tag("p", text(EFFECTIVE_RATE), class_="soft")
        body.append(section("What is trained", note, table(*d.part_table(_write))))
    if environment:
        body.append(section("Environment", compared([environment], ["value"])))
    top = [
        tag("h1", text(f"Diagnosis of {d.net}")),
        tag("p", text(d.summary), class_="lead"),
        tag("p", text(d.facts), class_="soft"),
        *(tag("p", tag("b", text(f"With {label}: ")), text(o.summary)) for label, o in others.items()),
        section("Findings", findings(d.findings)),
        switches(groups),
    ]
    return page(f"Diagnosis of {d.net}", [*top, *body])


def scale_section(
    theory: str, layers: Mapping[str, Sequence[LayerReading]], switch: str = "row", looks: Sequence[Look] = ()
) -> Markup:
    """Outputs of layers and gradients at them, as an init's theory predicts them and as they are, for each label.

    ``switch`` is the prefix of a label's switch; its look is by default that of the init it starts with.
    """
    found = {AXES[of]: scale_measurements(layers, of, looks) for of in ("activations", "gradients")}
    shown = {title: rows for title, rows in found.items() if any(row.values for row in rows)}
    names = layer_names(layers)
    panels = [interval_panel(title, names, rows, switches=("layer", switch)) for title, rows in shown.items()]
    caption = (
        f"From the first layer to the last. Grey line and band: what a plain net with independent weights of the "
        f"variances that {theory} wants does on the same inputs, and where 95 % of such nets lie. Points: this net, "
        f"with its 95 % sampling interval. {not_on_axis(itertools.chain(*shown.values()), MAX_NAMES)}"
    )
    return section("Scale by layer", figure(caption.strip(), panels, "Scale by layer", wide=True))


def tensor_ratios(tensors: Sequence[TensorReading]) -> Measurements:
    """Realised over target variance of the tensors that have a target."""
    ratios = {
        t.tensor: Interval(*(end / t.target for end in (t.realised.value, t.realised.low, t.realised.high)))
        for t in tensors
        if t.target
    }
    return Measurements("realised", ratios, dict.fromkeys(ratios, Interval(1.0, 1.0, 1.0)), theory_name="target")


def _tensor_figure(tensors: Sequence[TensorReading]) -> list[Markup]:
    """The variance of each generated tensor over its target, if any has one."""
    ratios = tensor_ratios(tensors)
    if not ratios.values:
        return []
    title = "Realised over target variance of each generated tensor, on a logarithmic axis"
    panel = interval_panel(
        title, list(ratios.values), [ratios], "generated tensor", band="", switches=("tensor", "row")
    )
    without = [t.tensor for t in tensors if not t.target]
    caption = "Points: the variance that each generated tensor has over the one it should have, with 95 % interval."
    caption += f" Without a target: {', '.join(without[:MAX_NAMES])}." if without else ""
    return [figure(f"{caption} {not_on_axis([ratios], MAX_NAMES)}".strip(), [panel], "Generated tensors", wide=True)]


def _tensor_table(tensors: Sequence[TensorReading]) -> Markup:
    header = ["tensor", "role", "shape", "head", "target variance", "realised", "[95 %]", "gradient (rms)", "equation"]
    rows = []
    for t in tensors:
        interval = f"[{digits(t.realised.low)}, {digits(t.realised.high)}]"
        numbers = [_write(t.target), digits(t.realised.value), interval, digits(t.gradient)]
        rows.append([t.tensor, t.role, "×".join(map(str, t.shape)), t.head, *numbers, t.equation])
    return table(header, rows)


def _histograms(layers: Sequence[LayerReading]) -> Markup:
    """A ridge for each layer, as for a run whose metrics are those of the diagnosis."""
    found = {
        "moments": {r.layer: (r.histogram.centre, root(r.measured.value - r.histogram.centre**2)) for r in layers},
        "histograms": {r.layer: asdict(r.histogram) for r in layers},
    }
    rows = [{"kind": kind, "step": 0, "of": "outputs", "layers": named} for kind, named in found.items()]
    where: Layers = [(r.layer, f"layer {r.layer}", (f"layer-{i}",)) for i, r in enumerate(layers)]
    panels = ridge_panels([Setting("measured", (rows,), FIRST)], "outputs", where, last=False)
    return section("Values of each layer", figure(f"Values of each layer's output: {RIDGES}", panels, "Histograms"))


def _write(value: float | None) -> str:
    return "–" if value is None else digits(value)
