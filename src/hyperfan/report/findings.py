"""What a diagnosis found, as part of a page."""

import re
from collections.abc import Sequence

from hyperfan.probe.diagnosis import Finding
from hyperfan.report.markup import Markup, tag, text

SIGNS = {"error": "✖", "warning": "▲", "note": "ℹ"}
MANY = 12
"""So many names are listed; more are counted."""


def findings(found: Sequence[Finding]) -> Markup:
    """A list of what is wrong, each with what was seen, why, and what mends it."""
    if not found:
        return tag("p", text("None: nothing is out of place."))
    return tag("ol", *map(_finding, found), class_="findings")


def _finding(f: Finding) -> Markup:
    severity = tag("span", text(f"{SIGNS[f.severity]} {f.severity}"), class_="severity")
    told = [("seen", text(f.evidence)), ("likely", text(f.cause)), ("mend", _remedy(f.remedy))]
    if f.where:
        more = f" and {len(f.where) - MANY} more" if len(f.where) > MANY else ""
        names = [Markup(tag("code", text(n)) + " ") for n in f.where[:MANY]]
        told.insert(0, ("where", Markup("".join(names) + text(more))))
    pairs = [tag(name, inside) for key, value in told for name, inside in (("dt", text(key)), ("dd", value))]
    return tag("li", tag("h3", severity, text(f.name)), tag("dl", *pairs), class_=f.severity)


def _remedy(remedy: str) -> Markup:
    """Code between backticks, or all of it where there are none."""
    if "`" not in remedy:
        return tag("code", text(remedy))
    parts = re.split(r"`([^`]*)`", remedy)
    return Markup("".join(tag("code", text(p)) if i % 2 else text(p) for i, p in enumerate(parts)))
