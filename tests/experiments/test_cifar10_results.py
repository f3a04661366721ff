"""The verdict on CIFAR-10 follows from the numbers, and the page says what was found and what is missing."""

import functools
import json
import re
from dataclasses import replace

import pytest
from made_up import write

from hyperfan.errors import RunError
from hyperfan.experiments.cifar10 import (
    BEST,
    EXPERIMENT,
    PROFILES,
    SEEDS,
    at_the_papers_rate,
    claims,
    grid,
    long_run,
    neighbours,
    short_runs,
)
from hyperfan.experiments.cifar10.results import PICTURES, Cifar10Results, Cifar10Run
from hyperfan.experiments.experiment import CHOOSING_SEED
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.write import write_results, write_summary

BASE = PROFILES["laptop"]
TESTED = 10_000


class World:
    """Every run of the grid, with numbers by rule. As the paper says, but for what is changed."""

    def __init__(self, **changes):
        self.accuracy = {"classical": 0.4, "hyperfan-in": 0.3, "hyperfan-out": 0.25, "kaiming-fan-in": 0.1,
                         "kaiming-fan-out": 0.1}  # fmt: skip
        self.best = {"hyperfan-in": 5e-4, "hyperfan-out": 5e-4, **BEST}
        self.searched = {}  # best rates of the seed that searches, where they are others
        self.reach = 20  # by how much smaller a rate hyperfan still trains at
        self.spread = 0.002
        self.fall = 1.0  # by how much the loss is higher before the last hundred batches of an epoch
        for name, value in changes.items():
            old = getattr(self, name)
            setattr(self, name, {**old, **value} if isinstance(old, dict) else value)

    def rows(self, c):
        seed, found = c.seed % CHOOSING_SEED, {**self.best, **self.searched} if c.seed >= CHOOSING_SEED else self.best
        best = found.get(c.init, c.rate)
        if c.rate > 2 * best:
            return [_test(0, 0.1), {"kind": "end", "step": 3, "outcome": "diverged", "layer": "4"}]
        near = c.rate > best / 2
        trains = near or (c.init.startswith("hyperfan") and c.rate > best / self.reach)
        accuracy = self.accuracy[c.init] if trains else 0.1
        accuracy += self.spread * (seed % 3 - 1)
        low = (2.35 - accuracy if accuracy > 0.15 else 2.4) + 0.01 * (not near)
        ends = range(min(c.total, c.epoch_batches), c.total + 1, c.epoch_batches)
        losses = [{"kind": "train", "step": step, "loss": low + ((ends[0] - step) % c.epoch_batches >= 100) * self.fall}
                  for step in range(c.log_every, c.total + 1, c.log_every)]  # fmt: skip
        end = {"kind": "end", "step": c.total, "outcome": "finished"}
        return [_test(0, 0.1), *losses, *(_test(step, accuracy) for step in ends), end]

    def write(self, root, keep=lambda c: True):
        for c in filter(keep, grid(BASE)):
            write(root, c, self.rows(c))

    def results(self, keep=lambda c: True):
        return Cifar10Results(Runs(EXPERIMENT, [Cifar10Run(c, self.rows(c)) for c in filter(keep, grid(BASE))]), BASE)


def _test(step, accuracy):
    return {"kind": "test", "step": step, "loss": TESTED * (2.4 - accuracy), "accuracy": accuracy}


def verdict(**changes):
    (claim,) = World(**changes).results().decide()
    return claim


def test_a_world_as_the_paper_says():
    claim = verdict()
    assert claim.verdict == "holds", claim.facts
    assert claim.counts == "18 of 18 facts"
    assert claim.headline.startswith("30% [30%, 30%] right at 5e-05, Kaiming fan-out 10% [")
    assert "Not tested: what comes after." in claim.remark
    assert "In the search" not in claim.remark


@pytest.mark.parametrize(
    ("changes", "fact", "found"),
    [
        ({"accuracy": {"hyperfan-in": 0.1}}, "hyperfan-in at 0.0005 trains at once", "holds in part"),
        ({"accuracy": {"hyperfan-out": 0.1}}, "hyperfan-out at 0.0005 trains at once", "holds in part"),
        ({"reach": 2}, "hyperfan-in at 5e-05 trains at once", "holds in part"),
        ({"best": {"hyperfan-in": 5e-5}}, "hyperfan-in at 0.0005 trains at once", "holds in part"),
        ({"accuracy": {"kaiming-fan-in": 0.3}}, "kaiming-fan-in at 5e-15 does not", "holds in part"),
        ({"accuracy": {"kaiming-fan-out": 0.3}}, "kaiming-fan-out at 5e-11 does not", "holds in part"),
        ({"accuracy": {"kaiming-fan-in": 0.3, "kaiming-fan-out": 0.3, "hyperfan-in": 0.1, "hyperfan-out": 0.1}},
         "hyperfan-in at", "does not hold"),
    ],
)  # fmt: skip
def test_one_change_of_the_world_changes_the_verdict(changes, fact, found):
    claim = verdict(**changes)
    assert {so for label, so in claim.facts.items() if label.startswith(fact)} == {False}
    assert claim.verdict == found


def test_where_seeds_differ_more_than_settings_nothing_is_decided():
    assert verdict(spread=0.5).verdict == "not decided"


def test_rates_are_searched_on_a_seed_that_is_not_compared():
    """The compared seeds would choose another rate; where the search does not choose what was taken, it is said."""
    world = World(searched={"kaiming-fan-in": 5e-13})
    found = world.results()
    assert found.best("kaiming-fan-in") == 5e-13 != world.best["kaiming-fan-in"]
    assert found.best("hyperfan-out") == 5e-4
    (claim,) = found.decide()
    said = " In the search the loss of kaiming-fan-in is smallest at 5e-13, not at 5e-15, which was taken."
    assert claim.remark.endswith(said)
    assert "of kaiming-fan-out is smallest" not in claim.remark
    assert claim.measured["kaiming-fan-in at 5e-15, after the first epoch: test accuracy"].estimate.n == 3


def test_the_loss_at_the_end_is_that_of_the_last_hundred_batches():
    found = World(fall=5.0).results(lambda c: c.init == "hyperfan-in" and c.seed == 1)
    (run,) = found.trained("hyperfan-in")
    assert run.last_loss() == pytest.approx(2.05)


def test_why_kaiming_fan_out_explodes_is_told_in_the_plans_numbers():
    """Its head draws 2/864 for kernels of 2/864 and 2/1728, and a code of 50 values of variance 1 multiplies that."""
    claim = verdict()
    assert "2/864, is no smaller than what kernels with a fan-in of 864 or 1728 need." in claim.remark
    assert "The codes, whose squares sum up to 50, then multiply it" in claim.remark
    assert claim.remark.endswith("variance is 1.6 to 100 times too large.")
    for init, low, high in (("kaiming-fan-out", 45, 55), ("kaiming-fan-in", 450, 650), ("hyperfan-in", 0.95, 1.05)):
        label = f"{init}: variance of generated kernels over the classical net's, before training"
        assert low < claim.measured[label].estimate.value < high


def test_where_hyperfan_diverges_the_rate_is_set_beside_the_classical_nets():
    """ΔW = H·ΔG·e moves along H·Hᵀ, whose 50 eigenvalues are 864/50 in the mean, times ‖e‖² + 1."""
    said = "in 50 of its 864 directions as a rate of 0.44 would: the rate, times ‖e‖² + 1 = 51"
    assert said in verdict(best={"hyperfan-in": 5e-5}).remark
    assert said not in verdict().remark


def test_the_first_batches_of_further_seeds_decide_how_training_starts():
    """Without the seed that searches; the longer runs have seeds of their own."""
    claim = verdict(best={"hyperfan-in": 5e-5})
    name = "hyperfan-in at 0.0005"
    assert claim.facts[f"{name} trains at once: after 50 batches it has more than 15% right"] is False
    share = claim.measured[f"{name}: share of runs that diverge in 50 batches"].estimate
    assert (share.value, share.n) == (1, 8)
    assert claim.measured["hyperfan-in at 5e-05, after 50 batches: test accuracy"].estimate.n == 8


def test_without_the_runs_of_further_seeds_only_their_facts_are_open():
    further = {c.title for c in short_runs(BASE)}
    (claim,) = World().results(lambda c: c.title not in further).decide()
    by_batches = {fact for label, fact in claim.facts.items() if "after 50 batches" in label}
    others = {fact for label, fact in claim.facts.items() if "after 50 batches" not in label}
    assert (by_batches, others) == ({None}, {True})
    assert claim.headline == verdict().headline


@pytest.mark.parametrize("later", [0, 3])
def test_a_run_that_diverges_in_its_second_epoch_trained_in_the_first(later):
    """Also if that is in the epoch's first batch: the batches before it all went through."""
    config = replace(at_the_papers_rate(BASE)[0], epochs=2)
    rows = World().rows(config)
    epoch = config.epoch_batches
    until = [row for row in rows if row["step"] <= epoch]
    run = Cifar10Run(config, [*until, {"kind": "end", "step": epoch + later, "outcome": "diverged", "layer": "4"}])
    whole = Cifar10Run(config, rows)
    assert run.last_loss(1) == whole.last_loss(1) < claims.GUESSING_LOSS
    assert run.accuracy(1) == whole.accuracy(1)
    assert run.last_loss(2) == run.last_loss() == claims.GUESSING_LOSS
    assert run.accuracy() == 0.1


def test_each_half_of_the_seeds_computes_everything_from_its_own_runs():
    class Counted(Cifar10Results):
        @functools.cached_property
        def count(self):
            return len(list(self.runs))

    Counted.claims = {"C": ("title", "statement", lambda claim, found: claim.decide(f"{found.count} runs", True))}
    runs = World().results().runs
    (claim,) = Counted(runs, BASE).decide()
    counts = [next(iter(each.facts)) for each in (claim, *claim.halves)]
    assert counts == [f"{len(list(each))} runs" for each in (runs, runs.half(odd=False), runs.half(odd=True))]
    assert len({*counts}) == 3


def test_one_run_that_diverges_decides_nothing():
    results = World(best={"hyperfan-in": 5e-5}).results(lambda c: c.seed in (0, SEEDS, CHOOSING_SEED))
    (claim,) = results.decide()
    assert set(claim.facts.values()) == {None}


def test_without_an_explosion_nothing_is_explained(monkeypatch):
    monkeypatch.setattr(claims, "kernel_excess", lambda config: 1.0)
    assert "explodes" not in verdict().remark


def test_a_run_that_was_watched_otherwise_or_elsewhere_is_the_same_run(tmp_path):
    config = grid(BASE)[0]
    write(tmp_path, replace(config, device="cuda", test_every=50, log_every=7), World().rows(config))
    assert config in Runs.read(tmp_path, EXPERIMENT)
    assert replace(config, seed=9) not in Runs.read(tmp_path, EXPERIMENT)
    assert len(list(Runs.read(tmp_path, EXPERIMENT))) == 1


def test_a_net_that_overflows_before_training_does_not_undo_the_claim():
    world = World()
    rows = world.rows

    def overflowing(c):
        made = rows(c)
        return [{**made[0], "loss": None}, *made[1:]] if c.init == "kaiming-fan-in" else made

    world.rows = overflowing
    (claim,) = world.results().decide()
    assert claim.verdict == "holds"


def test_a_run_that_diverged_among_others_does_not_count_as_guessing():
    """At the best rate of Kaiming fan-out one of three seeds diverges, the others end at a loss of a million."""
    world = World()
    rows = world.rows

    def mixed(c):
        if c.init != "kaiming-fan-out" or c.lr != 5e-11 or c.seed >= CHOOSING_SEED:
            return rows(c)
        if c.seed == 0:
            return rows(replace(c, lr=5e-4))
        return [{**r, "loss": 1e6 + c.seed} if r["kind"] == "train" else r for r in rows(c)]

    world.rows = mixed
    (claim,) = world.results().decide()
    assert claim.verdict == "holds", claim.facts


def test_other_scales_say_so():
    runs = Runs(EXPERIMENT)
    paper, smoke = (Cifar10Results(runs, PROFILES[name]).page([], []) for name in ("paper", "smoke"))
    assert "Each run has 250000 batches of 100 images, 500 epochs" in paper
    assert "--all --resume --profile smoke" in smoke


def test_where_all_diverge_it_is_the_smallest():
    world = World()
    world.best["kaiming-fan-in"] = 1e-30
    assert world.results().best("kaiming-fan-in") == pytest.approx(5e-17)


def test_the_page_says_what_was_found_and_what_is_missing(tmp_path):
    missing = neighbours(BASE)[-1]
    World().write(tmp_path / "runs", lambda c: c != missing)
    told = []
    out = tmp_path / "results"
    write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)
    total = len(grid(BASE))
    assert told[0] == f"{total - 1} of {total} runs are in {tmp_path / 'runs'}"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["missing"] == [missing.title]
    assert [(c["name"], c["verdict"]) for c in summary["claims"]] == [("C9", "holds")]
    assert sum(len(row["seeds"]) for row in summary["settings"]) == total - 1
    page = (out / "README.md").read_text()
    assert "| [C9](#c9) |" in page
    assert "| hyperfan-in | 0.0005 | 1500 | 3 | 0 | 2.3 | 2.05 | 30.0% [29.5%, 30.5%] |" in page, page
    # The seed that searches has a line by itself: it chose, and is not compared.
    assert "| hyperfan-in | 0.0005 | 50 | 1 | 0 | 23 | 2.052 | 29.8% |" in page
    assert "| hyperfan-in | 0.0005 | 50 | 8 | 0 | 23 | 2.05 | 30.0% [29.8%, 30.1%] |" in page
    assert "| hyperfan-in | 5e-06 | 50 | 1 | 0 | 23 | 2.41 | 9.8% |" in page
    assert "| kaiming-fan-in | 0.0005 | 50 | 1 | 1 | 23 | 2.303 | 10.0% |" in page
    assert "beginning of training only: 1500 batches of 100 images, 3 epochs" in page
    assert "and 10000 test images; in short runs the\n  first 1000" in page
    assert f"Not run yet: {missing.title}." in page
    figures = {p.name for p in (out / "figures").iterdir()}
    assert figures == {f"{name}.svg" for name in PICTURES} == set(re.findall(r"figures/(\w+\.svg)", page))
    assert len(figures) == 4
    with pytest.raises(RunError, match="holds results already: --overwrite"):
        write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        (
            "neighbours",
            [c for c in grid(BASE) if c.init != "classical" and c.lr in (None, 5e-3)]
            + [c for c in neighbours(BASE) if c.init == "classical"],
        ),
        ("longest", long_run(BASE)),
    ],
)
def test_without_its_runs_a_figure_is_left_out(tmp_path, name, configs):
    World().write(tmp_path / "runs", lambda c: c not in configs)
    write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)
    assert f"{name}.svg" not in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / "figures" / f"{name}.svg").exists()


def test_after_the_search_alone_the_page_has_its_rates_and_no_verdict(tmp_path):
    World().write(tmp_path / "runs", lambda c: c.seed >= CHOOSING_SEED)
    write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)
    page = (tmp_path / "out" / "README.md").read_text()
    assert set(re.findall(r"figures/(\w+\.svg)", page)) == {"rates.svg"}
    assert "**not decided** (its runs are missing)" in page
    assert "There is no finished run 'hyperfan-in seed-0" in page


def test_without_a_run_there_is_no_page(tmp_path):
    with pytest.raises(RunError, match=r"no finished run 'hyperfan-in seed-1000 .*hyperfan run cifar10 --all"):
        write_results(EXPERIMENT, tmp_path, tmp_path / "out", BASE)
    assert not (tmp_path / "out").exists()


def test_a_runs_page(tmp_path):
    page, text = write_summary(write(tmp_path, BASE, World().rows(BASE)))
    assert text == (
        "29.80% of the test images right after 3 epochs; weights made in chunks by a hypernet, hyperfan-in, SGD from "
        "0.0005, batches of 100, seed 0."
    )
    html = page.read_text()
    assert html.count('role="img"') == 3
    assert "<script>" not in html


def test_a_run_that_diverged_says_where(tmp_path):
    config = replace(BASE, lr=5e-3)
    _, text = write_summary(write(tmp_path, config, World().rows(config)))
    assert text.startswith("Diverged at batch 4; the first to overflow was layer '4'; weights made in chunks")


def test_runs_that_all_diverge_after_the_first_epoch_have_trained_in_it():
    class Late(World):
        def rows(self, c):
            found = super().rows(c)
            if (c.init, c.rate, c.epochs) != ("hyperfan-in", 5e-4, BASE.epochs) or c.total == 50:
                return found
            until = [row for row in found if row["step"] <= c.epoch_batches]
            return [*until, {"kind": "end", "step": c.epoch_batches + 1, "outcome": "diverged", "layer": "4"}]

    (claim,) = Late().results().decide()
    about = {label: so for label, so in claim.facts.items() if label.startswith("hyperfan-in at 0.0005")}
    assert set(about.values()) == {True}
    assert claim.measured["hyperfan-in at 0.0005, after 2 epochs: test accuracy"].estimate.value == pytest.approx(0.1)
