"""What has happened to a tensor since the last layer: the function applied so far, sampled on the grid of the gains.

Each tensor in a traced run has a :class:`Trail`. Elementwise functions are applied to the trail's samples as well
as to the tensor, so any composition of them, written in any way, ends in the right gain.
"""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hyperfan.formulas.gains import GRID, Gains, gains_from_samples
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity

_MOMENTS: dict[bytes, tuple[float, float]] = {}  # integrating takes milliseconds, and deep nets repeat themselves


@functools.cache
def grid() -> Tensor:
    """The points at which nonlinearities are sampled."""
    return torch.tensor(GRID, dtype=torch.float64)


@dataclass(frozen=True)
class Trail:
    """A tensor as f(z), where z is what its source layers put out.

    Args:
        node: identifies z, so that x·σ(x) is known to be a function of one variable.
        sources: the weights whose layers made z.
        samples: f on the grid; ``None`` once only the second moments are known.
        moments: E[f²] and E[f′²] where the samples are gone; ``None`` with no samples means unknown.
        names: the functions applied.
        history: the nodes z was computed from.
    """

    node: int
    sources: frozenset[str] = frozenset()
    samples: Tensor | None = field(default_factory=grid)
    moments: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    history: frozenset[int] = frozenset()

    @property
    def is_identity(self) -> bool:
        """Whether nothing but linear steps happened since the source."""
        return self.samples is not None and torch.equal(self.samples, grid())

    def nonlinearity(self) -> Nonlinearity:
        """What a layer that reads this tensor consumes."""
        if self.is_identity:
            return IDENTITY
        if self.samples is not None and torch.equal(self.samples, grid().clamp(min=0)):
            return Nonlinearity.named("relu")
        moments = self.second_moments()
        if moments is None:
            return Nonlinearity("·".join(self.names), None)
        forward, backward = moments
        inverse = Gains(1 / forward, 1 / backward if backward else float("inf"))
        return Nonlinearity("·".join(self.names) or "arithmetic", inverse)

    def second_moments(self) -> tuple[float, float] | None:
        """E[f(z)²] and E[f′(z)²], or ``None`` where they are unknown."""
        if self.samples is None:
            return self.moments
        if not torch.isfinite(self.samples).all() or not self.samples.any():
            return None
        key = hashlib.blake2b(self.samples.numpy().data).digest()
        if key not in _MOMENTS:
            found = gains_from_samples(self.samples.tolist())
            _MOMENTS[key] = 1 / found.forward, 1 / found.backward
        return _MOMENTS[key]

    def applied(self, name: str, samples: Tensor | None) -> "Trail":
        """After an elementwise function (arithmetic has no name); ``samples=None`` where its effect is not known."""
        names = (*self.names, name) if name else self.names
        return replace(self, samples=samples, moments=None, names=names)

    def fresh(self, node: int) -> "Trail":
        """The same function of another variable: one part of a split tensor."""
        return replace(self, node=node, history=self.history | {self.node})

    def reset(self, node: int) -> "Trail":
        """After a norm: unit second moment whatever came before, still the same sources."""
        return Trail(node, self.sources, history=self.history | {self.node})


def total(node: int, trails: Sequence[Trail]) -> Trail:
    """A sum of several tensors: a variable of its own, made by those sources that reach it linearly."""
    linear = [t for t in trails if t.is_identity]
    return Trail(node, _union(t.sources for t in linear), history=_histories(trails))


def product(node: int, trails: Sequence[Trail], name: str) -> Trail:
    """f(z)·g(u) of independent z and u: moments multiply forward; backward, the mean over both inputs."""
    first, *rest = trails
    moments = first.second_moments()
    for other in rest:
        m, n = moments, other.second_moments()
        moments = None if m is None or n is None else (m[0] * n[0], (m[1] * n[0] + m[0] * n[1]) / 2)
    names = tuple(n for t in trails for n in t.names)
    sources = _union(t.sources for t in trails)
    if moments is None or any(abs(m - 1) > 1e-9 for m in moments):
        return Trail(node, sources, None, moments, (*names, name), _histories(trails))
    return Trail(node, sources, history=_histories(trails))


def joined(node: int, trails: Sequence[Trail], sizes: Sequence[int]) -> Trail:
    """A concatenation: the moments averaged over the parts."""
    first = trails[0]
    sources, history = _union(t.sources for t in trails), _histories(trails)
    if all(_same(first.samples, t.samples) for t in trails):
        return Trail(node, sources, first.samples, None, first.names, history)
    each = [t.second_moments() for t in trails]
    names = tuple(dict.fromkeys("·".join(t.names) or "linear" for t in trails))
    known = [m for m in each if m is not None]
    if len(known) < len(each):
        return Trail(node, sources, None, None, ("cat", *names), history)
    share = [s / sum(sizes) for s in sizes]
    moments = (
        sum(s * m[0] for s, m in zip(share, known, strict=True)),
        sum(s * m[1] for s, m in zip(share, known, strict=True)),
    )
    return Trail(node, sources, None, moments, ("+".join(names),), history)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    empty: frozenset[str] = frozenset()
    return empty.union(*sets)


def _histories(trails: Sequence[Trail]) -> frozenset[int]:
    empty: frozenset[int] = frozenset()
    return empty.union(*(t.history | {t.node} for t in trails))
