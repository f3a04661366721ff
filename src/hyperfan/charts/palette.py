"""Colours and dashes. A colour means the same init in every figure; black dashes mean the classical net."""

import functools
import itertools
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import NamedTuple


class Look(NamedTuple):
    """The numbers of a colour and of a dash in ``chart.css``."""

    colour: int
    dash: int = 0

    @property
    def classes(self) -> str:
        """The classes of an element that looks like this."""
        return f"s{self.colour} d{self.dash}"


CLASSICAL = Look(0, 1)
FIRST = Look(12)
"""The look of a chart of one thing that is no init."""
NEUTRAL = Look(11)
INITS = {
    "classical": CLASSICAL,
    "hyperfan-in": Look(1, 0),
    "hyperfan-in@exact": Look(1, 4),
    "hyperfan-out": Look(2, 3),
    "hyperfan-out@exact": Look(2, 6),
    "xavier-fan-in": Look(3, 2),
    "xavier-fan-out": Look(4, 5),
    "kaiming-fan-in": Look(5, 2),
    "kaiming-fan-out": Look(6, 5),
    "m2": Look(7, 2),
    "m3": Look(8, 3),
    "m4": Look(9, 5),
    "auddy2024-kaiming": Look(5, 6),
    "auddy2024-uniform": Look(10, 5),
    "auddy2024-normal": Look(12, 4),
}
"""The look of each init; any other gets a colour and a dash that its figure does not use yet."""
LABELS = {
    "classical": "classical net",
    "hyperfan-in@exact": "hyperfan-in, exact",
    "hyperfan-out@exact": "hyperfan-out, exact",
    "xavier-fan-in": "Xavier fan-in",
    "xavier-fan-out": "Xavier fan-out",
    "kaiming-fan-in": "Kaiming fan-in",
    "kaiming-fan-out": "Kaiming fan-out",
    "m2": "M2: small random",
    "m3": "M3: Kaiming, head/10",
    "m4": "M4: Kaiming, constant embedding",
    "auddy2024-kaiming": "Kaiming, a = √5",
    "auddy2024-uniform": "theirs, uniform",
    "auddy2024-normal": "theirs, normal",
}
"""Names of inits in figures, where these are not their own."""
_COLOURS = (12, 10, 11, 7, 4, 9, 6, 2, 3, 8, 5, 1)
"""For names without an init: first those that no init has."""
_DASHES = (0, 2, 3, 4, 5, 6, 7)


def init_label(name: str) -> str:
    """The name of an init in figures; of anything else, its own."""
    return LABELS.get(name, name)


def looks(names: Sequence[str]) -> list[Look]:
    """A look for each name: its init's where it starts with one; different dashes where two have the same colour.

    >>> [look.classes for look in looks(["classical net", "Xavier fan-in, 0.1", "hyperfan-in", "hyperfan-in", "other"])]
    ['s0 d1', 's3 d2', 's1 d0', 's1 d3', 's12 d4']
    """
    inits = [init_of(name) for name in names]
    used = {INITS[init].colour for init in inits if init}
    free = itertools.cycle([c for c in _COLOURS if c not in used] or _COLOURS)
    found: dict[int, Look] = {}
    for i in sorted(range(len(names)), key=lambda i: not inits[i]):  # those of an init first
        found[i] = _distinct(INITS[init] if (init := inits[i]) else Look(next(free)), found.values())
    return [found[i] for i in range(len(names))]


def init_of(name: str) -> str | None:
    """The init that a name or label starts with, if it does with one.

    >>> init_of("Kaiming fan-in, 0.01"), init_of("hyperfan-in, exact at 0.1"), init_of("m4"), init_of("measured")
    ('kaiming-fan-in', 'hyperfan-in@exact', 'm4', None)
    """
    starts = {written.casefold(): init for init in INITS for written in (init, init_label(init))}
    fitting = [start for start in starts if name.casefold().startswith(start)]
    return starts[max(fitting, key=len)] if fitting else None


@functools.cache
def style() -> str:
    """The style sheet of all charts."""
    return (files("hyperfan.charts") / "chart.css").read_text(encoding="utf-8")


def _distinct(wanted: Look, others: Collection[Look]) -> Look:
    """The wanted look, with another dash if one of the others has it."""
    options = [wanted, *(Look(wanted.colour, dash) for dash in _DASHES)]
    dashes = {other.dash for other in others}
    unused = [o for o in options if o.dash not in dashes] or [o for o in options if o not in others]
    return unused[0] if unused else wanted
