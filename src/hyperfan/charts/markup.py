"""HTML and SVG. Whatever a name contains, it is shown and not run: only :func:`text` turns a string into markup."""

import re
from collections.abc import Iterable
from html import escape
from typing import NewType

Markup = NewType("Markup", str)
"""Text that is safe in a page. A type checker sees to it that nothing else gets there."""
Value = str | float | None

_VOID = frozenset({"input", "meta", "img"})
_LEAVES = frozenset({"circle", "line", "path", "rect"})
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def text(value: object) -> Markup:
    """Escape a value, so that it is shown as it is, without characters that UTF-8 or XML cannot hold.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    encodable = str(value).encode("utf-8", "replace").decode()
    return Markup(escape(_CONTROL.sub("\ufffd", encodable)))


def tag(name: str, /, *inside: Markup, **attributes: Value) -> Markup:
    """An element. In attribute names ``_`` stands for a hyphen, at the end for nothing; ``None`` omits the attribute.

    >>> tag("text", text("a < b"), class_="tick", text_anchor="end", x=1.26, y=None)
    '<text class="tick" text-anchor="end" x="1.3">a &lt; b</text>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value) if isinstance(value, str) else pixels(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    if name in _LEAVES and not inside:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{''.join(inside)}</{name}>")


def pixels(value: float) -> str:
    """A coordinate, to a tenth of a pixel.

    >>> pixels(12.04), pixels(-0.01), pixels(3.25)
    ('12', '0', '3.2')
    """
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def svg(size: tuple[float, float], description: str, inside: Iterable[Markup], **where: Value) -> Markup:
    """A picture with a description for screen readers, and its place in another picture if it has one."""
    named: dict[str, Value] = {"role": "img", "aria_label": description} if description else {"aria_hidden": "true"}
    named["viewBox"] = f"0 0 {pixels(size[0])} {pixels(size[1])}"
    return tag("svg", *inside, class_="chart", **named, **where)


def short_name(name: str, limit: int) -> str:
    """A name without its middle, if it is long.

    >>> short_name("layer4.2.conv1.weight", 12)
    'layer4…eight'
    """
    return name if len(name) <= limit else f"{name[: limit // 2]}…{name[len(name) - (limit - 1) // 2 :]}"
