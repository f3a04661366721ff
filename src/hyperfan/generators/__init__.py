"""How do codes become tensors? One file for each generator; nobody outside asks which one it is."""

from hyperfan.generators.aims import Aim, Solution
from hyperfan.generators.base import Generator, GeneratorConfig
from hyperfan.generators.chunks import Chunks
from hyperfan.generators.layout import Sharing
from hyperfan.generators.linear import Linear
from hyperfan.generators.lora import LoRA
from hyperfan.generators.low_rank import LowRank
from hyperfan.generators.part import Part

__all__ = ["Aim", "Chunks", "Generator", "GeneratorConfig", "Linear", "LoRA", "LowRank", "Part", "Sharing", "Solution"]
