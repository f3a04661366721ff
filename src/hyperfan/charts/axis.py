"""Axes: the place of a value on an axis, and its marks."""

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

Number = float | None
MIN_DECADES = 2.0
"""A logarithmic axis shows at least this many, or noise would look like a trend."""
MIN_EXPONENT, MAX_EXPONENT = -323, 307
"""Powers of ten that a float can hold, and five times as much."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def digits(value: Number, precision: int = 3) -> str:
    """A value as people read it, with three significant digits unless another precision is given.

    >>> digits(0.78083), digits(12345.0), digits(1e-7), digits(float("inf")), digits(None)
    ('0.781', '12,345', '1e−7', 'infinite', 'no number')
    >>> digits(0.0124, 2), digits(412, 2)
    ('0.012', '412')
    """
    if value is None or math.isnan(value):
        return "no number"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    written = f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.{precision}g}"
    return written.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "−")


@dataclass(frozen=True)
class Axis:
    """Part of a scale.

    Args:
        forward: the scale: values whose images are equally far apart are drawn equally far apart.
        low, high: its ends, on that scale.
        marks: values, and the text beside them.
        words: the text of a value in a tip.
        names: whether the marks are names, which are written at an angle where there is little room.
        start, end: where its ends are drawn, in pixels.
    """

    forward: Callable[[float], float]
    low: float
    high: float
    marks: tuple[tuple[float, str], ...]
    words: Callable[[Number], str] = digits
    names: bool = False
    start: float = 0.0
    end: float = 1.0

    def at(self, value: Number, *, clip: bool = False) -> float | None:
        """The place between start and end; ``None`` for a value that has no place on the axis.

        With ``clip``, a value beyond an end is moved there, and only where there is no number there is no place.

        >>> log_axis([1, 100]).at(10), log_axis([1, 100]).at(0), log_axis([1, 100]).at(0, clip=True)
        (0.5, None, 0.0)
        """
        if value is None or math.isnan(value):
            return None
        part = math.nan
        with contextlib.suppress(ValueError, OverflowError):
            part = (self.forward(value) - self.low) / (self.high - self.low)
        if math.isnan(part):
            part = math.inf if value > 0 else -math.inf
        if not clip and not -1e-6 <= part <= 1 + 1e-6:
            return None
        return self.start + (min(max(part, 0.0), 1.0) if clip else part) * (self.end - self.start)


def log_axis(values: Iterable[Number], min_decades: float = MIN_DECADES) -> Axis:
    """Logarithmic, for all values that are positive and finite, with some room beside them."""
    powers = [math.log10(v) for v in values if v is not None and 0 < v < math.inf]
    low, high = (min(powers), max(powers)) if powers else (0.0, 0.0)
    room = max((min_decades - (high - low)) / 2, 0.04 * (high - low)) if powers else min_decades / 2
    low, high = low - room, high + room
    if 1.5 < high - low < 8:
        low, high = math.floor(low + 0.1), math.ceil(high - 0.1)
    every = max(math.ceil((high - low) / 6), 1)
    factors = (1, 2, 5) if high - low < 1.5 else (1,)
    shown = range(max(math.floor(low), MIN_EXPONENT), min(math.ceil(high), MAX_EXPONENT) + 1)
    found = [f * 10.0**d for d in shown if d % every == 0 for f in factors]
    return Axis(math.log10, low, high, tuple((v, power(v)) for v in found if low <= math.log10(v) <= high))


def linear_axis(low: float, high: float, max_marks: int = 5) -> Axis:
    """A linear axis with round marks.

    >>> [mark for _, mark in linear_axis(0, 30).marks]
    ['0', '10', '20', '30']
    """
    high = high if high > low else low + 1
    rough = (high - low) / max_marks
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(f * size for f in (1, 2, 5, 10) if f * size >= rough * (1 - 1e-9))
    marks = [step * i for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]
    return Axis(lambda x: x, low, high, tuple((m, f"{m:,.6g}".replace("-", "−")) for m in marks))


def category_axis(names: Sequence[str], low: float = -0.5, high: float | None = None) -> Axis:
    """Names at 0, 1, 2, …; without names an axis without marks.

    >>> category_axis(["a", "b"]).at(1)
    0.75
    """
    end = len(names) - 0.5 if high is None else high
    return Axis(lambda x: x, low, end, tuple(enumerate(names)), names=True)


def share_axis(values: Iterable[Number]) -> Axis:
    """For accuracies: as much room between 90 and 99 % as between 50 and 90, if any gets there."""
    seen = [v for v in values if v is not None and 0 <= v <= 1]
    if not seen or max(seen) < 0.6:
        axis = linear_axis(0, max(seen, default=1.0) or 0.01)
        places: list[float] = [m for m, _ in axis.marks]
    else:
        low, high = _logit(max(min(seen), 0.01)), _logit(max(seen))
        room = max(0.05 * (high - low), 0.3)
        axis = Axis(_logit, low - room, high + room, ())
        places = [v for v in (0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 0.999) if axis.at(v) is not None]
    marks = tuple((v, f"{100 * v:.4g} %") for v in places)
    return replace(axis, marks=marks, words=lambda v: digits(v) if v is None else f"{v:.2%}")


def asinh_axis(reach: float, unit: float, min_gap: float = 0.3) -> Axis:
    """From minus to plus ``reach``, linear up to ``unit`` and logarithmic beyond.

    Marks are zero, powers of ten from the largest, and 5 or 2 times such, at least ``min_gap`` of half an axis apart.
    """
    end = math.asinh(reach / unit)
    kept: dict[float, float] = {0.0: 0.0}
    decades = range(math.floor(math.log10(reach)), math.floor(math.log10(unit)) - 3, -1)
    for mark in (factor * 10.0**decade for factor in (1, 5, 2) for decade in decades):
        place = math.asinh(mark / unit) / end
        if place <= 1 and all(abs(place - other) > min_gap for other in kept.values()):
            kept[mark] = place
    marks = sorted({*(-m for m in kept if m), *kept})
    return Axis(lambda v: math.asinh(v / unit), -end, end, tuple((m, power(m)) for m in marks))


def asinh_unit(scales: Iterable[Number]) -> float:
    """Where a shared axis turns from linear to logarithmic: at the smallest scale that is not as good as zero."""
    found = [s for s in scales if s and math.isfinite(s)]
    return max(min(found), max(found) * 1e-9) if found else 1.0


def power(value: float) -> str:
    """The text beside a mark of a logarithmic axis.

    >>> power(0.01), power(2000), power(1e-5), power(-5e7)
    ('0.01', '2000', '10⁻⁵', '−5·10⁷')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}".replace("-", "−")
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    factor = round(abs(value) / 10.0**exponent)
    sign = "−" if value < 0 else ""
    return f"{sign}{'' if factor == 1 else f'{factor}·'}{ten_to(exponent)}"


def ten_to(exponent: int) -> str:
    """A power of ten.

    >>> ten_to(-12)
    '10⁻¹²'
    """
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def thinned(values: Sequence[Number], limit: int) -> list[int]:
    """Indices of the values to draw: of each piece the smallest and the largest, so that no peak is lost.

    >>> thinned([0, 1, 9, 1, 0, 1, -9, 1], 4)
    [0, 2, 6, 7]
    """
    if len(values) <= limit:
        return list(range(len(values)))
    size = math.ceil(len(values) / max((limit - 2) // 2, 1))
    kept = {0, len(values) - 1}
    for start in range(0, len(values), size):
        piece = [(v, i) for i, v in enumerate(values[start : start + size], start) if v is not None]
        kept |= {min(piece)[1], max(piece)[1]} if piece else {start}
    return sorted(kept)


def _logit(share: float) -> float:
    """The logit of a share, cut off at 99.99 %, so that 100 % has a place."""
    within = min(max(share, 1e-4), 1 - 1e-4)
    return math.log(within / (1 - within))
