"""Linear heads: W = H·h + β, one for each tensor, or one for all tensors of one shape."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hyperfan.mainnet.spec import TensorSpec

Sharing = Literal["shared", "separate"]


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

    def head(self, name: str) -> Head:
        """One of the heads."""
        found = self[name]
        assert isinstance(found, Head)
        return found

    def forward(self, codes: Tensor) -> dict[str, Tensor]:
        """Generate every tensor from (n, d_k), or a batch of each from (batch, n, d_k)."""
        batch = codes.shape[:-2]
        made: dict[int, Tensor] = {}
        for name, members in self.groups.items():
            chosen = codes[..., members, :] if len(members) < codes.shape[-2] else codes
            flat = self.head(name)(chosen.reshape(-1, codes.shape[-1])).view(*batch, len(members), -1)
            made.update(zip(members, flat.unbind(-2), strict=True))
        return {name: made[i].view((*batch, *shape)) for i, (name, shape) in enumerate(self.outputs)}


def head_name(tensor: TensorSpec, sharing: Sharing, tensors: Sequence[TensorSpec]) -> str:
    """A name for the tensor's head that is stable, free of dots, and no attribute of a module.

    Only weights share heads. Biases and norm parameters are small, and start at values of their own.
    """
    if sharing == "separate" or tensor.role != "weight":
        return tensor.name.replace(".", "/") if "." in tensor.name else f"/{tensor.name}"
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    mixed = len({t.dtype for t in tensors}) > 1
    return shape + (f"-{str(tensor.dtype).removeprefix('torch.')}" if mixed else "")
