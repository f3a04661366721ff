"""What has happened to a tensor since the last layer: the function applied so far, sampled where the gains need it.

Each tensor in a traced run has a :class:`Trail`. Elementwise functions are applied to the trail's samples as well as to
the tensor, so any composition of them, written in any way, ends in the right gain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hyperfan.formulas.gains import VARIANCES
from hyperfan.mainnet.curves import curve, grid, integrate, multiply
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity


@dataclass(frozen=True)
class Trail:
    """A tensor as f(z), where z is what its source layers put out.

    Args:
        node: identifies z with the places of its values, so that x·σ(x) is known to be a function of one variable.
        sources: the weights whose layers made z.
        samples: f on the grid; ``None`` once only the second moments are known.
        moments: what :func:`integrate` gives, where the samples are gone; ``None`` with no samples means unknown.
        names: the functions applied.
        history: the nodes z was computed from.
        level: those of them that lie behind no layer.
        origin: the node whose values these are, if they only moved.
        depth: how many layers lie behind it.
        behind: the weights of those layers.
        read: the node that the source layer read.
        scaled: whether z has the scale that its source gave it; not after a norm or a sum.
        pooled: whether each value stands for several.
        unit: whether a norm gave z its scale.
    """

    node: int
    sources: frozenset[str] = frozenset()
    samples: Tensor | None = field(default_factory=grid)
    moments: Tensor | None = None
    names: tuple[str, ...] = ()
    history: frozenset[int] = frozenset()
    level: frozenset[int] = frozenset()
    origin: int | None = None
    depth: int = 0
    behind: frozenset[str] = frozenset()
    read: int | None = None
    scaled: bool = True
    pooled: bool = False
    unit: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether nothing but linear steps happened since the source."""
        return self.samples is not None and torch.equal(self.samples, grid())

    @property
    def reads(self) -> str | None:
        """The one weight whose output variance is that of z, if there is one."""
        return next(iter(self.sources)) if self.scaled and len(self.sources) == 1 else None

    @property
    def assumed(self) -> bool:
        """Whether the scale of z is only assumed: it is not that of one layer, of a norm or of the input, or pooled."""
        return self.pooled or not (self.unit or self.reads is not None or self.depth == 0)

    @property
    def values_of(self) -> int:
        """The node whose values these are."""
        return self.node if self.origin is None else self.origin

    def nonlinearity(self) -> Nonlinearity:
        """What a layer that reads this tensor consumes."""
        standardised = self.depth == 0 and not self.names  # inputs that the net itself shifts and scales
        if self.is_identity or standardised:
            return IDENTITY
        if self.samples is not None and torch.equal(self.samples, grid().clamp(min=0)):
            return Nonlinearity.named("relu")
        return Nonlinearity("·".join(self.names) or "arithmetic", curve(self.second_moments()))

    def second_moments(self) -> Tensor | None:
        """E[f²] and E[f′²] for each tabulated variance of z, or ``None`` where they are unknown."""
        return self.moments if self.samples is None else integrate(self.samples)

    def applied(self, name: str, samples: Tensor | None) -> "Trail":
        """After an elementwise function (arithmetic has no name); ``samples=None`` where its effect is not known."""
        names = (*self.names, name) if name else self.names
        return replace(self, samples=samples, moments=None, names=names)

    def moved(self, node: int) -> "Trail":
        """The same values at other places."""
        return replace(self._next(node), origin=self.values_of)

    def part(self, node: int) -> "Trail":
        """Some of the values: a variable of its own."""
        return replace(self._next(node), origin=None)

    def pool(self, node: int) -> "Trail":
        """One value for several."""
        return replace(self._next(node), origin=None, pooled=True)

    def normed(self, node: int) -> "Trail":
        """After a norm: unit second moment whatever came before, still the same sources."""
        fresh = Trail(node, self.sources, history=self._past, level=self.level | {self.node}, scaled=False)
        fresh = replace(fresh, unit=True)
        return replace(fresh, depth=self.depth, behind=self.behind, read=self.read)

    def _next(self, node: int) -> "Trail":
        return replace(self, node=node, history=self._past, level=self.level | {self.node})

    @property
    def _past(self) -> frozenset[int]:
        return self.history | {self.node}


def layer(node: int, weight: str, inputs: Sequence[Trail]) -> Trail:
    """What a layer puts out."""
    fresh, source = joint(node, inputs), frozenset([weight])
    return replace(
        fresh, sources=source, depth=fresh.depth + 1, behind=fresh.behind | source, read=inputs[0].node, scaled=True
    )


def joint(node: int, trails: Sequence[Trail]) -> Trail:
    """A new variable computed from several, with no source of its own."""
    empty: frozenset[int] = frozenset()
    history = empty.union(*(t._past for t in trails))
    behind = _union(t.behind for t in trails)
    return Trail(node, history=history, depth=max(t.depth for t in trails), behind=behind, scaled=False)


def unknown(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """After something that is not understood."""
    names = (*dict.fromkeys(n for t in trails for n in t.names), name or "an unnamed function")
    return replace(joint(node, trails), sources=_union(t.sources for t in trails), samples=None, names=names)


def total(node: int, trails: Sequence[Trail]) -> Trail:
    """A sum of several tensors, made by those sources that reach it linearly."""
    return replace(joint(node, trails), sources=_union(t.sources for t in trails if t.is_identity))


def product(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """f(z)·g(u) of independent z and u, as in a gate; of values that are not independent nothing is known."""
    moments = trails[0].second_moments()
    for other in trails[1:]:
        moments = multiply(moments, other.second_moments())
    origins = [t.values_of for t in trails]
    if len(set(origins)) < len(origins) or any(t.pooled for t in trails):
        moments = None
    names = (*(n for t in trails for n in t.names), name)
    sources = _union(t.sources for t in trails if t.is_identity) or _union(t.sources for t in trails)
    return replace(joint(node, trails), sources=sources, samples=None, moments=moments, names=names)


def concatenated(node: int, trails: Sequence[Trail], sizes: Sequence[int]) -> Trail:
    """Several tensors side by side: the moments averaged over the parts."""
    first = trails[0]
    fresh = replace(joint(node, trails), sources=_union(t.sources for t in trails))
    if all(_same(first.samples, t.samples) for t in trails):
        return replace(fresh, samples=first.samples, names=first.names)
    moments: Tensor | None = torch.zeros(2, len(VARIANCES), dtype=torch.float64, device="cpu")
    for trail, size in zip(trails, sizes, strict=True):
        part = trail.second_moments()
        moments = None if moments is None or part is None else moments + part * (size / sum(sizes))
    names = dict.fromkeys("·".join(t.names) or "linear" for t in trails)
    return replace(fresh, samples=None, moments=moments, names=("+".join(names),))


def branch_of(trails: Sequence[Trail]) -> Trail | None:
    """Of a sum x + F(x), the branch F: what lies behind more layers, next to a shortcut from where it began.

    The shortcut is a node that the branch was computed from, or a layer (a projection) that read such a node and has
    no part in the branch, as it would in a recurrence.
    """
    if len(trails) != 2:
        return None
    shortcut, branch = sorted(trails, key=lambda t: t.depth)
    direct = (shortcut.level | {shortcut.node}) & branch.history
    projected = shortcut.is_identity and shortcut.read in branch.history and not shortcut.sources & branch.behind
    return branch if branch.depth > shortcut.depth and (direct or projected) else None


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    empty: frozenset[str] = frozenset()
    return empty.union(*sets)
