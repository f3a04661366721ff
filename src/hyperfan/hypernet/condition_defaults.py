"""The defaults of a net under conditions, by what ``results/conditions`` shows."""

from collections.abc import Mapping

from hyperfan.codes.embedding import Embedding
from hyperfan.generators.config import GeneratorConfig
from hyperfan.mainnet.select import Generate

GIVEN_SHARE, TASKS_SHARE = 0.01, 0.5
"""Shares of the variance that are generated, with conditions given at the call and with tasks.

The less is generated, the more conditions learn from each other, and the better are those never seen. So it is with
tasks, but where they come one after another, what can help another also overwrites it.
"""
GIVEN_CODE_SQUARE = 1.0
"""‖h‖² of the codes that a trunk by widths makes of given conditions.

A step of SGD moves what is generated ‖h‖² times as far as the base, so that both then learn at one rate.
"""


def conditional_share(embedding: int | Embedding) -> float | None:
    """The share that suits a condition; ``None`` where there is none."""
    if not isinstance(embedding, Embedding) or not (embedding.given or embedding.tasks is not None):
        return None
    return GIVEN_SHARE if embedding.given else TASKS_SHARE


def what_to_generate(asked: Generate | None, embedding: int | Embedding, heads: object, base: object) -> Generate:
    """What a user asked for; else weights, and biases too where one condition is given for the net.

    Biases should depend on it too, but not on a base of the mainnet's values, where they may be trained, and stay.
    """
    if asked is not None:
        return asked
    given = isinstance(embedding, Embedding) and embedding.given and embedding.per == "net"
    return "weights+biases" if given and not keeps_values(heads, base) else "weights"


def keeps_values(heads: object, base: object) -> bool:
    """Whether values that were there before stay, as a base or under an update."""
    return updates_mainnet(heads) or base == "mainnet" or isinstance(base, Mapping)


def updates_mainnet(heads: object) -> bool:
    """Whether heads make an update of the mainnet's values, as LoRA does."""
    return isinstance(heads, GeneratorConfig) and heads.updates_mainnet
