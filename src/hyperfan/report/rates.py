"""Accuracy against the learning rate."""

from collections.abc import Mapping, Sequence

from hyperfan.charts.axis import log_axis, share_axis
from hyperfan.charts.curve import Curve
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import looks
from hyperfan.charts.panel import LARGE, Note, Panel

Accuracies = Mapping[float, Sequence[float | None]]
"""Learning rate → the accuracy of each run at it; ``None`` for a run that diverged."""


def accuracy_by_rate(found: Mapping[str, Accuracies], guess: float, title: str) -> str:
    """Accuracy at the end against the learning rate, as an SVG: dots are runs, crosses runs that diverged.

    Args:
        found: label → accuracies; a panel for each.
        guess: the accuracy of guessing, drawn as a line, on which runs that diverged stand.
        title: of the figure.
    """
    y = share_axis([guess, *(a for rates in found.values() for runs in rates.values() for a in runs)])
    panels = []
    for (label, rates), look in zip(found.items(), looks(list(found)), strict=True):
        points = [(lr, accuracy) for lr, runs in rates.items() for accuracy in runs]
        x = log_axis([min(rates) / 2, max(rates) * 2], 0)
        ends = [(10**end, guess) for end in (x.low, x.high)]
        curves = [
            Curve("guessing", ends, kind="reference"),
            Curve(f"{label}, finished", [p for p in points if p[1] is not None], look, kind="dots"),
            Curve(f"{label}, diverged", [(lr, guess) for lr, a in points if a is None], look, kind="crosses"),
        ]
        notes = [Note("guessing", None, (ends[1][0], guess * 0.7))]
        panels.append(Panel(label, curves, x, y, "learning rate", size=LARGE, notes=notes))
    return figure(title, panels, len(found), note="● test accuracy at the end of a run   × a run that diverged")
