"""How a hypernet starts: its plan is worked out and written, first to embeddings and trunk, then to the heads.

Which variance a head needs depends on the codes that were really drawn, so the plan is made twice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from hyperfan.errors import InitError
from hyperfan.hypernet.chunks import InputLayers
from hyperfan.hypernet.moments import level_inputs, measured_moments, predicted_moments, revive_codes
from hyperfan.init.asked import Slot
from hyperfan.init.plan import Plan, Row, make_plan
from hyperfan.init.registry import reading
from hyperfan.init.write import fill_
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

INPUTS_SCALED = ", then times the scale of the chunk's tensor"


def predicted_plan(net: "HyperNet", plain: list[TensorSpec]) -> Plan:
    """The plan before anything is drawn; ``plain`` are the parameters to be written that are not generated."""
    return _plan(net, predicted_moments(net), plain)


def write(
    net: "HyperNet",
    plain: list[TensorSpec],
    generator: torch.Generator | None,
    embeddings: torch.Generator | None = None,
) -> Plan:
    """Draw everything; returns the plan as it was written."""
    plan = predicted_plan(net, plain)  # what cannot be done is said before writing
    _write_embeddings(net, embeddings or generator)
    _fill(net, plan, "trunk", generator)
    revive_codes(net, embeddings or generator)
    if net.fidelity == "exact" and any(r.target is not None for r in plan.rows):
        level_inputs(net)
    plan = _plan(net, measured_moments(net), plain)
    for name in net.heads.layout.heads:
        row = next(r for r in plan.rows if r.made_by == "head" and r.head == name)
        assert row.variance is not None
        fill_(net.heads.head(name).weight, row.variance, net.distribution, generator=generator)
        fill_(net.heads.head(name).bias, 0.0, mean=row.mean)
    with torch.no_grad():
        net.code_scale.fill_(1.0)
        if net.heads.scales is not None:
            net.heads.scales.fill_(1.0)
    _scale(net, [r.scale for r in plan.rows if r.made_by == "head"])
    if net.fidelity == "exact" and any(net.heads.layout.cut):
        plan = _rescaled(net, plan, _missing(net, plan))
    if net.heads.layout.mixed and net.init.embedding is not None:  # no code belongs to one tensor alone
        plan = _rescaled(net, plan, [value or 1.0 for value in _constants(net)])
    _fill(net, plan, "plain", generator)
    return plan


def has_rule(tensor: TensorSpec) -> bool:
    """Whether it is known how to start it."""
    return tensor.role != "other"


def _plan(net: "HyperNet", moments: list[float | None], plain: list[TensorSpec]) -> Plan:
    layout = net.heads.layout
    slots = [
        Slot(t, head, net.width, layout.heads[head].outputs, moment, cut)
        for t, head, moment, cut in zip(net.generated, layout.names, moments, layout.cut, strict=True)
    ]
    trunk = [t for t in net.trunk_spec or () if has_rule(t)]
    others = {t.name for t in (*net.generated, *plain)}
    untouched = [t for t in net.spec if t.name not in others]
    plan = make_plan(slots, net.init, net.fidelity, net.distribution, trunk, plain, untouched)
    if not isinstance(net.trunk, InputLayers) or net.embeddings.config.normalise:
        return plan
    told = [replace(r, equation=r.equation + INPUTS_SCALED) for r in plan.rows if r.made_by == "trunk"]
    return replace(plan, rows=(*(r for r in plan.rows if r.made_by != "trunk"), *told))


@torch.no_grad()
def _scale(net: "HyperNet", factors: list[float]) -> None:
    """Multiply what is made of each tensor: in the input layers, on the tensors, or on the codes."""
    if net.heads.scales is not None:
        net.heads.scales.mul_(net.heads.scales.new_tensor(factors))
        return
    counts = torch.tensor([span.stop - span.start for span in net.heads.layout.spans])
    each = torch.tensor(factors, dtype=torch.float64).repeat_interleave(counts)
    if isinstance(net.trunk, InputLayers) and not net.embeddings.config.normalise:
        net.trunk.scale_(each.to(net.trunk.weight))
    else:
        net.code_scale.mul_(each.unsqueeze(-1).to(net.code_scale))


@torch.no_grad()
def rescale(net: "HyperNet", factors: Mapping[str, float]) -> Plan:
    """Multiply generated tensors: in the head if it makes no others, else on the codes, which leaves the others alone.

    A head's bias does not go through the codes. Where it serves several tensors it must be zero, as at the start.
    """
    each = [factors.get(t.name, 1.0) for t in net.generated]
    layout = net.heads.layout
    whole = not layout.mixed and not any(layout.cut)
    in_head = [1.0] * len(each)
    for name, made in layout.heads.items():
        own = {each[i] for i in made.tensors}
        if whole and len(own) == 1:
            for i in made.tensors:
                in_head[i] = each[i]
        elif own != {1.0} and not layout.mixed and net.heads.head(name).bias.any():
            raise InitError(
                f"the bias of head {name} is trained, and serves several tensors, so that one of them cannot be scaled "
                "alone: do it before training, or use heads='separate'"
            )
    for name, made in layout.heads.items():
        if in_head[made.tensors[0]] != 1:
            net.heads.head(name).weight.mul_(in_head[made.tensors[0]])
            net.heads.head(name).bias.mul_(in_head[made.tensors[0]])
    plan = _rescaled(net, net.plan, [f / h for f, h in zip(each, in_head, strict=True)])
    rows = [
        r if f == 1 else replace(r, variance=None if r.variance is None else r.variance * h**2, target=_times(r, f, h))
        for r, f, h in zip(plan.rows, each, in_head, strict=False)
    ]
    return replace(plan, rows=(*rows, *plan.rows[len(rows) :]))


def _times(row: Row, factor: float, in_head: float) -> float | None:
    """The target of a tensor that was scaled: f² times what it was, or, of a method without one, what it has now."""
    if row.target is not None:
        return row.target * factor**2
    if row.variance is None or row.moment is None:
        return None
    return row.variance * in_head**2 * row.scale**2 * row.moment


def _rescaled(net: "HyperNet", plan: Plan, factors: list[float]) -> Plan:
    """Scale, and say so in the plan; its first rows are those of the generated tensors."""
    _scale(net, factors)
    heads = [replace(r, scale=r.scale * f) for r, f in zip(plan.rows, factors, strict=False)]
    return replace(plan, rows=(*heads, *plan.rows[len(heads) :]))


def _missing(net: "HyperNet", plan: Plan) -> list[float]:
    """The factor that is missing from each tensor that comes in chunks, which scatter where there are few.

    With noise the target is met on average over its draws, and for given embeddings over those to come.
    """
    config, stored = net.embeddings.config, net.embeddings.weight
    factors = [1.0] * len(net.generated)
    if stored is None or config.noise:
        return factors
    squares = [0.0] * len(factors)
    tasks: Sequence[int | None] = [None] if config.tasks is None else range(config.tasks)
    for task in tasks:  # one by one, so that two sets of weights are never held
        with torch.no_grad():
            made = net.generate(task=task, noise=False)
        for i, t in enumerate(net.generated):
            squares[i] += made[t.name].double().square().mean().item() / len(tasks)
    for i, (row, cut, square) in enumerate(zip(plan.rows, net.heads.layout.cut, squares, strict=False)):
        if cut and row.target is not None and square:
            factors[i] = math.sqrt(row.target / square)
    return factors


def _fill(net: "HyperNet", plan: Plan, made_by: str, generator: torch.Generator | None) -> None:
    for row in plan.rows:
        if row.made_by == made_by:
            assert row.variance is not None
            root = net if made_by == "trunk" else net.mainnet
            fill_(root.get_parameter(row.tensor), row.variance, net.distribution, row.mean, generator)


def _write_embeddings(net: "HyperNet", generator: torch.Generator | None) -> None:
    net.embeddings.reset_parameters(generator)
    if net.init.embedding is not None:
        values = _constants(net)
        if net.heads.layout.mixed:
            values = [None if value is None else 1.0 for value in values]
        net.embeddings.set_constants_(values, net.heads.layout.spans)


def _constants(net: "HyperNet") -> list[float | None]:
    """What the method sets each tensor's embedding to."""
    assert net.init.embedding is not None
    reads = [None if t.start is not None else reading(t, net.fidelity, gains=False) for t in net.generated]
    return [None if read is None else net.init.embedding(read) for read in reads]
