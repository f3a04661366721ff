"""Runs as figures and pages need them: settings that a figure compares, and one run with all that its page shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperfan.charts.axis import digits
from hyperfan.charts.palette import NO_INITS, Look, init_label, looks
from hyperfan.charts.panel import Panel
from hyperfan.metrics import Kind, Rows, describe_outcome, divergence, of_kind, series
from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.text import capitalise


@dataclass(frozen=True)
class Section:
    """Charts that only one kind of run has, under a heading and above a caption."""

    heading: str
    caption: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class RunData:
    """One run, with its metrics.

    Args:
        sentence: its outcome; by default the one that the metrics show.
        text: a table shown as it is.
        stage: the unit that steps are counted in, as "epoch", and its number of batches.
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
        """The diagnosis before training, if there was one."""
        found = next(of_kind(self.rows, Kind.DIAGNOSIS), None)
        return None if found is None else Diagnosis.from_dict(found)

    def outcome(self) -> str:
        """The outcome, in a sentence."""
        if self.sentence:
            return self.sentence
        begun = capitalise(describe_outcome(self.rows))
        if divergence(self.rows) is not None:
            return f"{begun}."
        losses, accuracies = series(self.rows, Kind.TRAIN, "loss"), series(self.rows, Kind.TEST, "accuracy")
        begun += f"; training loss {digits(losses[-1][1])}" if losses else ""
        last = accuracies[-1][1] if accuracies else None
        return f"{begun}; {last:.2%} of the test images right." if last is not None else f"{begun}."


@dataclass(frozen=True)
class Setting:
    """One of the things compared: the metrics of its runs, one for each seed, of which some figures draw the first."""

    label: str
    runs: tuple[Rows, ...]
    look: Look
    switches: tuple[str, ...] = ()


def settings(runs: Mapping[str, Sequence[Rows]], inits: Mapping[str, str] = NO_INITS) -> list[Setting]:
    """Settings by their labels; ``inits`` has the init of each, which gives its look (:func:`~.palette.looks`)."""
    found = zip(runs.items(), looks(list(runs), inits), strict=True)
    return [Setting(init_label(label), tuple(rows), look) for (label, rows), look in found]


def legend(settings: Sequence[Setting]) -> list[tuple[str, Look]]:
    """Each setting, and how many of its runs diverged if any did."""
    entries = []
    for s in settings:
        diverged = sum(divergence(rows) is not None for rows in s.runs)
        note = f" ({diverged} of {len(s.runs)} diverged)" if diverged else ""
        entries.append((s.label + note, s.look))
    return entries
