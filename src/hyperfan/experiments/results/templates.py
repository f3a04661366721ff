"""The text of pages, as Markdown files with fields for ``str.format``."""

from importlib.resources import files


def template(package: str, name: str = "page.md") -> str:
    """The template of this name in a package."""
    return (files(package) / name).read_text(encoding="utf-8")
