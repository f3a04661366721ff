"""The base W⁰ of generated tensors, W = W⁰ + W(h): what the weights of all codes have in common.

With a share ρ of the variance v that a tensor should have, Var(W(h)) = ρ·v and Var(W⁰) = (1 − ρ)·v. Two codes h and h′
then make weights whose correlation is 1 − ρ + ρ·cos(h, h′): the larger the base, the more of what is learnt under one
condition holds under the others.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hyperfan.errors import InitError
from hyperfan.generators.aims import Draw
from hyperfan.generators.layout import tensor_name
from hyperfan.mainnet.spec import TensorSpec


class Base(nn.Module):
    """The bases of some tensors: parameters where they are trained, else buffers that are not saved.

    Args:
        tensors: those that have a base.
        values: given ones by name, of which those that require gradients are trained, as copies, and the others are
            held as they are; a base without a value is drawn at the start, and trained.
        device: of bases without values.
    """

    def __init__(self, tensors: Sequence[TensorSpec], values: Mapping[str, Tensor], device: torch.device) -> None:
        super().__init__()
        self.names = {t.name: tensor_name(t) for t in tensors}
        self.drawn = [t.name for t in tensors if t.name not in values]
        for t in tensors:
            value = values.get(t.name)
            if value is None or value.requires_grad:
                empty = torch.empty(t.shape, device=device, dtype=t.dtype) if value is None else value.detach().clone()
                self.register_parameter(self.names[t.name], nn.Parameter(empty))
            else:
                self.register_buffer(self.names[t.name], value.detach(), persistent=False)

    def __contains__(self, name: str) -> bool:
        """Whether a tensor has a base here."""
        return name in self.names

    def value(self, name: str) -> Tensor:
        """The base of a tensor."""
        found: Tensor = getattr(self, self.names[name])
        return found

    def to_json(self) -> dict[str, bool]:
        """The bases that were given, and whether they are trained."""
        return {name: isinstance(self.value(name), nn.Parameter) for name in self.names if name not in self.drawn}

    def forward(self, tensors: Mapping[str, Tensor], steps: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors, or batches of them, on their bases, after steps of these."""
        added = dict(tensors)
        for name in self.names.keys() & tensors.keys():
            step = steps.get(f"base.{self.names[name]}")
            base = self.value(name) if step is None else self.value(name) + step
            added[name] = tensors[name] + base
        return added

    def write_(self, variances: Mapping[str, float], draw: Draw) -> None:
        """Draw the bases that are not given."""
        for name in self.drawn:
            draw(self.value(name), variances[name])

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> None:
        """Multiply bases, given by name of their tensor; those that are not trained are not ours to change."""
        for name in self.names.keys() & factors.keys():
            if not isinstance(self.value(name), nn.Parameter):
                raise InitError(f"the base of '{name}' is frozen, so that the tensor cannot be scaled as a whole")
        for name in self.names.keys() & factors.keys():
            self.value(name).mul_(factors[name])
