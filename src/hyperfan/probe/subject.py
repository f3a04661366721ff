"""What is looked at: a ``HyperNet``, or any mainnet with a callable that makes its parameters."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError, HyperfanError, InitError
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.kept import kept
from hyperfan.hypernet.moments import scatter
from hyperfan.init.asked import Asked, Slot
from hyperfan.init.registry import Fidelity, Method, method
from hyperfan.init.write import fill_
from hyperfan.mainnet.read import read
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import Spec, TensorSpec
from hyperfan.probe.watch import Output, Watch, as_in_training, named

Generated = Callable[[], Mapping[str, Tensor]]
DRAWS = 8
"""How many draws of a random hypernet are looked at."""
SEED = 2020_1043
"""Not one that people use: twins drawn from the seed of the inputs would have the inputs as their weights."""


class Subject(ABC):
    """A mainnet and what generates its parameters. Nothing done to it reaches the user's net.

    Args:
        name: what it is called in a diagnosis.
        skeleton: runs the mainnet with given tensors.
        own: parameters that are not generated, and buffers.
        example: the inputs, as a mainnet takes them.
        spec: the mainnet, as read.
        slots: how each generated tensor is made.
        method, fidelity: whose targets it should meet.
    """

    method: Method
    fidelity: Fidelity = "exact"

    def __init__(self, name: str, skeleton: Skeleton, own: Mapping[str, Tensor], example: Any) -> None:
        self.name, self.skeleton, self.own = name, skeleton, dict(own)
        self.args: tuple[Any, ...] = example if isinstance(example, tuple) else (example,)
        self.kwargs: dict[str, Any] = {}
        if isinstance(example, dict):
            self.args, self.kwargs = (), example
        self.spec: Spec
        self.slots: list[Slot]
        self.scatter = 0.0
        """Relative variance of ‖h‖² about what the heads were made for."""

    @property
    def module(self) -> nn.Module:
        """The mainnet, to put hooks on. It has no values of its own."""
        return self.skeleton.module

    @property
    def generated(self) -> list[TensorSpec]:
        """What is generated."""
        return [s.tensor for s in self.slots]

    @abstractmethod
    def generate(self, noise: bool = False) -> dict[str, Tensor]:
        """The generated tensors, with the graph they came from; with ``noise``, from another draw each time."""

    @abstractmethod
    def trained(self, made: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The trained parameters behind these tensors: part → name → parameter."""

    @abstractmethod
    def width(self, slot: Slot) -> int | None:
        """Inputs of the head that makes a tensor, d_k, if they are known."""

    def constant(self) -> list[str]:
        """Tensors that do not change with the embedding, as far as that can be seen."""
        return []

    @property
    def random(self) -> bool:
        """Whether it may generate something else each time."""
        return True

    def run(self, made: Mapping[str, Tensor]) -> tuple[Any, Watch]:
        """The mainnet's output with these tensors, in place of its own where they have its names, and what was seen."""
        buffers = {name for name, t in self.skeleton.tensors.items() if not isinstance(t, nn.Parameter)}
        # A norm layer counts what it sees; let it count in a copy.
        own = {name: t.detach().clone() if name in buffers else t for name, t in self.own.items()}
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.clone, (self.args, self.kwargs))  # a net may write into them
        watch = Watch(self.module, [t.layer for t in self.generated if t.start is None])
        with as_in_training(self.module), watch:
            try:
                output = self.skeleton({**own, **made}, *args, **kwargs)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise CallError(
                    f"batch norm needs several inputs to norm by: give x a batch of them ({error})"
                ) from error
        return output, watch

    def draws(self) -> Iterator[dict[str, Tensor]]:
        """What it generates: several draws where that is random, else once."""
        if not self.random:
            yield self.generate()
            return
        torch.manual_seed(SEED)
        for _ in range(DRAWS):
            yield self.generate(noise=True)

    def weights_of(self, output: Output) -> tuple[str, ...]:
        """The names in the mainnet of the weights that made this; of a tied one, the first."""
        names = {alias: t.name for t in self.spec for alias in (t.name, *t.aliases)}
        local = [named(output.path, w) for w in output.weights]
        return tuple(names.get(name, name) for name in local)

    def plain(self) -> dict[str, Tensor]:
        """The mainnet's own parameters that are trained."""
        return {name: t for name, t in self.own.items() if t.requires_grad}


class OurNet(Subject):
    """A copy of a :class:`HyperNet`, for one task or one embedding."""

    def __init__(self, net: HyperNet, example: Any, task: int | None, embedding: Tensor | None) -> None:
        self._example = example
        if any(t.is_meta for t in net.parameters()):
            raise CallError("the net is on the meta device: call net.to_empty(device='cpu') and net.reset_parameters()")
        self.net = copy.deepcopy(net)  # without the optimiser's engine, and safe to change
        for module in self.net.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.eval()
        config = net.embeddings.config
        self.task = 0 if task is None and config.tasks is not None else task
        self.embedding = self._draw() if embedding is None and config.given else embedding
        super().__init__(
            f"{type(net).__name__}({net.extra_repr()})", self.net.skeleton, kept(self.net.mainnet), example
        )
        known = all(t.consumes is not None and t.followed_by is not None for t in net.spec if t.role == "weight")
        self.spec = net.spec if known else read(self._frozen(), example, warn=False)
        layout = self.net.heads.layout
        self.slots = [
            Slot(self.spec[t.name], head, net.width, layout.heads[head].outputs, moment, cut)
            for t, head, moment, cut in zip(net.generated, layout.names, self._moments(), layout.cut, strict=True)
        ]
        self.fidelity = net.fidelity
        self.method = net.init if self._aims_at_a_variance() else method("hyperfan-in")
        fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
        self.scatter = 0.0 if fitted or config.normalise else scatter(self.net)
        if config.noise and not config.normalise:
            self.scatter = max(self.scatter, 2 / net.width)

    def generate(self, noise: bool = False) -> dict[str, Tensor]:
        """From its own embeddings or those given, with noise as in training: the same draw, unless a new one is due."""
        if not noise and self.random:
            torch.manual_seed(SEED)
        with torch.enable_grad():
            return self.net.generate(task=self.task, embedding=self.embedding, noise=self.random)

    def trained(self, made: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """Each head, the trunk, the embeddings."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name in self.net.heads.layout.heads:
            parts[f"head {name}"] = dict(self.net.heads.head(name).named_parameters())
        parts["trunk"] = {} if self.net.trunk is None else dict(self.net.trunk.named_parameters())
        parts["embedding"] = dict(self.net.embeddings.named_parameters())
        kept_parts = {part: {n: p for n, p in ps.items() if p.requires_grad} for part, ps in parts.items()}
        return {part: ps for part, ps in kept_parts.items() if ps}

    def renewed(self, net: HyperNet) -> "OurNet":
        """The same look at the net as it is now."""
        return OurNet(net, self._example, self.task, self.embedding)

    def width(self, slot: Slot) -> int | None:
        """The same for all heads."""
        return slot.width

    @property
    def random(self) -> bool:
        """Where its embeddings have noise."""
        return self.net.embeddings.config.noise > 0

    def constant(self) -> list[str]:
        """Those that a change of all embeddings leaves as they are."""
        stored = [t for t in (self.net.embeddings.weight, self.net.embeddings.chunks) if t is not None]
        given, saved = self.embedding, [t.detach().clone() for t in stored]
        with torch.no_grad():
            before = self.generate()
            for tensor in stored:
                tensor.copy_(_other(tensor))
            self.embedding = None if given is None else _other(given)
            after = self.generate()
            for tensor, old in zip(stored, saved, strict=True):
                tensor.copy_(old)
        self.embedding = given
        return [t.name for t in self.generated if t.start is None and torch.equal(before[t.name], after[t.name])]

    def _aims_at_a_variance(self) -> bool:
        """Whether its method says which variance a tensor should have, and not only that of the head."""
        asked = Asked(self.slots, self.net.init, self.fidelity)
        for t in self.generated:
            if t.start is None:
                try:
                    return asked.of(t.name)[1].target is not None
                except InitError:
                    continue
        return True

    def _draw(self) -> Tensor:
        embeddings = self.net.embeddings
        config, like = embeddings.config, self.net.code_scale
        own = torch.Generator().manual_seed(SEED)
        e = torch.empty(embeddings.n, config.size)
        e = fill_(e, config.std**2, config.distribution, generator=own).to(like)
        return e if config.per == "tensor" else e[0]

    def _frozen(self) -> nn.Module:
        return self.net.freeze(task=self.task, embedding=self.embedding)

    def _moments(self) -> list[float | None]:
        """‖h‖² of each tensor's code, as it is."""
        torch.manual_seed(SEED)
        with torch.no_grad():
            codes = self.net.codes(task=self.task, embedding=self.embedding, noise=self.random)
        squares = codes.double().square().sum(-1)
        return [squares[span].mean().item() for span in self.net.heads.layout.spans]


class Foreign(Subject):
    """Any mainnet, and a callable that returns names → tensors, whatever made them."""

    def __init__(self, mainnet: nn.Module, example: Any, generated: Generated) -> None:
        self._call = generated
        made = self._made()
        spec = read(mainnet, example, warn=False)
        self._names = {alias: t.name for t in spec for alias in (t.name, *t.aliases)}
        unknown = [name for name in made if name not in self._names]
        skeleton = Skeleton(mainnet)
        if unknown:
            skeleton.check(made)  # says which, and what was probably meant
        names = {self._names[name] for name in made}
        own = {n: t for n, t in mainnet.named_parameters() if n not in names} | dict(mainnet.named_buffers())
        super().__init__(f"{type(mainnet).__name__} with {len(names)} generated tensors", skeleton, own, example)
        self.spec = spec
        self.slots = [Slot(t, "", 1, t.numel, None) for t in spec if t.name in names]
        self.method = method("hyperfan-in")
        self._widths = {leaf.shape[0]: leaf.shape[1] for leaf in _leaves(list(made.values())) if leaf.ndim == 2}

    def width(self, slot: Slot) -> int | None:
        """That of a linear layer behind it with as many outputs as the tensor has values, if there is one."""
        return self._widths.get(slot.outputs)

    def generate(self, noise: bool = False) -> dict[str, Tensor]:
        """Whatever the callable makes; a random one has its own noise."""
        with torch.enable_grad():
            return {self._names[name]: t for name, t in self._made().items()}

    def trained(self, made: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The leaves of the graph that the tensors came from."""
        leaves = _leaves([t for t in made.values() if t.requires_grad])
        return {"hypernet": {str(i): leaf for i, leaf in enumerate(leaves)}} if leaves else {}

    def _made(self) -> dict[str, Tensor]:
        owner = self._call if isinstance(self._call, nn.Module) else getattr(self._call, "__self__", None)
        buffers = list(owner.buffers()) if isinstance(owner, nn.Module) else []
        saved = [b.clone() for b in buffers]
        try:
            made = self._call()
        finally:
            for buffer, old in zip(buffers, saved, strict=True):
                buffer.data.copy_(old)  # through .data: the graph may need the buffer's version
        odd = [n for n, t in made.items() if not isinstance(t, Tensor)] if isinstance(made, Mapping) else []
        if odd:
            raise CallError(
                f"generated() returned a {type(made[odd[0]]).__name__} for '{odd[0]}': it should be a tensor"
            )
        if not isinstance(made, Mapping):
            raise CallError(
                f"generated() returned a {type(made).__name__}: it should return a dict from names of the mainnet's "
                "parameters to tensors, such as dict(zip(names, hypernet()))"
            )
        if not made:
            raise CallError("generated() returned no tensors, so there is nothing to diagnose")
        return dict(made)


@contextmanager
def undisturbed(example: Any) -> Iterator[None]:
    """Whatever is drawn inside, torch's random numbers go on as if nothing had been."""
    tensors = [t for t in pytree.tree_leaves(example) if isinstance(t, Tensor) and t.is_cuda]
    with torch.random.fork_rng(devices={t.device for t in tensors}):
        yield


def started_with(net: HyperNet, example: Any, init: str) -> HyperNet:
    """A copy of a net, started anew with another method."""
    other = copy.deepcopy(net)
    seen = OurNet(net, example, None, None)
    other.init = method(init)
    other.spec, other.generated = seen.spec, tuple(seen.generated)
    other.reset_parameters()
    return other


def subject_of(
    net: nn.Module, example: Any, generated: Generated | None, task: int | None, embedding: Tensor | None
) -> Subject:
    """What there is to look at."""
    if isinstance(net, HyperNet):
        if generated is not None:
            raise HyperfanError("a HyperNet generates its own parameters: leave out generated=")
        return OurNet(net, example, task, embedding)
    if generated is None:
        raise HyperfanError(
            f"{type(net).__name__} is no HyperNet: pass generated=, a function without arguments that returns the "
            "generated tensors by their names in the mainnet, or build one with hyperfan.HyperNet(mainnet, embedding=…)"
        )
    if not callable(generated):
        raise HyperfanError(f"generated= is a {type(generated).__name__}: pass a function that returns the tensors")
    if task is not None or embedding is not None:
        raise HyperfanError("task= and embedding= belong to a HyperNet; a callable generates what it generates")
    return Foreign(net, example, generated)


def _other(embedding: Tensor) -> Tensor:
    """Another one: not a multiple of it, so that no norm or symmetry of a trunk makes the same code of both."""
    return embedding.detach() * -1.5 + 0.1


def _leaves(tensors: list[Tensor]) -> list[Tensor]:
    """The parameters that some tensors were computed from, by walking back through their graph."""
    found: dict[int, Tensor] = {id(t): t for t in tensors if t.is_leaf}
    seen: set[Any] = set()
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions if following is not None]
    return list(found.values())
