"""How the scales of layers go with the width and the depth of a net, from diagnoses of several sizes.

An init that is right at one width only has a layer that grows, or fades, as the net becomes wider. Each layer's root
mean square over that of plain nets, r, is fitted with log r = a·log(width) + c, which has a = 0 where the init knows
the fans; and at the ends of the net with log r = a·depth + c, which has a = 0 where no layer adds a factor.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hyperfan.charts.coordinates import Along
from hyperfan.charts.scale import MISSING, Interval, Signal
from hyperfan.probe.diagnosis import Diagnosis, LayerReading
from hyperfan.probe.moments import REACH_99_TO_95, Scale

SIGNALS: tuple[Signal, ...] = ("activations", "gradients")
MIN_SLOPE: Mapping[Along, float] = {"width": 0.15, "depth": 0.1}
"""The near end of a slope's 99 % interval from which a scale counts as dependent: the exponent of the width, of
which a forgotten fan makes 0.5; and the logarithm of the factor from layer to layer."""
LAST_LAYER, FIRST_LAYER = "the last layer", "the first layer"
"""The layers at which nets of several depths are compared: by outputs, and by gradients that came all the way."""


class Size(NamedTuple):
    """The size of a net; ``None`` for what was not varied."""

    width: int | None
    depth: int | None

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items() if value is not None)


@dataclass(frozen=True)
class Trend:
    """How one layer's scale, over that of plain nets, goes with the width or the depth.

    Args:
        along: what is varied.
        at: the size that is held: the depth, or the width, if both were varied.
        of: outputs of the layer, or gradients at it.
        layer: its path, or one of the constants above.
        slope: the exponent of the width; the logarithm of the factor per layer of depth.
        low, high: its 95 % interval, from the scatter of plain nets.
    """

    along: Along
    at: int | None
    of: Signal
    layer: str
    slope: float
    low: float
    high: float

    @property
    def dependent(self) -> bool:
        """Whether the scale depends on the size by more than chance and by more than matters."""
        return abs(self.slope) - REACH_99_TO_95 * (self.high - self.slope) > MIN_SLOPE[self.along]

    @property
    def what(self) -> str:
        """What has this scale, in words."""
        name = self.layer if self.layer in (FIRST_LAYER, LAST_LAYER) else f"'{self.layer}'"
        return f"the output of {name}" if self.of == "activations" else f"the gradient at {name}"

    @property
    def words(self) -> str:
        """The dependence as a formula."""
        if self.along == "width":
            return f"width^{self.slope:.2f} [{self.low:.2f}, {self.high:.2f}]"
        factor, *ends = (f"{math.exp(v):.3g}" for v in (self.slope, self.low, self.high))
        return f"{factor}^depth [{', '.join(ends)}]"


def all_trends(diagnoses: Mapping[Size, Diagnosis]) -> Iterator[Trend]:
    """Along the width at each depth, layer by layer; then along the depth at each width, at the ends of the net."""
    widths, depths = (list(dict.fromkeys(values)) for values in zip(*diagnoses, strict=True))
    if len(widths) > 1:
        for depth, of in itertools.product(depths, SIGNALS):
            layers = [[r.layer for r in seen.layers] for size, seen in diagnoses.items() if size.depth == depth]
            for layer in layers[0]:
                if all(layer in others for others in layers):
                    yield _trend(diagnoses, "width", depth, of, layer)
    if len(depths) > 1:
        for width, of in itertools.product(widths, SIGNALS):
            yield _trend(diagnoses, "depth", width, of, LAST_LAYER if of == "activations" else FIRST_LAYER)


def along_size(
    diagnoses: Mapping[Size, Diagnosis], along: Along, at: int | None, of: Signal, layer: str
) -> dict[int, Interval]:
    """The ratios of a layer to plain nets, by size."""
    found = {}
    for (width, depth), seen in diagnoses.items():
        held, varied = (depth, width) if along == "width" else (width, depth)
        if held != at or varied is None:
            continue
        readings = [r for r in seen.layers if along == "depth" or r.layer == layer]
        read = [ratio(r, of) for r in readings if None not in r.scales(of)]  # a layer that overflows is among them
        found[varied] = read[-1 if layer == LAST_LAYER else 0] if read else MISSING
    return found


def _trend(diagnoses: Mapping[Size, Diagnosis], along: Along, at: int | None, of: Signal, layer: str) -> Trend:
    """A line of least squares through log ratios; its error is the scatter of plain nets, carried through."""
    found = {size: r for size, r in along_size(diagnoses, along, at, of, layer).items() if math.isfinite(r.value)}
    if len(found) < 2:
        return Trend(along, at, of, layer, math.nan, math.nan, math.nan)
    places = [math.log(size) if along == "width" else float(size) for size in found]
    middle = sum(places) / len(places)
    spread = sum((x - middle) ** 2 for x in places)
    slope = squares = 0.0
    for x, r in zip(places, found.values(), strict=True):
        slope += (x - middle) / spread * math.log(r.value)
        squares += ((x - middle) / spread * math.log(r.high / r.value)) ** 2
    reach = math.sqrt(squares)
    return Trend(along, at, of, layer, slope, slope - reach, slope + reach)


def ratio(reading: LayerReading, of: Signal) -> Interval:
    """Root mean square over that of plain nets; the interval is where 95 % of plain nets lie around it."""
    measured, plain = reading.scales(of)
    if not (_usable(measured) and _usable(plain)):
        return MISSING
    assert measured is not None
    assert plain is not None
    middle, reach = math.sqrt(measured.value / plain.value), math.sqrt(plain.high / plain.value)
    return Interval(middle, middle / reach, middle * reach)


def _usable(scale: Scale | None) -> bool:
    return scale is not None and 0 < scale.value < math.inf and scale.high < math.inf


def farthest_layer(seen: Diagnosis, of: Signal) -> tuple[str, float | None]:
    """The layer farthest from plain nets, and its ratio to them."""
    ratios = {r.layer: at for r in seen.layers if math.isfinite(at := ratio(r, of).value)}
    if not ratios:
        return "–", None
    worst = max(ratios, key=lambda layer: abs(math.log(ratios[layer])))
    return worst, ratios[worst]
