"""One set of generated weights for each sample of a batch, or for each group of samples."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError
from hyperfan.generators.base import Generator
from hyperfan.generators.stand_in import Order, Sizes, cheaper
from hyperfan.mainnet.skeleton import Skeleton

MAX_SHAPES = 64
"""Shapes of inputs for which orders are kept."""


class PerSample:
    """Runs the mainnet by vmap, so that each sample sees its own weights and nothing of the others.

    Which tensors are made, and which layers run from their codes, is learnt at the first call with inputs of a shape.

    Args:
        choose: from the sizes of a layer to the order in which to run it.
    """

    def __init__(self, choose: Callable[[Sizes], Order] = cheaper) -> None:
        self.choose = choose
        self.orders: dict[tuple[Any, ...], dict[str, Order]] = {}
        """For the shapes of the inputs: the order of each tensor that layers were run with."""

    def __call__(
        self,
        skeleton: Skeleton,
        heads: Generator,
        codes: Tensor,
        grouped: bool,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Run with (n, tensors, d_k) codes and n samples, or n groups of samples, in each input."""
        _check_norms(skeleton)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        batched = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        for i in batched:
            _check_input(leaves[i], len(codes), grouped)
        shapes = (grouped, *(tuple(leaves[i].shape) for i in batched))
        orders, lazy = self._orders(heads, shapes)
        tensors = heads(codes, skip=lazy, factored=True)

        others: list[Any] = []  # what the mainnet returns beside tensors, which vmap would refuse
        out_tree: Any = None

        def one(tensors: Mapping[str, Any], codes: Tensor, inputs: list[Tensor]) -> Any:
            filled = list(leaves)
            for i, x in zip(batched, inputs, strict=True):
                filled[i] = x if grouped else x.unsqueeze(0)
            args, kwargs = pytree.tree_unflatten(filled, tree)
            stand_ins = {}
            for i in lazy:
                name = heads.tensors[i].name
                stand_ins[name] = heads.stand_in(i, codes, functools.partial(self._choose, orders, name))
            nonlocal others, out_tree
            others, out_tree = pytree.tree_flatten(skeleton({**heads.assemble(tensors), **stand_ins}, *args, **kwargs))
            outputs = {i: t for i, t in enumerate(others) if isinstance(t, Tensor)}
            return outputs if grouped else {i: t.squeeze(0) for i, t in outputs.items()}

        with _without_fast_attention():
            outputs = torch.func.vmap(one, randomness="different")(tensors, codes, [leaves[i] for i in batched])
        self._remember(shapes, orders)
        return pytree.tree_unflatten([outputs.get(i, leaf) for i, leaf in enumerate(others)], out_tree)

    def _orders(self, heads: Generator, shapes: tuple[Any, ...]) -> tuple[dict[str, Order], list[int]]:
        """What is known for inputs of these shapes, and the tensors that layers may do without."""
        if torch.compiler.is_compiling():
            return {}, []
        deferrable = [i for i in heads.deferrable() if heads.base is None or heads.tensors[i].name not in heads.base]
        if shapes not in self.orders:
            return {}, deferrable
        orders = self.orders[shapes]
        return orders, [i for i in deferrable if orders.get(heads.tensors[i].name) == "codes"]

    def _remember(self, shapes: tuple[Any, ...], orders: dict[str, Order]) -> None:
        """Only what was learnt in a call that ended well."""
        if shapes not in self.orders and not torch.compiler.is_compiling():
            while len(self.orders) >= MAX_SHAPES:
                del self.orders[next(iter(self.orders))]
            self.orders[shapes] = orders

    def _choose(self, orders: dict[str, Order], name: str, sizes: Sizes) -> Order:
        order = self.choose(sizes)
        if orders.get(name) != "weights":  # for a tensor of several layers, that it must be made for one of them
            orders[name] = order
        return order


@contextlib.contextmanager
def _without_fast_attention() -> Iterator[None]:
    """In evaluation torch runs attention by a kernel without gradients; in vmap it cannot see that they are needed."""
    if torch.compiler.is_compiling():
        yield
        return
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def _check_norms(skeleton: Skeleton) -> None:
    for path, m in skeleton.module.named_modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training or not m.track_running_stats):
            raise CallError(
                f"'{path}' is a batch norm in training mode, which cannot run with one set of weights per sample: "
                "call net.eval(), or use a group norm"
            )


def _check_input(x: Tensor, codes: int, grouped: bool) -> None:
    each = "one per group" if grouped else "one per sample"
    if x.ndim < 1 + grouped or x.shape[0] != codes:
        wanted = f"({codes}, batch, …)" if grouped else f"({codes}, …)"
        repeat = f": repeat it by .expand({codes}, …)" if x.ndim and x.shape[0] == 1 else ""
        raise CallError(
            f"{codes} codes were given, {each}; an input has shape {tuple(x.shape)} and should have {wanted}{repeat}"
        )
