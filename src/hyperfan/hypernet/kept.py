"""What the hypernet keeps of the mainnet: its layers, the parameters that are not generated, and the buffers.

They are in the skeleton's module, registered as ``net.mainnet``, so that their state_dict keys are
``mainnet.<name in the mainnet>``. Where a tensor is generated, the module has ``None`` but for the time of a call.
Functions, not methods: a method's name could be that of a module in the mainnet.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from hyperfan.mainnet.skeleton import Skeleton

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def keep(skeleton: Skeleton, mainnet: nn.Module, generated: Collection[str]) -> nn.Module:
    """The skeleton's module, with copies of the mainnet's tensors that are not generated."""
    skeleton.keep({name: tensor for name, tensor in kept(mainnet).items() if name not in generated})
    return skeleton.module


def kept(root: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers that there are, by name."""
    return {**dict(root.named_parameters()), **dict(root.named_buffers())}


def fill_missing_buffers(root: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Copies of these buffers in place of those in the mainnet that have no values."""
    for name, buffer in buffers.items():
        if root.get_buffer(name).is_meta:
            path, _, local = name.rpartition(".")
            root.get_submodule(path)._buffers[local] = buffer.detach().clone()


def write_tied_once(net: "HyperNet") -> None:
    """Let a layer that has two paths in the mainnet be in a state_dict once, under its first."""
    if net.skeleton.repeated:
        net.register_state_dict_post_hook(_drop_repeated)  # type: ignore[no-untyped-call]  # torch leaves both without types
        net.register_load_state_dict_pre_hook(_add_repeated)  # type: ignore[no-untyped-call]


def _drop_repeated(net: "HyperNet", state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for path in net.skeleton.repeated:
        state.pop(f"{prefix}mainnet.{path}", None)


def _add_repeated(net: "HyperNet", state: dict[str, Any], prefix: str, *_others: Any) -> None:
    for path, name in net.skeleton.repeated.items():
        if f"{prefix}mainnet.{name}" in state:
            state[f"{prefix}mainnet.{path}"] = state[f"{prefix}mainnet.{name}"]
