"""What the probe measured, layer by layer: moments during training, and histograms of several settings as ridges."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.axis import Axis, asinh_axis, asinh_unit, category_axis, digits, linear_axis
from hyperfan.charts.density import density
from hyperfan.charts.figure import figure
from hyperfan.charts.panel import LABEL_WIDTH, SMALL, Curve, Note, Panel
from hyperfan.metrics import History, divergence, histograms, history, last_step, when_diverged
from hyperfan.report.run_data import Setting, legend

Layers = list[tuple[str, str, tuple[str, ...]]]
"""Name in the metrics, title, and switches of each panel."""
COLUMNS = 3
MAX_START = 4.0
"""A start this many times further out than all that follows is left off the axis, and its σ written instead."""
EVOLUTION = (
    "Lines: mean; bands: ± one standard deviation σ. Linear around 0, logarithmic beyond. "
    "σ₀: before training, beyond the axis."
)
RIDGE_HEIGHT = 0.78
"""The height of a ridge, where the next one stands at 1."""
LEFT, RIGHT = 26.0, 50.0
"""Room beside the axes of ridges, for the ends of marks and for standard deviations."""
RIDGES = (
    "distribution of values on one axis, linear around 0 and logarithmic beyond, where a wide bell has two humps; "
    "bars: σ to each side of the mean."
)


def evolution(
    settings: Sequence[Setting],
    quantity: str,
    panels: Sequence[tuple[str, str]],
    epoch_batches: int,
    title: str,
) -> str:
    """Mean ± one standard deviation by epoch, layer by layer, as an SVG; arguments as for :func:`ridges`."""
    drawn = evolution_panels(settings, quantity, _layers(panels), "epoch", epoch_batches)
    return figure(title, drawn, COLUMNS, legend(settings), f"{EVOLUTION} Of each setting the first run.")


def evolution_panels(settings: Sequence[Setting], quantity: str, where: Layers, unit: str, batches: int) -> list[Panel]:
    """A panel for each layer or tensor."""
    histories = [history(s.runs[0], quantity) for s in settings]
    x = linear_axis(0, max((last_step(s.runs[0]) for s in settings), default=1) / batches, 4)
    panels = []
    for name, title, switches in where:
        found = [h.get(name, []) for h in histories]
        y, curves, notes = _evolution_axis(found), [], []
        for s, steps in zip(settings, found, strict=True):
            points = [(step / batches, m) for step, m, _ in steps]
            tips = [f"{unit} {digits(step / batches)}: mean {digits(m)}, std {digits(d)}" for step, m, d in steps]
            band = [(None, None) if m is None or d is None else (m - d, m + d) for _, m, d in steps]
            curves.append(Curve(s.label, points, s.look, tips, band, switches=s.switches))
            _, mean, std = steps[0] if steps else (0, None, None)
            if mean is not None and std is not None and y.at(abs(mean) + std) is None:
                notes.append(Note(f"σ₀ = {digits(std, 2)}", s.look))
        panels.append(Panel(title, curves, x, y, unit, switches=switches, notes=notes))
    return panels


def _evolution_axis(found: Sequence[History]) -> Axis:
    """An axis for all that follows the start, and for a start that is not far from it."""
    pairs = [[(abs(m), d) for _, m, d in steps if m is not None and d is not None] for steps in found]
    later = [m + d for steps in pairs for m, d in steps[1:]] or [m + d for steps in pairs for m, d in steps]
    reach = max(later, default=1.0) or 1.0
    reach = max([reach, *(m + d for steps in pairs for m, d in steps[:1] if m + d < MAX_START * reach)])
    stds = sorted(d for steps in pairs for _, d in steps if 0 < d <= reach)
    unit = stds[len(stds) // 20] if stds else 1.0
    return asinh_axis(1.1 * reach, min(max(unit, asinh_unit(stds)), reach), 0.25)


def ridges(
    settings: Sequence[Setting], quantity: str, panels: Sequence[tuple[str, str]], title: str, *, last: bool
) -> str:
    """The distribution of values in each layer, as an SVG: a ridge for each setting, with its standard deviation.

    Args:
        settings: the settings compared, from top to bottom.
        quantity: which of the probe's quantities.
        panels: each a layer as the probe calls it, and its title.
        title: of the figure.
        last: whether at the end of training or before its start.
    """
    drawn = ridge_panels(settings, quantity, _layers(panels), last=last)
    y = category_axis([s.label for s in reversed(settings)], drawn[0].y.low, drawn[0].y.high)
    left = 20 + LABEL_WIDTH * max(len(s.label) for s in settings)
    drawn[::COLUMNS] = [replace(panel, y=y, left=left) for panel in drawn[::COLUMNS]]
    return figure(title, drawn, COLUMNS, note=f"Ridges: {RIDGES}")


def ridge_panels(settings: Sequence[Setting], quantity: str, where: Layers, *, last: bool) -> list[Panel]:
    """A panel for each layer or tensor, on an axis that all of them share."""
    found = [histograms(s.runs[0], quantity, last=last) for s in settings]
    histories = [history(s.runs[0], quantity) for s in settings]
    moments = [{name: steps[-1 if last else 0][1:] for name, steps in each.items()} for each in histories]
    rows = len(settings)
    x, y = _ridge_axis(found, moments), category_axis([""] * rows, -0.3, rows)
    size = (SMALL[0], 56 + max(34 * rows, 60))
    panels = []
    for name, title, switches in where:
        curves: list[Curve] = []
        notes: list[Note] = []
        for k, s in enumerate(settings):
            base = float(rows - 1 - k)
            drawn, note = _ridge(s, x, base, found[k].get(name), *moments[k].get(name, (None, None)))
            curves += drawn
            notes.append(Note(note, s.look, (math.inf, base + 0.3), "start" if drawn else "end"))
        panels.append(Panel(title, curves, x, y, switches=switches, size=size, notes=notes, left=LEFT, right=RIGHT))
    return panels


def _ridge_axis(
    found: Sequence[Mapping[str, Mapping[str, Any]]], moments: Sequence[Mapping[str, tuple[float | None, float | None]]]
) -> Axis:
    """An axis for all layers and settings, which is linear as far as the narrowest ridge of a typical layer reaches."""
    names = dict.fromkeys(name for named in moments for name in named)
    deviations = ([d for named in moments if name in named and (d := named[name][1])] for name in names)
    narrowest = [asinh_unit(each) for each in deviations if each]
    ends = [abs(h["centre"]) + h["reach"] for named in found for h in named.values() if any(h["counts"])]
    reach = max((end for end in ends if math.isfinite(end)), default=0.0) or 1.0
    return asinh_axis(reach, min(statistics.median_low(narrowest), reach) if narrowest else min(1.0, reach))


def _ridge(
    s: Setting, axis: Axis, base: float, histogram: Mapping[str, Any] | None, mean: float | None, std: float | None
) -> tuple[list[Curve], str]:
    """The ridge with a bar for its standard deviation, and what is written beside it."""
    if histogram is None or mean is None or std is None:
        gone = divergence(s.runs[0])
        return [], when_diverged(gone) if gone else "not measured"
    line = density(axis, **histogram)
    if not line:
        spike = [(mean, base), (mean, base + RIDGE_HEIGHT)]
        note = f"σ {digits(std, 2)}" if std else "no spread"
        return [Curve(s.label, spike, s.look, kind="area", base=base, switches=s.switches)], note
    tips = [f"{digits(x)}: {height:.0%} of the densest" for x, height in line]
    points = [(x, base + RIDGE_HEIGHT * height) for x, height in line]
    bar = [(mean - std, base - 0.12), (mean + std, base - 0.12)]
    curves = [
        Curve(s.label, points, s.look, tips, kind="area", base=base, switches=s.switches),
        Curve(s.label, bar, s.look, kind="extent", switches=s.switches),
    ]
    return curves, f"σ {digits(std, 2)}"


def _layers(panels: Sequence[tuple[str, str]]) -> Layers:
    """The panels of a figure, which has no switches."""
    return [(name, title, ()) for name, title in panels]
