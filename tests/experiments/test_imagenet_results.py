"""Verdicts on the Bayesian MobileNet follow from the numbers, and the page says what was found and what is missing."""

import json
import math
from dataclasses import replace

import pytest
from made_up import write

from hyperfan.errors import RunError
from hyperfan.experiments.imagenet import EXPERIMENT, INITS, PROFILES, grid
from hyperfan.experiments.imagenet.results import ImagenetResults, ImagenetRun, logit_variances
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.write import write_results

BASE = replace(PROFILES["laptop"], epochs=1, batches=120)


class World:
    """Every run of the grid, with numbers by rule. As the paper says, but for what is changed."""

    def __init__(self, **changes):
        self.first = {"kaiming-fan-in": 20.0, "kaiming-fan-out": 4.0, "hyperfan-in": 4.1, "hyperfan-out": 4.3}
        self.accuracy = {"kaiming-fan-in": 0.1, "kaiming-fan-out": 0.31, "hyperfan-in": 0.3, "hyperfan-out": 0.29}
        self.plain = self.accuracy  # the same with a plain last layer
        self.bare = {"kaiming-fan-in": 1e20, "kaiming-fan-out": 3.9, "hyperfan-in": 3.9, "hyperfan-out": 3.9}
        self.separation = {0.0: 0.62, 0.1: 0.64, 0.3: 0.66, 0.5: 0.7}
        self.spread = 0.01
        for name, value in changes.items():
            old = getattr(self, name)
            setattr(self, name, {**old, **value} if isinstance(old, dict) else value)

    def rows(self, c):
        noise = 1 + self.spread * (c.seed % 3 - 1) * (1 if c.init.startswith("hyper") else -1)
        first = (
            (self.first["hyperfan-in"] if c.last == "plain" else self.first[c.init]) if c.norm else self.bare[c.init]
        )
        first *= noise
        if first > 1e10:
            train = [{"kind": "train", "step": 1, "loss": first}]
            return [*train, {"kind": "end", "step": 1, "outcome": "diverged", "layer": None}]
        accuracy = (self.plain if c.last == "plain" else self.accuracy)[c.init] * noise
        losses = [first, *[3.0 * noise] * (c.total - 1)]
        train = [{"kind": "train", "step": i + 1, "loss": loss} for i, loss in enumerate(losses)]
        test = {"kind": "test", "step": c.total, "loss": 800.0, "accuracy": accuracy, "nll": 2.0,
                "brier": 0.8, "ece": 0.001 * (c.seed % 8 + 1) ** 3, "skipped": 0}  # fmt: skip
        told = {"kind": "uncertainty", "step": c.total, "classes": 50, "data": "photographs",
                "reliability": [[0, 0.0, 0.0], [2500, 0.7, 0.6]],
                "known": {"entropy": [1500, 1000]}, "unknown": {"entropy": [100, 400]},
                "separation by entropy": self.separation[c.noise] * (1 + 0.1 * (noise - 1) * (c.noise + 1)),
                "separation by disagreement": 0.6,
                "mean disagreement": {"known": 0.01 * noise, "unknown": 0.02 * noise}}  # fmt: skip
        return [*train, test, told, {"kind": "end", "step": c.total, "outcome": "finished"}]

    def write(self, root, keep=lambda c: True):
        for c in grid(BASE):
            if keep(c):
                write(root, c, self.rows(c))
        return ImagenetResults(Runs.read(root, EXPERIMENT), BASE)

    def verdicts(self, root):
        return {c.name: c for c in self.write(root).decide()}


NAMES = ("C10", "C11", "Unknown", "BN")


def test_a_world_as_the_paper_says(tmp_path):
    found = World().verdicts(tmp_path)
    assert {name: c.verdict for name, c in found.items()} == dict.fromkeys(NAMES, "holds")
    assert all(c.headline for c in found.values())
    assert {name: len(c.facts) for name, c in found.items()} == {"C10": 6, "C11": 4, "Unknown": 11, "BN": 2}
    assert all("Not tested: ImageNet itself" in found[name].remark for name in ("C10", "C11"))


@pytest.mark.parametrize(
    ("changes", "name", "fact"),
    [
        ({"first": {"kaiming-fan-in": 7.0}}, "C10", "fan-in starts more than 2 times as high"),
        ({"accuracy": {"kaiming-fan-in": 0.4}}, "C10", "fan-in learns more slowly"),
        ({"accuracy": {"kaiming-fan-out": 0.45}}, "C10", "fan-out is about equal to hyperfan-out: test"),
        ({"plain": {"kaiming-fan-in": 0.4}}, "C11", "fan-in learns more slowly"),
        ({"plain": {"kaiming-fan-out": 0.1}}, "C11", "fan-out is about equal"),
        ({"separation": {0.1: 0.4}}, "Unknown", "noise 0.1"),
        ({"separation": {0.3: 0.55}}, "Unknown", "noise 0.3: by enough"),
        ({"separation": {0.5: 0.51}}, "Unknown", "noise 0.5 tells"),
    ],
)
def test_one_change_of_the_world_changes_the_verdict(tmp_path, changes, name, fact):
    claim = World(**changes).verdicts(tmp_path)[name]
    assert {so for label, so in claim.facts.items() if label.startswith(fact)} == {False}
    assert claim.verdict == "holds in part"


def test_fan_in_that_does_not_explode_without_batch_norm_refutes_that_it_is_hidden(tmp_path):
    claim = World(bare={"kaiming-fan-in": 3.9}).verdicts(tmp_path)["BN"]
    assert claim.verdict == "does not hold"


def test_nets_that_all_guess_are_not_about_equal(tmp_path):
    """Though their losses are within any factor of each other."""
    guessing = dict.fromkeys(INITS, 0.02)
    claim = World(accuracy=guessing, plain=guessing).verdicts(tmp_path)["C11"]
    assert True not in claim.facts.values()


def test_the_start_is_no_fact_where_it_is_the_same_by_construction(tmp_path):
    claim = World().verdicts(tmp_path)["C11"]
    assert not [label for label in claim.facts if "first" in label or "starts" in label]
    assert "Here it starts at 1.003 [" in claim.remark


def test_the_other_claim_has_its_own_runs(tmp_path):
    assert World(plain={"kaiming-fan-in": 0.4}).verdicts(tmp_path)["C10"].verdict == "holds"


def test_where_seeds_differ_more_than_settings_nothing_is_decided(tmp_path):
    found = World(spread=0.9, first={"kaiming-fan-in": 8.0, "hyperfan-out": 4.0}).verdicts(tmp_path)
    assert found["C10"].verdict == "not decided"


def test_a_claim_without_its_runs_names_them(tmp_path):
    claims = {c.name: c for c in World().write(tmp_path, lambda c: c.noise != 0.5).decide()}
    assert claims["Unknown"].verdict == "not decided"
    assert "There is no finished run 'hyperfan-in seed-0" in claims["Unknown"].remark
    assert claims["C10"].verdict == "holds"


def test_the_page_says_what_was_found_and_what_is_missing(tmp_path):
    *rest, missing = grid(BASE)
    World().write(tmp_path / "runs", lambda c: c != missing)
    out, told = tmp_path / "results", []
    write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)
    assert told[0] == f"{len(rest)} of {len(rest) + 1} runs are in {tmp_path / 'runs'}"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["missing"] == [missing.title]
    assert {c["name"]: c["verdict"] for c in summary["claims"]} == dict.fromkeys(NAMES, "holds")
    page = (out / "README.md").read_text()
    for text in (
        "25,000 pictures of the first 50 classes in its list to train on; the 10 after these are held out",
        "120 batches of 64 pictures of 64 pixels",
        "by a\n  head that no other layer shares, from 32 numbers: embeddings drawn from U(−√3, √3) and fixed",
        "U(−0.1, 0.1)",
        "at the end 2,500 pictures of the classes trained on and 500 of the others",
        "before the end 250 of the former",
        "guessing: 3.91",
        "**holds** (11 of 11 facts)",
        "| hyperfan-out | 10.2 | 1.02 |",
        "| hyperfan-in | 1 | 1 |",
        "| hyperfan-in | generated | yes | 0.5 | 0.1 | 120 | 8 | 0 | 30.0% [29.8%, 30.2%] | 2 [2, 2] |",
        "| kaiming-fan-in | generated | no | 0.5 | 0.1 | 100 | 3 | 3 |  |  |  |  |  |",
        "hyperfan data fetch tiny-imagenet\n",
        f"Not run yet: {missing.title}.",
    ):
        assert text in page
    row = next(r for r in summary["settings"] if r["init"] == "hyperfan-in")
    assert row["ece"]["low"] > 0  # where Student's t would have it below zero
    assert {p.name for p in (out / "figures").iterdir()} == {
        "loss.svg", "width.svg", "start.svg", "uncertainty.svg"}  # fmt: skip
    for name in ("loss", "width"):
        svg = (out / f"figures/{name}.svg").read_text()
        for panel in ("Training loss", "Test accuracy"):
            assert f"{panel}: all generated" in svg
            assert f"{panel}: last layer plain" in svg
        assert f"figures/{name}.svg" in page
    with pytest.raises(RunError, match="--overwrite"):
        write_results(EXPERIMENT, tmp_path / "runs", out, BASE, told.append)


def test_the_page_is_there_before_the_less_important_runs(tmp_path):
    World().write(tmp_path / "runs", lambda c: c.norm and c.width < 1 and c.seed == 0)
    write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)
    page = (tmp_path / "out/README.md").read_text()
    assert {p.name for p in (tmp_path / "out/figures").iterdir()} == {"loss.svg", "uncertainty.svg"}
    assert "figures/width.svg" not in page
    assert page.count("**not decided** (") == 4  # one seed has no interval


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
    assert (run.learnt(), run.separation()) == (0, 0.5)


def test_a_run_without_held_out_classes_has_no_separation():
    told = {"kind": "uncertainty", "step": 1, "classes": 5, "reliability": [], "known": {"entropy": [1]}}
    with pytest.raises(RunError, match="has no held-out classes"):
        ImagenetRun(BASE, [told]).separation()


def test_the_variance_of_a_logit_follows_from_the_plan():
    """Hyperfan-out: d_j/d_i, which is 32 for 256 features and 8 classes, and 1.02 in the paper's net."""
    found = logit_variances(replace(BASE, width=0.25), 8)
    assert found["hyperfan-in"] == pytest.approx(1)
    assert found["hyperfan-out"] == pytest.approx(256 / 8)
    assert found["kaiming-fan-in"] == pytest.approx(256)
    assert found["kaiming-fan-out"] == pytest.approx(256 * 32 / (256 * 8))
    assert logit_variances(PROFILES["paper"], 1000)["hyperfan-out"] == pytest.approx(1.024)
