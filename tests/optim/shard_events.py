"""What happens to processes that train a net together of which each has a part, as events of ``rank_events``."""

import errno
import unittest.mock
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_events import event, line, losses
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from twins import build

import hyperfan as hf
from hyperfan.errors import CheckpointError
from hyperfan.hypernet import SaveConfig, saving


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be divided between processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


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
    return max((whole(net.state_dict()[name]) - t).abs().max().item() for name, t in alone.state_dict().items())


SHARDED_HEADS: tuple[tuple[dict[str, Any], str, set[str]], ...] = (
    ({}, "SGD", {"collapsed"}),
    ({"heads": "separate"}, "AdamW", {"collapsed"}),
    ({"heads": "separate", "embedding": hf.Embedding(7, trainable=True)}, "AdamW", {"factored"}),
    ({"embedding": hf.Embedding(7, noise=0.3)}, "SGD", {"factored"}),
    ({"trunk": (6,)}, "torch AdamW", set()),
    ({"heads": hf.Chunks(one_head=True)}, "SGD", {"dense"}),
    ({"heads": hf.LoRA(rank=2)}, "AdamW", {"collapsed"}),
    ({"embedding": hf.Embedding(7, tasks=3, trainable=True), "share": 1.0}, "SGD", {"factored"}),
)
"""Settings of nets, the optimiser, and the plans that it has for their heads."""
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "AdamW": {"lr": 1e-3, "weight_decay": 0.1},
}


def with_sharded_heads(net: hf.HyperNet) -> hf.HyperNet:
    heads = net.shard_heads_()
    assert all(p.to_local().numel() < p.numel() for p in heads)
    fully_shard(net, ignored_params=heads)
    return net


@event
def sharded_heads_train_as_one(_: Path) -> float:
    """With gradients that add up and are clipped, noise of each process, and a task for each of unequal batches."""
    rank, world, far = dist.get_rank(), dist.get_world_size(), 0.0
    for settings, name, plans in SHARDED_HEADS:
        net, alone = with_sharded_heads(build(**settings)), build(**settings)
        options = OPTIONS[name.removeprefix("torch ")]
        kind = getattr(torch.optim, name.removeprefix("torch "))
        oracle = kind(alone.parameters(), **options)
        opt = kind(net.parameters(), **options) if name.startswith("torch") else getattr(hf, name)(net, **options)
        for step in range(4):
            for model, its, parts in ((net, opt, range(rank, rank + 1)), (alone, oracle, range(world))):
                its.zero_grad()
                for i in range(1 + step % 2):
                    of_parts = [_loss_of_part(model, 7 * step + i, part, "share" in settings) for part in parts]
                    torch.stack(of_parts).mean().backward()
                if step == 2:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                its.step()
        assert name.startswith("torch") or {row.kind for row in opt.plan.rows if row.head != "inputs"} == plans
        far = max(far, *((whole(t) - alone.state_dict()[n]).abs().max().item() for n, t in net.state_dict().items()))
    return far


def _loss_of_part(net: nn.Module, step: int, part: int, tasks: bool) -> Tensor:
    """The loss of one process, which has fewer samples the higher its rank."""
    draws = torch.Generator().manual_seed(10 * step + part)
    x, y = torch.randn(3 - part, 4, generator=draws).double(), torch.randint(3, (3 - part,), generator=draws)
    torch.manual_seed(100 * step + part)  # of the noise
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")  # what is returned is changed by nobody
        return F.cross_entropy(net(x, task=y) if tasks else net(x), y)


@event
def seeds_differ(_: Path) -> str:
    torch.manual_seed(dist.get_rank())
    net = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7)
    fully_shard(net)
    return line(lambda: net(torch.zeros(2, 4)))


@event
def rates_of_shards_differ(_: Path) -> str:
    net = with_sharded_heads(build())
    hf.SGD(net, lr=0.1 * (1 + dist.get_rank()))
    return line(lambda: net(torch.zeros(2, 4).double()))


@event
def optimisers_of_shards_differ(_: Path) -> str:
    net = with_sharded_heads(build())
    opt = torch.optim.SGD(net.parameters(), lr=0.1) if dist.get_rank() else hf.SGD(net, lr=0.1)
    assert opt.param_groups
    return line(lambda: net(torch.zeros(2, 4).double()))


@event
def shards_are_drawn_from_meta(_: Path) -> float:
    """How far the parts of a draw are from the draw in one process with the seed of the first."""
    with torch.device("meta"):
        net = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7, trunk=(6,))
    with_sharded_heads(net)
    net.to_empty(device="cpu")
    alone = hf.HyperNet(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 7, trunk=(6,))
    torch.manual_seed(5)
    net.reset_parameters()
    torch.manual_seed(5)
    alone.reset_parameters()
    return max((whole(net.state_dict()[name]) - t).abs().max().item() for name, t in alone.state_dict().items())


@event
def sharded_nets_are_read(folder: Path) -> float:
    """generate(), freeze() and save_pretrained() of a sharded net, before and after a call."""
    alone, x = build(), torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    far = 0.0
    for net in [sharded()] * 2 + [with_sharded_heads(build())]:
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
        try:
            net.save_pretrained(folder / "full")
        except CheckpointError as error:
            return str(error)
    return "saved"


@event
def a_trainer_saves_shards(folder: Path) -> float:
    """By a callback in all processes, of which only the first may see the folder of the checkpoint."""
    net, x = sharded(), torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    first = dist.get_rank() == 0
    outputs = folder if first else folder / "of another machine"
    if first:
        (folder / "checkpoint-5").mkdir()
    state = SimpleNamespace(global_step=5, is_world_process_zero=first)
    SaveConfig().on_save(SimpleNamespace(output_dir=outputs), state, None, model=net)
    assert not (folder / "of another machine").exists()
    loaded = hf.HyperNet.from_pretrained(folder / "checkpoint-5", build().freeze())
    return (loaded(x) - net(x)).abs().max().item()


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
    held = build()
    hf.SGD(held, lr=0.1)
    calls["build it after shard_heads_() and fully_shard"] = held.shard_heads_
    calls["call shard_heads_() before fully_shard"] = sharded().shard_heads_
    return [name for name, call in calls.items() if name not in line(call) or "fully_shard" not in line(call)]


@event
def checkpoints_are_saved_by_two(folder: Path) -> None:
    """Two processes save, for one to load; what that one saves, three load."""
    net, opt = _checkpointed()
    for step in range(2):
        opt.zero_grad()
        losses(net, step, range(2), 2).backward()
        opt.step()
    model, state = get_state_dict(net, opt)
    checkpoint.save({"net": model, "opt": state}, checkpoint_id=folder / "two")
    kept = {name: whole(t) for name, t in [*model.items(), *_moments(state).items()]}
    if dist.get_rank() == 0:
        torch.save(kept, folder / "whole.pt")


def _moments(state: dict[str, Any]) -> dict[str, Tensor]:
    """Those in the state of an optimiser, by name."""
    return {f"{p}: {key}": t for p, its in state["state"].items() for key, t in its.items() if key != "step"}


def _checkpointed() -> tuple[hf.HyperNet, hf.AdamW]:
    """A head of each kind: sharded over its outputs, and trained with one code; and all else by fully_shard."""
    net = build(heads="separate")
    if dist.is_initialized():
        with_sharded_heads(net)
    return net, hf.AdamW(net, lr=1e-2)


def load_checkpoint(folder: Path, saved_by: str, save_as: str | None = None) -> float:
    """How far a net is that this world loads from what another world saved, and may save in turn."""
    net, opt = _checkpointed()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    model, state = get_state_dict(net, opt)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        checkpoint.load({"net": model, "opt": state}, checkpoint_id=folder / saved_by)
        if save_as is not None:
            checkpoint.save({"net": model, "opt": state}, checkpoint_id=folder / save_as)
    set_state_dict(net, opt, model_state_dict=model, optim_state_dict=state)
    steps = {int(entry["step"]) for entry in opt.state_dict()["state"].values()}
    assert steps == {2}, steps
    saved = torch.load(folder / "whole.pt")
    model, state = get_state_dict(net, opt)
    now = {name: whole(t) for name, t in [*model.items(), *_moments(state).items()]}
    assert now.keys() == saved.keys()
    return max((now[name] - t).abs().max().item() for name, t in saved.items())
