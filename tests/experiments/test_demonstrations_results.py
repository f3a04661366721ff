"""From metrics to a verdict, on runs that are made up so that the answer is known, and on real ones that are small."""

import json
import math
import re
from dataclasses import replace

import pytest
import torch
from toy import Silent

from hyperfan.data import demonstrations
from hyperfan.data.lookup import LASA_SHAPES
from hyperfan.errors import RunError
from hyperfan.experiments.demonstrations import (
    COMPARED,
    EXPERIMENT,
    KAIMING,
    OURS,
    PROFILES,
    SETTINGS,
    THEIRS,
    grid,
    setting,
)
from hyperfan.experiments.demonstrations.claims import DURING, END, FACTS, LEARNT, MEASURES, START, MainnetStart, start
from hyperfan.experiments.demonstrations.results import DemonstrationsResults, DemonstrationsRun
from hyperfan.experiments.loop import run
from hyperfan.experiments.results.runs import Runs, read_run
from hyperfan.experiments.results.write import write_index, write_results, write_summary

BASE = replace(PROFILES["smoke"], seeds=12, tasks=3)
SMOKE = replace(PROFILES["smoke"], rates=(1e-4, 1e-3))


def made_up(name, factors=None, config=BASE, spread=0.02, diverged=0, rates=None):
    """The runs of a setting: losses and errors about 0.01, times a factor for each measure, and for each rate."""
    config = setting(config, name)
    factors = {**dict.fromkeys(MEASURES, 1.0), **(factors or {})}
    draws = torch.Generator().manual_seed(list(SETTINGS).index(name))
    shape = len(config.rates), config.seeds
    level = 0.01 * torch.tensor(rates or [1.0] * shape[0], dtype=torch.float64)[:, None]
    level = level * (1 + spread * torch.randn(shape, generator=draws).double()).abs()
    losses = (level * factors[DURING])[..., None, None].repeat(1, 1, config.tasks, 3)
    errors = level[..., None, None].repeat(1, 1, config.tasks + 1, config.tasks)
    errors *= factors[LEARNT]
    errors[:, :, 0] *= factors[START] / factors[LEARNT]
    errors[:, :, -1] *= factors[END] / factors[LEARNT]
    errors[:, :diverged, 1:] = math.nan
    end = {"kind": "end", "step": config.total, "outcome": "finished"}
    found = DemonstrationsRun(config, [end], {"code": "abc"})
    # What it would read from its metrics; test_runs_are_read_as_they_were_measured has that.
    vars(found).update(losses=losses, errors=errors)
    return found


MADE_UP_START = MainnetStart(*({"0.weight": v} for v in (1e-3, 0.5, 1.0, 1e-2)))


class MadeUp(DemonstrationsResults):
    starts = dict.fromkeys(SETTINGS, MADE_UP_START)

    def __init__(self, runs):
        self.made = runs

    def run(self, name):
        if name not in self.made:
            raise RunError(f"there is no finished run '{name}'")
        return self.made[name]

    @property
    def recorded(self):
        return self


def decided(**changed):
    """The claim, where inits do not differ but for those changed."""
    names = {"theirs": THEIRS, "hyperfan_in": "hyperfan-in", "hyperfan_out": "hyperfan-out"}
    worlds = {name: made_up(name) for name in SETTINGS}
    worlds |= {names[key]: made_up(names[key], **options) for key, options in changed.items()}
    return claim(MadeUp(worlds))


def claim(results, name="A1"):
    return {c.name: c for c in results._decide()}[name]


def test_the_claim_holds_if_no_init_differs():
    found = decided()
    assert found.verdict == "holds"
    assert len(found.facts) == len(FACTS) * len(COMPARED)
    assert "0.1 to 0.1" in found.remark
    assert all("p = " in m.note for m in found.measured.values())


def test_the_claim_about_lasa_is_decided_by_the_runs_on_it():
    drawn, on_lasa = ({name: made_up(name, factors) for name in SETTINGS} for factors in (None, {START: 9.0}))
    on_lasa["hyperfan-in"] = made_up("hyperfan-in", {END: 0.5})
    results = type("Both", (MadeUp,), {"recorded": MadeUp(on_lasa)})(drawn)
    assert claim(results, "A1").verdict == "holds"
    found = claim(results, "A2")
    assert [label for label, so in found.facts.items() if so is False] == ["hyperfan-in: nothing at the end"]


def test_the_claim_does_not_hold_if_all_inits_bring_something_everywhere():
    better = {"factors": dict.fromkeys(MEASURES, 0.5)}
    assert decided(theirs=better, hyperfan_in=better, hyperfan_out=better).verdict == "does not hold"


@pytest.mark.parametrize("measure", FACTS)
def test_each_fact_has_its_measure(measure):
    found = decided(hyperfan_in={"factors": {measure: 0.5}})
    assert found.verdict == "holds in part"
    assert [label for label, so in found.facts.items() if so is False] == [f"hyperfan-in: nothing {FACTS[measure]}"]


def test_an_init_that_is_worse_brings_nothing_and_one_that_scatters_decides_nothing():
    assert decided(theirs={"factors": dict.fromkeys(MEASURES, 5.0)}).verdict == "holds"
    noisy = decided(hyperfan_out={"spread": 0.9})
    assert None in {so for label, so in noisy.facts.items() if label.startswith("hyperfan-out")}
    gone = decided(hyperfan_out={"factors": dict.fromkeys(MEASURES, 0.5), "diverged": 12})
    assert gone.facts["hyperfan-out: nothing at the end"] is True


def test_what_is_so_only_at_the_rates_that_the_compared_seeds_would_choose_is_not_decided():
    worlds = {name: made_up(name) for name in SETTINGS}
    worlds["hyperfan-in"] = made_up("hyperfan-in", rates=[1.0, 1.0, 0.5, 1.0])
    for world in worlds.values():
        vars(world)["chooser"] = made_up(KAIMING, rates=[0.5, 1.0, 1.0, 1.0])
    found = claim(MadeUp(worlds))
    assert found.facts["hyperfan-in: nothing at the end"] is None
    assert found.facts["hyperfan-out: nothing at the end"] is True
    label = f"hyperfan-in, at {BASE.rates[2]:g}, over {KAIMING}, at "
    (smaller,) = [m for name, m in found.measured.items() if name.startswith(label) and MEASURES[END] in name]
    assert smaller.estimate.high < 1


def test_a_claim_whose_runs_are_missing_is_not_decided():
    found = claim(MadeUp({KAIMING: made_up(KAIMING)}))
    assert found.verdict == "not decided"
    assert "There is no finished run" in found.remark


def test_few_seeds_decide_nothing():
    few = replace(BASE, seeds=5)
    worlds = {name: made_up(name, {END: 0.1} if name in OURS else None, few) for name in SETTINGS}
    assert set(claim(MadeUp(worlds)).facts.values()) == {None}


def test_the_best_rate_has_the_smallest_median_error_at_the_end_unless_it_was_chosen_elsewhere():
    world = made_up("hyperfan-in", rates=[1.0, 0.5, 0.7, 2.0])
    assert world.best() == BASE.rates[1]
    assert replace(world, chooser=made_up("hyperfan-in", rates=[1.0, 1.0, 0.5, 1.0])).best() == BASE.rates[2]
    assert made_up("hyperfan-in", rates=[1.0, 0.5, 0.7, 2.0], diverged=12).best() == min(BASE.rates)


def test_measures_and_forgetting():
    world = made_up("hyperfan-in", {START: 3.0, DURING: 2.0, LEARNT: 0.5, END: 1.5}, spread=0.0)
    medians = {m: world.scores(m)[0] for m in MEASURES}
    # Right after the last task is the end: of three tasks two had half of the level and one 1.5 times.
    assert medians == pytest.approx({START: 0.03, DURING: 0.02, LEARNT: 0.01 * (0.5 + 0.5 + 1.5) / 3, END: 0.015})
    assert world.forgetting().value == pytest.approx(3.0)


def test_halves_have_the_even_and_the_odd_seeds_also_of_those_that_choose_rates():
    found = replace(made_up("hyperfan-in"), config=replace(BASE, seed=3))
    assert list(found.half(False).seeds) == [4, 6, 8, 10, 12, 14]
    assert list(found.half(True).seeds) == [3, 5, 7, 9, 11, 13]
    chooser = replace(found, config=found.config.choosing())
    assert [list(chooser.half(odd).seeds) for odd in (False, True)] == [[1004], [1003, 1005]]
    assert replace(found, config=replace(BASE, seed=0, seeds=1)).half(True) is None


def test_where_one_seed_chooses_both_halves_have_it():
    found = replace(made_up("hyperfan-in"), config=replace(BASE, seeds=2))
    chooser = replace(found, config=found.config.choosing())
    for odd in (False, True):
        half = Runs(EXPERIMENT, [found, chooser]).half(odd).with_chooser(found.config)
        assert (list(half.seeds), list(half.chooser.seeds)) == ([int(odd)], [1000])


# ── small runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    sets = {shape: demonstrations("S", points=SMOKE.points) for shape in LASA_SHAPES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyperfan.experiments.demonstrations.training.lasa", lambda *_, **__: sets)
        for config in grid(SMOKE):
            assert run(config, root / config.folder, Silent()) == "finished"
    return root


@pytest.fixture(autouse=True)
def _small_untrained_nets(monkeypatch):
    monkeypatch.setattr("hyperfan.experiments.demonstrations.results.FULL_SIZE", PROFILES["smoke"])


def test_runs_are_read_as_they_were_measured(runs):
    config = grid(SMOKE)[-1]
    found = read_run(runs / config.folder)
    c = found.config
    assert found.losses.shape == (2, 2, c.tasks, 3)
    assert found.errors.shape == (2, 2, c.tasks + 1, c.tasks)
    row = [r for r in found.rows if r["kind"] == "losses"][4]
    assert (row["task"], row["iteration"]) == (1, 3)
    assert found.losses[1, 0, 1, 1].item() == row["losses"][c.seeds]
    row = [r for r in found.rows if r["kind"] == "errors"][1]
    assert found.errors[0, 1, 1].tolist() == row["errors"][1]
    assert found.first_paths[1, 1].tolist() == row["paths"][c.seeds]
    with pytest.raises(RunError, match="does not hold the metrics of its runs"):
        _ = replace(found, rows=[{**row, "errors": [[1.0, 2.0, 3.0]]}]).errors


def test_a_record_keeps_the_paths_of_the_first_seed(runs):
    found = read_run(runs / grid(SMOKE)[-1].folder)
    (kept, *_) = [row["paths"] for row in found.to_dict()["rows"] if row["kind"] == "errors"]
    assert [path is not None for path in kept] == [True, False, True, False]


def test_a_run_has_a_page(runs):
    page, text = write_summary(runs / grid(SMOKE)[-1].folder)
    assert "the seed&#x27;s first shape" in page.read_text() or "the seed's first shape" in page.read_text()
    assert "error of all tasks at the end" in text


def test_results_are_written_and_follow_from_their_record(runs, tmp_path):
    out = tmp_path / "results" / "demonstrations"
    write_results(EXPERIMENT, runs, out, SMOKE)
    page = (out / "README.md").read_text()
    assert all(name in page for name in SETTINGS)
    drawn = {"loss.svg", "loss-zero-biases.svg", "loss-lasa.svg", "paths.svg"}
    assert {p.name for p in (out / "figures").iterdir()} == drawn
    summary = json.loads((out / "summary.json").read_text())
    assert [c["name"] for c in summary["claims"]] == ["A1", "A2"]
    assert [each["init"] for each in summary["settings on LASA"]] == [
        SETTINGS[name][0] for name in (KAIMING, *COMPARED)
    ]
    assert [(each["init"], each["biases"]) for each in summary["settings"]] == list(SETTINGS.values())
    assert summary["missing"] == []
    again = tmp_path / "again"
    write_results(EXPERIMENT, out, again, SMOKE)  # from the metrics that the results keep
    assert (again / "README.md").read_text() == page


def test_without_runs_on_lasa_the_page_says_so(runs, tmp_path):
    kept = [config for config in grid(SMOKE) if config.curves == "drawn"]
    for config in kept:
        (tmp_path / config.folder).symlink_to(runs / config.folder)
    write_results(EXPERIMENT, tmp_path, tmp_path / "out", SMOKE)
    page = (tmp_path / "out/README.md").read_text()
    assert "There are no runs on them here" in page
    assert "loss-lasa" not in page
    assert "| [A2](#a2) " in page
    assert "**not decided**" in page


def test_the_index_lists_the_papers_claims_by_their_numbers_and_others_after_them(tmp_path):
    claim = {"title": "t", "statement": "s", "verdict": "holds", "counts": "1 of 1 facts", "headline": "", "halves": []}
    for experiment, names in {"demonstrations": ["A1"], "mnist": ["C10", "C2"], "continual": ["C16"]}.items():
        (tmp_path / experiment).mkdir()
        content = {"claims": [{"name": name, **claim} for name in names]}
        (tmp_path / experiment / "summary.json").write_text(json.dumps(content))
    write_index(tmp_path)
    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| [")]
    assert [re.match(r"\| \[(\w+)", row)[1] for row in rows] == ["C2", "C10", "C16", "A1"]


def test_without_the_runs_to_compare_with_there_is_no_page(runs, tmp_path):
    results = DemonstrationsResults(Runs.read(tmp_path, EXPERIMENT), SMOKE)
    with pytest.raises(RunError, match="there is no finished run 'auddy2024-kaiming biases-torch"):
        results.check()


def test_untrained_nets_start_as_their_plans_say():
    small = replace(PROFILES["paper"], embedding=64, hidden=(64, 64, 64), target=(32, 32, 48), tasks=10)
    found = {name: start(setting(small, name)) for name in SETTINGS}
    needed = found["hyperfan-in"].targets
    # A fan-in of 32 with half of the variance left to biases; ELU's gain at variance 1 is about 1.55.
    assert needed["2.weight"] == pytest.approx(0.5 * 1.55 / 32, rel=0.01)
    bias = 1 / (3 * 64)
    for tensor in ("2.weight", "4.weight"):  # over 1000 values in ten tasks, so that 10 % is several standard errors
        assert found["hyperfan-in"].squares[tensor] == pytest.approx(needed[tensor], rel=0.1)
        # Theirs: the output layer's biases, and almost nothing beside them.
        assert found[THEIRS].squares[tensor] == pytest.approx(bias, rel=0.1)
        assert found[THEIRS].shares[tensor] < 1e-3
        # Without biases 1/64⁴, which widths of 64 scatter by far less than a factor of two.
        assert found[f"{THEIRS}, zero biases"].squares[tensor] == pytest.approx(64**-4, rel=0.5)
        assert found["hyperfan-in"].shares[tensor] > 0.1
    for name in (f"{THEIRS}, zero biases", "theirs, normal, zero biases"):
        gradients = found[name].gradients
        assert gradients["0.weight"] < 1e-8 < gradients["6.bias"]
    assert found[KAIMING].gradients["0.weight"] > 1e-8
