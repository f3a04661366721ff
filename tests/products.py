"""Products of cases, and the part of them that a quick run takes: ``pytest --full`` takes all."""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item")
Factors = Callable[[Any], Sequence[Hashable]]


def covering(items: Iterable[Item], factors: Factors, strength: int = 2) -> list[Item]:
    """Some of the items, in which all values of any two factors (or more, by ``strength``) meet that meet in all items.

    Most faults need two settings at once, and few more than three (Kuhn, Wallace & Gallo 2004).

    Args:
        items: the product, or what is possible of it.
        factors: from an item to its settings.
        strength: how many settings must meet in every way.

    >>> covering(itertools.product("ab", "cd", "ef"), tuple)
    [('a', 'c', 'e'), ('a', 'd', 'f'), ('b', 'c', 'f'), ('b', 'd', 'e')]
    """
    left = [(item, set(itertools.combinations(enumerate(factors(item)), strength))) for item in items]
    missing = set().union(*(meetings for _, meetings in left))
    chosen = []
    while missing:
        best = max(range(len(left)), key=lambda i: len(left[i][1] & missing))
        missing -= left[best][1]
        chosen.append(left[best][0])
    return sorted(chosen, key=[item for item, _ in left].index)


def only_in_full(items: Iterable[Item], kept: Collection[Item]) -> list[Any]:
    """All items as parameters of a test; those that are not kept are run with ``--full`` alone."""
    return [pytest.param(*_parts(item), marks=() if item in kept else pytest.mark.full) for item in items]


def covered(items: Sequence[Item], factors: Factors, strength: int = 2) -> list[Any]:
    """All items as parameters of a test, of which a quick run takes those of :func:`covering`."""
    return only_in_full(items, covering(items, factors, strength))


def in_turn(items: Sequence[Item], *others: Sequence[Any]) -> list[Any]:
    """The product as parameters of a test, of which a quick run takes each item once, with the others in turn.

    >>> [p.values for p in in_turn("abc", (0, 1)) if not p.marks]
    [('a', 0), ('b', 1), ('c', 0)]
    """
    kept = [(item, *(other[i % len(other)] for other in others)) for i, item in enumerate(items)]
    return only_in_full(itertools.product(items, *others), kept)


def _parts(item: Any) -> tuple[Any, ...]:
    return item if isinstance(item, tuple) else (item,)
