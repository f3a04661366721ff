"""What the hypernet keeps of the mainnet: the parameters that are not generated, and the buffers.

They live in a tree of empty modules that mirrors the mainnet's paths, so that their state_dict keys are
``mainnet.<name in the mainnet>``. Functions, not a class: a method's name could be that of a module in the mainnet.
"""

from collections.abc import Iterable

from torch import Tensor, nn


def keep(mainnet: nn.Module, names: Iterable[str]) -> nn.Module:
    """A tree with copies of these parameters and of all buffers."""
    root = nn.Module()
    parameters = dict(mainnet.named_parameters())
    for name in names:
        p = parameters[name]
        _add(root, name, nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad), True)
    unsaved = _non_persistent(mainnet)
    for name, buffer in mainnet.named_buffers():
        _add(root, name, buffer.detach().clone(), name not in unsaved)
    return root


def kept(root: nn.Module) -> dict[str, Tensor]:
    """Everything in the tree, by the mainnet's names."""
    return {**dict(root.named_parameters()), **dict(root.named_buffers())}


def _add(root: nn.Module, name: str, tensor: Tensor, persistent: bool) -> None:
    *path, local = name.split(".")
    node = root
    for part in path:
        if part not in node._modules:
            node.add_module(part, nn.Module())
        node = node.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        node.register_parameter(local, tensor)
    else:
        node.register_buffer(local, tensor, persistent=persistent)


def _non_persistent(module: nn.Module) -> set[str]:
    return {
        f"{path}.{local}" if path else local
        for path, owner in module.named_modules()
        for local in owner._non_persistent_buffers_set
    }
