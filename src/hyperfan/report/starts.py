"""Starts compared: loss against steps, and beside it a score of each at the end, in the same colours.

Curves have no bands: seeds differ more than starts do, which are compared seed by seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperfan.charts.axis import category_axis, linear_axis, log_axis
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

Interval = tuple[float, float | None, float | None]
"""A value, and where its interval begins and ends, if it has one."""


@dataclass(frozen=True)
class StartScores:
    """One start.

    Args:
        label: its name.
        look: its colour and dash.
        losses: step → mean loss.
        score: a share from 0 to 1 with its interval; ``None`` where there is none.
    """

    label: str
    look: Look
    losses: dict[int, float]
    score: Interval | None


def losses_and_scores(starts: Sequence[StartScores], title: str, score: str, note: str) -> str:
    """Loss against steps on the left, and bars of a score on the right, as an SVG.

    Args:
        starts: from top to bottom.
        title: a headline.
        score: what the bars are.
        note: a line below.
    """
    scored = [start for start in starts if start.score is not None]
    return figure(title, [_losses(starts), _scores(scored, score)], 2, note=note)


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
    curves, notes = [], []
    for k, s in enumerate(reversed(starts)):
        assert s.score is not None
        value, low, high = s.score
        curves.append(Curve(s.label, [(0, k), (value, k)], s.look, kind="bar"))
        interval = "" if low is None or high is None else f" [{100 * max(low, 0):.0f}, {100 * min(high, 1):.0f}]"
        notes.append(Note(f"{100 * value:.0f} %{interval}", None, (value, k - 0.12), "start", "category"))
    top = max([s.score[0] for s in starts if s.score is not None], default=1.0) or 1.0
    axis = linear_axis(0, top, 4)
    marks = tuple((mark, f"{100 * mark:.4g} %") for mark, _ in axis.marks)
    x = replace(axis, marks=marks)
    y = category_axis([short_name(s.label, MAX_NAME) for s in reversed(starts)])
    return Panel(title, curves, x, y, size=(470.0, PANEL_HEIGHT), notes=notes, left=NAMES_WIDTH + 14, right=86)
