"""Linear heads: W = H·h + β, one for each tensor, or one for all tensors of one shape."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from hyperfan.mainnet.spec import TensorSpec

Sharing = Literal["shared", "separate"]


class Engine(Protocol):
    """What an optimiser may put on the heads, to make their tensors and to keep their gradients its own way."""

    revision: int
    """Rises whenever it trains anything without writing to the heads."""

    def collapsed(self, codes: Tensor) -> dict[int, Tensor]:
        """The tensors, by index, that need no head just now."""

    def generate(self, name: str, codes: Tensor) -> Tensor:
        """What a head makes of (n, d_k)."""

    def sync(self) -> None:
        """Write to the heads what was trained without them."""


class Fresh(dict[str, nn.Parameter | None]):
    """The parameters of a head, which an engine brings up to date before anyone reads them through the module.

    ``dict(fresh)`` and ``dict.values(fresh)`` read them as they are.
    """

    def __init__(self, parameters: dict[str, nn.Parameter | None], sync: Callable[[], None]) -> None:
        super().__init__(parameters)
        self.sync = sync

    def __getitem__(self, name: str) -> nn.Parameter | None:
        self.sync()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As in a dict."""
        self.sync()
        return super().get(name, default)

    def items(self) -> Any:
        """As in a dict."""
        self.sync()
        return super().items()

    def values(self) -> Any:
        """As in a dict."""
        self.sync()
        return super().values()

    def __reduce__(self) -> tuple[Any, ...]:
        self.sync()
        return dict, (dict(self),)


class Head(nn.Module):
    """One head. H is stored as (d_k, outputs), in which both products of a training step are faster.

    Shape:
        codes (n, d_k) → (n, outputs)
    """

    def __init__(self, width: int, outputs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, outputs, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(outputs, device=device, dtype=dtype))

    def forward(self, codes: Tensor) -> Tensor:
        """Generate from each code."""
        return torch.addmm(self.bias, codes.to(self.weight.dtype), self.weight)

    def extra_repr(self) -> str:
        """Its size."""
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}"


class Heads(nn.ModuleDict):
    """All heads of a hypernet. Row i of the codes makes the i-th tensor.

    Args:
        tensors: what to generate.
        width: d_k.
        sharing: "shared" has one head for all weights of one shape, "separate" one for each tensor.
    """

    def __init__(self, tensors: Sequence[TensorSpec], width: int, sharing: Sharing, device: torch.device) -> None:
        super().__init__()
        self.names = [head_name(t, sharing, tensors) for t in tensors]
        self.groups: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            self.groups.setdefault(name, []).append(i)
        for name, members in self.groups.items():
            first = tensors[members[0]]
            self[name] = Head(width, first.numel, device, first.dtype)
        self.outputs = [(t.name, t.shape) for t in tensors]
        self.engine: Engine | None = None

    def head(self, name: str) -> Head:
        """One of the heads."""
        found = self[name]
        assert isinstance(found, Head)
        return found

    def forward(self, codes: Tensor, *, skip: Collection[int] = (), own: bool = False) -> dict[str, Tensor]:
        """Generate every tensor but those to skip, from (n, d_k), or a batch of each from (batch, n, d_k).

        What an engine trains in place of a head is lent, and changes with training, unless ``own`` ones are wanted.
        """
        batch = codes.shape[:-2]
        made = {} if self.engine is None else self.engine.collapsed(codes)
        if own:
            made = {i: tensor.clone() for i, tensor in made.items()}
        for name, members in self.groups.items():
            members = [i for i in members if i not in made and i not in skip]
            if not members:
                continue
            chosen = codes[..., members, :] if len(members) < codes.shape[-2] else codes
            rows = chosen.reshape(-1, codes.shape[-1])
            flat = self.head(name)(rows) if self.engine is None else self.engine.generate(name, rows)
            shape = self.outputs[members[0]][1]
            made.update(zip(members, flat.view(*batch, len(members), *shape).unbind(len(batch)), strict=True))
        return {name: made[i] for i, (name, _) in enumerate(self.outputs) if i in made}

    # An engine may be ahead of the heads: whoever reads them, to look, copy, save or replace, has it write them first.

    def attach(self, engine: Engine | None) -> None:
        """Let an engine train the heads, or, with ``None``, none."""
        if self.engine is not None and self.engine is not engine:
            self.engine.sync()
        self.engine = engine
        for head in self.children():
            plain = dict(head._parameters)
            head._parameters = plain if engine is None else Fresh(plain, engine.sync)

    def sync(self) -> None:
        """Let the heads hold what was trained."""
        if self.engine is not None:
            self.engine.sync()

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        return {**self.__dict__, "engine": None}


def head_name(tensor: TensorSpec, sharing: Sharing, tensors: Sequence[TensorSpec]) -> str:
    """A name for the tensor's head that is stable, free of dots, and no attribute of a module.

    Only weights share heads. Biases and norm parameters are small, and start at values of their own.
    """
    if sharing == "separate" or tensor.role != "weight":
        return tensor.name.replace(".", "/") if "." in tensor.name else f"/{tensor.name}"
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    mixed = len({t.dtype for t in tensors}) > 1
    return shape + (f"-{str(tensor.dtype).removeprefix('torch.')}" if mixed else "")
