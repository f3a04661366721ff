"""Loss against the share of the variance that is generated: a panel for each job."""

import itertools
from collections.abc import Mapping, Sequence

from torch import Tensor

from hyperfan.charts.axis import category_axis, log_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import INITS, LINEAR, Look
from hyperfan.charts.panel import Curve, Panel
from hyperfan.report.tasks import quartiles

PANEL_SIZE, COLUMNS = (235.0, 180.0), 4
SHARED = "hyperfan-in"
"""The init whose share varies."""
DASHES = (0, 2, 4)
"""Dashes of the labels of a job, in order; colours tell starts apart."""


def losses_by_share(
    jobs: Mapping[str, Mapping[str, tuple[Tensor, Tensor]]], shares: Sequence[float], reference: str, title: str
) -> str:
    """Median loss at each share with quartiles, and that of a start without one as a level line, as an SVG.

    Args:
        jobs: job → label, such as an optimiser → losses at each share, (share, seed), and of the other start, (seed).
        shares: from left to right.
        reference: name of the start without a share.
        title: a headline.
    """
    labels = list(dict.fromkeys(label for curves in jobs.values() for label in curves))
    dashes = dict(zip(labels, itertools.cycle(DASHES), strict=False))
    ours, others = (
        {label: Look(of.colour, dash) for label, dash in dashes.items()} for of in (INITS[SHARED], INITS[LINEAR])
    )
    x = category_axis([f"{share:g}" for share in shares])
    panels = []
    for job, curves in jobs.items():
        drawn = []
        for label, (losses, without) in curves.items():
            low, middle, high = (t.tolist() for t in quartiles(losses.T))
            band = list(zip(low, high, strict=True))
            drawn.append(Curve(f"{SHARED}, {label}", list(enumerate(middle)), ours[label], band=band))
            level = quartiles(without)[1].item()
            ends: list[tuple[float, float | None]] = [(-0.5, level), (len(shares) - 0.5, level)]
            drawn.append(Curve(f"{reference}, {label}", ends, others[label]))
        y = log_axis(
            [v for curve in drawn for v in (*(y for _, y in curve.points), *(low for low, _ in curve.band))], 1
        )
        panels.append(Panel(job, drawn, x, y, "share that is generated, ρ", size=PANEL_SIZE))
    legend = [
        (f"{start}, {label}", look)
        for start, its in ((SHARED, ours), (reference, others))
        for label, look in its.items()
    ]
    note = "Medians over seeds with quartiles, each start at the rate where its median is lowest."
    return figure(title, panels, COLUMNS, legend, note)
