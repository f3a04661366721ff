"""The metrics of runs as a results folder keeps them: one small file, from which its page can be made again."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hyperfan.errors import RunError
from hyperfan.files import atomic_write, parse_json, read_json, rounded
from hyperfan.metrics import Kind, Row

RECORD_FILE = "runs.jsonl.gz"
PARTS = {"config": dict, "environment": dict, "rows": list}
"""The parts of a line of a record, and their types."""
DIGITS = 5
"""Digits of every number in a record, but for those of :data:`DIGITS_OF`."""
DIGITS_OF: Mapping[tuple[str, str | None], int] = {(Kind.MOMENTS, "weights"): 8}
"""Weights move by a millionth of their size between two probes, and a claim compares that."""
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+−]?\d+)?")
EXACT_DIGITS = 2
"""An integer of no more digits is a count, which must be equal."""
RELATIVE_TOLERANCE = 5e-4
"""How far numbers in a summary may be off: a page measures untrained nets anew, in which CPUs differ by last bits."""


def write_record(file: Path, runs: Iterable[Mapping[str, Any]]) -> None:
    """Write runs, each a line."""
    lines = (json.dumps(run, separators=(",", ":"), allow_nan=False) for run in runs)
    with atomic_write(file) as partial:
        partial.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def read_record(file: Path) -> list[Mapping[str, Any]]:
    """The runs of such a file."""
    try:
        runs = [parse_json(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RunError(f"{file} cannot be read as a record of runs: {error}") from error
    for number, run in enumerate(runs, 1):
        if not isinstance(run, dict) or not all(isinstance(run.get(part), kind) for part, kind in PARTS.items()):
            raise RunError(f"{file} is damaged: line {number} should hold {', '.join(PARTS)} of a run")
    return runs


def rounded_row(row: Row) -> dict[str, Any]:
    """A line of metrics with its numbers rounded to the digits that a record keeps of its kind and quantity."""
    digits = DIGITS_OF.get((row["kind"], row.get("of")), DIGITS)
    return {key: rounded(value, digits) for key, value in row.items()}


# ── comparing two folders of results ───────────────────────────────────────────────────────────────────────────────


def differences(old: Path, new: Path) -> Iterator[str]:
    """Where the files of two results folders differ, a line for each number or line of text; of figures, for each."""
    names = sorted({p.relative_to(root).as_posix() for root in (old, new) for p in root.rglob("*") if p.is_file()})
    for name in names:
        a, b = old / name, new / name
        if not a.exists() or not b.exists():
            yield f"{name} is missing" if b.exists() else f"{name} does not come from the runs"
        elif name == RECORD_FILE:
            if read_record(a) != read_record(b):
                yield f"{name} differs"
        elif name.endswith(".json"):
            yield from _values(read_json(a), read_json(b), name)
        elif name.endswith(".md"):
            yield from line_differences(a.read_text(encoding="utf-8"), b.read_text(encoding="utf-8"), name)
        elif any(line_differences(a.read_text(encoding="utf-8"), b.read_text(encoding="utf-8"), name)):
            yield f"{name} differs"


def _values(a: Any, b: Any, where: str) -> Iterator[str]:
    match a, b:
        case dict(), dict():
            for key in sorted(a.keys() | b.keys()):
                if key != "environment":
                    yield from _values(a.get(key), b.get(key), f"{where}: {key}")
        case list(), list() if len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from _values(x, y, f"{where}[{i}]")
        case str(), str():
            yield from line_differences(a, b, where)
        case float(), float():
            if abs(a - b) > RELATIVE_TOLERANCE * abs(a):
                yield f"{where} is {a:.6g} and comes out as {b:.6g}"
        case _ if a != b:
            yield f"{where} is {a} and comes out as {b}"


def line_differences(a: str, b: str, where: str) -> Iterator[str]:
    """Lines that differ by more than one in the last digit of a number; of texts of other lengths, the first."""
    old, new = a.splitlines(), b.splitlines()
    if len(old) != len(new):
        yield f"{where} has {len(old)} lines and comes out with {len(new)}"
        return
    for i, (x, y) in enumerate(zip(old, new, strict=True), 1):
        numbers = NUMBER.findall(x), NUMBER.findall(y)
        if NUMBER.sub("0", x) != NUMBER.sub("0", y) or not all(map(_close, *numbers)):
            yield f"{where}, line {i} is {x!r} and comes out as {y!r}"


def _close(a: str, b: str) -> bool:
    """Whether two numbers differ by no more than one in their last digit; small integers must be equal."""
    if a == b or (a.isdecimal() and len(a) <= EXACT_DIGITS):
        return a == b
    x, y = (float(text.replace("−", "-")) for text in (a, b))
    mantissa, _, exponent = a.replace("−", "-").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(x - y) <= 1.01 * unit
