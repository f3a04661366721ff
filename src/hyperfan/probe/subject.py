"""``Subject``: a mainnet and the source of its generated parameters, as a diagnosis and a calibration look at it.

``hypernet_subject.py`` and ``foreign_subject.py`` have the two kinds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.codes.draw import fill_
from hyperfan.errors import CallError, InitError
from hyperfan.hypernet import HyperNet
from hyperfan.init.registry import Fidelity, Method, Reading
from hyperfan.init.targets import Targets
from hyperfan.mainnet.read import arguments
from hyperfan.mainnet.replay import tensors
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import Spec, TensorSpec, qualified_name
from hyperfan.probe.diagnosis import PLAIN_PART
from hyperfan.probe.found_layers import FoundWeight, found_weights
from hyperfan.probe.layer_output import LayerOutput
from hyperfan.probe.per_code import run_each
from hyperfan.probe.phases import with_phases
from hyperfan.probe.recorder import Recording, attributes_restored, batch_statistics, layer_hooks
from hyperfan.probe.relation import ConditionReading

SEED = 2020_1043
"""Not one that people use: twins drawn from the seed of the inputs would have the inputs as their weights."""
RANDOM_DRAWS = 8
"""Number of draws of a random hypernet."""


@dataclass(frozen=True)
class GeneratedTensor:
    """One generated tensor: what it should be, and what makes it. What is not known is NaN.

    Args:
        target, mean: its variance about its mean, ``None`` where the method cannot say, and the value it starts at, or
            the values of a base that was given.
        equation: where the target comes from, or why there is none.
        reading: how the method saw it.
        layer_output: mean square that its layer should put out, for a weight.
        head, width, outputs: the head that makes it, its d_k, and the number of values that it makes at once.
        moment: ‖h‖² of its code, if the tensor is linear in its head, or if it is 0.
        spread: relative variance of ‖h‖² among its codes, where it comes in chunks.
        head_square, bias_square: mean squares of the weight and the bias of a foreign head that makes it alone.
        code_factor: variance that the embeddings given make of it, over what those make that the head was started for.
    """

    spec: TensorSpec
    target: float | None
    equation: str
    mean: float | Tensor = 0.0
    reading: Reading | None = None
    layer_output: float | None = None
    head: str = ""
    width: float = math.nan
    outputs: float = math.nan
    moment: float = math.nan
    spread: float = 0.0
    head_square: float = math.nan
    bias_square: float = 0.0
    code_factor: float = math.nan


def with_targets(specs: Iterable[TensorSpec], method: Method, fidelity: Fidelity) -> dict[str, GeneratedTensor]:
    """Each tensor with the variance and mean that the method wants of it, by name."""
    specs = list(specs)
    theory, found = Targets(specs, method, fidelity), {}
    for t in specs:
        if t.start is not None:
            found[t.name] = GeneratedTensor(t, 0.0, f"= {t.start:g}", t.start)
            continue
        try:
            reading, aim = theory.reading(t.name), theory.aim(t.name)
            layer_output = theory.output(t.name) if t.role == "weight" else None
            found[t.name] = GeneratedTensor(t, aim.target, aim.equation, 0.0, reading, layer_output)
        except InitError as error:
            found[t.name] = GeneratedTensor(t, None, str(error))
    return found


@dataclass(eq=False)
class Subject(ABC):
    """A mainnet, its inputs, and the source of its generated parameters. Nothing done to it reaches the user's net.

    Args:
        plain: parameters that are not generated, and buffers.
        generated, method: the generated tensors by name, and the method whose targets they should meet.
        net: a copy of the hypernet, if it is ours; else codes and heads cannot be looked at.
        code_scatter: relative variance of ‖h‖² about the value that the heads were started for.
        random: whether it may generate something else each time.
        codes: number of codes that it generates from at once: one for all inputs, or one for each, or for each group.
        grouped: whether each code has a batch of inputs, (codes, batch, …).
    """

    name: str
    skeleton: Skeleton
    plain: Mapping[str, Tensor]
    example: Any
    spec: Spec
    generated: Mapping[str, GeneratedTensor]
    method: Method
    net: HyperNet | None = None
    code_scatter: float = 0.0
    random: bool = True
    codes: int = 1
    grouped: bool = False

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors among the inputs."""
        return tensors(self.example)

    @property
    def layers(self) -> list[str]:
        """The paths of layers that have generated weights, which their modules lack between calls."""
        return [t.spec.layer for t in self.generated.values() if t.spec.start is None]

    @cached_property
    def found(self) -> list[FoundWeight]:
        """The weights that no rule knows, and a run has shown."""
        return found_weights(self.skeleton.module, self.spec)

    @abstractmethod
    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate the tensors, with the graph they came from, from the same draw each time or from a new one."""

    @abstractmethod
    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
        """The trained parameters behind these tensors: part → parameters."""

    def constant(self) -> list[str]:
        """The tensors that do not change with the embedding: none where it cannot be changed from outside."""
        return []

    def conditions(self) -> ConditionReading | None:
        """The conditions that it is looked at under; ``None`` where there is none, or it is not known."""
        return None

    def correlation(self) -> float | None:
        """Mean correlation between the weights of two conditions: ``None`` where there is one, or it is not known."""
        return None

    def run(self, generated: Mapping[str, Tensor]) -> tuple[Any, Recording]:
        """Run the mainnet with these tensors, in place of plain ones of the same name, and record its layers.

        Tensors of which there is one for each input or group are run with that alone.
        """
        many = [name for name, t in generated.items() if self.has_many(name, t)]
        if not many and not self.grouped:
            return self._run(generated, self.example)
        count = len(generated[many[0]]) if many else self.codes
        return run_each(partial(self._run, alone=True), generated, many, count, self.example, self.grouped)

    @property
    def bias_share(self) -> float:
        """The share of a layer's variance that the method leaves to a generated bias."""
        return self.method.settings.get("bias_share", 0.0)

    def accept_phases(self, made: Mapping[str, Tensor]) -> None:
        """Let layers beside a sine whose tensors start as in SIREN have its targets."""
        self.generated = with_phases(self.generated, self.bias_share, made)

    def has_many(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor is in fact many, one for each input."""
        return name in self.generated and tensor.ndim > len(self.generated[name].spec.shape)

    def output(self) -> Any:
        """The output of the mainnet with the tensors generated now, without a record."""
        return self.run(self.generate())[0]

    def _run(self, generated: Mapping[str, Tensor], example: Any, alone: bool = False) -> tuple[Any, Recording]:
        """One run; of an input ``alone``, norms cannot take statistics."""
        buffers = {name for name, t in self.skeleton.tensors.items() if not isinstance(t, nn.Parameter)}
        # A norm layer counts what it sees; let it count in a copy.
        plain = {name: t.detach().clone() if name in buffers else t for name, t in self.plain.items()}
        args, kwargs = arguments(pytree.tree_map_only(Tensor, Tensor.clone, example))  # a net may write into them
        module, recording = self.skeleton.module, Recording()
        norms = nullcontext() if alone else batch_statistics(module)
        hooks = layer_hooks(module, recording.add, self.layers, self.found)
        with attributes_restored(module), norms, hooks, recording:
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

    def twins(self, generated: Mapping[str, Tensor], count: int) -> Iterator[dict[str, Tensor]]:
        """Draw independent normal tensors of the target variances; a tensor without a target stays as it is.

        Plain parameters stay too, but for biases that the theory starts.
        """
        generator = torch.Generator().manual_seed(SEED)
        for _ in range(count):
            drawn = {}
            for name, variance in self.started_biases().items():
                empty = torch.empty(self.plain[name].shape, dtype=torch.float32)
                drawn[name] = fill_(empty, variance, "normal", 0.0, generator).to(self.plain[name])
            for name, tensor in generated.items():
                wanted, drawn[name] = self.generated[name], tensor.detach()
                if wanted.target is not None:
                    empty = torch.empty(wanted.spec.shape, dtype=torch.float32)
                    drawn[name] = fill_(empty, wanted.target, "normal", 0.0, generator).to(tensor) + wanted.mean
            yield drawn

    def started_biases(self) -> dict[str, float]:
        """The plain biases that start as the theory has them, those beside generated weights, and their variance."""
        return {t.name: 0.0 for t in self.spec if t.name in self.plain and self.generated.keys() & set(t.weights)}

    def weights_of(self, output: LayerOutput) -> tuple[str, ...]:
        """The names in the mainnet of the weights behind a layer's output; of a tied one, the first."""
        names = self.spec.canonical_names
        local = [qualified_name(output.path, w) for w in output.weights]
        return tuple(names.get(name, name) for name in local)

    def trained_parts(self, generated: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
        """All that is trained, behind these tensors and beside them: part → parameters."""
        parts = {**self.hypernet_parts(generated), PLAIN_PART: [t for t in self.plain.values() if t.requires_grad]}
        return {part: parameters for part, parameters in parts.items() if parameters}

    def user_parameters(self, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """The user's parameters that are to be trained, by name; those of a foreign hypernet have their part's."""
        return {f"{part} {i}": p for part, parameters in parts.items() for i, p in enumerate(parameters)}


def leaves(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The parameters that some tensors were computed from, by walking back through their graph."""
    tensors = list(tensors)
    found: dict[int, Tensor] = {id(t): t for t in tensors if t.is_leaf}
    visited: set[Any] = set()
    waiting: list[Any] = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions if following is not None]
    return list(found.values())
