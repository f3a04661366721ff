"""An empty figure, and a drawn one on disk. Matplotlib is asked for when something is drawn, not before."""

import functools
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from hyperfan.errors import HyperfanError
from hyperfan.report.axis import asinh_marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_P = ParamSpec("_P")

RC: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "svg.fonttype": "path",
    "svg.hashsalt": "hyperfan",
}
COLOURS = 96
"""In a PNG, which makes it a third of the size and looks the same."""


def styled(draw: "Callable[_P, Figure]") -> "Callable[_P, Figure]":
    """Draw in our style, without touching anyone else's."""

    @functools.wraps(draw)
    def drawn(*args: _P.args, **kwargs: _P.kwargs) -> "Figure":
        try:
            import matplotlib
        except ImportError as error:
            raise HyperfanError("figures need matplotlib: pip install 'hyperfan[report]'") from error
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return drawn


def canvas(
    rows: int, columns: int, title: str, size: tuple[float, float], **shared: Any
) -> "tuple[Figure, list[list[Axes]]]":
    """A figure with a grid of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure, [list(row) for row in axes]


def tick(axis: "Axis", unit: float, apart: float) -> None:
    """Mark zero and some powers of ten on an axis that is linear up to ``unit`` and logarithmic beyond.

    Args:
        axis: which.
        unit: where it turns.
        apart: how far two marks must be from each other, as a part of half an axis, not to run into each other.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    low, high = axis.get_view_interval()
    reach = max(abs(low), abs(high))
    axis.set_major_locator(FixedLocator(asinh_marks(reach, unit, apart)))
    decades = [10.0**d for d in range(math.ceil(math.log10(unit)), math.floor(math.log10(reach)) + 1)]
    axis.set_minor_locator(FixedLocator([*(-d for d in decades), *decades]))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))


def short(x: float) -> str:
    """Two digits, or all of those before the point.

    >>> short(0.0123), short(123.4), short(12345.6), short(-1e-5)
    ('0.012', '123', '1.2e4', '−1e−5')
    """
    text = f"{x:.0f}" if 100 <= abs(x) < 1e4 else f"{x:.2g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def save(figure: "Figure", path: Path, formats: Sequence[str] = ("png", "svg")) -> None:
    """Write ``path`` with each ending. The same figure makes the same bytes."""
    import matplotlib

    with matplotlib.rc_context(RC):
        if "svg" in formats:
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        if "png" in formats:
            from PIL import Image

            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=110)
            picture = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            picture.save(path.with_suffix(".png"), optimize=True)
