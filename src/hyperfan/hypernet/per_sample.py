"""One set of generated weights for each sample of a batch, or for each group of samples."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.errors import CallError, HyperfanError, one_line
from hyperfan.generators.generator import Generator
from hyperfan.generators.stand_in import Order, Sizes, StandIn, cheaper
from hyperfan.hypernet.batched import (
    DisagreementError,
    MixingError,
    Samples,
    SamplesCall,
    check_graph,
    check_outputs,
    see_all,
)
from hyperfan.hypernet.batched.chain import run_chain
from hyperfan.hypernet.batched.rows import SeparateRows, check_rows, mark_rows
from hyperfan.hypernet.batched.untouched import Untouched
from hyperfan.hypernet.inputs import Inputs
from hyperfan.hypernet.objects import change, in_objects, join
from hyperfan.hypernet.ragged import Ragged
from hyperfan.hypernet.transforms import transformed
from hyperfan.mainnet.chain import Chain
from hyperfan.mainnet.skeleton import Skeleton

MAX_SHAPES = 64
"""Shapes of inputs for which something is remembered."""
SHARED_TARGET = "`other` being vmapped over but `self` not being vmapped over"
"""The part of torch's message that says that an operation in place has too small a target."""
REFUSED = object()
"""The result of a run that was given up."""


class CodesCall(NamedTuple):
    """One call of a hypernet with n codes (n, tensors, d_k).

    Args:
        skeleton: the mainnet.
        heads: what makes its tensors.
        codes: of each sample or group.
        inputs: what the mainnet is called with.
    """

    skeleton: Skeleton
    heads: Generator
    codes: Tensor
    inputs: Inputs

    @property
    def key(self) -> tuple[Any, ...]:
        """The kind and shapes of the inputs."""
        return (self.inputs.kind, *[tuple(x.shape) for x in self.inputs.tensors])

    def held(self) -> list[Tensor]:
        """The tensors that are not of a run: those in the mainnet, and the inputs."""
        return [*self.skeleton.present(), *self.inputs.tensors]


class PerSample:
    """Runs the mainnet for many codes at once, so that each sample sees its own weights and nothing of the others.

    Functions that are known to act on each sample by itself run batched (``hypernet/batched``); a mainnet that has any
    other runs by vmap. Which, and which tensors are made and which layers run from their codes, is learnt at the first
    call with inputs of a shape.

    Args:
        choose: from the sizes of a layer to the order in which to run it.
    """

    def __init__(self, choose: Callable[[Sizes], Order] = cheaper) -> None:
        self.choose = choose
        self.orders: dict[tuple[Any, ...], dict[str, Order]] = {}
        """For the shapes of the inputs: the order of each tensor that layers were run with."""
        self.mixing: dict[tuple[Any, ...], str | None] = {}
        """For what the mainnet's choice of functions may depend on (shapes and dtypes of the inputs, other arguments,
        layers in training, gradients): the function or error because of which it is run by vmap, or, with "rows",
        because of which groups are not padded; ``None`` if there is none. A chain of torch's own layers has none."""

        self._mixing_rows: dict[tuple[Any, ...], bool] = {}
        """States of the mainnet in which it is not known to treat rows one by one."""

    def __call__(self, skeleton: Skeleton, heads: Generator, codes: Tensor, inputs: Inputs | Ragged) -> Any:
        """Run with (n, tensors, d_k) codes."""
        if isinstance(inputs, Ragged):
            weight = sum(t.numel for t in heads.tensors)
            out = inputs.run(codes, lambda *part: self._run_group(skeleton, heads, *part), weight)
            return inputs.inputs.adopt(out)
        return inputs.adopt(self._run(skeleton, heads, codes, inputs))

    def _run(self, skeleton: Skeleton, heads: Generator, codes: Tensor, inputs: Inputs) -> Any:
        """Outputs for all codes, with changes of objects among the inputs, which are not made in these yet."""
        call, n = CodesCall(skeleton, heads, codes, inputs), codes.shape[0]
        plain = not torch.compiler.is_compiling() and not transformed()
        chain = skeleton.chain() if plain and n > 1 and inputs.has_rows() else None
        out: Any = None if chain is None else self._by_chain(call, chain)
        if out is not None:
            return out
        _check_norms(skeleton.modules)
        if plain and n == 1:
            return _alone(call)
        # By vmap where the number of samples would not say how to divide what there is.
        out = self._try_batched(call, Samples(n, call.held)) if plain and n else REFUSED
        return self._by_vmap(call) if out is REFUSED else out

    def _run_group(self, skeleton: Skeleton, heads: Generator, codes: Tensor, inputs: Inputs, padded: bool) -> Any:
        """Run on groups; where some are padded, only if the mainnet is known to treat rows one by one."""
        if not padded:
            return self._run(skeleton, heads, codes, inputs)
        if torch.compiler.is_compiling() or transformed() or skeleton.state() in self._mixing_rows:
            return None
        call = CodesCall(skeleton, heads, codes, inputs)
        chain = skeleton.chain() if inputs.has_rows() and inputs.tensors[0].ndim > 2 else None
        if chain is not None:
            return self._by_chain(call, chain)
        _check_norms(skeleton.modules)
        out = self._try_batched(call, SeparateRows(codes.shape[0], call.held))
        return None if out is REFUSED else out

    def _try_batched(self, call: CodesCall, s: Samples) -> Any:
        """Outputs of a batched run, or of vmap if it fails; ``REFUSED``, with everything as it was, if it cannot be."""
        arguments, known = call.inputs.signature()
        key = (*arguments, *call.skeleton.state(), torch.is_grad_enabled(), *([] if type(s) is Samples else ["rows"]))
        if self.mixing.get(key) is not None:
            return REFUSED
        first = not known or key not in self.mixing
        random_states = _get_random_states() if first else []
        failure: str | None = None
        safe = Untouched(call.skeleton.modules.values(), call.inputs, copy=first)
        try:
            out = self._batched(call._replace(inputs=safe.inputs), s, first)
            safe.check()
            safe.put_back()
            _remember(self.mixing, key, None)
            return out
        except DisagreementError as error:
            safe.restore(error)
            _set_random_states(random_states)
            return REFUSED if isinstance(s, SeparateRows) else self._in_parts(call, error.same)
        except MixingError as error:
            _remember(self.mixing, key, str(error))
            if isinstance(s, SeparateRows):
                _remember(self._mixing_rows, call.skeleton.state(), True)
            safe.restore(error)
        except Exception as error:  # of the mainnet, which vmap will meet too, or of a rule
            safe.restore(error)
            if isinstance(error, CallError):
                raise
            failure = one_line(error)
        _set_random_states(random_states)  # as if it had not been tried
        if failure is None or isinstance(s, SeparateRows):
            return REFUSED
        out = self._by_vmap(call)
        _remember(self.mixing, key, failure)
        return out

    def _in_parts(self, call: CodesCall, same: Tensor) -> Any:
        """Run samples apart from those from which they differ in a value that the mainnet's code asks for."""
        parts = [torch.nonzero(chosen).flatten() for chosen in (same, ~same)]
        outputs, given = [], []
        for rows in parts:
            its = rows.to(call.codes.device)
            inputs = call.inputs if call.inputs.kind == "shared" else call.inputs.of_rows(its)
            outputs.append(self._run(call.skeleton, call.heads, call.codes[its], inputs))
            if inputs is not call.inputs:
                call.inputs.take_changes(rows, inputs.tensors)
            given.append(inputs.tensors)
        back = torch.argsort(torch.cat(parts))
        return join(outputs, given, lambda each: torch.cat(list(each))[back.to(each[0].device)])

    def _by_chain(self, call: CodesCall, chain: Chain) -> Tensor | None:
        """Layers that are known, one behind the other, each by the rule that the batched run has for it.

        ``None`` for inputs that do not fit: the mainnet will say so itself.
        """
        s = Samples(call.codes.shape[0])
        orders, defer = self._orders(call)
        tensors = self._tensors(call, s, orders, defer)
        (x,) = call.inputs.tensors
        one_row = call.inputs.kind == "sample" and x.ndim == 2
        if call.inputs.kind != "shared":
            x = s.mark(x.unsqueeze(1) if one_row else x.view_as(x))
        try:
            out = run_chain(s, chain, tensors, x)
        except (RuntimeError, MixingError):
            return None
        self._remember_orders(call, orders)
        return out.squeeze(1) if one_row else out

    def _tensors(
        self, call: CodesCall, s: Samples, orders: dict[str, Order], defer: Sequence[int]
    ) -> dict[str, Tensor]:
        """The generated tensors of all samples, or what stands for them."""
        tensors: dict[str, Tensor] = call.heads(call.codes, defer=defer)
        if defer:
            tensors = call.heads.assemble(tensors, functools.partial(self._choose, orders))
        for t in tensors.values():
            if not isinstance(t, StandIn):
                s.mark(t)
        return tensors

    def _batched(self, call: CodesCall, s: Samples, first: bool) -> Any:
        orders, defer = self._orders(call)
        tensors = self._tensors(call, s, orders, defer)
        shared = call.inputs.kind == "shared"
        inputs = [x if shared or not x.ndim else s.mark(call.inputs.spread(x)) for x in call.inputs.tensors]
        by_rows = isinstance(s, SeparateRows)
        given = call.inputs.filled([mark_rows(x) for x in inputs] if by_rows else inputs)
        with see_all(s) if first else s.entered():
            out = call.skeleton.call(tensors, SamplesCall(s, call.skeleton, tensors), given.args, given.kwargs)
        out = given.with_changes(out)
        if torch.is_grad_enabled() and (first or s.without_grad):
            check_graph(out, [*tensors.values(), *inputs, call.codes])
        check_outputs(out)
        if by_rows:
            check_rows(out)
        self._remember_orders(call, orders)
        return call.inputs.gathered(out, s.unmarked)

    def _by_vmap(self, call: CodesCall) -> Any:
        orders, defer = self._orders(call)
        tensors, choose = call.heads(call.codes, defer=defer), functools.partial(self._choose, orders)
        inputs = call.inputs
        result: Any = None  # also what the mainnet returns beside tensors, which vmap would refuse

        def one(tensors: Mapping[str, Any], given: list[Tensor]) -> Any:
            numbers = [x.ndim == 0 for x in inputs.tensors]
            each = [x if inputs.kind != "sample" or n else x.unsqueeze(0) for x, n in zip(given, numbers, strict=True)]
            filled = inputs.filled(each)
            nonlocal result
            result = filled.with_changes(
                call.skeleton(call.heads.assemble(tensors, choose), *filled.args, **filled.kwargs)
            )
            outputs = [x for x in (*pytree.tree_leaves(result), *in_objects(result)) if isinstance(x, Tensor)]
            return [x.squeeze(0) for x in outputs] if inputs.kind == "sample" else outputs

        in_dims = (0, [None if inputs.kind == "shared" or not x.ndim else 0 for x in inputs.tensors])
        try:
            with _without_fast_attention():
                outputs = iter(torch.func.vmap(one, in_dims, randomness="different")(tensors, inputs.tensors))
        except (RuntimeError, ValueError) as error:
            if SHARED_TARGET not in str(error):
                if inputs.kind == "sample" and not isinstance(error, (HyperfanError, torch.OutOfMemoryError)):
                    error.add_note(
                        f"{len(call.codes)} codes were given, and with each the mainnet saw one sample of the inputs: "
                        "if each has a batch of its own, (codes, batch, …), pass grouped=True"
                    )
                raise
            raise CallError(
                "with a code for each sample, the mainnet writes what differs between samples into a tensor that has "
                "one place for all of them: let it make a new tensor instead, or give it a cache that grows, as "
                "transformers' DynamicCache() does and StaticCache does not"
            ) from error
        self._remember_orders(call, orders)
        return change(result, lambda _: next(outputs))

    def _orders(self, call: CodesCall) -> tuple[dict[str, Order], Sequence[int]]:
        """What is known for inputs of these shapes, and the tensors that layers may do without."""
        heads, orders = call.heads, self.orders.get(call.key)
        always = heads.deferrable(many=False)
        if torch.compiler.is_compiling() or not call.codes.shape[0]:
            return {}, always
        if orders is None:
            return {}, heads.deferrable(many=True)
        if "codes" not in orders.values():
            return orders, always
        last = {name for name, order in orders.items() if order == "codes"}
        return orders, [i for i in heads.deferrable(many=True) if i in always or heads.tensors[i].name in last]

    def _remember_orders(self, call: CodesCall, orders: dict[str, Order]) -> None:
        """Only what was learnt in a call that ended well."""
        if not torch.compiler.is_compiling() and call.codes.shape[0]:
            _remember(self.orders, call.key, orders)

    def _choose(self, orders: dict[str, Order], name: str, sizes: Sizes) -> Order:
        order = self.choose(sizes)
        if orders.get(name) != "weights":  # for a tensor of several layers, that it must be made for one of them
            orders[name] = order
        return order


def _remember(known: dict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any) -> None:
    if key not in known or known[key] != value:
        while len(known) >= MAX_SHAPES:
            del known[next(iter(known))]
        known[key] = value


def _get_random_states() -> list[Tensor]:
    """The states of torch's random number generators: the CPU's, then those of CUDA's devices if any are in use."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _set_random_states(states: Sequence[Tensor]) -> None:
    """Restore the states of torch's random number generators, if any were kept."""
    if states:
        cpu, *cuda = states
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(cuda)


def _alone(call: CodesCall) -> Any:
    """Run the mainnet as it is, with its one code."""
    inputs = call.inputs
    given = [x.squeeze(0) if inputs.kind == "group" and x.ndim else x for x in inputs.tensors]
    filled = inputs.filled(given)
    out = call.skeleton(call.heads.for_layers(call.codes.squeeze(0)), *filled.args, **filled.kwargs)
    return inputs.gathered(filled.with_changes(out), lambda x: x.unsqueeze(0))


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


def _check_norms(modules: Mapping[str, nn.Module]) -> None:
    for path, m in modules.items():
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training or not m.track_running_stats):
            raise CallError(
                f"'{path}' is a batch norm in training mode, which cannot run with one set of weights per sample: "
                "call net.eval(), or use a group norm"
            )
