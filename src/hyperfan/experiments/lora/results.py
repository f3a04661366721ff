"""What is read from runs of the LoRA experiment, drawn and published."""

import contextlib
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hyperfan.charts.palette import LINEAR, looks
from hyperfan.errors import RunError
from hyperfan.experiments.lora import (
    CHOOSING_SEEDS,
    D2L,
    OURS,
    PER_TASK,
    PLACES,
    RIVALS,
    SHIFTS,
    STARTS,
    T2L,
    TORCH,
    Lora,
    choosing,
    compared,
)
from hyperfan.experiments.lora.claims import (
    CLAIMS,
    DURING,
    END,
    HELD_LOSS,
    HELD_RIGHT,
    MEASURES,
    RIGHT,
    RIGHT_MARGIN,
    SHARES,
    UNCONDITIONED_SHARE,
)
from hyperfan.experiments.lora.strings import split
from hyperfan.experiments.lora.training import HELD_OUT, NAMED_PART, PRETRAINING_RATE, TRAINED
from hyperfan.experiments.results.pairs import ChosenBy
from hyperfan.experiments.results.runs import NamedFigure, Run
from hyperfan.experiments.results.side_by_side import edge_sentences
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import Results
from hyperfan.generators import LoRA
from hyperfan.init.methods.charakorn2025 import (
    D2L_COMMON,
    D2L_GENERATED,
    doc_to_lora_variances,
    text_to_lora_variance,
)
from hyperfan.metrics import Kind, Row
from hyperfan.report import StartScores, losses_and_scores
from hyperfan.text import markdown_table, table

TESTED = {
    END: (TRAINED, "losses"),
    HELD_LOSS: (HELD_OUT, "losses"),
    RIGHT: (TRAINED, "accuracies"),
    HELD_RIGHT: (HELD_OUT, "accuracies"),
}
"""Which tasks a measure is of, and its key in the metrics."""
Choice = tuple[str, float]
"""A start and its rate."""
SCORE = "Strings of held-out tasks answered without a mistake"
NOTE = "Means over seeds, geometric of losses; 95 % intervals. Each start at its best rate, chosen on other seeds."
NOTE_OF_ONE = "One seed, each start at the rate where its mean training loss is lowest."


@dataclass(frozen=True)
class LoraRun(Run[Lora]):
    """The finished nets of one seed."""

    def score(self, measure: str, start: str, rate: float) -> float:
        """A measure of a net; of one that diverged an infinite loss, and no string right."""
        if measure == DURING:
            losses = list(self.losses(start, rate).values())
            return statistics.fmean(losses) if losses else math.inf
        return self._read(self._tests(TESTED[measure][0])[-1], measure, start, rate)

    def losses(self, start: str, rate: float) -> dict[int, float]:
        """Step → mean training loss since the last measurement."""
        at, first = self.config.members.index((start, rate)), self.config.pretraining
        values = {row["step"] - first: row["losses"][at] for row in self.of(Kind.LOSSES)}
        return {step: math.inf if value is None else float(value) for step, value in values.items()}

    def without_words(self, measure: str) -> float:
        """A measure of the language model with blank words in place of the task's; ours starts as it is."""
        ours = next(member for member in self.config.members if member[0] == OURS)
        return self._read(self._tests(TESTED[measure][0])[0], measure, *ours)

    @property
    def with_words(self) -> float:
        """The part of all tasks' strings that the language model has right with the words of the task."""
        row = self.last(Kind.TEST)
        assert row is not None
        return float(row["accuracy"])

    def _tests(self, of: str) -> list[Row]:
        return [row for row in self.of(Kind.ERRORS) if row["of"] == of]

    def _read(self, row: Row, measure: str, start: str, rate: float) -> float:
        value = row[TESTED[measure][1]][self.config.members.index((start, rate))]
        return float(value) if value is not None else 0.0 if measure in SHARES else math.inf

    def best(self, start: str, measure: str) -> float:
        """The rate with the best value of a measure."""
        return best_rate([self], start, measure)

    def cells(self) -> list[list[str]]:
        """Every net: start, rate and measures."""
        return [
            [STARTS[start], f"{rate:g}", *(cell(measure, self.score(measure, start, rate)) for measure in MEASURES)]
            for start, rate in self.config.members
        ]

    def sentence(self) -> str:
        """What the first start came to."""
        start = self.config.starts[0]
        rate = self.best(start, DURING)
        right = {m: cell(m, self.score(m, start, rate)) for m in SHARES}
        return (
            f"{STARTS[start]}, at its best rate, {rate:g}: after {self.config.steps} steps {right[RIGHT]} of the "
            f"strings of trained tasks are right, and {right[HELD_RIGHT]} of those of held-out tasks."
        )

    def text(self) -> str:
        """The table of all nets."""
        return table(["start", "rate", *MEASURES.values()], self.cells())

    def figures(self) -> Iterator[NamedFigure]:
        """The losses of this seed."""
        best = {start: self.best(start, DURING) for start in self.config.starts}
        yield "loss", compare_starts([self], best, best, f"LoRA from a condition: one seed, {self.config.steps} steps")


def best_rate(runs: Sequence[LoraRun], start: str, measure: str) -> float:
    """The rate at which the mean of a measure over runs is best; nothing is held out of a LoRA per task."""
    rates = [rate for each, rate in runs[0].config.members if each == start]
    sign = -1 if measure in SHARES else 1
    return min(rates, key=lambda rate: (sign * statistics.fmean(run.score(measure, start, rate) for run in runs), rate))


def compare_starts(
    runs: Sequence[LoraRun], loss_rates: dict[str, float], right_rates: dict[str, float], title: str
) -> str:
    """Loss against steps and strings of held-out tasks that are right, each start at its rates."""
    names = [STARTS[start] for start in loss_rates]
    chosen = looks(names, {STARTS[OURS]: "hyperfan-in", STARTS[TORCH]: LINEAR})
    drawn = []
    for (start, rate), look in zip(loss_rates.items(), chosen, strict=True):
        curves = [run.losses(start, rate) for run in runs]
        losses = {
            step: statistics.geometric_mean([curve[step] for curve in curves])
            for step in curves[0]
            if all(math.isfinite(curve[step]) for curve in curves)
        }
        right = Estimate.mean_share([run.score(HELD_RIGHT, start, right_rates[start]) for run in runs])
        score = None if start == PER_TASK else (right.value, right.low, right.high)
        drawn.append(StartScores(STARTS[start], look, losses, score))
    return losses_and_scores([d for d in drawn if d.losses], title, SCORE, NOTE if len(runs) > 1 else NOTE_OF_ONE)


def measures_of(start: str) -> list[str]:
    """The measures that a start has: nothing is held out of a LoRA per task."""
    return [measure for measure in MEASURES if start != PER_TASK or measure not in (HELD_LOSS, HELD_RIGHT)]


def cell(measure: str, value: float) -> str:
    """A measure in a table."""
    if not math.isfinite(value):
        return "∞"
    return f"{value:.0%}" if measure in SHARES else f"{value:.2g}"


class LoraResults(Results[Lora, LoraRun]):
    """The seeds that choose rates, those that are compared, and the claims."""

    claims = CLAIMS

    def check(self) -> None:
        """One seed of each kind must be there."""
        for config in (choosing(self.base)[0], compared(self.base)[0]):
            self.runs.one(config)

    @property
    def choosers(self) -> list[LoraRun]:
        """The seeds that choose."""
        return [self.runs.one(config) for config in choosing(self.base) if config in self.runs]

    @property
    def compared(self) -> list[LoraRun]:
        """The seeds that are compared; raises if there is none."""
        found = [self.runs.one(config) for config in compared(self.base) if config in self.runs]
        if not found:
            raise RunError("there is no finished run of a seed to compare")
        return found

    def best(self, start: str, measure: str, chosen_by: ChosenBy = ChosenBy.OTHERS) -> float:
        """The best rate of a start by a measure."""
        return best_rate(self.choosers if chosen_by is ChosenBy.OTHERS else self.compared, start, measure)

    def compare(self, measure: str, a: Choice, b: Choice) -> Estimate:
        """One over the other, seed by seed, or for shares one less the other."""
        pairs = [(run.score(measure, *a), run.score(measure, *b)) for run in self.compared]
        return (
            Estimate.of([x - y for x, y in pairs]) if measure in SHARES else Estimate.ratio([x / y for x, y in pairs])
        )

    def rates(self, measure: str) -> dict[str, float]:
        """The best rate of every start by a measure."""
        return {start: self.best(start, measure) for start in self.base.starts}

    def figures(self) -> Iterator[NamedFigure]:
        """Losses and held-out tasks."""
        starts = len(set(self.base.starts) - {PER_TASK})
        title = f"LoRA from a task vector, {starts} starts of the hypernet: {len(self.compared)} seeds"
        yield "loss", compare_starts(self.compared, self.rates(DURING), self.rates(HELD_RIGHT), title)

    def summary(self) -> dict[str, Any]:
        """Every measure of each start at every rate, seed by seed; and by start and measure best rates and ratios."""
        settings = []
        for start, rate in self.base.members:
            values = {words: [run.score(m, start, rate) for run in self.compared] for m, words in MEASURES.items()}
            settings.append({"start": start, "rate": rate, **values})
        best = {start: {m: self.best(start, m) for m in measures_of(start)} for start in self.base.starts}
        return {"settings": settings, "best rates": best, "ours over rivals": dict(self._over_rivals(best))}

    def _over_rivals(self, best: dict[str, dict[str, float]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each rival with ours over it by each measure, or for shares less it; not where a run diverged."""
        for rival in RIVALS:
            found = {}
            for measure in MEASURES:
                with contextlib.suppress(RunError):
                    ours, other = ((start, best[start][measure]) for start in (OURS, rival))
                    found[measure] = asdict(self.compare(measure, ours, other))
            yield rival, found

    def fields(self) -> dict[str, Any]:
        """The settings and tables."""
        c, (trained, held) = self.base, split(self.base.seed)
        runs = self.compared
        return {
            "seeds": len(runs),
            "choosing": CHOOSING_SEEDS,
            "places": ", ".join(PLACES),
            "shifts": ", ".join(map(str, SHIFTS)),
            "tasks": len(trained) + len(held),
            "trained": len(trained),
            "held_out": len(held),
            "best": self._best(),
            "all": self._all_rates(),
            "edges": self._edges(),
            "words_right": f"{Estimate.of([run.with_words for run in runs]).value:.1%}",
            "blank_loss": f"{Estimate.of([run.without_words(END) for run in runs]).value:.2g}",
            "blank_right": f"{Estimate.of([run.without_words(RIGHT) for run in runs]).value:.1%}",
            "start_count": len(set(c.starts) - {PER_TASK}),
            "rate_factors": self._rate_factors(),
            "rate_counts": " or ".join(map(str, sorted({len(rates) for rates in self._tried.values()}))),
            "linear_during": self._during_over_ours(TORCH),
            "doc_during": self._during_over_ours(D2L),
            "text_during": self._during_over_ours(T2L),
            "linear_loss": f"{statistics.fmean(self._before(run, TORCH) for run in runs):.2g}",
            "doc_scale": f"{self._doc_scale():.1g}",
            "named_part": f"{NAMED_PART:.0%}",
            "update_share": LoRA.share,
            "doc_generated": D2L_GENERATED,
            "doc_common": D2L_COMMON,
            "text_scale": f"√{1 / c.width / text_to_lora_variance(c.width):g}",
            "pretraining_rate": PRETRAINING_RATE,
            "unconditioned_share": f"{UNCONDITIONED_SHARE:.0%}",
            "batch_strings": len(trained) * c.strings,
            "trained_tests": len(trained) * c.test_strings,
            "held_tests": len(held) * c.test_strings,
            "right_margin": f"{RIGHT_MARGIN:.0%}",
            "time": "about 15 minutes on one core",
            "alpha": c.alpha,
        }

    def _best(self) -> str:
        """A row for each start, each measure at the rate that is best for it."""
        rows = []
        for start in self.base.starts:
            cells = []
            for measure in MEASURES:
                if measure not in measures_of(start):
                    cells.append("")
                    continue
                rate = self.best(start, measure)
                found = Estimate.median([run.score(measure, start, rate) for run in self.compared])
                if measure in SHARES:
                    found = Estimate.mean_share([run.score(measure, start, rate) for run in self.compared])
                cells.append(f"{found.format('.0%' if measure in SHARES else '.2g')} at {rate:g}")
            before = statistics.fmean(self._before(run, start) for run in self.compared)
            rows.append([STARTS[start], f"{before:.2g}", *cells])
        return markdown_table(["start", "loss before training", *MEASURES.values()], rows)

    def _during_over_ours(self, start: str) -> str:
        rates = self.rates(DURING)
        return self.compare(DURING, (start, rates[start]), (OURS, rates[OURS])).format()

    def _before(self, run: LoraRun, start: str) -> float:
        first = next(row for row in run.of(Kind.ERRORS) if row["of"] == TRAINED)
        index = [each for each, _ in run.config.members].index(start)
        return float(first["losses"][index])

    def _doc_scale(self) -> float:
        """Root mean square of Doc-to-LoRA's A over that of ours, of a code of norm 1."""
        c = self.base
        return math.sqrt(sum(doc_to_lora_variances(c.width, c.width, c.rank, c.code)) * c.width)

    @property
    def _tried(self) -> dict[str, list[float]]:
        """The rates of each start."""
        return {start: [rate for each, rate in self.base.members if each == start] for start in self.base.starts}

    def _rate_factors(self) -> str:
        """By which factors the rates of a start are apart; empty where each has one."""
        pairs = [pair for rates in self._tried.values() for pair in itertools.pairwise(sorted(rates))]
        factors = sorted({f"{high / low:.3g}" for low, high in pairs})
        return f", a factor of {' or '.join(factors)} apart" if factors else ""

    def _edges(self) -> str:
        """Which starts learn fastest at an end of their range of rates, where another might be better still."""
        best = {STARTS[start]: (rate, self._tried[start]) for start, rate in self.rates(DURING).items()}
        return edge_sentences(best) or "No start learns fastest at an end of its range of rates."

    def _all_rates(self) -> str:
        rows = []
        for start, rate in self.base.members:
            medians = {m: statistics.median(run.score(m, start, rate) for run in self.compared) for m in MEASURES}
            cells = [cell(m, value) if m in measures_of(start) else "" for m, value in medians.items()]
            rows.append([STARTS[start], f"{rate:g}", *cells])
        return markdown_table(["start", "rate", *MEASURES.values()], rows)
