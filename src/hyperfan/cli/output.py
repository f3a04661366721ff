"""What commands print: JSON for programs, and what is being done for people who wait."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def print_json(content: Any) -> None:
    """Print it indented."""
    print(json.dumps(content, indent=2))


@contextmanager
def status(text: str) -> Iterator[Callable[[str], Any]]:
    """Shows what is being done: a line that changes in a terminal, lines elsewhere."""
    from rich.console import Console
    from rich.text import Text

    log = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    with log.status(Text(text)) as live:  # no markup here either: a path may have brackets
        yield (lambda text: live.update(Text(text))) if log.is_terminal else log.print
