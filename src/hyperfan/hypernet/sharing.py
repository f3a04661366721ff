"""How much of a tensor's variance is generated, and what the rest is: ``share``, ``base`` and ``base_op``."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from torch import Tensor, nn

from hyperfan.codes.embedding import Embedding
from hyperfan.errors import HyperfanError, InitError, nearest
from hyperfan.generators.base import Generator
from hyperfan.init.registry import Fidelity, Method
from hyperfan.mainnet.spec import TensorSpec

BaseArgument = Literal["start", "mainnet"] | Mapping[str, Tensor] | None
BaseOperation = Literal["add", "multiply"]


GIVEN_SHARE, TASKS_SHARE = 0.01, 0.5
"""Default shares under a condition, given at the call or a task, by what ``results/conditions`` shows.

The less is generated, the more conditions learn from each other, and the better are those never seen. So it is with
tasks, but where they come one after another, what can help another also overwrites it.
"""


class Bases(NamedTuple):
    """Values of bases that are given; others are drawn. They are added, or multiplied."""

    values: Mapping[str, Tensor]
    multiply: bool = False


def conditional_share(embedding: int | Embedding) -> float | None:
    """The share that suits a condition; ``None`` where there is none."""
    if not isinstance(embedding, Embedding) or not (embedding.given or embedding.tasks is not None):
        return None
    return GIVEN_SHARE if embedding.given else TASKS_SHARE


def read_share(
    share: float | None,
    base: BaseArgument,
    base_op: BaseOperation,
    method: Method,
    updates: bool,
    embedding: int | Embedding,
) -> float:
    """The share that was asked for; by default all, on a base what suits a condition, and of updates none.

    One that could not be kept is an error.
    """
    if base_op not in get_args(BaseOperation):
        raise HyperfanError(f"base_op={base_op!r}: use 'add' or 'multiply'")
    if updates:
        if share is not None or base_op != "add":
            seen = "base_op='multiply'" if share is None else f"share={share:g}"
            raise InitError(
                f"{seen} does not go with LoRA, which starts as its base and adds to it: leave it out; LoRA(share=…) "
                "says how much of A is generated"
            )
        return 0.0
    if share is None:
        if base is None and base_op == "add":
            return 1.0
        usual = conditional_share(embedding)
        if usual is not None and not method.sets_heads:
            return usual
        named = "base=" if base is not None else "base_op="
        raise InitError(
            f"{named} speaks of a base, a part of every tensor: say with share= how much of the variance should be "
            "generated on top of it, such as share=0.1"
        )
    if not 0 <= share <= 1:
        raise InitError(f"share={share:g}: it is the part of the variance that is generated, from 0 to 1")
    if share == 1 and base_op == "multiply":
        raise InitError(
            "share=1 with base_op='multiply': Var(W) = Var(W⁰)·(1 + Var(M)), so that a part is always the base's: give "
            "a share below 1, such as 0.1"
        )
    if share < 1 and method.sets_heads:
        raise InitError(_no_share(share, method))
    return float(share)


def _no_share(share: float, method: Method) -> str:
    return (
        f"share={share:g}: '{method.name}' sets the heads and no variance of what they make, so that there is nothing "
        "to share: use init='hyperfan-in'"
    )


def restarted_share(
    asked: float | None,
    now: float,
    embedding: Embedding,
    generator: Generator,
    method: Method,
    fidelity: Fidelity,
) -> float:
    """The share of a net that starts anew by another method, as a new net would have it from what was asked for."""
    if generator.config.updates_mainnet:
        return now
    if method.sets_heads and not method.has_bases:
        if generator.base is not None:
            raise InitError(_no_share(now, method))
        return 1.0
    return default_share(1.0, embedding, generator, method, fidelity) if asked is None else asked


def default_share(
    share: float, embedding: Embedding, generator: Generator, method: Method, fidelity: Fidelity
) -> float:
    """The share of a net that was not told one: under a condition less than all, where that costs no parameter.

    It costs none where the bias of a tensor's own head can hold the base. That of chunks, products and shared heads is
    as large as the mainnet, so that they have one only if asked. Methods that set heads have no share, and the paper's
    fidelity has all of it generated.
    """
    usual = conditional_share(embedding)
    free = generator.base_in_bias and generator.base is None
    if share < 1 or usual is None or not free or method.sets_heads or fidelity == "paper":
        return share
    return usual


def read_base(
    base: BaseArgument,
    base_op: BaseOperation,
    share: float,
    mainnet: nn.Module,
    generated: Sequence[TensorSpec],
    updates: bool,
    method: Method,
) -> Bases | None:
    """The values of bases that are given, none if they are drawn, and ``None`` if there are no bases."""
    parameters, multiply = dict(mainnet.named_parameters()), base_op == "multiply"
    if updates and (base is None or base == "mainnet"):
        return Bases({t.name: parameters[t.name].detach() for t in generated})
    if base is None or base == "start":
        return None if base is None and share == 1 and not method.has_bases else Bases({}, multiply)
    if base == "mainnet":
        return Bases({t.name: parameters[t.name] for t in generated if t.start is None}, multiply)
    if not isinstance(base, Mapping):
        raise HyperfanError(f"base={base!r}: use 'start', 'mainnet', or tensors by name")
    shapes = {t.name: tuple(t.shape) for t in generated}
    for name, value in base.items():
        if name not in shapes:
            raise HyperfanError(f"base= has '{name}', which is not generated: {nearest(name, shapes)}")
        if tuple(value.shape) != shapes[name]:
            raise HyperfanError(f"base= has '{name}' of shape {tuple(value.shape)}; it should be {shapes[name]}")
    return Bases(base, multiply)
