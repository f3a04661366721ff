"""The plan: which parameter is drawn with which variance, and why. Made before anything is written."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperfan.charts.html import notebook_table
from hyperfan.errors import InitError
from hyperfan.formulas.heads import head_variance
from hyperfan.init.asked import Asked, Slot
from hyperfan.init.registry import Aim, Fidelity, Method, Reading, reading
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.text import number, table

Distribution = Literal["uniform", "normal"]
MadeBy = Literal["head", "trunk", "plain", "kept"]


@dataclass(frozen=True)
class Row:
    """One tensor's line in the plan.

    Args:
        tensor: its name in the mainnet, or in the trunk.
        made_by: a head; or the parameter itself, a trunk's or one that is not generated ("plain", "kept" if it is not
            written either).
        head: the head's name.
        fan_in, fan_out, gain: as the method read them.
        target: variance the generated tensor should have; ``None`` for methods that set the head directly.
        moment: ‖h‖² of its code.
        variance: of the head's weight, or of the parameter itself; 0 writes a constant, ``None`` is not known yet.
        mean: what the head's bias starts at, or the parameter itself.
        scale: factor c on the code, or on what is made of it, so that a shared head meets the target of each tensor.
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
        return f"{self.title}\n{table(HEADER, [cells(row) for row in self.rows])}"

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return notebook_table(self.title, HEADER, [cells(row) for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


HEADER = "tensor,role,head,fan-in,fan-out,gain,target variance,‖h‖²,scale,head variance,equation".split(",")


def cells(row: Row) -> list[str]:
    """A row of the plan as text, one cell for each of :data:`HEADER`."""
    return [
        row.tensor,
        row.role,
        row.head or row.made_by,
        *(number(x) for x in (row.fan_in, row.fan_out, row.gain, row.target, row.moment)),
        number(row.scale if row.made_by == "head" else None),
        "when written" if row.variance is None and row.made_by == "head" else number(row.variance),
        row.equation,
    ]


def make_plan(
    slots: Sequence[Slot],
    method: Method,
    fidelity: Fidelity,
    distribution: Distribution,
    trunk: Iterable[TensorSpec] = (),
    plain: Iterable[TensorSpec] = (),
    kept: Iterable[TensorSpec] = (),
) -> Plan:
    """Work out an init: heads, then trunk, then plain parameters, those to be written and those kept as they are."""
    asked = Asked(slots, method, fidelity)
    rows: dict[str, Row] = {}
    for head in dict.fromkeys(slot.head for slot in slots):
        group = [slot for slot in slots if slot.head == head]
        for row in _head_rows(group, asked):
            rows[row.tensor] = row
    ordered = [rows[slot.tensor.name] for slot in slots]
    ordered += [_own_row(t, method, fidelity, "trunk", f"trunk.{t.name}") for t in trunk]
    ordered += [_own_row(t, method, fidelity, "plain", t.name) for t in plain]
    ordered += [Row(t.name, t.role, "kept", "as the mainnet has it", variance=None) for t in kept]
    return Plan(str(method), method.paper, fidelity, distribution, tuple(ordered))


def _head_rows(group: list[Slot], asked: Asked) -> list[Row]:
    """The rows of the tensors that share one head."""
    start = group[0].tensor.start
    if start is not None:  # a norm's parameter: constant at the start, whatever the method
        equation = f"H = 0, β = {start:g}"
        return [Row(s.tensor.name, s.tensor.role, "head", equation, s.head, moment=s.moment, mean=start) for s in group]
    found = [asked.of(s.tensor.name) for s in group]
    variance, scales = _shared(group, [aim for _, aim in found])
    return [
        Row(
            s.tensor.name,
            s.tensor.role,
            "head",
            a.equation + _reached(a, variance),
            s.head,
            *_fans(read),
            a.gain,
            target=a.target,
            moment=s.moment,
            variance=variance,
            scale=scale,
        )
        for s, (read, a), scale in zip(group, found, scales, strict=True)
    ]


def _reached(aim: Aim, variance: float | None) -> str:
    if aim.target is not None:
        return "; Var(H) = v/‖c·h‖²"
    return "" if aim.head == variance else ", mean over the head"


def _shared(group: list[Slot], aims: list[Aim]) -> tuple[float | None, list[float]]:
    """Variance of a head, and the factor on each code that makes up for what its tensors do not have in common."""
    heads = [a.head for a in aims if a.head is not None]
    ones = [1.0] * len(group)
    if heads:
        return sum(heads) / len(heads), ones
    wanted = [a.target for a in aims if a.target is not None]
    moments = [s.moment for s in group if s.moment is not None]
    if len(moments) < len(group):
        return None, ones
    if group[0].cut:
        mean = aims[0].chunk_head / group[0].width
        for slot, v in zip(group, wanted, strict=True):
            if v == 0:
                raise InitError(
                    f"'{slot.tensor.name}' should start at variance 0, which chunks cannot do and still learn: leave "
                    "it out of generate=, or use init='hyperfan-in'"
                )
    else:
        mean = head_variance(sum(wanted), sum(moments))
    if not mean:
        return 0.0, ones
    return mean, [math.sqrt(head_variance(v, m) / mean) for v, m in zip(wanted, moments, strict=True)]


def _own_row(tensor: TensorSpec, method: Method, fidelity: Fidelity, made_by: MadeBy, name: str) -> Row:
    """A parameter that is not generated: constant where its role says so, else fan-in like a classical layer."""
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
    return Row(
        name,
        tensor.role,
        made_by,
        "classical",
        "",
        read.fan_in,
        read.fan_out,
        variance=method.trunk(read) * read.branch,
    )


def _fans(read: Reading) -> tuple[float | None, float | None]:
    return (None, None) if math.isnan(read.fan_in) else (read.fan_in, read.fan_out)
