"""Each library for hypernetworks behind one small interface, by its own calls, so that all can be asked the same.

A library makes a :class:`Conditioned` net: a mainnet whose weights come from a condition that is given at the call.
What it has a call for beyond that is a method of its class here; what it has none for raises :class:`NotOffered`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import hyperlight as hl
import torch
from hypernn.torch import TorchDynamicHyperNetwork, TorchLinearHyperNetwork
from hypnettorch.hnets import HMLP, ChunkedHMLP
from hypnettorch.utils import hnet_regularizer
from torch import Tensor, nn
from torch.func import functional_call, vmap

import hyperfan as hf
from hyperfan.optim import Memory

Weights = dict[str, Tensor]


class NotOffered(Exception):
    """The library has no call for it."""


@dataclass
class Conditioned:
    """A net whose weights come from a condition.

    Args:
        module: what is trained.
        weights: the generated tensors of a condition (size,), by their names in the mainnet.
        call: the output for inputs and a condition.
        own_call: whether the library runs the mainnet itself.
        per_sample: how a condition for each sample runs, where that is not the library's own batched call.
    """

    module: nn.Module
    weights: Callable[[Tensor], Weights]
    call: Callable[[Tensor, Tensor], Tensor]
    own_call: bool = True
    per_sample: str = ""


def chosen(mainnet: nn.Module, pattern: str) -> Weights:
    """The mainnet's matrices and kernels that a glob pattern names."""
    return {n: p for n, p in mainnet.named_parameters() if fnmatch(n, pattern) and n.endswith("weight") and p.ndim > 1}


class Library:
    """What a library can be asked."""

    name: str

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        """A conditioned net; ``x`` is an example of the inputs."""
        raise NotImplementedError

    def start_(self, net: Conditioned) -> None:
        """Apply the library's own init for hypernets, where that is not what the constructor does."""

    def tasks(self, mainnet: nn.Module, size: int) -> Callable[[int], Sequence[Tensor]]:
        """A table of embeddings that are trained: from a task's number to its tensors."""
        raise NotOffered

    def chunks(self, mainnet: nn.Module, size: int) -> Callable[[], int]:
        """All tensors in pieces from one small head: the number of the hypernet's parameters."""
        raise NotOffered

    def drift(self, mainnet: nn.Module, size: int) -> Tensor:
        """The output regulariser of von Oswald et al. for the first of two tasks, after the hypernet has moved."""
        raise NotOffered

    def lora(self, mainnet: nn.Module, size: int, x: Tensor) -> Conditioned:
        """Low-rank updates of a frozen mainnet from a condition."""
        raise NotOffered


class Hyperfan(Library):
    name = "hyperfan"

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        names = list(chosen(mainnet, pattern))
        net = hf.HyperNet(mainnet, hf.Embedding(size, given=True, per="net"), generate=names, example=x)
        return Conditioned(net, lambda c: net.generate(embedding=c), lambda x, c: net(x, embedding=c))

    def tasks(self, mainnet: nn.Module, size: int) -> Callable[[int], Sequence[Tensor]]:
        net = hf.HyperNet(mainnet, hf.Embedding(size, tasks=5, trainable=True, per="net"))
        return lambda i: list(net.generate(task=i).values())

    def chunks(self, mainnet: nn.Module, size: int) -> Callable[[], int]:
        net = hf.HyperNet(mainnet, size, heads=hf.Chunks(size=100, flat=True))
        return lambda: sum(p.numel() for p in net.heads.parameters())

    def drift(self, mainnet: nn.Module, size: int) -> Tensor:
        net = hf.HyperNet(mainnet, hf.Embedding(size, tasks=2, trainable=True))
        memory = Memory(net, tasks=[0])
        _move_(net)
        return memory.drift()

    def lora(self, mainnet: nn.Module, size: int, x: Tensor) -> Conditioned:
        condition = hf.Embedding(size, given=True, per="net")
        net = hf.HyperNet(mainnet.requires_grad_(False), condition, heads=hf.LoRA(rank=2, alpha=4), example=x)
        return Conditioned(net, lambda c: net.generate(embedding=c), lambda x, c: net(x, embedding=c))


class ByHand(Library):
    name = "by hand"

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        shapes = {n: p.shape for n, p in chosen(mainnet, pattern).items()}
        heads = nn.ModuleList(nn.Linear(size, shape.numel()) for shape in shapes.values())

        def weights(c: Tensor) -> Weights:
            return {n: head(c).view(shape) for head, (n, shape) in zip(heads, shapes.items(), strict=True)}

        def call(x: Tensor, c: Tensor) -> Tensor:
            if c.ndim == 2:
                return vmap(lambda one, own: functional_call(mainnet, weights(own), (one,)))(x, c)
            return functional_call(mainnet, weights(c), (x,))

        return Conditioned(heads, weights, call, per_sample="by vmap")


class Hypnettorch(Library):
    name = "hypnettorch"

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        shapes = {n: list(p.shape) for n, p in chosen(mainnet, pattern).items()}
        options = {"uncond_in_size": size, "cond_in_size": 0, "num_cond_embs": 0}
        net = HMLP(list(shapes.values()), layers=(), verbose=False, **options)

        def weights(c: Tensor) -> Weights:
            return dict(zip(shapes, net.forward(uncond_input=c.unsqueeze(0)), strict=True))

        def call(x: Tensor, c: Tensor) -> Tensor:
            if c.ndim == 2:
                made = [dict(zip(shapes, each, strict=True)) for each in net.forward(uncond_input=c)]
                runs = [functional_call(mainnet, w, (one.unsqueeze(0),)) for one, w in zip(x, made, strict=True)]
                return torch.cat(runs)
            return functional_call(mainnet, weights(c), (x,))

        return Conditioned(net, weights, call, own_call=False, per_sample="weights at once, then sample after sample")

    def start_(self, net: Conditioned) -> None:
        net.module.apply_hyperfan_init(use_xavier=True)

    def _table(self, mainnet: nn.Module, size: int, tasks: int) -> HMLP:
        shapes = [list(p.shape) for p in chosen(mainnet, "*").values()]
        return HMLP(shapes, cond_in_size=size, num_cond_embs=tasks, layers=(), verbose=False)

    def tasks(self, mainnet: nn.Module, size: int) -> Callable[[int], Sequence[Tensor]]:
        net = self._table(mainnet, size, 5)
        return lambda i: net.forward(cond_id=i)

    def chunks(self, mainnet: nn.Module, size: int) -> Callable[[], int]:
        shapes = [list(p.shape) for p in chosen(mainnet, "*").values()]
        net = ChunkedHMLP(shapes, 100, chunk_emb_size=size, cond_in_size=size, layers=(), verbose=False)
        net.forward(cond_id=0)
        return lambda: sum(p.numel() for p in net.parameters())

    def drift(self, mainnet: nn.Module, size: int) -> Tensor:
        net = self._table(mainnet, size, 2)
        targets = hnet_regularizer.get_current_targets(1, net)
        _move_(net)
        return hnet_regularizer.calc_fix_target_reg(net, 1, targets=targets)


class Hyperlight(Library):
    name = "hyperlight"

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        own = copy.deepcopy(mainnet)
        main = hl.hypernetize(own, parameters=list(chosen(own, pattern).values()))
        net = hl.HyperNet({"h": (size,)}, main.external_shapes(), hidden_sizes=[], encoding=None)

        def call(x: Tensor, c: Tensor) -> Tensor:
            with main.using_externals(net(h=c)):
                return main(x)

        return Conditioned(nn.ModuleList([net, main]), lambda c: dict(net(h=c)), call)


class HyperNN(Library):
    name = "hyper-nn"

    def conditioned(self, mainnet: nn.Module, size: int, x: Tensor, pattern: str = "*") -> Conditioned:
        if pattern != "*":
            raise NotOffered
        shapes = {n: p.shape for n, p in mainnet.named_parameters()}
        net = TorchDynamicHyperNetwork(size, mainnet, embedding_dim=size, num_embeddings=1)

        def weights(c: Tensor) -> Weights:
            flat = net.generate_params(x=c.unsqueeze(0))[0][: sum(s.numel() for s in shapes.values())]
            parts = flat.split([s.numel() for s in shapes.values()])
            return {n: part.view(shape) for (n, shape), part in zip(shapes.items(), parts, strict=True)}

        return Conditioned(net, weights, lambda x, c: net(x, generate_params_kwargs={"x": c.unsqueeze(0)}))

    def chunks(self, mainnet: nn.Module, size: int) -> Callable[[], int]:
        count = sum(p.numel() for p in mainnet.parameters())
        net = TorchLinearHyperNetwork(
            mainnet, embedding_dim=size, num_embeddings=-(-count // 100), weight_chunk_dim=100
        )
        assert net.generate_params()[0].numel() >= count
        return lambda: sum(p.numel() for p in net.parameters())


def _move_(net: nn.Module) -> None:
    """Add noise to all that is trained."""
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))


LIBRARIES: tuple[Any, ...] = (Hyperfan(), ByHand(), Hypnettorch(), Hyperlight(), HyperNN())
