"""How much of a tensor's variance is generated, and what the rest is: the arguments ``share`` and ``base``."""

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from hyperfan.errors import HyperfanError, InitError, nearest
from hyperfan.init.registry import Method
from hyperfan.mainnet.spec import TensorSpec

BaseArgument = Literal["start", "mainnet"] | Mapping[str, Tensor] | None


def read_share(share: float | None, base: BaseArgument, method: Method) -> float:
    """The share that was asked for, by default all; one that could not be kept is an error."""
    if share is None:
        if base is None:
            return 1.0
        raise InitError(
            "base= is a part of every tensor: say with share= how much of the variance should be generated on top of "
            "it, such as share=0.1"
        )
    if not 0 <= share <= 1:
        raise InitError(f"share={share:g}: it is the part of the variance that is generated, from 0 to 1")
    if share < 1 and method.sets_heads:
        raise InitError(
            f"share={share:g}: '{method.name}' sets the heads and no variance of what they make, so that there is "
            "nothing to share: use init='hyperfan-in'"
        )
    return float(share)


def read_base(
    base: BaseArgument, share: float, mainnet: nn.Module, generated: Sequence[TensorSpec]
) -> Mapping[str, Tensor] | None:
    """The values of bases that are given, none if they are drawn, and ``None`` if there are no bases."""
    if base is None or base == "start":
        return None if base is None and share == 1 else {}
    parameters = dict(mainnet.named_parameters())
    if base == "mainnet":
        return {t.name: parameters[t.name] for t in generated if t.start is None}
    if not isinstance(base, Mapping):
        raise HyperfanError(f"base={base!r}: use 'start', 'mainnet', or tensors by name")
    shapes = {t.name: tuple(t.shape) for t in generated}
    for name, value in base.items():
        if name not in shapes:
            raise HyperfanError(f"base= has '{name}', which is not generated: {nearest(name, shapes)}")
        if tuple(value.shape) != shapes[name]:
            raise HyperfanError(f"base= has '{name}' of shape {tuple(value.shape)}; it should be {shapes[name]}")
    return base
