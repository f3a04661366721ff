"""The metrics of runs as a results folder keeps them: one small file, from which its page can be made again."""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.files import atomic_write, read_json

RECORD_FILE = "runs.jsonl.gz"
DIGITS = 5
"""Of every number in a record."""
NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+−]?\d+)?")
RELATIVE_TOLERANCE = 1e-4
"""Of numbers in a summary: untrained nets, which a page measures anew, differ in their last bits between CPUs."""


def write_record(file: Path, runs: Iterable[Mapping[str, Any]]) -> None:
    """Write runs, each a line."""
    lines = (json.dumps(run, separators=(",", ":"), allow_nan=False) for run in runs)
    with atomic_write(file) as partial:
        partial.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def read_record(file: Path) -> list[Mapping[str, Any]]:
    """The runs of such a file."""
    try:
        return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise RunError(f"{file} cannot be read as a record of runs: {error}") from error


def rounded(value: Any) -> Any:
    """Plain values with every number rounded to a few digits."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case list() | tuple():
            return [rounded(v) for v in value]
        case Mapping():
            return {key: rounded(v) for key, v in value.items()}
    return value


def differences(old: Path, new: Path) -> Iterator[str]:
    """Where files of two results folders differ: numbers of a summary, lines of a page, and other files as a whole."""
    names = sorted({p.relative_to(root).as_posix() for root in (old, new) for p in root.rglob("*") if p.is_file()})
    for name in names:
        a, b = old / name, new / name
        if not a.exists() or not b.exists():
            yield f"{name} is {'new' if b.exists() else 'no longer made'}"
        elif name.endswith(".json"):
            yield from _values(read_json(a), read_json(b), name)
        elif name.endswith(".md"):
            yield from _lines(a.read_text(encoding="utf-8"), b.read_text(encoding="utf-8"), name)
        elif not name.endswith(".svg") and a.read_bytes() != b.read_bytes():
            yield f"{name} differs"


def _values(a: Any, b: Any, where: str) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            if key != "environment":
                yield from _values(a.get(key), b.get(key), f"{where}: {key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _values(x, y, f"{where}[{i}]")
    elif isinstance(a, str) and isinstance(b, str):
        yield from _lines(a, b, where)
    elif isinstance(a, float) and isinstance(b, float):
        if abs(a - b) > RELATIVE_TOLERANCE * abs(a):
            yield f"{where} was {a:.6g} and comes out as {b:.6g}"
    elif a != b:
        yield f"{where} was {a} and comes out as {b}"


def _lines(a: str, b: str, where: str) -> Iterator[str]:
    """Lines that differ by more than one in the last digit of a number."""
    old, new = a.splitlines(), b.splitlines()
    if len(old) != len(new):
        yield f"{where} had {len(old)} lines and comes out with {len(new)}"
    for i, (x, y) in enumerate(zip(old, new, strict=False), 1):
        if NUMBER.sub("", x) != NUMBER.sub("", y) or not all(map(_close, NUMBER.findall(x), NUMBER.findall(y))):
            yield f"{where}, line {i} was {x!r} and comes out as {y!r}"


def _close(a: str, b: str) -> bool:
    """Whether two numbers differ by no more than one in their last digit."""
    x, y = (float(text.replace("−", "-").replace(",", "")) for text in (a, b))
    mantissa, _, exponent = a.replace("−", "-").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(x - y) <= 1.01 * unit
