"""The coordinate check: diagnoses of one net at several widths and depths, and whether its scales depend on them."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperfan.charts.coordinates import AlongPanel, coordinate_chart
from hyperfan.charts.html import notebook_diagnosis
from hyperfan.errors import HyperfanError
from hyperfan.files import finite_or_none
from hyperfan.probe.diagnosis import Diagnosis, Table
from hyperfan.probe.findings import SEVERITIES, Finding, FindingName, without_notes, worst_first
from hyperfan.probe.trends import MIN_SLOPE, SIGNALS, Size, Trend, all_trends, along_size, farthest_layer
from hyperfan.text import capitalise, number, table


@dataclass(frozen=True)
class CoordinateCheck:
    """The result of ``diagnose`` over widths and depths. ``print`` it; a script reads ``check.healthy``.

    Args:
        diagnoses: one for each size.
        trends: how scales go with the width, at each depth, and with the depth, at each width.
        findings: dependences on a size, and the findings of the diagnoses, each once.
    """

    diagnoses: Mapping[Size, Diagnosis]
    trends: tuple[Trend, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is nothing worse than a note."""
        return not without_notes(self.findings)

    @property
    def net(self) -> str:
        """A title of what was checked."""
        widths, depths = (
            list(dict.fromkeys(v for v in values if v is not None)) for values in zip(*self.diagnoses, strict=True)
        )
        parts = (("widths", widths), ("depths", depths))
        sizes = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in parts if values)
        return f"Coordinate check over {sizes}"

    @property
    def summary(self) -> str:
        """The worst finding, or that there is none, in one sentence."""
        bad = without_notes(self.findings)
        if bad:
            more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
            return f"{capitalise(bad[0].name)}: {bad[0].evidence}{more}."
        known = self.known_trends
        if not known:
            return "Nothing found, and little looked at: no layer has a prediction at every size."
        steepest = max(known, key=lambda t: abs(t.slope) / MIN_SLOPE[t.along])
        kept = " or the ".join(dict.fromkeys(t.along for t in known))
        return (
            f"Healthy: no layer's scale depends on the {kept}; the steepest, {steepest.what}, goes as {steepest.words}."
        )

    @property
    def known_trends(self) -> list[Trend]:
        """Trends with a finite slope."""
        return [t for t in self.trends if math.isfinite(t.slope)]

    def size_table(self, write: Callable[[float | None], str] = number) -> Table:
        """For each size the layers farthest from plain nets, the loss, the stable rate and the worst finding."""
        rows = []
        for size, seen in self.diagnoses.items():
            bad = without_notes(seen.findings)
            far = [farthest_layer(seen, of) for of in SIGNALS]
            cells = [cell for layer, ratio in far for cell in (layer, write(ratio))]
            held = [str(v) if v is not None else "–" for v in size]
            found = bad[0].name if bad else "healthy"
            rows.append([*held, *cells, write(seen.loss), write(seen.stable_rate), found])
        header = ["width", "depth", "output of", "× plain", "gradient at", "× plain", "loss", "stable rate", "finding"]
        return header, rows

    def trend_table(self) -> Table:
        """The layer whose scale depends most on width and on depth, of outputs and of gradients."""
        rows = []
        for (along, at, of), group in itertools.groupby(self.known_trends, lambda t: (t.along, t.at, t.of)):
            worst = max(group, key=lambda t: abs(t.slope))
            held = "–" if at is None else f"{'depth' if along == 'width' else 'width'} {at}"
            rows.append([along, held, of, worst.layer, worst.words, "DEPENDS" if worst.dependent else "keeps"])
        return ["along", "at", "of", "steepest layer", "scale over plain nets", ""], rows

    def panels(self) -> list[AlongPanel]:
        """The curves of each panel of the picture: ratios to plain nets along the width, and along the depth."""
        found = []
        for (along, at, of), group in itertools.groupby(self.trends, lambda t: (t.along, t.at, t.of)):
            curves = {t.layer: along_size(self.diagnoses, along, at, of, t.layer) for t in group}
            found.append(AlongPanel(along, at, of, curves))
        return found

    def chart(self, title: str = "") -> str:
        """A self-contained SVG: flat lines at 1 are what the theory promises."""
        return coordinate_chart(self.panels(), title)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON, which knows no infinity: what is not finite is ``None``."""
        values = {
            "healthy": self.healthy,
            "summary": self.summary,
            "findings": [dataclasses.asdict(f) for f in self.findings],
            "trends": [{**dataclasses.asdict(t), "dependent": t.dependent} for t in self.trends],
            "diagnoses": [{**size._asdict(), **seen.to_dict()} for size, seen in self.diagnoses.items()],
        }
        return dict(finite_or_none(values))

    def _repr_html_(self) -> str:
        """Findings and the picture, for a notebook."""
        return notebook_diagnosis(self.net, self.summary, self.findings, self.chart())

    def __str__(self) -> str:
        blocks = [
            f"{self.net}\n{self.summary}",
            *(str(f) for f in self.findings),
            "Root mean squares over those of plain nets: the layer farthest from them, at each size\n"
            + table(*self.size_table()),
            "How they go with the size\n" + table(*self.trend_table()),
        ]
        return "\n\n".join(blocks)


def coordinate_check(
    make: Callable[..., Any],
    look: Callable[..., Diagnosis],
    arguments: Mapping[str, Any],
    widths: Sequence[int],
    depths: Sequence[int],
) -> CoordinateCheck:
    """Make a net of every size and diagnose it.

    Args:
        make: a function of ``width=`` and ``depth=``, of those that are varied, that returns a net, (net, x),
            (net, x, y), or a dict of arguments of ``diagnose``.
        look: the diagnosis of one net.
        arguments: what is the same for all sizes.
        widths, depths: sizes to try; at least two of one of them.
    """
    for name, values in (("widths", widths), ("depths", depths)):
        if any(not isinstance(v, int) or v < 1 for v in values) or len(set(values)) < len(values):
            raise HyperfanError(
                f"{name}={values!r}: sizes are different positive integers, as in {name}=(64, 128, 256)"
            )
    if max(len(widths), len(depths)) < 2:
        raise HyperfanError("a coordinate check compares sizes: give two or more, as in widths=(64, 128, 256)")
    diagnoses: dict[Size, Diagnosis] = {}
    for depth, width in itertools.product(sorted(depths) or (None,), sorted(widths) or (None,)):
        size = Size(width, depth)
        made = named_arguments(make(**{name: v for name, v in size._asdict().items() if v is not None}))
        diagnoses[size] = look(**{**arguments, **made})
    trends = tuple(all_trends(diagnoses))
    findings = [*_dependences(trends, next(iter(diagnoses.values()))), *_merged(diagnoses)]
    return CoordinateCheck(diagnoses, trends, worst_first(findings))


def named_arguments(returned: Any) -> dict[str, Any]:
    """The arguments of ``diagnose`` by name, from a net, a tuple of net, x and y, or a dict."""
    if isinstance(returned, dict):
        return returned
    values = returned if isinstance(returned, tuple) else (returned,)
    if len(values) > 3:
        raise HyperfanError(
            f"{len(values)} values were returned: return net, (net, x) or (net, x, y), or a dict of the arguments of "
            "diagnose, as {'net': net, 'loss': loss}"
        )
    return dict(zip(("net", "x", "y"), values, strict=False))


def _dependences(trends: Sequence[Trend], first: Diagnosis) -> Iterator[Finding]:
    """A finding for outputs or gradients that depend on the width or the depth."""
    causes = {
        "width": "the variance of a weight does not follow the fans of its layer, so it is right at one width at most",
        "depth": "layers add a factor each, and from layer to layer it multiplies",
    }
    ours = any(t.head for t in first.tensors)
    remedy = "HyperNet(mainnet, …, init='hyperfan-in'), which knows the fans of every layer"
    if not ours:
        remedy = "hyperfan.init.hyperfan_in_uniform_(head.weight, shape) on the head of every weight"
    for along, of in itertools.product(causes, SIGNALS):
        off = [t for t in trends if t.along == along and t.of == of and t.dependent]
        if not off:
            continue
        worst = max(off, key=lambda t: abs(t.slope))
        held = "" if worst.at is None else f", at {'depth' if along == 'width' else 'width'} {worst.at}"
        seen = f"{worst.what} goes as {worst.words} times that of plain nets{held}"
        kind = FindingName.DEPENDS_ON_WIDTH if along == "width" else FindingName.DEPENDS_ON_DEPTH
        where = tuple(dict.fromkeys(t.layer for t in off)) if along == "width" else ()
        yield Finding(kind, "warning", where, seen, causes[along], remedy)


def _merged(diagnoses: Mapping[Size, Diagnosis]) -> Iterator[Finding]:
    """The findings of all diagnoses, each name once, with the sizes at which it was found."""
    names = dict.fromkeys(f.name for seen in diagnoses.values() for f in seen.findings)
    for name in names:
        found = [(size, f) for size, seen in diagnoses.items() for f in seen.findings if f.name == name]
        size, worst = min(found, key=lambda pair: SEVERITIES.index(pair[1].severity))
        sizes = len({s for s, _ in found})
        yield dataclasses.replace(worst, evidence=f"at {sizes} of {len(diagnoses)} sizes; at {size}: {worst.evidence}")
