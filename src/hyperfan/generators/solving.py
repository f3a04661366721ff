"""From aims to variances: how a generator starts, so that each of its tensors meets its aim.

Heads that make several tensors have one variance. What these tensors do not have in common goes into their scales.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hyperfan.errors import InitError
from hyperfan.formulas.contraction import Contraction
from hyperfan.generators.aims import Aim, Moments, Solution
from hyperfan.generators.layout import HeadLayout

if TYPE_CHECKING:
    from hyperfan.generators.generator import Generator


def solve(generator: "Generator", aims: Sequence[Aim], moments: Moments) -> list[Solution]:
    """How each tensor starts."""
    found: dict[int, Solution] = {}
    for name, layout in generator.layouts.items():
        of_layout = [aims[i] for i in layout.tensors]
        variance, scales = solve_layout(generator, layout, of_layout, [moments[i] for i in layout.tensors])
        for i, aim, scale in zip(layout.tensors, of_layout, scales, strict=True):
            fans = generator.head_fans(i)
            if aim.head is None:
                note = f"; Var(H) = {generator.contraction(i, 1.0).solution}{_of_base(aim)}"
            else:
                mean_over = "head" if len(layout.heads) == 1 else "factors"
                note = "" if aim.head(fans) == variance else f", mean over the {mean_over}"
            found[i] = Solution(name, aim.known_for(fans), variance, scale, note)
    return [found[i] for i in range(len(generator.tensors))]


def check_aims(generator: "Generator", aims: Sequence[Aim]) -> None:
    """Raise if heads would start at zero that cannot learn from there: of a product, or of tensors of any target."""
    for layout in generator.layouts.values():
        of_layout, is_product = [aims[i] for i in layout.tensors], len(layout.heads) > 1
        given = _given_variances(generator, layout, of_layout)
        targets = [a.generated for a in of_layout if a.generated is not None]
        if given and is_product and not all(given) and any(a.base for a in of_layout):  # two zeros in a row
            raise _nothing_generated(generator, layout.tensors[0])
        if not given and 0 in targets and (layout.any_target or is_product):
            raise _nothing_generated(generator, layout.tensors[targets.index(0)])


def solve_layout(
    generator: "Generator",
    layout: HeadLayout,
    aims: Sequence[Aim],
    moments: Moments,
    contraction: Callable[[int, float], Contraction] | None = None,
) -> tuple[float | None, list[float]]:
    """The variance of a layout's heads, and the factor of each of its tensors that makes up for the rest.

    The variance is ``None`` while a moment is not known. Heads that make only a factor of each tensor have aims for it,
    and its ``contraction`` in place of the tensor's.
    """
    contraction = contraction or generator.contraction
    if given := _given_variances(generator, layout, aims):
        return sum(given) / len(given), [a.factor for a in aims]
    ones = [1.0] * len(aims)
    targets = [a.generated for a in aims if a.generated is not None]
    known = [m for m in moments if m is not None]
    if len(known) < len(aims):
        return None, ones
    unit = [contraction(i, m).variance(1.0) for i, m in zip(layout.tensors, known, strict=True)]
    product = sum(targets) / sum(unit)  # of the variances of all heads
    if layout.any_target:
        product = (aims[0].shared_gain / generator.head_width) ** len(layout.heads)
    if not product:
        return 0.0, ones
    scales = [math.sqrt(v / (u * product)) for v, u in zip(targets, unit, strict=True)]
    return float(product ** (1 / len(layout.heads))), scales


def _given_variances(generator: "Generator", layout: HeadLayout, aims: Sequence[Aim]) -> list[float]:
    """The variances that a method sets a layout's heads to, if it is one that does not look at what they make."""
    return [a.head(fans) for a in aims if a.head is not None for fans in generator.fans_of(layout)]


def _of_base(aim: Aim) -> str:
    """The part of a tensor's equation that speaks of its base."""
    if aim.multiplies:
        return f" for v = {aim.share:g}/{1 - aim.share:g}, times the base"
    return "" if aim.share == 1 else f" for {aim.share:g} of it, the rest is common"


def _nothing_generated(generator: "Generator", index: int) -> InitError:
    return InitError(
        f"nothing of '{generator.tensors[index].name}' would be generated at the start, which chunks and products "
        "cannot do and still learn: give share= a small number, such as 0.01, or leave the tensor out of generate="
    )
