"""Heads in torch's ``DistributedDataParallel``: their gradients are averaged in factors, all others by DDP as usual.

DDP copies each gradient into a flat bucket, where nothing is left of its factors, before a communication hook sees it.
So DDP is told, at the first forward pass in which an optimiser of hyperfan trains heads by their structure, to leave
these alone; until then it has broadcast them like all parameters. At the end of each backward pass that DDP would
average, beside its own buckets, an :class:`Exchange` averages them: so clipping, accumulation in ``no_sync()`` and
whatever reads gradients between backward and step find what they find with DDP alone. A backward pass is known by the
outputs of DDP, since it may reach no head at all in one process, for which the others would wait.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from hyperfan.distributed.ranks import active_ddp
from hyperfan.errors import HyperfanError
from hyperfan.generators.head_shards import apply_function
from hyperfan.generators.linear_map import LinearMap
from hyperfan.optim.exchange import Exchange
from hyperfan.optim.map_trainer import MapTrainer

if dist.is_available():
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.parallel.distributed import _find_tensors


class SharedHeads:
    """The heads that one DDP leaves to hyperfan.

    Args:
        ddp: the wrapper.
    """

    def __init__(self, ddp: "DistributedDataParallel") -> None:
        self._parameters: dict[str, Tensor] = {}
        self._ids: set[int] = set()
        self._marked: set[int] = set()
        """Ids of parameters that say when they have a gradient."""
        self.exchange = Exchange(ddp.process_group)
        self._tied: nn.Parameter | None = None
        """Has a gradient in every backward pass, for a reducer of DDP that looks for parameters without one."""
        self._due = self._queued = self._reached = False
        self._expect(ddp)
        ddp.register_forward_pre_hook(self._expect)
        wrapper: Any = ddp  # torch leaves what follows without types
        after = wrapper._post_forward
        # A forward hook would come too late for the forward pass that this is called in.
        wrapper._post_forward = lambda output: self._watch(after(self._tie(output)))

    def has(self, p: Tensor) -> bool:
        """Whether a parameter belongs to one of the heads that DDP leaves out."""
        return id(p) in self._ids

    def _expect(self, ddp: nn.Module, *_: Any) -> None:
        """Note at a forward pass whether the gradients of its backward pass are to be averaged, as DDP does."""
        if torch.is_grad_enabled():
            self._due, self._queued = bool(ddp.require_backward_grad_sync), False

    def _tie(self, output: Any) -> Any:
        """Let a backward pass reach DDP's reducer even if it reaches no parameter but heads."""
        if self._tied is None or not torch.is_grad_enabled():
            return output
        return tree_map_only(Tensor, lambda t: t if t.grad_fn is None else apply_function(_Tie, t, self._tied), output)

    def _watch(self, output: Any) -> Any:
        """Notice a backward pass that begins at an output of DDP."""
        find: Any = _find_tensors  # torch leaves it without types
        for tensor in find(output) if self._due else ():
            if tensor.grad_fn is not None:
                tensor.register_hook(lambda _: self._queue())
        return output

    def __reduce__(self) -> Any:
        raise HyperfanError("a DDP that leaves heads to hyperfan cannot be copied or pickled: take ddp.module")

    def take(self, ddp: "DistributedDataParallel", heads: Mapping[str, MapTrainer]) -> None:
        """Take heads from DDP, by their names in its module; all processes do so at the same time."""
        for name, head in heads.items():
            for local, p in (("weight", head.weight), ("bias", head.bias)):
                if p.requires_grad and not self.has(p):
                    self._parameters[f"{name}.{local}"] = p
                    self._ids.add(id(p))
        for p in ddp.module.parameters():
            if p.requires_grad and id(p) not in self._marked:
                self._marked.add(id(p))
                register: Any = p.register_post_accumulate_grad_hook  # torch leaves it without types
                register(self._on_gradient)
        if heads:
            names = {f"{name}.{local}" for name in heads for local in ("weight", "bias")}
            self._tied = _leave_out(ddp, names, self._tied)

    def _on_gradient(self, p: Tensor) -> None:
        if self.has(p):
            self._queue()  # if not begun at an output, where DDP found no tensors in what the net returns
        self._reached = True

    def _queue(self) -> None:
        """Ask for the exchange at the end of the backward pass that is under way."""
        if self._due and not self._queued:
            self._queued, self._reached = True, False
            engine: Any = torch.autograd.Variable._execution_engine  # torch leaves it without types
            engine.queue_callback(self._finish)

    def _finish(self) -> None:
        self._queued = False
        if self._reached:  # and not torch.autograd.grad, which leaves gradients alone
            self._due = False
            self.exchange.average(self._parameters)


SHARED_HEADS: "WeakKeyDictionary[nn.Module, SharedHeads]" = WeakKeyDictionary()
"""The heads that each DDP leaves to hyperfan, where it does."""


def notice(trainer: MapTrainer) -> None:
    """Look, at a forward pass, whether the map of a trainer runs inside a DDP, which then leaves it to hyperfan."""
    ddp = active_ddp()
    if ddp is None or not torch.is_grad_enabled():
        return
    shared = SHARED_HEADS.get(ddp)
    if not trainer.in_factors or (shared is not None and shared.has(trainer.weight)):
        return
    _check_possible(ddp)
    held = {name: module.trainer for name, module in ddp.module.named_modules() if isinstance(module, LinearMap)}
    trainers = {name: trainer for name, trainer in held.items() if isinstance(trainer, MapTrainer)}
    if shared is None:
        shared = SHARED_HEADS[ddp] = SharedHeads(ddp)
    shared.take(ddp, {name: trainer for name, trainer in trainers.items() if trainer.in_factors})


def _check_possible(ddp: "DistributedDataParallel") -> None:
    if ddp.mixed_precision is not None:
        raise HyperfanError("DDP's mixed_precision= casts heads while they are trained in factors: use torch.autocast")
    if ddp._join_config.enable:
        raise HyperfanError(
            "ddp.join() cannot stand in for the heads' gradients of a process that has run out of batches: give every "
            "process as many batches, the last ones smaller, and weight each loss by its share of the samples"
        )


class _Tie(torch.autograd.Function):
    """An output as it is, and a gradient of zero for a parameter."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, tied: nn.Parameter) -> Tensor:
        ctx.save_for_backward(tied)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, torch.zeros_like(ctx.saved_tensors[0])


def _leave_out(ddp: Any, names: set[str], tied: nn.Parameter | None) -> nn.Parameter | None:  # Any: torch has no types
    """Build DDP's reducer anew, as its constructor does, for all parameters but these.

    Returns the parameter that a backward pass must be tied to, if the reducer waits for a gradient of any parameter
    before it looks for those that have none.
    """
    ddp.parameters_to_ignore |= names
    ddp._remove_autograd_hooks()
    parameters, sparse = ddp._build_params_for_reducer()
    looks = ddp.find_unused_parameters and not ddp.static_graph
    mapping = ddp._build_debug_param_to_name_mapping(parameters) if parameters else {}
    if not parameters or looks:  # a reducer wants one: without looks, this never has a gradient, and is never sent
        like = parameters[0] if parameters else torch.zeros(0, device=ddp.device)
        tied = nn.Parameter(like.new_zeros(1)) if tied is None else tied
        mapping[len(parameters)] = "hyperfan's own"
        parameters, sparse = [*parameters, tied], [*sparse, False]
    ddp._ddp_init_helper(parameters, sparse, mapping, ddp.static_graph)
    if ddp.static_graph:
        ddp.reducer._set_static_graph()
        ddp.logger._set_static_graph()
    for hook, state in getattr(ddp, "_comm_hooks", ()):
        torch._C._distributed_c10d._register_comm_hook(ddp.reducer, state, hook)
    return tied if looks else None
