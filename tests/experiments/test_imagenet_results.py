"""Verdicts on the Bayesian MobileNet follow from the numbers, and the page says what was found and what is missing."""

import json
import math

import pytest
from made_up import write

from hyperfan.errors import RunError
from hyperfan.experiments.imagenet import EXPERIMENT, PROFILES, grid
from hyperfan.experiments.imagenet.results import ImagenetResults, ImagenetRun
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.write import write_results

BASE = PROFILES["laptop"]


class World:
    """Every run of the grid, with numbers by rule. As the paper says, but for what is changed."""

    def __init__(self, **changes):
        self.first = {"kaiming-fan-in": 20.0, "kaiming-fan-out": 2.5, "hyperfan-in": 2.5, "hyperfan-out": 2.6}
        self.last = {"kaiming-fan-in": 5.0, "kaiming-fan-out": 1.9, "hyperfan-in": 1.9, "hyperfan-out": 1.95}
        self.bare = {"kaiming-fan-in": 1e20, "kaiming-fan-out": 2.1, "hyperfan-in": 2.1, "hyperfan-out": 2.1}
        self.plain = 1.0  # how much higher fan-in starts with a plain last layer
        self.spread = 0.01
        for name, value in changes.items():
            old = getattr(self, name)
            setattr(self, name, {**old, **value} if isinstance(old, dict) else value)

    def rows(self, c):
        noise = 1 + self.spread * (c.seed - 1) * (1 if c.init.startswith("hyper") else -1)
        first = (self.first if c.norm else self.bare)[c.init] * noise
        if c.last == "plain" and c.init == "kaiming-fan-in":
            first *= self.plain
        if first > 1e10:
            train = [{"kind": "train", "step": 1, "loss": first}]
            return [*train, {"kind": "end", "step": 1, "outcome": "diverged", "layer": None}]
        losses = [first, *[self.last[c.init] * noise] * (c.total - 1)]
        train = [{"kind": "train", "step": i + 1, "loss": loss} for i, loss in enumerate(losses)]
        test = {"kind": "test", "step": c.total, "loss": 800.0, "accuracy": 0.3 + 0.01 * c.seed, "nll": 2.0,
                "brier": 0.8, "ece": 0.1, "skipped": 0}  # fmt: skip
        told = {"kind": "uncertainty", "step": c.total, "classes": 8, "reliability": [[0, 0.0, 0.0], [400, 0.7, 0.6]],
                "known": {"entropy": [300, 100]}, "unknown": {"entropy": [20, 80]}, "separation by entropy": 0.7,
                "separation by disagreement": 0.6}  # fmt: skip
        return [*train, test, told, {"kind": "end", "step": c.total, "outcome": "finished"}]

    def write(self, root, keep=lambda c: True):
        for c in grid(BASE):
            if keep(c):
                write(root, c, self.rows(c))
        return ImagenetResults(Runs(root, EXPERIMENT), BASE)

    def verdicts(self, root):
        return {c.name: c for c in self.write(root).decide()}


def test_a_world_as_the_paper_says(tmp_path):
    found = World().verdicts(tmp_path)
    assert {name: c.verdict for name, c in found.items()} == dict.fromkeys(("C10", "C11", "BN"), "holds")
    assert all("Not tested: ImageNet itself" in found[name].remark for name in ("C10", "C11"))


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "fact"),
    [
        ({"first": {"kaiming-fan-in": 2.6}}, "C10", "holds in part", "fan-in starts more than 2 times as high"),
        ({"last": {"kaiming-fan-in": 1.0}}, "C10", "holds in part", "fan-in learns more slowly"),
        ({"first": {"kaiming-fan-out": 9.0}}, "C10", "holds in part", "fan-out is about equal to hyperfan-in: loss of"),
        (
            {"last": {"kaiming-fan-out": 9.0}},
            "C10",
            "holds in part",
            "fan-out is about equal to hyperfan-out: training",
        ),
        ({"plain": 0.05}, "C11", "holds in part", "fan-in starts more than 2 times as high"),
        ({"bare": {"kaiming-fan-in": 2.1}}, "BN", "holds in part", "kaiming-fan-in, last layer generated"),
        ({"bare": {"hyperfan-in": 50.0}}, "BN", "holds in part", "hyperfan-in, last layer plain"),
    ],
)
def test_one_change_of_the_world_changes_the_verdict(tmp_path, changes, name, verdict, fact):
    claim = World(**changes).verdicts(tmp_path)[name]
    assert {so for label, so in claim.facts.items() if label.startswith(fact)} == {False}
    assert claim.verdict == verdict


def test_the_other_claim_has_its_own_runs(tmp_path):
    assert World(plain=0.05).verdicts(tmp_path)["C10"].verdict == "holds"


def test_where_seeds_differ_more_than_settings_nothing_is_decided(tmp_path):
    assert World(spread=0.9, first={"kaiming-fan-in": 3.0}).verdicts(tmp_path)["C10"].verdict == "not decided"


def test_the_page_says_what_was_found_and_what_is_missing(tmp_path):
    missing = grid(BASE)[-1]
    World().write(tmp_path / "runs", lambda c: c != missing)
    out, told = tmp_path / "results", []
    write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)
    assert told[0] == f"47 of 48 runs are in {tmp_path / 'runs'}"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["missing"] == [missing.title]
    assert {c["name"]: c["verdict"] for c in summary["claims"]} == dict.fromkeys(("C10", "C11", "BN"), "holds")
    page = (out / "README.md").read_text()
    assert "On 400 pictures of the classes trained on" in page
    assert "of 2 classes that were not trained on" in page
    assert "guessing: 2.08" in page
    assert "| hyperfan-in | generated | yes | 3 | 0 | 31.0% [28.5%, 33.5%] | 2 [2, 2] |" in page
    assert "| kaiming-fan-in | generated | no | 3 | 3 |  |  |  |  |  |" in page
    assert f"Not run yet: {missing.title}." in page
    assert {p.name for p in (out / "figures").iterdir()} == {"loss.svg", "uncertainty.svg"}
    with pytest.raises(RunError, match="--overwrite"):
        write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)


def test_a_setting_without_a_run_is_named(tmp_path):
    World().write(tmp_path / "runs", lambda c: c.init != "hyperfan-out")
    with pytest.raises(RunError, match=r"no finished run 'hyperfan-out seed-0 .*hyperfan run imagenet --all"):
        write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)


def test_a_run_that_diverged_guesses_among_the_classes_of_its_data(tmp_path):
    """Which its plan lists; the configuration does not know them."""
    (tmp_path / "plan.json").write_text(json.dumps({"data": {"classes": list("abcde")}}))
    run = ImagenetRun(BASE, [{"kind": "end", "step": 1, "outcome": "diverged", "layer": None}], {}, tmp_path)
    assert run.accuracy() == 1 / 5
    assert run.training_loss() == math.log(5)
