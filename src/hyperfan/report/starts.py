"""Starts compared: loss against steps, and beside it a score of each at the end, in the same colours.

Curves have no bands: seeds differ more than starts do, which are compared seed by seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperfan.charts.axis import linear_axis, log_axis
from hyperfan.charts.bars import bar_panel
from hyperfan.charts.figure import figure
from hyperfan.charts.markup import short_name
from hyperfan.charts.palette import Look
from hyperfan.charts.panel import Curve, Note, Panel

PANEL_HEIGHT, NAMES_WIDTH = 290.0, 118.0
"""The height of both panels and the width of the names beside the curves, in pixels."""
ROOM = 0.06
"""Room above and below the curves, in powers of ten."""
MAX_NAME = 24
"""Characters of a name beside a curve."""


@dataclass(frozen=True)
class StartScores:
    """One start.

    Args:
        label: its name.
        look: its colour and dash.
        losses: step → mean loss.
        score: a share from 0 to 1 with the ends of its interval, if it has one; ``None`` where there is no score.
    """

    label: str
    look: Look
    losses: dict[int, float]
    score: tuple[float, float | None, float | None] | None


def losses_and_scores(starts: Sequence[StartScores], title: str, score: str, note: str) -> str:
    """Loss against steps on the left, and bars of a score on the right, as an SVG.

    Args:
        starts: from top to bottom.
        title: a headline.
        score: what the bars are.
        note: a line below.
    """
    return figure(title, [_losses(starts), _scores(starts, score)], 2, note=note)


def _losses(starts: Sequence[StartScores]) -> Panel:
    curves = [Curve(s.label, list(s.losses.items()), s.look) for s in starts]
    ends = [(s, list(s.losses.values())[-1]) for s in starts]
    notes = [Note(short_name(s.label, MAX_NAME), s.look, (math.inf, end), "start", "name") for s, end in ends]
    last = max(step for s in starts for step in s.losses)
    values = [value for s in starts for value in s.losses.values()]
    y = replace(log_axis(values, 1), low=math.log10(min(values)) - ROOM, high=math.log10(max(values)) + ROOM)
    size = (470.0, PANEL_HEIGHT)
    return Panel(
        "Loss on the trained tasks", curves, linear_axis(0, last), y, "step", size=size, notes=notes, right=NAMES_WIDTH
    )


def _scores(starts: Sequence[StartScores], title: str) -> Panel:
    bars = []
    for s in starts:
        if s.score is not None:
            value, low, high = s.score
            interval = "" if low is None or high is None else f" [{100 * max(low, 0):.0f}, {100 * min(high, 1):.0f}]"
            bars.append((short_name(s.label, MAX_NAME), value, f"{100 * value:.0f} %{interval}", s.look))
    axis = linear_axis(0, max((value for _, value, *_ in bars), default=0.0) or 1.0, 4)
    x = replace(axis, marks=tuple((mark, f"{100 * mark:.4g} %") for mark, _ in axis.marks))
    return bar_panel(title, bars, x, size=(470.0, PANEL_HEIGHT), left=NAMES_WIDTH + 14, right=86)
