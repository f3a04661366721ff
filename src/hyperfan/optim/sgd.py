"""``SGD``: the results of torch.optim.SGD, without the head's gradient."""

from collections.abc import Callable

import torch
from torch import Tensor

from hyperfan.generators.part import Part
from hyperfan.optim.collapsed import MOMENTUM, Collapsed, update
from hyperfan.optim.form import Form, Group, State
from hyperfan.optim.gradient import FactoredGradient
from hyperfan.optim.map_trainer import Rule
from hyperfan.optim.optimiser import HyperNetOptimiser
from hyperfan.optim.plan import Kind


class SGDRule(Rule):
    """SGD on gradients in factors."""

    def why_dense(self, part: Part) -> None:
        """Every map gains."""

    def why_not_held(self, part: Part, group: Group) -> None:
        """Constant codes are all that it needs."""

    def form(self, part: Part, codes: Tensor, state: Callable[[], State]) -> Form:
        """Collapsed."""
        return Collapsed(part, codes, state)

    def step(self, p: Tensor, state: State, grad: FactoredGradient, group: Group) -> bool:
        """Multiply the factors into the parameter, or into its momentum."""
        held = state.get(p, {}).get(MOMENTUM)
        buffer = update(p, None if held is None else held.to(p), grad.add_to_, group)
        if group["momentum"]:
            state[p][MOMENTUM] = buffer
        return True

    def saved_state(self, part: Part, kind: Kind, group: Group) -> int:
        """The momentum of a collapsed map, but that of what it makes."""
        momentum = bool(group["momentum"]) and kind == "collapsed"
        weight, bias = part.map.held
        return momentum * (weight.numel() + bias.numel() * (1 - part.gradient_rank))

    def compiled(self, part: Part, kind: Kind) -> bool:
        """Never: products are most of the work."""
        return False


class SGD(HyperNetOptimiser, torch.optim.SGD):
    """Stochastic gradient descent on a hypernet: the results of :class:`torch.optim.SGD`, for a fraction of its work.

    Heads whose codes are constant are *collapsed*: the weights they make are trained in their place, at the price of
    training the mainnet, and the heads are recovered when someone looks (``net.state_dict()``, ``net.parameters()``,
    a copy). Other heads are *factored*: their gradient is never written out. ``opt.plan`` tells which, and why.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        args, options: those of torch.optim.SGD from lr on; foreach and fused are for what is not a head's.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.

    >>> from torch import nn
    >>> from hyperfan import HyperNet
    >>> net = HyperNet(nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10)), embedding=50)
    >>> opt = SGD(net, lr=5e-4)
    >>> print(opt.plan)
    head     codes  plan       saves    because
    ───────  ─────  ─────────  ───────  ──────────────────────
    500x784      1  collapsed  78.4 MB  its codes are constant
    10x500       1  collapsed  1.0 MB   its codes are constant
    saves 79.4 MB in all
    """

    rule = SGDRule()
    torch_class = torch.optim.SGD
