"""What a method wants of every generated tensor, worked out along the forward pass.

The exact reading takes a nonlinearity's gain at the variance that the plan itself gives the pre-activation before it.
For hyperfan-in that is 1 everywhere. Hyperfan-out lets the forward variance go where it goes; with a saturating
nonlinearity the slope goes with it, and a gain for variance 1 would let the gradients of 20 tanh layers grow eightfold.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from hyperfan.errors import InitError
from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Fidelity, Method, Reading, has_known_gain, reading
from hyperfan.mainnet.spec import TensorSpec


class Targets:
    """Readings and aims by tensor name. Each reading is made once, those of the layers before it first.

    Of a target variance, ``share`` is generated; the rest is a base, to which it is added, or which it multiplies. If
    no gain is needed, one that is not known counts as 1.
    """

    def __init__(
        self,
        tensors: Sequence[TensorSpec],
        method: Method,
        fidelity: Fidelity,
        share: float = 1.0,
        *,
        multiplies: bool = False,
        needs_gain: bool = True,
    ) -> None:
        self.method, self.fidelity, self.share, self.multiplies = method, fidelity, share, multiplies
        self.needs_gain = needs_gain
        self._tensors = {t.name: t for t in tensors}
        self._biases: dict[str, list[str]] = {}
        for t in tensors:
            for weight in t.weights:
                self._biases.setdefault(weight, []).append(t.name)
        self._aim = method.aims()
        self._readings: dict[str, Reading] = {}
        self._being_read: set[str] = set()

    def reading(self, name: str) -> Reading:
        """How the method sees a tensor."""
        chain = {name: None}
        while (before := self._before(next(reversed(chain)))) in self._tensors:
            if before in chain or before in self._readings:
                break
            chain[before] = None
        links = list(reversed(chain))
        if before in chain:  # a circle: a tied table is looked up first, and last read by its layer
            links.sort(key=lambda link: not self._tensors[link].looked_up)
        for link in links:
            self._read(link)
        return self._readings[name]

    def _before(self, name: str) -> str | None:
        """The tensor whose variance a tensor's own depends on."""
        return self._tensors[name].beside or self._tensors[name].reads

    def aim(self, name: str) -> Aim:
        """What the method wants of a tensor; a norm's parameter starts constant."""
        start = self._tensors[name].start
        if start is not None:
            return Aim(f"H = 0, β = {start:g}", head=lambda fans: 0.0, mean=start)
        aim = self._aim(self.reading(name))
        share = self.share if self.share == 1 else self.share * self.reading(name).generable
        return aim if aim.target is None else replace(aim, share=share, multiplies=self.multiplies)

    def aims(self) -> list[Aim]:
        """What the method wants of each tensor."""
        return [self.aim(name) for name in self._tensors]

    def output(self, weight: str) -> float | None:
        """Second moment that the output of this weight's layer should have, if the method says so."""
        self.reading(weight)
        return self._output_variance(weight) if self.aim(weight).target is not None else None

    def _read(self, name: str) -> Reading:
        if name not in self._readings:
            self._being_read.add(name)
            tensor = self._tensors[name]
            read = self._reading_of(tensor)
            if tensor.start is None and not math.isfinite(self._aim(read).target or 0.0):
                raise InitError(
                    f"'{tensor.layer}' reads a nonlinearity whose slope is zero everywhere, so no variance of "
                    f"'{name}' lets a gradient through: use hyperfan-in"
                )
            self._being_read.discard(name)
            self._readings[name] = read
        return self._readings[name]

    def _reading_of(self, tensor: TensorSpec) -> Reading:
        if tensor.start is not None or (tensor.fans is None and not self.method.needs_fans):
            return Reading(tensor.role, math.nan, math.nan)
        beside = self._biases.get(tensor.weights[0], []) if tensor.weights else []
        before, needed = self._variance_read(tensor.reads), self.method.needs_nonlinearity
        needed = needed and (self.needs_gain or has_known_gain(tensor, self.fidelity))
        read = reading(tensor, self.fidelity, gains=needed, before=before)
        row = self._variance_read(tensor.beside) if self.fidelity == "exact" else 1.0
        return replace(read, bias_generated=tensor.name in self._biases, summands=max(len(beside), 1), row=row)

    def _variance_read(self, weight: str | None) -> float:
        """The variance of what is read of a weight: its layer's output, or the rows of a tied table."""
        tensor = self._tensors.get(weight or "")
        if tensor is None or not tensor.looked_up:
            return self._output_variance(weight)
        return (self._aim(self._readings[tensor.name]).target or 1.0) if tensor.name in self._readings else 1.0

    def _output_variance(self, weight: str | None) -> float:
        """The variance of a layer's output; 1 where the plan does not decide it, or where the weight feeds itself."""
        if weight not in self._readings:
            return 1.0
        read, target = self._readings[weight], self._aim(self._readings[weight]).target
        if target is None:
            return 1.0
        biases = [name for name in self._biases.get(weight, ()) if name not in self._being_read]
        added = sum(self._aim(self._read(name)).target or 0.0 for name in biases)
        return read.fan_in * target * read.consumed + added
