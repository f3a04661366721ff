"""Mean ± one standard deviation of what the probe measured, during training, layer by layer."""

from collections.abc import Sequence

from hyperfan.charts.axis import Axis, asinh_axis, asinh_unit, digits, linear_axis
from hyperfan.charts.curve import Curve
from hyperfan.charts.figure import figure
from hyperfan.charts.panel import Note, Panel
from hyperfan.metrics import History, history, last_step
from hyperfan.report.setting import Setting, legend

Layers = list[tuple[str, str, tuple[str, ...]]]
"""Name in the metrics, title, and switches of each panel."""
COLUMNS = 3
MAX_POINTS = 60
"""In a curve of a figure, which has a band too."""
MAX_START = 4.0
"""A start this many times further out than all that follows is left off the axis, and its σ written instead."""
EVOLUTION = "Lines: mean; bands: one standard deviation to each side. Linear around 0, logarithmic beyond."


def evolution(
    settings: Sequence[Setting],
    quantity: str,
    panels: Sequence[Sequence[tuple[str, str]]],
    epoch_batches: int,
    title: str,
) -> str:
    """Mean ± one standard deviation by epoch, layer by layer, as an SVG; arguments as for ``ridges``."""
    where: Layers = [(name, label, ()) for row in panels for name, label in row]
    note = f"{EVOLUTION} Of each setting the first run."
    drawn = evolution_panels(settings, quantity, where, "epoch", epoch_batches)
    return figure(title, drawn, COLUMNS, legend(settings), note, max_points=MAX_POINTS)


def evolution_panels(settings: Sequence[Setting], quantity: str, where: Layers, unit: str, batches: int) -> list[Panel]:
    """A panel for each layer or tensor."""
    histories = [history(s.runs[0], quantity) for s in settings]
    x = linear_axis(0, max((last_step(s.runs[0]) for s in settings), default=1) / batches, 4)
    panels = []
    for name, title, switches in where:
        found = [h.get(name, []) for h in histories]
        y = _axis(found)
        curves, notes = [], []
        for s, steps in zip(settings, found, strict=True):
            curves.append(_curve(s, steps, unit, batches))
            notes += _first(s, steps, y)
        panels.append(Panel(title, curves, x, y, unit, switches=switches, notes=notes))
    return panels


def _curve(s: Setting, steps: History, unit: str, batches: int) -> Curve:
    tips = [f"{unit} {digits(step / batches)}: mean {digits(m)}, std {digits(d)}" for step, m, d in steps]
    band = [(None, None) if m is None or d is None else (m - d, m + d) for _, m, d in steps]
    return Curve(s.label, [(step / batches, m) for step, m, _ in steps], s.look, tips, band, switches=s.switches)


def _axis(found: Sequence[History]) -> Axis:
    """An axis for all that follows the start, and for a start that is not far from it."""
    pairs = [[(abs(m), d) for _, m, d in steps if m is not None and d is not None] for steps in found]
    later = [m + d for steps in pairs for m, d in steps[1:]] or [m + d for steps in pairs for m, d in steps]
    reach = max(later, default=1.0) or 1.0
    reach = max([reach, *(m + d for steps in pairs for m, d in steps[:1] if m + d < MAX_START * reach)])
    stds = sorted(d for steps in pairs for _, d in steps if 0 < d <= reach)
    unit = stds[len(stds) // 20] if stds else 1.0
    return asinh_axis(1.1 * reach, min(max(unit, asinh_unit(stds)), reach), 0.25)


def _first(s: Setting, steps: History, y: Axis) -> list[Note]:
    """Where the start is beyond the axis, its standard deviation."""
    if not steps or steps[0][1] is None or steps[0][2] is None or y.at(abs(steps[0][1]) + steps[0][2]) is not None:
        return []
    return [Note(f"σ = {digits(steps[0][2], 2)} before training", s.look)]
