"""How much of a tensor's variance is generated, and what the rest is: ``share``, ``base`` and ``base_op``."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from torch import Tensor, nn

from hyperfan.codes.embedding import Embedding
from hyperfan.errors import HyperfanError, InitError, nearest
from hyperfan.generators.config import GeneratorConfig
from hyperfan.generators.generator import Generator
from hyperfan.hypernet.condition_defaults import conditional_share
from hyperfan.init.registry import Fidelity, Method
from hyperfan.mainnet.spec import TensorSpec

BaseArgument = Literal["start", "mainnet"] | Mapping[str, Tensor] | None
BaseOperation = Literal["add", "multiply"]


class Bases(NamedTuple):
    """Values of bases that are given; others are drawn. They are added, or multiplied."""

    values: Mapping[str, Tensor]
    multiply: bool = False


def keeps_values(heads: GeneratorConfig, base: BaseArgument) -> bool:
    """Whether values that were there before stay, as a base or under an update."""
    return heads.updates_base or base == "mainnet" or isinstance(base, Mapping)


def frozen_names(mainnet: nn.Module) -> set[str]:
    """Names of the frozen parameters that have values."""
    return {name for name, p in mainnet.named_parameters() if not p.requires_grad and not p.is_meta}


def read_base_arguments(
    share: float | None,
    base: BaseArgument,
    base_op: BaseOperation,
    mainnet: nn.Module,
    generated: Sequence[TensorSpec],
    embedding: Embedding,
    heads: GeneratorConfig,
    method: Method,
) -> tuple[float | None, Bases | None]:
    """The share that is requested, ``None`` if any will do (:func:`share_of`), and the bases, ``None`` if none are.

    Arguments as of :class:`HyperNet`; those that contradict each other are an error.
    """
    if base_op not in get_args(BaseOperation):
        raise HyperfanError(f"base_op={base_op!r}: use 'add' or 'multiply'")
    if (reason := heads.why_base_unfit(share, base_op, generated)) is not None:
        raise InitError(reason)
    if heads.updates_base:
        base = "mainnet" if base is None else base
        return 0.0, _read_base(base or "start", base_op, mainnet, generated, heads)
    if share is None and (base is not None or base_op != "add"):
        share = conditional_share(embedding)
        if share is None or method.sets_heads:
            named = "base=" if base is not None else "base_op="
            raise InitError(
                f"{named} speaks of a base, a part of every tensor: say with share= how much of the variance should be "
                "generated on top of it, such as share=0.1"
            )
    if share is not None:
        _check_share(share, base_op, method)
    if base is None and share in (None, 1) and not method.has_bases:
        return share, None
    return share, _read_base(base or "start", base_op, mainnet, generated, heads)


def share_of(
    requested: float | None, embedding: Embedding, generator: Generator, method: Method, fidelity: Fidelity
) -> float:
    """The share that a net starts with: as requested, else all, but less under a condition, where that is free.

    It is free where the bias of a tensor's head can hold the base. The base of chunks, products and shared heads is as
    large as the mainnet, so that they have one only if requested. Methods that set heads have no share, and the paper's
    fidelity has all of it generated.
    """
    if requested is not None:
        return requested
    usual = conditional_share(embedding)
    is_free = generator.bias_holds_base and not method.sets_heads and fidelity != "paper"
    return usual if usual is not None and is_free else 1.0


def restarted_share(
    requested: float | None,
    now: float,
    embedding: Embedding,
    generator: Generator,
    method: Method,
    fidelity: Fidelity,
) -> float:
    """The share of a net that starts anew by another method, as a new net would have it."""
    if method.sets_heads and not method.has_bases and not generator.config.updates_base:
        if generator.base is not None:
            raise InitError(_no_share(now, method))
        return 1.0
    return share_of(requested, embedding, generator, method, fidelity)


def _check_share(share: float, base_op: BaseOperation, method: Method) -> None:
    if not isinstance(share, numbers.Real) or not 0 <= share <= 1:
        raise InitError(f"share={share!r}: it is the part of the variance that is generated, from 0 to 1")
    if share == 1 and base_op == "multiply":
        raise InitError(
            "share=1 with base_op='multiply': Var(W) = Var(W⁰)·(1 + Var(M)), so that a part is always the base's: give "
            "a share below 1, such as 0.1"
        )
    if share < 1 and method.sets_heads:
        raise InitError(_no_share(share, method))


def _no_share(share: float, method: Method) -> str:
    return (
        f"share={share:g}: '{method.name}' sets the heads and no variance of what they make, so that there is nothing "
        "to share: use init='hyperfan-in'"
    )


def _read_base(
    base: Literal["start", "mainnet"] | Mapping[str, Tensor],
    base_op: BaseOperation,
    mainnet: nn.Module,
    generated: Sequence[TensorSpec],
    heads: GeneratorConfig,
) -> Bases:
    multiply = base_op == "multiply"
    if base == "start":
        return Bases({}, multiply)
    if base == "mainnet":
        return Bases(heads.mainnet_bases(mainnet, generated), multiply)
    if not isinstance(base, Mapping):
        raise HyperfanError(f"base={base!r}: use 'start', 'mainnet', or tensors by name")
    shapes = {t.name: tuple(t.shape) for t in generated}
    for name, value in base.items():
        if name not in shapes:
            raise HyperfanError(f"base= has '{name}', which is not generated: {nearest(name, shapes)}")
        if not isinstance(value, Tensor):
            raise HyperfanError(f"base= has a {type(value).__name__} for '{name}'; it should be a tensor")
        if tuple(value.shape) != shapes[name]:
            raise HyperfanError(f"base= has '{name}' of shape {tuple(value.shape)}; it should be {shapes[name]}")
    return Bases(base, multiply)
