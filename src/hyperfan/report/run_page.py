"""Runs side by side, as a page: what came out, losses, what moved inside, configuration and environment."""

from collections.abc import Sequence

from hyperfan.report.findings import findings
from hyperfan.report.markup import Markup, tag, text
from hyperfan.report.page import Switch, compared, figure, page, pictures, section, swatch, switches, table
from hyperfan.report.run_charts import Shown, evolution_panels, histogram_panels, loss_panels
from hyperfan.report.run_data import RunData, Section
from hyperfan.report.scale_section import scale_section

SUBJECTS = {
    "activations": "Activations, before the nonlinearity",
    "gradients": "Gradients of the activations",
    "weights": "Weights",
    "weight gradients": "Gradients of the weights",
}
EVOLUTION = (
    "During training: standard deviation by layer, on a logarithmic axis. Thin dots: distance of the mean from 0."
)
LIES = "how densely values lie, each line scaled to its highest point; linear around 0 and logarithmic far from it."


def run_page(runs: Sequence[RunData]) -> str:
    """A self-contained HTML page of one run, or of several beside each other."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"
    layers = _layers(runs)
    lead = [tag("p", text(runs[0].told()), class_="lead")] if len(runs) == 1 else [_list(runs)]
    groups: dict[str, list[Switch]] = {
        "Runs": [(f"run-{k}", run.name, k) for k, run in enumerate(runs)],
        "Layers": [(f"layer-{i}", layer, None) for i, layer in enumerate(layers)],
        "Settings": _settings(runs),
    }
    body = [
        tag("h1", text(title)),
        *lead,
        switches(groups),
        *_losses(runs),
        *_start(runs),
        *(made for k, run in enumerate(runs) for made in _own(k, run, len(runs) > 1)),
        *(_inside(runs, quantity, layers) for quantity in _quantities(runs)),
        section("Configuration", compared([r.config for r in runs], [r.name for r in runs])),
        section("Environment", compared([r.environment for r in runs], [r.name for r in runs])),
        *_times(runs),
    ]
    return page(title, body)


def _list(runs: Sequence[RunData]) -> Markup:
    """A sentence for each run, beside what its lines look like."""
    items = [tag("li", swatch(k), tag("b", text(r.name)), tag("span", text(r.told()))) for k, r in enumerate(runs)]
    return tag("ul", *items, class_="runs")


def _losses(runs: Sequence[RunData]) -> list[Markup]:
    panels = loss_panels(runs)
    if not panels:
        return [tag("p", text("No losses were recorded."))]
    caption = "Long lines are thinned; their extremes are kept."
    return [section("Training", figure(caption, *pictures(panels), label="Losses and accuracy", wide=True))]


def _start(runs: Sequence[RunData]) -> list[Markup]:
    """What was seen before training: findings of each run, and the scale of every layer."""
    seen = [run.diagnosis() for run in runs]
    theories = list(dict.fromkeys(d.theory for d in seen if d is not None))
    if not theories:
        return []
    made = []
    for k, d in enumerate(seen):
        if d is not None:
            of = f": {runs[k].name}" if len(runs) > 1 else ""
            told = tag("p", text(d.summary))
            listed = [findings(d.findings)] if d.findings else []
            made.append(section(f"Before training{of}", told, *listed, switches=[f"run-{k}"]))
    layers = {label: d.layers if d else () for label, d in zip(_apart([r.name for r in runs]), seen, strict=True)}
    return [*made, scale_section(" or ".join(theories), layers, "run")]


def _apart(names: Sequence[str]) -> list[str]:
    """What tells some names apart: their words without those that all have.

    >>> _apart(["MNIST: m2 seed-0 epochs-5", "MNIST: m3 seed-1 epochs-5"])
    ['m2 seed-0', 'm3 seed-1']
    """
    words = [name.split() for name in names]
    own = [" ".join(w for w in each if any(w not in other for other in words)) for each in words]
    if all(own) and len(set(own)) == len(own):
        return own
    return list(names) if len(set(names)) == len(names) else [f"{name} ({k})" for k, name in enumerate(names, 1)]


def _own(k: int, run: RunData, several: bool) -> list[Markup]:
    """What only this kind of run has."""
    of = f": {run.name}" if several else ""
    made = [section(f"Results{of}", tag("pre", text(run.text)), switches=[f"run-{k}"])] if run.text else []
    for part in run.sections:
        drawn = figure(part.caption, *pictures(part.panels), label=part.heading, wide=True)
        made.append(section(f"{part.heading}{of}", _key(part), drawn, switches=[f"run-{k}"]))
    return made


def _key(part: Section) -> Markup:
    looks = {curve.label: curve.look for panel in part.panels for curve in panel.curves}
    return tag("ul", *(tag("li", swatch(n), tag("b", text(label))) for label, n in looks.items()), class_="key")


def _settings(runs: Sequence[RunData]) -> list[Switch]:
    """Each setting that the charts of a run compare, once."""
    found: dict[str, Switch] = {}
    for run in runs:
        for part in run.sections:
            for panel in part.panels:
                for curve in panel.curves:
                    for name in curve.switches:
                        found.setdefault(name, (name, name.removeprefix("setting-"), None))
    return list(found.values())


def _inside(runs: Sequence[RunData], quantity: str, layers: Sequence[str]) -> Markup:
    names = list(dict.fromkeys(w for run in runs for w in _named(run, quantity)))
    where: Shown = [(n, _title(n), _switches(n, layers)) for n in sorted(names, key=_biases_last)]
    subject = SUBJECTS.get(quantity, quantity)
    figures = [figure(EVOLUTION, *pictures(evolution_panels(runs, quantity, where)), label=f"{subject}: evolution")]
    for last, when in ((False, "Before training"), (True, "At the last look")):
        drawn = pictures(histogram_panels(runs, quantity, where, last=last))
        if drawn:
            figures.append(figure(f"{when}: {LIES}", *drawn, label=f"{subject}: histograms, {when.lower()}"))
    return section(subject, *figures)


def _named(run: RunData, quantity: str) -> list[str]:
    return [*run.history(quantity), *run.histograms(quantity, last=False), *run.histograms(quantity, last=True)]


def _quantities(runs: Sequence[RunData]) -> list[str]:
    return list(dict.fromkeys(q for run in runs for q in run.quantities()))


def _layers(runs: Sequence[RunData]) -> list[str]:
    """Of activations as they are, of a tensor the module it belongs to."""
    names: dict[str, None] = {r.layer: None for run in runs if (d := run.diagnosis()) for r in d.layers}
    for run in runs:
        for quantity in run.quantities():
            for name in _named(run, quantity):
                names.setdefault(_layer(name), None)
    return list(names)


def _layer(name: str) -> str:
    module, dot, parameter = name.rpartition(".")
    return module if dot and parameter in ("weight", "bias") else name


def _title(name: str) -> str:
    return name if _layer(name) != name else f"layer {name}"


def _switches(name: str, layers: Sequence[str]) -> tuple[str, ...]:
    return (f"layer-{layers.index(_layer(name))}",)


def _biases_last(name: str) -> bool:
    return name.endswith("bias")


def _times(runs: Sequence[RunData]) -> list[Markup]:
    kinds = list(dict.fromkeys(kind for run in runs for kind in run.times if kind != "batches"))
    rows = [[kind, *(_duration(run.times.get(kind)) for run in runs)] for kind in kinds]
    return [section("Time spent", table(["", *(run.name for run in runs)], rows))] if rows else []


def _duration(seconds: object) -> str:
    if not isinstance(seconds, (int, float)):
        return "–"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
