"""From a call to codes: embeddings through the trunk. A code is what enters the generator."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hyperfan.codes.embedding import Task
from hyperfan.codes.embeddings import Embeddings
from hyperfan.errors import CallError


class Codes(NamedTuple):  # made at every call, for which a dataclass takes six times as long
    """The modules that make codes: embeddings, trunk and input layers.

    Args:
        embeddings: conditions and identities.
        trunk: from (rows, size) to (rows, width), if there is one.
        inputs: the generator's layers behind the trunk, if they are to count.
    """

    embeddings: Embeddings
    trunk: nn.Module | None
    inputs: nn.Module | None = None

    def __call__(self, task: Task | None, embedding: Tensor | None, noise: bool | None, dtype: torch.dtype) -> Tensor:
        """The codes of one call, for a net of this dtype: (n, width), or (batch, n, width)."""
        e = self.embeddings(task, embedding, noise)
        if e.dtype != dtype and not torch.is_autocast_enabled(e.device.type):
            raise CallError(f"embedding= is {e.dtype} and the net is {dtype}: convert one with .to(…)")
        return self.encode(e)

    def encode(self, e: Tensor) -> Tensor:
        """The codes of embeddings (…, n, size)."""
        h = e
        if self.trunk is not None:
            rows = self.trunk(e if e.ndim == 2 else e.reshape(-1, e.shape[-1]))
            h = rows if e.ndim == 2 else rows.view(*e.shape[:-1], rows.shape[-1])
        h = normalise_rms(h, self.embeddings.code_square) if self.embeddings.config.normalise else h
        return h if self.inputs is None else self.inputs(h)

    def why_changing(self) -> str | None:
        """The reason why codes may differ from one step of training to the next; ``None`` if they do not."""
        config = self.embeddings.config
        if config.given:
            return "its codes are given at the call"
        if config.tasks is not None:
            return "its codes change with the task"
        if config.noise:
            return "its codes have noise"
        if any(table.requires_grad for table in self.embeddings.stored):
            return "its embeddings are trained"
        if self.trunk is not None and any(p.requires_grad for p in self.trunk.parameters()):
            return "its codes come from a trunk that is trained"
        return None


def normalise_rms(h: Tensor, square: float | None = None) -> Tensor:
    """Scale each code to root mean square 1, or to this ‖h‖²; a code of zeros stays one."""
    factor = torch.rsqrt(h.square().mean(-1, keepdim=True).clamp_min(torch.finfo(h.dtype).tiny))
    return h * (factor if square is None else factor * math.sqrt(square / h.shape[-1]))
