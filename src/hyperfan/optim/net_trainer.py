"""One optimiser's side of a hypernet: in training with constant codes, what it makes is there from the last step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.generators.head_shards import apply_function
from hyperfan.generators.linear_map import has_hooks
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.transforms import transformed
from hyperfan.optim.form import FactoredLinears, Held, factored_linear
from hyperfan.optim.map_trainer import MapTrainer


class NetTrainer:
    """Hands a net all that its maps' trainers hold, without making codes to find that they are the same.

    Args:
        net: the hypernet.
        trainers: of its maps.
    """

    mode = FactoredLinears
    linear = staticmethod(factored_linear)

    def __init__(self, net: HyperNet, trainers: Sequence[MapTrainer]) -> None:
        self.net, self.trainers = net, trainers
        rows = [net.heads.rows_of(trainer.name) for trainer in trainers]
        self._rows = None if None in rows else [row for row in rows if row is not None]
        """The tensors that are rows of what each map makes, and their shape; ``None`` if those of a map are not."""
        self._seen: list[Tensor] = []
        self._made: list[int] = []

    def tensors(self) -> dict[str, Tensor] | None:
        """What the net generates, if all of it is held, and it is in training."""
        if self._rows is None or not torch.is_grad_enabled() or torch.compiler.is_compiling() or transformed():
            return None
        if self.net.trunk is not None or self.net.code_source.why_changing() is not None:
            return None
        if has_hooks(self.net.embeddings) or has_hooks(self.net.heads):
            return None
        if any(trainer.map.sharded for trainer in self.trainers):
            return None
        sources = [*self.net.embeddings.stored, self.net.heads.scale]
        made = [trainer.forms_made for trainer in self.trainers]
        if made != self._made or len(sources) != len(self._seen) or not all(map(_same, sources, self._seen)):
            if not self._made_from_codes():
                return None  # the maps' trainers will look at the codes
            self._made, self._seen = made, [source.detach().clone() for source in sources]
        held, parameters = [], []
        names: list[str] = []
        for trainer, (made_names, shape) in zip(self.trainers, self._rows, strict=True):
            form = trainer.ready() if trainer.attached else None
            if form is None:
                return None
            held.append((form, shape))
            parameters += [trainer.weight, trainer.bias]
            names += made_names
        tensors = dict(zip(names, apply_function(Held, held, *parameters), strict=True))
        base = self.net.heads.base
        return tensors if base is None else base(tensors, {})

    def _made_from_codes(self) -> bool:
        """Whether all trainers hold what their maps make of the net's codes as they are."""
        if not all(trainer.forms_made for trainer in self.trainers):
            return False
        codes = self.net.codes()
        return all(trainer.made_from(codes) for trainer in self.trainers)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """None: the copy of a net has no trainer."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
