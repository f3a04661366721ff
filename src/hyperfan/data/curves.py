"""Handwriting-like curves in the plane, each drawn several times: demonstrations for learning to move.

Made after the LASA set (Khansari-Zadeh & Billard 2011), of which nothing is copied: every curve ends at the origin, at
rest, and the demonstrations of a shape differ smoothly, least at the end.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

SHAPES: Mapping[str, Sequence[tuple[float, float]]] = {
    "angle": ((-4, 3), (-3, 3), (-2, 3), (1, 4), (0, 1), (0, 0)),
    "bend": ((-4, 2), (-4, -3), (-1, -5), (3, -3), (2, 1), (0, 0)),
    "G": ((2, 5), (-7, 7), (-8, -5), (4, -6), (4, 1), (0, 0)),
    "heave": ((-5, 0), (-4, 7), (-1, 7), (-2, -6), (1, -3), (0, 0)),
    "hook": ((1, 6), (1, 4), (1, -4), (-6, -6), (-3, 1), (0, 0)),
    "loop": ((-5, -1), (0, -4), (8, 2), (-3, 11), (-5, -3), (0, 0)),
    "N": ((-4, -4), (-5, 11), (0, 3), (0, -8), (2, -3), (0, 0)),
    "S": ((2, 6), (-9, 8), (-3, 1), (9, 0), (3, -4), (0, 0)),
    "sine": ((-7, 0), (-5, 9), (-4, 2), (-3, -10), (-1, 7), (0, 0)),
    "worm": ((-6, 3), (-5, -4), (-3, 8), (-2, -7), (0, 5), (0, 0)),
}
"""The control points of a Bézier curve for each shape."""
DEVIATION = 0.04
"""Standard deviation of a demonstration's control points, as a share of the shape's size."""


def demonstrations(
    shape: str,
    generator: torch.Generator | None = None,
    *,
    count: int = 7,
    points: int = 100,
    deviation: float = DEVIATION,
) -> Tensor:
    """Draw a shape several times, (count, points, 2), at equal steps of time; all coordinates are in [−1, 1].

    A demonstration is the Bézier curve of displaced control points, of which the last stays at the origin. Along it
    time goes as in the movement of least jerk from rest to rest (Flash & Hogan 1985), s = 10·t³ − 15·t⁴ + 6·t⁵.

    >>> drawn = demonstrations("S", torch.Generator().manual_seed(0))
    >>> drawn.shape, drawn.abs().max(), drawn[:, -1].abs().max()
    (torch.Size([7, 100, 2]), tensor(1.), tensor(0.))
    """
    control = torch.tensor(SHAPES[shape], dtype=torch.float64)
    size = (control.amax(0) - control.amin(0)).max()
    displaced = control + deviation * size * torch.randn(count, *control.shape, generator=generator).double()
    displaced[:, -1] = 0
    t = torch.linspace(0, 1, points, dtype=torch.float64)
    curves = _bezier(displaced, 10 * t**3 - 15 * t**4 + 6 * t**5)
    return (curves / curves.abs().max()).float()


def _bezier(control: Tensor, s: Tensor) -> Tensor:
    """De Casteljau's construction: (count, degree + 1, 2) at (points,) → (count, points, 2)."""
    between = control[:, :, None].expand(-1, -1, len(s), -1)
    while between.shape[1] > 1:
        between = torch.lerp(between[:, :-1], between[:, 1:], s[:, None])
    return between[:, 0]
