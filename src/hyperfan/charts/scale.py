"""Measured values with intervals beside those that theory predicts, name by name, on a logarithmic axis."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from hyperfan.charts.axis import category_axis, digits, log_axis, ten_to
from hyperfan.charts.figure import MARGIN, figure
from hyperfan.charts.markup import short_name
from hyperfan.charts.palette import FIRST, NO_INITS, THEORY, Look, looks
from hyperfan.charts.panel import Curve, Note, Panel

Signal = Literal["activations", "gradients"]
AXES = {
    "activations": "Root mean square of each layer's output, on a logarithmic axis",
    "gradients": "Root mean square of the gradient at each layer, on a logarithmic axis",
}
SIZE = (820, 360)
"""Width and height of a chart that is a figure by itself, in pixels."""
CLOSE_FACTOR = 1.5
"""Up to this factor a layer counts as being where theory has it."""
MAX_SENTENCES = 2
"""Sentences about values that are not on the axis of a figure; further ones are counted."""
NAME_WIDTH = 7.3
"""The width of a character of a name beside the axes, in pixels."""
OVERHANG = 0.3
"""The length of a line beyond its first and last name, so that the line of a single one can be seen."""


class MeanSquare(Protocol):
    """A mean square with the ends of its interval."""

    @property
    def value(self) -> float:
        """The mean square."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


class Reading(Protocol):
    """What was measured of a layer."""

    @property
    def layer(self) -> str:
        """Its name."""

    def scales(self, of: Signal) -> Sequence[MeanSquare | None]:
        """Mean squares as measured and as predicted; ``None`` where there is none."""


Readings = Sequence[Reading]
"""Layers in forward order."""


class Interval(NamedTuple):
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


MISSING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Measurements:
    """Values with their intervals by name, and those that a theory, which has a name, predicts."""

    label: str
    values: Mapping[str, Interval]
    theory: Mapping[str, Interval]
    look: Look = FIRST
    theory_name: str = "theory"

    @property
    def distance(self) -> str:
        """The largest distance from theory, in a few words."""
        pairs = [(value.value, self.theory[n].value) for n, value in self.values.items() if n in self.theory]
        ratios = [math.log(a) - math.log(b) for a, b in pairs if _on_axis(a) and _on_axis(b)]
        if not ratios:
            return ""
        worst = max(ratios, key=abs)
        log = abs(worst)
        if log < math.log(CLOSE_FACTOR):
            return f"within {max(math.exp(log), 1.01):.3g}× of {self.theory_name}"
        factor = digits(float(f"{math.exp(log):.2g}"), 2) if log < math.log(1e5) else ten_to(round(log / math.log(10)))
        return f"up to {factor}× {self.theory_name}" if worst > 0 else f"down to 1/{factor} of {self.theory_name}"


def scale_chart(
    series: Mapping[str, Readings], of: Signal = "activations", title: str = "", inits: Mapping[str, str] = NO_INITS
) -> str:
    """A self-contained SVG: root mean squares by layer, a grey line for the theory and points for measurements.

    Args:
        series: label → layers in forward order, of the same net each time.
        of: outputs of layers, or gradients at them.
        title: a headline.
        inits: label → init, which gives its colour; by default the one whose name the label starts with.
    """
    rows = scale_measurements(series, of, looks(list(series), inits))
    panel = interval_panel(AXES[of], layer_names(series), rows, size=SIZE)
    described = "; ".join(f"{row.label} {row.distance}".strip() for row in rows)
    note, width = not_on_axis(rows, MAX_SENTENCES), SIZE[0] + 2 * MARGIN
    return figure(title, [panel], 1, note=note, width=width, description=f"{AXES[of]}: {described}.")


def layer_names(series: Mapping[str, Readings]) -> list[str]:
    """Names of all layers, each once."""
    return list(dict.fromkeys(reading.layer for readings in series.values() for reading in readings))


def scale_measurements(series: Mapping[str, Readings], of: Signal, given: Sequence[Look] = ()) -> list[Measurements]:
    """Root mean squares of layers; each label has the look given, or else that of the init it starts with."""
    rows = []
    for (label, readings), look in zip(series.items(), given or looks(list(series)), strict=True):
        measured, theory = (
            {r.layer: Interval(root(s.value), root(s.low), root(s.high)) for r in readings if (s := r.scales(of)[i])}
            for i in range(2)
        )
        rows.append(Measurements(label, measured, theory, look))
    return rows


def interval_panel(
    title: str,
    names: Sequence[str],
    rows: Sequence[Measurements],
    x_label: str = "layer, from input to output",
    *,
    band: str = "band: 95 % of plain nets",
    size: tuple[float, float] = (580, 330),
    switches: tuple[str, str] = ("layer", "row"),
) -> Panel:
    """Points beside the theory, name by name. Where rows have the same theory, it is drawn once.

    Args:
        title: what the vertical axis measures.
        names, rows: along the horizontal axis, in order, and what was measured of them.
        band: name of the intervals of the theory.
        switches: prefixes of the switches of a name and of a row, before their numbers.
    """
    theories = list(dict.fromkeys(_theory(names, row) for row in rows if row.theory))
    points = [_points(names, row, switches[0], (f"{switches[1]}-{k}",)) for k, row in enumerate(rows)]
    notes = [note for row, curve in zip(rows, points, strict=True) for note in _names(curve, row.distance)]
    notes += _names(theories[0], band) if theories else []
    widths = (max(NAME_WIDTH * len(row.label), 6.2 * max(len(row.distance), len(band))) for row in rows)
    right = min(max([60, *(width + 20 for width in widths)]), 0.32 * size[0])
    found = [at for row in rows for at in (*row.values.values(), *row.theory.values()) if _on_axis(at.value)]
    # Of intervals only the ends that are not far out.
    y = log_axis(end for at in found for end in at if at.value / 30 < end < at.value * 30)
    return Panel(title, [*theories, *points], category_axis(names), y, x_label, size=size, notes=notes, right=right)


def not_on_axis(rows: Iterable[Measurements], limit: int) -> str:
    """A sentence about values that have no place on a logarithmic axis, if there are any."""
    lost = [
        f"{label} of '{name}' is {digits(at.value)}"
        for row in rows
        for label, values in ((row.label, row.values), (f"{row.label}, {row.theory_name}", row.theory))
        for name, at in values.items()
        if not _on_axis(at.value)
    ]
    more = f"; and {len(lost) - limit} more" if len(lost) > limit else ""
    return f"Not on the axis: {'; '.join(lost[:limit])}{more}." if lost else ""


def root(value: float) -> float:
    """The root of a mean square; NaN stays NaN."""
    return math.sqrt(value) if value > 0 else math.nan if math.isnan(value) else 0.0


def _on_axis(value: float) -> bool:
    return 0 < value < math.inf


def _theory(names: Sequence[str], row: Measurements) -> Curve:
    """A line with a band, which goes on a little where it begins and ends."""
    known = [at if (at := row.theory.get(name)) and _on_axis(at.value) else MISSING for name in names]
    places = []
    for i, (before, at, after) in enumerate(zip([MISSING, *known[:-1]], known, [*known[1:], MISSING], strict=True)):
        places += [(i - OVERHANG, at)] if before is MISSING else []
        places.append((i, at))
        places += [(i + OVERHANG, at)] if after is MISSING else []
    points, band = tuple((x, at.value) for x, at in places), tuple(at[1:] for _, at in places)
    return Curve(row.theory_name, points, THEORY, (), band, "theory")


def _points(names: Sequence[str], row: Measurements, switch: str, switches: tuple[str, ...]) -> Curve:
    found = [row.values.get(name, MISSING) for name in names]
    tips = []
    for name, at in zip(names, found, strict=True):
        theory = f"{row.theory_name} {digits(row.theory[name].value)}" if name in row.theory else "no theory for it"
        tips.append(f"{name}: {digits(at.value)} [{digits(at.low)}, {digits(at.high)}], {theory}")
    points, band = [(i, at.value) for i, at in enumerate(found)], [at[1:] for at in found]
    return Curve(row.label, points, row.look, tips, band, "points", None, switches, switch)


def _names(curve: Curve, detail: str) -> list[Note]:
    """The name of a curve beside its last point, with a detail below it."""
    ends = [y for _, y in curve.points if y is not None and not math.isnan(y)]
    if not ends:
        return []
    at = (math.inf, ends[-1])
    name = Note(short_name(curve.label, 26), curve.look, at, "start", "name")
    return [name, Note(detail, None, at, "start", "label")] if detail else [name]
