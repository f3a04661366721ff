"""The trail of a tensor: the function applied to it since the last layer, sampled where the gains need it.

Each tensor in a traced run has a :class:`Trail`. Elementwise functions are applied to the trail's samples as well as to
the tensor, so any composition of them, written in any way, ends in the right gain.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hyperfan.formulas.gains import VARIANCES
from hyperfan.mainnet.gains import gain_curve, grid, multiply, second_moments, sum_moments
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity

ValueKey = tuple[int, tuple[str, ...]]
"""A node, and the functions that were applied to it."""


@dataclass(frozen=True)
class Logits:
    """A product of queries and keys: the layers of the queries alone, and its second moment if both have unit scale."""

    queries: frozenset[str]
    second_moment: float


@dataclass(frozen=True)
class Trail:
    """A tensor as f(z), where z is the output of its source layers.

    Args:
        node: identifies z and the positions of its values, so that x·σ(x) is known to be a function of one variable.
        sources: the weights whose layers made z.
        samples: f on the grid; ``None`` once only the second moments are known.
        moments: :func:`second_moments`, where the samples are gone; ``None`` with no samples means unknown.
        names: the functions applied.
        history: the nodes z was computed from.
        since_layer: those of them that no layer separates from z.
        linear_past: the values that z is a linear function of, through layers or not.
        origin: the node whose values these are, if they were only rearranged.
        depth: how many layers lie behind it.
        weights_behind: the weights of those layers.
        source_input: the node that the source layer read, and
        source_value: the value that it made of that.
        has_source_scale: whether z has the scale that its source gave it; not after a norm or a sum.
        pooled: whether each value stands for several.
        normalised: whether a norm gave z its scale.
        frequency: ω, if f is sin(ω·z) or cos(ω·z).
        terms: how many branches were added up in z.
        logits: if z is a product of queries and keys, what is known of it.
    """

    node: int
    sources: frozenset[str] = frozenset()
    samples: Tensor | None = field(default_factory=grid)
    moments: Tensor | None = None
    names: tuple[str, ...] = ()
    history: frozenset[int] = frozenset()
    since_layer: frozenset[int] = frozenset()
    linear_past: frozenset[ValueKey] = frozenset()
    origin: int | None = None
    depth: int = 0
    weights_behind: frozenset[str] = frozenset()
    source_input: int | None = None
    source_value: ValueKey | None = None
    has_source_scale: bool = True
    pooled: bool = False
    normalised: bool = False
    frequency: float = 1.0
    terms: int = 1
    logits: "Logits | None" = None

    @property
    def is_identity(self) -> bool:
        """Whether nothing but linear steps happened since the source."""
        return self.samples is not None and torch.equal(self.samples, grid())

    @property
    def unit_second_moment(self) -> float:
        """E[f²] if z has variance 1; nan where it is not known."""
        moments = self.second_moments
        return math.nan if moments is None else moments[0, VARIANCES.index(1.0)].item()

    @property
    def slope(self) -> float | None:
        """The constant c if f(z) = c·z; ``None`` of any other function."""
        if self.samples is None or self.samples is grid():
            return None if self.samples is None else 1.0
        with torch.no_grad():
            slope, other_end = ((self.samples[-1, i] / grid()[-1, i]).item() for i in (-1, 0))
            if not math.isclose(slope, other_end, rel_tol=1e-6):
                return None  # as nearly always: the other values need not be looked at
            return slope if torch.allclose(self.samples, slope * grid(), rtol=1e-6, atol=0) else None

    @property
    def multiple(self) -> float:
        """The factor c if f is c·z with a positive c, else 1."""
        return self.slope if not self.names and self.slope is not None and self.slope > 0 else 1.0

    @property
    def scale_source(self) -> str | None:
        """The one weight whose output variance is that of z, if there is one."""
        return next(iter(self.sources)) if self.has_source_scale and len(self.sources) == 1 else None

    @property
    def scale_assumed(self) -> bool:
        """Whether the scale of z is only assumed: it is not that of one layer, of a norm or of the input, or pooled."""
        return self.pooled or not (self.normalised or self.scale_source is not None or self.depth == 0)

    @property
    def values_node(self) -> int:
        """The node whose values these are, rearranged or not."""
        return self.node if self.origin is None else self.origin

    def nonlinearity(self) -> Nonlinearity:
        """The nonlinearity that a layer consumes when it reads this tensor."""
        standardised = self.depth == 0 and not self.names  # inputs that the net itself shifts and scales
        if self.is_identity or standardised:
            return IDENTITY
        if self.samples is not None and torch.equal(self.samples, grid().clamp(min=0)):
            return Nonlinearity.named("relu")
        return Nonlinearity("·".join(self.names) or "arithmetic", gain_curve(self.second_moments), self.frequency)

    @functools.cached_property
    def second_moments(self) -> Tensor | None:
        """E[f²] and E[f′²] for each tabulated variance of z, or ``None`` where they are unknown."""
        return self.moments if self.samples is None else second_moments(self.samples)

    def apply(self, name: str, samples: Tensor | None) -> "Trail":
        """Apply an elementwise function (arithmetic has no name); ``samples=None`` where its effect is not known."""
        names = (*self.names, name) if name else self.names
        return replace(self, samples=samples, moments=None, names=names, frequency=1.0)

    def rearrange(self, node: int) -> "Trail":
        """Put the same values at other positions."""
        return replace(self._successor(node), origin=self.values_node)

    def select(self, node: int) -> "Trail":
        """Take some of the values, which are then a variable of their own."""
        return replace(self._successor(node), origin=None)

    def pool(self, node: int) -> "Trail":
        """Put one value in place of several."""
        return replace(self._successor(node), origin=None, pooled=True)

    def add_up(self, node: int, count: int) -> "Trail":
        """Put the sum of so many values in place of them, as if they were independent."""
        assert self.samples is not None
        summed = replace(self.pool(node), moments=sum_moments(self.samples, count), samples=None)
        return replace(summed, names=(*self.names, "sum"), frequency=1.0)

    def normalise(self, node: int, mean_square: float = 1.0) -> "Trail":
        """Pass through a norm: this second moment whatever came before, still the same sources."""
        identity = replace(self.select(node), samples=grid(), moments=None, names=(), frequency=1.0)
        unit = replace(identity, has_source_scale=False, pooled=False, normalised=True, terms=1)
        unit = replace(unit, linear_past=frozenset())
        with torch.inference_mode(False), torch.enable_grad():
            return unit if mean_square == 1 else unit.apply("norm", grid() * mean_square**0.5)

    def _successor(self, node: int) -> "Trail":
        since_layer, linear_past = self.since_layer | {self.node}, self._linear_past
        return replace(self, node=node, history=self._past, since_layer=since_layer, linear_past=linear_past)

    @property
    def _past(self) -> frozenset[int]:
        return self.history | {self.node}

    @property
    def value(self) -> ValueKey:
        """Identifies f(z)."""
        return self.node, self.names

    @property
    def _linear_past(self) -> frozenset[ValueKey]:
        return self.linear_past | {self.value} if self.slope is not None else frozenset([self.value])

    @property
    def stream(self) -> frozenset[int]:
        """The nodes that reach z without a layer between."""
        return self.since_layer | {self.node}


def layer_output(node: int, weight: str, inputs: Sequence[Trail]) -> Trail:
    """The trail that begins at the output of a layer."""
    joined, source = combine(node, inputs), frozenset([weight])
    return replace(
        joined,
        sources=source,
        depth=joined.depth + 1,
        since_layer=frozenset(),
        linear_past=inputs[0]._linear_past,
        weights_behind=joined.weights_behind | source,
        source_input=inputs[0].node,
        source_value=inputs[0].value,
        has_source_scale=True,
    )


def combine(node: int, trails: Sequence[Trail]) -> Trail:
    """A new variable computed from several, with no source of its own."""
    empty: frozenset[int] = frozenset()
    return Trail(
        node,
        history=empty.union(*(t._past for t in trails)),
        since_layer=empty.union(*(t.stream for t in trails)),
        depth=max(t.depth for t in trails),
        weights_behind=_union(t.weights_behind for t in trails),
        has_source_scale=False,
    )


def unknown(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """The trail after a function that is not understood."""
    names = (*dict.fromkeys(n for t in trails for n in t.names), name or "an unnamed function")
    return replace(combine(node, trails), sources=_union(t.sources for t in trails), samples=None, names=names)


def add(node: int, trails: Sequence[Trail]) -> Trail:
    """A sum of several tensors, made by those sources that reach it linearly."""
    joined = replace(combine(node, trails), sources=_union(t.sources for t in trails if t.slope is not None))
    logits = next((t.logits for t in trails if t.logits), None)
    terms = 1 if is_low_rank_update(trails) else sum(t.terms for t in trails)
    return replace(joined, terms=terms, logits=logits)


def is_low_rank_update(trails: Sequence[Trail]) -> bool:
    """Whether a sum is W·x + B·A·x, which is one layer with two weights, as with LoRA, and no residual block."""
    if len(trails) != 2 or any(t.slope is None for t in trails):
        return False
    short, long = sorted(trails, key=lambda t: t.depth)
    through = short.stream & long.history
    return short.depth < long.depth and short.source_value in long.linear_past and not through


def product(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """f(z)·g(u) of independent z and u, as in a gate; of values that are not independent nothing is known."""
    moments = trails[0].second_moments
    for other in trails[1:]:
        moments = multiply(moments, other.second_moments)
    origins = [t.values_node for t in trails]
    if len(set(origins)) < len(origins) or any(t.pooled for t in trails):
        moments = None
    names = (*(n for t in trails for n in t.names), name)
    sources = _union(t.sources for t in trails if t.is_identity) or _union(t.sources for t in trails)
    return replace(combine(node, trails), sources=sources, samples=None, moments=moments, names=names)


def concatenate(node: int, trails: Sequence[Trail], sizes: Sequence[int]) -> Trail:
    """Several tensors side by side: the moments averaged over the parts."""
    first = trails[0]
    joined = replace(combine(node, trails), sources=_union(t.sources for t in trails))
    if all(_equal(first.samples, t.samples) for t in trails):
        return replace(joined, samples=first.samples, names=first.names, frequency=first.frequency)
    moments: Tensor | None = torch.zeros(2, len(VARIANCES), dtype=torch.float64, device="cpu")
    for trail, size in zip(trails, sizes, strict=True):
        part = trail.second_moments
        moments = None if moments is None or part is None else moments + part * (size / sum(sizes))
    names = dict.fromkeys("·".join(t.names) or "linear" for t in trails)
    return replace(joined, samples=None, moments=moments, names=("+".join(names),))


def residual_branch(trails: Sequence[Trail]) -> Trail | None:
    """The branch F of a sum x + F(x): the term behind more layers, next to a shortcut from where it began.

    The shortcut is a node that the branch was computed from, or a layer (a projection) that read such a node and has
    no part in the branch, as it would in a recurrence.
    """
    if len(trails) != 2:
        return None
    for shortcut, branch in (trails, trails[::-1]):
        if shortcut.stream & branch.history and not shortcut.stream & branch.stream:
            return branch
    shortcut, branch = sorted(trails, key=lambda t: t.depth)
    projected = (
        shortcut.is_identity
        and shortcut.source_input in branch.history
        and not shortcut.sources & branch.weights_behind
        and not is_low_rank_update(trails)
    )
    return branch if branch.depth > shortcut.depth and projected else None


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    empty: frozenset[str] = frozenset()
    return empty.union(*sets)
