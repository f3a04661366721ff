"""``SGD``: the results of torch.optim.SGD, without the head's gradient."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from hyperfan.errors import HyperfanError, nearest
from hyperfan.hypernet import HyperNet
from hyperfan.optim.map_trainer import Groups, MapTrainer
from hyperfan.optim.plan import Kind, TrainingPlan
from hyperfan.optim.rule import Settings


class SGD(torch.optim.SGD):
    """Stochastic gradient descent on a hypernet: the results of :class:`torch.optim.SGD`, for a fraction of its work.

    Heads whose codes are constant are *collapsed*: the weights they make are trained in their place, at the price of
    training the mainnet, and the heads are recovered when someone looks (``net.state_dict()``, ``net.parameters()``,
    a copy). Other heads are *factored*: their gradient is never written out. ``opt.plan`` tells which, and why.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        lr, momentum, dampening, weight_decay, nesterov, maximize: as in torch.optim.SGD.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.

    >>> net = HyperNet(nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10)), embedding=50)
    >>> opt = SGD(net, lr=5e-4)
    >>> print(opt.plan)
    head     codes  plan       saves    because
    ───────  ─────  ─────────  ───────  ──────────────────────
    500x784      1  collapsed  78.4 MB  its codes are constant
    10x500       1  collapsed  1.0 MB   its codes are constant
    saves 79.4 MB in all
    """

    def __init__(
        self,
        net: nn.Module,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | None = None,
    ) -> None:
        if not isinstance(net, nn.Module):
            seen = type(net).__name__
            raise HyperfanError(f"hyperfan.SGD takes the net, not {seen}: SGD(net, lr=…); groups go to params=")
        nets = [m for m in net.modules() if isinstance(m, HyperNet)]
        if not nets:
            raise HyperfanError("there is no HyperNet in the module given: use torch.optim.SGD(module.parameters(), …)")
        self._trainers: list[MapTrainer] = []
        super().__init__(
            net.parameters() if params is None else params,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
        )
        self._attach(nets)

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
        for trainer in self._trainers:
            trainer.step(groups, done)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and id(p) not in done]
            buffers = [self.state[p].get("momentum_buffer") if group["momentum"] else None for p in params]
            sgd(
                params,
                [p.grad for p in params],
                buffers,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=group["dampening"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
                has_sparse_grad=any(p.grad.is_sparse for p in params),
                foreach=group["foreach"],
            )
            if group["momentum"]:
                for p, buffer in zip(params, buffers, strict=True):
                    self.state[p]["momentum_buffer"] = buffer
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as in torch."""
        super().add_param_group(param_group)
        for trainer in self._trainers:
            trainer.choose_anew()

    # ── looking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Write to the heads what was trained without them, so that they can be read or changed."""
        for trainer in self._trainers:
            trainer.sync()

    def release(self, discard: bool = False) -> None:
        """Give the heads back: from now on they are as if this optimiser had never been.

        Args:
            discard: drop what was trained since the last sync, where it cannot be written to the heads any more.
        """
        for trainer in self._trainers:
            trainer.release(discard)

    def use(self, kind: Kind | None = None) -> None:
        """Train every head by this plan where that is possible, or, with ``None``, by the fastest."""
        if kind not in (None, "collapsed", "factored", "dense"):
            raise HyperfanError(f"use('{kind}'): {nearest(str(kind), get_args(Kind)[:3])}")
        for trainer in self._trainers:
            trainer.use(kind)

    def state_dict(self) -> dict[str, Any]:
        """As that of torch.optim.SGD, which can load it; and the other way round."""
        self.sync()
        return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of this optimiser, or of a torch.optim.SGD, on the same parameters."""
        for trainer in self._trainers:
            trainer.drop()
        super().load_state_dict(dict(state_dict))

    # ── clipping ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
        """Clip the norm of all gradients together, without writing out a head's; returns the norm before.

        ``torch.nn.utils.clip_grad_norm_(net.parameters(), …)`` does the same, but reading ``net.parameters()`` recovers
        collapsed heads each time.
        """
        return nn.utils.clip_grad_norm_(self._all(), max_norm, norm_type, error_if_nonfinite)

    def clip_grad_value_(self, clip_value: float) -> None:
        """Clip each value of each gradient. That needs the dense ones: heads are trained densely from now on."""
        for trainer in self._trainers:
            trainer.make_dense("its gradient is clipped by value")
        nn.utils.clip_grad_value_(self._all(), clip_value)

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, nets: list[HyperNet]) -> None:
        self._nets = nets
        self._trainers = [
            MapTrainer(net, part, lambda: self.state, self._groups) for net in nets for part in net.heads.parts()
        ]
        uses = Counter(id(p) for trainer in self._trainers for p in (trainer.weight, trainer.bias))
        for trainer in self._trainers:
            if uses[id(trainer.weight)] > 1 or uses[id(trainer.bias)] > 1:
                trainer.share("it is shared with another hypernet")

    def _groups(self) -> Groups:
        """What each parameter's group says now."""
        read = [(Settings.of(group), group["params"]) for group in self.param_groups]
        return {id(p): settings for settings, params in read for p in params}

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        return {**super().__getstate__(), "nets": self._nets}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nets = state.pop("nets", None)  # which load_state_dict, calling this too, does not give
        restore: Callable[[dict[str, Any]], None] = super().__setstate__  # which torch leaves without types
        restore(state)
        if nets is not None:
            self._attach(nets)
