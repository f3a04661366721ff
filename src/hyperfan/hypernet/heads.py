"""Linear heads: W = H·h + β."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hyperfan.hypernet.layout import Layout


class Engine(Protocol):
    """What an optimiser may put on the heads, to make their tensors and to keep their gradients its own way."""

    revision: int
    """Rises whenever it trains anything without writing to the heads."""

    def collapsed(self, codes: Tensor) -> dict[int, Tensor]:
        """The tensors, by index, that need no head just now."""

    def generate(self, name: str, codes: Tensor) -> Tensor:
        """What a head makes of (n, d_k)."""

    def codes(self, embeddings: Tensor) -> Tensor | None:
        """What the input layers of chunks would make, if that needs no layers just now."""

    def sync(self) -> None:
        """Write to the heads, and to input layers, what was trained without them."""


class Fresh(dict[str, nn.Parameter | None]):
    """The parameters of a module, which an engine brings up to date before anyone reads them through the module.

    ``dict(fresh)`` and ``dict.values(fresh)`` read them as they are.
    """

    def __init__(self, parameters: dict[str, nn.Parameter | None], sync: Callable[[], None]) -> None:
        super().__init__(parameters)
        self.sync = sync

    def __getitem__(self, name: str) -> nn.Parameter | None:
        self.sync()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As in a dict."""
        self.sync()
        return super().get(name, default)

    def items(self) -> Any:
        """As in a dict."""
        self.sync()
        return super().items()

    def values(self) -> Any:
        """As in a dict."""
        self.sync()
        return super().values()

    def __reduce__(self) -> tuple[Any, ...]:
        self.sync()
        return dict, (dict(self),)


class Engined(nn.Module):
    """A module whose parameters, or those of its children, an engine may train in another form."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine | None = None

    def attach(self, engine: Engine | None) -> None:
        """Let an engine train it, or, with ``None``, none. One that is ahead of it writes it first."""
        if self.engine is not None and self.engine is not engine:
            self.engine.sync()
        self.engine = engine
        for module in self.modules():
            plain = dict(module._parameters)
            module._parameters = plain if engine is None else Fresh(plain, engine.sync)

    def sync(self) -> None:
        """Let the parameters hold what was trained."""
        if self.engine is not None:
            self.engine.sync()

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        return {**self.__dict__, "engine": None}


class Head(nn.Module):
    """One head. H is stored as (d_k, outputs), in which both products of a training step are faster.

    Shape:
        codes (n, d_k) → (n, outputs)
    """

    def __init__(self, width: int, outputs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, outputs, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(outputs, device=device, dtype=dtype))

    def forward(self, codes: Tensor) -> Tensor:
        """Generate from each code."""
        return torch.addmm(self.bias, codes.to(self.weight.dtype), self.weight)

    def extra_repr(self) -> str:
        """Its size."""
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}"


class Heads(Engined, nn.ModuleDict):
    """All heads of a hypernet. An engine may be ahead of them: whoever reads them has it write them first.

    Args:
        layout: which code goes to which head, and what becomes of the pieces.
        width: d_k.
    """

    def __init__(self, layout: Layout, width: int, device: torch.device) -> None:
        super().__init__()
        self.layout = layout
        self.names = layout.names
        for name, made in layout.heads.items():
            self[name] = Head(width, made.outputs, device, made.dtype)
        self.outputs = [(t.name, t.shape) for t in layout.tensors]
        ones = torch.ones(len(layout.tensors), device=device, dtype=layout.tensors[0].dtype)
        self.register_buffer("scales", ones if layout.mixed else None)
        self.scales: Tensor | None

    def head(self, name: str) -> Head:
        """One of the heads."""
        found = self[name]
        assert isinstance(found, Head)
        return found

    def forward(
        self,
        codes: Tensor,
        *,
        skip: Collection[int] = (),
        own: bool = False,
        steps: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Generate every tensor but those to skip, from (pieces, d_k), or a batch of each from (batch, pieces, d_k).

        Args:
            codes: one for each piece.
            skip: tensors that are not needed, by index.
            own: whether the tensors are for keeping. What an engine trains in place of a head is otherwise lent, and
                changes with training.
            steps: by which the heads' parameters, "name.weight" and "name.bias", are taken to be ahead.
        """
        made = {} if self.engine is None else self.engine.collapsed(codes)
        if own:
            made = {i: tensor.clone() for i, tensor in made.items()}
        for name, head in self.layout.heads.items():
            wanted = [i for i in head.tensors if i not in made and i not in skip]
            if not wanted:
                continue
            spans = [codes[..., s, :] for s in self.layout.rows(name, wanted)]
            chosen = spans[0] if len(spans) == 1 else torch.cat(spans, -2)
            rows = chosen.reshape(-1, codes.shape[-1])
            flat = self.head(name)(rows) if self.engine is None else self.engine.generate(name, rows)
            if steps is not None:
                flat = _ahead(flat, rows, steps.get(f"{name}.weight"), steps.get(f"{name}.bias"))
            parts = self.layout.parts(name, wanted, flat.view(*chosen.shape[:-1], head.outputs))
            made.update(parts if self.scales is None else {i: t * self.scales[i] for i, t in parts.items()})
        return {name: made[i] for i, (name, _) in enumerate(self.outputs) if i in made}


def _ahead(flat: Tensor, rows: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """What a head would make after a step: the step's own part is added, so that the head's gradient keeps its form."""
    flat = flat if weight is None else flat + rows @ weight
    return flat if bias is None else flat + bias
