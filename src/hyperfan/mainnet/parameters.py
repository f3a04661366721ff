"""The parameters in a traced run: which tensors are one, and what those without a rule turn out to do.

Fans come from what a layer does: a matrix that multiplies what is traced is the weight of a layer, whoever wrote it,
and its fans are the indices that are summed. That holds for transposed weights (GPT-2's Conv1D) and for those of
several experts in one tensor alike.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hyperfan.formulas.fans import Fans
from hyperfan.mainnet import operations as op
from hyperfan.mainnet.replay import TorchCall
from hyperfan.mainnet.rules import Use
from hyperfan.mainnet.spec import Role


@dataclass(frozen=True)
class Origin:
    """The parameter that a tensor is, or was made of and nothing else.

    Args:
        name: of the parameter.
        role: of the parameter, by rule.
        raw: whether the tensor has the parameter's values, all or some of them, at whatever positions.
        unit_at: the value at which the parameter makes the tensor 1, where that is known.
        first: the dimension of the tensor that is the parameter's first, where that is known.
    """

    name: str
    role: Role
    raw: bool = True
    unit_at: float | None = 1.0
    first: int | None = 0


class Parameters:
    """The origins of tensors, and the uses that are found of parameters without a rule."""

    def __init__(self, parameters: Mapping[int, tuple[str, Role]]) -> None:
        self.uses: dict[str, Use] = {}
        self._origins = {key: Origin(name, role) for key, (name, role) in parameters.items()}
        self._computed: set[int] = set()
        self._seen: dict[str, set[bool]] = {}

    def get(self, value: Any) -> Origin | None:
        """The parameter that a tensor is or was made of."""
        return self._origins.get(id(value))

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._origins

    def of(self, tensors: Sequence[Tensor]) -> list[Origin]:
        """The parameters among these tensors."""
        return [self._origins[id(t)] for t in tensors if id(t) in self._origins]

    def is_computed(self, tensor: Tensor) -> bool:
        """Whether a tensor was computed from parameters and from nothing that is traced."""
        return id(tensor) in self._computed

    def derive(self, call: TorchCall, outputs: Sequence[Tensor]) -> bool:
        """Whether a call that read nothing traced made its outputs of one parameter, whose they are from now on."""
        found = [] if call.name in op.SHAPE_ONLY else self.of(call.tensors)
        if found or any(self.is_computed(t) for t in call.tensors):
            self._computed.update(id(t) for t in outputs)
        if len({origin.name for origin in found}) != 1:
            return False
        raw = call.name in op.UNCHANGED | op.REARRANGEMENTS | op.SELECTIONS
        numbers = [a for a in call.args if isinstance(a, int | float)]
        unit_at = found[0].unit_at if raw else None
        if call.name == "add" and len(call.args) == 2 and numbers and not call.kwargs and found[0].unit_at is not None:
            unit_at = found[0].unit_at - numbers[0]  # a gain 1 + w
        source = next(t for t in call.tensors if t in self)
        for output in outputs:
            first = _first_dimension(call, source, output, found[0].first)
            self._origins[id(output)] = replace(found[0], raw=found[0].raw and raw, unit_at=unit_at, first=first)
        return True

    def see(self, call: TorchCall) -> None:
        """Note of parameters without a rule whether a call that does something uses them element by element."""
        if call.name in op.UNCHANGED | op.REARRANGEMENTS | op.SELECTIONS | op.SHAPE_ONLY:
            return
        multiplied = _multiplied(call)
        for tensor in call.tensors:
            origin = self.get(tensor)
            if origin is not None and origin.role == "other":
                # A product with a matrix, element by element, may be followed by a sum.
                may_sum = call.name in op.PRODUCTS and sum(size > 1 for size in tensor.shape) > 1
                alone = call.name in op.NOT_LAYERS and not may_sum
                self._seen.setdefault(origin.name, set()).add(alone or not any(tensor is t for t in multiplied))

    @property
    def elementwise(self) -> set[str]:
        """The parameters that were only added to values, multiplied with them one by one, or put beside them."""
        return {name for name, alone in self._seen.items() if alone == {True}}

    def layer(self, call: TorchCall) -> list[str]:
        """The weights that make a call a layer."""
        if call.name in op.NOT_LAYERS:
            return []
        for reading in _readings(call) if any(origin.role == "other" for origin in self.of(call.tensors)) else ():
            weight, bias = self.get(reading.weight), self.get(reading.bias)
            if weight is not None and weight.role == "other" and weight.raw and reading.weight.is_floating_point():
                in_first = reading.inputs is not None and reading.inputs == weight.first
                self.uses.setdefault(weight.name, Use("weight", reading.fans, in_first=in_first))
                if bias is not None and bias.role == "other" and bias.raw:
                    self.uses.setdefault(bias.name, Use("bias", weight=weight.name))
                return [weight.name]
        names = [
            origin.name
            for origin in self.of(_multiplied(call))
            if origin.role == "weight" or (origin.role == "other" and call.name in op.MATRIX_PRODUCTS)
        ]
        return list(dict.fromkeys(names))

    def added(self, call: TorchCall, weight: str | None) -> None:
        """A vector without a rule that is added to what a layer put out is its bias, if they are of one module."""
        for tensor in call.tensors:
            origin = self.get(tensor)
            if origin is None or origin.role != "other" or not origin.raw or origin.name in self.uses:
                continue
            if weight in self.uses and _owner(origin.name) == _owner(weight):
                self.uses[origin.name] = Use("bias", weight=weight)

    def norm(self, call: TorchCall) -> None:
        """A parameter without a rule that multiplies what a norm put out is its gain, and starts where it is.

        If several values make a gain, it starts at 1. What the same module adds afterwards is the norm's shift.
        """
        for tensor in call.tensors:
            origin = self.get(tensor)
            if origin is None or origin.role != "other" or origin.unit_at is None:
                continue
            if call.name in op.PRODUCTS:
                value = common_value(tensor)
                start = origin.unit_at if value is None else value - 1 + origin.unit_at
                self.uses.setdefault(origin.name, Use("scale", start=start))
            elif call.name in op.ADDITIONS:
                norms = {_owner(name) for name, use in self.uses.items() if use.role == "scale"}
                if _owner(origin.name) in norms:
                    self.uses.setdefault(origin.name, Use("shift", start=0.0))


def _multiplied(call: TorchCall) -> list[Tensor]:
    """The tensors of a call without an attention's mask, which is added."""
    mask = call.kwargs.get("attn_mask") if call.name == "scaled_dot_product_attention" else None
    return [t for t in call.tensors if t is not mask]


def _first_dimension(call: TorchCall, source: Tensor, output: Tensor, first: int | None) -> int | None:
    """The dimension of a call's output that was this one of its source; ``None`` if that is not known."""
    if first is None or output.ndim != source.ndim:
        return None
    if call.name not in op.REARRANGEMENTS or (output.shape, output.stride()) == (source.shape, source.stride()):
        return first
    reversed_layout = source.shape[::-1], source.stride()[::-1]
    return 1 - first if source.ndim == 2 and (output.shape, output.stride()) == reversed_layout else None


@dataclass(frozen=True)
class _Layer:
    """A call read as a layer; ``inputs`` is the first dimension of its weight over which the layer sums."""

    weight: Any
    fans: Fans
    inputs: int | None
    bias: Any = None


def _readings(call: TorchCall) -> Iterator[_Layer]:
    """A product as a layer: with its second factor as the weight, or with its first."""
    args, name = call.args, call.name
    if name == "linear":
        yield from _matrix(_argument(call, 1, "weight"), out_first=True, bias=_argument(call, 2, "bias"))
    elif name in op.CONVOLUTIONS:
        yield from _convolution(call)
    elif name in op.LOOKUPS:
        weight = _argument(call, 1, "weight")
        yield _Layer(weight, Fans(1, weight.shape[-1]), inputs=None)
    elif name == "einsum" and isinstance(args[0], str):
        yield from _contraction(args[0], args[1] if isinstance(args[1], list | tuple) else args[1:])
    elif name in op.BIASED_PRODUCTS and len(args) > 2:
        yield from _matrix(args[2], out_first=False, bias=args[0])
        yield from _matrix(args[1], out_first=True, bias=args[0])
    elif name in op.PLAIN_PRODUCTS and len(args) > 1:
        yield from _matrix(args[1], out_first=False)
        yield from _matrix(args[0], out_first=True)


def _matrix(weight: Any, out_first: bool, bias: Any = None) -> Iterator[_Layer]:
    if isinstance(weight, Tensor) and weight.ndim > 1:
        rows, columns = weight.shape[-2:]
        fans, inputs = (Fans(columns, rows), weight.ndim - 1) if out_first else (Fans(rows, columns), weight.ndim - 2)
        yield _Layer(weight, fans, inputs, bias)


def _convolution(call: TorchCall) -> Iterator[_Layer]:
    weight, groups = _argument(call, 1, "weight"), _argument(call, 6, "groups") or 1
    transposed = "transpose" in call.name
    if isinstance(weight, Tensor) and weight.ndim > 2:
        fans = Fans.of_weight(weight.shape, _argument(call, 3, "stride") or 1, groups, transposed)
        yield _Layer(weight, fans, 0 if transposed else 1, _argument(call, 2, "bias"))


def _contraction(equation: str, operands: Sequence[Tensor]) -> Iterator[_Layer]:
    """The indices of a weight that the other operand has and the result has not are summed, the other way backward."""
    inputs, arrow, out = equation.replace(" ", "").replace("...", "").partition("->")
    names = inputs.split(",")
    if not arrow or len(names) != 2 or len(operands) != 2:
        return
    for weight, mine, other in ((operands[1], names[1], names[0]), (operands[0], names[0], names[1])):
        if weight.ndim == len(mine):
            sizes = dict(zip(mine, weight.shape, strict=True))
            summed = [i for i in sizes if i in other and i not in out]
            forward = math.prod(sizes[i] for i in summed)
            backward = math.prod(sizes[i] for i in sizes if i not in other and i in out)
            yield _Layer(weight, Fans(forward, backward), mine.index(summed[0]) if summed else None)


def _argument(call: TorchCall, place: int, name: str) -> Any:
    return call.args[place] if len(call.args) > place else call.kwargs.get(name)


def common_value(tensor: Tensor) -> float | None:
    """The one value that all elements have; ``None`` if there are several, or none that can be read."""
    if tensor.is_meta or tensor.numel() == 0 or tensor.is_complex():
        return None
    flat = tensor.detach().reshape(-1)
    return flat[0].to("cpu", torch.float64).item() if (flat == flat[0]).all() else None


def rms(gain: Tensor) -> float:
    """The root mean square of a gain; of one that is zero or has no values, what it will become."""
    return 1.0 if gain.is_meta else gain.detach().double().square().mean().sqrt().item() or 1.0


def _owner(name: str | None) -> str:
    return (name or "").rpartition(".")[0]
