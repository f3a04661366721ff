"""A run as its page needs it: what was measured, by quantity and layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperfan.metrics import Kind, Metrics, Outcome, describe_divergence
from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.report.axis import digits
from hyperfan.report.panel import Panel
from hyperfan.report.setting import Rows
from hyperfan.text import capitalise


@dataclass(frozen=True)
class Section:
    """Charts that only one kind of run has.

    Args:
        heading: above them, and ``caption``, below.
        panels: the charts.
    """

    heading: str
    caption: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class RunData(Metrics):
    """One run.

    Args:
        name: what it is called.
        rows: its metrics, line by line.
        config, environment, times: names and values.
        sentence: what came out; by default what the metrics say.
        text: a table shown as it is.
        stage: what the run goes through, as "epoch", and how many batches each has.
        sections: charts that only this kind of run has.
    """

    name: str
    rows: Rows
    config: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[str, Any] = field(default_factory=dict)
    sentence: str = ""
    text: str = ""
    stage: tuple[str, int] = ("batch", 1)
    sections: Sequence[Section] = ()

    def diagnosis(self) -> Diagnosis | None:
        """What was seen before training, if it was looked for."""
        found = self.first(Kind.DIAGNOSIS)
        return None if found is None else Diagnosis.from_dict(found)

    def told(self) -> str:
        """What came out, in a sentence."""
        if self.sentence:
            return self.sentence
        end = self.first(Kind.END)
        if end is not None and end["outcome"] == Outcome.DIVERGED:
            return f"{capitalise(describe_divergence(end))}."
        begun = "Finished" if end is not None else "Not finished: it has come to batch"
        begun += f" after batch {self.steps():,}" if end is not None else f" {self.steps():,}"
        losses, shares = self.series(Kind.TRAIN, "loss"), self.series(Kind.TEST, "accuracy")
        begun += f"; training loss {digits(losses[-1][1])}" if losses else ""
        last = shares[-1][1] if shares else None
        return f"{begun}; {last:.2%} of the test images right." if last is not None else f"{begun}."
