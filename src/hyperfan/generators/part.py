"""A linear map in a generator, as an optimiser may use it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from hyperfan.generators.linear_map import LinearMap


@dataclass(frozen=True)
class Part:
    """One map: what it is called, and what it reads.

    Args:
        name: its name in the generator.
        map: the map.
        codes: number of codes that it reads in one call.
        inputs: from the net's (n, width) codes to those that the map reads; ``None`` where these come from another map.
        input_map: that other map.
    """

    name: str
    map: LinearMap
    codes: int
    inputs: Callable[[Tensor], Tensor] | None
    input_map: LinearMap | None = None

    @property
    def gradient_rank(self) -> int:
        """Rank of its weight's gradient in one call, at most; of each layer's, if each code has one."""
        return 1 if self.map.layer_per_code else self.codes
