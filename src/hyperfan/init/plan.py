"""The plan: which parameter is drawn with which variance, and why. Made before anything is written."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperfan.charts.html import notebook_table
from hyperfan.codes.draw import Distribution
from hyperfan.errors import InitError
from hyperfan.formulas.targets import SINE_PHASES, sine_phases
from hyperfan.generators.aims import Solution
from hyperfan.init.registry import Fidelity, Method, Reading, reading
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.text import number, table

MadeBy = Literal["head", "inputs", "trunk", "plain", "kept"]


@dataclass(frozen=True)
class Row:
    """One tensor's line in the plan.

    Args:
        tensor: its name in the mainnet, or in the trunk.
        made_by: a head; or the parameter itself: of input layers, of the trunk, or one that is not generated ("plain",
            "kept" if it is not written either).
        head: the head's name.
        fan_in, fan_out, gain: as the method read them.
        target: variance the generated tensor should have; ``None`` for methods that set the head directly.
        moment: ‖h‖² of its code.
        variance: of the head's weight, or of the parameter itself; 0 writes a constant, ``None`` is not known yet.
        mean: what the head's bias starts at, or the parameter itself.
        scale: factor c on the code, or on what is made of it, so that a shared head meets the target of each tensor.
        base: variance of what is common to all codes, part of the target.
        equation: where the numbers come from.
    """

    tensor: str
    role: str
    made_by: MadeBy
    equation: str
    head: str = ""
    fan_in: float | None = None
    fan_out: float | None = None
    gain: float | None = None
    target: float | None = None
    moment: float | None = None
    variance: float | None = 0.0
    mean: float = 0.0
    scale: float = 1.0
    base: float = 0.0


@dataclass(frozen=True)
class Plan:
    """An init, worked out for one net: prints as a table, compares, and goes to JSON."""

    method: str
    paper: str
    fidelity: Fidelity
    distribution: Distribution
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def title(self) -> str:
        """The method, its paper and its settings, in a line."""
        return f"{self.method}, {self.paper}; fidelity {self.fidelity}, {self.distribution}"

    def __str__(self) -> str:
        return f"{self.title}\n{table(*self._table())}"

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return notebook_table(self.title, *self._table())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells, of a base only where there is one."""
        shown = [h for h in HEADER if h != BASE or any(row.base for row in self.rows)]
        return shown, [[cells(row)[HEADER.index(h)] for h in shown] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


BASE = "base variance"
HEADER = f"tensor,role,head,fan-in,fan-out,gain,target variance,‖h‖²,scale,head variance,{BASE},equation".split(",")


def cells(row: Row) -> list[str]:
    """A row of the plan as text, one cell for each of :data:`HEADER`."""
    return [
        row.tensor,
        row.role,
        row.head or row.made_by,
        *(number(x) for x in (row.fan_in, row.fan_out, row.gain, row.target, row.moment)),
        number(row.scale if row.made_by == "head" else None),
        "when written" if row.variance is None and row.made_by == "head" else number(row.variance),
        number(row.base or None),
        row.equation,
    ]


def generated_row(
    tensor: TensorSpec, read: Reading, solution: Solution, moment: float | None, *, base_given: bool = False
) -> Row:
    """The row of a generated tensor, from how the method read it and how the generator reaches what it asks."""
    aim, known = solution.aim, not math.isnan(read.fan_in)
    return Row(
        tensor.name,
        tensor.role,
        "head",
        aim.equation + solution.note + ("; on the base given" if base_given else ""),
        solution.head,
        fan_in=read.fan_in if known else None,
        fan_out=read.fan_out if known else None,
        gain=aim.gain,
        target=aim.target,
        moment=moment,
        variance=solution.variance,
        mean=aim.mean,
        scale=solution.scale,
        base=0.0 if base_given else aim.common,
    )


def kept_row(tensor: TensorSpec, why: str, prefix: str = "") -> Row:
    """The row of a parameter that is neither generated nor written."""
    return Row(prefix + tensor.name, tensor.role, "kept", why, variance=None)


def written_row(tensor: TensorSpec, method: Method, fidelity: Fidelity, made_by: MadeBy, name: str) -> Row:
    """The row of a parameter that is written itself: constant where its role says so, else like a classical layer."""
    sine = tensor.followed_by is not None and tensor.followed_by.frequency != 1
    if tensor.role == "bias" and fidelity == "exact" and sine and tensor.fans is not None:
        return Row(name, tensor.role, made_by, SINE_PHASES, variance=sine_phases(tensor.fans.fan_in))
    if tensor.role == "bias" or tensor.start is not None:
        mean = tensor.start or 0.0
        return Row(name, tensor.role, made_by, f"= {mean:g}", mean=mean)
    unknown = tensor.consumes is None or tensor.consumes.curve is None
    if made_by == "trunk" and fidelity == "exact" and method.needs_nonlinearity and unknown:
        seen = tensor.consumes.name if tensor.consumes else "nothing that was seen to run"
        raise InitError(
            f"in the trunk, the layer '{tensor.layer}' has no known gain, because it reads {seen}: build the trunk of "
            "elementwise activations, or use a method that needs no gain, such as init='m2'"
        )
    read = reading(tensor, fidelity, gains=method.needs_nonlinearity)
    variance = method.trunk_variance(read) * read.branch
    return Row(name, tensor.role, made_by, "classical", "", read.fan_in, read.fan_out, variance=variance)
