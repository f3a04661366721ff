"""Whether torch.func is at work, and methods that torch.compile leaves alone."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch._compile import _disable_dynamo

P = ParamSpec("P")
R = TypeVar("R")


def transformed() -> bool:
    """Inside vmap, grad or another transform of torch.func, where autograd functions and writing have other rules."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def differentiated() -> bool:
    """Inside grad, jvp or another transform of torch.func that is not vmap."""
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() != torch._C._functorch.TransformType.Vmap for level in stack)


def outside_graphs(method: Callable[P, R]) -> Callable[P, R]:
    """Break a graph that is being compiled at each call: the method looks at values, and gradients pass by it."""
    # As torch.compiler.disable does, which would import torch's compiler here, and take a second for it.
    breaking: Callable[P, R] = _disable_dynamo(method)

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return (breaking if torch.compiler.is_compiling() else method)(*args, **kwargs)

    return run
