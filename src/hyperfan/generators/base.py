"""The base W⁰ of generated tensors: what the weights of all codes have in common.

Of the variance v that a tensor should have, the share ρ is generated. Added, W = W⁰ + M(h), that is Var(M) = ρ·v and
Var(W⁰) = (1 − ρ)·v. Multiplied, W = W⁰ ⊙ (1 + M(h)) as in trans-INR and light fields, with M independent of W⁰ and of
mean zero,

    Var(W) = E[W⁰²]·E[(1 + M)²] = Var(W⁰)·(1 + Var(M)),

of which Var(W⁰)·Var(M) is generated: Var(W⁰) = (1 − ρ)·v again, and Var(M) = ρ/(1 − ρ), whatever v is; ρ = 1 cannot be.
Either way two codes h and h′ make weights whose correlation is 1 − ρ + ρ·cos(h, h′), multiplied because
E[W·W′] = Var(W⁰)·(1 + E[M·M′]): the larger the base, the more of what is learnt under one condition holds under the
others.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hyperfan.errors import InitError
from hyperfan.generators.aims import Aim, Draw
from hyperfan.generators.layout import attribute_name
from hyperfan.mainnet.spec import TensorSpec


class Base(nn.Module):
    """The bases of some tensors: parameters where they are trained, else buffers that are not saved.

    Args:
        tensors: those that have a base.
        values: given ones by name, of which those that require gradients are trained, as copies, and the others are
            held as they are; a base without a value is drawn at the start, and trained. One that is given on the meta
            device is drawn too, and saved.
        device: of bases without values.
        multiply: whether tensors are W⁰ ⊙ (1 + M), and not W⁰ + M.

    Attributes:
        kept: names of tensors whose bases have given values.
    """

    def __init__(
        self, tensors: Sequence[TensorSpec], values: Mapping[str, Tensor], device: torch.device, *, multiply: bool
    ) -> None:
        super().__init__()
        self.names, self.multiply = {t.name: attribute_name(t) for t in tensors}, multiply
        self.kept = {t.name for t in tensors if t.name in values and not values[t.name].is_meta}
        self.given = {t.name for t in tensors if t.name in values}
        for t in tensors:
            value = values.get(t.name)
            if value is None or value.requires_grad:
                empty = torch.empty(t.shape, device=device, dtype=t.dtype) if value is None else value.detach().clone()
                self.register_parameter(self.names[t.name], nn.Parameter(empty))
            elif multiply and t.name in self.kept and not value.any():
                raise InitError(
                    f"the base of '{t.name}' is zero and frozen, so that whatever it is multiplied by stays zero: use "
                    "base_op='add', or leave the tensor out of generate="
                )
            else:
                self.register_buffer(self.names[t.name], value.detach(), persistent=t.name not in self.kept)

    def __contains__(self, name: str) -> bool:
        """Whether a tensor has a base here."""
        return name in self.names

    def value(self, name: str) -> Tensor:
        """The base of a tensor."""
        found: Tensor = getattr(self, self.names[name])
        return found

    def to_json(self) -> dict[str, bool | None]:
        """The bases that were given, and whether they are trained; ``None`` where they are not, and yet saved."""
        trained = {name: isinstance(self.value(name), nn.Parameter) for name in self.names if name in self.given}
        return {name: of or (False if name in self.kept else None) for name, of in trained.items()}

    def forward(self, tensors: Mapping[str, Tensor], steps: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors, or batches of them, on their bases, after steps of these."""
        added = dict(tensors)
        for name in self.names.keys() & tensors.keys():
            step = steps.get(f"base.{self.names[name]}")
            base = self.value(name) if step is None else self.value(name) + step
            added[name] = torch.addcmul(base, tensors[name], base) if self.multiply else tensors[name] + base
        return added

    def write_(self, aims: Mapping[str, Aim], draw: Draw, *, means: bool = False) -> None:
        """Draw the bases that have no values, around the means of their tensors if no head makes these."""
        for name in self.names:
            if name not in self.kept:
                draw(self.value(name), aims[name].common, mean=aims[name].mean if means else 0.0)

    @torch.no_grad()
    def scale_(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Multiply tensors, given by name, in their bases; those that are not trained are not ours to change.

        Returns the factors that what is generated is to be multiplied by.
        """
        for name in self.names.keys() & factors.keys():
            if not isinstance(self.value(name), nn.Parameter):
                raise InitError(f"the base of '{name}' is frozen, so that the tensor cannot be scaled as a whole")
        for name in self.names.keys() & factors.keys():
            self.value(name).mul_(factors[name])
        return {name: f for name, f in factors.items() if not (self.multiply and name in self.names)}
