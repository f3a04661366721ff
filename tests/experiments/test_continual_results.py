"""From metrics to verdicts, on grids that are made up so that the answer is known."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up import write
from toy import Silent, assert_resumes

from hyperfan.errors import RunError
from hyperfan.experiments.continual import ALL_INITS, EXPERIMENT, PROFILES, TASKS, Continual, claims, grid, results
from hyperfan.experiments.continual.results import ContinualResults, ContinualRun
from hyperfan.experiments.loop import run
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import ChosenBy, is_smaller
from hyperfan.experiments.results.record import RECORD_FILE, read_record, write_record
from hyperfan.experiments.results.runs import Runs, read_run
from hyperfan.experiments.results.write import write_results, write_summary
from hyperfan.files import finite_or_none
from hyperfan.report import tasks

BASE = Continual(seeds=15, iterations=200)
SMOKE = replace(PROFILES["smoke"], iterations=20)
CONSTANT = 0.3
"""About what the best constant leaves of the first two tasks; of the third, 0.14."""


def made_up(levels, config=BASE, spread=0.02, diverged=(), first=None, during=None, odd=None):
    """Losses that go from ten times a level to it, by (init, rate); one level for all, but for those named.

    Of ``diverged`` runs the first seeds do, if a number is given. ``first`` and ``during`` name inits whose losses at
    the start of a task, or within it, are higher by a factor; ``odd`` has levels of the odd seeds.
    """
    draws = torch.Generator().manual_seed(0)
    shape = (len(config.inits), len(config.rates), config.seeds)
    final = torch.full(shape, 0.01)
    for found, seeds in ((levels, slice(None)), (odd or {}, slice(1 - config.seed % 2, None, 2))):
        for (init, lr), level in found.items():
            final[config.inits.index(init), config.rates.index(lr), seeds] = level
    final = final * (1 + spread * torch.randn(shape, generator=draws)).abs()
    losses = torch.stack([10 * final, 3 * final, final], -1)[..., None, :].expand(*shape, TASKS, 3).clone()
    for place, factors in ((0, first), (1, during)):
        for init, factor in (factors or {}).items():
            losses[config.inits.index(init), ..., place] *= factor
    for init, lr, seeds in diverged:
        seeds = range(seeds) if isinstance(seeds, int) else seeds
        which = [seed for seed in seeds if seed < config.seeds]
        losses[config.inits.index(init), config.rates.index(lr), which, 1:] = math.nan
    grows = torch.tensor([[1.0, 2.0, 3.0], [20.0, 1.0, 3.0], [40.0, 5.0, 1.0]])  # by after and task
    return ContinualRun(config, rows(config, losses, losses[..., -1][..., None, :] * grows), {"code": "abc"})


def rows(config, losses, errors):
    """The metrics of a grid, from (init, rate, seed, task, measurement) and (init, rate, seed, after, task).

    Every curve is as high everywhere as the number of its run.
    """
    runs, each = range(len(config.runs)), range(0, config.iterations + 1, config.log_every)
    losses, errors = losses.flatten(0, 2), errors.flatten(0, 2)
    out = [
        {
            "kind": "losses",
            "step": task * config.iterations + iteration,
            "task": task,
            "iteration": iteration,
            "losses": losses[:, task, i].tolist(),
        }
        for task in range(TASKS)
        for i, iteration in enumerate(each)
    ]
    out += [{"kind": "errors", "step": (after + 1) * config.iterations, "after": after,
             "errors": errors[:, after].tolist(), "fits": [[[float(run)] * 50] * TASKS for run in runs]}
            for after in range(TASKS)]  # fmt: skip
    return finite_or_none([*out, {"kind": "end", "step": config.total, "outcome": "finished"}])


def keeps_scale(init, width):
    return [1.0, 1.01] * 5


class World:
    """Both grids with SGD, and both with Adam, as if they had run; and growths of untrained nets.

    Each pair has a grid to compare on and one to choose rates on, which has the same levels but for ``choosing``.
    """

    def __init__(
        self, sgd=None, adam=None, choosing=None, base=BASE, growths=lambda init, width: [1.0, 1.01] * 5, **more
    ):
        compare, choose, adam_compare, adam_choose = grid(base)
        self.grids = [made_up(sgd or {}, compare, **more), made_up(choosing or sgd or {}, choose, **more)]
        if adam is not None:
            self.grids += [made_up(adam, adam_compare), made_up(adam, adam_choose)]
        self.base, self.growths = base, growths

    def results(self, monkeypatch, root=None):
        """From folders, if there is a root for them."""
        monkeypatch.setattr(claims, "growths", self.growths)
        for found in self.grids if root else ():
            write(root, found.config, found.rows)
        runs = Runs.read(root, EXPERIMENT) if root else Runs(EXPERIMENT, self.grids)
        return ContinualResults(runs, self.base)


@pytest.fixture
def decided(monkeypatch):
    """Claims by name, in a world with these changes."""

    def decide(*args, **changes):
        return {c.name: c for c in World(*args, **changes).results(monkeypatch).decide()}

    return decide


def test_the_best_rate_has_the_smallest_median_and_a_diverged_run_is_worse_than_any():
    world = made_up({("hyperfan-in", 1e-2): 0.001, ("hyperfan-in", 1e-4): 0.005}, diverged=[("hyperfan-in", 1e-2, 8)])
    assert world.best("hyperfan-in") == 1e-4
    assert world.finite(1e-2, "hyperfan-in") == 7
    assert world.best("kaiming-fan-in") in BASE.rates
    fewer = made_up({("hyperfan-in", 1e-2): 0.001}, diverged=[("hyperfan-in", 1e-2, 7)])
    assert fewer.best("hyperfan-in") == 1e-2
    assert fewer.median_seed("hyperfan-in", 1e-2) >= 7  # a finite one
    with pytest.raises(RunError, match=r"has no runs of m2 at 0\.01"):
        fewer.final("m2", 0.01)


def test_trained_means_better_than_a_constant_in_every_task():
    world = made_up({("hyperfan-in", 1e-2): 0.2, ("hyperfan-in", 1e-3): 0.05}, spread=0.0)
    assert world.trained("hyperfan-in", 1e-2) == 0  # the third task's variance is a seventh
    assert world.trained("hyperfan-in", 1e-3) == BASE.seeds


def test_a_table_says_diverged():
    world = made_up({}, diverged=[("hyperfan-in", lr, 15) for lr in BASE.rates])
    row = next(r for r in world.table() if r["init"] == "hyperfan-in")
    assert (row["finite"], row["loss"][1:]) == (0, [math.inf, math.inf])


LOWER = {(init, lr): 0.005 for init in claims.HYPERFANS for lr in BASE.rates}


def test_c7_holds_if_hyperfan_is_lower_and_does_not_if_it_is_higher(decided):
    lower = decided(LOWER)["C7"]
    assert lower.verdict == "holds"
    assert lower.headline.startswith("before training 0.49")
    assert len(lower.facts) == 16
    same = decided()["C7"]
    assert same.verdict == "not decided"
    assert all(m.estimate.n == 15 for m in same.measured.values())
    assert all("p = " in m.note for m in same.measured.values())
    higher = dict.fromkeys(LOWER, 0.02)
    assert decided(higher)["C7"].verdict == "does not hold"
    assert decided(spread=0.9)["C7"].verdict != "holds"


@pytest.mark.parametrize(("change", "fact"), [("first", "at the start of"), ("during", "during")])
def test_c7_goes_by_the_start_the_way_and_the_end(decided, change, fact):
    found = decided(LOWER, **{change: dict.fromkeys(claims.HYPERFANS, 10.0)})["C7"]
    assert found.verdict == "holds in part"
    untrained = "smaller at initialisation" if change == "first" else "nothing"
    concerned = {label: untrained in label or f"smaller {fact} every" in label for label in found.facts}
    assert {label: not so for label, so in found.facts.items()} == concerned
    assert sum(concerned.values()) == (8 if change == "first" else 4)


def test_few_seeds_decide_nothing(decided):
    few = replace(BASE, seeds=5)
    assert set(decided(dict.fromkeys(LOWER, 0.001), base=few)["C7"].facts.values()) == {None}
    assert set(decided(base=few)["C7"].facts.values()) == {None}


def test_one_seed_has_no_other_half(decided):
    found = decided(base=replace(BASE, seeds=1))
    assert {c.verdict for name, c in found.items() if name != "C16"} == {"not decided"}
    assert found["C8"].halves[0].facts
    assert not found["C8"].halves[1].facts


def test_rates_are_chosen_on_seeds_that_are_not_compared(tmp_path, monkeypatch):
    """The compared seeds would choose 0.01 for hyperfan-in, the others choose 0.001."""
    world = World({("hyperfan-in", 1e-2): 0.001}, choosing={("hyperfan-in", 1e-3): 0.001})
    found = world.results(monkeypatch, tmp_path / "runs")
    sgd = found.grid("sgd")
    assert world.grids[0].best("hyperfan-in") == 1e-2
    assert sgd.best("hyperfan-in") == 1e-3
    assert list(sgd.seeds) == list(range(15))
    c7 = found.decide()[0]
    labels = [label for label in c7.measured if label.startswith("hyperfan-in over")]
    tasks = [label for label in labels if not label.endswith("loss before training")]
    assert len(labels) - len(tasks) == 2
    assert all(f"at {0.01 if label.endswith(ChosenBy.COMPARED) else 0.001} and" in label for label in tasks)
    row = next(row for row in sgd.table() if row["init"] == "hyperfan-in")
    assert (row["rate"], row["runs"]) == (1e-3, 15)
    assert row["loss"] == pytest.approx([0.01] * 3, rel=0.02)
    write_results(EXPERIMENT, tmp_path / "runs", tmp_path / "out", BASE)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "with 15 seeds, and compared at the rate that is best on 4 other seeds" in " ".join(page.split())
    assert "hyperfan-in at 0.001" in (tmp_path / "out" / "figures" / "fits.svg").read_text()


def test_what_is_so_at_one_choice_of_rates_alone_is_not_decided(decided):
    """The compared seeds would choose 0.01 for hyperfan-in, and are lower there; the others choose 0.001."""
    lower, elsewhere = {("hyperfan-in", 1e-2): 0.001}, {("hyperfan-in", 1e-3): 0.001}
    facts = {name: list(decided(lower, lower)[name].facts.values()) for name in ("C7", "C15")}
    assert facts["C7"] == [True] * 8 + [None] * 8
    assert facts["C15"] == [True, None, True]
    claims = decided(lower, lower, choosing=elsewhere)
    assert list(claims["C7"].facts.values()) == [None] * 16
    assert list(claims["C15"].facts.values()) == [None, None, True]


def test_a_fourth_as_many_seeds_choose_rates():
    assert [(c.optimiser, c.seed, c.seeds) for c in grid(Continual())] == [
        ("sgd", 0, 240), ("sgd", 1000, 60), ("adam", 0, 240), ("adam", 1000, 60)]  # fmt: skip
    assert [c.seeds for c in grid(replace(BASE, seeds=1))] == [1] * 4


def test_halves_of_the_seeds_that_disagree_are_told(decided):
    """With even seeds hyperfan is lower, with odd ones higher."""
    claim = decided(LOWER, odd=dict.fromkeys(LOWER, 0.02))["C7"]
    assert [half.verdict for half in claim.halves] == ["holds", "does not hold"]
    assert [{m.estimate.n for m in half.measured.values()} for half in claim.halves] == [{8}, {7}]
    assert claim.contested == list(claim.facts)


def test_an_interval_without_a_small_p_is_not_enough():
    """Eight of fifteen seeds far lower, seven a little higher: the median's interval may lie below 1, p does not."""
    claim = Claim("C", "title", "statement")
    a = [0.5] * 12 + [60.0, 70.0, 80.0]
    assert is_smaller(claim, "label", a, [1.0] * 15) is None


def test_c8_goes_by_the_runs_that_train(decided):
    base = replace(BASE, seeds=8 * claims.RUNS_OF_A_MEAN)
    bad = [("kaiming-fan-in", lr, base.seeds) for lr in (1e-2, 1e-3, 1e-4)]
    claim = decided(diverged=bad, base=base)["C8"]
    assert claim.verdict == "holds"
    assert claim.headline == "at 0.0001, 0% [0%, 3%] of 120 runs train"
    assert decided(base=base)["C8"].verdict == "holds in part"  # it trains at the smallest, and at all others
    other = decided({("kaiming-fan-in", 1e-4): 0.001}, diverged=bad[:2])["C8"]
    assert other.facts["no other rate is better"] is False
    stuck = {("kaiming-fan-in", lr): CONSTANT for lr in BASE.rates}
    facts = decided(stuck)["C8"].facts
    assert facts["at 1e-05 more than half do"] is False


def test_c8_goes_by_the_means_that_the_paper_plots_too(decided):
    """One run of each fifteen that diverges is enough for a mean, and leaves all others trained."""
    base = replace(BASE, seeds=8 * claims.RUNS_OF_A_MEAN)
    one_of_each = range(0, base.seeds, claims.RUNS_OF_A_MEAN)
    claim = decided(diverged=[("kaiming-fan-in", 1e-4, one_of_each)], base=base)["C8"]
    assert claim.facts["at 0.0001 means of 15 runs, as the paper plots them, diverge"] is True
    assert claim.facts["at 0.001 means of 15 runs, as the paper plots them, diverge"] is False
    assert claim.facts["at 0.0001 fewer than half of the runs train"] is False
    few = decided()["C8"]
    assert few.facts["at 1e-05 means of 15 runs, as the paper plots them, stay finite"] is None


def test_c15_needs_adam_and_compares_best_rates(decided):
    poor = {("kaiming-fan-in", lr): 0.05 for lr in BASE.rates}
    undecided = decided(poor)["C15"]
    assert undecided.verdict == "not decided"
    assert "no finished run 'adam" in undecided.remark
    assert decided(poor, {})["C15"].verdict == "holds"
    better = {("kaiming-fan-in", lr): 0.002 for lr in BASE.rates}
    facts = decided(poor, better)["C15"].facts
    assert list(facts.values()) == [True, True, False]
    assert decided({}, {})["C15"].facts.popitem()[1] is True


def test_c16_is_decided_by_growth(decided):
    factors = {"xavier-fan-in": 8.0, "xavier-fan-out": 0.3, "xavier-harmonic": 0.5, "m2": 0.4, "m3": 1.5}
    fits_at = {}

    def growths(init, width):
        factor = 1.0 if fits_at.get(init) == width else factors.get(init, 1.0)
        return [factor * f for f in (0.99, 0.99, 1.0, 1.0, 1.01, 1.01)]

    worse = {("m2", lr): 0.05 for lr in BASE.rates} | {("m3", lr): 0.005 for lr in BASE.rates}
    claim = decided(worse, growths=growths)["C16"]
    assert claim.verdict == "holds"
    assert "M2 ends higher, M3 ends lower, M4 ends neither" in claim.remark
    assert "M1 of both fans keeps the scale at no width. M2 keeps the scale at no width. M3 keeps" in claim.remark
    fits_at["m3"] = 112
    one_width = decided(growths=growths)["C16"]
    assert one_width.verdict == "holds"  # one number for all widths still does not fit
    assert "M3 keeps the scale at width 112." in one_width.remark
    factors["m3"] = 1.0
    assert decided(growths=growths)["C16"].facts["M3: its one number does not fit all widths"] is False
    factors |= {"m3": 1.5, "xavier-harmonic": 1.0}
    assert decided(growths=growths)["C16"].facts["M1 of both fans: its scale does not fit all widths"] is False
    factors |= {"xavier-harmonic": 0.5, "m4": 2.0}
    assert decided(growths=growths)["C16"].verdict == "holds in part"


def test_the_example_of_section_3_grows_as_its_formula_says(monkeypatch):
    """Var grows by d·d_k·Var(H) from a layer to the next; logarithms of ‖e‖² are a little below their mean."""
    monkeypatch.setattr(claims, "GROWTH_SEEDS", 3)
    for init, factor in (("xavier-fan-in", 64**0.5), ("m3", 0.8), ("m4", 1.0), ("xavier-fan-out", 0.5)):
        found = claims.growths.__wrapped__(init, 64)
        assert len(found) == 3
        assert math.prod(found) ** (1 / 3) == pytest.approx(factor, rel=0.12)


@pytest.fixture(scope="module")
def grids(tmp_path_factory):
    """Both grids at a small scale, for real."""
    root = tmp_path_factory.mktemp("runs")
    for config in grid(SMOKE):
        assert run(config, root / config.folder, Silent()) == "finished"
    return root


@pytest.fixture(scope="module")
def page(grids, tmp_path_factory):
    """Results of these grids."""
    out = tmp_path_factory.mktemp("page") / "results"
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr(claims, "growths", lambda init, width: [1.0, 1.1])
        write_results(EXPERIMENT, grids, out, SMOKE)
    return out


def test_a_grid_is_read_as_it_was_measured(grids):
    config = grid(SMOKE)[0]
    outcome = read_run(grids / config.folder)
    assert outcome.config == config
    lines = [json.loads(line) for line in (grids / config.folder / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "losses"][-1]
    assert (last["task"], last["iteration"]) == (2, 20)
    for run_, loss in zip(config.runs, last["losses"], strict=True):
        found = outcome.final(run_.init, run_.lr)[run_.seed, 2].item()
        assert found == math.inf if loss is None else found == pytest.approx(loss)
    tested = [line for line in lines if line["kind"] == "errors"]
    assert [line["after"] for line in tested] == [0, 1, 2]
    number = next(i for i, one in enumerate(last["losses"]) if one is not None)
    run_ = config.runs[number]
    kept = outcome.errors[outcome.at(run_.init, run_.lr)][run_.seed]
    assert kept[1].tolist() == pytest.approx(tested[1]["errors"][number])
    assert len(tested[0]["fits"][number][0]) == 50


def test_a_grid_that_is_stopped_goes_on_to_the_same_bits(tmp_path):
    config = replace(grid(SMOKE)[0], checkpoint_every=7)
    assert_resumes(config, tmp_path, 24)


def test_results_have_verdicts_tables_and_figures(grids, page):
    out = page
    assert sorted(p.name for p in (out / "figures").iterdir()) == ["fits.svg", "loss-others.svg", "loss.svg"]
    summary = json.loads((out / "summary.json").read_text())
    assert [c["name"] for c in summary["claims"]] == ["C7", "C8", "C15", "C16"]
    assert [g["optimiser"] for g in summary["grids"]] == ["sgd", "adam"]
    text = (out / "README.md").read_text()
    for name in ("C7", "C8", "C15", "C16"):
        assert f"## {name}\n" in text
    assert text.count("| hyperfan-in@exact |") == 2 + len(SMOKE.rates)
    assert "nan" not in text
    for picture in ("loss", "fits", "loss-others"):
        assert f"figures/{picture}.svg" in text
    with pytest.raises(RunError, match="holds results already"):
        write_results(EXPERIMENT, grids, out, SMOKE)


def test_a_record_keeps_the_fits_that_may_be_shown(page):
    """Those of the median run of each init at each rate; none of the seeds that only choose."""
    lines = read_record(page / RECORD_FILE)
    assert [line["config"]["seed"] for line in lines] == [0, 1000, 0, 1000]
    for line in lines:
        config = line["config"]
        runs = len(config["inits"]) * len(config["rates"])
        for row in line["rows"]:
            if row["kind"] == "errors":
                assert len(row["fits"]) == runs * config["seeds"]
                assert sum(fit is not None for fit in row["fits"]) == (0 if config["seed"] else runs)


def test_the_fits_of_a_record_are_those_of_the_run_that_is_drawn(tmp_path):
    """By errors as they are rounded, which may have another median than those of the run."""
    world = made_up({}, spread=0.0)
    errors = [row for row in world.rows if row["kind"] == "errors"][-1]["errors"]
    for number in range(len(errors)):
        errors[number] = [0.1 + 1e-9 * (7 * number % 15)] * TASKS
    write_record(tmp_path / RECORD_FILE, [world.to_dict()])
    (kept,) = Runs.read(tmp_path, EXPERIMENT)
    assert kept.median_seed("hyperfan-in", 1e-3) != world.median_seed("hyperfan-in", 1e-3)
    for number, (init, lr) in enumerate(itertools.product(BASE.inits, BASE.rates)):
        median = kept.median_seed(init, lr)
        shown = kept.fits[kept.at(init, lr)][median]
        assert shown.tolist() == [[[float(f"{number * 15 + median:.5g}")] * 50] * TASKS] * TASKS
        others = [seed for seed in range(15) if seed != median]
        assert kept.fits[kept.at(init, lr)][others].isnan().all()


def test_what_is_no_grid_is_said(tmp_path, grids):
    with pytest.raises(RunError, match=r"no finished run 'sgd all-inits .*hyperfan run continual --all --resume makes"):
        ContinualResults(Runs.read(tmp_path, EXPERIMENT), SMOKE).check()
    config = grid(SMOKE)[0]
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("config.json", "env.json"):
        (broken / name).write_text((grids / config.folder / name).read_text())
    (broken / "metrics.jsonl").write_text('{"kind": "losses", "step": 0, "task": 0, "iteration": 0, "losses": []}\n')
    assert not list(Runs.read(tmp_path, EXPERIMENT))  # it is not over
    with (broken / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "end", "step": 0}\n')
    (found,) = Runs.read(tmp_path, EXPERIMENT)
    with pytest.raises(RunError, match="does not hold the metrics of its runs"):
        found.best("m2")
    (broken / "config.json").write_text('{"experiment": "continual", "init": "m2"}')
    with pytest.raises(RunError, match=r"is not the configuration of a run of continual: .*'init'"):
        read_run(broken)


def test_figures_bear_grids_in_which_everything_diverged():
    world = made_up(
        {}, replace(BASE, inits=("m2", "m3")), diverged=[(i, lr, 15) for i in ("m2", "m3") for lr in BASE.rates]
    )
    drawn = dict(world.figures())
    assert list(drawn) == ["loss-others", "fits"]
    assert "(0 of 15 finite)" in drawn["loss-others"]


def test_a_grid_in_which_all_diverge_is_still_drawn(tmp_path):
    config = replace(SMOKE, inits=("kaiming-fan-in",), rates=(1e3,), iterations=200)
    assert run(config, tmp_path / "run", Silent()) == "diverged"
    page, text = write_summary(tmp_path / "run")
    assert page.exists()
    assert "diverged" in text


def test_forgetting_is_told_of_those_that_had_learnt():
    world = made_up({("hyperfan-in", lr): 0.5 for lr in BASE.rates})
    lines = {line.split(" | ")[1]: line for line in results.forgetting_table([world]).splitlines()}
    assert lines["hyperfan-out"].endswith("| 0.01 | 0.2 | 0.4 | 15 of 15 |")
    assert lines["hyperfan-in"].endswith("| 0 of 0 |")  # a constant would have done better


def test_the_run_drawn_is_the_median_by_its_errors_at_the_end():
    world = made_up({})
    at = world.at("hyperfan-in", 1e-3)
    world.errors[at] = world.errors[at] * torch.tensor([7.0, 1.0, *range(8, 21)])[:, None, None]
    order = world.errors[at][:, -1].mean(1).argsort()
    assert world.median_seed("hyperfan-in", 1e-3) == order[7]


def test_tables_show_errors_after_the_last_task_and_after_each():
    row = made_up({}, spread=0.0).table()[0]
    assert row["error"] == pytest.approx([0.4, 0.05, 0.01])
    assert row["errors by task after each task"][1] == pytest.approx([0.2, 0.01, 0.03])


def test_means_have_their_standard_error_and_medians_their_quartiles():
    losses = torch.tensor([[1.0], [2.0], [4.0], [9.0], [math.nan]], dtype=torch.float64)
    low, mean, high = (t.item() for t in tasks._means(losses))
    assert mean == 4.0
    assert high - mean == mean - low == pytest.approx(math.sqrt((9 + 4 + 0 + 25) / 3) / 2)
    assert [t.item() for t in tasks.quartiles(losses)] == [2.0, 4.0, 9.0]
    assert [t.item() for t in tasks.quartiles(losses[:2])] == [1.25, 1.5, 1.75]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "--seeds 0"),
        ({"seed": -1}, "--seed -1"),
        ({"batch": 101}, "--batch 101: a batch has no more than the 100"),
        ({"inits": ()}, "--inits : name at least one"),
        ({"inits": ("m2", "m2")}, "--inits m2 m2"),
        ({"rates": (0.0,)}, "--rates 0"),
        ({"beta": -1.0}, "--beta -1"),
        ({"iterations": 150}, "--iterations 150 is no multiple of --log-every 100"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(RunError, match=message):
        Continual(**change)


def test_a_grid_names_its_folder():
    assert Path("sgd") == Continual().folder
    assert Continual(inits=("m2", "m3"), rates=(0.1, 1e-5)).folder == Path("sgd_m2+m3_rates-0.1+1e-05")
    assert Continual(inits=ALL_INITS, precision="float64").title == "sgd all-inits precision-float64"
    assert len(Continual().runs) == 4 * 4 * 240
    assert len(Continual(inits=ALL_INITS).runs) == 9 * 4 * 240
