"""What an experiment publishes about finished runs of a classifier: the numbers of every setting, and their table."""

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import C, R, Results
from hyperfan.text import markdown_table


class ClassifierResults(Results[C, R]):
    """The results of runs that differ in setting and seed."""

    columns: ClassVar[Sequence[tuple[str, str, str]]] = ()
    """The table of settings on the page: each column's header, and key and format of its numbers."""

    @abstractmethod
    def numbers(self, runs: Sequence[R]) -> dict[str, Any]:
        """What ``summary.json`` says about the runs of one setting, beside seeds and divergence."""

    def need_each(self, inits: Iterable[str], **changes: Any) -> dict[str, list[R]]:
        """The runs of each init, with these changes to the base; raises if one has none."""
        base: Any = self.base
        return {init: self.runs.need(replace(base, init=init, **changes)) for init in inits}

    @functools.cached_property
    def settings(self) -> list[dict[str, Any]]:
        """The numbers of every setting, in the order of the grid; those of a seed that chooses rates by themselves."""
        base: Any = self.base
        configs: Any = self.runs.experiment.grid(base)
        seen = dict.fromkeys(replace(c, seed=base.seed) for c in configs)
        groups = [[r for r in self.runs.seeds(c) if r.chooses == chooses] for c in seen for chooses in (True, False)]
        return [
            {
                **self.numbers(runs),
                "seeds": [r.config.seed for r in runs],
                "diverged": sum(r.diverged for r in runs),
            }
            for runs in groups
            if runs
        ]

    def summary(self) -> dict[str, Any]:
        """The numbers of every setting, for ``summary.json``."""
        return {"settings": self.settings}

    def table(self) -> str:
        """The table of settings in Markdown."""
        rows = [[_cell(row[key], form) for _, key, form in self.columns] for row in self.settings]
        return markdown_table([header for header, _, _ in self.columns], rows)


def mean_of(
    values: Sequence[float], estimate: Callable[[Sequence[float]], Estimate] = Estimate.of
) -> dict[str, Any] | None:
    """The mean with its interval, or another estimate, for JSON; ``None`` where there is no value."""
    return asdict(estimate(values)) if values else None


def _cell(value: Any, form: str) -> str:
    """A cell of a table: of a list its length, of a mean also its interval."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return str(len(value))
        case dict():
            return Estimate(**value).format(form)
    return f"{value:{form}}"
