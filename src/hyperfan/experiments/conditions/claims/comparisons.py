"""Comparisons of starts that the page has beside its claims, as fields of its text."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hyperfan.experiments.conditions import KINDS, LINEAR, RATES, TABLED
from hyperfan.experiments.conditions.claims import ALL, END, FORGETTING, LOSSES, MEASURES, NONE, OURS, UNSEEN, named
from hyperfan.experiments.conditions.claims.ratios import loss_ratio, mean_of_given, mean_ratio, runs_of_kind
from hyperfan.experiments.results.pairs import median_ratio
from hyperfan.text import markdown_table, two_digits

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults


def comparison_fields(results: "ConditionsResults") -> dict[str, str]:
    """Fields of the page: the default beside hyperfan-in as published, where it is behind, and what is forgotten."""
    return {
        "relative": _relative(results),
        "known_gain": mean_of_given(results.found.values(), [END], OURS, ALL),
        "unseen_gain": mean_of_given(results.found.values(), [UNSEEN], OURS, ALL),
        "tasks_gain": _tasks_gain(results),
        "behind": _behind(results),
        "least_forgotten": _least_forgotten(results),
    }


def means_over_published(results: "ConditionsResults") -> Iterator[dict[str, Any]]:
    """Means over hyperfan-in as published of every start, by kind of conditions, measure and optimiser."""
    for kind, measure, optimiser in itertools.product(KINDS, LOSSES, RATES):
        if runs := runs_of_kind(results.found.values(), kind, optimiser, [measure]):
            means = {start: mean_ratio(runs, [measure], start, ALL) for start in results.base.starts}
            row = {"conditions": kind, "measure": measure, "optimiser": optimiser}
            yield {**row, "starts": means, "default": named(OURS, runs[0].config.job)}


def _relative(results: "ConditionsResults") -> str:
    """The table of these means."""
    rows = [
        [row["conditions"], MEASURES[row["measure"]], row["optimiser"], *map(two_digits, row["starts"].values())]
        for row in means_over_published(results)
    ]
    return markdown_table(["conditions", "", "optimiser", *results.base.starts], rows)


def _tasks_gain(results: "ConditionsResults") -> str:
    """A table of the default's ratios on the jobs whose conditions are a table of tasks."""
    rows = [
        [job, optimiser, loss_ratio(run, END, OURS, ALL).format(".2f")]
        for (job, optimiser), run in results.found.items()
        if job in TABLED
    ]
    return markdown_table(["job", "optimiser", f"{MEASURES[END]} over that of {ALL}"], rows)


def _behind(results: "ConditionsResults") -> str:
    """Where the default is behind another start, at rates chosen by other seeds and by those compared."""
    found = []
    for other in (LINEAR, NONE):
        for (job, optimiser), run in results.found.items():
            for measure in (m for m in LOSSES if m in run.measures):
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
