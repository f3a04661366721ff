"""``Subject``: a mainnet and the source of its generated parameters, as a diagnosis and a calibration look at it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.init.registry import Fidelity, Method
from hyperfan.mainnet.read import arguments
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import Spec, TensorSpec, qualified_name
from hyperfan.probe.diagnosis import PLAIN_PART
from hyperfan.probe.recorder import LayerOutput, Recording, batch_statistics, record

SEED = 2020_1043
"""Not one that people use: twins drawn from the seed of the inputs would have the inputs as their weights."""
RANDOM_DRAWS = 8
"""Number of draws of a random hypernet."""


@dataclass(frozen=True)
class Source:
    """Where one generated tensor comes from. What is not known is NaN.

    Args:
        tensor: the tensor, as read.
        head: name of the head that makes it.
        width, outputs: d_k of the head, and the number of values that it makes at once.
        moment: ‖h‖² of its code, if the tensor is linear in its head.
        planned: its variance by the plan, if there is one.
        spread: relative variance of ‖h‖² among its codes, where it comes in chunks.
    """

    tensor: TensorSpec
    head: str = ""
    width: float = math.nan
    outputs: float = math.nan
    moment: float = math.nan
    planned: float | None = None
    spread: float = 0.0


@dataclass(eq=False)
class Subject(ABC):
    """A mainnet and the source of its generated parameters. Nothing done to it reaches the user's net.

    Args:
        name: its title in a diagnosis.
        skeleton: runs the mainnet with given tensors.
        plain: parameters that are not generated, and buffers.
        example: the inputs, as a mainnet takes them.
        spec: the mainnet, as read.
        sources: where each generated tensor comes from.
        method, fidelity: whose targets it should meet.
        code_scatter: relative variance of ‖h‖² about the value that the heads were started for.
        code_known: whether the codes and the heads behind the tensors can be looked at.
        random: whether it may generate something else each time.
    """

    name: str
    skeleton: Skeleton
    plain: Mapping[str, Tensor]
    example: Any
    spec: Spec
    sources: Sequence[Source]
    method: Method
    fidelity: Fidelity
    code_scatter: float
    code_known: bool
    random: bool

    @property
    def generated(self) -> list[TensorSpec]:
        """The generated tensors, as read."""
        return [s.tensor for s in self.sources]

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors among the inputs."""
        return [t for t in pytree.tree_leaves(self.example) if isinstance(t, Tensor)]

    @abstractmethod
    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate the tensors, with the graph they came from, from the same draw each time or from a new one."""

    @abstractmethod
    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The trained parameters behind these tensors: part → name → parameter."""

    @abstractmethod
    def constant(self) -> list[str]:
        """The tensors that do not change with the embedding, as far as that can be seen."""

    def run(self, generated: Mapping[str, Tensor]) -> tuple[Any, Recording]:
        """Run the mainnet with these tensors, in place of plain ones of the same name, and record its layers."""
        buffers = {name for name, t in self.skeleton.tensors.items() if not isinstance(t, nn.Parameter)}
        # A norm layer counts what it sees; let it count in a copy.
        plain = {name: t.detach().clone() if name in buffers else t for name, t in self.plain.items()}
        args, kwargs = arguments(pytree.tree_map_only(Tensor, Tensor.clone, self.example))  # a net may write into them
        layers = [t.layer for t in self.generated if t.start is None]
        module = self.skeleton.module
        with batch_statistics(module), record(module, layers) as recording:
            try:
                output = self.skeleton({**plain, **generated}, *args, **kwargs)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise CallError(
                    f"batch norm needs several inputs to norm by: give x a batch of them ({error})"
                ) from error
        return output, recording

    def draws(self) -> Iterator[dict[str, Tensor]]:
        """Generate the tensors several times where that is random, else once."""
        if not self.random:
            yield self.generate()
            return
        torch.manual_seed(SEED)
        for _ in range(RANDOM_DRAWS):
            yield self.generate(new_draw=True)

    def weights_of(self, output: LayerOutput) -> tuple[str, ...]:
        """The names in the mainnet of the weights behind a layer's output; of a tied one, the first."""
        names = self.spec.canonical_names
        local = [qualified_name(output.path, w) for w in output.weights]
        return tuple(names.get(name, name) for name in local)

    def trained_parts(self, generated: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """All that is trained, behind these tensors and beside them: part → name → parameter."""
        plain = {name: t for name, t in self.plain.items() if t.requires_grad}
        parts = {**self.hypernet_parts(generated), PLAIN_PART: plain}
        return {part: parameters for part, parameters in parts.items() if parameters}


@contextmanager
def preserved_random_state(example: Any) -> Iterator[None]:
    """Let torch's random numbers go on afterwards as if nothing had been drawn."""
    tensors = [t for t in pytree.tree_leaves(example) if isinstance(t, Tensor) and t.is_cuda]
    with torch.random.fork_rng(devices={t.device for t in tensors}):
        yield
