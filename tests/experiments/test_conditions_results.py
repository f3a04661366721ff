"""From metrics to verdicts about shares, on runs made up so that the answer is known, and on small real ones."""

import json
import math
from dataclasses import replace

import pytest
import torch
from test_conditions_training import made_up_digits
from toy import Silent

from hyperfan.data import Splits
from hyperfan.errors import RunError
from hyperfan.experiments import conditions
from hyperfan.experiments.conditions import (
    EXPERIMENT,
    JOBS,
    LINEAR,
    PROFILES,
    RATES,
    SHARES,
    claims,
    grid,
    pictures,
    results,
)
from hyperfan.experiments.conditions.claims import (
    ALL,
    CLAIMS,
    DURING,
    END,
    FORGETTING,
    LEARNT,
    NONE,
    OURS,
    UNSEEN,
    named,
)
from hyperfan.experiments.conditions.claims.comparisons import comparison_fields
from hyperfan.experiments.conditions.claims.starts import at_start
from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun
from hyperfan.experiments.loop import run
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.pairs import is_no_larger
from hyperfan.experiments.results.runs import Runs, read_run
from hyperfan.experiments.results.write import write_results, write_summary

BASE = replace(PROFILES["smoke"], seeds=12)
SMOKE = PROFILES["smoke"]


def made_up(job, optimiser, factors, spread=0.02):
    """Runs of a job: losses about 1 times the factor of a start, and of a start and measure."""
    config = replace(BASE, job=job, optimiser=optimiser)
    draws = torch.Generator().manual_seed(0)
    shape = len(config.starts), len(config.rates), config.seeds
    level = (1 + spread * torch.randn(shape, generator=draws).double()).abs()

    factors = {(named(k[0], job), k[1]) if isinstance(k, tuple) else named(k, job): v for k, v in factors.items()}

    def times(measure):
        found = [factors.get((start, measure), factors.get(start, 1.0)) for start in config.starts]
        return level * torch.tensor(found, dtype=torch.float64)[:, None, None]

    errors = times(LEARNT)[..., None, None].repeat(1, 1, 1, 5, 4)
    errors[..., -1, :-1] = (times(LEARNT) * times(FORGETTING) / level)[..., None]
    end = {"kind": "end", "step": config.total, "outcome": "finished"}
    chooser = ConditionsRun(config.choosing(), [end])  # equal rates, of which the first is the best
    vars(chooser).update(losses=torch.ones(*shape, 3), errors=torch.ones(*shape, 5, 4))
    made = ConditionsRun(config, [end], {"code": "abc"}, chooser=chooser)
    losses, unseen = (times(m).unsqueeze(-1).repeat(1, 1, 1, 3) for m in (END, UNSEEN))
    vars(made).update(losses=losses, unseen=unseen, errors=errors)
    return made


class MadeUp(ConditionsResults):
    def __init__(self, factors, jobs=JOBS):
        super().__init__(Runs(EXPERIMENT), BASE)
        self.factors, self.jobs = factors, jobs

    def run(self, job, optimiser):
        return made_up(job, optimiser, self.factors)

    @property
    def found(self):
        return {(job, optimiser): self.run(job, optimiser) for job in self.jobs for optimiser in RATES}


def decided(factors):
    return {claim.name: claim for claim in MadeUp(factors)._decide()}


def test_without_a_difference_each_start_is_as_good_as_another_and_none_better():
    found = decided({})
    assert {name: c.verdict for name, c in found.items()} == {
        **dict.fromkeys(CLAIMS, "holds"),
        "S4": "not decided",
    }
    assert len(found["S1"].facts) == 2 * (len(JOBS) + 7)
    assert len(found["S3"].facts) == 2 * len(JOBS)
    assert len(found["S5"].facts) == 4
    assert found["S2"].headline.startswith("as good in 36 of 36, not in 0, open in 0; median ratio ")


@pytest.mark.parametrize(
    ("factors", "verdicts"),
    [
        ({LINEAR: 0.5}, {"S1": "does not hold", "S2": "holds"}),
        ({NONE: 0.5}, {"S2": "does not hold", "S3": "holds"}),
        ({ALL: 0.5}, {"S3": "does not hold", "S4": "does not hold"}),
        ({(OURS, UNSEEN): 0.5}, {"S4": "holds", "S1": "holds"}),
        ({(OURS, UNSEEN): 2.0}, {"S1": "holds in part"}),
        ({(OURS, FORGETTING): 2.0}, {"S5": "does not hold"}),
    ],
)
def test_each_claim_has_its_comparison(factors, verdicts):
    found = decided(factors)
    assert {name: found[name].verdict for name in verdicts} == verdicts


def test_what_is_so_only_at_the_rates_that_the_compared_seeds_would_choose_is_not_decided():
    made = made_up("turned", "AdamW", {})
    at = made.config.starts.index(NONE)
    made.losses[at, 1] *= 0.5
    made.chooser.losses[at, 0] *= 0.5
    for starts, fact in (((ALL, LINEAR), True), ((ALL, NONE), None)):
        claim = Claim("S", "title", "statement")
        claims.compare_starts(claim, made, END, starts, is_no_larger)
        assert list(claim.facts.values()) == [fact]
        assert len(claim.measured) == 2


def test_measures():
    made = made_up("sequence", "SGD", {(NONE, LEARNT): 3.0, (NONE, FORGETTING): 2.0}, spread=0.0)
    assert made.measures == (DURING, END, LEARNT, FORGETTING)
    assert made.median(LEARNT, NONE) == pytest.approx(3.0)
    assert made.median(FORGETTING, NONE) == pytest.approx(2.0)
    assert made.median(END, NONE) == pytest.approx((3 * 6.0 + 3.0) / 4)
    assert made_up("turned", "SGD", {}).measures == (DURING, END, UNSEEN)
    assert made_up("tasks", "SGD", {}).measures == (DURING, END)


def test_the_best_rate_is_chosen_elsewhere_and_a_divergence_is_infinite():
    made = made_up("tasks", "AdamW", {}, spread=0.0)
    made.losses[0, :, :, -1] *= torch.tensor([2.0, 1.0, 3.0, 4.0, 5.0])[:, None]
    made.losses[0, 1, 0, -1] = math.nan
    assert made.lowest(ALL) == made.config.rates[1]
    assert made.best(ALL) == made.config.rates[0]
    assert made.scores(END, ALL, made.config.rates[1])[0] == math.inf


def test_the_page_compares_the_default_with_hyperfan_in_as_published():
    made = MadeUp({OURS: 0.5, (OURS, UNSEEN): 0.25, (NONE, FORGETTING): 0.5}, ("turned", "tasks", "sequence"))
    found = comparison_fields(made)
    assert found["known_gain"] == "0.5 with SGD and 0.5 with AdamW"
    assert found["unseen_gain"] == "0.25 with SGD and 0.25 with AdamW"
    assert "| given | loss at the end | SGD | 1 | 1 | 0.5 | 1 | 1 |" in found["relative"]
    assert "| tasks | AdamW | 0.50 [" in found["tasks_gain"]
    assert "turned" not in found["tasks_gain"]
    assert found["behind"] == "- nowhere"
    assert found["least_forgotten"].startswith("*sequence* with SGD: ρ = 0, 0.5; *sequence* with AdamW: ")


def test_the_default_is_behind_where_it_is_at_the_rates_of_either_choice():
    class Behind(MadeUp):
        """The default ends higher, at the one rate that the compared seeds choose or also at that of the others."""

        def run(self, job, optimiser):
            made = made_up(job, optimiser, {OURS: 1.5})
            at = made.config.starts.index(named(OURS, job))
            if self.factors == "at one":
                made.losses[at, 1] *= 0.6
            return made

    at_either = comparison_fields(Behind("at either", ["tasks"]))["behind"]
    assert at_either.count("- tasks, ") == 4
    assert comparison_fields(Behind("at one", ["tasks"]))["behind"] == "- nowhere"


# ── untrained nets ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_conditions_have_in_common_what_the_share_says():
    found = at_start(PROFILES["paper"], "turned")
    for share in SHARES:
        start = found[f"ρ = {share:g}"]
        # 8 conditions and three nets with thousands of weights; norms of codes scatter by a third, which only moves
        # each pair's ρ a little.
        assert start.correlation == pytest.approx(1 - share + share * start.cosine, abs=0.08)
        assert start.square == pytest.approx(1, rel=0.35)
    assert found[NONE].correlation == pytest.approx(1)
    assert found[NONE].share == pytest.approx(0, abs=1e-9)
    assert found[NONE].kernel > found["ρ = 0.2"].kernel > found[ALL].kernel
    assert found[ALL].code == pytest.approx(17, rel=0.4)  # half of 32 codes' squares pass the ReLU


# ── small runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


FEW_JOBS = ("turned", "clients", "remembered")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    pictures.digits.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "mnist", lambda _data_dir: Splits(made_up_digits(300, 0), made_up_digits(200, 1)))
        for module in (conditions, claims, claims.trunks, results):
            patch.setattr(module, "JOBS", FEW_JOBS)
        patch.setattr(results, "MEASURED_JOBS", FEW_JOBS[:1])
        patch.setattr(claims.starts, "SEEDS", 1)
        for config in grid(SMOKE):
            assert run(config, root / config.folder, Silent()) == "finished"
        yield root
    pictures.digits.cache_clear()


def test_runs_are_read_as_they_were_measured(runs):
    found = read_run(runs / replace(SMOKE, job="remembered").folder)
    starts, rates = len(SMOKE.starts), len(RATES["AdamW"])
    assert found.losses.shape == (starts, rates, SMOKE.seeds, 3)
    row = [r for r in found.rows if r["kind"] == "losses"][1]
    assert found.losses[1, 2, 1, 1].item() == row["losses"][(1 * rates + 2) * SMOKE.seeds + 1]
    row = [r for r in found.rows if r["kind"] == "errors"][-1]
    assert found.errors[1, 0, 1, -1].tolist() == row["errors"][rates * SMOKE.seeds + 1]
    assert read_run(runs / SMOKE.folder).unseen.isfinite().all()


def test_a_run_has_a_page(runs):
    page, text = write_summary(runs / SMOKE.folder)
    assert "loss at the end, unseen conditions" in text
    assert "nn.Linear" in page.read_text()


def test_results_are_written_and_follow_from_their_record(runs, tmp_path):
    out = tmp_path / "results" / "conditions"
    write_results(EXPERIMENT, runs, out, SMOKE)
    page = (out / "README.md").read_text()
    assert all(f"**{job}**" in page for job in JOBS)
    assert "| clients | 8 | normal, variance 1, then trained | 16 | 0 | 4 | 16 | 49-5-5-10, relu | 8-5 | 8 |" in page
    assert "| joint | 8 | normal, variance 1 | 256 | 32 | 16 | 8 | 3-5-5-1, tanh | 8-5-5 | 24 |" in page
    assert {p.name for p in (out / "figures").iterdir()} == {"end.svg", "unseen.svg", "forgetting.svg"}
    summary = json.loads((out / "summary.json").read_text())
    assert [c["name"] for c in summary["claims"]] == list(CLAIMS)
    assert [(s["job"], s["optimiser"]) for s in summary["settings"]] == [(job, o) for job in FEW_JOBS for o in RATES]
    assert summary["missing"] == []
    assert "| turned | SGD | loss at the end, unseen conditions |" in page  # of the variants
    assert "| given | the default |" in page
    again = tmp_path / "again"
    write_results(EXPERIMENT, out, again, SMOKE)  # from the metrics that the results keep
    assert (again / "README.md").read_text() == page


def test_without_runs_there_is_no_page(tmp_path):
    found = ConditionsResults(Runs.read(tmp_path, EXPERIMENT), SMOKE)
    with pytest.raises(RunError, match="there is no finished run 'turned AdamW"):
        found.check()
    assert SMOKE.choosing().seed >= 1000
