"""Generators whose tensors come from heads W = H·h + β, each of which may serve several tensors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hyperfan.errors import InitError
from hyperfan.formulas.contraction import LINEAR_HEAD, contraction_variance
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim, Draw, Goal, Solution
from hyperfan.generators.base import BuildContext, Generator, Part, merge_spans
from hyperfan.generators.linear_map import Head
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class HeadLayout:
    """What one head makes.

    Args:
        outputs: values that it makes of a code.
        dtype: of its parameters.
        tensors: indices of the tensors that it makes.
        rows: the codes that it reads, in order.
        any_target: whether its variance is fixed, and the scale of each tensor makes up for its target.
    """

    outputs: int
    dtype: torch.dtype
    tensors: list[int]
    rows: list[slice]
    any_target: bool = False

    @property
    def codes(self) -> int:
        """Number of codes that it reads."""
        return sum(s.stop - s.start for s in self.rows)


class HeadGenerator(Generator):
    """A generator with one head for each of its layouts."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        self.layouts: dict[str, HeadLayout] = {}

    def _layouts_by_name(
        self, outputs: Callable[[TensorSpec], int], any_target: Callable[[TensorSpec], bool] = lambda t: False
    ) -> dict[str, HeadLayout]:
        """One head for all tensors of one name, which makes so many values of a code."""
        layouts = {}
        for name in dict.fromkeys(self.names):
            members = [i for i, other in enumerate(self.names) if other == name]
            first, rows = self.tensors[members[0]], merge_spans([self.spans[i] for i in members])
            layouts[name] = HeadLayout(outputs(first), first.dtype, members, rows, any_target(first))
        return layouts

    def _add_heads(self, layouts: dict[str, HeadLayout], device: torch.device) -> None:
        self.layouts = layouts
        for name, layout in layouts.items():
            self.add_module(name, Head(self.head_width, layout.outputs, device, layout.dtype))

    def _select(self, codes: Tensor, rows: Sequence[slice]) -> Tensor:
        """Some of the codes, (…, rows, width)."""
        spans = [codes[..., s, :] for s in rows]
        return spans[0] if len(spans) == 1 else torch.cat(spans, -2)

    def head_fans(self, index: int) -> Fans:
        """The fans of the tensor's head."""
        return Fans(self.head_width, self.layouts[self.names[index]].outputs)

    def tensor_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of a tensor by the linear head's rule, Var(H)·‖h‖²."""
        return contraction_variance(LINEAR_HEAD, {"k": self.head_width}, [variance, moment / self.head_width])

    def solve(self, goals: Sequence[Goal], moments: Sequence[float | None]) -> list[Solution]:
        """One variance for each head, and what its tensors do not have in common in their scales."""
        found: dict[int, Solution] = {}
        for name, layout in self.layouts.items():
            aims = [goals[i](self.head_fans(i)) for i in layout.tensors]
            variance, scales = self._share(layout, aims, [moments[i] for i in layout.tensors])
            for i, aim, scale in zip(layout.tensors, aims, scales, strict=True):
                found[i] = Solution(name, aim, variance, scale, _note(aim, variance))
        return [found[i] for i in range(len(self.tensors))]

    def _share(
        self, layout: HeadLayout, aims: Sequence[Aim], moments: Sequence[float | None]
    ) -> tuple[float | None, list[float]]:
        """The variance of a head, and the factor of each of its tensors that makes up for what they do not share."""
        ones = [1.0] * len(aims)
        given = [a.head for a in aims if a.head is not None]
        if given:
            return sum(given) / len(given), ones
        targets = [a.target for a in aims if a.target is not None]
        known = [m for m in moments if m is not None]
        if len(known) < len(aims):
            return None, ones
        unit = [self.tensor_variance(i, 1.0, m) for i, m in zip(layout.tensors, known, strict=True)]
        if layout.any_target:
            variance = aims[0].shared_gain / self.head_width
            for i, target in zip(layout.tensors, targets, strict=True):
                if target == 0:
                    raise InitError(
                        f"'{self.tensors[i].name}' should start at variance 0, which chunks cannot do and still learn: "
                        "leave it out of generate=, or use init='hyperfan-in'"
                    )
        else:
            variance = sum(targets) / sum(unit)
        if not variance:
            return 0.0, ones
        return variance, [math.sqrt(v / (u * variance)) for v, u in zip(targets, unit, strict=True)]

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw each head, and set the scale of each tensor."""
        for name, layout in self.layouts.items():
            solution, head = solutions[layout.tensors[0]], self.head(name)
            assert solution.variance is not None
            draw(head.weight, solution.variance)
            draw(head.bias, 0.0, mean=solution.aim.mean)
        self._set_scales_([s.scale for s in solutions])

    def _inputs_of(self, name: str, codes: Tensor) -> Tensor:
        """What a head reads of (n, width) codes."""
        return self._select(self.head_inputs(codes), self.layouts[name].rows)

    def parts(self) -> list[Part]:
        """The heads, each with the codes of its tensors."""
        return [
            Part(name, self.head(name), layout.codes, partial(self._inputs_of, name))
            for name, layout in self.layouts.items()
        ]

    def shared_heads(self) -> list[str]:
        """Heads of several tensors, not counting those that start constant."""
        drawn = {
            name: [i for i in layout.tensors if self.tensors[i].start is None] for name, layout in self.layouts.items()
        }
        return [name for name, members in drawn.items() if len(members) > 1]

    def _check_bias_is_zero(self, name: str) -> None:
        """A head's bias does not go through the codes; where a code is scaled it must be zero, as at the start."""
        if self.head(name).bias.any():
            raise InitError(
                f"the bias of head {name} is trained, and serves several tensors, so that one of them cannot be scaled "
                "alone: do it before training, or use heads='separate'"
            )


def _note(aim: Aim, variance: float | None) -> str:
    if aim.target is not None:
        return "; Var(H) = v/‖c·h‖²"
    return "" if aim.head == variance else ", mean over the head"
