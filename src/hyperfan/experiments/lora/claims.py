"""What is claimed about starts of LoRA hypernets, as facts that an interval can decide."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hyperfan.experiments.lora import OURS, PER_TASK, PLACES, RIVALS, STARTS
from hyperfan.experiments.results.claims import Claim, Claims, Fact
from hyperfan.experiments.results.pairs import LOSS_MARGIN, compare_at_best_rates
from hyperfan.experiments.results.statistics import Estimate

if TYPE_CHECKING:
    from hyperfan.experiments.lora.results import LoraResults

DURING, END, HELD_LOSS, RIGHT, HELD_RIGHT = "during", "end", "held-loss", "right", "held-right"
MEASURES = {
    DURING: "mean training loss",
    END: "loss at the end, trained tasks",
    HELD_LOSS: "loss at the end, held-out tasks",
    RIGHT: "strings right, trained tasks",
    HELD_RIGHT: "strings right, held-out tasks",
}
"""What is compared, seed by seed."""
SHARES = (RIGHT, HELD_RIGHT)
"""Measures of which more is better; they are compared by their differences, losses by their ratios."""
RIGHT_MARGIN = 0.05
"""A difference between two shares of strings that nobody would mind."""
UNCONDITIONED_SHARE = 1 / len(PLACES)
"""The share of held-out tasks' strings that nets without conditions have right at most.

Such a net has one answer to a string, whatever the task, and it is right in no more than one of these tasks, of which
there is one for each order: their shifts differ, and with them the sums of the answers' letters, as long as shift times
length differs too, by the number of letters, as it does in strings of the length that the page is about.
"""
Decide = Callable[[Estimate], Fact]


def is_less(ratio: Estimate) -> Fact:
    """Whether a ratio is below 1. It is not if it is certainly above."""
    return ratio.within(high=1)


def is_no_more(ratio: Estimate) -> Fact:
    """Whether a ratio is at most a little above 1. It is not if it is certainly above."""
    return ratio.is_below(LOSS_MARGIN, refuted_above=1)


def is_no_lower(difference: Estimate) -> Fact:
    """Whether a difference is at most a little below 0. It is not if it is certainly below."""
    return difference.is_above(-RIGHT_MARGIN, refuted_below=0)


def _compare(c: Claim, results: "LoraResults", measure: str, a: str, b: str, decide: Decide) -> Fact:
    """Compare two starts by a measure."""

    def at(label: str, *rates: float) -> Fact:
        return decide(c.measure(label, results.compare(measure, *zip((a, b), rates, strict=True))))

    word = " less " if measure in SHARES else " over "
    label = f"{MEASURES[measure]}, {word.join(f'{STARTS[start]} at {{:g}}' for start in (a, b))}"
    return compare_at_best_rates(label, [partial(results.best, start, measure) for start in (a, b)], at)


def _against_rivals(measure: str, decide: Decide, words: str) -> Callable[[Claim, "LoraResults"], None]:
    """A function that compares ours with each other start by a measure."""

    def decided(c: Claim, results: "LoraResults") -> None:
        for rival in RIVALS:
            c.decide(f"{words} {STARTS[rival]}", _compare(c, results, measure, OURS, rival, decide))
        nearest = next(iter(c.measured.values())).estimate  # the first rival's, at the rates chosen on other seeds
        c.headline = f"{nearest.format()} {'above' if measure in SHARES else 'of'} that of {STARTS[RIVALS[0]]}"

    return decided


def _per_task(c: Claim, results: "LoraResults") -> None:
    reached = _compare(c, results, RIGHT, OURS, PER_TASK, is_no_lower)
    c.decide(f"on trained tasks it is no worse than {STARTS[PER_TASK]}", reached)

    def uses_condition(label: str, rate: float) -> Fact:
        right = Estimate.mean_share([run.score(HELD_RIGHT, OURS, rate) for run in results.compared])
        return c.measure(label, right, ".0%").within(low=UNCONDITIONED_SHARE)

    rates = [partial(results.best, OURS, HELD_RIGHT)]
    more = compare_at_best_rates(f"{MEASURES[HELD_RIGHT]}, at {{:g}}", rates, uses_condition)
    c.decide(f"on held-out tasks it has more than {UNCONDITIONED_SHARE:.0%} right, which takes a condition", more)
    found = [Estimate.mean_share([r.score(m, OURS, results.best(OURS, m)) for r in results.compared]) for m in SHARES]
    worded = Estimate.mean_share([r.with_words for r in results.compared])
    c.measure("strings right where words tell the task", worded, ".0%")
    c.headline = f"{found[0].format('.0%')} right, held-out tasks {found[1].format('.0%')}"


CLAIMS: Claims = {
    "L1": (
        "LoRA: learns faster than rival starts",
        "A hypernet for LoRA that starts with B = 0 and A at scale learns faster than from Text-to-LoRA's start, "
        "Doc-to-LoRA's and nn.Linear's, each at its best rate",
        _against_rivals(DURING, is_less, "it learns faster than from"),
    ),
    "L2": (
        "LoRA: ends no higher on trained tasks",
        "It ends with no larger loss on the trained tasks",
        _against_rivals(END, is_no_more, "it ends no higher than from"),
    ),
    "L3": (
        "LoRA: no worse on held-out tasks",
        "It answers no fewer strings of held-out tasks",
        _against_rivals(HELD_RIGHT, is_no_lower, "no fewer strings of held-out tasks than from"),
    ),
    "L4": (
        "one hypernet equals a LoRA for each task",
        "One hypernet for all tasks is as good as a LoRA trained for each, and also serves tasks that it has not seen",
        _per_task,
    ),
}
