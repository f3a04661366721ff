"""Verdicts follow from the numbers: in a world made as the paper says they hold, in its opposite they do not."""

import math
import statistics
from dataclasses import replace

import pytest
from made_up import rows, write

from hyperfan.errors import RunError
from hyperfan.experiments.mnist.claims import HYPERFANS, _gain, decide
from hyperfan.experiments.mnist.config import CLASSICAL, Mnist, grid
from hyperfan.experiments.mnist.runs import Run, Runs
from hyperfan.experiments.mnist.starts import Start, growth
from hyperfan.experiments.statistics import Estimate

BASE = Mnist(epochs=2)


class World:
    """Every run and every start of the grid, with numbers by rule."""

    def __init__(self, paper: bool):
        self.paper = paper

    def run(self, c: Mnist):
        hyper = c.init.startswith("hyperfan")
        bad = c.init != CLASSICAL and not hyper
        noise = 0.001 * c.seed
        accuracy = (0.3 if bad else 0.95) if self.paper else (0.95 if bad else 0.3)
        if c.optimiser == "adam":
            accuracy += 0.3 if self.paper else -0.3
        if c.init in ("hyperfan-harmonic", "hyperfan-geometric", "hyperfan-arithmetic") or c.heads == "separate":
            accuracy += -0.01 if self.paper else 0.1
        loss = (1.0 if bad else 0.01) if self.paper else (0.01 if bad else 1.0)
        late = self._settles(c, hyper)
        steady = 1e-4 if hyper == self.paper else 1e-2
        deviations = [2.0] * late + [1.0 + steady * (-1) ** i * (i < 29) * 0.1 for i in range(30 - late)]
        batches = c.epoch_batches if c.batches is None else c.batches
        epochs = 1 if c.batches is not None else c.epochs
        return rows([0.1, *[accuracy + noise] * epochs], [loss + noise] * epochs, deviations, batches=batches, mean=1.0)

    def _settles(self, c, hyper):
        """At which of 30 measurements; later with biases, in the paper's world."""
        if not self.paper:
            return 12 if hyper else 2
        return (8 if c.generate == "weights+biases" else 3) if hyper else 20

    def starts(self, c: Mnist):
        hyper, relu = c.init.startswith("hyperfan"), c.activation == "relu"
        if self.paper:
            factor = 1.0 if hyper or c.init == CLASSICAL else 4.0 if c.init.endswith("fan-in") else 0.2
        else:
            factor = 3.0 if hyper else 1.0
        first = 5.0 if relu and self.paper else 1.0
        out = []
        for seed in range(10):
            wobble = 1 + 0.001 * seed
            # Hyperfan-in has d_i, hyperfan-out d_j in the formula: 10 for both in hidden layers of the paper's size.
            flow = [784 / 50, *[10.0] * 4, 0.2 if c.init == "hyperfan-in" else 10.0]
            flow = [f * wobble * (1 if self.paper else 7) for f in flow]
            out.append(Start(tuple(first * wobble * factor**i for i in range(6)), tuple(flow)))
        return out

    def write(self, root):
        for c in grid(BASE):
            write(root, c, self.run(c))
        return Runs(root)


def verdicts(paper, tmp_path):
    world = World(paper)
    return {c.name: c for c in decide(world.write(tmp_path), world.starts, BASE)}


def test_a_world_as_the_paper_says(tmp_path):
    found = verdicts(True, tmp_path)
    assert list(found) == "C1 C2 C3 C4 C5 C6 C12 C13 C14 C15".split()
    # At the paper's own sizes its formula says that gradients grow, so the claim that they shrink cannot hold whole.
    expected = dict.fromkeys(found, "holds") | {"C14": "holds in part"}
    assert {name: c.verdict for name, c in found.items()} == expected


def test_the_opposite_world(tmp_path):
    found = verdicts(False, tmp_path)
    assert {name: c.verdict for name, c in found.items()} == dict.fromkeys(found, "does not hold")


def test_a_single_seed_decides_nothing_about_biases(tmp_path):
    world = World(True)
    for c in grid(BASE):
        if c.generate == "weights" or c.seed == 0:
            write(tmp_path, c, world.run(c))
    found = {c.name: c for c in decide(Runs(tmp_path), world.starts, BASE)}
    assert found["C6"].verdict == "not decided"


def test_a_missing_run_is_named(tmp_path):
    write(tmp_path, BASE, World(True).run(BASE))
    with pytest.raises(RunError, match=r"no finished run 'classical seed-0 epochs-2'.*--all --resume"):
        Runs(tmp_path).need(replace(BASE, init=CLASSICAL), 3)


def test_runs_under_way_do_not_count(tmp_path):
    write(tmp_path, BASE, rows()[:-1])
    assert not Runs(tmp_path).all


@pytest.mark.parametrize("init", HYPERFANS)
def test_seeds_are_paired(tmp_path, init):
    """Accuracies that differ between seeds by more than between settings still give a tight difference."""
    for seed in range(3):
        for heads, gain in (("shared", 0.0), ("separate", 0.01)):
            c = replace(BASE, init=init, seed=seed, heads=heads)
            write(tmp_path, c, rows([0.1, 0.5 + 0.1 * seed + gain, 0.5 + 0.1 * seed + gain], [1.0, 1.0]))
    runs = Runs(tmp_path)
    apart, shared = runs.need(replace(BASE, init=init, heads="separate"), 3), runs.need(replace(BASE, init=init), 3)
    gain = _gain(apart, shared, 2)
    assert gain.mean == pytest.approx(0.01)
    assert gain.low == pytest.approx(0.01)
    assert gain.high == pytest.approx(0.01)


# ── what is read off a run ─────────────────────────────────────────────────────────────────────────────────────────


def test_accuracy_and_loss_by_epoch():
    run = Run(BASE, rows((0.1, 0.8, 0.9), (0.5, 0.25)))
    assert (run.accuracy(), run.accuracy(1), run.accuracy(0)) == (0.9, 0.8, 0.1)
    assert (run.training_loss(), run.training_loss(1)) == (0.25, 0.5)
    assert run.test_loss() == pytest.approx(10)


def test_a_run_that_diverged_counts_as_guessing():
    run = Run(BASE, rows((0.2,) * 3, outcome="diverged")[3:])
    assert run.diverged
    assert run.accuracy() == 0.1


def test_settled_is_when_it_comes_to_stay():
    # It is near its final value at the start too, but does not stay there.
    run = Run(BASE, rows((0.1, 0.9, 0.9), (1.0, 1.0), (1.0, 1.5, 1.009, 1.0, 1.0)))
    assert run.settled() == 2 * BASE.epoch_batches * 2 / 4


def test_restless_is_relative_to_the_end():
    run = Run(BASE, rows((0.1, 0.9, 0.9), (1.0, 1.0), (9.0, 9.0, 4.0, 5.0, 4.0, 4.0), scale=2.0, mean=0.5))
    assert run.restless("deviation", relative=False) == pytest.approx(2.0 * 2 / 3)
    assert run.restless("deviation", relative=True) == pytest.approx(2 / 3 / 4)
    assert run.restless("mean", relative=True) == pytest.approx(0.5 * 2 / 3 / 4)


def test_growth_is_the_factor_from_layer_to_layer():
    assert growth(tuple(7 * 3.0**i for i in range(5))) == pytest.approx(3)


# ── intervals ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_interval_is_students():
    values = [3.0, 5.0, 10.0, 2.0]
    e = Estimate.of(values)
    half = 3.182 * statistics.stdev(values) / 2  # t for 3 degrees of freedom
    assert (e.mean, e.n) == (5.0, 4)
    assert e.high - e.mean == pytest.approx(half)
    assert e.mean - e.low == pytest.approx(half)


def test_ratios_are_averaged_as_logarithms():
    e = Estimate.ratio([1.0, 4.0])
    assert e.mean == pytest.approx(2)
    assert e.low * e.high == pytest.approx(4)
    assert math.log(e.high / e.mean) == pytest.approx(12.706 * statistics.stdev([0, math.log(4)]) / math.sqrt(2))


def test_one_value_has_no_interval():
    assert Estimate.of([3.0]).say() == "3, n = 1"
