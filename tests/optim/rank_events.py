"""What happens to processes that train together, beside learning: each event returns how far all was off, or a line."""

import copy
import errno
import traceback
import unittest.mock
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from twins import build

import hyperfan as hf
from hyperfan.hypernet import saving
from hyperfan.optim.ddp import shared_heads

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
    """Also in the first step; and gradients that are asked for, not accumulated, are no reason to exchange."""

    def make() -> hf.HyperNet:
        torch.manual_seed(0)
        return hf.HyperNet(OneGenerated(), 7, nonlinearity="tanh", generate="first.weight")

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
    shared = shared_heads(ddp)
    assert shared is not None
    return [call for call, _ in shared.exchange.calls]


def _trained() -> tuple[DistributedDataParallel, hf.SGD]:
    net = build()
    ddp = DistributedDataParallel(net)
    opt = hf.SGD(net, lr=0.1)
    for step in range(2):
        losses(ddp, step, range(1), 2).backward()
    return ddp, opt


# ── FSDP2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def sharded(**settings: Any) -> hf.HyperNet:
    net = build(**settings)
    fully_shard(net)
    return net


@event
def shards_train_as_one(_: Path) -> float:
    """Under FSDP2, with an optimiser of ours."""
    rank, world = dist.get_rank(), dist.get_world_size()
    net, alone = sharded(embedding=hf.Embedding(7, trainable=True)), build(embedding=hf.Embedding(7, trainable=True))
    opt, oracle = hf.AdamW(net, lr=1e-2), torch.optim.AdamW(alone.parameters(), lr=1e-2)
    assert {row.kind for row in opt.plan.rows} == {"dense"}
    assert all("fully_shard" in row.reason for row in opt.plan.rows)
    for step in range(8):
        for model, its, parts in ((net, opt, range(rank, rank + 1)), (alone, oracle, range(world))):
            its.zero_grad()
            losses(model, step, parts, world).backward()
            its.step()
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in net.state_dict().items()}
    return max((whole[name] - t).abs().max().item() for name, t in alone.state_dict().items())


@event
def seeds_differ(_: Path) -> str:
    torch.manual_seed(dist.get_rank())
    net = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7)
    fully_shard(net)
    return line(lambda: net(torch.zeros(2, 4)))


@event
def shards_are_drawn_from_meta(_: Path) -> float:
    """How far the parts of a draw are from the draw in one process with the seed of the first."""
    with torch.device("meta"):
        net = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7)
    fully_shard(net)
    net.to_empty(device="cpu")
    alone = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7)
    torch.manual_seed(5)
    net.reset_parameters()
    torch.manual_seed(5)
    alone.reset_parameters()
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in net.state_dict().items()}
    return max((whole[name] - t).abs().max().item() for name, t in alone.state_dict().items())


@event
def sharded_nets_are_read(folder: Path) -> float:
    """generate(), freeze() and save_pretrained() of a sharded net, before and after a call."""
    net, alone, x = sharded(), build(), torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    far = 0.0
    for _ in range(2):
        far = max(far, *((t - net.generate()[name]).abs().max().item() for name, t in alone.generate().items()))
        far = max(far, (net.freeze()(x) - alone(x)).abs().max().item())
        net.save_pretrained(folder / "sharded", overwrite=True)
        loaded = hf.HyperNet.from_pretrained(folder / "sharded", build().freeze())
        far = max(far, (loaded(x) - net(x)).abs().max().item())
    return far


@event
def a_disk_is_full(folder: Path) -> str:
    """That of the first process, which alone writes."""
    net = sharded()
    with unittest.mock.patch.object(saving, "_write_files", side_effect=OSError(errno.ENOSPC, "")):
        return line(lambda: net.save_pretrained(folder / "full"))


@event
def sharded_nets_are_refused(_: Path) -> list[str]:
    net, x, y = (
        sharded(embedding=hf.Embedding(7, tasks=2), share=1.0),
        torch.randn(3, 4).double(),
        torch.tensor([0, 1, 2]),
    )
    calls = {
        "diagnose": lambda: hf.diagnose(net, x, y, task=0),
        "calibrate_": lambda: hf.calibrate_(net, x, task=0),
        "Memory": lambda: hf.optim.Memory(net, [0]),
        "bound": lambda: net.bound(task=0),
    }
    late = build()
    opt = hf.SGD(late, lr=0.1)
    fully_shard(late)
    losses(late, 0, range(1), 2).backward()
    calls["build the optimiser after fully_shard"] = opt.step
    return [name for name, call in calls.items() if name not in line(call) or "fully_shard" not in line(call)]


@event
def checkpoints_are_saved_by_two(folder: Path) -> None:
    """Two processes save, for one and for three to load."""
    net, opt = _checkpointed()
    for step in range(2):
        opt.zero_grad()
        losses(net, step, range(2), 2).backward()
        opt.step()
    model, state = get_state_dict(net, opt)
    checkpoint.save({"net": model, "opt": state}, checkpoint_id=folder / "dcp")
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in model.items()}
    if dist.get_rank() == 0:
        torch.save(whole, folder / "whole.pt")


def _checkpointed() -> tuple[hf.HyperNet, hf.AdamW]:
    net = sharded(embedding=hf.Embedding(7, trainable=True))
    return net, hf.AdamW(net, lr=1e-2)


def load_checkpoint(folder: Path) -> float:
    """How far a net is that this world loads from what another world saved."""
    net = build(embedding=hf.Embedding(7, trainable=True))
    if dist.is_initialized():
        fully_shard(net)
    torch.nn.init.zeros_(next(net.parameters()))
    opt = hf.AdamW(net, lr=1e-2)
    model, state = get_state_dict(net, opt)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        checkpoint.load({"net": model, "opt": state}, checkpoint_id=folder / "dcp")
    set_state_dict(net, opt, model_state_dict=model, optim_state_dict=state)
    steps = {int(entry["step"]) for entry in opt.state_dict()["state"].values()}
    assert steps == {2}, steps
    saved = torch.load(folder / "whole.pt")
    now = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in net.state_dict().items()}
    return max((now[name] - t).abs().max().item() for name, t in saved.items())
