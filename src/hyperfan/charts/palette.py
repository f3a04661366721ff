"""Colours and dashes. A colour means the same init in every figure; black dashes mean the classical net alone."""

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
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
"""The look of what stands beside an init: torch's own start, other libraries, classes that are not known."""
THEORY = Look(14)
"""The look of what a theory predicts, and of plain nets at the scale wanted: a wide grey line."""
LINEAR = "nn.Linear"
"""The start of a hypernet whose layers are drawn as torch draws them."""
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
    "auddy2024-kaiming": Look(15, 6),
    "auddy2024-uniform": Look(10, 5),
    "auddy2024-normal": Look(13, 4),
    LINEAR: NEUTRAL,
}
"""The look of each init; a colour is shared by an init's two fidelities alone."""
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
}
"""Names of inits in figures, where these are not their own."""
RESERVED = (12, 19, 18, 16, 17, 20)
"""Colours that no init has, for everything else: rates, layers, sizes, other people's starts."""
_DASHES = (0, 2, 3, 4, 5, 6, 7)
NO_INITS: Mapping[str, str] = MappingProxyType({})


def init_label(name: str) -> str:
    """The name of an init in figures; of anything else, its own."""
    return LABELS.get(name, name)


def looks(labels: Sequence[str], inits: Mapping[str, str] = NO_INITS) -> list[Look]:
    """A look for each label: its init's if it has one, else a reserved colour; two of one colour differ in dashes.

    Args:
        labels: names in a figure.
        inits: label → init; one that is not there belongs to the init that it names, if it does.

    >>> [look.classes for look in looks(["classical", "at 0.1", "hyperfan-in", "other"], {"at 0.1": "xavier-fan-in"})]
    ['s0 d1', 's3 d2', 's1 d0', 's12 d3']
    """
    known = [inits.get(label, label) for label in labels]
    free = itertools.cycle(RESERVED)
    found: dict[int, Look] = {}
    for i in sorted(range(len(labels)), key=lambda i: known[i] not in INITS):  # those of an init first
        found[i] = _distinct(INITS.get(known[i]) or Look(next(free)), found.values())
    return [found[i] for i in range(len(labels))]


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
