"""What a method asks of every generated tensor, worked out along the forward pass.

The exact reading takes a nonlinearity's gain at the variance that the plan itself gives the pre-activation before it.
For hyperfan-in that is 1 everywhere. Hyperfan-out lets the forward variance go where it goes; with a saturating
nonlinearity the slope goes with it, and a gain for variance 1 would let the gradients of 20 tanh layers grow eightfold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperfan.errors import InitError
from hyperfan.formulas.fans import Fans
from hyperfan.init.registry import Aim, Fidelity, Method, Reading, reading
from hyperfan.mainnet.spec import TensorSpec


@dataclass(frozen=True)
class Slot:
    """How a generator makes one tensor: through which head, from a code of which width and second moment ‖h‖².

    ``outputs`` is how many values the head makes at once. The moment is ``None`` while it cannot be known, as for a
    trunk of the user's own that has no values yet. ``cut`` tells that the tensor comes in chunks, whose head serves
    tensors of any target.
    """

    tensor: TensorSpec
    head: str
    width: int
    outputs: int
    moment: float | None
    cut: bool = False


class Asked:
    """Readings and aims by tensor name, each made once, those of the layers before it first."""

    def __init__(self, slots: Sequence[Slot], method: Method, fidelity: Fidelity) -> None:
        self.method, self.fidelity = method, fidelity
        self._slots = {s.tensor.name: s for s in slots}
        self._biases: dict[str, list[str]] = {}
        for s in slots:
            for weight in s.tensor.weights:
                self._biases.setdefault(weight, []).append(s.tensor.name)
        self._aim = method.aims()
        self._found: dict[str, tuple[Reading, Aim]] = {}
        self._open: set[str] = set()

    def of(self, name: str) -> tuple[Reading, Aim]:
        """The reading of a tensor, and what the method asks of it."""
        chain = {name: None}
        while (before := self._slots[next(reversed(chain))].tensor.reads) in self._slots:
            if before in chain or before in self._found:
                break
            chain[before] = None
        for link in reversed(chain):
            self._work_out(link)
        return self._found[name]

    def output(self, weight: str) -> float | None:
        """Second moment that the output of this weight's layer should have, if the method says so."""
        self.of(weight)
        return self._output_variance(weight) if self._found[weight][1].target is not None else None

    def _work_out(self, name: str) -> tuple[Reading, Aim]:
        if name not in self._found:
            self._open.add(name)
            slot = self._slots[name]
            read = self._read(slot.tensor)
            aim = self._aim(read, Fans(slot.width, slot.outputs))
            if not math.isfinite(aim.target or 0.0):
                raise InitError(
                    f"'{slot.tensor.layer}' reads a nonlinearity whose slope is zero everywhere, so no variance of "
                    f"'{name}' lets a gradient through: use hyperfan-in"
                )
            self._open.discard(name)
            self._found[name] = read, aim
        return self._found[name]

    def _read(self, tensor: TensorSpec) -> Reading:
        if tensor.fans is None and not self.method.needs_fans:
            return Reading(tensor.role, math.nan, math.nan)
        beside = self._biases.get(tensor.weights[0], []) if tensor.weights else []
        read = reading(
            tensor,
            self.fidelity,
            gains=self.method.needs_nonlinearity,
            before=self._output_variance(tensor.reads),
        )
        return replace(read, bias_generated=tensor.name in self._biases, summands=max(len(beside), 1))

    def _output_variance(self, weight: str | None) -> float:
        """Of the layer of this weight; 1 where the plan does not decide it, or where the weight feeds itself."""
        if weight not in self._found:
            return 1.0
        read, aim = self._found[weight]
        if aim.target is None:
            return 1.0
        biases = [name for name in self._biases.get(weight, ()) if name not in self._open]
        added = sum(self._work_out(name)[1].target or 0.0 for name in biases)
        return read.fan_in * aim.target * read.consumed + added
