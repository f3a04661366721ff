"""The README's code runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.filterwarnings("error")
def test_the_readmes_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert "0.weight" in capsys.readouterr().out


def test_the_readme_counts_the_methods_right():
    from hyperfan.init import available

    assert f"**{len(available())} init methods**" in README.read_text(encoding="utf-8")
