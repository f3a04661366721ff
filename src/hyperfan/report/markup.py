"""HTML and SVG. Whatever a name contains, it is shown, not run: only :func:`text` turns a string into markup."""

import re
from html import escape
from typing import NewType

Markup = NewType("Markup", str)
"""Safe to put into a page. A type checker sees to it that nothing else gets there."""
Value = str | float | None

_VOID = frozenset({"input", "meta"})
_LEAVES = frozenset({"circle", "line", "path", "rect"})
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def text(value: object) -> Markup:
    """Shown as it is.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return Markup(escape(_clean(str(value))))


def tag(name: str, /, *inside: Markup, **attributes: Value) -> Markup:
    """An element. In names of attributes ``_`` stands for a hyphen, at the end for nothing; ``None`` leaves one out.

    >>> tag("text", text("a < b"), class_="tick", text_anchor="end", x=1.26, y=None)
    '<text class="tick" text-anchor="end" x="1.3">a &lt; b</text>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    if name in _LEAVES and not inside:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{''.join(inside)}</{name}>")


def joined(*parts: Markup, by: str = "") -> Markup:
    """One after the other."""
    return Markup(text(by).join(parts))


def pixels(value: float) -> str:
    """To a tenth.

    >>> pixels(12.04), pixels(-0.01), pixels(3.25)
    ('12', '0', '3.2')
    """
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def _attribute(value: str | float) -> str:
    return escape(_clean(value)) if isinstance(value, str) else pixels(value)


def _clean(value: str) -> str:
    """Without what UTF-8 or XML cannot hold."""
    return _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode())
