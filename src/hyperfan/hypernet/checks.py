"""What a hypernet refuses to be built from, or to do."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor, nn

from hyperfan.codes.draw import Distribution
from hyperfan.distributed.ranks import active_ddp, check_same, gather_objects
from hyperfan.distributed.sharded import check_equal, is_sharded
from hyperfan.errors import CallError, HyperfanError, HyperfanWarning, InitError, nearest
from hyperfan.generators.linear_map import LinearMap
from hyperfan.hypernet.plain import named_tensors
from hyperfan.init.registry import Fidelity, Method

if TYPE_CHECKING:
    from hyperfan.hypernet.generated_net import GeneratedNet
    from hyperfan.hypernet.hypernet import HyperNet


def ranks_agree(net: "GeneratedNet") -> bool:
    """Whether all processes were found to train the same heads alike, and hold the same fixed embeddings.

    Raise in all of them if not; false where there is nothing to compare, outside of DDP and FSDP2. Called where
    torch.distributed is initialised.
    """
    ddp = active_ddp() if torch.is_grad_enabled() else None
    if ddp is None:
        if not is_sharded(net):
            return False
        check_equal({f"embeddings.{name}": table for name, table in net.embeddings.named_buffers()})
    trainers = {name: m.trainer for name, m in net.heads.named_modules() if isinstance(m, LinearMap)}
    of_heads = {name: {"optimiser": "torch's"} if t is None else t.settings() for name, t in trainers.items()}
    settings = {f"heads.{name}: {key}": value for name, each in of_heads.items() for key, value in each.items()}
    check_same("the heads or how they are trained", gather_objects(settings, ddp and ddp.process_group))
    return True


def check_choices(mainnet: object, fidelity: str, distribution: str) -> None:
    """Raise unless the mainnet is a module, and fidelity and distribution are known."""
    if not isinstance(mainnet, nn.Module):
        raise HyperfanError(f"the mainnet is {mainnet!r}; it should be an nn.Module")
    if fidelity not in get_args(Fidelity):
        raise InitError(f"fidelity='{fidelity}': use 'exact' or 'paper'")
    if distribution not in get_args(Distribution):
        raise InitError(f"distribution='{distribution}': use 'uniform' or 'normal'")


def set_examples(net: "HyperNet", embeddings: Tensor | None) -> None:
    """Let codes be measured on these embeddings; raise if they cannot be given, or if nothing is measured."""
    if embeddings is None:
        return
    if net.fidelity != "exact":
        raise InitError(
            "example_embeddings= are measured with fidelity='exact'; the paper's table knows only their variance"
        )
    net.embeddings.set_examples(embeddings)


def check_shared_heads(net: "HyperNet") -> None:
    """Raise if several tensors would be equal because they come from one code through one head."""
    shared = net.heads.shared_heads()
    if shared and net.embeddings.config.per == "net" and not net.embeddings.identities:
        raise HyperfanError(
            f"one embedding for the whole net and a shared head would make all tensors of head {shared[0]} equal: "
            f"use {net.heads.config.separate_heads}, Embedding(…, per='tensor'), or, beside a condition, "
            "Embedding(…, identity=8)"
        )


def check_constant_embeddings(net: "HyperNet", method: Method) -> None:
    """Raise if a method cannot set the embeddings as it wants, or warn if that makes tensors equal."""
    shared, config = net.heads.shared_heads(), net.embeddings.config
    if method.embedding is None:
        return
    if config.given or config.per == "net" or config.normalise:
        raise InitError(
            f"'{method.name}' sets each tensor's embedding to a constant, so they must be stored: use "
            "Embedding(size, per='tensor') without given= and normalise="
        )
    if shared and not config.trainable:
        warnings.warn(
            f"'{method.name}' gives the tensors of head {', '.join(sorted(shared))} equal embeddings, so they stay "
            f"equal: use {net.heads.config.separate_heads}",
            HyperfanWarning,
            stacklevel=3,
        )


def without_rule(net: "HyperNet") -> list[str]:
    """Tensors that came without values, on the meta device, and have no rule to get them from."""
    lacking = []
    for prefix, module, spec in (("", net.mainnet, net.spec), ("trunk.", net.trunk, net.trunk_spec)):
        if module is not None and spec is not None:
            ruled = {t.name: t.has_rule for t in spec} | {name: start is not None for name, start in spec.buffers}
            empty = [name for name, tensor in named_tensors(module).items() if tensor.is_meta]
            lacking += [prefix + name for name in empty if not ruled[name]]
    return lacking


def check_values(net: "HyperNet", valueless: Sequence[str] = ()) -> None:
    """Raise if the net has no values to write to, or others than init knows, or lacks some that no rule gives."""
    if any(t.is_meta for t in (*net.parameters(), *net.buffers())):
        raise InitError("the net is on the meta device: call net.to_empty(device='cpu'), then net.reset_parameters()")
    check_unchanged(net, "init")
    if valueless:
        raise InitError(
            f"{', '.join(valueless)} came without values and has no rule to start from: "
            "build the mainnet on a real device, or register a rule with hyperfan.rule"
        )


def check_mainnet(net: "GeneratedNet") -> None:
    """Raise if the mainnet is not the one that the net was built around."""
    if net._modules["mainnet"] is not net.skeleton.module:  # by attribute it takes ten times as long
        raise CallError("net.mainnet was replaced as a whole: build another HyperNet, or replace single layers in it")


def check_unchanged(net: "HyperNet", what: str) -> None:
    """Raise if a parameter was replaced after the net was built, so that what is to be done would miss it."""
    maps = {f"heads.{part.name}": part.map for part in net.heads.parts()}
    changed = [f"{path}.{name}" for path, m in maps.items() for name in ("weight", "bias") if name not in m._parameters]
    changed += [f"mainnet.{name}" for name in sorted(net.skeleton.held - named_tensors(net.mainnet).keys())]
    if changed:
        raise HyperfanError(
            f"{changed[0]} is not the parameter that the net was built with (weight norm, a parametrization or pruning "
            f"computes it), so that {what} would miss it: do that first, or remove it, as by "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )


def check_factors(factors: Mapping[str, float], generated: Sequence[str]) -> None:
    """Raise if a factor is for a tensor that is not generated, or is no factor."""
    for name, factor in factors.items():
        if name not in generated:
            raise InitError(f"'{name}' is not generated: {nearest(name, generated)}")
        if not 0 < factor < math.inf:
            raise InitError(f"rescale_({{'{name}': {factor:g}}}): a factor is positive and finite")
