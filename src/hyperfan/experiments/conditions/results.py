"""What is read from runs of the conditions experiment, drawn and published."""

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from hyperfan.experiments.conditions import (
    CODE_SQUARES,
    JOB_TABLE,
    JOBS,
    LINEAR,
    RATES,
    SMALL_OUTPUT_VARIANCE,
    STAGES,
    Conditions,
    setting,
    start_name,
    trunk_setting,
)
from hyperfan.experiments.conditions.claims import (
    ALL,
    CLAIMS,
    DURING,
    END,
    FORGETTING,
    LEARNT,
    MEASURES,
    NONE,
    UNSEEN,
)
from hyperfan.experiments.conditions.claims.comparisons import comparison_fields, means_over_published
from hyperfan.experiments.conditions.claims.starts import MEASURED_JOBS, SEEDS, AtStart, at_start
from hyperfan.experiments.conditions.claims.trunks import trunk_tables
from hyperfan.experiments.conditions.pictures import CLASSES, MAX_PICTURES, Clients, Field
from hyperfan.experiments.conditions.training import JOBS_BY_NAME, TEST_CONDITIONS, TEST_POINTS, widths
from hyperfan.experiments.optimisers import SgdOrAdamW
from hyperfan.experiments.results.runs import NamedFigure
from hyperfan.experiments.results.side_by_side import (
    SideBySide,
    edge,
    forgetting,
    nan_to_inf,
    right_after,
)
from hyperfan.experiments.results.write import Results
from hyperfan.hypernet.condition_defaults import GIVEN_CODE_SQUARE, GIVEN_SHARE, TASKS_SHARE
from hyperfan.metrics import Kind
from hyperfan.report import losses_by_share
from hyperfan.text import markdown_table, table, two_digits


@dataclass(frozen=True)
class ConditionsRun(SideBySide[Conditions]):
    """The finished runs of a job with an optimiser."""

    @functools.cached_property
    def losses(self) -> Tensor:
        """Loss under known conditions, (start, rate, seed, measurement)."""
        return self.read_losses(1).squeeze(-2)

    @functools.cached_property
    def unseen(self) -> Tensor:
        """Loss under unseen conditions, (start, rate, seed, measurement)."""
        return self.read_losses(1, "unseen").squeeze(-2)

    @functools.cached_property
    def errors(self) -> Tensor:
        """Loss of every task after each task, and before the first, (start, rate, seed, tasks learnt, task)."""
        return self.read(Kind.ERRORS, "errors", lambda row: (row["learnt"],), (STAGES + 1, STAGES))

    @property
    def shape(self) -> tuple[int, int]:
        """How many starts and rates there are."""
        return len(self.config.starts), len(self.config.rates)

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured in this job."""
        job = JOBS_BY_NAME[self.config.job]
        if job.stages > 1:
            return DURING, END, LEARNT, FORGETTING
        return (DURING, END, UNSEEN) if job.unseen else (DURING, END)

    def scores(self, measure: str, start: str, lr: float | None = None) -> list[float]:
        """A measure of each seed's run at a rate, by default the best; infinite after a divergence."""
        at = self.config.starts.index(start), self.config.rates.index(self.best(start) if lr is None else lr)
        found: Callable[[], Tensor] = {
            DURING: lambda: self.losses[at][:, 1:].mean(1),
            END: lambda: self.errors[at][:, -1].mean(1) if LEARNT in self.measures else self.losses[at][:, -1],
            UNSEEN: lambda: self.unseen[at][:, -1],
            LEARNT: lambda: right_after(self.errors[at]).mean(1),
            FORGETTING: lambda: forgetting(self.errors[at]),
        }[measure]
        return nan_to_inf(found()).tolist()

    def ends(self, lr: float, start: str = "") -> list[float]:
        """The loss at the end from a start, of each seed."""
        return self.scores(END, start, lr)

    def median(self, measure: str, start: str, lr: float | None = None) -> float:
        """The median over seeds, by default at the rate that suits them best."""
        return statistics.median(self.scores(measure, start, self.lowest(start) if lr is None else lr))

    def medians(self, measure: str, lr: float | None = None) -> list[float]:
        """The medians of all starts."""
        return [self.median(measure, start, lr) for start in self.config.starts]

    def cells(self) -> list[list[str]]:
        """Each start at its best rate: the rate, how many runs were finite, and medians."""
        rows = []
        for start in self.config.starts:
            lr = self.lowest(start)
            medians = [two_digits(self.median(measure, start)) for measure in self.measures]
            rows.append([start, f"{lr:g}", f"{self.finite(lr, start)} of {len(self.seeds)}", *medians])
        return rows

    def sentence(self) -> str:
        """The start with the lowest loss at the end."""
        lowest = min(self.config.starts, key=lambda start: self.median(END, start))
        of = f"{len(self.config.starts)} starts at {len(self.config.rates)} rates with {len(self.seeds)} seeds"
        return f"{of}: the lowest median loss at the end, {two_digits(self.median(END, lowest))}, has {lowest}."

    def text(self) -> str:
        """The table of starts."""
        header = ["start", "best rate", "finite", *(MEASURES[measure] for measure in self.measures)]
        return f"{table(header, self.cells())}\n\nMedians over seeds, each start at its best rate."

    def figures(self) -> Iterator[NamedFigure]:
        """Loss at the end against the share."""
        c = self.config
        title = f"{JOBS_BY_NAME[c.job].label}: {len(self.seeds)} runs of each start"
        yield "shares", losses_by_share({c.job: {c.optimiser: self.curve(END)}}, c.shares, LINEAR, title)

    def curve(self, measure: str) -> tuple[Tensor, Tensor]:
        """A measure at each share, (share, seed), and with nn.Linear's start, (seed), each at its best rate."""
        every = torch.tensor([self.scores(measure, start, self.lowest(start)) for start in self.config.starts])
        return every[: len(self.config.shares)], every[-1]


class ConditionsResults(Results[Conditions, ConditionsRun]):
    """The runs of all jobs with both optimisers."""

    claims = CLAIMS
    data_set = "mnist"

    def check(self) -> None:
        """One job must be there."""
        self.run(JOBS[0], "AdamW")

    def run(self, job: str, optimiser: SgdOrAdamW) -> ConditionsRun:
        """The runs of a job, at rates that were chosen on other seeds; raises if there are none."""
        return self.runs.with_chooser(setting(self.base, job, optimiser))

    @functools.cached_property
    def found(self) -> dict[tuple[str, SgdOrAdamW], ConditionsRun]:
        """The runs that are there, by job and optimiser."""
        pairs = itertools.product(JOBS, RATES)
        return self.runs.with_choosers({pair: setting(self.base, *pair) for pair in pairs})

    @functools.cached_property
    def starts(self) -> dict[str, dict[str, AtStart]]:
        """What two conditions' nets have in common before training, by job and start."""
        self.log("measuring untrained nets")
        return {job: at_start(self.base, job) for job in MEASURED_JOBS}

    def figures(self) -> Iterator[NamedFigure]:
        """Loss against the share under known conditions and under unseen ones; and forgetting."""
        titles = {
            END: "Loss at the end against the share of the variance that is generated",
            UNSEEN: "The same under conditions that training did not have",
            FORGETTING: "Forgetting: loss of earlier tasks at the end over that right after each",
        }
        for measure, title in titles.items():
            jobs: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
            for (job, optimiser), run in self.found.items():
                if measure in run.measures:
                    jobs.setdefault(job, {})[optimiser] = run.curve(measure)
            if jobs:
                yield measure, losses_by_share(jobs, self.base.shares, LINEAR, title)

    def summary(self) -> dict[str, Any]:
        """The numbers of each job, means over jobs, and the numbers of untrained nets."""
        starts = {job: {name: asdict(s) for name, s in found.items()} for job, found in self.starts.items()}
        settings = [_numbers(run) for run in self.found.values()]
        return {"settings": settings, "over published": list(means_over_published(self)), "starts": starts}

    def fields(self) -> dict[str, Any]:
        """The settings and tables."""
        c = self.base
        return {
            "jobs": "\n".join(f"- **{name}**: {job.__doc__}" for name, job in JOBS_BY_NAME.items()),
            "job_count": len(JOBS),
            "choosing": c.choosing().seeds,
            "rates": "; ".join(f"{o} {', '.join(f'{lr:g}' for lr in rates)}" for o, rates in RATES.items()),
            "given_share": f"{GIVEN_SHARE:g}",
            "tasks_share": f"{TASKS_SHARE:g}",
            "share_count": len(c.shares),
            "code_square": f"{GIVEN_CODE_SQUARE:g}",
            "code_squares": ", ".join(f"{square:g}" for square in CODE_SQUARES.values()),
            "code_count": len(CODE_SQUARES),
            "small_outputs": f"{SMALL_OUTPUT_VARIANCE:g}",
            "stages": STAGES,
            "job_sizes": self._job_sizes(),
            "field_side": Field.SIDE,
            "field_known": Field.known,
            "field_unseen": Field.unseen,
            "client_side": Clients.SIDE,
            "client_classes": Clients.CLASSES_EACH,
            "client_pictures": Clients.PICTURES_EACH,
            "classes": CLASSES,
            "max_pictures": f"{MAX_PICTURES:,}",
            "trunk_choosing": trunk_setting(c, JOBS[0], "SGD").choosing().seeds,
            "start_seeds": SEEDS,
            "test_conditions": TEST_CONDITIONS,
            "test_points": TEST_POINTS,
            "losses": self._medians(END),
            "unseen": self._medians(UNSEEN),
            "sequence": self._sequence(),
            "edges": self._edges(),
            "all": self._all(),
            "time": "about an hour on one core",
            **comparison_fields(self),
            **trunk_tables(self),
            **self._at_start(),
        }

    def _medians(self, measure: str) -> str:
        """The medians of a measure on every job, from every start; the lowest in bold."""
        rows = []
        for (job, optimiser), run in self.found.items():
            if measure in run.measures:
                medians = run.medians(measure)
                cells = [f"**{two_digits(m)}**" if m == min(medians) else two_digits(m) for m in medians]
                rows.append([job, optimiser, *cells])
        return markdown_table(["job", "optimiser", *self.base.starts], rows)

    def _job_sizes(self) -> str:
        """What conditions, batches and nets of each job are."""
        of_conditions = ["values", "distribution", "in training", "unseen", "in a batch", "points"]
        rows = []
        for name, job in JOBS_BY_NAME.items():
            mainnet = f"{_widths(widths(job, self.base.width))}, {job.nonlinearity}"
            trunk = _widths([job.size, *[self.base.width] * job.trunk_layers])
            conditions = [job.size, job.distribution, job.known, job.unseen, job.batch, job.points]
            steps = self.base.steps * JOB_TABLE[name].duration
            rows.append([name, *map(str, conditions), mainnet, trunk, str(steps)])
        return markdown_table(["job", *of_conditions, "mainnet", "trunk", "batches"], rows)

    def _sequence(self) -> str:
        rows = []
        for (job, optimiser), run in self.found.items():
            if FORGETTING in run.measures:
                for measure in (LEARNT, END, FORGETTING):
                    rows.append([job, optimiser, MEASURES[measure], *map(two_digits, run.medians(measure))])
        return markdown_table(["job", "optimiser", "measure", *self.base.starts], rows)

    def _edges(self) -> str:
        """Which starts are best at the end of the range of rates, where another might be better still."""
        found = []
        for (job, optimiser), run in self.found.items():
            ends = {start: edge(run.best(start), run.config.rates) for start in run.config.starts}
            names = [f"{start} ({end})" for start, end in ends.items() if end]
            if names:
                found.append(f"{job} with {optimiser}: {', '.join(names)}")
        return "; ".join(found) or "none"

    def _all(self) -> str:
        rows = []
        for (job, optimiser), run in self.found.items():
            for lr in run.config.rates:
                rows.append([job, optimiser, f"{lr:g}", *map(two_digits, run.medians(END, lr))])
        return markdown_table(["job", "optimiser", "rate", *self.base.starts], rows)

    def _at_start(self) -> dict[str, str]:
        """Tables of what two conditions' nets have in common."""
        rows, starts = [], self.base.starts
        for job, found in self.starts.items():
            of_shares = {share: found[start_name(share)] for share in self.base.shares}
            cells = [f"{a.correlation:.2f} ({1 - s + s * a.cosine:.2f})" for s, a in of_shares.items()]
            rows.append([job, f"{found[ALL].cosine:.2f}", *cells, f"{found[LINEAR].correlation:.2f}"])
        linear = [found[LINEAR] for found in self.starts.values()]
        ours = [found[ALL] for found in self.starts.values()]
        return {
            "correlations": markdown_table(["job", "cos(h, h′)", *starts], rows),
            "kernels": markdown_table(
                ["job", *starts], [[job, *(f"{of[s].kernel:.2f}" for s in starts)] for job, of in self.starts.items()]
            ),
            **{
                f"{name}_kernel": _range([of[start].kernel for of in self.starts.values()])
                for name, start in (("all", ALL), ("none", NONE), ("linear", LINEAR))
            },
            "linear_share": _range([a.share / max(o.share, 1e-9) for a, o in zip(linear, ours, strict=True)]),
            "linear_square": _range([a.square for a in linear]),
            **{f"{of}_code": _range([a.code for a in found]) for of, found in (("linear", linear), ("our", ours))},
        }


def _numbers(run: ConditionsRun) -> dict[str, Any]:
    """The best rate of each start, and its measures there by seed."""
    of_start = {
        start: {"best rate": run.best(start), **{MEASURES[m]: run.scores(m, start) for m in run.measures}}
        for start in run.config.starts
    }
    return {"job": run.config.job, "optimiser": run.config.optimiser, "starts": of_start}


def _widths(widths: Sequence[int]) -> str:
    return "-".join(map(str, widths))


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"
