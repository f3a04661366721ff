"""Low-rank updates of weights that are there already, from a code: LoRA (Hu et al. 2021).

W = W⁰ + (α/r)·B·A, with A (r × in) and B (out × r) generated; in index notation the update is, as other products,
"irk,k,jrl,l->ij", where A_rj = Σ_l H_rjl·h_l alone is "rjl,l->rj". A weight that is stored as (in, out), as GPT-2's and
those of transposed convolutions, has the update (α/r)·(B·A)ᵀ. B's head starts at zero, weight and bias, so that the net
starts as the mainnet is; A's does not, since from two factors that are zero nothing is learnt. A starts at Var(A) =
gain/d_in, with which A·x, "rj,j->r", has mean square 1 where x has the mean square 1/gain that an init means it to
have; the gain counts as 1 where the nonlinearity before the layer is not known. As of other weights, a share ρ of it is
generated, and the rest is common to all codes: with A = H·h + β, Var(H) = ρ·Var(A)/‖h‖² and Var(β) = (1 − ρ)·Var(A).
Otherwise what B learns under one condition would meet another A under the next.

With a code for each rank, A_r = H·h_r + A⁰_r and B_r = G·h_r: a head makes one row of A, or one column of B, from the
code of its rank, "jl,rl->rj". H has no index r, but a row has only one rank, so that Var(A) = Var(H)·‖h‖² + Var(A⁰) as
before. What is common to all codes is a parameter A⁰ (r × in), because a bias of the head would be the same for all
ranks and let A start nearly as a matrix of rank 1.

With ``core`` it is LoRA-XS: :mod:`hyperfan.generators.lora_core`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError
from hyperfan.formulas.contraction import Contraction, contraction_variance
from hyperfan.generators.aims import Aim, Draw, Moments, Solution
from hyperfan.generators.config import BuildContext
from hyperfan.generators.generator import Factors, Generator, Steps
from hyperfan.generators.layout import HeadLayout, Sharing
from hyperfan.generators.lora_core import CoreHeads
from hyperfan.generators.products import CodePer, RankConfig
from hyperfan.generators.solving import solve_layout
from hyperfan.generators.updates import Updates, update_size
from hyperfan.mainnet.adapters import is_low_rank
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class LoRA(RankConfig):
    """Updates of low rank on the mainnet's own weights; ``HyperNet(mainnet, 50, heads=LoRA(rank=8, alpha=16))``.

    The net starts as the mainnet is. Generated tensors stand on the mainnet's values, which are frozen, held once and
    not saved; ``base=`` gives others. A weight (out, in, *kernel) counts as a matrix of out rows; biases and norm
    parameters have linear heads that start at zero. Layers run as y = W⁰·x + (α/r)·B·(A·x), and W is never made. All
    that is not generated stays as it is, and is trained where it requires gradients.

    Args:
        rank: of every update, r.
        alpha: α, by default r, which makes the factor α/r equal to 1.
        core: generate r × r matrices between fixed factors from the weights' singular vectors, as in LoRA-XS.
        share: part of A's variance that is generated at the start.
        sharing: "separate" heads for each tensor, heads "shared" by all weights of one shape, or by one "module" of all
            repeated layers, as all "self_attn.q_proj" of a transformer.
        code_per: what has a code of its own, each "tensor" or each "rank": then heads make one row of A and one column
            of B from a rank's code, and are r times smaller.
    """

    rank: int
    alpha: float | None = None
    core: bool = False
    share: float = 0.1
    sharing: Sharing = "separate"
    code_per: CodePer = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sharing not in get_args(Sharing):
            raise HyperfanError(
                f"LoRA(sharing={self.sharing!r}): heads are 'separate', 'shared' by shape, or by 'module'"
            )
        if not 0 <= self.share <= 1:
            raise HyperfanError(
                f"LoRA(share={self.share:g}): it is the part of A's variance that is generated, from 0 to 1"
            )
        if self.alpha is not None and not 0 < self.alpha < math.inf:
            raise HyperfanError(f"LoRA(alpha={self.alpha:g}): the factor of the update is α/r, positive and finite")

    @property
    def updates_base(self) -> bool:
        """Whether it generates updates of a base: always; ``share`` is a share of A."""
        return True

    def mainnet_bases(self, mainnet: nn.Module, tensors: Sequence[TensorSpec]) -> dict[str, Tensor]:
        """The values of all tensors, frozen."""
        parameters = dict(mainnet.named_parameters())
        return {t.name: parameters[t.name].detach() for t in tensors}

    @property
    def separate_heads(self) -> str:
        """What a user writes for a head for each tensor."""
        return "LoRA(…, sharing='separate')"

    @property
    def factor(self) -> float:
        """The factor on the product, α/r."""
        return 1.0 if self.alpha is None else self.alpha / self.rank

    def why_base_unfit(self, share: float | None, base_op: str, tensors: Sequence[TensorSpec]) -> str | None:
        """The reason why arguments about bases do not fit: updates are added to a whole base, and to no adapter."""
        if share is not None or base_op != "add":
            seen = "base_op='multiply'" if share is None else f"share={share:g}"
            return (
                f"{seen} does not go with LoRA, which starts as its base and adds to it: leave it out; LoRA(share=…) "
                "says how much of A is generated"
            )
        adapter = next((t.name for t in tensors if is_low_rank(t)), None)
        if adapter is None:
            return None
        return (
            f"heads=LoRA(…) makes an adapter, and the mainnet has one already, whose '{adapter}' would have an update "
            "too: leave heads= out, and that adapter is generated, or give the model without it, as model.unload()"
        )

    def build(self, context: BuildContext) -> Generator:
        """Two heads for each weight, or one for its core."""
        return CoreHeads(self, context) if self.core else LoRAHeads(self, context)


class LoRAHeads(Updates):
    """Updates B·A, of which both factors are generated."""

    scaled = 1

    def summary(self) -> str:
        """The rank of the updates, and the share of A that is generated, in words."""
        per_rank = ", a code for each rank" if self.per_rank else ""
        return f"updates of rank {self.rank}{per_rank}, share={self.config.share:g} of A"

    def __init__(self, config: LoRA, context: BuildContext) -> None:
        super().__init__(config, context)
        for layout in self.layouts.values() if self.per_rank else ():
            if layout.tensors[0] in self.matrices:
                tensor, first = self.tensors[layout.tensors[0]], next(iter(layout.heads))
                _, d_in = update_size(tensor)
                empty = torch.empty(self.rank, d_in, device=context.device, dtype=tensor.dtype)
                self.register_parameter(f"{first}0", nn.Parameter(empty))

    def factor_sizes(self, tensor: TensorSpec) -> dict[str, int]:
        """A column of B, and a row of A."""
        d_out, d_in = update_size(tensor)
        return {"A": d_in, "B": d_out}

    def factors_of(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """B and A."""
        a, b = outputs
        return self._columns(b), self._rows(a)

    def contraction_of_a(self, index: int, moment: float) -> Contraction:
        """A in index notation, without what all codes have in common of it."""
        expression = "jl,rl->rj" if self.per_rank else "rjl,l->rj"
        return Contraction(expression, {"l": self.width}, [None, moment / self.width])

    def common_part(self, head: str, steps: Steps) -> Tensor | None:
        """A⁰, where the head makes A."""
        name = f"{head}0"
        if name not in self._parameters:
            return None
        common = self.get_parameter(name)
        return common + steps[name] if name in steps else common

    def solve_update(
        self, layout: HeadLayout, aims: Sequence[Aim], moments: Moments
    ) -> tuple[float | None, list[float], str]:
        """The variance of A's head, and how far A's variances differ from matrix to matrix."""
        first, outputs = next(iter(layout.heads.items()))
        only = replace(layout, heads={first: outputs})
        if aims[0].head is not None:  # what a method says of heads holds for A's
            return *solve_layout(self, only, aims, moments), "B = 0"
        pairs = zip(layout.tensors, aims, strict=True)
        of_a = [replace(aim, target=self._variance_of_a(i, aim), share=1.0) for i, aim in pairs]
        variance, scales = solve_layout(self, only, of_a, moments, self.contraction_of_a)
        share_of_a = self.config.share
        note = f"B = 0, Var(A) = gain/d_in, Var(H) = {share_of_a:g}·Var(A)/‖h‖², the rest is common"
        return None if variance is None else share_of_a * variance, scales, note

    def _variance_of_a(self, index: int, aim: Aim) -> float:
        """The variance with which A·x has mean square 1 for E[x²] = 1/gain."""
        _, d_in = update_size(self.tensors[index])
        return (aim.gain or 1.0) / contraction_variance("rj,j->r", {"j": d_in}, [1.0, 1.0])

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw the bases that have no values, and the heads of matrices; let all other heads be zero."""
        super().write_(solutions, draw)
        for layout in self.layouts.values():
            if layout.tensors[0] in self.matrices:
                self.write_factors_(layout, [solutions[i] for i in layout.tensors], draw)

    def write_factors_(self, layout: HeadLayout, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw the heads of some matrices, which are zero before: here A's, and what all codes have in common of A."""
        first, solution = next(iter(layout.heads)), solutions[0]
        assert solution.variance is not None
        draw(self.head(first).weight, solution.variance)
        if solution.aim.head is None:
            pairs = zip(layout.tensors, solutions, strict=True)
            unscaled = [self._variance_of_a(i, s.aim) / s.scale**2 for i, s in pairs]
            common = self.get_parameter(f"{first}0") if self.per_rank else self.head(first).bias
            draw(common, (1 - self.config.share) * sum(unscaled) / len(unscaled))
        elif self.per_rank:
            draw(self.get_parameter(f"{first}0"), 0.0)
