"""Whether torch.func is at work."""

import torch


def transformed() -> bool:
    """Inside vmap, grad or another transform of torch.func, where autograd functions and writing have other rules."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def differentiated() -> bool:
    """Inside grad, jvp or another transform of torch.func that is not vmap."""
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() != torch._C._functorch.TransformType.Vmap for level in stack)
