"""``Embedding``: what a user says about the vectors that a hypernet starts from."""

import math
from dataclasses import dataclass
from typing import Literal, SupportsIndex, TypeGuard, get_args

from torch import Tensor

from hyperfan.codes.draw import Distribution
from hyperfan.errors import HyperfanError, nearest

Task = int | Tensor
Scope = Literal["embedding", "layer", "block", "network"]


@dataclass(frozen=True)
class Embedding:
    """The vectors that a hypernet makes its codes of.

    Args:
        size: number of coordinates.
        trainable: whether it is a parameter; otherwise it stays as drawn.
        per: one for each generated "tensor", or one for the whole "net".
        tasks: if given, a table with one entry for each of so many tasks; choose with ``net(x, task=2)``.
        given: it comes with each call, ``net(x, embedding=e)``; then ``std`` tells what to expect.
        noise: half-width of uniform noise added anew at each call, in training or with ``net(x, noise=True)``.
        scope: what gets the same noise: each "embedding" its own, all those of a "layer", of a "block" (the module that
            holds the layer; one that the mainnet itself holds is a block alone), or of the "network".
        std: standard deviation of its distribution (1 is the paper's U(−√3, √3)).
        distribution: "uniform" or "normal".
        normalise: scale every code to root mean square 1 before the heads; then the init is exact for every code.
    """

    size: int
    trainable: bool = False
    per: Literal["tensor", "net"] = "tensor"
    tasks: int | None = None
    given: bool = False
    noise: float = 0.0
    scope: Scope = "embedding"
    std: float = 1.0
    distribution: Distribution = "uniform"
    normalise: bool = False

    def __post_init__(self) -> None:
        if not _is_count(self.size):
            raise HyperfanError(f"Embedding(size={self.size!r}): the number of coordinates is an integer from 1")
        if self.tasks is not None and not _is_count(self.tasks):
            raise HyperfanError(f"Embedding(tasks={self.tasks!r}): the number of tasks is an integer from 1")
        if self.given and (self.trainable or self.tasks is not None):
            raise HyperfanError("an embedding that is given at the call has nothing to train and no table of tasks")
        if not self.noise >= 0:
            raise HyperfanError(f"Embedding(noise={self.noise:g}): the half-width of the noise must not be negative")
        if self.scope not in get_args(Scope):
            raise HyperfanError(f"scope='{self.scope}': {nearest(str(self.scope), get_args(Scope))}")
        if self.scope != "embedding" and (not self.noise or self.per == "net"):
            why = "there is one embedding for the net" if self.noise else "there is no noise"
            raise HyperfanError(f"scope='{self.scope}' says which embeddings share their noise, but {why}")
        if not 0 < self.std < math.inf:
            raise HyperfanError(f"Embedding(std={self.std:g}): the standard deviation must be positive and finite")
        if self.distribution not in get_args(Distribution):
            raise HyperfanError(f"distribution='{self.distribution}': use 'uniform' or 'normal'")
        if self.per not in ("tensor", "net"):
            raise HyperfanError(f"per='{self.per}': one embedding for each 'tensor', or one for the 'net'")

    @property
    def mean_square(self) -> float:
        """E[e²] of a coordinate, noise included."""
        return self.std**2 + self.noise**2 / 3


def is_index(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, also one of numpy; of which Python's booleans are a kind and no number."""
    return isinstance(value, SupportsIndex) and not isinstance(value, (bool, Tensor))


def _is_count(value: object) -> bool:
    return is_index(value) and value >= 1
