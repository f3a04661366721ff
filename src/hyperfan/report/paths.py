"""Paths in the plane: what runs draw, over what was demonstrated."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hyperfan.charts.axis import linear_axis
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import Look, looks
from hyperfan.charts.panel import Curve, Panel

EDGE = 1.25
"""Where a panel ends; demonstrations have coordinates up to 1."""
NOTE = "Grey: the demonstrations of each shape. Coloured: the path that the net takes from where the first one starts."


@dataclass(frozen=True)
class Drawn:
    """What one run draws, (shape, point, 2), and the init that it started from."""

    label: str
    paths: Tensor
    init: str = ""


def paths(runs: Sequence[Drawn], demonstrated: Tensor, shapes: Sequence[str], title: str) -> str:
    """Demonstrations and the paths of runs, as an SVG: a row for each run, a column for each shape.

    ``demonstrated`` is (shape, demonstration, point, 2).
    """
    return figure(title, path_panels(runs, demonstrated, shapes), len(shapes), note=NOTE)


def path_panels(runs: Sequence[Drawn], demonstrated: Tensor, shapes: Sequence[str]) -> list[Panel]:
    """The panels of such a figure, row by row. A path that leaves its panel has a gap."""
    panels = []
    axis = linear_axis(-EDGE, EDGE, 3)
    chosen = looks([run.label for run in runs], {run.label: run.init for run in runs})
    for run, look in zip(runs, chosen, strict=True):
        for i, shape in enumerate(shapes):
            behind = [Curve(shape, _points(path), kind="reference") for path in demonstrated[i]]
            curve = Curve(run.label, _points(run.paths[i]), Look(look.colour))
            heading = shape if i else run.label
            panels.append(Panel(heading, [*behind, curve], axis, axis, size=(300, 190), left=34))
    return panels


def _points(path: Tensor) -> list[tuple[float, float | None]]:
    return [(x, y) if max(abs(x), abs(y)) < EDGE else (0.0, None) for x, y in path.tolist()]
