"""What trains: a net, or a grid of nets side by side, as the loop asks it. Nothing here needs torch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from hyperfan.metrics import Row

if TYPE_CHECKING:
    from torch import Tensor


class Training(ABC):
    """A net that is being trained: what the loop asks of an experiment."""

    plan: Any
    """What the init wrote, as JSON."""

    collective: ClassVar[bool] = False
    """Whether ``tests`` and ``state`` need all processes of the run, not the first alone."""

    @property
    def state_is_exact(self) -> bool:
        """Whether to take its state changes nothing that comes later, so that a checkpoint may be saved at any step."""
        return True

    @abstractmethod
    def step(self, step: int) -> float:
        """Train on one batch, of which ``step`` came before; returns its loss."""

    @abstractmethod
    def tests(self, step: int) -> Iterator[Row]:
        """The lines of metrics that are due after so many batches, apart from those of the probe."""

    def probes(self, step: int) -> Iterator[Row]:
        """The lines of the probe that are due after so many batches; none without a probe."""
        return iter(())

    def first_overflow(self, step: int) -> str | None:
        """The first layer that is not finite on the batch after so many batches, if one layer stands for the net."""
        return None

    @abstractmethod
    def state(self) -> "dict[str, Tensor]":
        """All that changes in training."""

    @abstractmethod
    def load(self, state: "dict[str, Tensor]") -> None:
        """Restore what ``state`` returned."""

    def synchronise(self, step: int) -> int:
        """Give all processes of a run the state of the first one; returns its step."""
        return step


class GridTraining(Training):
    """Many runs side by side, whose metrics list values by run."""

    latest: "Tensor"
    """The losses of the last batch, of all runs that are left."""

    def summarise(self, losses: "Tensor") -> float:
        """Keep the losses of a batch that are finite; returns what stands for them."""
        self.latest = losses[losses.isfinite()]
        return self.typical(self.latest)

    @staticmethod
    def typical(losses: "Tensor") -> float:
        """What stands for the losses of all runs: their mean, or NaN if none is left."""
        return losses.mean().item() if len(losses) else math.nan
