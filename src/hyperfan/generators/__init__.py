"""How do codes become tensors? One file for each generator; nobody outside asks which one it is."""

from hyperfan.generators.aims import Aim, Solution
from hyperfan.generators.base import Generator, GeneratorConfig, Part
from hyperfan.generators.chunks import Chunks
from hyperfan.generators.linear import Linear, Sharing
from hyperfan.generators.low_rank import LowRank

__all__ = ["Aim", "Chunks", "Generator", "GeneratorConfig", "Linear", "LowRank", "Part", "Sharing", "Solution"]
