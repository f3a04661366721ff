"""Runs side by side, as a page: outcome, losses, what changed inside, configuration and environment."""

import itertools
from collections.abc import Sequence

from hyperfan.charts.figure import swatch
from hyperfan.charts.html import findings, table
from hyperfan.charts.markup import Markup, tag, text
from hyperfan.charts.palette import looks
from hyperfan.metrics import Kind, histograms, last_step, of_kind
from hyperfan.report.diagnosis_page import scale_section
from hyperfan.report.inside import EVOLUTION, RIDGES, Layers, evolution_panels, ridge_panels
from hyperfan.report.losses import loss_panels
from hyperfan.report.page import Switch, compared, figure, page, section, switches
from hyperfan.report.run_data import RunData, Setting
from hyperfan.text import duration

SUBJECTS = {
    "activations": "Activations, before the nonlinearity",
    "gradients": "Gradients of the activations",
    "weights": "Weights",
    "weight gradients": "Gradients of the weights",
}


def run_page(runs: Sequence[RunData]) -> str:
    """A self-contained HTML page of one run, or of several beside each other."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"
    probed, unit = _probed(runs), _unit(runs)
    diagnosed = [r.layer for run in runs if (d := run.diagnosis()) for r in d.layers]
    layers = list(dict.fromkeys([*diagnosed, *(_layer(name) for names in probed.values() for name in names)]))
    found = looks([str(run.config.get("init", run.name)) for run in runs])
    lines = [
        Setting(r.name, (r.rows,), look, (f"run-{k}",)) for k, (r, look) in enumerate(zip(runs, found, strict=True))
    ]
    curves = [c for run in runs for part in run.sections for panel in part.panels for c in panel.curves]
    settings = dict.fromkeys(name for curve in curves for name in curve.switches)
    groups: dict[str, list[Switch]] = {
        "Runs": [(f"run-{k}", s.label, s.look) for k, s in enumerate(lines)],
        "Layers": [(f"layer-{i}", layer, None) for i, layer in enumerate(layers)],
        "Settings": [(name, name.removeprefix("setting-"), None) for name in settings],
    }
    lead = tag("p", text(runs[0].outcome()), class_="lead")
    if len(runs) > 1:
        items = [
            tag("li", swatch(s.look), tag("b", text(r.name)), tag("span", text(r.outcome())))
            for r, s in zip(runs, lines, strict=True)
        ]
        lead = tag("ul", *items, class_="runs")
    body = [
        tag("h1", text(title)),
        lead,
        switches(groups),
        _losses(lines, unit),
        *_start(runs, lines),
        *(part for k, run in enumerate(runs) for part in _sections(k, run, len(runs) > 1)),
        *(_inside(lines, quantity, names, layers, unit) for quantity, names in probed.items()),
        section("Configuration", compared([r.config for r in runs], [r.name for r in runs])),
        section("Environment", compared([r.environment for r in runs], [r.name for r in runs])),
        *_times(runs),
    ]
    return page(title, body)


def _unit(runs: Sequence[RunData]) -> tuple[str, int]:
    """What steps are counted in: the stages that all runs share, if one got through any, or else batches."""
    stages = {run.stage for run in runs}
    name, batches = min(stages)
    through = max((last_step(run.rows) for run in runs), default=0) >= batches
    return (name, batches) if len(stages) == 1 and through else ("batch", 1)


def _losses(lines: Sequence[Setting], unit: tuple[str, int]) -> Markup:
    panels = loss_panels(lines, *unit)
    if not panels:
        return tag("p", text("No losses were recorded."))
    caption = "Long lines are thinned; their extremes are kept."
    return section("Training", figure(caption, panels, "Losses and accuracy", wide=True))


def _start(runs: Sequence[RunData], lines: Sequence[Setting]) -> list[Markup]:
    """Diagnoses before training: findings of each run, and the scale of every layer."""
    seen = [run.diagnosis() for run in runs]
    theories = list(dict.fromkeys(d.theory for d in seen if d is not None))
    if not theories:
        return []
    parts = []
    for k, d in enumerate(seen):
        if d is not None:
            of = f": {runs[k].name}" if len(runs) > 1 else ""
            listed = [findings(d.findings)] if d.findings else []
            parts.append(section(f"Before training{of}", tag("p", text(d.summary)), *listed, switches=[f"run-{k}"]))
    labels = _apart([r.name for r in runs]) if len(runs) > 1 else ["measured"]
    layers = {label: d.layers if d else () for label, d in zip(labels, seen, strict=True)}
    return [*parts, scale_section(" or ".join(theories), layers, "run", [s.look for s in lines])]


def _apart(names: Sequence[str]) -> list[str]:
    """Names shortened to the words that not all of them have.

    >>> _apart(["MNIST: m2 seed-0 epochs-5", "MNIST: m3 seed-1 epochs-5"])
    ['m2 seed-0', 'm3 seed-1']
    """
    words = [name.split() for name in names]
    short = [" ".join(w for w in each if any(w not in other for other in words)) for each in words]
    if all(short) and len(set(short)) == len(short):
        return short
    return list(names) if len(set(names)) == len(names) else [f"{name} ({k})" for k, name in enumerate(names, 1)]


def _sections(k: int, run: RunData, several: bool) -> list[Markup]:
    """The charts and the table that only this kind of run has."""
    of = f": {run.name}" if several else ""
    parts = [section(f"Results{of}", tag("pre", text(run.text)), switches=[f"run-{k}"])] if run.text else []
    for part in run.sections:
        drawn = figure(part.caption, part.panels, part.heading, wide=True)
        named = {curve.label: curve.look for panel in part.panels for curve in panel.curves if curve.switches}
        items = [tag("li", swatch(look), tag("b", text(label))) for label, look in named.items()]
        key = tag("ul", *items, class_="key")
        parts.append(section(f"{part.heading}{of}", key, drawn, switches=[f"run-{k}"]))
    return parts


def _inside(
    lines: Sequence[Setting], quantity: str, names: Sequence[str], layers: Sequence[str], unit: tuple[str, int]
) -> Markup:
    where: Layers = []
    for name in sorted(names, key=lambda name: name.endswith("bias")):
        layer = _layer(name)
        where.append((name, f"layer {name}" if name == layer else name, (f"layer-{layers.index(layer)}",)))
    subject = SUBJECTS.get(quantity, quantity)
    figures = [figure(EVOLUTION, evolution_panels(lines, quantity, where, *unit), f"{subject}: evolution")]
    for last, when in ((False, "Before training"), (True, "At the last look")):
        if any(histograms(s.runs[0], quantity, last=last) for s in lines):
            drawn = ridge_panels(lines, quantity, where, last=last)
            figures.append(figure(f"{when}: {RIDGES}", drawn, f"{subject}: histograms, {when.lower()}"))
    return section(subject, *figures)


def _probed(runs: Sequence[RunData]) -> dict[str, list[str]]:
    """Each quantity measured inside the nets, and the names of its layers or tensors."""
    found: dict[str, dict[str, None]] = {}
    for kind in (Kind.MOMENTS, Kind.HISTOGRAMS):
        for row in itertools.chain(*(of_kind(run.rows, kind) for run in runs)):
            found.setdefault(row["of"], {}).update(dict.fromkeys(row["layers"]))
    return {quantity: list(names) for quantity, names in found.items()}


def _layer(name: str) -> str:
    module, dot, parameter = name.rpartition(".")
    return module if dot and parameter in ("weight", "bias") else name


def _times(runs: Sequence[RunData]) -> list[Markup]:
    kinds = list(dict.fromkeys(kind for run in runs for kind in run.times if kind != "batches"))
    rows = [[kind, *(_duration(run.times.get(kind)) for run in runs)] for kind in kinds]
    return [section("Time spent", table(["", *(run.name for run in runs)], rows))] if rows else []


def _duration(seconds: object) -> str:
    if not isinstance(seconds, (int, float)):
        return "–"
    return duration(seconds)
