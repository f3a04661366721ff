"""Tasks that a net learns after it was built, and those that it should learn no more."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hyperfan.codes.moments import redraw_zero_task_
from hyperfan.codes.tasks import check_task
from hyperfan.errors import CallError, InitError

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def add_task(net: "HyperNet", generator: torch.Generator | None) -> nn.Parameter:
    """The embedding of a new task, drawn as the others were, and anew where the trunk makes zero of it."""
    _tasks(net)
    table = net.embeddings.add_task()
    if table.is_meta:  # net.reset_parameters() will draw it
        return table
    net.embeddings.draw_(table, generator)
    try:
        redraw_zero_task_(net.code_source, table, generator)
    except InitError:
        net.embeddings.drop_task()
        raise
    return table


def freeze_task(net: "HyperNet", task: int) -> None:
    """Train the embedding of a task no more."""
    tasks = _tasks(net)
    if isinstance(task, Tensor):
        raise CallError(f"freeze_task() takes one task, an integer from 0 to {tasks - 1}, not a tensor")
    check_task(task, tasks)
    net.embeddings.freeze_task(int(task))


def _tasks(net: "HyperNet") -> int:
    tasks = net.embeddings.config.tasks
    if tasks is None:
        raise CallError("this net has no tasks: build it with Embedding(…, tasks=1)")
    return tasks
