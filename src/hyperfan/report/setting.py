"""Settings that a figure compares, each with its runs and its look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperfan.charts.palette import LABELS, Look, looks
from hyperfan.metrics import Rows, divergence


@dataclass(frozen=True)
class Setting:
    """One of the things compared.

    Args:
        label: its name in the figure.
        runs: the metrics of its runs, one for each seed. Where only one is drawn, it is the first.
        look: its colour and dash.
        switches: names of the switches that show it in a page.
    """

    label: str
    runs: tuple[Rows, ...]
    look: Look
    switches: tuple[str, ...] = ()


def settings(runs: Mapping[str, Sequence[Rows]]) -> list[Setting]:
    """Settings by their labels. A label that starts with the name of an init has the look of that init."""
    found = zip(runs.items(), looks(list(runs)), strict=True)
    return [Setting(LABELS.get(label, label), tuple(rows), look) for (label, rows), look in found]


def legend(settings: Sequence[Setting]) -> list[tuple[str, Look]]:
    """Each setting, and how many of its runs diverged if any did."""
    entries = []
    for s in settings:
        diverged = sum(divergence(rows) is not None for rows in s.runs)
        note = f" ({diverged} of {len(s.runs)} diverged)" if diverged else ""
        entries.append((s.label + note, s.look))
    return entries
