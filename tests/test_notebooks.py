"""The notebooks run, as one script each and with few steps of training; their pages show what they hold."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
STEPS, FEW_STEPS = re.compile(r"^STEPS = \d+$", re.MULTILINE), "STEPS = 3"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["five_minutes", "lora_from_a_task_vector", "why_does_it_not_learn"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, pages, capsys):
    code = "\n".join(pages.code_cells(path))
    short, replaced = STEPS.subn(FEW_STEPS, code)
    assert replaced == 1
    exec(compile(short, str(path), "exec"), {"__name__": "notebook"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_from_top_to_bottom_and_its_page_shows_it(path, pages):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)
    shown = path.with_suffix(".md").read_text(encoding="utf-8")
    assert shown == pages.page(notebook, path.name)
