"""Verdicts follow from the numbers: in a world made as the paper says they hold, in its opposite they do not."""

import math
import statistics
from dataclasses import replace

import pytest
from made_up import rows, write

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import CLOSE_SEEDS, EXPERIMENT, HYPERFANS, MEANS, SEEDS, SHARING_SEEDS, Mnist, grid
from hyperfan.experiments.mnist.claims import CLAIMS, _gain
from hyperfan.experiments.mnist.results import MnistResults, MnistRun, UntrainedNet
from hyperfan.experiments.results.claims import claim_sections, verdict_table
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.statistics import Estimate, growth

BASE = Mnist(epochs=2)


def read(root):
    return Runs.read(root, EXPERIMENT)


class MadeUpStarts(MnistResults):
    """Results with the starts of a world, since real ones need images; test_mnist_starts has those."""

    def __init__(self, runs, base, world):
        super().__init__(runs, base)
        self.world = world

    def starts(self, **changes):
        return self.world.starts(replace(self.base, **changes))[self.part]


def decided(runs, world, base, names=CLAIMS):
    """Claims by name."""
    results = MadeUpStarts(runs, base, world)
    results.claims = {name: CLAIMS[name] for name in names}
    return {c.name: c for c in results.decide()}


NAMES = list(CLAIMS)


class World:
    """Every run and every start of the grid, with numbers by rule. As the paper says, but for what is changed."""

    def __init__(self, **changes):
        self.accuracy = {"good": 0.95, "bad": 0.3, "adam": 0.6, "mean": -0.01, "separate": -0.01}
        self.loss = {"good": 0.01, "bad": 1.0, "mean": 1.0, "separate": 1.0}  # of the last two, times that of others
        self.settled = {"hyper": 3, "hyper, biases": 8, "bad": 20}
        self.wobble = {"hyper": 1e-5, "bad": 1e-2}
        self.jump = {"hyper": 1.0, "hyper, biases": 2.0, "bad": 2.0}  # before weights settle, over their deviation
        self.grows = {"fan-in linear": 4.5, "fan-in tanh": 4.0, "fan-in relu": 5.0, "fan-out": 0.2, "hyper": 1.0}
        self.back = dict(self.grows)
        self.gradients = 1.0  # of hyperfan before training, over those of the classical net
        self.first = 20.0  # how much larger the first layer is under fan-in
        self.size = 1.0  # of hyperfan's trained weights
        self.odd = 0.0  # what separate heads gain more with odd seeds
        self.last, self.flow = 1.0, 0.5
        self.spread = 0.001  # how much seeds differ
        for name, value in changes.items():
            old = getattr(self, name)
            setattr(self, name, {**old, **value} if isinstance(old, dict) else value)

    def run(self, c: Mnist):
        hyper = c.init.startswith("hyperfan")
        bad = c.init != CLASSICAL and not hyper
        accuracy = self.accuracy["adam" if c.optimiser == "adam" else "bad" if bad else "good"]
        accuracy += self.accuracy["mean"] * (c.init in MEANS)
        accuracy += (self.accuracy["separate"] + self.odd * (c.seed % 2)) * (c.heads == "separate")
        # Such that it does not cancel between settings that are compared.
        side = 1 if c.init in HYPERFANS and c.heads == "shared" else -1
        noise = self.spread * (c.seed % CLOSE_SEEDS - 1) * side
        kind = "bad" if bad else "hyper, biases" if c.generate == "weights+biases" else "hyper"
        late = self.settled[kind] + (c.seed if self.spread > 0.1 else 0)
        size = 20.0 if bad else self.size if hyper else 1.0
        wobble = self.wobble["bad" if bad else "hyper"] * (1 + 50 * self.spread * c.seed)
        stays = [size * (1 + wobble * 0.1 * (-1) ** i * (i < 59 - late)) for i in range(60 - late)]
        epochs = 1 if c.batches is not None else c.epochs
        loss = self.loss["bad" if bad else "good"] * (self.loss["mean"] if c.init in MEANS else 1)
        loss *= self.loss["separate"] if c.heads == "separate" else 1
        return rows(
            [0.1, *[accuracy + noise] * epochs],
            [loss * math.exp(5 * noise)] * epochs,
            [(1 + self.jump[kind]) * size] * late + stays,
            batches=c.epoch_batches if c.batches is None else c.batches,
            mean=1.0,
            quantities=("weights",),
        )

    def starts(self, c: Mnist):
        relu = c.activation == "relu"
        kind = "hyper" if c.init.startswith("hyperfan") or c.init == CLASSICAL else "fan-out"
        kind = f"fan-in {c.activation}" if c.init.endswith("fan-in") and kind != "hyper" else kind
        out = []
        for seed in range(10):
            noise = 1 + self.spread * seed
            last = self.last if c.init == "hyperfan-out" else 1.0
            first = (5.0 if relu else 1.0) * (self.first if kind.startswith("fan-in") else 1.0)
            activations = [first * (self.grows[kind] * noise) ** i for i in range(6)]
            gradients = [(self.back[kind] * noise) ** (5 - i) for i in range(6)]
            gradients = [g * (self.gradients if c.init.startswith("hyperfan") else 1.0) for g in gradients]
            # Above the paper's own sizes the formula says less than 1, so that all of the claim can hold.
            formula = [d / c.embedding for d in ([784, *[500] * 5] if c.init == "hyperfan-out" else [*[500] * 5, 10])]
            flow = [f * noise * 2 * self.flow for f in formula]
            out.append(UntrainedNet((*activations[:5], activations[5] * last), tuple(gradients), tuple(flow)))
        return out

    def verdicts(self, base=BASE, seeds=SEEDS, names=CLAIMS):
        runs = [MnistRun(c, self.run(c)) for c in grid(base) if c.seed < seeds]
        return decided(Runs(EXPERIMENT, runs), self, base, names)

    def claim(self, name, base):
        return self.verdicts(base, names=[name])[name]


WIDE = replace(BASE, embedding=1000)
"""Embeddings wider than the layers: only there do gradients shrink as the paper says."""


@pytest.fixture(scope="module")
def papers_world(tmp_path_factory):
    """Claims in a world as the paper says, with all seeds of the grid, from its folders."""
    root, world = tmp_path_factory.mktemp("runs"), World()
    for c in grid(WIDE):
        write(root, c, world.run(c))
    return decided(read(root), world, WIDE)


def test_a_world_as_the_paper_says(papers_world):
    assert {name: c.verdict for name, c in papers_world.items()} == dict.fromkeys(NAMES, "holds")


def test_at_the_papers_own_sizes_gradients_grow():
    found = World().claim("C14", BASE)
    assert {label.endswith("gradients shrink"): so for label, so in found.facts.items()} == {True: False, False: True}
    assert found.verdict == "holds in part"
    assert "500 and 50, its formula says that the variance grows 10 times" in found.remark


def test_with_one_seed_nothing_about_training_is_decided():
    found = World().verdicts(WIDE, seeds=1)
    trained = ("C2", "C3", "C4", "C6", "C12", "C13", "C15")
    assert {name: c.verdict for name, c in found.items()} == {
        n: "not decided" if n in trained else "holds" for n in NAMES
    }


def test_where_seeds_differ_more_than_settings_nothing_is_decided():
    found = World(spread=0.5).verdicts(WIDE)
    for name in ("C4", "C12", "C13"):
        assert found[name].verdict == "not decided", found[name]


NO_CHANGE = {"fan-in linear": 1.0, "fan-in relu": 1.0, "fan-in tanh": 1.0, "fan-out": 1.0}
CHANGES = [
    # what is changed in the paper's world → the verdict on a claim, and a fact that is no longer so
    ({"first": 1.0, "grows": {"fan-in tanh": 1.0}}, "C1", "holds in part", "activations are more than twice the"),
    ({"back": {"fan-in tanh": 1.0}}, "C1", "holds in part", "gradients are more than twice the"),
    ({"grows": {"fan-in linear": 1.0}}, "C1", "holds in part", "fan-in, linear: activations"),
    ({"grows": {"fan-out": 0.9}}, "C1", "holds in part", "fan-out, linear: activations"),
    ({"back": {"fan-in linear": 1.0}}, "C1", "holds in part", "fan-in, linear: gradients"),
    ({"back": {"fan-out": 0.9}}, "C1", "holds in part", "fan-out, linear: gradients"),
    ({"first": 1.0, "grows": NO_CHANGE, "back": NO_CHANGE}, "C1", "does not hold", "fan-in"),
    ({"last": 8.0}, "C2", "holds in part", "hyperfan-out: so are activations of the output layer"),
    ({"gradients": 4.0}, "C2", "holds in part", "gradients of hidden layers"),
    ({"size": 5.0}, "C2", "holds in part", "trained weights"),
    ({"settled": {"hyper": 18, "bad": 5}, "wobble": {"bad": 1e-5}}, "C3", "holds in part", "settles sooner"),
    ({"settled": {"hyper": 18, "bad": 5}}, "C3", "holds in part", "settles sooner, within 1% of its own"),
    ({"jump": {"hyper": 100.0}}, "C3", "holds in part", "the mean moves less"),
    ({"jump": {"hyper": 5.0}}, "C3", "holds in part", "relative to the deviation"),
    ({"loss": {"good": 5.0}}, "C4", "holds in part", "lower training loss"),
    ({"accuracy": {"bad": 0.97, "adam": 0.98}}, "C4", "holds in part", "higher accuracy"),
    ({"loss": {"good": 5.0}, "accuracy": {"bad": 0.97, "adam": 0.98}}, "C4", "does not hold", "higher accuracy"),
    ({"grows": {"fan-in relu": 1.0}}, "C5", "does not hold", "larger in every layer after the first"),
    ({"settled": {"hyper, biases": 2}}, "C6", "holds in part", "settles later"),
    ({"settled": {"hyper, biases": 30}}, "C6", "holds in part", "xavier-fan-in, within 1% of its own"),
    ({"jump": {"hyper, biases": 100.0}}, "C6", "holds in part", "moves less than under"),
    ({"jump": {"hyper, biases": 0.5}}, "C6", "holds in part", "moves more than with weights alone"),
    (
        {
            "settled": {"hyper, biases": 2, "bad": 1},
            "jump": {"hyper, biases": 0.5, "bad": 0.001},
            "wobble": {"bad": 1e-5},
        },
        "C6",
        "does not hold",
        "settles sooner",
    ),
    ({"accuracy": {"mean": 0.02}}, "C12", "holds in part", "better than one of both"),
    ({"loss": {"mean": 0.5}}, "C12", "holds in part", "training loss"),
    ({"accuracy": {"separate": 0.02}}, "C13", "holds in part", "separate heads"),
    ({"loss": {"separate": 0.5}}, "C13", "holds in part", "their training loss"),
    ({"flow": 2.0}, "C14", "does not hold", "the formula is right"),
    ({"accuracy": {"good": 0.45}}, "C15", "holds in part", "hyperfan-in trains with SGD"),
    ({"accuracy": {"bad": 0.99, "adam": 0.995}}, "C15", "holds in part", "does not with SGD"),
    ({"accuracy": {"adam": 0.2}}, "C15", "holds in part", "with Adam, at one of its rates, it does"),
    ({"accuracy": {"good": 0.2, "bad": 0.6, "adam": 0.2}}, "C15", "does not hold", "S"),
]


@pytest.mark.parametrize(("change", "name", "verdict", "fact"), CHANGES)
def test_one_change_of_the_world_changes_the_verdict(change, name, verdict, fact):
    claim = World(**change).claim(name, WIDE)
    concerned = {label: so for label, so in claim.facts.items() if fact in label}
    assert set(concerned.values()) == {False}
    assert claim.verdict == verdict


def test_remarks_that_state_something_are_only_made_where_it_is_so(papers_world):
    """In the paper's own world there is nothing to remark on, but for how claims are read, and what is not tested."""
    found = {name: c.remark for name, c in papers_world.items() if c.remark}
    assert list(found) == ["C3", "C12", "C15"]
    assert "The weights of xavier-fan-in are also larger, those of layer 3 20 [" in found["C3"]
    assert found["C15"].endswith("had been seen.")


@pytest.mark.parametrize(
    ("changes", "name", "remark"),
    [
        ({"grows": {"fan-in tanh": 1.0}}, "C1", "explode at once and no further"),
        ({"last": 8.0}, "C2", "its last weights and outputs are larger"),
        ({"accuracy": {"bad": 0.97}}, "C4", "has 97.0% [96.7%, 97.2%] right after 2 epochs. Hyperfan-in is −2.00 [−2"),
        ({"accuracy": {"adam": 0.4}}, "C15", "Any between 40% and 95% would decide the same."),
    ],
)
def test_what_a_remark_states_is_a_number_of_this_world(changes, name, remark):
    assert remark in World(**changes).claim(name, WIDE).remark


def test_weights_that_are_no_larger_are_not_said_to_be():
    assert "larger" not in World(size=20.0).claim("C3", WIDE).remark


def test_every_claim_has_the_number_that_decides_it(papers_world):
    assert all(any(letter.isdigit() for letter in c.headline) for c in papers_world.values())
    assert papers_world["C6"].headline == "hyperfan-in: the mean moves 2 [2, 2] times as far"
    assert papers_world["C12"].headline.startswith("harmonic mean: 0.975 [")
    assert papers_world["C13"].counts == "4 of 4 facts"
    assert papers_world["C5"].counts == "1 of 1 fact"


def test_halves_have_half_of_the_seeds(papers_world):
    for name, n in (("C1", {5}), ("C13", {CLOSE_SEEDS // 2, SHARING_SEEDS // 2})):
        assert [{m.estimate.n for m in half.measured.values()} for half in papers_world[name].halves] == [n, n]
    label = "xavier-fan-in: accuracy at the end"
    assert [half.measured[label].estimate.n for half in papers_world["C4"].halves] == [2, 1]


def test_halves_of_the_seeds_that_disagree_are_told():
    """Separate heads gain 3 % with odd seeds, and lose 1 % with even ones."""
    found = World(odd=0.04).verdicts(WIDE, seeds=CLOSE_SEEDS)
    claim = found["C13"]
    assert claim.verdict == "not decided"
    assert [half.verdict for half in claim.halves] == ["holds", "holds in part"]
    assert claim.contested == [label for label in claim.facts if "better" in label]
    section = claim_sections([claim])
    assert "Even, odd and all seeds disagree on 2 facts." in section
    assert section.count(" | not decided | yes | no |") == 2
    assert "holds / holds in part, which disagree on 2 facts" in verdict_table([claim])
    assert [half.verdict for half in found["C1"].halves] == ["holds", "holds"]
    assert not found["C12"].contested
    assert "disagree" not in claim_sections([found["C12"]])


def test_a_run_that_diverged_is_worse_and_no_error():
    world, found = World(), []
    for c in (c for c in grid(WIDE) if c.seed < SEEDS):
        gone = c.init == "xavier-fan-in" and c.generate == "weights" and c.batches is None
        made = world.run(c)
        made = [r for r in made if r["step"] == 0] + rows(outcome="diverged")[-1:] if gone else made
        found.append(MnistRun(c, made))
    runs = Runs(EXPERIMENT, found)
    found = decided(runs, world, WIDE)
    assert found["C3"].verdict == "not decided"  # it never moved, so it cannot be compared
    assert "a run is missing, or diverged." in found["C3"].remark
    assert found["C2"].verdict == found["C4"].verdict == "holds"
    bad = runs.need(replace(WIDE, init="xavier-fan-in"))
    good = runs.need(replace(WIDE, init="hyperfan-in"))
    assert all(a.training_loss() < b.training_loss() for a, b in zip(good, bad, strict=True))
    assert all(a.settled() < b.settled() == WIDE.total for a, b in zip(good, bad, strict=True))
    assert _gain(good, bad, 1).low > 0.5


def test_a_claim_whose_runs_are_missing_is_not_decided():
    world = World()
    runs = [MnistRun(c, world.run(c)) for c in grid(WIDE) if c.init != "hyperfan-geometric"]
    found = decided(Runs(EXPERIMENT, runs), world, WIDE)
    assert {name for name, c in found.items() if c.verdict != "holds"} == {"C12"}
    assert found["C12"].verdict == "not decided"
    assert "'hyperfan-geometric seed-0" in found["C12"].remark
    section = claim_sections([found["C12"]])
    assert "**Verdict: not decided**, its runs are missing.\n\nThere is no finished run" in section
    assert "|" not in section  # no empty tables


def test_a_missing_run_is_named(tmp_path):
    write(tmp_path, BASE, World().run(BASE))
    with pytest.raises(RunError, match=r"no finished run 'classical seed-0 epochs-2'.*--all --resume"):
        read(tmp_path).need(replace(BASE, init=CLASSICAL))


def test_runs_under_way_do_not_count(tmp_path):
    write(tmp_path, BASE, rows()[:-1])
    (write(tmp_path, replace(BASE, seed=9), rows()) / "metrics.jsonl").unlink()
    assert not list(read(tmp_path))


@pytest.mark.parametrize("init", HYPERFANS)
def test_seeds_are_paired(tmp_path, init):
    """Accuracies that differ between seeds by more than between settings still give a tight difference."""
    for seed in range(3):
        for heads, gain in (("shared", 0.0), ("separate", 0.01)):
            c = replace(BASE, init=init, seed=seed, heads=heads)
            write(tmp_path, c, rows([0.1, 0.5 + 0.1 * seed + gain, 0.5 + 0.1 * seed + gain], [1.0, 1.0]))
    runs = read(tmp_path)
    apart, shared = runs.need(replace(BASE, init=init, heads="separate")), runs.need(replace(BASE, init=init))
    gain = _gain(apart, shared, 2)
    assert (gain.value, gain.low, gain.high) == (pytest.approx(0.01),) * 3


# ── what is read off a run ─────────────────────────────────────────────────────────────────────────────────────────


def test_accuracy_and_loss_by_epoch():
    run = MnistRun(BASE, rows((0.1, 0.8, 0.9), (0.5, 0.25)))
    assert (run.accuracy(), run.accuracy(1), run.accuracy(0)) == (0.9, 0.8, 0.1)
    assert run.training_loss() == 0.25
    assert run.test_loss() == pytest.approx(10)


def test_a_run_that_diverged_counts_as_guessing():
    run = MnistRun(BASE, rows((0.2,) * 3, outcome="diverged")[3:])
    assert run.diverged
    assert run.accuracy() == 0.1
    assert run.training_loss() == math.log(10)


def test_a_test_that_was_not_taken_is_no_guess():
    with pytest.raises(RunError, match="was not tested after batch 18000"):
        MnistRun(BASE, rows((0.1, 0.8, 0.9))).accuracy(3)


def test_settled_is_when_it_comes_to_stay():
    # It is near its final value at the start too, but does not stay there.
    run = MnistRun(BASE, rows((0.1, 0.9, 0.9), (1.0, 1.0), (1.0, 1.5, 1.009, 1.0, 1.0)))
    assert run.settled() == 2 * BASE.epoch_batches * 2 / 4
    # One that never leaves has settled by the first probe; 0 batches would have no logarithm.
    assert MnistRun(BASE, rows((0.1, 0.9, 0.9), (1.0, 1.0), (1.0,) * 5)).settled() == 2 * BASE.epoch_batches / 4


def test_restless_is_relative_to_the_end():
    run = MnistRun(BASE, rows((0.1, 0.9, 0.9), (1.0, 1.0), (9.0, 9.0, 4.0, 5.0, 4.0, 4.0), scale=2.0, mean=0.5))
    assert run.restless("deviation", relative=False) == pytest.approx(2.0 * 7 / 5)
    assert run.restless("deviation", relative=True) == pytest.approx(7 / 5 / 4)
    assert run.restless("mean", relative=True) == pytest.approx(0.5 * 7 / 5 / 4)


def test_growth_is_the_factor_from_layer_to_layer():
    assert growth(tuple(7 * 3.0**i for i in range(5))) == pytest.approx(3)


# ── intervals ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_interval_is_students():
    values = [3.0, 5.0, 10.0, 2.0]
    e = Estimate.of(values)
    half = 3.182 * statistics.stdev(values) / 2  # t for 3 degrees of freedom
    assert (e.value, e.n) == (5.0, 4)
    assert e.high - e.value == pytest.approx(half)
    assert e.value - e.low == pytest.approx(half)


def test_ratios_are_averaged_as_logarithms():
    e = Estimate.ratio([1.0, 4.0])
    assert e.value == pytest.approx(2)
    assert e.low * e.high == pytest.approx(4)
    assert math.log(e.high / e.value) == pytest.approx(12.706 * statistics.stdev([0, math.log(4)]) / math.sqrt(2))


def test_one_value_has_no_interval():
    assert Estimate.of([3.0]).format() == "3"
