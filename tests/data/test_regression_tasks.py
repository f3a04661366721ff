"""The tasks of section 4.2 are the paper's."""

import pytest
import torch

from checks import assert_mean, assert_variance
from hyperfan.data import regression_tasks

TASKS = [(lambda x: x + 3, -4, -2), (lambda x: 2 * x * x - 1, -1, 1), (lambda x: (x - 3) * (x - 3) * (x - 3), 2, 4)]


def make(seed=0, **options):
    return regression_tasks(torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("i", range(3))
def test_test_points_are_equidistant_and_exact(i):
    function, low, high = TASKS[i]
    task = make()[i]
    assert task.test_x.shape == task.test_y.shape == (50, 1)
    expected = torch.tensor([low + (high - low) * k / 49 for k in range(50)])[:, None]
    torch.testing.assert_close(task.test_x, expected)
    torch.testing.assert_close(task.test_y, function(task.test_x))


@pytest.mark.parametrize("i", range(3))
def test_training_points_are_uniform_and_noisy(i):
    function, low, high = TASKS[i]
    task = make(train=20_000)[i]
    assert low <= task.train_x.min() < task.train_x.max() <= high
    centred = task.train_x - (low + high) / 2
    assert_mean(centred, 0)
    assert_variance(centred, (high - low) ** 2 / 12)
    noise = task.train_y - function(task.train_x)
    assert_mean(noise, 0)
    assert_variance(noise, 0.05**2)
    assert_mean(noise * centred, 0)


def test_sizes_noise_and_seed():
    tasks = make()
    assert len(tasks) == 3
    assert all(t.train_x.shape == t.train_y.shape == (100, 1) for t in tasks)
    again, other = make(), make(seed=1)
    assert all(torch.equal(a.train_y, b.train_y) for a, b in zip(tasks, again, strict=True))
    assert not torch.equal(tasks[0].train_x, other[0].train_x)
    # Each task has draws of its own.
    assert not torch.allclose(tasks[0].train_x + 3, tasks[1].train_x)
    small = make(train=7, test=3, noise=0.0)[1]
    assert small.train_x.shape == (7, 1)
    assert small.test_x.flatten().tolist() == [-1, 0, 1]
    torch.testing.assert_close(small.train_y, 2 * small.train_x**2 - 1)
