"""Hooks on a mainnet's layers, and a recording of one run: each layer's output and the inputs of nonlinearities."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from hyperfan.mainnet.rules import uses
from hyperfan.mainnet.spec import qualified_name
from hyperfan.mainnet.training_modes import training_modes_restored
from hyperfan.probe.found_layers import FoundLayers, FoundWeight
from hyperfan.probe.layer_output import LayerOutput

SATURATED_BEYOND = {"tanh": 2.18, "sigmoid": 4.36}
"""The input beyond which a function has less than a twentieth of its greatest slope."""
RECTIFIERS = {"relu", "relu6"}


@dataclass(frozen=True)
class NonlinearityInput:
    """The shares of a nonlinearity's input that are of no use, after the last layer before it.

    Saturated values lie where the function has little slope; to a dead unit a ReLU gives zero on every input.
    """

    layer: str
    function: str
    saturated: float
    dead: float


class Recording(TorchFunctionMode):
    """The record of one run, in the order it ran: layer outputs by label, and inputs of nonlinearities."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[str, LayerOutput] = {}
        self.nonlinearity_inputs: list[NonlinearityInput] = []
        self._calls: Counter[str] = Counter()

    def add(self, output: LayerOutput) -> Tensor:
        """Record a layer's output, under its label and the number of the call; returns what others may write into."""
        self._calls[output.label] += 1
        calls = self._calls[output.label]
        self.outputs[output.label if calls == 1 else f"{output.label} (call {calls})"] = output
        return output.values.clone()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function; of a nonlinearity, look at its input."""
        name = getattr(func, "__name__", "").strip("_")
        if name in SATURATED_BEYOND.keys() | RECTIFIERS and args and isinstance(args[0], Tensor) and self.outputs:
            (label, layer), z = next(reversed(self.outputs.items())), args[0].detach()
            units = layer.units if z.shape == layer.values.shape else z.ndim - 1
            saturated = dead = 0.0
            if name in SATURATED_BEYOND:
                saturated = (z.abs() > SATURATED_BEYOND[name]).count_nonzero().item() / z.numel()
            elif z.ndim > 1:
                dead = (z.movedim(units, 0).flatten(1) <= 0).all(1).double().mean().item()
            self.nonlinearity_inputs.append(NonlinearityInput(label, name, saturated, dead))
        return func(*args, **(kwargs or {}))


@contextmanager
def layer_hooks(
    net: nn.Module,
    on_output: Callable[[LayerOutput], Tensor | None],
    others: Collection[str] = (),
    found: Sequence[FoundWeight] = (),
) -> Iterator[None]:
    """Call a function with each output of the submodules that are known to have weights, and of others by path.

    Of weights that no rule knows, it is called with the outputs of the calls that multiply by them.

    A tensor that it returns takes the output's place. The input projections of an attention are not put out: it is
    called with them before the attention runs, and what it returns is not used.
    """

    def before_attention(path: str, module: nn.MultiheadAttention, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        on_output(LayerOutput(qualified_name(path, "in_proj"), path, module, *_projections(module, args, kwargs)))

    def after(path: str, module: nn.Module, _inputs: Any, output: Any) -> Any:
        leaves, tree = pytree.tree_flatten(output)
        first = next((i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)), None)
        if first is None or not leaves[first].is_floating_point() or leaves[first].ndim == 0:
            return None
        label, weights = path or "net", _weights_of(module)
        if isinstance(module, nn.MultiheadAttention):
            label, weights = qualified_name(path, "out_proj"), ("out_proj.weight",)
        replaced = on_output(LayerOutput(label, path, module, weights, leaves[first]))
        if replaced is None:
            return None
        leaves[first] = replaced
        return pytree.tree_unflatten(leaves, tree)

    handles = []
    try:
        for path, module in net.named_modules():
            if isinstance(module, nn.MultiheadAttention):
                handles.append(module.register_forward_pre_hook(partial(before_attention, path), with_kwargs=True))
            if (path in others and path not in {weight.path for weight in found}) or _weights_of(module):
                handles.append(module.register_forward_hook(partial(after, path)))
        with FoundLayers(found, on_output):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _weights_of(module: nn.Module) -> tuple[str, ...]:
    """Local names of a module's weights, without those of its children."""
    found = uses(module).items()
    return tuple(n for n, use in found if use.role == "weight" and module._parameters.get(n, module) is not None)


def _projections(
    attention: nn.MultiheadAttention, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[str, ...], Tensor]:
    """Names of the weights of an attention's input projections, and their outputs, side by side where they fit."""
    given = [*args[:3], *(kwargs[k] for k in ("query", "key", "value") if k in kwargs)]
    if attention.in_proj_weight is None:
        names: tuple[str, ...] = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = tuple(getattr(attention, n) for n in names)
    else:
        names, weights = ("in_proj_weight",), attention.in_proj_weight.chunk(3)
    biases = (None, None, None) if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
    with torch.no_grad():
        outputs = [linear(x, w, b) for x, w, b in zip(given, weights, biases, strict=False)]
    return names, torch.cat([out for out in outputs if out.shape[:-1] == outputs[0].shape[:-1]], -1)


@contextmanager
def attributes_restored(module: nn.Module) -> Iterator[None]:
    """Let a run leave nothing behind in attributes, as what modules keep of one call for the next, with its graph."""
    common = vars(nn.Module()).keys()
    before = {m: {key: _copied(value) for key, value in vars(m).items() if key not in common} for m in module.modules()}
    try:
        yield
    finally:
        for m, attributes in before.items():
            for key in vars(m).keys() - common - attributes.keys():
                delattr(m, key)
            for key, (value, content) in attributes.items():
                if type(value) is dict:
                    value.clear()
                    value.update(content)
                elif type(value) is list:
                    value[:] = content
                vars(m)[key] = value


def _copied(value: Any) -> tuple[Any, Any]:
    """A value, and what it holds now if that may change."""
    return value, type(value)(value) if type(value) in (dict, list) else None


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """Let norms take their statistics from the batch, as at the first step, with dropout off, so nothing is random.

    A norm that alone is in evaluation mode was frozen by the user, and stays so.
    """
    training = module.training
    with training_modes_restored(module):
        for m in module.modules():
            frozen = training and not m.training
            m.training = isinstance(m, nn.modules.batchnorm._NormBase) and not frozen
        yield
