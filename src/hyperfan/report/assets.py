"""The style sheets and the script of pages, kept as files of their own."""

import functools
from importlib.resources import files


@functools.cache
def asset(name: str) -> str:
    """The text of one of them."""
    return (files("hyperfan.report") / name).read_text(encoding="utf-8")
