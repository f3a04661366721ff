"""What both kinds of chunks have in common: input layers, signs, and heads that serve tensors of any target.

With input layers, a chunk m is W_m = H·α_m + β with α_m = G_m·e_m + γ_m, in index notation "ijk,kl,l->ij". A head that
serves layers of different fans cannot have the variance of each, so Var(H) = 1/d_k, and the rest goes into G_m.

*Signs.* All variances right is not enough. Behind a ReLU trunk any two codes have cosine about 2/π, so the chunks of
one head are alike: Cov(W_mp, W_np) = Var(H)·(h_m·h_n) for value p of chunks m and n. A layer whose rows are alike maps
its input to nearly one direction, and where two layers are cut from one head, what the first puts out lies where the
second looks; activations then grow, though every variance is right. With a fixed random sign s = ±1 for each value,
W_mp = s_mp·(H·h_m)_p, the variance is the same, and over the signs

    Cov(W_mp, W_np) = E[s_mp·s_np]·Var(H)·(h_m·h_n) = 0,

while what can be learnt is the same up to these signs.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.codes.codes import Codes, normalise_rms
from hyperfan.codes.moments import measured_moments, stored_squares
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Draw, InnerParameter, LayerVariance, Solution
from hyperfan.generators.base import BuildContext, Part, Request
from hyperfan.generators.heads import HeadGenerator, HeadLayout
from hyperfan.generators.linear_map import InputLayers

if TYPE_CHECKING:
    from hyperfan.generators.chunks import Chunks

INPUTS = "inputs"
"""Name of the input layers in a generator; no head has it."""


class ChunkGenerator(HeadGenerator):
    """A generator of chunks, by channels or flat."""

    config: "Chunks"
    signs: Tensor | None

    def __init__(self, config: "Chunks", context: BuildContext) -> None:
        super().__init__(context)
        self.config, self.normalise = config, context.normalise
        self.head_width = config.input_width(self.width) or self.width

    def _add_inputs_and_signs(self, device: torch.device, dtype: torch.dtype) -> None:
        width = self.config.input_width(self.width)
        self.inputs = InputLayers(self.n, self.width, width, device, dtype) if width else None
        self.in_chunks = [i for layout in self.layouts.values() if layout.any_target for i in layout.tensors]
        self.scattered = {self.tensors[i].name for i in self.in_chunks}
        values = sum(self.tensors[i].numel for i in self.in_chunks)
        signs = torch.ones(values, device=device, dtype=torch.int8) if self.config.signed else None
        self.register_buffer("signs", signs)

    def make(self, codes: Tensor, request: Request) -> dict[str, Tensor]:
        """Each head on the codes of its chunks; the chunks of each tensor joined, with their signs."""
        codes = self._scaled(self._through_inputs(codes, request))
        tensors: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            chosen = self._select(codes, layout.rows)
            flat = self.head(name).product(chosen.reshape(-1, self.head_width), request.step(name))
            tensors.update(self._join(layout, flat.view(*chosen.shape[:-1], flat.shape[-1])))
        if self.signs is not None:
            signs = torch.split(self.signs, [self.tensors[i].numel for i in self.in_chunks])
            for i, sign in zip(self.in_chunks, signs, strict=True):
                tensors[i] = tensors[i] * sign.view(self.tensors[i].shape)
        return {t.name: tensors[i] for i, t in enumerate(self.tensors)}

    @abstractmethod
    def _join(self, layout: HeadLayout, chunks: Tensor) -> Iterable[tuple[int, Tensor]]:
        """The tensors of one head, by index, from (…, chunks, values)."""

    def _scaled(self, codes: Tensor) -> Tensor:
        """Codes with the scale of each tensor, where that is on codes."""
        return codes

    def head_inputs(self, codes: Tensor) -> Tensor:
        """Codes through the input layers, with the scale of each tensor where that is on codes."""
        return self._scaled(self._through_inputs(codes, Request()))

    def _through_inputs(self, codes: Tensor, request: Request) -> Tensor:
        """The codes, through input layers if there are such."""
        if self.inputs is None:
            return codes
        outputs = self.inputs.product(codes, request.step(INPUTS))
        return normalise_rms(outputs) if self.normalise else outputs

    # ── variance ───────────────────────────────────────────────────────────────────────────────────────────────────

    def expected_moments(self, codes: Codes, *, exact: bool, trunk_preserves: bool) -> list[float | None]:
        """Expected ‖h‖² behind the input layers, which pass E[e²] on where they have fan-in init."""
        moments = super().expected_moments(codes, exact=exact, trunk_preserves=trunk_preserves)
        if self.inputs is None:
            return moments
        if exact and not trunk_preserves:
            return [None] * len(moments)
        return [None if m is None else m * self.head_width / self.width for m in moments]

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖² of each tensor's codes behind the input layers."""
        if self.normalise:
            return [float(self.head_width)] * len(self.tensors)
        return measured_moments(codes, self.spans, self.inputs)

    def write_inner_(self, layer: LayerVariance, codes: Codes, draw: Draw, *, level: bool) -> None:
        """Draw the input layers, and let each make a code of the second moment expected of it."""
        if self.inputs is None:
            return
        variance = layer(Fans(self.width, self.head_width))
        draw(self.inputs.weight, variance)
        draw(self.inputs.bias, 0.0)
        squares = stored_squares(codes, self.inputs)
        if level and squares is not None and not self.normalise:
            squares = squares.reshape(-1, self.n).mean(0)
            expected = self.head_width * codes.embeddings.config.mean_square
            self.inputs.scale_((expected / squares).sqrt().to(self.inputs.weight))

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw heads and signs, and set the scale of each tensor."""
        super().write_(solutions, draw)
        if self.signs is not None:
            self.signs.copy_(torch.where(draw(torch.empty_like(self.signs, dtype=torch.float32), 1.0) < 0, -1, 1))

    def inner_parameters(self, layer: LayerVariance) -> list[InnerParameter]:
        """The weight and the bias of the input layers."""
        if self.inputs is None:
            return []
        fans, scaled = Fans(self.width, self.head_width), self.exclusive and not self.normalise
        then = ", then times the scale of the chunk's tensor" if scaled else ""
        return [
            InnerParameter(f"{INPUTS}.weight", fans, layer(fans), f"classical{then}"),
            InnerParameter(f"{INPUTS}.bias", None, 0.0, f"= 0{then}"),
        ]

    # ── structure ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parts(self) -> list[Part]:
        """The heads, and the input layers."""
        heads = super().parts()
        if self.inputs is None:
            return heads
        behind = [replace(part, inputs=None, input_map=self.inputs) for part in heads]
        return [*behind, Part(INPUTS, self.inputs, self.n, lambda codes: codes)]

    def shared_heads(self) -> list[str]:
        """Heads of several tensors; none where each chunk has an input layer."""
        return super().shared_heads() if self.inputs is None else []

    def summary(self) -> str:
        """The number of chunks and of heads, in words."""
        return f"{self.n:,} chunks from {len(self.layouts)} heads"
