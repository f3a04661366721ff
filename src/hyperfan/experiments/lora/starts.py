"""How hypernets that make LoRA's factors start: hyperfan's own way, and those of others, as generators.

Each makes ΔW = (α/r)·B·A from a code h, with A = H_A·h + β_A and B = H_B·h + β_B of the same sizes. The formulas of the
others are in :mod:`hyperfan.init.methods.charakorn2025`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from hyperfan.codes import Embedding
from hyperfan.experiments.lora import D2L, OURS, PER_TASK, T2L, TORCH, Lora
from hyperfan.experiments.seeds import generator
from hyperfan.generators import LoRA
from hyperfan.generators.aims import Aim, Draw, Moments, Solution
from hyperfan.generators.config import BuildContext
from hyperfan.generators.generator import Factors, Generator
from hyperfan.generators.layout import HeadLayout
from hyperfan.generators.lora import LoRAHeads
from hyperfan.generators.updates import update_size
from hyperfan.hypernet import HyperNet
from hyperfan.init.methods.charakorn2025 import doc_to_lora_variances, text_to_lora_variance


class StartedHeads(LoRAHeads):
    """LoRA's heads that start by formulas which do not look at the code."""

    NOTE: str

    def solve_update(
        self, layout: HeadLayout, aims: Sequence[Aim], moments: Moments
    ) -> tuple[float | None, list[float], str]:
        """The variance of H_A, whatever the aims."""
        return self.variances(*update_size(self.tensors[layout.tensors[0]]))[0], [1.0] * len(aims), self.NOTE

    @abstractmethod
    def variances(self, d_out: int, d_in: int) -> tuple[float, float, float, float]:
        """The variances of H_A, β_A, H_B and β_B."""

    def write_factors_(self, layout: HeadLayout, solutions: Sequence[Solution], draw: Draw) -> None:
        """Draw both heads of some weights."""
        a, b = (self.head(name) for name in layout.heads)
        variances = self.variances(*update_size(self.tensors[layout.tensors[0]]))
        for values, variance in zip((a.weight, a.bias, b.weight, b.bias), variances, strict=True):
            draw(values, variance)


class TextToLoRAHeads(StartedHeads):
    """Bias-HyperInit on peft's start: A ~ U(±1/√d_in), the same for all codes, and B = 0."""

    NOTE = "Text-to-LoRA: H = 0, β as peft starts a LoRA"

    def variances(self, d_out: int, d_in: int) -> tuple[float, float, float, float]:
        """A's bias alone."""
        return 0.0, text_to_lora_variance(d_in), 0.0, 0.0


class TorchLinearHeads(StartedHeads):
    """Both heads as ``nn.Linear`` draws them, U(±1/√d_k)."""

    NOTE = "nn.Linear: weights and biases of variance 1/(3·d_k)"

    def variances(self, d_out: int, d_in: int) -> tuple[float, float, float, float]:
        """One variance for all."""
        return (1 / (3 * self.width),) * 4


class DocToLoRAHeads(StartedHeads):
    """Both factors from heads without biases, times a factor for each rank, 1 of A's and 0 of B's, plus a common part.

    Doc-to-LoRA has the common parts as ranks of their own, which would double the rank here; they are added instead.
    """

    NOTE = "Doc-to-LoRA: B's factor of each rank is 0"

    def __init__(self, config: LoRA, context: BuildContext) -> None:
        super().__init__(config, context)
        for i in self.matrices:
            d_out, _ = update_size(self.tensors[i])
            sizes = {"scale_a": (self.rank, 1), "scale_b": (self.rank,), "common_b": (d_out, self.rank)}
            for name, size in sizes.items():
                values = torch.empty(size, device=context.device, dtype=self.tensors[i].dtype)
                self.register_parameter(f"{name}_{i}", nn.Parameter(values))

    def variances(self, d_out: int, d_in: int) -> tuple[float, float, float, float]:
        """The variances for a code of norm 1."""
        generated, common = doc_to_lora_variances(d_in, d_out, self.rank, self.width)
        return generated, common, generated, 0.0

    def write_(self, solutions: Sequence[Solution], draw: Draw) -> None:
        """Start the factors of each rank too."""
        super().write_(solutions, draw)
        for i in self.matrices:
            for name, start in (("scale_a", 1.0), ("scale_b", 0.0), ("common_b", 0.0)):
                draw(self.get_parameter(f"{name}_{i}"), 0.0, mean=start)

    def factors_of(self, index: int, outputs: Sequence[Tensor]) -> Factors:
        """B and A, each with its factor for each rank, and with the common part of B."""
        b, a = super().factors_of(index, outputs)
        scale_a, scale_b, common = (self.get_parameter(f"{n}_{index}") for n in ("scale_a", "scale_b", "common_b"))
        return b * scale_b + self.config.factor * common, a * scale_a


@dataclass(frozen=True)
class StartedLoRA(LoRA):
    """A LoRA that starts as one of the others."""

    start: str = T2L

    def build(self, context: BuildContext) -> Generator:
        """The heads of the start."""
        heads: dict[str, Callable[[LoRA, BuildContext], Generator]]
        heads = {T2L: TextToLoRAHeads, D2L: DocToLoRAHeads, TORCH: TorchLinearHeads}
        return heads[self.start](self, context)


class UnitNorm(nn.Module):
    """Scales each code to norm 1."""

    def forward(self, code: Tensor) -> Tensor:
        """Codes of any number."""
        return normalize(code, dim=-1)


def build(config: Lora, base: nn.Module, start: str, codes: Tensor) -> HyperNet:
    """A hypernet on a frozen language model, started from the seed; its trunk starts the same in all of them.

    Args:
        config: its sizes.
        base: the language model.
        start: one of the starts.
        codes: what the net is trained with, (tasks, size).
    """
    shares = {OURS: LoRA.share, PER_TASK: 1.0}
    heads: LoRA = StartedLoRA(config.rank, config.alpha, start=start)
    if start in shares:
        heads = LoRA(config.rank, config.alpha, share=shares[start])
    trunk = nn.Sequential(nn.Linear(codes.shape[1], config.code), nn.ReLU())
    if start == D2L:
        trunk.append(UnitNorm())
    net = HyperNet(
        base,
        Embedding(codes.shape[1], given=True, per="net"),
        generate="*.[qv]_proj.weight",
        heads=heads,
        trunk=None if start == PER_TASK else trunk,
        init_trunk=start != PER_TASK,
        example_embeddings=codes,
        example=torch.zeros(1, 2 * config.length + 2, dtype=torch.long),
    )
    net.reset_parameters(generator(config.seed, "start"))
    return net
