"""What the hypernet keeps of the mainnet: the parameters that are not generated, and the buffers.

They live in a tree of empty modules that mirrors the mainnet's paths, so that their state_dict keys are
``mainnet.<name in the mainnet>``. Functions, not methods: a method's name could be that of a module in the mainnet.
"""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from hyperfan.mainnet.skeleton import home


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


def fill_missing_buffers(root: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Copies of these buffers in place of those in the tree that have no values."""
    for name, buffer in buffers.items():
        if root.get_buffer(name).is_meta:
            path, _, local = name.rpartition(".")
            root.get_submodule(path)._buffers[local] = buffer.detach().clone()


class Kept:
    """:func:`kept` for every call of the net: where each tensor lives is looked up once."""

    def __init__(self, root: nn.Module) -> None:
        self._homes = [(name, *home(root, name)) for name in kept(root)]

    def __call__(self) -> dict[str, Tensor]:
        """Everything in the tree as it is now, by the mainnet's names."""
        return {name: getattr(owner, store)[local] for name, owner, store, local in self._homes}


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
