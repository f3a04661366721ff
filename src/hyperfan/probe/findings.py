"""Findings: their names, which do not change from net to net, and what each says."""

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

Severity = Literal["error", "warning", "note"]
"""An error keeps the net from learning; a warning will cost; a note is for your information and leaves it healthy."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Severities from the worst to the mildest."""
MAX_PLACES_SHOWN = 3
REPORT_WIDTH = 116
"""Columns of a printed finding."""


class FindingName(StrEnum):
    """The names of all findings, which do not change from net to net."""

    VALUES_NOT_FINITE = "values that are not finite"
    LOSS_NOT_FINITE = "a loss that is not finite"
    FLAT_LOSS = "a loss without a gradient"
    LEFT_OUT = "parameters that the optimiser does not hold"
    WRONG_SCALE = "wrong scale of a head"
    ZERO_OUTPUT = "dead head: zero output"
    CONSTANT_OUTPUT = "dead head: constant in the embedding"
    ZERO_GRADIENT = "dead head: zero gradient"
    ZERO_FACTORS = "two zero factors in a row"
    DETACHED = "no gradient to the hypernet"
    NO_TRUNK_GRADIENT = "no gradient to the trunk"
    NO_EMBEDDING_GRADIENT = "no gradient to the embedding"
    INPUTS_OFF_SCALE = "inputs off scale"
    TARGETS_OFF_SCALE = "targets off scale"
    INPUTS_ALIKE = "inputs that look alike at the output"
    NORMS_OFF = "norm parameters not at 1 and 0"
    NOISE = "noise larger than signal"
    SATURATED_TANH = "saturated tanh"
    SATURATED_SIGMOID = "saturated sigmoid"
    DEAD_RELU = "dead ReLU"
    EXPLODING_ACTIVATIONS = "exploding activations"
    VANISHING_ACTIVATIONS = "vanishing activations"
    EXPLODING_GRADIENTS = "exploding gradients"
    VANISHING_GRADIENTS = "vanishing gradients"
    LOSS_TOO_LARGE = "loss far from ln(classes)"
    LOSS_BELOW_GUESSING = "loss below that of guessing"
    RATE_TOO_LARGE = "learning rate too large"
    BELOW_EPSILON = "gradients below the optimiser's epsilon"
    CONDITIONS_OFF_SCALE = "conditions off scale"
    CONDITIONS_ALIKE = "conditions that are alike"
    UNRELATED = "unrelated nets of two conditions"
    UNCONDITIONED = "no dependence on the condition at the start"
    NO_PREDICTION = "no prediction"
    DEPENDS_ON_WIDTH = "scale that depends on the width"
    DEPENDS_ON_DEPTH = "scale that depends on the depth"

    __repr__ = str.__repr__


@dataclass(frozen=True)
class Finding:
    """A fault that was found: what was seen, why it is likely, and the call that mends it.

    Args:
        name: a :class:`FindingName`, as a string.
        severity: how bad it is.
        where: the layers, tensors or parts concerned.
        evidence: the numbers.
        cause: the likely reason.
        remedy: the call that mends it.
    """

    name: str
    severity: Severity
    where: tuple[str, ...]
    evidence: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.name}{in_places(self.where)}"]
        for label, text in (("  seen:", self.evidence), ("  likely:", self.cause), ("  mend:", self.remedy)):
            lines.append(textwrap.fill(text, REPORT_WIDTH, initial_indent=f"{label:<10}", subsequent_indent=" " * 10))
        return "\n".join(lines)


def remedies_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings as they are printed: a remedy that was printed before is not repeated."""
    printed: set[str] = set()
    for finding in findings:
        yield dataclasses.replace(finding, remedy="as above") if finding.remedy in printed else finding
        printed.add(finding.remedy)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by severity; those of one severity keep their order."""
    return tuple(sorted(findings, key=lambda f: SEVERITIES.index(f.severity)))


def without_notes(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that are worse than a note."""
    return [f for f in findings if f.severity != "note"]


def in_places(names: Sequence[str]) -> str:
    """Where something is, for the end of a sentence: the first names, and how many more there are."""
    more = f" and {len(names) - MAX_PLACES_SHOWN} more" if len(names) > MAX_PLACES_SHOWN else ""
    return " in " + ", ".join(f"'{n}'" for n in names[:MAX_PLACES_SHOWN]) + more if names else ""
