"""What happens to processes that train together, beside learning: each event returns how far all was off, or a line."""

import copy
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from twins import build

import hyperfan as hf
from hyperfan.optim.ddp import SHARED_HEADS

EVENTS: dict[str, Callable[[Path], Any]] = {}


def event(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    EVENTS[function.__name__] = function
    return function


def tell(folder: Path) -> dict[str, Any]:
    """What each event returns, or how it failed."""
    told: dict[str, Any] = {}
    for name, function in EVENTS.items():
        try:
            told[name] = function(folder)
        except Exception:
            told[name] = traceback.format_exc()
    return told


def line(function: Callable[[], Any]) -> str:
    """The message with which a call is refused."""
    try:
        function()
    except hf.HyperfanError as error:
        return str(error)
    return "not refused"


def losses(net: nn.Module, step: int, parts: range, world: int) -> Tensor:
    """The mean loss of some processes' parts of a batch."""
    draws = torch.Generator().manual_seed(step)
    x, y = torch.randn(world, 3, 4, generator=draws).double(), torch.randint(3, (world, 3), generator=draws)
    return torch.stack([F.cross_entropy(net(x[i]), y[i]) for i in parts]).mean()


def off(a: nn.Module, b: nn.Module) -> float:
    return max(
        (p - q).abs().max().item() for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


def beside_one_process(
    between: Callable[[torch.optim.Optimizer, nn.Module, int], torch.optim.Optimizer | None],
    find_unused: bool = False,
    make: Callable[[], hf.HyperNet] = build,
    passes: int = 1,
    loss_of: Callable[[nn.Module, int, range, int], Tensor] = losses,
) -> float:
    """How far processes are from one process on the whole batch, if both do something between backward and step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    net, alone = make(), make()
    ddp = DistributedDataParallel(net, find_unused_parameters=find_unused)
    opt: torch.optim.Optimizer = hf.SGD(net, lr=1e-2, momentum=0.9)
    oracle: torch.optim.Optimizer = torch.optim.SGD(alone.parameters(), lr=1e-2, momentum=0.9)
    for step in range(8):
        opt.zero_grad()
        for i in range(passes):
            loss_of(ddp, step + i, range(rank, rank + 1), world).backward()
        opt = between(opt, net, step) or opt
        opt.step()
        oracle.zero_grad()
        for i in range(passes):
            loss_of(alone, step + i, range(world), world).backward()
        oracle = between(oracle, alone, step) or oracle
        oracle.step()
    return off(net, alone)


# ── DDP ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@event
def plans_change(_: Path) -> float:
    def between(opt: Any, net: nn.Module, step: int) -> None:
        if isinstance(opt, hf.SGD) and step in (1, 3, 5):
            opt.use({1: "factored", 3: "dense", 5: None}[step])

    return beside_one_process(between)


@event
def gradients_are_clipped_by_value(_: Path) -> float:
    def between(opt: Any, net: nn.Module, step: int) -> None:
        if step == 4:
            nn.utils.clip_grad_value_(net.parameters(), 0.01)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.HyperfanWarning)
        return beside_one_process(between)


@event
def the_optimiser_is_released(_: Path) -> float:
    def between(opt: Any, net: nn.Module, step: int) -> torch.optim.Optimizer | None:
        if step != 3:
            return None
        if isinstance(opt, hf.SGD):
            opt.release()
        return torch.optim.AdamW(net.parameters(), lr=1e-3)

    return beside_one_process(between)


class Branches(nn.Module):
    """Of two layers, each input takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other, self.last = nn.Linear(4, 5), nn.Linear(4, 6), nn.Linear(11, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.last(torch.cat([self.first(x).tanh(), x.new_zeros(len(x), 6)], 1))
        return self.last(torch.cat([x.new_zeros(len(x), 5), self.other(x).tanh()], 1))


@event
def some_processes_lack_a_gradient(_: Path) -> float:
    def make() -> hf.HyperNet:
        torch.manual_seed(0)
        return hf.HyperNet(Branches(), 7, nonlinearity="tanh", heads="separate")

    return beside_one_process(lambda *_: None, find_unused=True, make=make)


class OneGenerated(Branches):
    """An input that takes the other layer reaches nothing that is generated."""

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x)[:, :3] if x.sum() > 0 else self.other(x)[:, :3]


@event
def some_processes_reach_no_head(_: Path) -> float:
    """And the others nothing else, also in the first step; gradients that are only asked for are not exchanged."""

    def make() -> hf.HyperNet:
        torch.manual_seed(0)
        return hf.HyperNet(OneGenerated(), 7, nonlinearity="tanh", generate="first.*")

    def loss_of(net: nn.Module, step: int, parts: range, world: int) -> Tensor:
        loss = losses(net, step, parts, world)
        trained = [p for p in net.parameters() if p.requires_grad]
        torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
        return loss

    return beside_one_process(lambda *_: None, find_unused=True, make=make, loss_of=loss_of)


@event
def backward_passes_add_up(_: Path) -> float:
    """Two that are both averaged, without ``no_sync``, on heads behind a trunk, whose gradients stay in factors."""

    def make() -> hf.HyperNet:
        torch.manual_seed(0)
        return hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), 7, trunk=(6,))

    return beside_one_process(lambda *_: None, make=make, passes=2)


@event
def rates_differ(_: Path) -> str:
    net = build()
    ddp = DistributedDataParallel(net)
    hf.SGD(net, lr=0.1 * (1 + dist.get_rank()))
    return line(lambda: ddp(torch.zeros(2, 4).double()))


@event
def optimisers_differ(_: Path) -> str:
    net = build()
    ddp = DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1) if dist.get_rank() else hf.SGD(net, lr=0.1)
    assert opt.param_groups
    return line(lambda: ddp(torch.zeros(2, 4).double()))


@event
def plans_differ(_: Path) -> str:
    net = build()
    ddp = DistributedDataParallel(net)
    hf.SGD(net, lr=0.1).use("dense" if dist.get_rank() else None)
    return line(lambda: ddp(torch.zeros(2, 4).double()))


@event
def inputs_run_out(_: Path) -> str:
    net = build()
    ddp = DistributedDataParallel(net)
    hf.SGD(net, lr=0.1)
    with ddp.join():
        return line(lambda: ddp(torch.zeros(2, 4).double()))


@event
def ddp_is_copied(_: Path) -> str:
    ddp, _opt = _trained()
    return line(lambda: copy.deepcopy(ddp))


@event
def calls(_: Path) -> list[str]:
    """Collectives for the heads' gradients in a step."""
    ddp, _opt = _trained()
    return [call for call, _ in SHARED_HEADS[ddp].exchange.calls]


def _trained() -> tuple[DistributedDataParallel, hf.SGD]:
    net = build()
    ddp = DistributedDataParallel(net)
    opt = hf.SGD(net, lr=0.1)
    for step in range(2):
        losses(ddp, step, range(1), 2).backward()
    return ddp, opt
