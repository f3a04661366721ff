"""How each linear map of a hypernet can be trained, and why."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import torch

from hyperfan.distributed.sharded import is_sharded_tensor, sharded_modules
from hyperfan.generators.part import Part
from hyperfan.hypernet import HyperNet
from hyperfan.text import size, table

TrainingKind = Literal["collapsed", "factored", "dense", "frozen"]


@dataclass(frozen=True)
class Choice:
    """How a map is trained, and why."""

    kind: TrainingKind
    reason: str

    @property
    def in_factors(self) -> bool:
        """Whether the map's gradient comes in factors."""
        return self.kind in ("collapsed", "factored")


@dataclass(frozen=True)
class MapRow:
    """One map's line in the table of how maps are trained.

    Args:
        head: its name.
        codes: number of codes that it read at the last call, of all samples; before the first, for one.
        kind: how it is trained.
        reason: why so.
        saved: bytes of gradient and, until someone looks, of state that torch's optimiser would hold and this does not.
        compiled: whether its step is compiled.
    """

    head: str
    codes: int
    kind: TrainingKind
    reason: str
    saved: int = 0
    compiled: bool = False


@dataclass(frozen=True)
class TrainingPlan:
    """How each head is trained; prints as a table."""

    rows: tuple[MapRow, ...]

    def __str__(self) -> str:
        """The table, and the sum of what is saved."""
        lines = [[r.head, str(r.codes), r.kind + ", compiled" * r.compiled, size(r.saved), r.reason] for r in self.rows]
        total = size(sum(r.saved for r in self.rows))
        return f"{table(['head', 'codes', 'plan', 'saves', 'because'], lines)}\nsaves {total} in all"


def choose(net: HyperNet, part: Part, given: Collection[int]) -> Choice:
    """The fastest form that is exact for a linear map, and the reason.

    Args:
        net: the hypernet.
        part: one of its generator's maps.
        given: ids of the parameters that were given to the optimiser.
    """
    weight, bias = part.map.held
    if not part.map.sharded and (sharded_modules(net) or is_sharded_tensor(weight)):
        return Choice("dense", "fully_shard divided it, and its gradient is averaged and divided as it is")
    if not (weight.requires_grad or bias.requires_grad):
        return Choice("frozen", "requires no gradients")
    trained = [p.requires_grad and id(p) in given for p in (weight, bias)]
    if not any(trained):
        return Choice("dense", "not given to this optimiser")
    if part.map.hooked:
        return Choice("dense", "it has hooks")
    width = weight.shape[-2]
    if part.gradient_rank > width:
        reason = f"has more codes ({part.codes}) than it is wide ({width}), so this is the smaller gradient"
        return Choice("dense", reason)
    moving = net.code_source.why_changing()
    if moving is None and part.input_map is not None and any(p.requires_grad for p in part.input_map.parameters()):
        moving = "its codes come from input layers that are trained"
    if moving is None and part.map.sharded and any(map(is_sharded_tensor, code_parameters(net, part))):
        moving = "its codes are made of parameters that fully_shard gathers at each call"
    if moving is not None:
        return Choice("factored", moving)
    if not all(trained):
        return Choice("factored", f"its {'bias' if trained[0] else 'weight'} is not trained")
    return Choice("collapsed", "its codes are constant")


def code_parameters(net: HyperNet, part: Part) -> list[torch.Tensor]:
    """The parameters that a map's codes are made of."""
    sources = [net.embeddings, net.trunk, part.input_map]
    return [p for source in sources if source is not None for p in source.parameters()]
