"""What a step of data-parallel training costs: bytes on the wire, memory of a process, and seconds.

A hypernet of P parameters generates G values for each condition, from m codes of d_k values. Of b conditions in each of
R processes, the gradient of its heads is

    dense:     P values, all-reduced: each process sends and receives 2·(R − 1)/R·P;
    summed:    where all processes have the same codes, b·G rows, all-reduced: 2·(R − 1)/R·b·G;
    gathered:  where codes differ, each process's go to every other one: (R − 1)·b·(G + m·d_k).

The smallest that is possible is taken. Gathered rows grow with the number of processes, dense gradients do not: beyond
R·b ≈ 2·P/(G + m·d_k) processes they are the smaller.
"""

from typing import Literal, NamedTuple

Exchange = Literal["dense", "summed", "gathered"]
BYTES_PER_VALUE = 4
"""Bytes of a parameter, a moment or a gradient of the hypernet."""
LAYERS_GATHERED_IN_TURN = 32
"""How many layers of equal size a sharded net gathers, one at a time."""


class HypernetSize(NamedTuple):
    """How large a hypernet is, and what one process does with it in a step.

    Args:
        parameters: P.
        generated: G, values for each condition.
        codes: m, of one condition.
        code_size: d_k.
        conditions: b, in one process.
    """

    parameters: float
    generated: float
    codes: float
    code_size: float
    conditions: float = 1


class BaseSize(NamedTuple):
    """A frozen model whose weights the hypernet changes.

    Args:
        parameters: N.
        tokens: that one process runs in a step.
        value: bytes of a parameter.
    """

    parameters: float
    tokens: float
    value: float = 2


class Machine(NamedTuple):
    """What one process can do.

    Args:
        arithmetic: operations per second.
        memory: bytes per second that it reads and writes.
        link: bytes per second that it sends, and receives at the same time.
        latency: seconds of a collective of no bytes.
    """

    arithmetic: float
    memory: float
    link: float
    latency: float


def wire_bytes(net: HypernetSize, ranks: int, how: Exchange) -> float:
    """Bytes that each process receives in a step for the gradients of the heads."""
    both_ways = 2 * (ranks - 1) / ranks
    return (
        BYTES_PER_VALUE
        * {
            "dense": both_ways * net.parameters,
            "summed": both_ways * net.conditions * net.generated,
            "gathered": (ranks - 1) * net.conditions * (net.generated + net.codes * net.code_size),
        }[how]
    )


def smallest_exchange(net: HypernetSize, ranks: int, same_codes: bool) -> Exchange:
    """The exchange of fewest bytes that is possible."""
    possible: tuple[Exchange, ...] = ("dense", "summed") if same_codes else ("dense", "gathered")
    return min(possible, key=lambda how: wire_bytes(net, ranks, how))


def memory_bytes(net: HypernetSize, base: BaseSize, ranks: int, how: Exchange, sharded: bool) -> float:
    """Bytes that one process holds: the base, the hypernet with two moments, and the gradient of its heads.

    Activations are left out. Sharded, each process has a part of all that, and the largest part that is gathered at a
    time, taken as one layer of :data:`LAYERS_GATHERED_IN_TURN`. Its part of gathered rows is its columns of them, as
    many values as its own rows have; but it has the codes of all processes.
    """
    whole = base.parameters * base.value + 3 * BYTES_PER_VALUE * net.parameters
    dense = BYTES_PER_VALUE * net.parameters
    rows = BYTES_PER_VALUE * net.conditions * net.generated
    codes = BYTES_PER_VALUE * net.conditions * net.codes * net.code_size
    if not sharded:
        return whole + {"dense": dense, "summed": rows, "gathered": ranks * (rows + codes)}[how]
    gradient = {"dense": dense / ranks, "summed": rows, "gathered": rows + ranks * codes}[how]
    return whole / ranks + whole / LAYERS_GATHERED_IN_TURN + gradient


def step_seconds(net: HypernetSize, base: BaseSize, ranks: int, how: Exchange, machine: Machine) -> float:
    """Seconds of a step: the base forward and backward, the hypernet and its optimiser, and the exchange after them.

    The base is frozen: 2 operations for each parameter and token forward, and 2 backward, for the gradient of what goes
    through it. The hypernet's heads are run and differentiated for each condition, and its optimiser reads and writes
    parameters and moments once. Nothing overlaps.
    """
    operations = 4 * base.parameters * base.tokens + 6 * net.parameters * net.conditions * net.codes
    stepping = 2 * 3 * BYTES_PER_VALUE * net.parameters / machine.memory
    sharing = 0.0 if ranks == 1 else machine.latency + wire_bytes(net, ranks, how) / machine.link
    return operations / machine.arithmetic + stepping + sharing
