"""Whether torch.func is at work."""

import torch


def transformed() -> bool:
    """Inside vmap, grad or another transform of torch.func, where autograd functions and writing have other rules."""
    return torch._C._functorch.peek_interpreter_stack() is not None
