"""A run as its page needs it: what was measured, by quantity and layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.report.axis import digits
from hyperfan.report.panel import Panel
from hyperfan.report.setting import Rows


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
class RunData:
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

    def of(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """The lines of one kind."""
        return (r for r in self.rows if r["kind"] == kind)

    def series(self, kind: str, key: str) -> list[tuple[int, float | None]]:
        """Steps and values."""
        return [(r["step"], r[key]) for r in self.of(kind) if key in r]

    def history(self, quantity: str) -> dict[str, list[tuple[int, float | None, float | None]]]:
        """Steps, means and standard deviations of each layer or tensor."""
        found: dict[str, list[tuple[int, float | None, float | None]]] = {}
        for row in self.of("moments"):
            if row["of"] == quantity:
                for where, (mean, std) in row["layers"].items():
                    found.setdefault(where, []).append((row["step"], mean, std))
        return found

    def histograms(self, quantity: str, *, last: bool) -> dict[str, Mapping[str, Any]]:
        """Of each layer or tensor before training, or the last that were taken in it."""
        taken = [r for r in self.of("histograms") if r["of"] == quantity and (r["step"] > 0) == last]
        return dict(taken[-1]["layers"]) if taken else {}

    def quantities(self) -> list[str]:
        """What was measured inside it."""
        return list(dict.fromkeys(r["of"] for r in self.rows if r["kind"] in ("moments", "histograms")))

    def diagnosis(self) -> Diagnosis | None:
        """What was seen before training, if it was looked for."""
        found = next(self.of("diagnosis"), None)
        return None if found is None else Diagnosis.from_dict(found)

    def steps(self) -> int:
        """How far it got."""
        return max((int(r["step"]) for r in self.rows), default=0)

    def told(self) -> str:
        """What came out, in a sentence."""
        if self.sentence:
            return self.sentence
        end = next(self.of("end"), None)
        if end is not None and end["outcome"] == "diverged":
            where = "the loss itself" if end.get("layer") is None else f"layer '{end['layer']}'"
            return f"Diverged at batch {end['step'] + 1:,}; the first to overflow was {where}."
        begun = "Finished" if end is not None else "Not finished: it has come to batch"
        begun += f" after batch {self.steps():,}" if end is not None else f" {self.steps():,}"
        losses, shares = self.series("train", "loss"), self.series("test", "accuracy")
        begun += f"; training loss {digits(losses[-1][1])}" if losses else ""
        last = shares[-1][1] if shares else None
        return f"{begun}; {last:.2%} of the test images right." if last is not None else f"{begun}."
