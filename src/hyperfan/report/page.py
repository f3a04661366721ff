"""One self-contained HTML page: a sentence, figures, tables, and switches for what is shown. It asks for no network."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hyperfan.report.assets import asset
from hyperfan.report.markup import Markup, tag, text
from hyperfan.report.panel import Panel, draw, look, svg, switched

Switch = tuple[str, str, int | None]
"""What can be switched off: its name in the page, its label, and the look of its lines, if they have one."""
ARROWS = "Arrow keys go from value to value and from line to line."


def page(title: str, body: Iterable[Markup]) -> str:
    """The page. Its policy lets a browser run our script and nothing else, and fetch nothing."""
    style, script = Markup(asset("chart.css") + asset("page.css")), Markup(asset("page.js"))
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    inside = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(title)),
        tag("style", style),
        tag("body", tag("main", *body), tag("script", script, type="module")),
    ]
    return "<!doctype html>\n" + tag("html", *inside, lang="en") + "\n"


def section(heading: str, *inside: Markup, switches: Sequence[str] = ()) -> Markup:
    """Some of a page under a heading."""
    return tag("section", tag("h2", text(heading)), *inside, data_in=switched(switches))


def figure(caption: str, *pictures: Markup, label: str, wide: bool = False) -> Markup:
    """Pictures side by side, as many as there is room for, and a line below them."""
    classes = "panels wide" if wide else "panels"
    grid = tag("div", *pictures, class_=classes, tabindex="0", role="group", aria_label=f"{label}. {ARROWS}")
    return tag("figure", grid, tag("figcaption", text(caption)))


def pictures(panels: Iterable[Panel]) -> list[Markup]:
    """Panels drawn, each with the switches it obeys."""
    return [tag("div", draw(p), class_="panel", data_in=switched(p.switches)) for p in panels]


def swatch(number: int) -> Markup:
    """What a line looks like."""
    line = tag("g", tag("path", class_="line", d="M1,6H25"), class_=look(number))
    return svg((26, 12), "", [line], width=26, height=12)


def switches(groups: Mapping[str, Sequence[Switch]]) -> Markup:
    """Boxes to tick, under headings; a single thing cannot be switched off."""
    sets = []
    for heading, named in groups.items():
        if len(named) > 1:
            boxes = [_box(*one) for one in named]
            sets.append(tag("fieldset", tag("legend", text(heading)), *boxes))
    return tag("form", *sets, class_="switches", aria_label="What is shown", autocomplete="off") if sets else text("")


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], marked: Sequence[bool] = (), switch: str = ""
) -> Markup:
    """Cells in columns, the first of them names; rows that are marked stand out, and a switch may number the rows."""
    lines = []
    for i, row in enumerate(rows):
        cells = [tag("th", text(row[0]), scope="row"), *(tag("td", text(shown(c))) for c in row[1:])]
        classes = "marked" if marked and marked[i] else None
        lines.append(tag("tr", *cells, class_=classes, data_in=f"{switch}-{i}" if switch else None))
    head = tag("thead", tag("tr", *(tag("th", text(h), scope="col") for h in header)))
    return tag("div", tag("table", head, tag("tbody", *lines)), class_="scroll", tabindex="0", role="group")


def compared(what: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Markup:
    """Settings of several things side by side, those that differ first and marked."""
    keys = list(dict.fromkeys(key for one in what for key in one))
    cells = {key: [shown(one[key]) if key in one else "–" for one in what] for key in keys}
    differ = [key for key in keys if len(set(cells[key])) > 1]
    ordered = [*differ, *(key for key in keys if key not in differ)]
    rows = [[f"≠ {key}" if key in differ else key, *cells[key]] for key in ordered]
    header = ["", *names] if len(names) > 1 else ["", "value"]
    note = tag("p", text(f"≠ marks what differs: {len(differ)} of {len(keys)}."), class_="soft")
    shown_table = table(header, rows, [key in differ for key in ordered])
    return Markup(note + shown_table) if len(names) > 1 else shown_table


def shown(value: object) -> str:
    """A cell: text as it is, everything else as JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _box(name: str, label: str, number: int | None) -> Markup:
    box = tag("input", type="checkbox", checked="", data_switch=name)
    return tag("label", box, swatch(number) if number is not None else text(""), tag("span", text(label)))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
