"""A claim of the paper, taken apart into facts that an interval can decide; and how it is told."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperfan.errors import RunError
from hyperfan.experiments.statistics import Estimate

Verdict = Literal["holds", "holds in part", "does not hold", "not decided"]
Fact = bool | None
"""Whether something is so; ``None`` where the interval does not tell."""
CLAIM = """\
## {name}
**The paper:** {says}. **Verdict: {verdict}.** {remark}

| what it comes down to | |
|---|---|
{facts}

| measured | value [95 % interval], seeds |
|---|---|
{measured}
"""
ANSWERS = {True: "yes", False: "no", None: "not decided"}


@dataclass
class Claim:
    """A claim of the paper, what was measured, and the facts it comes down to.

    Args:
        name: as in the list of claims.
        says: the claim.
        measured: label → estimate, how many digits it is shown with, and a note beside it.
        facts: what must be so for it to hold → whether it is.
        remark: what a reader should know beside it, if the numbers bear it out.
    """

    name: str
    says: str
    measured: dict[str, tuple[Estimate, str, str]] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    remark: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whole if every fact is so; in part if some are and some are not; open while nothing speaks against it."""
        found = set(self.facts.values())
        if found == {True}:
            return "holds"
        if False in found:
            return "holds in part" if True in found else "does not hold"
        return "not decided"

    def measure(self, label: str, estimate: Estimate, form: str = ".3g", note: str = "") -> Estimate:
        """Put a number on the list."""
        self.measured[label] = estimate, form, note
        return estimate


def decide_all(claims: Mapping[str, tuple[str, Callable[..., None]]], *evidence: Any) -> list[Claim]:
    """Decide each by its function. One whose runs are missing is not decided, and says so."""
    found = []
    for name, (says, work) in claims.items():
        claim = Claim(name, says)
        try:
            work(claim, *evidence)
        except RunError as error:
            claim = Claim(name, says, remark=f"{str(error)[0].upper()}{str(error)[1:]}.")
        found.append(claim)
    return found


def within(e: Estimate, low: float = -math.inf, high: float = math.inf) -> Fact:
    """Whether a value lies between two bounds, as far as its interval tells."""
    if e.low is None or e.high is None:
        return None
    if low < e.low and e.high < high:
        return True
    return False if e.high < low or high < e.low else None


def all_of(facts: Iterable[Fact]) -> Fact:
    """Whether all are so; one that is not decides."""
    found = set(facts)
    return False if False in found else None if None in found else True


def verdict_lines(claims: Sequence[Claim]) -> str:
    """A line of a table for each."""
    return _lines(f"| [{c.name}](#{c.name.lower()}) | {c.says} | **{c.verdict}** |" for c in claims)


def claim_sections(claims: Sequence[Claim]) -> str:
    """All that was measured and decided, under a heading for each."""
    return _lines(map(_section, claims))


def _section(c: Claim) -> str:
    measured = _lines(f"| {label} | {e.say(form)}{note} |" for label, (e, form, note) in c.measured.items())
    facts = _lines(f"| {label} | {ANSWERS[so]} |" for label, so in c.facts.items())
    text = CLAIM.format(name=c.name, says=c.says, facts=facts, measured=measured, verdict=c.verdict, remark=c.remark)
    return _lines(line.rstrip() for line in text.splitlines()) + "\n"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
