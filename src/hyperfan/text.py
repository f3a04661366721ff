"""Plain-text tables and numbers, for output without a terminal library."""

import math
from collections.abc import Sequence


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
