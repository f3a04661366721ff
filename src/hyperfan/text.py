"""Plain-text tables and numbers, for output without a terminal library."""

import math
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with columns as wide as their widest cell, numbers to the right.

    >>> print(table(["tensor", "fan"], [["0.weight", "784"], ["2.weight", "7"]]))
    tensor    fan
    ────────  ───
    0.weight  784
    2.weight    7
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        parts = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(header), "  ".join("─" * w for w in widths), *map(line, rows)])


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown.

    >>> print(markdown_table(["init", "loss"], [["m2", "0.3"]]))
    | init | loss |
    | --- | --- |
    | m2 | 0.3 |
    """
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def duration(seconds: float) -> str:
    """A duration in the largest unit that gives at least two digits; below ten seconds to a tenth.

    >>> duration(2.34), duration(40), duration(400), duration(40000)
    ('2.3 s', '40 s', '7 min', '11 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def size(count: int) -> str:
    """A number of bytes in decimal units.

    >>> size(1_234_567), size(999)
    ('1.2 MB', '999 B')
    """
    for unit, units in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= units:
            return f"{count / units:.1f} {unit}"
    return f"{count} B"


def number(value: float | None) -> str:
    """Format a number with four significant digits, or a dash for ``None``.

    >>> number(784.0), number(3.1e-5), number(None)
    ('784', '3.1e-05', '–')
    """
    return "–" if value is None else f"{value:.4g}"


def times(ratio: float) -> str:
    """A ratio in words.

    >>> times(3.0), times(0.25)
    ('3 times', '1/4 of')
    """
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"


def capitalise(text: str) -> str:
    """The text with its first letter in upper case and the rest as it is.

    >>> capitalise("diverged in layer 'Conv'")
    "Diverged in layer 'Conv'"
    """
    return text[:1].upper() + text[1:]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell in ("–", "")
    return True


def two_digits(value: float, infinite: str = "∞") -> str:
    """A number to two digits, or a sign for one that is not finite.

    >>> two_digits(0.01234), two_digits(float("nan"))
    ('0.012', '∞')
    """
    return f"{value:.2g}" if math.isfinite(value) else infinite
