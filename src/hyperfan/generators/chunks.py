"""``Chunks``: tensors made in chunks, many from one head, by channels or of one flat vector.

With input layers, a chunk m is W_m = H·α_m + β with α_m = G_m·e_m + γ_m, in index notation :data:`CHUNK`. A head that
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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hyperfan.codes.codes import Codes, normalise_rms
from hyperfan.codes.embedding import Embedding, is_index
from hyperfan.codes.moments import stored_squares
from hyperfan.errors import HyperfanError
from hyperfan.formulas.contraction import contraction_variance
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Draw, InnerParameter, LayerVariance, Solution
from hyperfan.generators.config import BuildContext, GeneratorConfig
from hyperfan.generators.generator import NO_STEPS, Generator, Skip, Steps, Tensors
from hyperfan.generators.layout import HeadLayout
from hyperfan.generators.linear_map import InputLayers
from hyperfan.generators.part import Part

CHUNK = "ijk,kl,l->ij"
"""W_ij = Σ_kl H_ijk·G_kl·e_l of one chunk behind its input layer, whose output is α_k = Σ_l G_kl·e_l."""
INPUTS = "inputs"
"""Name of the input layers in a generator; no head has it."""


@dataclass(frozen=True)
class Chunks(GeneratorConfig):
    """How to cut what is generated into chunks; ``HyperNet(mainnet, 50, heads=Chunks())`` is Ha et al.'s architecture.

    Args:
        size: channels in a chunk, by default the greatest number that divides the output or the input channels of
            every weight; with ``flat``, values in a chunk.
        flat: cut one long vector of all tensors instead of each weight by its channels.
        inputs: width of an input layer for each chunk; 0 for none, so that a trunk can be shared. By default the
            embedding's size, or 0 if flat.
        embedding: size of an embedding for each chunk, beside the one that the net has with ``per="net"``, such as a
            task's; the same as ``Embedding(…, identity=…)``.
        trainable: whether that is trained.
        one_head: whether weights cut along their input channels come from the head of those cut along their output
            channels, as in Ha et al. One layer's outputs then lie where the next one looks, in the span of the head,
            and grow by up to √(size / d_k) more than their variances say; so the default is a head for each.
        signs: whether each generated value has a fixed random sign, without which values from one head are alike. By
            default if flat.
    """

    size: int | None = None
    flat: bool = False
    inputs: int | None = None
    embedding: int = 0
    trainable: bool = True
    one_head: bool = False
    signs: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("inputs", 0), ("embedding", 0)):
            value = getattr(self, name)
            if value is not None and (not is_index(value) or value < least):
                raise HyperfanError(f"Chunks({name}={value!r}): give an integer from {least}")
        if self.flat and self.size is None:
            raise HyperfanError("Chunks(flat=True): say how many values a chunk has with size=")

    @property
    def identity(self) -> Embedding | None:
        """The embedding of each chunk."""
        return Embedding(self.embedding, self.trainable) if self.embedding else None

    def input_width(self, size: int) -> int:
        """Width of the input layers for embeddings of this size; 0 if there are none."""
        if self.inputs is not None:
            return self.inputs
        return 0 if self.flat else size

    def why_unfit(self, embedding: Embedding, has_trunk: bool) -> str | None:
        """Why chunks do not fit, if so: all equal, with two embeddings each, or with both a trunk and input layers."""
        if embedding.per == "net" and not self.embedding and embedding.identity is None:
            return (
                "one embedding for the whole net would make all chunks equal: give each its own beside it with "
                "Chunks(embedding=…), or use Embedding(…, per='tensor')"
            )
        if embedding.per == "tensor" and self.embedding:
            return (
                "Chunks(embedding=…) is for a net with one embedding, Embedding(…, per='net'); here each chunk has an "
                "embedding of its own already"
            )
        if self.input_width(embedding.size) and has_trunk:
            return (
                "each chunk has an input layer of its own, in place of a trunk: use Chunks(inputs=0) to share a trunk"
            )
        return None

    def build(self, context: BuildContext) -> Generator:
        """Chunks by channels, or flat ones."""
        from hyperfan.generators.channels import ChannelChunks
        from hyperfan.generators.flat import FlatChunks

        return (FlatChunks if self.flat else ChannelChunks)(self, context)


class ChunkGenerator(Generator):
    """What both kinds of chunks have in common: input layers, signs, and heads that serve tensors of any target."""

    config: Chunks
    signs: Tensor | None

    def __init__(self, config: Chunks, context: BuildContext) -> None:
        super().__init__(config, context)
        self.normalise, width = context.normalise, config.input_width(self.width)
        self.head_width = width or self.width
        self.scales_inputs = bool(width) and self.exclusive and not self.normalise  # else codes or tensors
        layouts, scale = self._cut()
        self._build(layouts, scale, context)
        self.inputs = InputLayers(self.n, self.width, width, context.device, context.dtype) if width else None
        self.in_chunks = [i for layout in self.layouts.values() if layout.any_target for i in layout.tensors]
        self.scattered = {self.tensors[i].name for i in self.in_chunks}
        signs = None
        if config.flat if config.signs is None else config.signs:
            values = sum(self.tensors[i].numel for i in self.in_chunks)
            signs = torch.ones(values, device=context.device, dtype=torch.int8)
        self.register_buffer("signs", signs)

    @abstractmethod
    def _cut(self) -> tuple[dict[str, HeadLayout], tuple[int, ...]]:
        """Decide about ``names``, ``spans`` and ``n``; returns the heads, and the shape of ``scale``."""

    @abstractmethod
    def _join(self, layout: HeadLayout, chunks: Tensor) -> Iterable[tuple[int, Tensor]]:
        """The tensors of one head, by index, from (…, chunks, values)."""

    def make(self, codes: Tensor, *, skip: Skip = (), copy: bool = False, steps: Steps = NO_STEPS) -> Tensors:
        """Each head on the codes of its chunks; the chunks of each tensor joined, with their signs."""
        codes = self.head_inputs(codes, steps)
        tensors: dict[int, Tensor] = {}
        for name, layout in self.layouts.items():
            chosen = self._select(codes, layout.rows)
            flat = self._product(name, chosen.reshape(-1, self.head_width), steps)
            tensors.update(self._join(layout, flat.view(*chosen.shape[:-1], flat.shape[-1])))
        if self.signs is not None:
            signs = torch.split(self.signs, [self.tensors[i].numel for i in self.in_chunks])
            for i, sign in zip(self.in_chunks, signs, strict=True):
                tensors[i] = tensors[i] * sign.view(self.tensors[i].shape)
        return {t.name: tensors[i] for i, t in enumerate(self.tensors)}

    def head_inputs(self, codes: Tensor, steps: Steps = NO_STEPS) -> Tensor:
        """Codes behind the input layers, or as they are without any."""
        if self.inputs is None:
            return codes
        outputs = self._product(INPUTS, codes, steps)
        return normalise_rms(outputs) if self.normalise else outputs

    # ── variance ───────────────────────────────────────────────────────────────────────────────────────────────────

    def expected_moments(self, codes: Codes, *, exact: bool, trunk_preserves: bool) -> list[float | None]:
        """Expected ‖h‖² behind the input layers, which pass E[e²] on where they have fan-in init."""
        moments = super().expected_moments(codes, exact=exact, trunk_preserves=trunk_preserves)
        if self.inputs is None:
            return moments
        if exact and not trunk_preserves:
            return [None] * len(moments)
        return [None if m is None else self._moment_behind_inputs(m / self.width) for m in moments]

    def _moment_behind_inputs(self, code_square: float) -> float:
        """Expected ‖α‖² for codes with this E[e²], where Var(G) = 1/size.

        It is the variance of a chunk whose head has variance 1.
        """
        sizes = {"k": self.head_width, "l": self.width}
        return contraction_variance(CHUNK, sizes, [1.0, 1 / self.width, code_square])

    def measured_moments(self, codes: Codes) -> list[float]:
        """‖h‖² of each tensor's codes behind the input layers."""
        if self.normalise:
            return [float(self.head_width)] * len(self.tensors)
        return super().measured_moments(codes._replace(inputs=self.inputs))

    def inner_parameters(self, layer: LayerVariance) -> list[InnerParameter]:
        """The weight and the bias of the input layers."""
        if self.inputs is None:
            return []
        fans = Fans(self.width, self.head_width)
        then = ", then times the scale of the chunk's tensor" if self.scales_inputs else ""
        return [
            InnerParameter(f"{INPUTS}.weight", "weight", f"classical{then}", layer(fans), fans.fan_in, fans.fan_out),
            InnerParameter(f"{INPUTS}.bias", "bias", f"= 0{then}"),
        ]

    def level_inner_(self, codes: Codes) -> None:
        """Let each input layer make a code of the second moment expected of it."""
        if self.inputs is not None and not self.normalise:
            squares = stored_squares(codes._replace(inputs=self.inputs))
            if squares is not None:
                expected = self._moment_behind_inputs(codes.embeddings.mean_square)
                factors = (expected / squares.reshape(-1, self.n).mean(0)).sqrt()
                self.inputs.scale_(factors.to(self.inputs.weight))

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw heads and signs, and set the scale of each tensor."""
        super().write_(solutions, draw)
        if self.signs is not None:
            self.signs.copy_(torch.where(draw(torch.empty_like(self.signs, dtype=torch.float32), 1.0) < 0, -1, 1))

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
