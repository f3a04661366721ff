"""The verdict on CIFAR-10 follows from the numbers, and the page says what was found and what is missing."""

import json
from dataclasses import replace

import pytest
from made_up import write

from hyperfan.errors import RunError
from hyperfan.experiments.cifar10 import EXPERIMENT, PROFILES, grid
from hyperfan.experiments.cifar10.results import Cifar10Results
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.write import write_results, write_summary

BASE = PROFILES["laptop"]


class World:
    """Every run of the grid, with numbers by rule. As the paper says, but for what is changed."""

    def __init__(self, **changes):
        self.accuracy = {"classical": 0.4, "hyperfan-in": 0.3, "hyperfan-out": 0.25, "kaiming-fan-in": 0.1,
                         "kaiming-fan-out": 0.1}  # fmt: skip
        self.best = {"hyperfan-in": 5e-5, "hyperfan-out": 1e-4, "kaiming-fan-in": 5e-14, "kaiming-fan-out": 5e-11}
        self.spread = 0.002
        self.fall = lambda c: 1.0  # by how much the loss is higher before the last hundred batches
        self.accuracy |= changes.pop("accuracy", {})
        for name, value in changes.items():
            setattr(self, name, value)

    def rows(self, c):
        best = self.best.get(c.init, c.rate)
        if c.rate > 2 * best:
            return [_test(0, 0.1), {"kind": "end", "step": 3, "outcome": "diverged", "layer": "4"}]
        accuracy = self.accuracy[c.init] if c.rate > best / 2 else 0.1
        accuracy += self.spread * (c.seed - 1)
        low = 2.35 - accuracy if accuracy > 0.15 else 2.5
        losses = [{"kind": "train", "step": step, "loss": low + (c.total - step > 80) * self.fall(c)}
                  for step in range(20, c.total + 1, 20)]  # fmt: skip
        end = {"kind": "end", "step": c.total, "outcome": "finished"}
        return [_test(0, 0.1), *losses, _test(c.total, accuracy), end]

    def write(self, root, keep=lambda c: True):
        for c in grid(BASE):
            if keep(c):
                write(root, c, self.rows(c))
        return Cifar10Results(Runs(root, EXPERIMENT), BASE)


def _test(step, accuracy):
    return {"kind": "test", "step": step, "loss": 1000 * (2.4 - accuracy), "accuracy": accuracy}


def verdict(tmp_path, **changes):
    (claim,) = World(**changes).write(tmp_path).decide()
    return claim


def test_a_world_as_the_paper_says(tmp_path):
    claim = verdict(tmp_path)
    assert claim.verdict == "holds", claim.facts
    assert "Not tested: what comes after them" in claim.remark
    assert "At the paper's own rate, 0.0005, hyperfan-in and hyperfan-out cannot be said to train" in claim.remark


@pytest.mark.parametrize(
    ("changes", "fact", "found"),
    [
        ({"accuracy": {"hyperfan-in": 0.1}}, "hyperfan-in trains at once", "holds in part"),
        ({"accuracy": {"hyperfan-out": 0.1}}, "hyperfan-out trains at once", "holds in part"),
        ({"accuracy": {"kaiming-fan-in": 0.3}}, "kaiming-fan-in does not", "holds in part"),
        ({"accuracy": {"kaiming-fan-out": 0.3}}, "kaiming-fan-out does not", "holds in part"),
        ({"accuracy": {"kaiming-fan-in": 0.3, "kaiming-fan-out": 0.3, "hyperfan-in": 0.1, "hyperfan-out": 0.1}},
         "hyperfan-in trains", "does not hold"),
    ],
)  # fmt: skip
def test_one_change_of_the_world_changes_the_verdict(tmp_path, changes, fact, found):
    claim = verdict(tmp_path, **changes)
    assert {so for label, so in claim.facts.items() if label.startswith(fact)} == {False}
    assert claim.verdict == found


def test_where_seeds_differ_more_than_settings_nothing_is_decided(tmp_path):
    assert verdict(tmp_path, spread=0.1).verdict == "not decided"


def test_at_a_rate_where_it_trains_nothing_is_said_about_it(tmp_path):
    world = World()
    world.best |= {"hyperfan-in": 5e-4, "hyperfan-out": 5e-4}
    (claim,) = world.write(tmp_path).decide()
    assert claim.verdict == "holds"
    assert "own rate" not in claim.remark


def test_the_best_rate_is_chosen_by_the_first_seed(tmp_path):
    results = World().write(tmp_path)
    for init in ("hyperfan-in", "hyperfan-out"):
        assert results.best(init).rate == World().best[init]
    assert results.best("classical").rate == 0.01


def test_the_best_rate_goes_by_the_last_hundred_batches(tmp_path):
    """One that was better before, and is not any more, is not the best."""
    world = World(fall=lambda c: -2.0 if c.lr == 1e-5 else 1.0)
    assert world.write(tmp_path).best("hyperfan-in").rate == 5e-5


def test_a_run_that_was_watched_otherwise_or_elsewhere_is_the_same_run(tmp_path):
    config = grid(BASE)[0]
    write(tmp_path, replace(config, device="cuda", test_every=50, log_every=7), World().rows(config))
    assert config in Runs(tmp_path, EXPERIMENT)
    assert replace(config, seed=9) not in Runs(tmp_path, EXPERIMENT)
    assert len(list(Runs(tmp_path, EXPERIMENT))) == 1


def test_a_net_that_overflows_before_training_does_not_undo_the_claim(tmp_path):
    world = World()
    rows = world.rows

    def overflowing(c):
        made = rows(c)
        return [{**made[0], "loss": None}, *made[1:]] if c.init == "kaiming-fan-in" else made

    world.rows = overflowing
    (claim,) = world.write(tmp_path).decide()
    assert claim.verdict == "holds"


def test_a_run_that_diverged_among_others_does_not_count_as_guessing(tmp_path):
    """At the best rate of Kaiming fan-out one of three seeds diverges, the others end at a loss of a million."""
    world = World()
    rows = world.rows

    def mixed(c):
        if c.init != "kaiming-fan-out" or c.lr != 5e-11:
            return rows(c)
        if c.seed == 0:
            return rows(replace(c, lr=5e-4))
        return [{**r, "loss": 1e6 + c.seed} if r["kind"] == "train" else r for r in rows(c)]

    world.rows = mixed
    (claim,) = world.write(tmp_path).decide()
    assert claim.verdict == "holds", claim.facts


def test_what_is_not_certain_at_the_papers_rate_is_not_said_to_train(tmp_path):
    world = World(spread=0.06)
    world.best |= {"hyperfan-in": 5e-4, "hyperfan-out": 5e-4}
    (claim,) = world.write(tmp_path).decide()
    assert "cannot be said to train here" in claim.remark


def test_other_scales_say_so(tmp_path):
    runs = Runs(tmp_path, EXPERIMENT)
    paper, smoke = (Cifar10Results(runs, PROFILES[name]).page([], []) for name in ("paper", "smoke"))
    assert "Each run has 250000 batches of 100 images, 500 epochs" in paper
    assert "--all --resume --profile smoke" in smoke


def test_where_all_diverge_it_is_the_smallest(tmp_path):
    world = World()
    world.best["kaiming-fan-in"] = 1e-30
    results = world.write(tmp_path)
    assert results.best("kaiming-fan-in").rate == pytest.approx(5e-17)


def test_the_page_says_what_was_found_and_what_is_missing(tmp_path):
    missing = grid(BASE)[-1]
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
    assert "| hyperfan-in | 5e-05 | 3 | 0 | 2.3 | 2.05 | 30.0% [29.5%, 30.5%] |" in page, page
    assert "| kaiming-fan-in | 0.0005 | 3 | 3 | 2.3 |  | 10.0% [10.0%, 10.0%] |" in page
    assert "beginning of training only: 500 batches of 20 images, 0.2 epochs" in page
    assert f"Not run yet: {missing.title}." in page
    assert {p.name for p in (out / "figures").iterdir()} == {"loss.svg", "rates.svg"}
    with pytest.raises(RunError, match="holds results already: --overwrite"):
        write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)


def test_without_the_first_seed_there_is_no_page(tmp_path):
    World().write(tmp_path / "runs", lambda c: c.seed > 0)
    with pytest.raises(RunError, match=r"no finished run 'classical seed-0 lr-0\.01 .*hyperfan run cifar10 --all"):
        write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)
    assert not (tmp_path / "out").exists()


def test_a_runs_page(tmp_path):
    config = replace(BASE, lr=5e-5)
    page, text = write_summary(write(tmp_path, config, World().rows(config)))
    assert text == (
        "29.80% of the test images right after 0.2 epochs; weights made in chunks by a hypernet, hyperfan-in, SGD from "
        "5e-05, batches of 20, seed 0."
    )
    html = page.read_text()
    assert html.count('role="img"') == 3
    assert "<script>" not in html


def test_a_run_that_diverged_says_where(tmp_path):
    config = replace(BASE, lr=5e-4)
    _, text = write_summary(write(tmp_path, config, World().rows(config)))
    assert text.startswith("Diverged at batch 4; the first to overflow was layer '4'; weights made in chunks")
