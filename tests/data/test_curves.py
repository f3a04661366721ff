"""Handwriting-like curves: where they end, how smooth they are, and how their demonstrations differ."""

import pytest
import torch

from hyperfan.data import demonstrations
from hyperfan.data.curves import SHAPES


def draw(shape, seed=0, **options):
    return demonstrations(shape, torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_demonstration_ends_at_the_origin_at_rest(shape):
    drawn = draw(shape, points=1000)
    assert drawn.abs().max() == 1
    assert torch.equal(drawn[:, -1], torch.zeros(7, 2))
    speeds = drawn.diff(dim=1).norm(dim=-1)
    assert (speeds[:, [0, -1]] < 1e-3 * speeds.amax(1, keepdim=True)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_demonstrations_are_smooth(shape):
    """With twice the points the second difference is a quarter, as of a curve with two derivatives."""
    coarse, fine = (draw(shape, points=points).double().diff(n=2, dim=1).norm(dim=-1).amax() for points in (401, 801))
    assert fine / coarse == pytest.approx(1 / 4, rel=0.02)


def test_demonstrations_differ_a_little_and_shapes_a_lot():
    drawn = {shape: draw(shape) for shape in SHAPES}
    for shape, curves in drawn.items():
        apart = (curves - curves.mean(0)).norm(dim=-1).mean()
        assert 0.01 < apart < 0.15
        others = [(curves.mean(0) - other.mean(0)).norm(dim=-1).mean() for s, other in drawn.items() if s != shape]
        assert min(others) > 2 * apart


def test_without_deviation_all_are_the_curve_of_the_control_points():
    drawn = draw("S", count=2, points=3, deviation=0.0)
    control = torch.tensor(SHAPES["S"], dtype=torch.float32)
    middle = (control * torch.tensor([1.0, 5, 10, 10, 5, 1])[:, None]).sum(0) / 32  # Bernstein's polynomials at 1/2
    for curve in drawn:
        torch.testing.assert_close(curve[1] / curve[0].norm(), middle / control[0].norm())


def test_a_seed_fixes_the_curves():
    assert torch.equal(draw("N"), draw("N"))
    assert not torch.equal(draw("N"), draw("N", seed=1))
