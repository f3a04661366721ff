"""A mainnet with weights of its own for each input, or group of inputs: run one by one, and recorded as one run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from hyperfan.mainnet.replay import tensors
from hyperfan.probe.layer_output import LayerOutput
from hyperfan.probe.recorder import NonlinearityInput, Recording


def inputs_in_common(example: Any) -> int:
    """The number of inputs that all tensors of an example have; 0 where they differ."""
    counts = {len(t) if t.ndim else 0 for t in tensors(example)}
    return counts.pop() if len(counts) == 1 else 0


def in_one_batch(values: Any, grouped: bool) -> Any:
    """Inputs, outputs or targets of groups, (codes, batch, …), as those of one batch; others as they are."""
    return pytree.tree_map_only(Tensor, lambda t: t.flatten(0, 1) if t.ndim > 1 else t, values) if grouped else values


def run_each(
    run: Callable[[Mapping[str, Tensor], Any], tuple[Any, Recording]],
    tensors: Mapping[str, Tensor],
    many: Collection[str],
    count: int,
    example: Any,
    grouped: bool,
) -> tuple[Any, Recording]:
    """Run once for each of so many inputs or groups, with its own of the tensors in ``many``."""
    runs, apart = [], {name: tensors[name].unbind() for name in many}  # of t[i] each backward fills all of t
    for i in range(count):
        of_code = {name: apart[name][i] if name in many else t for name, t in tensors.items()}
        part = partial(_part, i if grouped else slice(i, i + 1))
        runs.append(run(of_code, pytree.tree_map_only(Tensor, part, example)))
    outputs = [pytree.tree_flatten(output) for output, _ in runs]
    joined = [_join(leaves, grouped) for leaves in zip(*(leaves for leaves, _ in outputs), strict=True)]
    return pytree.tree_unflatten(joined, outputs[0][1]), _join_recordings([recording for _, recording in runs])


def _part(index: int | slice, t: Tensor) -> Tensor:
    return t[index] if t.ndim else t


def _join(leaves: Sequence[Any], grouped: bool) -> Any:
    if not isinstance(leaves[0], Tensor):
        return leaves[-1]
    if not leaves[0].ndim:
        return torch.stack(list(leaves)).mean()
    return torch.stack(list(leaves)) if grouped else torch.cat(list(leaves))


def _join_recordings(recordings: Sequence[Recording]) -> Recording:
    joined = Recording()
    for label, first in recordings[0].outputs.items():
        pieces = tuple(r.outputs[label].values for r in recordings if label in r.outputs)
        joined.outputs[label] = replace(first, values=torch.cat(pieces), pieces=pieces)
    for same in zip(*(r.nonlinearity_inputs for r in recordings), strict=False):
        saturated = sum(i.saturated for i in same) / len(same)
        joined.nonlinearity_inputs.append(NonlinearityInput(same[0].layer, same[0].function, saturated, dead=0.0))
    return joined


def sources(outputs: Mapping[str, LayerOutput]) -> dict[str, tuple[Tensor, ...]]:
    """The tensors that hold each layer's output in the graph: one, or one for each input."""
    return {label: o.pieces or (o.values,) for label, o in outputs.items() if o.values.requires_grad}
