"""A hypernet trained by accelerate, by Lightning, or by neither: python launched.py HOW FILE, where the file gets W.

Each process has its part of every batch; under DDP the mean of their gradients is that of the whole batch.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import hyperfan as hf

STEPS, BATCH = 3, 8


def build():
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    net = hf.HyperNet(mainnet, 4)
    return net, hf.SGD(net, lr=0.1, momentum=0.9)


def batches(rank, world):
    draws = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x, y = torch.randn(BATCH, 5, generator=draws).double(), torch.randint(3, (BATCH,), generator=draws)
        yield x[rank::world], y[rank::world]


def save(net, file):
    torch.save({name: p.detach().clone() for name, p in net.generate().items()}, file)


def alone(file):
    net, opt = build()
    for x, y in batches(0, 1):
        opt.zero_grad()
        cross_entropy(net(x), y).backward()
        opt.step()
    save(net, file)


def accelerated(file):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    net, opt = accelerator.prepare(*build())
    for x, y in batches(accelerator.process_index, 2):
        opt.zero_grad()
        accelerator.backward(cross_entropy(net(x), y))
        opt.step()
    if accelerator.is_main_process:
        save(accelerator.unwrap_model(net), file)


def lightning(file, strategy):
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.opt = build()

        def configure_optimizers(self):
            return self.opt

        def training_step(self, batch, _index):
            x, y = batch
            return cross_entropy(self.net(x), y)

        def train_dataloader(self):
            return DataLoader(list(batches(self.trainer.global_rank, self.trainer.world_size)), batch_size=None)

        def on_train_end(self):
            assert self.trainer.world_size == 2
            if self.trainer.is_global_zero:
                save(self.net, file)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "use_distributed_sampler": False}
    Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, **quiet).fit(Module())


def launch(how, target):
    torch.set_num_threads(1)
    if how == "accelerate":
        accelerated(target)
    elif how == "accelerate-fork":
        from accelerate import debug_launcher

        debug_launcher(accelerated, (target,), num_processes=2)
    else:
        lightning(target, how)


def forked(how, target):
    """In a process that was forked, which need not import torch again; returns its exit code."""
    signal.alarm(240)
    multiprocessing.current_process()._config["daemon"] = False  # such may not start others
    for name in [name for name in os.environ if name.startswith("PYTEST")]:
        del os.environ[name]
    try:
        launch(how, target)
    except BaseException:
        Path(f"{target}.error").write_text(traceback.format_exc())
        return 70
    return 0


if __name__ == "__main__":
    launch(*sys.argv[1:3])
