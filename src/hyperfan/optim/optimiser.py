"""What all optimisers of hypernets share: trainers of maps, beside torch's own step for all other parameters."""

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hyperfan.distributed.sharded import is_sharded_tensor
from hyperfan.errors import HyperfanError, HyperfanWarning, nearest
from hyperfan.hypernet import HyperNet
from hyperfan.optim.ddp import notice
from hyperfan.optim.map_trainer import Groups, MapTrainer, StepRule
from hyperfan.optim.net_trainer import NetTrainer
from hyperfan.optim.plan import TrainingKind, TrainingPlan


class HyperNetOptimiser(torch.optim.Optimizer):
    """Base of an optimiser that inherits from this and from one of torch, whose results it has.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        args, options: those of torch's optimiser that follow its parameters.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.
    """

    rule: StepRule
    torch_class: ClassVar[type[torch.optim.Optimizer]]
    __signature__: ClassVar[inspect.Signature]
    """The signature that ``help`` shows: torch's options by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "torch_class" in vars(cls):
            cls.__signature__ = _signature(cls)

    def __init__(self, net: nn.Module, *args: Any, params: Any = None, **options: Any) -> None:
        name = self.torch_class.__name__
        if not isinstance(net, nn.Module):
            raise HyperfanError(
                f"hyperfan.{name} takes the net, not {type(net).__name__}: {name}(net, lr=…), and with an encoder "
                f"{name}(nn.ModuleList([net, encoder]), lr=…); groups go to params="
            )
        nets = [m for m in net.modules() if isinstance(m, HyperNet)]
        if not nets:
            raise HyperfanError(
                f"there is no HyperNet in the module given: use torch.optim.{name}(module.parameters(), …)"
            )
        for option in ("capturable", "differentiable"):
            if options.get(option):
                raise HyperfanError(f"{option}=True: hyperfan.{name} steps heads in a way that cannot be; leave it out")
        self._trainers: list[MapTrainer] = []
        super().__init__(net.parameters() if params is None else params, *args, **options)
        self._check_holds_some(nets)
        self._step_supports_amp_scaling = False  # so that a GradScaler unscales the gradients itself
        self._attach(nets)

    def _check_holds_some(self, nets: Iterable[HyperNet]) -> None:
        """Raise if no parameter that is trained is of a net: nothing of what it generates would move."""
        trained = {id(p) for net in nets for p in net.parameters() if p.requires_grad}
        if trained and not trained & self._groups().keys():
            name = self.torch_class.__name__
            raise HyperfanError(
                "params= has no parameter of the hypernet, which would stay as it is: to train other modules with it, "
                f"{name}(nn.ModuleList([net, encoder]), lr=…)"
            )

    @property
    def plan(self) -> TrainingPlan:
        """How each head is trained, and why; prints as a table."""
        return TrainingPlan(tuple(trainer.plan_row() for trainer in self._trainers))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform a single optimisation step; as in torch, ``closure`` evaluates the loss anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        done: set[int] = set()
        groups = self._groups()
        for trainer in self._trainers if dist.is_available() and dist.is_initialized() else ():
            if is_sharded_tensor(trainer.map.held[0]) and not is_sharded_tensor(trainer.weight):
                raise HyperfanError(
                    "the net was divided by fully_shard after this optimiser was built, which holds the parameters "
                    "from before: build the optimiser after fully_shard"
                )
        self._warn_of_tasks(groups)
        for trainer in self._trainers:
            trainer.step(groups, done)
        # Torch steps what has a gradient.
        stepped = [(p, p.grad) for group in self.param_groups for p in group["params"] if id(p) in done]
        try:
            for p, _ in stepped:
                p.grad = None
            inspect.unwrap(self.torch_class.step)(self)
        finally:
            for p, grad in stepped:
                p.grad = grad
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as in torch."""
        super().add_param_group(param_group)
        for trainer in self._trainers:
            trainer.choose_anew()

    # ── looking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Write to the heads and to the state what was trained without them, so that they can be read or changed."""
        for trainer in self._trainers:
            trainer.write()

    def release(self, discard: bool = False) -> None:
        """Give the heads back: from now on they are as if this optimiser had never been.

        Args:
            discard: drop what was trained since the last sync, where it cannot be written to the heads any more.
        """
        for trainer in self._trainers:
            trainer.release(discard)
        for trainer_of_net in self._net_trainers:
            if trainer_of_net.net.trainer is trainer_of_net:
                trainer_of_net.net.attach(None)

    def use(self, kind: TrainingKind | None = None) -> None:
        """Train every head by this plan where that is possible, or, with ``None``, by the fastest."""
        if kind not in (None, "collapsed", "factored", "dense"):
            raise HyperfanError(f"use('{kind}'): {nearest(str(kind), get_args(TrainingKind)[:3])}")
        for trainer in self._trainers:
            trainer.use(kind)

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's optimiser has it, which can load it; and the other way round."""
        self.sync()
        return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of this optimiser, or of torch's, on the same parameters."""
        for trainer in self._trainers:
            trainer.drop()
            trainer.choose_anew()
        super().load_state_dict(dict(state_dict))
        for trainer in self._trainers:
            if trainer.map.sharded:
                trainer.chosen()  # now, when all processes are here: they look at the state together

    # ── clipping ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
        """Clip the norm of all gradients together, without writing out a head's; returns the norm before.

        ``torch.nn.utils.clip_grad_norm_(net.parameters(), …)`` does the same, but reading ``net.parameters()`` recovers
        collapsed heads each time.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, nets: list[HyperNet]) -> None:
        self._nets = nets
        self._warned: set[int] = set()
        """Ids of parameters that a warning named."""
        parts = [(net, part) for net in nets for part in net.heads.parts()]
        first = {id(part.map): (net, part) for net, part in reversed(parts)}  # of nets that share a map
        self._trainers = [
            MapTrainer(net, part, self.rule, lambda: self.state, self._groups, notice)
            for net, part in reversed(first.values())
        ]
        uses = Counter(id(p) for trainer in self._trainers for p in (trainer.weight, trainer.bias))
        maps = Counter(id(part.map) for _, part in parts)
        for trainer in self._trainers:
            if max(uses[id(trainer.weight)], uses[id(trainer.bias)], maps[id(trainer.map)]) > 1:
                trainer.mark_shared("it is shared with another hypernet")
        of_nets = [(net, [t for t in self._trainers if t.net is net]) for net in nets]
        self._net_trainers = [
            NetTrainer(net, trainers) for net, trainers in of_nets if len(trainers) == len(net.heads.parts())
        ]
        for trainer_of_net in self._net_trainers:
            trainer_of_net.net.attach(trainer_of_net)

    def _warn_of_tasks(self, groups: Groups) -> None:
        """Warn, once, of a task that was added and is not in here, though the net's other tasks are."""
        for embeddings in (net.embeddings for net in self._nets):
            for task, p in embeddings.task_parameters.items() if id(embeddings.weight) in groups else ():
                if p.requires_grad and p.grad is not None and id(p) not in groups and id(p) not in self._warned:
                    self._warned.add(id(p))
                    warnings.warn(
                        f"task {task} has a gradient and is not in this optimiser, so that its embedding stays as it "
                        "was drawn: opt.add_param_group({'params': net.add_task()}) when a task is added, or "
                        f"net.freeze_task({task}) if it should stay",
                        HyperfanWarning,
                        stacklevel=4,  # behind torch's hooks around a step
                    )

    def _groups(self) -> Groups:
        """The group of each parameter."""
        return {id(p): group for group in self.param_groups for p in group["params"]}

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        return {**super().__getstate__(), "nets": self._nets, "rule": self.rule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nets = state.pop("nets", None)  # which load_state_dict, calling this too, does not give
        restore: Callable[[dict[str, Any]], None] = super().__setstate__  # which torch leaves without types
        restore(state)
        if nets is not None:
            self._attach(nets)


def _signature(cls: type[HyperNetOptimiser]) -> inspect.Signature:
    """The net, the options of torch's optimiser that are possible, and those of ours, which are by keyword."""
    ours = [p for p in inspect.signature(cls.__init__).parameters.values() if p.name != "self"]
    theirs = inspect.signature(cls.torch_class.__init__).parameters.values()
    impossible = ("self", "params", "capturable", "differentiable")
    keyword_only = [p for p in ours if p.kind is p.KEYWORD_ONLY]
    by_keyword = [*keyword_only, *([] if any(p.name == "params" for p in keyword_only) else [_PARAMS])]
    options = [p for p in theirs if p.name not in impossible]
    both = [*(p for p in options if p.kind is not p.KEYWORD_ONLY), *by_keyword]
    return inspect.Signature([ours[0], *both, *(p for p in options if p.kind is p.KEYWORD_ONLY)])


_PARAMS = inspect.signature(HyperNetOptimiser.__init__).parameters["params"]
