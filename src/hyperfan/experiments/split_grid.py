"""A batched grid over several processes: each trains some of its runs, and the first one writes the lines of all.

Runs are in the order (group, member), of which processes have some members each: seeds, which count fastest in every
grid, or starts of LoRA. A state is put together from all processes' and taken apart again, by any number of them:

- ``base.…`` is the same in all;
- ``3.…`` belongs to member 3 alone, counted from 0;
- anything else has a first dimension of runs, or none, and is then the same in all.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperfan.distributed.ranks import gather_objects
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.ranks import Ranks
from hyperfan.experiments.training import GridTraining, Training
from hyperfan.metrics import Row

State = dict[str, Tensor]
SHARED = "base"


class SplitGrid(Training):
    """The part of this process, and what all make of theirs.

    Args:
        parts: the configuration of each process, with how many members it has.
        kind: trains one of them.
        data_dir: where the data is.
    """

    collective = True

    def __init__(
        self,
        parts: Sequence[tuple[Configuration, int]],
        kind: Callable[[Configuration, Path | None], GridTraining],
        data_dir: Path | None,
    ) -> None:
        self.ranks = Ranks.join("cpu")
        self.part = kind(parts[self.ranks.rank][0], data_dir)
        self.counts = [count for _, count in parts]
        plans = gather_objects(self.part.plan)
        self.plan: Any = {name: plan for of_rank in plans for name, plan in of_rank.items()}
        self._loaded: State = {}

    def step(self, step: int) -> float:
        """One batch of every run; returns what stands for all of their losses."""
        self.part.step(step)
        return self.part.typical(torch.cat(gather_objects(self.part.latest)))

    def tests(self, step: int) -> Iterator[Row]:
        """The lines of all runs, in the order in which one process has them."""
        return merge_rows(gather_objects(list(self.part.tests(step))), self.counts)

    def state(self) -> State:
        """The state of all runs."""
        return merge_states(gather_objects(self.part.state()), self.counts)

    def load(self, state: State) -> None:
        """Keep the state of all runs, until all processes take their parts of it."""
        self._loaded = state

    def synchronise(self, step: int) -> int:
        """Give each process its part of the state that the first one has loaded, if it has; returns its step."""

        def keep(state: State) -> None:
            self._loaded = state

        found = self.ranks.broadcast(step, lambda: self._loaded, keep)
        if self._loaded:
            self.part.load(split_state(self._loaded, self.counts, self.ranks.rank))
        return found


def merge_rows(parts: Sequence[Sequence[Row]], counts: Sequence[int]) -> Iterator[Row]:
    """Lines of metrics of all runs from those that each process has of its own."""
    for rows in zip(*parts, strict=True):
        lists = {key for key, value in rows[0].items() if isinstance(value, (list, tuple))}
        yield {
            key: _interleave([row[key] for row in rows], counts) if key in lists else value
            for key, value in rows[0].items()
        }


def _interleave(values: Sequence[Sequence[Any]], counts: Sequence[int]) -> list[Any]:
    """Values of all runs, group by group, from those of each process."""
    groups = len(values[0]) // counts[0]
    pieces = [of_rank[g * n : (g + 1) * n] for g in range(groups) for of_rank, n in zip(values, counts, strict=True)]
    return list(itertools.chain.from_iterable(pieces))


def merge_states(states: Sequence[State], counts: Sequence[int]) -> State:
    """The state of all runs."""
    merged: State = {}
    for rank, state in enumerate(states):
        for name, tensor in state.items():
            first, _, rest = name.partition(".")
            parts = [each[name] for each in states if name in each]
            if first.isdecimal():
                merged[f"{int(first) + sum(counts[:rank])}.{rest}"] = tensor
            elif first == SHARED or tensor.ndim == 0:
                merged[name] = tensor
            else:
                by_group = [t.reshape(len(t) // n, n, *t.shape[1:]) for t, n in zip(parts, counts, strict=True)]
                merged[name] = torch.cat(by_group, 1).flatten(0, 1)
    return merged


def split_state(state: State, counts: Sequence[int], rank: int) -> State:
    """The part of a process of the state of all runs."""
    total, first_member, count = sum(counts), sum(counts[:rank]), counts[rank]
    found: State = {}
    for name, tensor in state.items():
        first, _, rest = name.partition(".")
        if first.isdecimal():
            if 0 <= (mine := int(first) - first_member) < count:
                found[f"{mine}.{rest}"] = tensor
        elif first == SHARED or tensor.ndim == 0:
            found[name] = tensor
        else:
            by_group = tensor.reshape(len(tensor) // total, total, *tensor.shape[1:])
            found[name] = by_group[:, first_member : first_member + count].flatten(0, 1).contiguous()
    return found
