"""Which heads can be trained how, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.chunks import InputLayers
from hyperfan.optim.collapsed import CONDITION_LIMIT, gram
from hyperfan.text import table

Kind = Literal["collapsed", "factored", "dense", "frozen"]
HOOKED = "it has forward hooks"
INPUTS = "input layers"
"""What those of chunks are called among the heads; no head has a space in its name."""


@dataclass(frozen=True)
class Row:
    """One head's line.

    Args:
        head: its name.
        codes: how many it makes tensors or chunks of.
        kind: how it is trained.
        reason: why so.
        saved: bytes of gradient that torch.optim.SGD would hold and this does not, and, for a collapsed head, of
            momentum until someone looks.
    """

    head: str
    codes: int
    kind: Kind
    reason: str
    saved: int


@dataclass(frozen=True)
class TrainingPlan:
    """How each head is trained; prints as a table."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        """The table, and the sum of what is saved."""
        lines = [[r.head, str(r.codes), r.kind, _bytes(r.saved), r.reason] for r in self.rows]
        total = _bytes(sum(r.saved for r in self.rows))
        return f"{table(['head', 'codes', 'plan', 'saves', 'because'], lines)}\nsaves {total} in all"


def choose(net: HyperNet, name: str, given: Callable[[torch.Tensor], bool]) -> tuple[Kind, str]:
    """The fastest plan that is exact for a head, and the reason.

    Args:
        net: the hypernet.
        name: one of its heads.
        given: whether a parameter was given to the optimiser.
    """
    head, codes = net.heads.head(name), net.heads.layout.heads[name].count
    both = [p.requires_grad and given(p) for p in (head.weight, head.bias)]
    if not (head.weight.requires_grad or head.bias.requires_grad):
        return "frozen", "requires no gradients"
    if not any(both):
        return "dense", "not given to this optimiser"
    if head._forward_hooks or head._forward_pre_hooks:
        return "dense", HOOKED
    if codes > net.width:
        return "dense", f"has more codes ({codes}) than it is wide ({net.width}), so this is the smaller gradient"
    moving = _why_codes_change(net)
    if moving is not None:
        return "factored", moving
    if any(net.heads.layout.cut):
        return "factored", "its tensors come in chunks"
    if not all(both):
        return "factored", f"its {'bias' if both[0] else 'weight'} is not trained"
    dependent = None
    if net.trunk is None and not head.weight.is_meta:  # else it shows when the codes come
        dependent = why_dependent(net.codes()[net.heads.layout.heads[name].tensors])
    return ("collapsed", "its codes are constant") if dependent is None else ("factored", dependent)


def choose_inputs(net: HyperNet, layers: InputLayers, given: Callable[[torch.Tensor], bool]) -> tuple[Kind, str]:
    """The same for the input layers of chunks."""
    both = [p.requires_grad and given(p) for p in (layers.weight, layers.bias)]
    if not (layers.weight.requires_grad or layers.bias.requires_grad):
        return "frozen", "requires no gradients"
    if not all(both):
        return "dense", "not all of them is trained by this optimiser"
    if layers._forward_hooks or layers._forward_pre_hooks:
        return "dense", HOOKED
    if _why_embeddings_change(net) is not None:
        return "dense", "their embeddings are not constant"
    return "collapsed", "their embeddings are constant"


def why_dependent(codes: torch.Tensor) -> str | None:
    """Why a head cannot be recovered from what these codes made, if so."""
    condition = float(torch.linalg.cond(gram(codes)))
    if condition <= CONDITION_LIMIT:
        return None
    return f"its codes are nearly dependent (condition number {condition:.0e})"


def saved(weight: torch.Tensor, bias: torch.Tensor, held: int, kind: Kind, momentum: bool) -> int:
    """Bytes that the plan does not hold and torch.optim.SGD would; ``held`` is how many values of gradient it does."""
    if kind in ("dense", "frozen"):
        return 0
    spared = (weight.numel() + bias.numel() - held) * weight.element_size()
    return spared * (2 if momentum and kind == "collapsed" else 1)


def _why_codes_change(net: HyperNet) -> str | None:
    moving = _why_embeddings_change(net)
    if moving is None and net.trunk is not None and any(p.requires_grad for p in net.trunk.parameters()):
        return "its codes come from a trunk that is trained"
    return moving


def _why_embeddings_change(net: HyperNet) -> str | None:
    config, weight = net.embeddings.config, net.embeddings.weight
    if config.given:
        return "its codes are given at the call; dense if each sample has its own"
    if config.tasks is not None:
        return "its codes change with the task; dense if each sample has its own"
    if config.noise:
        return "its codes have noise"
    if weight is not None and weight.requires_grad:
        return "its embeddings are trained"
    if net.embeddings.chunks is not None and net.embeddings.chunks.requires_grad:
        return "the chunks' embeddings are trained"
    return None


def _bytes(count: int) -> str:
    """Bytes for people: 1,234,567 is 1.2 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
