"""Draw the pictures of docs/reference/coordinate-check.md by running its code: ``python -m docs.coordinate_figure``."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "reference/coordinate-check.md"
SEED = "torch.manual_seed(0)"
TITLES = {
    "healthy": "hyperfan-in: no layer's scale depends on the width or the depth",
    "sick": "A standard deviation that was found at width 64 fits width 64",
}


def checks() -> dict[str, Any]:
    """The check that each block of Python on the page makes, by name."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    found = {}
    for name, block in zip(TITLES, blocks, strict=True):
        exec(compile(f"import torch\n{SEED}\n{block}", str(PAGE), "exec"), names)
        found[name] = names["check"]
    return found


def draw() -> None:
    for name, check in checks().items():
        path = PAGE.with_name(f"coordinate-check-{name}.svg")
        path.write_text(check.chart(TITLES[name]), encoding="utf-8")


if __name__ == "__main__":
    draw()
