"""One of several processes that train together: trains all cases, and writes what it learnt.

Started as ``python rank_worker.py FOLDER``, with torchrun's variables and the path of the tests in the environment.
"""

import sys
import traceback
import warnings
from pathlib import Path

import rank_cases
import rank_events
import shard_events
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hyperfan as hf
import hyperfan.optim.adam


def learn(case: rank_cases.Case) -> dict[str, torch.Tensor]:
    """What this process learns in a case, and which calls shared the heads' gradients."""
    net = case.net()
    if case.optimiser.startswith("torch "):
        ddp = DistributedDataParallel(net)
        name = case.optimiser.removeprefix("torch ")
        opt = getattr(torch.optim, name)(net.parameters(), **rank_cases.OPTIMISERS[case.optimiser])
    elif case.uneven:  # as accelerate does, and as Lightning does
        opt = getattr(hf, case.optimiser)(net, **rank_cases.OPTIMISERS[case.optimiser])
        ddp = DistributedDataParallel(net)
    else:
        ddp = DistributedDataParallel(net)
        opt = getattr(hf, case.optimiser)(ddp, **rank_cases.OPTIMISERS[case.optimiser])
    if case.plan != "fastest":
        opt.use(case.plan)
    rank = dist.get_rank()
    rank_cases.train(case, ddp, opt, dist.get_world_size(), range(rank, rank + 1), ddp.no_sync)
    return net.state_dict()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    hyperfan.optim.adam.MAX_SMALL = 0  # no map is small
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    told = {}
    for case in torch.load(folder / "cases.pt", weights_only=False):
        try:
            told[case] = learn(case)
        except Exception:
            told[case] = traceback.format_exc()
        failed = [None] * world
        dist.all_gather_object(failed, isinstance(told[case], str))
        if any(failed):
            break
    told |= rank_events.tell(folder) if world == 2 else {"loaded": shard_events.load_checkpoint(folder, "one")}
    torch.save(told, folder / f"{world}-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
