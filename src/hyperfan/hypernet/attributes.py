"""What a net has of its mainnet: attributes, and, for a time, the mainnet itself with generated weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from hyperfan.errors import CallError

if TYPE_CHECKING:
    from hyperfan.hypernet.generated_net import GeneratedNet


def of_mainnet(net: "GeneratedNet", name: str) -> Any:
    """An attribute that the net itself does not have: the mainnet's, unless its name begins with an underscore."""
    if name in dir(type(net)):  # a property that raised: again, so that its own error is seen
        return object.__getattribute__(net, name)
    mainnet = net._modules.get("mainnet")
    if mainnet is None or name.startswith("_"):
        raise AttributeError(f"'{type(net).__name__}' object has no attribute '{name}'")
    if name in dir(type(mainnet)):
        return object.__getattribute__(mainnet, name)
    try:
        return getattr(mainnet, name)
    except AttributeError as error:
        raise AttributeError(
            f"'{type(net).__name__}' object has no attribute '{name}', nor has its mainnet, a {type(mainnet).__name__}"
        ) from error


@contextmanager
def bound(net: "GeneratedNet", tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The mainnet with these tensors in place, which are no part of the net's state."""
    check_one_net(net, tensors, "bound()")
    net.skeleton.check(tensors)
    module: Any = net  # torch leaves the method without types
    handle = module.register_state_dict_post_hook(_without_generated)
    try:
        with net.skeleton.running(tensors):
            yield net.mainnet
    finally:
        handle.remove()


def check_one_net(net: "GeneratedNet", tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise if tensors have a batch dimension, where something needs one set of them."""
    first = net.heads.tensors[0]
    if tensors[first.name].ndim > len(first.shape):
        raise CallError(f"{what} makes one net: pass one task or one embedding, not one per sample")


def check_generate(net: "GeneratedNet", args: tuple[Any, ...], others: Mapping[str, Any]) -> None:
    """Raise if ``generate`` was called with arguments of the mainnet's method of that name."""
    if args or others:
        seen = "inputs" if args else f"{next(iter(others))}="
        embedding = net.embeddings.config
        condition = "embedding=…" if embedding.given else "" if embedding.tasks is None else "task=…"
        raise CallError(
            f"net.generate() makes weights and takes no {seen}; to call the mainnet's own generate: "
            f"with net.bound({condition}) as model: model.generate(…)"
        )


def _without_generated(net: "GeneratedNet", state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    places = [name for t in net.heads.tensors for name in (t.name, *t.aliases)]
    for name in places:
        state.pop(f"{prefix}mainnet.{name}", None)
