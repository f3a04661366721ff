"""``read``: from an ``nn.Module`` to a :class:`Spec`."""

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils import _pytree as pytree

from hyperfan.errors import HyperfanWarning, MainnetError, nearest, one_line
from hyperfan.mainnet.adapters import with_start
from hyperfan.mainnet.rules import BUFFER_STARTS, Use, hand_set, is_declared_norm, rule_class, uses
from hyperfan.mainnet.sequential import is_sequential, walk
from hyperfan.mainnet.skeleton import duplicate
from hyperfan.mainnet.spec import IDENTITY, Nonlinearity, Spec, TensorSpec, qualified_name
from hyperfan.mainnet.trace import Tracer
from hyperfan.mainnet.wiring import Wiring

NonlinearityArgument = str | Mapping[str, str] | None
"""The argument ``nonlinearity=``: one name for all hidden layers, or layer path → name."""


def read(module: nn.Module, example: Any = None, nonlinearity: NonlinearityArgument = None, warn: bool = True) -> Spec:
    """Read a mainnet: its parameters, what each does, and the nonlinearities between them.

    Args:
        module: the mainnet. It is not changed.
        example: inputs to run it on once, in eval mode: a tensor, a tuple of arguments, or a dict of keyword arguments.
        nonlinearity: instead of an example, one name for all hidden layers, or layer path → name of what follows it
            (nothing before the first layer and after the last). What is named here overrides what the example or the
            module order shows.
        warn: whether to warn about layers whose nonlinearity is not known.

    >>> print(read(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))))
    tensor    shape  role    layer   fan-in  fan-out  consumes  followed by
    ────────  ─────  ──────  ──────  ──────  ───────  ────────  ───────────
    0.weight  4×8    weight  Linear       8        4  linear    relu
    0.bias    4      bias    Linear       8        4  linear    relu
    2.weight  2×4    weight  Linear       4        2  relu      linear
    """
    tensors, owners = _parameters(module)
    roles = {pid: (tensors[name].name, tensors[name].role) for pid, name in owners.items()}
    # A copy in eval mode that shares the parameters only, so that a run changes nothing of the original.
    copied = duplicate(module, {id(p): p for p in module.parameters()}).eval()
    tables = {t.name for t in tensors.values() if t.fans is not None and t.fans.fan_in == 1}
    tracer = Tracer(roles, copied.buffers(), tables)
    with torch.random.fork_rng(devices=[]):
        if example is not None:
            _run(copied, example, tracer)
        elif is_sequential(copied) or rule_class(copied):
            walk(copied, tracer)
    for name, use in tracer.parameters.uses.items():
        tensors[name] = replace(
            tensors[name], role=use.role, fans=use.fans, in_first=use.in_first, weights=use.weights, start=use.start
        )
    for name in tracer.parameters.elementwise - tracer.parameters.uses.keys():
        tensors[name] = replace(tensors[name], elementwise=True)
    weights = [t for t in tensors.values() if t.role == "weight"]
    wiring = tracer.wiring
    _override(nonlinearity, weights, wiring)
    for t in weights:
        tensors[t.name] = replace(
            t,
            consumes=wiring.consumes.get(t.name),
            reads=wiring.reads.get(t.name),
            followed_by=wiring.followed_by.get(t.name),
            reads_inputs=t.name in wiring.input_readers,
            scale_assumed=t.name in wiring.scale_assumed,
            residual_blocks=wiring.residual_blocks if t.name in wiring.branch_ends else 0,
            logits=_too_large(wiring.logits.get(t.name, 1.0)),
            looked_up=_is_tied_table(t, wiring),
            beside=_tied_table_beside(t, tensors, wiring),
        )
    spec = Spec(tuple(tensors.values()), _buffers(module))
    spec = replace(spec, tensors=tuple(_like_its_weight(t, spec) for t in spec))
    unknown = spec.unknown_nonlinearities
    if unknown and warn:
        warnings.warn(
            f"the nonlinearity around {', '.join(unknown)} is not known: {nonlinearity_advice(spec[unknown[0]])}",
            HyperfanWarning,
            stacklevel=2,
        )
    return spec


def nonlinearity_advice(tensor: TensorSpec) -> str:
    """The arguments that make a nonlinearity known, as the end of an error message."""
    layer = f"'{tensor.layer}'" if tensor.layer else "it"
    return (
        f"pass example=, inputs on which {layer} runs, when building or loading the net; or nonlinearity='relu', what "
        "follows every hidden layer; or leave it out of generate="
    )


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments that an example stands for.

    >>> arguments(1), arguments((1, 2)), arguments({"x": 1})
    (((1,), {}), ((1, 2), {}), ((), {'x': 1}))
    """
    if isinstance(example, dict):
        return (), example
    return example if isinstance(example, tuple) else (example,), {}


def _parameters(module: nn.Module) -> tuple[dict[str, TensorSpec], dict[int, str]]:
    """Read every parameter once, under its first name; and the name for each parameter's id."""
    tensors: dict[str, TensorSpec] = {}
    owners: dict[int, str] = {}
    by_hand = {qualified_name(path, local) for path, owner in module.named_modules() for local in hand_set(owner)}
    for path, owner in module.named_modules(remove_duplicate=False):
        parameters = {qualified_name(path, local): (local, p) for local, p in owner.named_parameters(recurse=False)}
        for name, (_, p) in parameters.items():
            if isinstance(p, UninitializedParameter):
                raise MainnetError(f"'{name}' of a lazy module has no shape yet: run the mainnet once before")
        found = uses(owner)
        for name, (local, p) in parameters.items():
            use = found.get(local, Use("other"))
            weights = tuple(qualified_name(path, weight) for weight in use.weights)
            new = TensorSpec(
                name, tuple(p.shape), p.dtype, use.role, path, type(owner).__name__,
                fans=use.fans, in_first=use.in_first, weights=weights, start=use.start, hand_set=name in by_hand,
            )  # fmt: skip
            first = owners.setdefault(id(p), name)
            tensors[first] = new if first == name else _tied(tensors[first], new)
    tensors = {name: with_start(t) for name, t in tensors.items()}
    if not tensors:
        raise MainnetError(f"{type(module).__name__} has no parameters, so there is nothing to generate")
    return tensors, owners


def _tied(first: TensorSpec, other: TensorSpec) -> TensorSpec:
    """Merge the uses of a tied tensor. The use with the larger fan-in decides: its smaller variance is safe for all."""
    fan = [t.fans.fan_in if t.fans else float(t.has_rule) / 2 for t in (first, other)]
    main = other if fan[1] > fan[0] else first
    return replace(main, name=first.name, aliases=(*first.aliases, other.name))


def _like_its_weight(t: TensorSpec, spec: Spec) -> TensorSpec:
    """A bias with the fans and nonlinearities of its weight; other tensors as they are."""
    if t.role != "bias" or t.weights[0] not in spec.canonical_names:
        return t
    w = spec[t.weights[0]]
    return replace(
        t,
        weights=tuple(spec[weight].name for weight in t.weights),
        fans=w.fans,
        consumes=w.consumes,
        reads=w.reads,
        followed_by=w.followed_by,
        reads_inputs=w.reads_inputs,
        residual_blocks=w.residual_blocks,
        logits=w.logits,
    )


def _is_tied_table(t: TensorSpec, wiring: Wiring) -> bool:
    """Whether a weight's rows are looked up, though it sums several values where it is the weight of a layer."""
    return t.name in wiring.looked_up and t.fans is not None and t.fans.fan_in > 1


def _tied_table_beside(t: TensorSpec, tensors: Mapping[str, TensorSpec], wiring: Wiring) -> str | None:
    """The tied table to whose rows those of another table are added."""
    added = {name for names in wiring.added_rows if t.name in names for name in names}
    tied = [name for name in tensors if name in added and _is_tied_table(tensors[name], wiring)]
    return None if _is_tied_table(t, wiring) or not tied else tied[0]


def _too_large(logits: float) -> float:
    """The second moment of logits, if it is above 1; smaller ones are an architecture's own choice."""
    return logits if logits > 1 + 1e-6 else 1.0


def _buffers(module: nn.Module) -> tuple[tuple[str, float | None], ...]:
    norms = {path for path, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._NormBase)}
    found = []
    for name, _ in module.named_buffers():
        path, _, local = name.rpartition(".")
        found.append((name, BUFFER_STARTS.get(local) if path in norms else None))
    return tuple(found)


def _run(module: nn.Module, example: Any, tracer: Tracer) -> None:
    """Run the module on the example, under the tracer."""
    args, kwargs = arguments(example)
    device = next(module.parameters()).device
    args, kwargs = pytree.tree_map_only(
        Tensor, lambda t: t.to("meta") if device.type == "meta" else t.detach().clone(), (args, kwargs)
    )
    for part in module.modules():
        if is_declared_norm(part):
            _declare_norm(part, tracer)
    try:
        tracer.start((args, kwargs))
        with torch.no_grad(), tracer:
            outputs = module(*args, **kwargs)
        tracer.finish(outputs)
    except Exception as error:
        raise MainnetError(f"the mainnet does not run on example=: {one_line(error)}") from error


def _declare_norm(module: nn.Module, tracer: Tracer) -> None:
    roles = {name: use.role for name, use in uses(module).items()}
    gains = [p for name, p in module.named_parameters(recurse=False) if roles.get(name) == "scale"]
    module.register_forward_pre_hook(lambda module, args: tracer.enter_norm())
    module.register_forward_hook(
        lambda module, args, kwargs, out: tracer.leave_norm((args, kwargs), out, gains), with_kwargs=True
    )


def _override(given: NonlinearityArgument, weights: list[TensorSpec], wiring: Wiring) -> None:
    """Override what was traced by what the user names: it follows its layer, and those that read that layer read it.

    Where nothing was traced, that is the next layer in order.
    """
    if given is None or not weights:
        return
    if isinstance(given, str):
        given = {t.layer: given for t in weights[:-1]} | {weights[-1].layer: "linear"}
        wiring.consumes[weights[0].name] = IDENTITY
    layers = [t.layer for t in weights]
    for layer in given:
        if layer not in layers:
            raise MainnetError(
                f"nonlinearity= names '{layer}', which is no layer with a weight: {nearest(layer, layers)}"
            )
    wiring.consumes.setdefault(weights[0].name, IDENTITY)
    wiring.followed_by.setdefault(weights[-1].name, IDENTITY)
    traced = set(wiring.sources)
    for t, following in itertools.zip_longest(weights, weights[1:]):
        if t.layer in given:
            wiring.followed_by[t.name] = Nonlinearity.named(given[t.layer])
            readers = [name for name in traced if t.name in wiring.sources[name]]
            wiring.consumes.update(dict.fromkeys(readers, wiring.followed_by[t.name]))
            if t.name not in traced and following is not None and following.name not in traced:
                wiring.consumes[following.name] = wiring.followed_by[t.name]
                wiring.reads[following.name] = t.name
