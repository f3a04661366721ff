"""Comparisons of starts that the page has beside its claims, as fields of its text."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hyperfan.experiments.conditions import KINDS, LINEAR, RATES, TABLED
from hyperfan.experiments.conditions.claims import ALL, END, FORGETTING, MEASURES, NONE, OURS, UNSEEN, named
from hyperfan.experiments.conditions.claims.trunks import geometric_mean, with_each_optimiser
from hyperfan.experiments.optimisers import SgdOrAdamW
from hyperfan.experiments.results.pairs import median_ratio
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import markdown_table, two_digits

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun


def comparison_fields(results: "ConditionsResults") -> dict[str, str]:
    """Fields of the page: the default beside hyperfan-in as published, where it is behind, and what is forgotten."""
    return {
        "relative": _relative(results),
        "known_gain": _given_gain(results, END),
        "unseen_gain": _given_gain(results, UNSEEN),
        "tasks_gain": _tasks_gain(results),
        "behind": _behind(results),
        "least_forgotten": _least_forgotten(results),
    }


def _of_jobs(
    results: "ConditionsResults", jobs: Iterable[str], optimiser: SgdOrAdamW, measure: str
) -> "list[ConditionsRun]":
    """The runs of jobs that are there and have a measure."""
    found = [results.found[job, optimiser] for job in jobs if (job, optimiser) in results.found]
    return [run for run in found if measure in run.measures]


def _over_published(run: "ConditionsRun", measure: str, start: str) -> Estimate:
    """A start's loss over that of hyperfan-in as published, seed by seed, each at the rate that other seeds chose."""
    return median_ratio(*(run.scores(measure, s, run.best(s)) for s in (start, ALL)))


def _mean(runs: "list[ConditionsRun]", measure: str, start: str) -> float:
    """The geometric mean over jobs of the medians of a start's loss over that of hyperfan-in as published."""
    return geometric_mean([_over_published(run, measure, start).value for run in runs])


def means_over_published(results: "ConditionsResults") -> Iterator[dict[str, Any]]:
    """The means of every start, and which is the default, by the kind of conditions, the measure and the optimiser."""
    for (kind, jobs), measure, optimiser in itertools.product(KINDS.items(), (END, UNSEEN), RATES):
        if runs := _of_jobs(results, jobs, optimiser, measure):
            means = {start: _mean(runs, measure, start) for start in results.base.starts}
            row = {"conditions": kind, "measure": measure, "optimiser": optimiser}
            yield {**row, "starts": means, "default": named(OURS, runs[0].config.job)}


def _relative(results: "ConditionsResults") -> str:
    """The table of these means."""
    rows = [
        [row["conditions"], MEASURES[row["measure"]], row["optimiser"], *map(two_digits, row["starts"].values())]
        for row in means_over_published(results)
    ]
    return markdown_table(["conditions", "", "optimiser", *results.base.starts], rows)


def _given_gain(results: "ConditionsResults", measure: str) -> str:
    """The mean of the default's loss over that of hyperfan-in as published, where conditions are given."""
    of = {optimiser: _of_jobs(results, KINDS["given"], optimiser, measure) for optimiser in RATES}
    return with_each_optimiser(
        {o: two_digits(_mean(runs, measure, named(OURS, runs[0].config.job))) for o, runs in of.items() if runs}
    )


def _tasks_gain(results: "ConditionsResults") -> str:
    """A table of the default's ratios on the jobs whose conditions are a table of tasks."""
    rows = []
    for job, optimiser in itertools.product(TABLED, RATES):
        for run in _of_jobs(results, [job], optimiser, END):
            rows.append([job, optimiser, _over_published(run, END, named(OURS, job)).format(".2f")])
    return markdown_table(["job", "optimiser", f"{MEASURES[END]} over that of {ALL}"], rows)


def _behind(results: "ConditionsResults") -> str:
    """Where the default is behind another start, at rates chosen by other seeds and by those compared."""
    found = []
    for other in (LINEAR, NONE):
        for (job, optimiser), run in results.found.items():
            for measure in (m for m in (END, UNSEEN) if m in run.measures):
                both = [
                    median_ratio(*(run.scores(measure, s, rate(s)) for s in (named(OURS, job), other)))
                    for rate in (run.best, run.lowest)
                ]
                if all(ratio.low is not None and ratio.low > 1 for ratio in both):
                    values = " and ".join(ratio.format(".2f") for ratio in both)
                    found.append(f"- {job}, {optimiser}: {MEASURES[measure]} is {values} times that of {other}")
    return "\n".join(found) or "- nowhere"


def _least_forgotten(results: "ConditionsResults") -> str:
    """The start with the least median of forgetting, of each job in which tasks come one after another."""
    found = []
    for (job, optimiser), run in results.found.items():
        if FORGETTING in run.measures:
            least, start = min(zip(run.medians(FORGETTING), run.config.starts, strict=True))
            found.append(f"*{job}* with {optimiser}: {start}, {two_digits(least)}")
    return "; ".join(found)
