"""How do codes become tensors? One file for each generator; nobody outside asks which one it is."""

from hyperfan.generators.chunks import Chunks
from hyperfan.generators.config import GeneratorConfig
from hyperfan.generators.linear import Linear
from hyperfan.generators.lora import LoRA
from hyperfan.generators.low_rank import LowRank

__all__ = ["Chunks", "GeneratorConfig", "Linear", "LoRA", "LowRank"]
