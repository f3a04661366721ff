"""The nonlinearities of an ``nn.Sequential``, from the order of its modules and without an example."""

import torch
from torch import Tensor, nn

from hyperfan.mainnet.rules import is_declared_norm, rule_class
from hyperfan.mainnet.trace import TOKEN_SIZE, Tracer

_TRANSPARENT = tuple(
    f"torch.nn.modules.{m}" for m in "flatten dropout padding upsampling pixelshuffle fold channelshuffle".split()
)
_NORMS = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm", "torch.nn.modules.normalization")


def walk(module: nn.Module, tracer: Tracer) -> None:
    """Follow a token, which stands for the values, through the modules, for as long as it is known what each does."""
    token = torch.zeros(TOKEN_SIZE)
    tracer.start(token)
    for leaf in leaves(module):
        following = _step(leaf, token, tracer)
        if following is None:
            return
        token = following
    tracer.finish(token)


def is_sequential(module: nn.Module) -> bool:
    """Whether a module does what ``nn.Sequential`` does: a subclass may define another forward."""
    return type(module).forward is nn.Sequential.forward


def leaves(module: nn.Module) -> list[nn.Module]:
    """The modules in the order they run."""
    if is_sequential(module):
        return [leaf for child in module._modules.values() if child is not None for leaf in leaves(child)]
    return [module]


def _step(leaf: nn.Module, token: Tensor, tracer: Tracer) -> Tensor | None:
    parameters, package = list(leaf.parameters()), type(leaf).__module__
    if any(origin.role == "weight" for origin in tracer.parameters.of(parameters)):
        kind = rule_class(leaf)
        several = isinstance(leaf, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention)
        if kind is None or type(leaf).forward is not kind.forward or several:
            return None  # a user-defined module, or one whose output is not a single tensor
        return tracer.pretend("linear", token, *parameters)
    if is_declared_norm(leaf) or (package in _NORMS and type(leaf) is not nn.LocalResponseNorm):
        return tracer.pretend("layer_norm", token, *parameters)
    if package == "torch.nn.modules.pooling":
        return tracer.pretend("mean", token)
    if package in _TRANSPARENT or type(leaf) is nn.Identity:
        return token
    if parameters and type(leaf) is not nn.PReLU:
        return None
    try:  # an activation, torch's or user-defined: elementwise, so it runs on a token of any shape
        with torch.no_grad(), tracer:
            fitting = token[:1].expand(1, leaf.num_parameters) if isinstance(leaf, nn.PReLU) else token
            out = leaf(fitting.clone())
    except Exception:  # a user-defined module may raise anything; it is not known what it does
        return None
    return out if isinstance(out, Tensor) else None
