"""Training of the conditions experiment: nets and data of each seed, trained side by side at every rate."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.experiments.conditions import (
    CODE_SQUARES,
    JOB_TABLE,
    LINEAR_TRUNK,
    SMALL_OUTPUT_VARIANCE,
    SMALL_OUTPUTS,
    TABLED,
    WEIGHTS_ALONE,
    Conditions,
)
from hyperfan.experiments.conditions.jobs import NONLINEARITIES, Batch, Job, World
from hyperfan.experiments.conditions.stack import ConditionStack, values_of
from hyperfan.experiments.draws import draw_as_torch, draw_init, head_layers, trunk_layers
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.stack import Tensors
from hyperfan.experiments.stack_training import StackTraining
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row

JOBS_BY_NAME: dict[str, Job] = {name: resolve_name(entry.job)() for name, entry in JOB_TABLE.items()}
TEST_CONDITIONS, TEST_POINTS = 32, 16
"""Known and unseen conditions in a test, at most, and points under each of them."""


def widths(job: Job, width: int) -> list[int]:
    """The widths of the mainnet's layers, from its inputs to its outputs."""
    return [job.inputs, width, width, job.outputs]


def build(config: Conditions, share: float | None) -> HyperNet:
    """A net, to which ``draw`` gives the values of a seed. No share means the start of ``nn.Linear``."""
    job = JOBS_BY_NAME[config.job]
    before, *_, after = sizes = widths(job, config.width)
    layer, _ = NONLINEARITIES[job.nonlinearity]
    mainnet = nn.Sequential(
        nn.Linear(before, sizes[1]), layer(), nn.Linear(sizes[1], sizes[2]), layer(), nn.Linear(sizes[2], after)
    )
    if config.job in TABLED:
        embedding = Embedding(job.size, tasks=job.known, trainable=True, per="net", distribution="normal")
    else:
        embedding = Embedding(job.size, given=True, per="net", distribution="normal")
    return HyperNet(
        mainnet,
        embedding,
        generate="weights+biases",
        trunk=(config.width,) * job.trunk_layers,
        heads="separate",
        init="hyperfan-in",
        share=1.0 if share is None else share,
        nonlinearity=job.nonlinearity,
    )


@torch.no_grad()
def draw(net: HyperNet, seed: int, share: float | None, variant: str | None = None) -> HyperNet:
    """Write the values of a seed into a net with this share, or, without one, into one that starts as ``nn.Linear``."""
    draw_init(net, seed)
    layers, heads = trunk_layers(net), head_layers(net)
    if share is None or variant == LINEAR_TRUNK:
        before, drawn = _code_square(net), layers + heads if share is None else layers
        tensors = ((tensor, layer.fan_in) for layer in drawn for tensor in (layer.weight, layer.bias))
        draw_as_torch(tensors, generator(seed, "linear"))
        if share is not None:
            for head in heads:
                head.weight.mul_(math.sqrt(before / _code_square(net)))
    elif variant in CODE_SQUARES:  # a ReLU passes a positive factor on
        factor = math.sqrt(CODE_SQUARES[variant] / _code_square(net))
        for layer in layers:  # whose biases are zero
            layer.weight.mul_(factor ** (1 / len(layers)))
        for head in heads:
            head.weight.div_(factor)
    elif variant == WEIGHTS_ALONE:
        for spec, head in zip(net.generated, heads, strict=True):
            if spec.role != "weight":
                head.weight.zero_()
                head.bias.zero_()
    elif variant == SMALL_OUTPUTS:
        last = net.generated[-1].name.rpartition(".")[0]
        names = [spec.name for spec in net.generated if spec.name.startswith(f"{last}.")]
        net.rescale_(dict.fromkeys(names, math.sqrt(SMALL_OUTPUT_VARIANCE)))
    return net


def _code_square(net: HyperNet) -> float:
    """‖h‖² of the codes of all tensors, which are one."""
    return net.heads.measured_moments(net.code_source)[0]


class ConditionsTraining(StackTraining[ConditionStack, tuple[Tensor, Batch]]):
    """All runs, those of each start as one stack."""

    def __init__(self, config: Conditions, data_dir: Path | None = None) -> None:
        self.config, self.job = config, JOBS_BY_NAME[config.job]
        super().__init__(config, self.job.stages)
        self.worlds: list[World] = [self.job.world(seed, data_dir) for seed in self.seeds]
        self.plan: Any = {}
        self.stacks = {}
        _, nonlinearity = NONLINEARITIES[self.job.nonlinearity]
        shares = (*config.shares, *(config.shares[0] for _ in config.variants), None)
        for i, (name, share) in enumerate(zip(config.starts, shares, strict=True)):
            net, variant = build(config, share), name if name in config.variants else None
            nets = [values_of(draw(net, seed, share, variant)) for seed in self.seeds]
            sizes, mask = widths(self.job, config.width), None
            if variant == WEIGHTS_ALONE:
                mask = torch.cat([torch.full((t.numel,), float(t.role == "weight")) for t in net.generated])
            self.stacks[f"{i}/"] = ConditionStack(nets, config.rates, sizes, nonlinearity, config.optimiser, mask)
            if share is not None and variant is None:
                self.plan[name] = net.plan.to_dict()
        self._tests = {unseen: self._test_batch(unseen) for unseen in (False, True) if self.job.unseen or not unseen}

    # ── batches ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _test_batch(self, unseen: bool) -> tuple[Tensor, Batch]:
        """Conditions and points to test all runs on."""
        count = min(self.job.unseen if unseen else self.job.known, TEST_CONDITIONS)
        chosen = torch.arange(count) + (self.job.known if unseen else 0)
        return self._gather([chosen] * len(self.seeds), TEST_POINTS, ("test", unseen), test=True)

    def _gather(
        self, chosen: list[Tensor], points: int, purpose: tuple[object, ...], *, test: bool
    ) -> tuple[Tensor, Batch]:
        """Conditions, or indices into the table, and points of all runs, from the conditions chosen for each seed."""
        repeats = len(self.config.rates)
        found = [
            world.batch(indices, points, generator(seed, *purpose), test)
            for seed, world, indices in zip(self.seeds, self.worlds, chosen, strict=True)
        ]
        conditions = [
            indices if world.conditions is None else world.conditions[indices]
            for world, indices in zip(self.worlds, chosen, strict=True)
        ]
        batch = {name: torch.stack([each[name] for each in found] * repeats) for name in found[0]}
        return torch.stack(conditions * repeats), batch

    def batch(self, step: int) -> tuple[Tensor, Batch]:
        """The next conditions of every seed: any of the known ones, or the task whose turn it is."""
        job, (task, _) = self.job, self.place(step)
        if self.tasks > 1:
            chosen = [torch.tensor([task])] * len(self.seeds)
        else:
            chosen = [
                torch.randperm(job.known, generator=generator(seed, "chosen", step))[: job.batch] for seed in self.seeds
            ]
        return self._gather(chosen, job.points, ("batch", step), test=False)

    # ── training ───────────────────────────────────────────────────────────────────────────────────────────────────

    def train(self, stack: ConditionStack, batch: tuple[Tensor, Batch], count: int) -> Tensor:
        """A step of the runs of a start."""
        return stack.step(partial(self._loss, stack, *batch), count, self.job.beta)

    def _loss(self, stack: ConditionStack, chosen: Tensor, batch: Batch, theta: Tensors) -> Tensor:
        """The loss of every run of a stack under each condition."""
        return self.job.loss(stack.call(stack.generate(theta, chosen)), batch)

    # ── tests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def tests(self, step: int) -> Iterator[Row]:
        """Losses under known and under unseen conditions; before training and after each of several tasks, of all."""
        learnt, iteration = self.place(step)
        if step % self.log_every == 0:
            known = self._losses(unseen=False)
            if self.tasks > 1:  # of the task that was trained last
                last, _ = self.place(max(step - 1, 0))
                known = known[:, last].unsqueeze(1)
            found = {"losses": known.mean(1).tolist()}
            if self.job.unseen:
                found["unseen"] = self._losses(unseen=True).mean(1).tolist()
            yield {"kind": Kind.LOSSES, "step": step, "task": 0, "iteration": step, **found}
        if self.tasks > 1 and iteration == 0:
            errors = self._losses(unseen=False).tolist()
            yield {"kind": Kind.ERRORS, "step": step, "learnt": learnt, "errors": errors}

    def _losses(self, *, unseen: bool) -> Tensor:
        """The loss of every run under each condition of the test."""
        with torch.no_grad():
            return torch.cat([self._loss(stack, *self._tests[unseen], stack.theta) for stack in self.stacks.values()])
