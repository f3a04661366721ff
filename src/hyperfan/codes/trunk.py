"""The trunk, between embeddings and generator: nothing, an MLP by its widths, or any module."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError, one_line
from hyperfan.mainnet.read import read
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import Spec

Trunk = Sequence[int] | nn.Module | None


class ReluMLP(nn.Sequential):
    """A trunk given by its hidden widths, with a ReLU after each layer."""


def trunk_widths(trunk: nn.Module | None) -> list[int] | None:
    """The widths from which a trunk can be made again; ``None`` for a module of the user's."""
    if trunk is None:
        return []
    if not isinstance(trunk, ReluMLP):
        return None
    return [layer.out_features for layer in trunk if isinstance(layer, nn.Linear)]


def make_trunk(trunk: Trunk, size: int, device: torch.device, dtype: torch.dtype) -> nn.Module | None:
    """A ReLU MLP from its hidden widths; a module as it is; ``None`` for no trunk."""
    if trunk is None:
        return None
    if isinstance(trunk, nn.Module):
        for name, p in trunk.named_parameters():
            if p.dtype != dtype:
                raise HyperfanError(f"the trunk's '{name}' is {p.dtype}, the mainnet is {dtype}: trunk.to({dtype})")
        return trunk
    if not isinstance(trunk, Sequence) or not all(isinstance(w, int) and w > 0 for w in trunk):
        raise HyperfanError(f"trunk={trunk!r}: give hidden widths as in (64, 64), a module, or None")
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise([size, *trunk]):
        layers += [_undrawn(nn.Linear(before, after, device="meta", dtype=dtype), device), nn.ReLU()]
    return ReluMLP(*layers) if layers else None


def _undrawn(layer: nn.Linear, device: torch.device) -> nn.Linear:
    """A layer on a device, of which init writes the values: what fails before that should cost no random numbers.

    As ``nn.utils.skip_init`` does, for which torch imports its compiler, a second or two in each process.
    """
    for name, p in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(p.shape, device=device, dtype=p.dtype)))
    return layer


def trunk_width(trunk: nn.Module | None, size: int) -> int:
    """d_k: what the trunk makes of an embedding, found without running any values through it."""
    if trunk is None:
        return size
    if isinstance(trunk, ReluMLP):
        return (trunk_widths(trunk) or [size])[-1]
    skeleton = Skeleton(trunk)
    skeleton.module.eval()
    dtypes = [t.dtype for t in skeleton.tensors.values() if t.dtype.is_floating_point]
    example = torch.empty(2, size, device="meta", dtype=dtypes[0] if dtypes else None)
    try:
        out = skeleton(skeleton.tensors, example)
    except Exception as error:
        raise HyperfanError(f"the trunk does not run on codes of shape (2, {size}): {one_line(error)}") from error
    if not isinstance(out, Tensor) or out.ndim != 2 or out.shape[0] != 2:
        seen = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise HyperfanError(f"the trunk makes {seen} of codes of shape (2, {size}); it should make (2, d_k)")
    return int(out.shape[1])


def read_trunk(trunk: nn.Module | None, size: int) -> Spec | None:
    """The layers and nonlinearities of the trunk, which have nothing to do with the mainnet's."""
    params = [] if trunk is None else list(trunk.parameters())
    if trunk is None or not params:
        return None
    example = torch.zeros(2, size, device=params[0].device, dtype=params[0].dtype)
    return read(trunk, example=example, warn=False)
