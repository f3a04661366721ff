"""What is compared in a figure: settings, each with its runs, its colour and its line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Mapping[str, Any]]
"""The metrics of a run, line by line."""

Line = str | tuple[int, tuple[int, ...]]
"""As matplotlib understands it."""
# Okabe and Ito's colours, told apart by colour-blind people. Lines differ too, for print in black and white.
_LOOKS: tuple[tuple[str, Line], ...] = (
    ("#000000", "--"),
    ("#D55E00", "-"),
    ("#009E73", ":"),
    ("#0072B2", "-."),
    ("#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    ("#56B4E9", (0, (1, 3))),
    ("#E69F00", (0, (8, 3))),
)


@dataclass(frozen=True)
class Setting:
    """One of the things compared.

    Args:
        label: what it is called.
        runs: the metrics of its runs, one for each seed. Where only one is drawn, it is the first.
        colour, line: how it is drawn.
    """

    label: str
    runs: tuple[Rows, ...]
    colour: str
    line: Line

    def layers(self, kind: str, quantity: str, step: int) -> Mapping[str, Any] | None:
        """What the first run measured of a quantity at a step, by layer."""
        found = (r for r in self._of(kind, quantity) if r["step"] == step)
        return next((r["layers"] for r in found), None)

    def history(self, quantity: str, where: str) -> tuple[list[int], list[float | None], list[float | None]]:
        """Steps, means and standard deviations of a quantity in one layer of the first run."""
        rows = list(self._of("moments", quantity))
        pairs = [r["layers"][where] for r in rows]
        return [r["step"] for r in rows], [mean for mean, _ in pairs], [std for _, std in pairs]

    def end(self) -> Mapping[str, Any] | None:
        """How the first run ended, if it did."""
        return next((r for r in self.runs[0] if r["kind"] == "end"), None)

    def _of(self, kind: str, quantity: str) -> Iterator[Mapping[str, Any]]:
        return (r for r in self.runs[0] if r["kind"] == kind and r["of"] == quantity)


def settings(runs: Mapping[str, Sequence[Rows]]) -> list[Setting]:
    """Settings by their labels, each with a look of its own."""
    return [Setting(label, tuple(r), *look) for (label, r), look in zip(runs.items(), looks(len(runs)), strict=True)]


def looks(n: int) -> list[tuple[str, Line]]:
    """A colour and a line for each of n things."""
    return [_LOOKS[i % len(_LOOKS)] for i in range(n)]
