"""A claim of the paper, taken apart into facts that an interval can decide, and its section on a page."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from importlib.resources import files
from typing import Any, TypeVar

from hyperfan.experiments.results.statistics import Estimate
from hyperfan.text import markdown_table

V = TypeVar("V")
Fact = bool | None
"""Whether something is so; ``None`` where the interval does not decide it."""
ANSWERS = {True: "yes", False: "no", None: "not decided"}


class Verdict(StrEnum):
    """What the facts make of a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "not decided"


INDEX_WORDS = {Verdict.HOLDS: "holds", Verdict.IN_PART: "in part", Verdict.FAILS: "fails", Verdict.UNDECIDED: "open"}
"""Verdicts in the index of all claims."""


@dataclass(frozen=True)
class Measurement:
    """An estimate on a page, the format of its numbers, and a note beside it."""

    estimate: Estimate
    form: str = ".3g"
    note: str = ""


@dataclass
class Claim:
    """A claim: what was measured, and the facts that must all be so for it to hold.

    Args:
        name: C1 to C16 for the paper's, or another.
        title: the claim in a few words.
        statement: what is claimed, by the paper or by us.
        measured: estimates by label.
        facts: by label.
        headline: the number that decides it, with what it is.
        remark: what a reader should know beside it, if the numbers bear it out.
        halves: the same claim on the even seeds alone, and on the odd ones.
    """

    name: str
    title: str
    statement: str
    measured: dict[str, Measurement] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    headline: str = ""
    remark: str = ""
    halves: "list[Claim]" = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim holds: if all facts do; in part if some do and some do not; open while none is false."""
        found = set(self.facts.values())
        if found == {True}:
            return Verdict.HOLDS
        if False in found:
            return Verdict.IN_PART if True in found else Verdict.FAILS
        return Verdict.UNDECIDED

    def measure(self, label: str, estimate: Estimate, form: str = ".3g", note: str = "") -> Estimate:
        """Record a measurement; raises if there is one of this label."""
        _set_new(self.measured, label, Measurement(estimate, form, note))
        return estimate

    def decide(self, label: str, fact: Fact) -> Fact:
        """Record a fact; raises if there is one of this label."""
        _set_new(self.facts, label, fact)
        return fact

    @property
    def counts(self) -> str:
        """How many facts are so, of how many; without its runs a claim has none."""
        if not self.facts:
            return "its runs are missing"
        return f"{list(self.facts.values()).count(True)} of {_facts(self.facts)}"

    @property
    def contested(self) -> list[str]:
        """Facts that are so with all seeds or one half of them, and not with the other."""
        every = (self, *self.halves)
        return [label for label in self.facts if {True, False} <= {claim.facts.get(label) for claim in every}]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        halves = [{"verdict": half.verdict, "facts": half.facts} for half in self.halves]
        found = {"verdict": self.verdict, "counts": self.counts, "contested": self.contested}
        return {**asdict(replace(self, halves=[])), "halves": halves, **found}


Claims = Mapping[str, tuple[str, str, Callable[[Claim, Any], object]]]
"""Name → the claim's title and statement, and the function that decides it from an experiment's results."""


def all_of(facts: Iterable[Fact]) -> Fact:
    """Whether all facts are so; one that is not decides."""
    found = set(facts)
    return False if False in found else None if None in found else True


def any_of(facts: Iterable[Fact]) -> Fact:
    """Whether one of the facts is so; one that is decides."""
    found = set(facts)
    return True if True in found else None if None in found else False


def template(package: str, name: str) -> str:
    """The text of a page: a Markdown file in a package, with fields for ``str.format``."""
    return (files(package) / name).read_text(encoding="utf-8")


def verdict_table(claims: Sequence[Claim]) -> str:
    """The verdict on each claim, with a link to its section."""
    header = ("claim", "statement", "verdict", "the number that decides", "on even / odd seeds alone")
    rows = []
    for c in claims:
        halves = " / ".join(half.verdict for half in c.halves)
        halves += f", which disagree on {_facts(c.contested)}" if c.contested else ""
        rows.append(
            [f"[{c.name}](#{c.name.lower()})", c.statement, f"**{c.verdict}** ({c.counts})", c.headline, halves]
        )
    return markdown_table(header, rows)


def index_table(claims: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """A line for each claim, with its link. The paper's fit on one screen.

    Claims are as their ``to_dict`` gives them, and those of an older version may lack some of it.
    """
    rows = []
    for link, claim in claims:
        verdict, *halves = (INDEX_WORDS[each["verdict"]] for each in (claim, *claim.get("halves", [])))
        so = list(claim.get("facts", {}).values())
        counts = f" {so.count(True)}/{len(so)}" if so else ""
        alone = f"both {halves[0].removesuffix('s')}" if len(halves) > len({*halves}) else " / ".join(halves)
        alone += ", differ" if claim.get("contested") else ""
        number = claim.get("headline") or ("" if so else claim.get("counts", ""))
        rows.append([link, claim.get("title", claim["statement"]), f"**{verdict}**{counts}", number, alone])
    return markdown_table(("", "claim", "verdict", "the number that decides", "halves"), rows)


def claim_sections(claims: Sequence[Claim]) -> str:
    """Everything that was measured and decided, under a heading for each claim."""
    sections = []
    for c in claims:
        columns = ["what it comes down to", "all seeds", *(["even seeds", "odd seeds"] if c.halves else [])]
        facts = [[label, *(ANSWERS[each.facts.get(label)] for each in (c, *c.halves))] for label in c.facts]
        measured = [
            [label, f"{m.estimate.format(m.form)}, n = {m.estimate.n}{m.note}"] for label, m in c.measured.items()
        ]
        disagreement = f"Even, odd and all seeds disagree on {_facts(c.contested)}." if c.contested else ""
        text = template(__package__, "claim.md").format(
            name=c.name,
            statement=c.statement,
            verdict=c.verdict,
            counts=c.counts,
            remarks="".join(f"{remark.strip()}\n\n" for remark in (c.remark, disagreement) if remark),
            facts=markdown_table(columns, facts) if facts else "",
            measured=markdown_table(("measured", "value [95 % interval], seeds"), measured) if measured else "",
        )
        sections.append("\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n")
    return "\n".join(sections)


def _set_new(values: dict[str, V], label: str, value: V) -> None:
    """Set the value of a label that has none yet: a page would lose the value of one that has."""
    if label in values:
        raise ValueError(f"a claim has two values under the label '{label}': name what they differ in")
    values[label] = value


def _facts(labels: Collection[str]) -> str:
    return "1 fact" if len(labels) == 1 else f"{len(labels)} facts"
