"""Without an example: the nonlinearities of an ``nn.Sequential``, from the order of its modules."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hyperfan.mainnet.rules import uses
from hyperfan.mainnet.spec import Role
from hyperfan.mainnet.trace import Tracer

_TRANSPARENT = tuple(
    f"torch.nn.modules.{m}"
    for m in "flatten dropout pooling padding upsampling pixelshuffle fold channelshuffle".split()
)


def walk(module: nn.Sequential, roles: Mapping[int, tuple[str, Role]], tracer: Tracer) -> None:
    """Follow a token through the modules, for as long as it is known what each does."""
    token = torch.zeros(2)
    tracer.start(token)
    for leaf in _leaves(module):
        following = _step(leaf, token, roles, tracer)
        if following is None:
            return
        token = following
    tracer.finish(token)


def _step(leaf: nn.Module, token: Tensor, roles: Mapping[int, tuple[str, Role]], tracer: Tracer) -> Tensor | None:
    names = [roles[id(p)] for p in leaf.parameters()]
    weights = [name for name, role in names if role == "weight"]
    if weights:
        if not uses(leaf) or isinstance(leaf, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
            return None  # a module of the user's own, or one whose output is not a single tensor
        return tracer.layer(weights, token)
    if any(role in ("scale", "shift") for _, role in names) or isinstance(leaf, nn.modules.batchnorm._NormBase):
        return tracer.norm(token)
    if type(leaf).__module__ in _TRANSPARENT or isinstance(leaf, nn.Identity):
        return token
    if any(role == "other" for _, role in names):
        return None
    try:  # an activation, torch's or the user's own: elementwise, so it runs on a token of any shape
        with torch.no_grad(), tracer:
            out = leaf(token.clone())
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return out if isinstance(out, Tensor) else None


def _leaves(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential):
        return [leaf for child in module for leaf in _leaves(child)]
    return [module]
