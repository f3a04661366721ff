"""``Embedding``: what a user says about the vectors that a hypernet starts from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsIndex, TypeGuard, get_args

from torch import Tensor

from hyperfan.codes.draw import Distribution
from hyperfan.errors import HyperfanError, nearest

Task = int | Tensor
Scope = Literal["embedding", "layer", "block", "network"]
IdentityPart = Literal["layer", "module", "rank"]
"""Parts that an identity can be joined of: which repeated layer, which module in it, which rank of an update."""
CODE = "code"
"""Key of an identity that is not joined of parts: each code has one of its own."""


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
        normalise: scale every code to one length before the heads, so that the init is exact for each: to ‖h‖² = 1
            where a trunk would make such small codes of given conditions, else to root mean square 1.
        identity: size of a second vector, one for each generated tensor (or chunk, or rank), which is joined to the
            condition before the trunk, so that tensors of one shape can share a head though one condition serves the
            net. It is drawn as the condition is, and trained; an ``Embedding(size, …)`` says otherwise. Or several such
            vectors by what has one: ``{"layer": 16, "module": 16}`` joins one for each repeated layer, as
            "model.layers.3", with one for each module in it, as "self_attn.q_proj"; "rank" is the rank of an update,
            with ``LoRA(…, code_per="rank")``. For ``per="net"`` with tasks, noise or a given condition.
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
    identity: "int | Embedding | Mapping[IdentityPart, int | Embedding] | None" = field(default=None, hash=False)

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
        if self.identity is not None:
            self._check_identities()

    def _check_identities(self) -> None:
        if isinstance(self.identity, Mapping):
            unknown = [part for part in self.identity if part not in get_args(IdentityPart)]
            if unknown or not self.identity:
                seen = nearest(str(unknown[0]), get_args(IdentityPart)) if unknown else "it is empty"
                raise HyperfanError(f"Embedding(identity={self.identity!r}): its keys are layer, module, rank: {seen}")
        for identity in self.identity.values() if isinstance(self.identity, Mapping) else (self.identity,):
            assert identity is not None
            self._check_identity(identity)

    def _check_identity(self, identity: "int | Embedding") -> None:
        e = identity if isinstance(identity, Embedding) else None
        if e is None and not _is_count(identity):
            raise HyperfanError(f"Embedding(identity={identity!r}): its size is an integer from 1")
        if e is not None and e != Embedding(e.size, e.trainable, std=e.std, distribution=e.distribution):
            raise HyperfanError(
                f"identity={identity}: an identity is stored, one for each tensor, so that it has only a size, "
                "trainable=, std= and distribution="
            )
        if self.per != "net":
            raise HyperfanError(
                "identity= tells tensors apart that have one condition, and here each has an embedding of its own: use "
                "per='net', or leave identity= out"
            )
        if not (self.given or self.tasks is not None or self.noise):
            raise HyperfanError(
                "identity= is joined to a condition, and there is none, since all calls have the same embedding: use "
                "given=True or tasks=…, or per='tensor' without identity="
            )

    @property
    def mean_square(self) -> float:
        """E[e²] of a coordinate, noise included."""
        return self.std**2 + self.noise**2 / 3

    def as_identity(self, size: int, trainable: bool) -> "Embedding":
        """An identity beside this condition that is drawn as the condition is."""
        return Embedding(size, trainable, std=self.std, distribution=self.distribution)

    @property
    def identities(self) -> "dict[str, Embedding]":
        """The identities joined to the condition, by what has one: each code, or each layer, module or rank."""
        if self.identity is None:
            return {}
        parts: Mapping[Any, int | Embedding] = (
            self.identity if isinstance(self.identity, Mapping) else {CODE: self.identity}
        )
        return {
            part: of if isinstance(of, Embedding) else self.as_identity(of, trainable=True)
            for part, of in parts.items()
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Embedding":
        """An embedding from what ``dataclasses.asdict`` made of one; a TypeError if a field is not known here."""
        fields = dict(content)
        if isinstance(identity := fields.get("identity"), Mapping):
            if "size" in identity:
                fields["identity"] = Embedding(**identity)
            else:
                fields["identity"] = {
                    part: Embedding(**of) if isinstance(of, Mapping) else of for part, of in identity.items()
                }
        return Embedding(**fields)


def is_index(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, also one of numpy; of which Python's booleans are a kind and no number."""
    return isinstance(value, SupportsIndex) and not isinstance(value, (bool, Tensor))


def _is_count(value: object) -> bool:
    return is_index(value) and value >= 1
