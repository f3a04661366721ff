"""What a method asks of every generated tensor, worked out along the forward pass.

The exact reading takes a nonlinearity's gain at the variance that the plan itself gives the pre-activation before it.
For hyperfan-in that is 1 everywhere. Hyperfan-out lets the forward variance go where it goes; with a saturating
nonlinearity the slope goes with it, and a gain for variance 1 would let the gradients of 20 tanh layers grow eightfold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hyperfan.errors import InitError
from hyperfan.formulas.fans import Fans
from hyperfan.init.registry import Aim, Fidelity, Method, Reading, reading
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class Slot:
    """How a generator makes one tensor: through which head, from a code of which width and second moment ‖h‖².

    The moment is ``None`` while it cannot be known, as for a trunk of the user's own that has no values yet.
    """

    tensor: TensorSpec
    head: str
    width: int
    moment: float | None


class Asked:
    """Readings and aims by tensor name, each made once, those of the layers before it first."""

    def __init__(self, slots: Sequence[Slot], method: Method, fidelity: Fidelity) -> None:
        self.method, self.fidelity = method, fidelity
        self._slots = {s.tensor.name: s for s in slots}
        self._biases: dict[str, list[str]] = {}
        for s in slots:
            if s.tensor.role == "bias":
                self._biases.setdefault(s.tensor.layer, []).append(s.tensor.name)
        self._aim = method.aims()
        self._found: dict[str, tuple[Reading, Aim]] = {}
        self._open: set[str] = set()

    def of(self, name: str) -> tuple[Reading, Aim]:
        """The reading of a tensor, and what the method asks of it."""
        if name not in self._found:
            self._open.add(name)
            slot = self._slots[name]
            read = self._read(slot.tensor)
            aim = self._aim(read, Fans(slot.width, slot.tensor.numel))
            if not math.isfinite(aim.target or 0.0):
                raise InitError(
                    f"'{slot.tensor.layer}' reads a nonlinearity whose slope is zero everywhere, so no variance of "
                    f"'{name}' lets a gradient through: use hyperfan-in"
                )
            self._found[name] = read, aim
            self._open.discard(name)
        return self._found[name]

    def _read(self, tensor: TensorSpec) -> Reading:
        if tensor.fans is None and not self.method.needs_fans:
            return Reading(tensor.role, math.nan, math.nan)
        return reading(
            tensor,
            self.fidelity,
            gains=self.method.needs_nonlinearity,
            bias_generated=tensor.layer in self._biases,
            before=self._output_variance(tensor.reads),
        )

    def _output_variance(self, weight: str | None) -> float:
        """Of the layer of this weight; 1 where the plan does not decide it, or where the weight feeds itself."""
        if weight not in self._slots or weight in self._open or not self.method.needs_nonlinearity:
            return 1.0
        read, aim = self.of(weight)
        if aim.target is None:
            return 1.0
        biases = (self.of(name)[1].target or 0.0 for name in self._biases.get(self._slots[weight].tensor.layer, ()))
        return read.fan_in * aim.target * read.consumed + sum(biases)
