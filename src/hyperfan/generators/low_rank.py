"""Low-rank weights: W = U·Vᵀ, both factors generated from the tensor's code.

With U = A·h and V = B·h, "irk,k,jrl,l->ij" in index notation, a known code gives Var(W) = r·Var(A)·Var(B)·‖h‖⁴.
Both factors get the same variance, so Var(A) = Var(B) = √(v/r)/‖h‖². The code stands twice: over many codes the mean of
‖h‖⁴ counts, which is larger than the square of the mean; ``Embedding(normalise=True)`` makes both equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor

from hyperfan.errors import HyperfanError
from hyperfan.formulas.contraction import contraction_variance, reach_variance
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim, Draw, Goal, Solution
from hyperfan.generators.base import BuildContext, Generator, GeneratorConfig, Part, Request, tensor_name
from hyperfan.generators.linear_map import Head
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class LowRank(GeneratorConfig):
    """Weights of low rank, each from two heads of its own; ``HyperNet(mainnet, 50, heads=LowRank(4))``.

    A weight (out, in, *kernel) counts as a matrix of out rows. Biases and norm parameters have linear heads.

    Args:
        rank: of every generated weight.
    """

    rank: int

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1:
            raise HyperfanError(f"LowRank(rank={self.rank!r}): give an integer from 1")

    def build(self, context: BuildContext) -> Generator:
        """Two heads for each weight."""
        return LowRankHeads(self, context)


class LowRankHeads(Generator):
    """Two heads for each weight, one for anything else, a code for each tensor."""

    config: LowRank

    def __init__(self, config: LowRank, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.names = [tensor_name(t) for t in self.tensors]
        self.scattered = {t.name for t in self.tensors if _is_matrix(t)}
        self.factors: list[list[str]] = []
        """The heads of each tensor: those of U and V, or one."""
        self.outputs: dict[str, int] = {}
        """The number of values that each head makes."""
        for name, t in zip(self.names, self.tensors, strict=True):
            rows = t.shape[0] if _is_matrix(t) else t.numel
            sizes = {f"{name}-left": rows, f"{name}-right": t.numel // rows} if _is_matrix(t) else {name: rows}
            rank = config.rank if _is_matrix(t) else 1
            for head, size in sizes.items():
                self.outputs[head] = size * rank
                self.add_module(head, Head(self.width, size * rank, context.device, t.dtype))
            self.factors.append(list(sizes))
        self.register_buffer("scale", torch.ones(self.n, device=context.device, dtype=context.dtype))

    def make(self, codes: Tensor, request: Request) -> dict[str, Tensor]:
        """The product of each weight's factors."""
        tensors = {}
        for i, t in enumerate(self.tensors):
            code = codes[..., i, :]
            rows = code.reshape(-1, self.width)
            flat = [self.head(name).product(rows, request.step(name)) for name in self.factors[i]]
            value = flat[0]
            if len(flat) == 2:
                left, right = (f.view(len(rows), -1, self.config.rank) for f in flat)
                value = left @ right.mT
            tensors[t.name] = value.reshape(*code.shape[:-1], *t.shape) * self.scale[i]
        return tensors

    def solve(self, goals: Sequence[Goal], moments: Sequence[float | None]) -> list[Solution]:
        """The solution of each tensor, with the same variance for both factors."""
        return [self._solve(i, goal, moment) for i, (goal, moment) in enumerate(zip(goals, moments, strict=True))]

    def _solve(self, i: int, goal: Goal, moment: float | None) -> Solution:
        names = self.factors[i]
        aims = [goal(Fans(self.width, self.outputs[name])) for name in names]
        aim, given = aims[0], [a.head for a in aims if a.head is not None]
        if given:
            variance = sum(given) / len(given)
            return Solution(
                self.names[i], aim, variance, 1.0, "" if aim.head == variance else ", mean over the factors"
            )
        assert aim.target is not None
        found = None
        if moment is not None:
            rule, sizes, squares = self._contraction(i, moment)
            found = reach_variance(aim.target, rule, sizes, squares)
        return Solution(self.names[i], aim, found, 1.0, _note(aim, len(names)))

    def _contraction(self, index: int, moment: float) -> tuple[str, dict[str, float], list[float | None]]:
        """The tensor in index notation, with ``None`` for the mean square of its heads."""
        d, h = self.width, moment / self.width
        if len(self.factors[index]) == 1:
            return "ik,k->i", {"k": d}, [None, h]
        return "irk,k,jrl,l->ij", {"r": self.config.rank, "k": d, "l": d}, [None, h, None, h]

    def head_fans(self, index: int) -> Fans:
        """The fans of the left factor's head, or of the only one."""
        return Fans(self.width, self.outputs[self.factors[index][0]])

    def tensor_variance(self, index: int, variance: float, moment: float) -> float:
        """Variance of the product of two factors, or of what one head makes."""
        rule, sizes, squares = self._contraction(index, moment)
        return contraction_variance(rule, sizes, [variance if m is None else m for m in squares])

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw both factors; what all values start around is in the bias of a single head."""
        for names, solution in zip(self.factors, solutions, strict=True):
            assert solution.variance is not None
            for name in names:
                draw(self.head(name).weight, solution.variance)
                draw(self.head(name).bias, 0.0, mean=solution.aim.mean)
        self._set_scales_([s.scale for s in solutions])

    def parts(self) -> list[Part]:
        """The heads of all factors, which read the code of their tensor."""
        return [
            Part(name, self.head(name), 1, itemgetter(self.spans[i]))
            for i, names in enumerate(self.factors)
            for name in names
        ]

    def summary(self) -> str:
        """The rank of the weights, in words."""
        return f"weights of rank {self.config.rank}"


def _is_matrix(t: TensorSpec) -> bool:
    return t.role == "weight" and len(t.shape) >= 2


def _note(aim: Aim, factors: int) -> str:
    return "; Var(H) = v/‖h‖²" if factors == 1 else "; Var(H) = √(v/rank)/‖h‖²"
