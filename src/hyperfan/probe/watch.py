"""One pass through a mainnet, watched: what every layer puts out, and what goes into its nonlinearities."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.mainnet.rules import uses

_CONVOLUTIONS = nn.modules.conv._ConvNd
FLAT = {"tanh": 2.18, "sigmoid": 4.36}
"""Beyond which input a function has less than a twentieth of its greatest slope."""
DEAD = {"relu", "relu6"}


@dataclass(frozen=True)
class Output:
    """What a layer put out.

    Args:
        path: of the module.
        weights: local names of the weights that made it.
        values: with the graph that they came from, if there is one.
        units: the dimension of the units or channels.
        sums: whether the values are the weights' own sums; a recurrent layer puts out what it made of them.
    """

    path: str
    kind: str
    weights: tuple[str, ...]
    values: Tensor
    units: int
    sums: bool = True


@dataclass(frozen=True)
class Into:
    """What went into a nonlinearity: behind which layer, and which share of it is of no use.

    Args:
        flat: of the values, where the function has less than a twentieth of its greatest slope.
        dead: of the units, to which a ReLU gives zero on every input.
    """

    layer: str
    function: str
    flat: float
    dead: float


class Watch(TorchFunctionMode):
    """Put on a module as a context; afterwards ``outputs`` has every layer in the order they ran.

    Args:
        module: the mainnet.
        watched: paths of the modules to watch, besides those known to have weights.
    """

    def __init__(self, module: nn.Module, watched: Sequence[str] = ()) -> None:
        super().__init__()
        self.outputs: dict[str, Output] = {}
        self.into: list[Into] = []
        self._modules = [(p, m) for p, m in module.named_modules() if p in watched or weights_of(m)]
        self._handles: list[Any] = []
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> "Watch":
        for path, module in self._modules:
            if isinstance(module, nn.MultiheadAttention):
                self._handles.append(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(path)))
        super().__enter__()  # type: ignore[no-untyped-call]  # torch has no types for its modes
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]  # torch has no types for its modes
        for handle in self._handles:
            handle.remove()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function; of a nonlinearity, look at its input."""
        name = getattr(func, "__name__", "").strip("_")
        if (name in FLAT or name in DEAD) and args and isinstance(args[0], Tensor) and self.outputs:
            self._note(name, args[0].detach())
        return func(*args, **(kwargs or {}))

    @staticmethod
    def sums(module: nn.Module) -> bool:
        """Whether a module puts out the sums that its weights make."""
        return not isinstance(module, nn.RNNBase | nn.RNNCellBase)

    def _note(self, name: str, z: Tensor) -> None:
        label, layer = next(reversed(self.outputs.items()))
        units = layer.units if z.shape == layer.values.shape else z.ndim - 1
        flat = (z.abs() > FLAT[name]).count_nonzero().item() / z.numel() if name in FLAT else 0.0
        dead = 0.0
        if name in DEAD and z.ndim > 1:
            dead = (z.movedim(units, 0).flatten(1) <= 0).all(1).double().mean().item()
        self.into.append(Into(label, name, flat, dead))

    def _before(self, path: str) -> Any:
        def hook(module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            made, names = projections(module, args, kwargs)
            self._add(named(path, "in_proj"), Output(path, type(module).__name__, names, made, -1))

        return hook

    def _after(self, path: str) -> Any:
        def hook(module: nn.Module, _inputs: Any, output: Any) -> None:
            found = next((t for t in pytree.tree_leaves(output) if isinstance(t, Tensor)), None)
            if found is None or not found.is_floating_point() or found.ndim == 0:
                return
            attention = isinstance(module, nn.MultiheadAttention)
            label = named(path, "out_proj") if attention else path or "net"
            weights = ("out_proj.weight",) if attention else weights_of(module)
            units = found.ndim - 1
            if isinstance(module, _CONVOLUTIONS):
                units = found.ndim - 1 - len(module.kernel_size)
            self._add(label, Output(path, type(module).__name__, weights, found, units, self.sums(module)))

        return hook

    def _add(self, label: str, output: Output) -> None:
        self._calls[label] += 1
        calls = self._calls[label]
        self.outputs[label if calls == 1 else f"{label} (call {calls})"] = output


def weights_of(module: nn.Module) -> tuple[str, ...]:
    """Local names of a module's own weights."""
    found = uses(module).items()
    return tuple(n for n, use in found if use.role == "weight" and module._parameters.get(n, module) is not None)


def named(path: str, local: str) -> str:
    """The name in the mainnet of what a module calls so.

    >>> named("block.0", "weight"), named("", "weight")
    ('block.0.weight', 'weight')
    """
    return f"{path}.{local}" if path else local


def projections(
    attention: nn.MultiheadAttention, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, tuple[str, ...]]:
    """What the input projections of an attention make of its arguments, side by side where they fit."""
    given = [*args[:3], *(kwargs[k] for k in ("query", "key", "value") if k in kwargs)]
    if attention.in_proj_weight is not None:
        weights, names = attention.in_proj_weight.chunk(3), ("in_proj_weight",)
    else:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = tuple(attention._parameters[n] for n in names)
    biases = (None, None, None) if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
    with torch.no_grad():
        made = [linear(x, w, b) for x, w, b in zip(given, weights, biases, strict=False)]
    fitting = [m for m in made if m.shape[:-1] == made[0].shape[:-1]]
    return torch.cat(fitting, -1), names


@contextmanager
def as_in_training(module: nn.Module) -> Iterator[None]:
    """Norms take their statistics from the batch, as at the first step; dropout is off, so that nothing is random.

    A norm that alone is in evaluation mode was frozen by the user, and stays so.
    """
    before = {m: m.training for m in module.modules()}
    try:
        for m in before:
            frozen = module.training and not m.training
            m.training = isinstance(m, nn.modules.batchnorm._NormBase) and not frozen
        yield
    finally:
        for m, mode in before.items():
            m.training = mode
