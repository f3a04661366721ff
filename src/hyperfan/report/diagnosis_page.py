"""A diagnosis as a page: findings first, then the scale of every layer, then all numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from hyperfan.charts.axis import digits
from hyperfan.charts.html import findings, table
from hyperfan.charts.markup import Markup, tag, text
from hyperfan.charts.palette import FIRST, looks
from hyperfan.charts.scale import root
from hyperfan.probe.diagnosis import Diagnosis, LayerReading, Scale
from hyperfan.report.evolution import Layers
from hyperfan.report.page import Switch, compared, figure, page, section, switches
from hyperfan.report.ridges import RIDGES, ridge_panels
from hyperfan.report.scale import scale_section, tensor_figure
from hyperfan.report.setting import Setting


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
    d = diagnosis
    seen = {"as it is": d, **others} if others else {"measured": d}
    groups: dict[str, list[Switch]] = {
        "Settings": [
            (f"row-{k}", label, look) for k, (label, look) in enumerate(zip(seen, looks(list(seen)), strict=True))
        ],
        "Layers": [(f"layer-{i}", r.layer, None) for i, r in enumerate(d.layers)],
    }
    body = [
        tag("h1", text(f"Diagnosis of {d.net}")),
        tag("p", text(d.summary), class_="lead"),
        tag("p", text(_facts(d)), class_="soft"),
        *(tag("p", tag("b", text(f"With {label}: ")), text(o.summary)) for label, o in others.items()),
        section("Findings", findings([asdict(f) for f in d.findings])),
        switches(groups),
        *([scale_section(d.theory, {label: one.layers for label, one in seen.items()})] if d.layers else []),
        *([_tensors(d)] if d.tensors else []),
        *([_histograms(d.layers)] if d.layers else []),
        *([section("Layers", _layer_table(d.layers))] if d.layers else []),
        *([section("What is trained", _part_table(d))] if d.parts else []),
        *([section("Environment", compared([environment], ["value"]))] if environment else []),
    ]
    return page(f"Diagnosis of {d.net}", body)


def _facts(d: Diagnosis) -> str:
    facts = [f"Theory: {d.theory}", f"{d.inputs:,} inputs", f"prediction from {d.twins} plain nets"]
    if d.loss is not None:
        guess = "" if d.expected_loss is None else f" (guessing has {digits(d.expected_loss)})"
        facts.append(f"loss {digits(d.loss)}{guess}")
    if d.stable_rate is not None:
        facts.append(f"by its curvature the loss allows a learning rate of {digits(d.stable_rate)} in plain SGD")
    return "; ".join(facts) + "."


def _tensors(d: Diagnosis) -> Markup:
    header = ["tensor", "role", "shape", "head", "target variance", "realised", "[95 %]", "gradient (rms)", "equation"]
    rows = [
        [t.tensor, t.role, "×".join(map(str, t.shape)), t.head, _value(t.target), _value(t.realised),
         _interval(t.realised), digits(t.gradient), t.equation]
        for t in d.tensors
    ]  # fmt: skip
    return section("Generated tensors", *tensor_figure(d.tensors), table(header, rows))


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


def _layer_table(layers: Sequence[LayerReading]) -> Markup:
    header = ["layer", "kind", "generated", "target", "predicted", "measured", "[95 %]", "gradient predicted",
              "measured", "[95 %]"]  # fmt: skip
    rows = [
        [r.layer, r.kind, "yes" if r.generated else "no", _value(r.target), _value(r.predicted), _value(r.measured),
         _interval(r.measured), _value(r.predicted_gradient), _value(r.measured_gradient),
         _interval(r.measured_gradient)]
        for r in layers
    ]  # fmt: skip
    note = tag("p", text("Mean squares, in forward order."), class_="soft")
    return Markup(note + table(header, rows, switch="layer"))


def _part_table(d: Diagnosis) -> Markup:
    header = ["part", "parameters", "gradient norm", "effective rate"]
    note = tag("p", text("The effective rate is how far along their gradient a step of SGD on the part moves "
                         "the generated tensors, over the same step on them."), class_="soft")  # fmt: skip
    rows = [[p.part, f"{p.parameters:,}", digits(p.gradient), _value(p.rate)] for p in d.parts]
    return Markup(note + table(header, rows))


def _value(found: Scale | float | None) -> str:
    return "–" if found is None else digits(found.value if isinstance(found, Scale) else found)


def _interval(scale: Scale | None) -> str:
    return "–" if scale is None else f"[{digits(scale.low)}, {digits(scale.high)}]"
