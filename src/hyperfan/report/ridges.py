"""Histograms of several settings, one above the other, layer by layer."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.axis import Axis, asinh_axis, asinh_unit, category_axis, digits
from hyperfan.charts.curve import Curve
from hyperfan.charts.density import density, furthest
from hyperfan.charts.figure import figure
from hyperfan.charts.panel import LABEL_WIDTH, SMALL, Note, Panel
from hyperfan.metrics import divergence, histograms, history
from hyperfan.report.evolution import COLUMNS, Layers
from hyperfan.report.setting import Setting

RIDGE_HEIGHT = 0.78
"""Of a ridge, where the next one stands at 1."""
LEFT, RIGHT = 26.0, 50.0
"""Room beside the axes, for the ends of marks and for standard deviations."""
RIDGES = (
    "distribution of values on one axis, linear around 0 and logarithmic beyond, where a wide bell has two humps; "
    "bars: σ to each side of the mean."
)


def ridges(
    settings: Sequence[Setting], quantity: str, panels: Sequence[Sequence[tuple[str, str]]], title: str, *, last: bool
) -> str:
    """The distribution of values in each layer, as an SVG: a ridge for each setting, with its standard deviation.

    Args:
        settings: the settings compared, from top to bottom.
        quantity: which of the probe's quantities.
        panels: rows of panels, each a layer as the probe calls it, and its title.
        title: of the figure.
        last: whether at the end of training or before its start.
    """
    where: Layers = [(name, label, ()) for row in panels for name, label in row]
    drawn = ridge_panels(settings, quantity, where, last=last)
    y = category_axis([s.label for s in reversed(settings)], drawn[0].y.low, drawn[0].y.high)
    left = 20 + LABEL_WIDTH * max(len(s.label) for s in settings)
    drawn[::COLUMNS] = [replace(panel, y=y, left=left) for panel in drawn[::COLUMNS]]
    return figure(title, drawn, COLUMNS, note=f"Ridges: {RIDGES}")


def ridge_panels(settings: Sequence[Setting], quantity: str, where: Layers, *, last: bool) -> list[Panel]:
    """A panel for each layer or tensor, on an axis that all of them share."""
    found = [histograms(s.runs[0], quantity, last=last) for s in settings]
    step = -1 if last else 0
    moments = [{name: steps[step][1:] for name, steps in history(s.runs[0], quantity).items()} for s in settings]
    rows = len(settings)
    x, y = _axis(found, moments), category_axis([""] * rows, -0.3, rows)
    size = (SMALL[0], 56 + max(34 * rows, 60))
    panels = []
    for name, title, switches in where:
        curves: list[Curve] = []
        notes: list[Note] = []
        for k, s in enumerate(settings):
            base = float(rows - 1 - k)
            drawn, note = _ridge(s, x, base, found[k].get(name), moments[k].get(name))
            curves += drawn
            notes.append(Note(note, s.look, (math.inf, base + 0.3), "start" if drawn else "end"))
        panels.append(Panel(title, curves, x, y, switches=switches, size=size, notes=notes, left=LEFT, right=RIGHT))
    return panels


def _axis(
    found: Sequence[Mapping[str, Mapping[str, Any]]], moments: Sequence[Mapping[str, tuple[float | None, float | None]]]
) -> Axis:
    """An axis for all layers and settings, which is linear as far as the narrowest ridge of a typical layer reaches."""
    bins = [(h["centre"], h["unit"], h["reach"], h["counts"]) for named in found for h in named.values()]
    names = dict.fromkeys(name for named in moments for name in named)
    deviations = {name: [d for named in moments if name in named and (d := named[name][1])] for name in names}
    narrowest = [asinh_unit(each) for each in deviations.values() if each]
    unit = statistics.median_low(narrowest) if narrowest else 1.0
    reach = furthest(bins)
    return asinh_axis(reach, min(unit, reach), 0.3)


def _ridge(
    s: Setting,
    axis: Axis,
    base: float,
    histogram: Mapping[str, Any] | None,
    moments: tuple[float | None, float | None] | None,
) -> tuple[list[Curve], str]:
    """The ridge with a bar for its standard deviation, and what is written beside it."""
    mean, deviation = moments or (None, None)
    if histogram is None or mean is None or deviation is None:
        gone = divergence(s.runs[0])
        return [], f"diverged at batch {gone['step'] + 1}" if gone else "not measured"
    line = density(axis, **histogram)
    if not line:
        spike = [(mean, base), (mean, base + RIDGE_HEIGHT)]
        note = f"σ {digits(deviation, 2)}" if deviation else "no spread"
        return [Curve(s.label, spike, s.look, kind="area", base=base, switches=s.switches)], note
    tips = [f"{digits(x)}: {height:.0%} of the densest" for x, height in line]
    points = [(x, base + RIDGE_HEIGHT * height) for x, height in line]
    bar = [(mean - deviation, base - 0.12), (mean + deviation, base - 0.12)]
    curves = [
        Curve(s.label, points, s.look, tips, kind="area", base=base, switches=s.switches),
        Curve(s.label, bar, s.look, kind="extent", switches=s.switches),
    ]
    return curves, f"σ {digits(deviation, 2)}"
