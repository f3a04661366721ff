"""What is claimed about the share of the variance that is generated, as facts that an interval can decide."""

import itertools
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from hyperfan.experiments.conditions import JOBS, LINEAR, RATES, TABLED, start_name
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.pairs import compare_at_best_rates, is_no_larger, is_smaller
from hyperfan.hypernet.condition_defaults import GIVEN_SHARE, TASKS_SHARE

if TYPE_CHECKING:
    from hyperfan.experiments.conditions.results import ConditionsResults, ConditionsRun

DURING, END, UNSEEN, LEARNT, FORGETTING = "during", "end", "unseen", "learnt", "forgetting"
MEASURES = {
    DURING: "mean loss during training",
    END: "loss at the end",
    UNSEEN: "loss at the end, unseen conditions",
    LEARNT: "loss of each task right after it",
    FORGETTING: "forgetting",
}
"""What is compared, seed by seed. Where tasks come one after another, the loss at the end is that of all of them."""
LOSSES = (END, UNSEEN)
"""Losses at the end."""
OURS = "the default"
"""The start that the library has by default, of which :func:`named` says the share."""
ALL, NONE = start_name(1.0), start_name(0.0)
"""Hyperfan-in as published, and Bias-HyperInit."""
Compare = Callable[..., Fact]


def named(start: str, job: str) -> str:
    """A start, of which the default has a share that depends on whether a job's conditions are given or tasks."""
    return start_name(TASKS_SHARE if job in TABLED else GIVEN_SHARE) if start == OURS else start


def compare_starts(c: Claim, run: "ConditionsRun", measure: str, starts: tuple[str, str], compare: Compare) -> None:
    """Compare two starts of a run by a measure."""
    what = f"{run.config.job}, {run.config.optimiser}: {MEASURES[measure]}"

    def at(label: str, *rates: float) -> Fact:
        return compare(c, label, *(run.scores(measure, *side) for side in zip(starts, rates, strict=True)))

    label = f"{what}, {' over '.join(f'{start} at {{:g}}' for start in starts)}"
    c.decide(what, compare_at_best_rates(label, [partial(run.rate, start=start) for start in starts], at))


def _compare(
    a: str, b: str, measures: Iterable[str], compare: Compare, words: str
) -> Callable[[Claim, "ConditionsResults"], None]:
    """A function that compares two starts on every job, and counts what comes out."""

    def decide(c: Claim, results: "ConditionsResults") -> None:
        for job, optimiser in itertools.product(JOBS, RATES):
            run = results.run(job, optimiser)
            for measure in (m for m in measures if m in run.measures):
                compare_starts(c, run, measure, (named(a, job), named(b, job)), compare)
        found, ratios = list(c.facts.values()), [m.estimate.value for m in c.measured.values()]
        c.headline = (
            f"{words} in {found.count(True)} of {len(found)}, not in {found.count(False)}, open in "
            f"{found.count(None)}; median ratio {statistics.median(ratios):.2g}"
        )

    return decide


AS_GOOD, BETTER = (is_no_larger, "as good"), (is_smaller, "better")
CLAIMS: Claims = {
    "S1": (
        "default as good as nn.Linear's start",
        f"Hyperfan-in at {OURS}, {start_name(GIVEN_SHARE)} with given conditions and {start_name(TASKS_SHARE)} with "
        "tasks, is at least as good as nn.Linear's start, each at its best rate",
        _compare(OURS, LINEAR, LOSSES, *AS_GOOD),
    ),
    "S2": (
        "default as good as Bias-HyperInit",
        f"{OURS.capitalize()} is at least as good as Bias-HyperInit, {NONE}, the best start that people write by hand",
        _compare(OURS, NONE, LOSSES, *AS_GOOD),
    ),
    "S3": (
        "Bias-HyperInit as good as hyperfan-in",
        "Beck et al. 2022: Bias-HyperInit is as good as or better than hyperfan-in as published",
        _compare(NONE, ALL, (END,), *AS_GOOD),
    ),
    "S4": (
        "default better on unseen conditions",
        f"Under unseen conditions {OURS} is better than hyperfan-in as published, {ALL}",
        _compare(OURS, ALL, (UNSEEN,), *BETTER),
    ),
    "S5": (
        "default forgets no more than hyperfan-in",
        f"With tasks one after another {OURS} forgets no more than {ALL}",
        _compare(OURS, ALL, (FORGETTING,), *AS_GOOD),
    ),
}
