"""Notebooks as pages: their text, their code, and what it showed when it was last run."""

import json
from pathlib import Path


def as_markdown(path: Path) -> str:
    """A notebook's cells, one behind the other."""
    return "\n\n".join(map(_cell, json.loads(path.read_text(encoding="utf-8"))["cells"])) + "\n"


def _cell(cell: dict) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return text
    return "\n\n".join([f"```python\n{text}\n```", *filter(None, map(_output, cell["outputs"]))])


def _output(output: dict) -> str:
    """The richest form of an output that a page can show."""
    shown = output.get("data", {})
    if "text/html" in shown:
        return f'<div class="output">{_joined(shown["text/html"])}</div>'
    if "image/svg+xml" in shown:
        return f'<div class="output">{_joined(shown["image/svg+xml"])}</div>'
    text = "".join(output.get("text", shown.get("text/plain", "")))
    return f"```\n{text.rstrip()}\n```" if text.strip() else ""


def _joined(lines: str | list[str]) -> str:
    """HTML on one line, so that Markdown leaves it alone."""
    return " ".join("".join(lines).split("\n"))
