"""The plain part of a mainnet, which is not generated: its layers, its other parameters, and its buffers.

The hypernet holds it in the skeleton's module, registered as ``net.mainnet``, so that state_dict keys are
``mainnet.<name in the mainnet>``. Where a tensor is generated, the module has ``None`` but for the time of a call.
Functions, not methods: a method's name could be that of a module in the mainnet.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def plain_skeleton(mainnet: nn.Module, generated: Sequence[TensorSpec]) -> Skeleton:
    """The skeleton of a mainnet, with copies of the tensors that are not generated."""
    skeleton, names = Skeleton(mainnet), {t.name for t in generated}
    skeleton.hold({name: tensor for name, tensor in named_tensors(mainnet).items() if name not in names})
    return skeleton


def named_tensors(root: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, by name."""
    return {**dict(root.named_parameters()), **dict(root.named_buffers())}


def fill_missing_buffers(root: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Copies of these buffers in place of those in the mainnet that have no values."""
    for name, buffer in buffers.items():
        if root.get_buffer(name).is_meta:
            path, _, local = name.rpartition(".")
            root.get_submodule(path)._buffers[local] = buffer.detach().clone()


def write_tied_once(net: "HyperNet") -> None:
    """Let a layer that has two paths in the mainnet be in a state_dict once, under its first."""
    module: Any = net  # torch leaves the methods without types
    if net.skeleton.repeated:
        module.register_state_dict_post_hook(_drop_repeated)
        module.register_load_state_dict_pre_hook(_add_repeated)


def load_beside_frozen(net: "HyperNet") -> None:
    """Let frozen parameters stay if a state_dict lacks them, and the mainnet that lends them as it is if not."""
    module: Any = net  # torch leaves the methods without types
    module.register_load_state_dict_pre_hook(_leave_equal)
    module.register_load_state_dict_post_hook(_none_missing)


def _leave_equal(net: "HyperNet", state: dict[str, Any], prefix: str, *_others: Any) -> None:
    for name, p in net.skeleton.lent_parameters().items():
        loaded = state.get(f"{prefix}mainnet.{name}")
        if loaded is not None and loaded.shape == p.shape:
            if torch.equal(loaded.to(p), p):
                del state[f"{prefix}mainnet.{name}"]
            else:
                p.data = p.data.clone()


def _none_missing(net: "HyperNet", keys: Any) -> None:
    lent = tuple(f"mainnet.{name}" for name in net.skeleton.lent_parameters())
    keys.missing_keys[:] = [key for key in keys.missing_keys if not (lent and key.endswith(lent))]


def _drop_repeated(net: "HyperNet", state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for path in net.skeleton.repeated:
        state.pop(f"{prefix}mainnet.{path}", None)


def _add_repeated(net: "HyperNet", state: dict[str, Any], prefix: str, *_others: Any) -> None:
    for path, name in net.skeleton.repeated.items():
        if f"{prefix}mainnet.{name}" in state:
            state[f"{prefix}mainnet.{path}"] = state[f"{prefix}mainnet.{name}"]
