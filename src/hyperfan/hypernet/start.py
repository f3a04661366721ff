"""How a hypernet starts: embeddings and trunk are drawn, then the generator is solved for the targets and written.

Which variance a head needs depends on the codes drawn, so the plan is made once these are known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from hyperfan.codes.draw import fill_
from hyperfan.codes.moments import redraw_trunk_of_zero_codes_, redraw_zero_codes_
from hyperfan.codes.trunk import ReluMLP
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim, Draw, Moments, Solution
from hyperfan.hypernet.condition_defaults import GIVEN_CODE_SQUARE
from hyperfan.init.plan import Plan, Row, generated_row, kept_row, written_row
from hyperfan.init.registry import Reading, has_known_gain, reading
from hyperfan.init.targets import Targets
from hyperfan.mainnet.gains import gains
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

AS_IT_CAME = "as the mainnet has it"


class Draft(NamedTuple):
    """All of a plan that is known before anything is drawn: what generated tensors should be, and all other rows.

    Args:
        targets: of the generated tensors.
        aims: what the method wants of each.
        trunk, plain, kept, inner: rows of the trunk, of the mainnet's plain parameters that are written and of those
            that are not, and of layers inside the generator.
    """

    targets: Targets
    aims: Sequence[Aim]
    trunk: Sequence[Row]
    plain: Sequence[Row]
    kept: Sequence[Row]
    inner: Sequence[Row]


def _plain_tensors(net: "HyperNet") -> list[TensorSpec]:
    """The mainnet's parameters that are not generated."""
    generated = {t.name for t in net.generated}
    return [t for t in net.spec if t.name not in generated]


def first_plan(net: "HyperNet") -> Plan:
    """Start a net that was just built, whose plain parameters keep their values.

    Only biases beside generated weights are written, which the theory has at zero, unless they may be trained. On the
    meta device, where nothing can be drawn, the plan says what is known before.
    """
    plain = [
        t for t in _plain_tensors(net) if t.name in net.kept_values.beside and _why_kept(net, t, first=True) is None
    ]
    if not net.heads.owns_heads:
        return _adopt(net, _draft(net, plain))
    _set_code_square(net)
    draft = _draft(net, plain)
    if not any(t.is_meta for t in net.heads.parameters()):
        return _write(net, draft)
    moments = _expected_moments(net)
    return _plan(net, draft, net.heads.solve(draft.aims, moments), moments)


def _adopt(net: "HyperNet", draft: Draft) -> Plan:
    """Start a net on the heads of another: only scales are set, and plain parameters written."""
    solutions = net.heads.adopt_(lambda tensors: _targets(net, tensors).aims())
    _fill(net.mainnet, draft.plain, partial(fill_, distribution=net.distribution))
    return _plan(net, draft, solutions, net.heads.measured_moments(net.code_source))


def reset(net: "HyperNet", generator: torch.Generator | None, embeddings: torch.Generator | None) -> Plan:
    """Draw everything that has a rule and is not kept, and let the buffers of norms start as they should."""
    net.heads.sync()
    _set_code_square(net)
    plain = [t for t in _plain_tensors(net) if t.has_rule and _why_kept(net, t) is None and _can_draw(net, t)]
    plan = _write(net, _draft(net, plain), generator, embeddings)
    _start_buffers(net.mainnet, [b for b in net.spec.buffers if not _frozen(net, b[0])])
    if net.trunk is not None and net.trunk_spec is not None and not net.kept_values.keeps_trunk:
        _start_buffers(net.trunk, net.trunk_spec.buffers)
    return plan


def _start_buffers(root: nn.Module, buffers: Sequence[tuple[str, float | None]]) -> None:
    for name, start in buffers:
        if start is not None:
            fill_(root.get_buffer(name), 0.0, mean=start)


def _why_kept(net: "HyperNet", tensor: TensorSpec, *, first: bool = False) -> str | None:
    return net.kept_values.why_kept(tensor.name, net.mainnet.get_parameter(tensor.name), first=first)


def _can_draw(net: "HyperNet", tensor: TensorSpec) -> bool:
    """Whether it is known how to draw a plain parameter, or must be, because it has no values that it could keep."""
    scaled_by_gain = tensor.role == "weight" and net.init.needs_nonlinearity
    return not scaled_by_gain or has_known_gain(tensor, net.fidelity) or tensor.name in net.kept_values.valueless


def _frozen(net: "HyperNet", buffer: str) -> bool:
    """Whether the parameters beside a norm's running statistics are all frozen, and have values, or all are kept."""
    if net.kept_values.keeps_mainnet:
        return True
    path, _, _ = buffer.rpartition(".")
    beside = dict(net.mainnet.get_submodule(path).named_parameters(path, recurse=False))
    return bool(beside) and not any(p.requires_grad or name in net.kept_values.valueless for name, p in beside.items())


def _draft(net: "HyperNet", plain: Sequence[TensorSpec]) -> Draft:
    """The plan's rows but for those of generated tensors, with these plain parameters written.

    What a method cannot do is refused here, before anything is written.
    """
    targets, listed = _targets(net, net.generated), {t.name for t in (*net.generated, *plain)}
    draft = Draft(
        targets,
        targets.aims(),
        _trunk_rows(net),
        [written_row(t, net.init, net.fidelity, "plain", t.name) for t in plain],
        [kept_row(t, _why_kept(net, t, first=True) or AS_IT_CAME) for t in net.spec if t.name not in listed],
        _inner_rows(net),
    )
    net.heads.check_aims(draft.aims)
    return draft


def _write(
    net: "HyperNet",
    draft: Draft,
    generator: torch.Generator | None = None,
    embeddings: torch.Generator | None = None,
) -> Plan:
    """Draw everything; returns the plan as it was written."""
    heads, codes, exact = net.heads, net.code_source, net.fidelity == "exact"
    constants = _constant_embeddings(net)

    draw = partial(fill_, distribution=net.distribution, generator=generator)
    net.embeddings.reset_parameters(embeddings or generator)
    if constants:  # where no code belongs to one tensor alone, they go on the tensors
        values = constants if heads.exclusive else dict.fromkeys(constants, 1.0)
        net.embeddings.set_constants_([values.get(t.name) for t in net.generated], heads.spans)
    draw_trunk = partial(_fill, net, [row for row in draft.trunk if row.made_by == "trunk"], draw)
    draw_trunk()
    if constants:
        redraw_trunk_of_zero_codes_(codes, draw_trunk)
    else:
        redraw_zero_codes_(codes, embeddings or generator)
    _fill(net, draft.inner, draw)
    if exact and any(aim.target is not None for aim in draft.aims):
        heads.level_inner_(codes)
    moments: Moments = heads.measured_moments(codes) if exact else _expected_moments(net)
    solutions = heads.solve(draft.aims, moments)
    heads.write_(solutions, draw)
    # What is missing shows only in the tensors that the heads make, so that the scales solved for are not yet the last.
    factors = _missing_factors(net, draft.aims) if exact else {}
    if not heads.exclusive:
        factors = {t.name: factors.get(t.name, 1.0) * constants.get(t.name, 1.0) for t in net.generated}
    if factors:
        heads.scale_(factors)
        named = zip(net.generated, solutions, strict=True)
        solutions = [replace(s, scale=s.scale * factors.get(t.name, 1.0)) for t, s in named]
    _fill(net.mainnet, draft.plain, draw)
    return _plan(net, draft, solutions, moments)


def rescale(net: "HyperNet", factors: Mapping[str, float]) -> Plan:
    """Multiply generated tensors; returns the plan as it is then."""
    of_heads = factors if net.heads.base is None else net.heads.base.scale_(factors)
    in_head = net.heads.scale_(of_heads)
    index = {t.name: i for i, t in enumerate(net.generated)}
    rows = []
    for row in net.plan.rows:
        factor = factors.get(row.tensor, 1.0)
        if row.tensor in index and row.made_by == "head" and factor != 1:
            part, target = in_head.get(row.tensor, 1.0), row.target
            scale = row.scale * of_heads.get(row.tensor, 1.0) / part
            variance = None if row.variance is None else row.variance * part**2
            if target is not None:
                target *= factor**2
            elif variance is not None and row.moment is not None:  # of a method without one, what the tensor has now
                generated = net.heads.started_variance(index[row.tensor], variance, row.moment) * scale**2
                target = generated + row.base * factor**2
            row = replace(row, variance=variance, scale=scale, target=target, base=row.base * factor**2)
        rows.append(row)
    return replace(net.plan, rows=tuple(rows))


def _targets(net: "HyperNet", tensors: Sequence[TensorSpec]) -> Targets:
    multiplies = net.heads.base is not None and net.heads.base.multiply
    needs_gain = not net.heads.config.updates_base
    return Targets(tensors, net.init, net.fidelity, net.share, multiplies=multiplies, needs_gain=needs_gain)


def _expected_moments(net: "HyperNet") -> list[float | None]:
    exact, preserves = net.fidelity == "exact", net.init.trunk_preserves and not net.kept_values.keeps_trunk
    moments = net.heads.expected_moments(net.code_source, exact=exact, trunk_preserves=preserves)
    factor = _code_factor(net)
    return [None if moment is None else moment * factor for moment in moments]


def _has_small_codes(net: "HyperNet") -> bool:
    """Whether codes are small: of a trunk by widths, where conditions are given and most of each weight is common.

    A step of SGD moves what is generated ‖h‖² times as far as the base; small codes let conditions share more of it.
    """
    config, heads = net.embeddings.config, net.heads
    on_base = net.share < 1 or net.init.generates_nothing
    studied = config.given and heads.bias_holds_base and on_base
    drawn = isinstance(net.trunk, ReluMLP) and net.init.trunk_preserves and not net.kept_values.keeps_trunk
    return net.fidelity == "exact" and studied and drawn


def _set_code_square(net: "HyperNet") -> None:
    """Let codes that are normalised have the length that they would have otherwise."""
    small = net.embeddings.config.normalise and _has_small_codes(net)
    net.embeddings.normalise_to(GIVEN_CODE_SQUARE if small else None)


def _code_factor(net: "HyperNet") -> float:
    """The factor on ‖h‖² of a trunk that is to make small codes, which nothing scales behind it."""
    if net.embeddings.config.normalise or not _has_small_codes(net):
        return 1.0
    examples = net.embeddings.examples
    square = net.embeddings.mean_square if examples is None else examples.double().square().mean().item()
    return GIVEN_CODE_SQUARE * gains("relu").forward / (net.heads.width * square)


def _plan(net: "HyperNet", draft: Draft, solutions: Sequence[Solution], moments: Moments) -> Plan:
    given = set() if net.heads.base is None else net.heads.base.kept
    rows = [
        generated_row(
            t, draft.targets.reading(t.name), solution, moment, base_given=t.name in given and solution.aim.share > 0
        )
        for t, solution, moment in zip(net.generated, solutions, moments, strict=True)
    ]
    rows += [*draft.trunk, *draft.plain, *draft.kept, *draft.inner]
    return Plan(str(net.init), net.init.paper, net.fidelity, net.distribution, tuple(rows))


def _trunk_rows(net: "HyperNet") -> list[Row]:
    if net.kept_values.keeps_trunk:
        why = "kept: the trunk was given; init_trunk=True draws it"
        return [kept_row(t, why, "trunk.") for t in net.trunk_spec or ()]
    trunk = [t for t in net.trunk_spec or () if t.has_rule]
    rows = [written_row(t, net.init, net.fidelity, "trunk", f"trunk.{t.name}") for t in trunk]
    factor = _code_factor(net)
    if factor == 1:
        return rows
    # In equal parts, so that a step of an optimiser such as Adam changes no layer far more than another.
    layers = sum(row.role == "weight" for row in rows)
    equation = f"for codes of ‖h‖² = {GIVEN_CODE_SQUARE:g}"
    return [
        replace(row, variance=(row.variance or 0.0) * factor ** (1 / layers), equation=f"{row.equation}, {equation}")
        if row.role == "weight"
        else row
        for row in rows
    ]


def _inner_rows(net: "HyperNet") -> list[Row]:
    def variance(fans: Fans) -> float:
        return net.init.trunk_variance(Reading("weight", fans.fan_in, fans.fan_out))

    return [
        Row(f"heads.{p.name}", p.role, "inputs", p.equation, "", p.fan_in, p.fan_out, variance=p.variance)
        for p in net.heads.inner_parameters(variance)
    ]


def _fill(root: nn.Module, rows: Sequence[Row], draw: Draw) -> None:
    for row in rows:
        assert row.variance is not None
        draw(root.get_parameter(row.tensor), row.variance, mean=row.mean)


def _missing_factors(net: "HyperNet", aims: Sequence[Aim]) -> dict[str, float]:
    """The factor that is missing from each tensor whose mean square scatters, as in chunks, of which there may be few.

    With noise the target is met on average over its draws, and for given embeddings over those to come.
    """
    config = net.embeddings.config
    if not net.heads.scattered or config.given or config.noise:
        return {}
    tasks: Sequence[int | None] = [None] if config.tasks is None else range(config.tasks)
    squares = dict.fromkeys(net.heads.scattered, 0.0)
    for task in tasks:  # one by one, so that two sets of weights are never held
        with torch.no_grad():
            tensors = net.heads.make(net.codes(task=task, noise=False), copy=True)
        for name in squares:
            squares[name] += tensors[name].double().square().mean().item() / len(tasks)
    targets = {t.name: aim.generated for t, aim in zip(net.generated, aims, strict=True)}
    return {
        name: math.sqrt(target / square)
        for name, square in squares.items()
        if square and (target := targets[name]) is not None
    }


def _constant_embeddings(net: "HyperNet") -> dict[str, float]:
    """What the method sets the embedding of each tensor to, by name, if it sets any."""
    if net.init.embedding is None:
        return {}
    drawn = [t for t in net.generated if t.start is None]
    return {t.name: net.init.embedding(reading(t, net.fidelity, gains=False)) for t in drawn}
