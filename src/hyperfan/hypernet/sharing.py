"""How much of a tensor's variance is generated, and what the rest is: the arguments ``share`` and ``base``."""

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from hyperfan.errors import HyperfanError, InitError, nearest
from hyperfan.mainnet.spec import TensorSpec

BaseArgument = Literal["start", "mainnet"] | Mapping[str, Tensor] | None


def check_share(share: float) -> None:
    """Raise if it is no share."""
    if not 0 <= share <= 1:
        raise InitError(f"share={share:g}: it is the part of the variance that is generated, from 0 to 1")


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
