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
        node: identifies z, so that x·σ(x) is known to be a function of one variable.
        sources: the weights whose layers made z.
        samples: f on the grid; ``None`` once only the second moments are known.
        moments: what :func:`integrate` gives, where the samples are gone; ``None`` with no samples means unknown.
        names: the functions applied.
        history: the nodes z was computed from.
        scaled: whether z has the scale that its sources gave it; not after a norm or a sum.
    """

    node: int
    sources: frozenset[str] = frozenset()
    samples: Tensor | None = field(default_factory=grid)
    moments: Tensor | None = None
    names: tuple[str, ...] = ()
    history: frozenset[int] = frozenset()
    scaled: bool = True

    @property
    def is_identity(self) -> bool:
        """Whether nothing but linear steps happened since the source."""
        return self.samples is not None and torch.equal(self.samples, grid())

    @property
    def reads(self) -> str | None:
        """The one weight whose output variance is that of z, if there is one."""
        return next(iter(self.sources)) if self.scaled and len(self.sources) == 1 else None

    def nonlinearity(self) -> Nonlinearity:
        """What a layer that reads this tensor consumes."""
        if self.is_identity:
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

    def fresh(self, node: int) -> "Trail":
        """The same function of another variable: one part of a split tensor."""
        return replace(self, node=node, history=self.history | {self.node})

    def reset(self, node: int) -> "Trail":
        """After a norm: unit second moment whatever came before, still the same sources."""
        return Trail(node, self.sources, history=self.history | {self.node}, scaled=False)


def total(node: int, trails: Sequence[Trail]) -> Trail:
    """A sum of several tensors: a variable of its own, made by those sources that reach it linearly."""
    linear = [t for t in trails if t.is_identity]
    return Trail(node, _union(t.sources for t in linear), history=_histories(trails), scaled=False)


def product(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """f(z)·g(u) of independent z and u, as in a gate."""
    moments = trails[0].second_moments()
    for other in trails[1:]:
        moments = multiply(moments, other.second_moments())
    names = (*(n for t in trails for n in t.names), name)
    return Trail(node, _union(t.sources for t in trails), None, moments, names, _histories(trails), scaled=False)


def joined(node: int, trails: Sequence[Trail], sizes: Sequence[int]) -> Trail:
    """A concatenation: the moments averaged over the parts."""
    first = trails[0]
    sources, history = _union(t.sources for t in trails), _histories(trails)
    if all(_same(first.samples, t.samples) for t in trails):
        return Trail(node, sources, first.samples, None, first.names, history, scaled=False)
    moments: Tensor | None = torch.zeros(2, len(VARIANCES), dtype=torch.float64)
    for trail, size in zip(trails, sizes, strict=True):
        part = trail.second_moments()
        moments = None if moments is None or part is None else moments + part * (size / sum(sizes))
    names = dict.fromkeys("·".join(t.names) or "linear" for t in trails)
    return Trail(node, sources, None, moments, ("+".join(names),), history, scaled=False)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    empty: frozenset[str] = frozenset()
    return empty.union(*sets)


def _histories(trails: Sequence[Trail]) -> frozenset[int]:
    empty: frozenset[int] = frozenset()
    return empty.union(*(t.history | {t.node} for t in trails))
