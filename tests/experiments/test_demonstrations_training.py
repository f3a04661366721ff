"""The demonstrations experiment: its runs side by side against one run in the plainest way, resuming, and its grid."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import mse_loss
from toy import Silent, assert_resumes

from checks import assert_variance
from hyperfan.data.lookup import LASA_SHAPES
from hyperfan.errors import RunError
from hyperfan.experiments.demonstrations import (
    COMPARED,
    KAIMING,
    PROFILES,
    SETTINGS,
    THEIR_RATE,
    WINDOW,
    Demonstrations,
    grid,
)
from hyperfan.experiments.demonstrations.stack import PathStack
from hyperfan.experiments.demonstrations.training import (
    DemonstrationsTraining,
    build,
    demonstrated,
    draw,
    shapes,
    widths,
)
from hyperfan.experiments.experiment import CHOOSING_SEED
from hyperfan.experiments.loop import run
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import values_and_embeddings_of
from hyperfan.metrics import Kind, read_metrics
from hyperfan.optim import Memory

SMOKE = PROFILES["smoke"]
RATES = (0.01, 0.05)


def alone(config, seed, lr):
    """One run by itself, with the library's own parts, in float64; yields the net and the loss before each step."""
    net = draw(build(config), seed, config.biases).double()
    data = demonstrated(config, seed).double()
    dt = 1 / (config.points - 1)
    for task in range(config.tasks):
        optimiser = torch.optim.Adam(net.parameters(), lr=lr)
        memory = Memory(net, tasks=range(task))
        starts = torch.randint(
            config.points - WINDOW + 1, (config.iterations, 7), generator=generator(seed, "windows", task)
        )
        for iteration in range(config.iterations):
            windows = torch.stack([d[s : s + WINDOW] for d, s in zip(data[task], starts[iteration], strict=True)])
            times = starts[iteration][:, None] * dt
            optimiser.zero_grad()
            x, path = windows[:, 0], [windows[:, 0]]
            for k in range(WINDOW - 1):
                x = x + dt * net(torch.cat([x, times + k * dt], 1), task=task)
                path.append(x)
            loss = mse_loss(torch.stack(path, 1), windows)
            torch.autograd.backward(loss)
            torch.autograd.backward(config.beta * memory.drift(lookahead=optimiser))
            optimiser.step()
            yield net, loss.item()


def in_float64(training):
    """The same training with all numbers in double precision, drawn as in single."""
    nets = [
        values_and_embeddings_of(draw(build(training.config), seed, training.config.biases).double())
        for seed in training.seeds
    ]
    c = training.config
    training.stacks, training.data = {"": PathStack(nets, c.rates, widths(c), c.beta)}, training.data.double()
    return training


@pytest.mark.parametrize(("init", "biases"), [("hyperfan-in", "zero"), ("auddy2024-kaiming", "torch")])
def test_every_run_equals_one_that_is_trained_alone_with_the_library(init, biases):
    # A large weight of the regulariser, so that a wrong look-ahead would be seen.
    config = replace(SMOKE, init=init, biases=biases, rates=RATES, seed=3, beta=0.5)
    training = in_float64(DemonstrationsTraining(config))
    singles = [alone(config, seed, lr) for lr in RATES for seed in training.seeds]
    for step in range(config.total):
        found = [next(single) for single in singles]
        assert training.step(step) == pytest.approx(sum(loss for _, loss in found) / len(found), rel=1e-9)
    for i, (net, _) in enumerate(found):
        values, embeddings = values_and_embeddings_of(net)
        torch.testing.assert_close(training.stack.embeddings[i], embeddings, rtol=1e-7, atol=1e-9)
        for name, value in values.items():
            torch.testing.assert_close(training.stack.theta[name][i], value, rtol=1e-7, atol=1e-9)


def test_errors_are_those_of_whole_paths_from_their_start():
    training = DemonstrationsTraining(replace(SMOKE, rates=RATES))
    (row,) = [row for row in training.tests(0) if row["kind"] == Kind.ERRORS]
    c, seed, task = SMOKE, 1, 1
    net, data = draw(build(c), seed, c.biases), demonstrated(c, seed)[task]
    x, path = data[:, 0], [data[:, 0]]
    for k in range(c.points - 1):
        time = torch.full((len(x), 1), k / (c.points - 1))
        x = x + net(torch.cat([x, time], 1), task=task) / (c.points - 1)
        path.append(x)
    wanted = (torch.stack(path, 1) - data).square().mean().item()
    for rate in range(len(RATES)):
        assert row["errors"][rate * c.seeds + seed][task] == pytest.approx(wanted, rel=1e-4)
    assert row["learnt"] == 0


def test_losses_are_measured_before_during_and_after_each_task(tmp_path):
    assert run(SMOKE, tmp_path / "run", Silent()) == "finished"
    rows = read_metrics(tmp_path / "run")
    measured = [(r["task"], r["iteration"]) for r in rows if r["kind"] == Kind.LOSSES]
    assert measured == [(task, i) for task in range(SMOKE.tasks) for i in (0, 3, 6)]
    assert [r["learnt"] for r in rows if r["kind"] == Kind.ERRORS] == [0, 1, 2]
    assert all(len(r["losses"]) == SMOKE.seeds * len(SMOKE.rates) for r in rows if r["kind"] == Kind.LOSSES)


@pytest.mark.parametrize("batches", [5, 9])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, batches):
    assert_resumes(replace(SMOKE, checkpoint_every=2), tmp_path, batches)


def test_one_diverged_run_does_not_end_the_others():
    training = DemonstrationsTraining(SMOKE)
    training.stack.theta["heads.bias"][0] = float("nan")
    assert math.isfinite(training.step(0))
    losses = training.losses(0)
    assert losses.isfinite().tolist() == [False, *[True] * (len(losses) - 1)]
    training.stack.theta["heads.bias"][:] = float("nan")
    assert math.isnan(training.step(1))  # none is left


def test_the_grid_has_every_init_on_seeds_that_choose_and_on_others():
    configs = grid(Demonstrations())
    compared = [c for c in configs if c.seed < CHOOSING_SEED]
    assert [(c.init, c.biases) for c in compared if c.curves == "drawn"] == list(SETTINGS.values())
    claimed = [SETTINGS[name] for name in (KAIMING, *COMPARED)]
    assert [(c.init, c.biases) for c in compared if c.curves == "lasa"] == claimed
    assert len(configs) == 2 * (len(SETTINGS) + len(claimed))
    assert len(grid(Demonstrations(curves="lasa"))) == 2 * len(SETTINGS)
    assert {c.choosing() for c in compared} == set(configs) - set(compared)
    assert all(THEIR_RATE in c.rates for c in configs)
    assert len({c.folder for c in configs}) == len(configs)
    seeds = [range(c.seed, c.seed + c.seeds) for c in (compared[0], compared[0].choosing())]
    assert not set(seeds[0]) & set(seeds[1])


def test_biases_are_those_of_torchs_linear_layers_or_zero():
    config = replace(SMOKE, init="auddy2024-kaiming", hidden=(3000, 2000), target=(30,))
    net = draw(build(config), 0, "torch")
    for layer in (net.trunk[0], net.trunk[2]):
        assert_variance(layer.bias, 1 / (3 * layer.in_features))
        assert layer.bias.abs().max() <= layer.in_features**-0.5
    assert_variance(torch.cat([net.heads.head(name).bias for name in net.heads.names]), 1 / (3 * 2000))
    zero, weights = draw(build(config), 0, "zero"), net.trunk[0].weight
    assert not any(p.any() for name, p in zero.named_parameters() if name.endswith("bias"))
    assert torch.equal(zero.trunk[0].weight, weights)


def test_seeds_share_everything_but_the_init():
    a, b = (DemonstrationsTraining(replace(SMOKE, init=init)) for init in ("hyperfan-in", "auddy2024-normal"))
    assert torch.equal(a.data, b.data)
    assert torch.equal(a.stack.embeddings, b.stack.embeddings)
    assert torch.equal(a.batch(SMOKE.iterations)[1], b.batch(SMOKE.iterations)[1])
    assert not torch.equal(a.data[:, 0], a.data[:, 1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": 11}, "there are 10 shapes"),
        ({"tasks": 27, "curves": "lasa"}, "--tasks 27 --curves lasa: there are 26 shapes"),
        ({"points": 19}, "a subsequence has 20"),
        ({"log_every": 4}, "no multiple"),
        ({"hidden": ()}, "at least one layer"),
        ({"rates": (0.1, 0.1)}, "each once"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(RunError, match=words):
        replace(SMOKE, **changes)


def test_the_shapes_that_lasa_recorded_are_learnt_in_the_seed_s_order(monkeypatch, tmp_path):
    sets = {shape: torch.full((7, 40, 2), i / 30) for i, shape in enumerate(LASA_SHAPES)}
    read = []
    monkeypatch.setattr(
        "hyperfan.experiments.demonstrations.training.lasa", lambda *args, **kwargs: read.append((args, kwargs)) or sets
    )
    config = replace(SMOKE, curves="lasa", tasks=5, points=40)
    data = DemonstrationsTraining(config, tmp_path).data
    assert read == [((tmp_path,), {"points": 40})]
    for i, seed in enumerate(config.seed_range):
        order = shapes(config, seed)
        assert len({*order}) == 5
        assert data[:, i, 0, 0, 0].tolist() == [sets[shape][0, 0, 0].item() for shape in order]
    assert len({tuple(shapes(config, seed)) for seed in config.seed_range}) > 1
