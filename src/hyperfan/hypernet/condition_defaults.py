"""The defaults of a net under conditions, by what ``results/conditions`` shows."""

from hyperfan.codes.embedding import Embedding
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


def conditional_share(embedding: Embedding) -> float | None:
    """The share that suits a condition; ``None`` where there is none."""
    if embedding.given:
        return GIVEN_SHARE
    return None if embedding.tasks is None else TASKS_SHARE


def what_to_generate(embedding: Embedding, keeps_values: bool) -> Generate:
    """The default of ``generate``: weights, and biases too where one condition is given for the net.

    Biases should depend on it too, but not on a base of the mainnet's values, where they may be trained, and stay.
    """
    one_given = embedding.given and embedding.per == "net"
    return "weights+biases" if one_given and not keeps_values else "weights"
