"""Tables and lists of findings as HTML, for pages and notebooks."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from hyperfan.charts.markup import Markup, tag, text

SIGNS = {"error": "✖", "warning": "▲", "note": "ℹ"}
NOTEBOOK = """
.hyperfan img { max-width: 100%; } .hyperfan .scroll { overflow-x: auto; } .hyperfan table { color: inherit; }
.hyperfan ol { list-style: none; padding: 0; } .hyperfan h3 { font-size: 1em; margin: .8em 0 .2em; }
.hyperfan dl { display: grid; grid-template-columns: 4em 1fr; margin: 0; } .hyperfan dt, .hyperfan dd { margin: 0; }
.hyperfan dt { opacity: .7; font-weight: normal; }
"""
MAX_NAMES = 12
"""Names that are listed; further ones are counted."""


class Finding(Protocol):
    """A finding of a diagnosis."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def severity(self) -> str:
        """A key of :data:`SIGNS`."""

    @property
    def where(self) -> Sequence[str]:
        """The layers or tensors that it is about."""

    @property
    def evidence(self) -> str:
        """What was seen."""

    @property
    def cause(self) -> str:
        """Why it is likely."""

    @property
    def remedy(self) -> str:
        """The call that mends it."""


def findings(found: Sequence[Finding]) -> Markup:
    """A list of findings, each with what was seen, why it is likely, and the call that mends it."""
    none = tag("p", text("None: nothing is out of place."))
    return tag("ol", *map(_finding, found), class_="findings") if found else none


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], marked: Sequence[bool] = (), switch: str = ""
) -> Markup:
    """Cells in columns, the first of them names; marked rows stand out, and a switch may number the rows."""
    lines = []
    for i, row in enumerate(rows):
        cells = [tag("th", text(row[0]), scope="row"), *(tag("td", text(cell(c))) for c in row[1:])]
        classes = "marked" if marked and marked[i] else None
        lines.append(tag("tr", *cells, class_=classes, data_in=f"{switch}-{i}" if switch else None))
    head = tag("thead", tag("tr", *(tag("th", text(h), scope="col") for h in header)))
    return tag("div", tag("table", head, tag("tbody", *lines)), class_="scroll", tabindex="0", role="group")


def cell(value: object) -> str:
    """The text of a cell: a string as it is, everything else as JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def notebook_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table under a line of text, for a notebook."""
    return _card(tag("p", text(title)), table(header, rows))


def notebook_diagnosis(net: str, summary: str, found: Sequence[Finding], picture: str) -> str:
    """Findings above a picture, for a notebook; as an image, the picture keeps its style to itself."""
    data = base64.b64encode(picture.encode()).decode()
    image = tag("img", src=f"data:image/svg+xml;base64,{data}", alt="Scale by layer")
    listed = findings(found) if found else text("")
    return _card(tag("p", text(net)), tag("p", tag("b", text(summary))), listed, image)


def _card(*inside: Markup) -> Markup:
    """A card in the colours of the notebook, light or dark, with a style that touches nothing else in it."""
    return tag("div", tag("style", Markup(NOTEBOOK)), *inside, class_="hyperfan")


def _finding(f: Finding) -> Markup:
    severity = tag("span", text(f"{SIGNS[f.severity]} {f.severity}"), class_="severity")
    rows = [("seen", text(f.evidence)), ("likely", text(f.cause)), ("mend", tag("code", text(f.remedy)))]
    if where := f.where:
        more = f" and {len(where) - MAX_NAMES} more" if len(where) > MAX_NAMES else ""
        names = [Markup(tag("code", text(n)) + " ") for n in where[:MAX_NAMES]]
        rows.insert(0, ("where", Markup("".join([*names, text(more)]))))
    pairs = [tag(name, inside) for key, value in rows for name, inside in (("dt", text(key)), ("dd", value))]
    return tag("li", tag("h3", severity, text(f" {f.name}")), tag("dl", *pairs), class_=f.severity)
