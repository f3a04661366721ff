"""A claim of the paper, taken apart into facts that an interval can decide, and its section on a page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.resources import files
from typing import Any

from hyperfan.errors import RunError
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import capitalise

Fact = bool | None
"""Whether something is so; ``None`` where the interval does not decide it."""
ANSWERS = {True: "yes", False: "no", None: "not decided"}


class Verdict(StrEnum):
    """What the facts make of a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Measurement:
    """An estimate on a page.

    Args:
        estimate: the value.
        form: the format of its numbers.
        note: text beside it.
    """

    estimate: Estimate
    form: str = ".3g"
    note: str = ""


@dataclass
class Claim:
    """A claim of the paper, what was measured, and the facts it comes down to.

    Args:
        name: as in the list of claims.
        statement: the claim.
        measured: label → measurement.
        facts: label of what must be so for it to hold → whether it is.
        remark: what a reader should know beside it, if the numbers bear it out.
    """

    name: str
    statement: str
    measured: dict[str, Measurement] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    remark: str = ""

    @property
    def verdict(self) -> Verdict:
        """It holds if all facts are so, and in part if some are and some are not; open while none speaks against it."""
        found = set(self.facts.values())
        if found == {True}:
            return Verdict.HOLDS
        if False in found:
            return Verdict.IN_PART if True in found else Verdict.FAILS
        return Verdict.UNDECIDED

    def measure(self, label: str, estimate: Estimate, form: str = ".3g", note: str = "") -> Estimate:
        """Record a measurement."""
        self.measured[label] = Measurement(estimate, form, note)
        return estimate

    def decide(self, label: str, fact: Fact) -> Fact:
        """Record a fact."""
        self.facts[label] = fact
        return fact

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "verdict": self.verdict}


Claims = Mapping[str, tuple[str, Callable[[Claim, Any], object]]]
"""Name → the claim's statement, and the function that decides it from an experiment's results."""


def decide_all(claims: Claims, results: Any) -> list[Claim]:
    """Decide each claim by its function. One whose runs are missing is not decided, and its remark names them."""
    found = []
    for name, (statement, decide) in claims.items():
        claim = Claim(name, statement)
        try:
            decide(claim, results)
        except RunError as error:
            claim = Claim(name, statement, remark=f"{capitalise(str(error))}.")
        found.append(claim)
    return found


def all_of(facts: Iterable[Fact]) -> Fact:
    """Whether all facts are so; one that is not decides."""
    found = set(facts)
    return False if False in found else None if None in found else True


def template(package: str, name: str = "page.md") -> str:
    """The text of a page: a Markdown file in a package, with fields for ``str.format``."""
    return (files(package) / name).read_text(encoding="utf-8")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def verdict_table(claims: Sequence[Claim]) -> str:
    """The verdict on each claim, with a link to its section."""
    rows = [(f"[{c.name}](#{c.name.lower()})", c.statement, f"**{c.verdict}**") for c in claims]
    return markdown_table(("claim", "the paper says", "verdict"), rows)


def claim_sections(claims: Sequence[Claim]) -> str:
    """Everything that was measured and decided, under a heading for each claim."""
    return "\n".join(map(_section, claims))


def _section(c: Claim) -> str:
    measured = [
        f"| {label} | {m.estimate.format(m.form)}, n = {m.estimate.n}{m.note} |" for label, m in c.measured.items()
    ]
    facts = [f"| {label} | {ANSWERS[fact]} |" for label, fact in c.facts.items()]
    text = template("hyperfan.experiments.results", "claim.md").format(
        name=c.name,
        statement=c.statement,
        verdict=c.verdict,
        remark=c.remark,
        facts="\n".join(facts),
        measured="\n".join(measured),
    )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
