"""The CIFAR-10 experiment on pictures of noise: its configuration, its rates, its data, and going on after a stop."""

import dataclasses
import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from toy import Silent, assert_resumes

import hyperfan as hf
from hyperfan.data import CIFAR10, Labelled, Splits, standardise
from hyperfan.errors import RunError
from hyperfan.experiments.cifar10 import BEST, PROFILES, SEARCHED, Cifar10, grid, long_run, training
from hyperfan.experiments.classifier import indices
from hyperfan.experiments.loop import run

SMALL = replace(PROFILES["smoke"], embedding=4)


@pytest.fixture(autouse=True)
def _noise(monkeypatch):
    def pictures(count):
        drawn = torch.Generator().manual_seed(count)
        images = torch.randint(256, (count, 3, 32, 32), generator=drawn, dtype=torch.uint8)
        return Labelled(images, torch.randint(10, (count,), generator=drawn))

    monkeypatch.setattr(training, "cifar10", lambda _data_dir: Splits(pictures(40), pictures(130)))


def start(**fields):
    return replace(SMALL, **fields).start(None)


# ── the configuration ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_papers_run():
    """Section 4.3: 500 epochs of batches of 100, SGD with 0.0005, a tenth of it at 350 and 450, embeddings of 50."""
    run = PROFILES["paper"]
    assert run == Cifar10()
    assert (run.epochs, run.batch, run.embedding, run.images, run.total) == (500, 100, 50, 50_000, 250_000)
    assert (run.augment, run.fidelity, run.test_images, run.tested_every) == (False, "paper", 10_000, 500)
    rates = {epoch: run.rate_at(500 * epoch) for epoch in (0, 349, 350, 449, 450, 499)}
    assert rates == pytest.approx({0: 5e-4, 349: 5e-4, 350: 5e-5, 449: 5e-5, 450: 5e-6, 499: 5e-6})
    assert run.rate_at(500 * 350 - 1) == 5e-4


def test_every_field_that_changes_what_is_trained_changes_the_folder():
    other = {"seed": 1, "epochs": 2, "lr": 0.5, "drops": (1, 2), "augment": True, "fidelity": "exact", "embedding": 2,
             "batch": 2, "images": 200, "batches": 2, "threads": 2, "init": "m2", "checkpoint_every": 2}  # fmt: skip
    watching = {"test_images", "test_every", "log_every", "device"}
    assert {f.name for f in dataclasses.fields(Cifar10)} == {*other, *watching}
    folders = [Cifar10(**{name: value}).folder for name, value in other.items()]
    assert len({Cifar10().folder, *folders}) == len(other) + 1
    assert all(len(folder.parts) == 1 for folder in folders)


@pytest.mark.parametrize("seed", [0, 5])
def test_the_grid_is_a_search_and_longer_runs(seed):
    """By the issue: the same density of rates, the paper's rate and its neighbours for 3 epochs, Kaiming for one."""
    base = replace(PROFILES["laptop"], seed=seed)
    runs = grid(base)
    assert len({run.folder for run in runs}) == len(runs)
    assert [(run.init, run.seed, run.rate, run.epochs) for run in long_run(base)] == [("hyperfan-in", seed, 5e-5, 12)]
    assert runs.pop() == long_run(base)[0]
    searched = [run for run in runs if run.seed >= 1000]
    first = [run for run in runs if 3 + seed <= run.seed < 1000]
    longer = [run for run in runs if run.seed < 3 + seed]
    assert Counter((run.init, run.rate, run.total, run.test_images) for run in first) == {
        (init, rate, 50, 1000): 8
        for init, rate in [*itertools.product(("hyperfan-in", "hyperfan-out"), (5e-4, 5e-5)), *BEST.items()]
    }
    assert {(run.seed, run.total, run.batch) for run in searched} == {(1000 + seed, 50, 100)}
    for init in ("hyperfan-in", "hyperfan-out", "kaiming-fan-in", "kaiming-fan-out"):
        rates = [run.rate for run in searched if run.init == init]
        assert 5e-4 in rates  # the paper's
        assert [a / b for a, b in itertools.pairwise(rates)] == pytest.approx([10.0] * (len(rates) - 1))
    assert all(BEST[init] in SEARCHED[init] for init in BEST)
    settings = Counter((run.init, run.rate, run.total) for run in longer)
    assert set(settings.values()) == {3}
    assert {run.seed for run in longer} == set(range(seed, seed + 3))
    beside = {(init, rate, 1500) for init in ("hyperfan-in", "hyperfan-out") for rate in (5e-3, 5e-4, 5e-5)}
    beside |= {("classical", rate, 1500) for rate in (0.1, 0.01, 0.001)}
    assert set(settings) == beside | {(init, rate, 500) for init, rate in BEST.items()}
    assert all(run.test_images == 10_000 for run in longer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "--epochs 0: at least 1 is needed"),
        ({"test_every": 0}, "--test-every 0: at least 1 is needed"),
        ({"images": 50_001}, "--images 50001: there are 50000"),
        ({"test_images": 10_001}, "--test-images 10001: there are 10000"),
        ({"images": 9}, "--batch 100: a batch has no more than the 9 training images"),
        ({"drops": (3, 2)}, "--drops 3 2: name epochs, each later than the last"),
        ({"drops": (0,)}, "--drops 0: at least 1 is needed"),
        ({"lr": -1.0}, "--lr -1: it must be positive and finite"),
        ({"seed": -1}, "--seed -1: at least 0 is needed"),
    ],
)
def test_what_cannot_be(fields, message):
    with pytest.raises(RunError) as caught:
        Cifar10(**fields)
    assert str(caught.value) == message


@pytest.mark.parametrize("device", ["cuda:9", "no such"])
def test_a_device_that_is_not_there(device):
    with pytest.raises(RunError, match=f"--device {device}: torch cannot use it here"):
        start(device=device)


# ── training ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hypernet_is_the_papers():
    made = start(init="hyperfan-out", embedding=50)
    assert isinstance(made.net, hf.HyperNet)
    assert made.net.heads.n == 1943
    assert made.plan["method"] == "hyperfan-out"
    assert made.plan["fidelity"] == "paper"
    assert made.plan["warnings"] == []
    kinds = {row.head: row.kind for row in made.optimiser.plan.rows}
    assert kinds == {"96x3x3": "dense", "96x1x1": "dense", "inputs": "collapsed"}


def test_everything_is_drawn_anew_for_another_seed():
    a, b = start().net.state_dict(), start(seed=1).net.state_dict()
    for name in ("embeddings.weight", "heads.inputs.weight", "heads.96x3x3.weight"):
        assert not torch.equal(a[name], b[name])
    assert indices(SMALL, 0).tolist() != indices(replace(SMALL, seed=1), 0).tolist()


def test_the_classical_net_has_kaiming_init():
    made = start(init="classical")
    assert not isinstance(made.net, hf.HyperNet)
    for layer in made.net:
        if isinstance(layer, torch.nn.Conv2d):
            variance = 2 / layer.weight[0].numel()
            assert layer.weight.var().item() == pytest.approx(variance, rel=0.1)
            assert not layer.bias.any()


def test_pictures_are_standardised_and_only_augmented_if_asked():
    plain, moved = start(), start(augment=True)
    x, y = plain.batch(1)
    chosen = indices(plain.config, 1)
    assert torch.equal(x, standardise(plain.x[chosen], CIFAR10.mean, CIFAR10.std))
    assert torch.equal(y, plain.y[chosen])
    assert torch.equal(y, moved.batch(1)[1])
    assert not torch.equal(x, moved.batch(1)[0])
    assert torch.equal(moved.batch(1)[0], moved.batch(1)[0])
    ones = start(augment=True, images=2, batch=2, epochs=9)  # the same two pictures in every batch
    seen = [ones.batch(step)[0] for step in range(6)]
    assert len({tuple(s.sum((1, 2, 3)).sort().values.tolist()) for s in seen}) > 3
    black = standardise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), CIFAR10.mean, CIFAR10.std)
    margins = [(s == black).all(1).sum().item() for s in seen]  # what came in from outside
    assert 0 < max(margins) <= 2 * (32 * 32 - 28 * 28)
    tested = torch.cat([x for x, _ in moved.test_batches()])
    assert torch.equal(tested, standardise(moved.test_x, CIFAR10.mean, CIFAR10.std))


def test_the_rate_drops_by_epoch():
    made = start(epochs=3, drops=(1, 2), lr=1e-6)
    seen = []
    for step in range(made.config.total):
        made.step(step)
        seen.append(made.optimiser.param_groups[0]["lr"])
    assert seen == pytest.approx([1e-6] * 4 + [1e-7] * 4 + [1e-8] * 4)


def test_tests_come_every_so_often_and_at_the_end():
    made = start(test_every=3, epochs=1)
    assert [s for s in range(5) if list(made.tests(s))] == [0, 3, 4]
    (row,) = made.tests(0)
    with torch.no_grad():
        out = made.net(standardise(made.test_x, CIFAR10.mean, CIFAR10.std))
    assert len(made.test_x) == 20
    assert row["accuracy"] == (out.argmax(1) == made.test_y).double().mean().item()
    loss = torch.nn.functional.cross_entropy(out, made.test_y, reduction="sum").item()
    assert row["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(
    "fields",
    [
        *(pytest.param(f, marks=pytest.mark.full) for f in ({}, {"init": "classical"})),
        {"augment": True, "drops": (1,), "epochs": 2},
    ],
    ids=str,
)
def test_stopped_and_resumed(tmp_path, fields):
    assert_resumes(replace(SMALL, **fields), tmp_path, 3)


def test_kaiming_fan_in_diverges_at_the_papers_rate(tmp_path):
    assert run(replace(SMALL, init="kaiming-fan-in", lr=5e-4), tmp_path / "a", Silent()) == "diverged"
