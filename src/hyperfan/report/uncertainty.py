"""Confidence against accuracy, and the entropy of predictions for known and unknown classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperfan.charts.axis import linear_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import NEUTRAL, NO_INITS, Look, looks
from hyperfan.charts.panel import LARGE, Curve, Note, Panel

Scores = Mapping[str, Any]
"""A run's line of metrics about its uncertainty."""
UNKNOWN = Look(NEUTRAL.colour, 7)
MIN_SHARE = 0.005
"""Bins with a smaller share of the images have no accuracy worth a dot."""
NOTE = "Dots: accuracy by confidence; a calibrated net is on the diagonal. Areas and dashes: share of images."


def uncertainty(found: Mapping[str, Sequence[Scores]], title: str, inits: Mapping[str, str] = NO_INITS) -> str:
    """Reliability above and entropies below, as an SVG: a column for each label, over all of its runs.

    ``inits`` has the init of each label.
    """
    pairs = [
        uncertainty_panels(runs, look, f"{label}: ")
        for (label, runs), look in zip(found.items(), looks(list(found), inits), strict=True)
    ]
    panels = [panel for row in zip(*pairs, strict=True) for panel in row]
    return figure(title, panels, max(len(found), 2), note=NOTE)


def uncertainty_panels(runs: Sequence[Scores], look: Look, prefix: str = "") -> list[Panel]:
    """Reliability, and entropies of known and unknown classes, over several runs."""
    panels = [_reliability(runs, look), _entropies(runs, look)]
    return [replace(panel, title=f"{prefix}{panel.title}", size=LARGE) for panel in panels]


def _reliability(runs: Sequence[Scores], look: Look) -> Panel:
    columns = list(zip(*(run["reliability"] for run in runs), strict=True))
    counts = [sum(n for n, _, _ in column) for column in columns]
    total = max(sum(counts), 1)
    points = []
    for count, column in zip(counts, columns, strict=True):
        if count >= MIN_SHARE * total:
            confidence, accuracy = (sum(row[0] * row[i] for row in column) / count for i in (1, 2))
            points.append((confidence, accuracy))
    axis = linear_axis(0, 1)
    curves = [
        Curve("calibrated", [(0, 0), (1, 1)], kind="reference"),
        Curve("share of images", _steps([n / total for n in counts], 1.0), look, kind="area"),
        Curve("accuracy", points, look, kind="dots", switches=("setting-known",)),
    ]
    return Panel("accuracy", curves, axis, axis, "confidence")


def _entropies(runs: Sequence[Scores], look: Look) -> Panel:
    curves, guessing = [], math.log(runs[0]["classes"])
    for name, its_look in (("known", look), ("unknown", UNKNOWN)):
        if name in runs[0]:
            counts = [sum(column) for column in zip(*(run[name]["entropy"] for run in runs), strict=True)]
            outline = _steps([n / max(sum(counts), 1) for n in counts], guessing)
            curves.append(Curve(f"{name} classes", outline, its_look, switches=(f"setting-{name}",)))
    curves[0] = replace(curves[0], kind="area")
    top = 1.1 * max(share or 0.0 for curve in curves for _, share in curve.points) or 1.0
    notes = [Note(c.label, c.look, (0.0, top * (0.92 - 0.1 * i)), "start") for i, c in enumerate(curves)]
    notes.append(Note("guessing", None, (guessing, 0.92 * top)))
    curves.append(Curve("guessing", [(guessing, 0), (guessing, top)], kind="reference"))
    x, y = linear_axis(0, 1.02 * guessing), linear_axis(0, top)
    return Panel("entropy", curves, x, y, "predictive entropy, nats", notes=notes)


def _steps(heights: Sequence[float], end: float) -> list[tuple[float, float | None]]:
    """The outline of bars of equal width from 0 to ``end``."""
    width = end / len(heights)
    return [(x * width, h) for i, h in enumerate(heights) for x in (i, i + 1)]
