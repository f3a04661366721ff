"""``LayerOutput``: what one call of a layer put out."""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class LayerOutput:
    """The output of one call of a layer, with its graph if there is one, and local names of the weights behind it.

    Where each input ran alone, ``values`` are all outputs, and ``pieces`` those of each. Of a layer that no
    rule knows, ``found_kernel`` is the number of kernel dimensions; ``has_bias``: whether the bias is in the values.
    """

    label: str
    path: str
    module: nn.Module
    weights: tuple[str, ...]
    values: Tensor
    pieces: tuple[Tensor, ...] = ()
    found_kernel: int | None = None
    has_bias: bool = True

    @property
    def kernel_dimensions(self) -> int:
        """The number of dimensions after that of the units or channels."""
        if self.found_kernel is not None:
            return self.found_kernel
        return len(self.module.kernel_size) if isinstance(self.module, nn.modules.conv._ConvNd) else 0

    @property
    def units(self) -> int:
        """The dimension of the units or channels."""
        return self.values.ndim - 1 - self.kernel_dimensions

    @property
    def sums(self) -> bool:
        """Whether the values are the sums that the weights make; a recurrent layer puts out a function of them."""
        return not isinstance(self.module, nn.RNNBase | nn.RNNCellBase)
