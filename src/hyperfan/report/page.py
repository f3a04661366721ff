"""One self-contained HTML page: a sentence, figures, tables, and switches for what is shown. It asks for no network."""

import base64
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from hyperfan.charts.figure import swatch
from hyperfan.charts.html import cell, table
from hyperfan.charts.markup import Markup, tag, text
from hyperfan.charts.palette import Look, style
from hyperfan.charts.panel import Panel, draw, switched

Switch = tuple[str, str, Look | None]
"""A part of a page that can be switched off: its name, its label, and the look of its lines, if they have one."""
ARROWS = "Arrow keys go from value to value and from line to line."


def page(title: str, body: Iterable[Markup]) -> str:
    """The page. Its policy lets a browser run our script and nothing else, and fetch nothing."""
    css, script = Markup(style() + _asset("page.css")), Markup(_asset("page.js"))
    policy = f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'"
    inside = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(title)),
        tag("style", css),
        tag("body", tag("main", *body), tag("script", script, type="module")),
    ]
    return "<!doctype html>\n" + tag("html", *inside, lang="en") + "\n"


def section(heading: str, *inside: Markup, switches: Sequence[str] = ()) -> Markup:
    """Part of a page under a heading."""
    return tag("section", tag("h2", text(heading)), *inside, data_in=switched(switches))


def figure(caption: str, panels: Iterable[Panel], label: str, *, wide: bool = False) -> Markup:
    """Panels side by side, as many as there is room for, each with the switches it obeys, and a line below them."""
    classes = "panels wide" if wide else "panels"
    pictures = [tag("div", draw(p), class_="panel", data_in=switched(p.switches)) for p in panels]
    grid = tag("div", *pictures, class_=classes, tabindex="0", role="group", aria_label=f"{label}. {ARROWS}")
    return tag("figure", grid, tag("figcaption", text(caption)))


def switches(groups: Mapping[str, Sequence[Switch]]) -> Markup:
    """Boxes to tick, under headings; a single thing cannot be switched off."""
    sets = []
    for heading, named in groups.items():
        if len(named) > 1:
            boxes = [_box(*one) for one in named]
            sets.append(tag("fieldset", tag("legend", text(heading)), *boxes))
    return tag("form", *sets, class_="switches", aria_label="What is shown", autocomplete="off") if sets else text("")


def compared(values: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Markup:
    """Settings of several runs side by side, those that differ first and marked."""
    keys = list(dict.fromkeys(key for one in values for key in one))
    cells = {key: [cell(one[key]) if key in one else "–" for one in values] for key in keys}
    differ = [key for key in keys if len(set(cells[key])) > 1]
    ordered = [*differ, *(key for key in keys if key not in differ)]
    rows = [[f"≠ {key}" if key in differ else key, *cells[key]] for key in ordered]
    if len(names) == 1:
        return table(["", "value"], rows)
    note = tag("p", text(f"≠ marks what differs: {len(differ)} of {len(keys)}."), class_="soft")
    return Markup(note + table(["", *names], rows, [key in differ for key in ordered]))


def _box(name: str, label: str, look: Look | None) -> Markup:
    box = tag("input", type="checkbox", checked="", data_switch=name)
    return tag("label", box, swatch(look) if look is not None else text(""), tag("span", text(label)))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@functools.cache
def _asset(name: str) -> str:
    return (files("hyperfan.report") / name).read_text(encoding="utf-8")
