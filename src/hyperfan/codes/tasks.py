"""Looking up the embeddings of tasks: in one table, or in a tensor of a task's own.

Tasks that a net is built with are rows of one table, as thousands of signals or clients may be, and are trained
together. A task that is added later is a parameter of its own, so that momentum and weight decay of an optimiser leave
it alone while others are trained. A row that is frozen is copied to a tensor of its own, which stands in its place.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from hyperfan.codes.embedding import Task, is_index
from hyperfan.errors import CallError

TaskTensors = Mapping[int, Tensor]
"""The tensors of those tasks that have one, by number."""


def check_task(task: Task | None, tasks: int) -> None:
    """Raise unless a value is a task of a net with this number of tasks, or a tensor of tasks."""
    if task is None:
        raise CallError(f"this net has {tasks} tasks: say which with task=0 … task={tasks - 1}")
    if isinstance(task, Tensor) and _holds_tasks(task):
        if readable(task) and task.numel() and not (int(task.min()) >= 0 and int(task.max()) < tasks):
            raise CallError(f"task= holds {int(task.min())} to {int(task.max())}; the net has tasks 0 to {tasks - 1}")
    elif not is_index(task):
        raise CallError(f"task={task!r}: give an integer, or a tensor of integers with one for each sample")
    elif not 0 <= task < tasks:
        raise CallError(f"task={task}, but the net has tasks 0 to {tasks - 1}")


def look_up(table: Tensor, separate: TaskTensors, task: Task) -> Tensor:
    """The embeddings of a task, (n, size), or of each in a tensor of tasks, (…, n, size); tasks are checked before.

    Gradients reach only what is looked up, so that an optimiser leaves the rest alone: a table none of whose tasks are
    in a batch, and other tasks' own tensors. Where nobody may look at the tasks, as in a graph, these get zeros.
    """
    if not isinstance(task, Tensor):
        return separate[task] if task in separate else table[task]
    rows, index = table.flatten(1), task.long()
    if separate:
        numbers = range(max(len(table), *(i + 1 for i in separate)))
        used = set(task.flatten().tolist()) if readable(task) else set(numbers)
        mine = [i for i in separate if i in used]
        parts = [rows] if not mine or any(i not in separate for i in used) else []
        start = sum(map(len, parts))
        place = {i: start + k for k, i in enumerate(mine)}
        index = torch.tensor([place.get(i, min(i, len(table) - 1)) for i in numbers], device=task.device)
        index = index.index_select(0, task.flatten().long()).view(task.shape)
        rows = torch.cat([*parts, *(separate[i].flatten().unsqueeze(0) for i in mine)])
    # Where nobody may look, a negative number is an error here, and would be the last task as an index.
    return functional.embedding(index, rows).view(*task.shape, *table.shape[1:])


def all_tasks(table: Tensor, separate: TaskTensors) -> Tensor:
    """The embeddings of all tasks, (tasks, n, size)."""
    tasks = range(max(len(table), *(i + 1 for i in separate))) if separate else ()
    return torch.stack([look_up(table, separate, i) for i in tasks]) if separate else table


def readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values: not while compiling or exporting, nor inside vmap or grad."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _holds_tasks(task: Tensor) -> bool:
    return task.ndim <= 1 and not task.is_floating_point() and task.dtype != torch.bool
