"""Run the notebooks of docs/notebooks, keep what they show, and write each as a page too: ``python -m docs.notebooks``.

Notebooks are edited in Jupyter, or in this folder as JSON. The pages are Markdown with the outputs as HTML, so that a
site shows them without a plug-in.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
TIMEOUT_S = 600


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(path: Path) -> None:
    """Run a notebook in a kernel of its own and write it with its outputs."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=TIMEOUT_S, record_timing=False).execute()
    nbformat.write(notebook, path)


def page(notebook: dict[str, Any], name: str) -> str:
    """The notebook as Markdown."""
    blocks = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
            continue
        blocks.append(f"```python\n{source}\n```")
        printed = "".join(text for o in cell["outputs"] if o["output_type"] == "stream" for text in o["text"]).rstrip()
        blocks += [f"```text\n{printed}\n```"] if printed else []
        blocks += [block for output in cell["outputs"] for block in _output(output)]
    blocks.insert(1, f"This page is a notebook: [{name}]({name}), run as it is shown.")
    return "\n\n".join(blocks) + "\n"


def _output(output: dict[str, Any]) -> Iterator[str]:
    """The picture, table or text of a cell's last value."""
    data = output.get("data", {})
    if "text/html" in data:
        # A blank line would end the block of HTML in Markdown.
        yield re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))
    elif "text/plain" in data:
        yield f"```text\n{''.join(data['text/plain'])}\n```"


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            run(path)
            content = page(json.loads(path.read_text(encoding="utf-8")), path.name)
            path.with_suffix(".md").write_text(content, encoding="utf-8")
            print(path.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
