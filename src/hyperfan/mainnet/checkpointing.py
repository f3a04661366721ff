"""``torch.utils.checkpoint`` inside a mainnet: a layer that runs again in backward has the tensors of its call.

A checkpoint keeps the inputs of a function instead of what it computes, and calls the function again in the backward
pass, when the mainnet's places are empty or hold the tensors of a later call. So, while a mainnet runs, the functions
under its checkpoints are wrapped: they put the tensors of their call in place for as long as they run. A reentrant
checkpoint gets these tensors among its inputs, since it returns gradients of nothing else.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils import checkpoint

from hyperfan.errors import CallError

Bind = Callable[[Mapping[str, Tensor]], AbstractContextManager[Any]]
"""From tensors by name to the context in which the mainnet runs with them."""


class Composite(Tensor):
    """Stands for a tensor that is made of others."""

    @abstractmethod
    def parts(self) -> list[Tensor]:
        """The tensors that get gradients through this one."""

    @abstractmethod
    def of_parts(self, parts: Sequence[Tensor]) -> Self:
        """A tensor of the same kind, made of other parts."""


class MainnetCall:
    """One call of a mainnet.

    Args:
        tensors: with which it runs, by name.
        bind: of the mainnet.
    """

    def __init__(self, tensors: Mapping[str, Tensor], bind: Bind) -> None:
        self.tensors, self._bind = tensors, bind

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that can run after the call as it does in it."""
        rebuild = self.rebuild_tensors()

        def again(*args: Any, **kwargs: Any) -> Any:
            with self._bind(rebuild()):
                return function(*args, **kwargs)

        return again

    def reentrant(self, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """A reentrant checkpoint of a function, with the tensors of the call behind its arguments."""
        parts = {name: t.parts() if isinstance(t, Composite) else [t] for name, t in self.tensors.items()}
        given = [*args, *(part for some in parts.values() for part in some)]

        def again(*inputs: Any) -> Any:
            rest = iter([self.like(new, old) for new, old in zip(inputs, given, strict=True)])
            of_function = [next(rest) for _ in args]
            with torch._C.DisableTorchFunction():  # modes are for what the mainnet computes
                tensors = {
                    name: t.of_parts([next(rest) for _ in parts[name]]) if isinstance(t, Composite) else next(rest)
                    for name, t in self.tensors.items()
                }
            with self._bind(tensors):
                return function(*of_function)

        return _reentrant(again, preserve, *given)

    def rebuild_tensors(self) -> Callable[[], Mapping[str, Tensor]]:
        """A function that returns the tensors as they are now, whatever the mainnet does with them later."""
        return lambda: self.tensors

    def like(self, new: Any, old: Any) -> Any:
        """An input of a function that runs again, to be treated as it was in the call."""
        return new


class _Wrapped:
    """A function of autograd in the place of torch's for reentrant checkpoints."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        call = _current()
        if call is None:
            return _reentrant(function, preserve, *args)
        return call.reentrant(function, preserve, *args)


def _generate(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Generate the steps of a checkpoint that is not reentrant, in the place of torch's generator."""
    call = _current()
    return _generator(function if call is None else call.wrap(function), *args, **kwargs)


Reentrant = checkpoint.CheckpointFunction
_reentrant: Callable[..., Any] = Reentrant.apply  # which torch leaves without types
_generator = checkpoint._checkpoint_without_reentrant_generator
_lock, _calls = threading.Lock(), threading.local()
_running = 0


def _current() -> MainnetCall | None:
    """The innermost call that runs in this thread."""
    stack: list[MainnetCall] = _calls.__dict__.get("stack", [])
    if stack and torch._C._functorch.peek_interpreter_stack() is not None:
        raise CallError(
            "the mainnet has a checkpoint (torch.utils.checkpoint), which cannot run again outside of torch.func, by "
            "which codes for each sample run if net.per_sample.mixing names a function: checkpoint net's call instead"
        )
    return stack[-1] if stack else None


def _put(function: Any, generator: Any, change: int) -> None:
    global _running
    with _lock:
        _running += change
        if _running == max(change, 0):  # the first that begins, or the last that ends
            module: Any = checkpoint
            module.CheckpointFunction = function
            module._checkpoint_without_reentrant_generator = generator


class Rerunning:
    """Where it is entered, functions under checkpoints can run again with the tensors of a call."""

    def __init__(self, call: MainnetCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        _calls.__dict__.setdefault("stack", []).append(self._call)
        _put(_Wrapped, _generate, 1)

    def __exit__(self, *_error: object) -> None:
        _put(Reentrant, _generator, -1)
        _calls.stack.pop()
