"""Whether a module's values are those that torch drew when it was built, or may have been trained.

Torch draws the weights and biases of linear layers, convolutions and recurrent cells from U(−a, a), with a = 1/√fan_in
or 1/√hidden_size. Training leaves that range somewhere in the net, or, with weight decay, a mean square other than
a²/3. Where a layer is too small for its values to tell, another one of the same net does.

A single step within the range shows too: on the CPU torch draws single precision as −a + 2a·k/2²⁴ with integers k,
rounded once. Near zero floats are denser than these values, and near ±a about as dense, so that of n other values all
are such with a chance of about 2⁻ⁿ.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from hyperfan.mainnet.spec import qualified_name

STANDARD_ERRORS = 6.0
"""Deviation of a mean square, in its standard errors, that is no accident: one in 10⁹ for a large layer."""
UNIFORM_STEPS = 2**24
"""Number of values, at equal distances, that torch's uniform distribution takes in single precision on the CPU."""
MAX_VALUES_COMPARED = 4096
"""Values of a parameter that are compared with those."""
_BUILT_BY_TORCH = (nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def trained_biases(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Of these biases of a module, those whose values may have been trained, with the reason to think so.

    A bias of zeros has nothing to lose, and one on the meta device has no values.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    unlike_zero = [name for name in names if not parameters[name].is_meta and bool(parameters[name].any())]
    if not unlike_zero:
        return {}
    trained = first_trained_layer(module)
    if trained is not None:
        return dict.fromkeys(unlike_zero, f"'{trained}' is not as torch draws it, so the net may be trained")
    return {
        name: "how its layer starts is not known, so it may be trained"
        for name in unlike_zero
        if not isinstance(module.get_submodule(name.rpartition(".")[0]), _BUILT_BY_TORCH)
    }


def first_trained_layer(module: nn.Module) -> str | None:
    """The first parameter that is not as torch draws it, if there is one.

    Layers of unknown kinds, and weights that several modules share, each of which may have drawn them, are left aside.
    """
    owners = Counter(id(p) for layer in module.modules() for p in layer._parameters.values())
    for path, layer in module.named_modules():
        for local, bound in _bounds(layer).items():
            values = layer._parameters.get(local)
            if owners[id(values)] == 1 and not _as_drawn(values, bound):
                return qualified_name(path, local)
    return None


def _bounds(layer: nn.Module) -> Mapping[str, float]:
    """The range of each parameter of a layer as torch draws it; 0 for those that start at zero."""
    if isinstance(layer, nn.MultiheadAttention):
        return {"in_proj_bias": 0.0}
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
        return dict.fromkeys(layer._parameters, 1 / math.sqrt(layer.hidden_size))
    weight = layer._parameters.get("weight")
    if not isinstance(layer, _BUILT_BY_TORCH) or weight is None or not weight.numel():
        return {}
    fan_in = weight.shape[1] if isinstance(layer, nn.Bilinear) else weight[0].numel()
    return {"weight": fan_in**-0.5, "bias": fan_in**-0.5}


@torch.no_grad()
def _as_drawn(values: Tensor | None, bound: float) -> bool:
    """Whether values may be a draw of U(−bound, bound), or are zero, as many people let biases start."""
    if values is None or values.is_meta or not values.is_floating_point() or not values.any():
        return True
    if not values.abs().max() <= bound * (1 + torch.finfo(values.dtype).eps):
        return False
    count = values.numel()
    square = float(torch.linalg.vector_norm(values.float())) ** 2 / count
    # z² of z ~ U(−a, a) has mean a²/3 and variance 4a⁴/45.
    if abs(square - bound**2 / 3) > STANDARD_ERRORS * bound**2 * math.sqrt(4 / 45 / count):
        return False
    return _can_be_drawn(values, bound) or not _draws_in_steps()


def _can_be_drawn(values: Tensor, bound: float) -> bool:
    """Whether torch can draw exactly these values from U(−bound, bound); also where that is not known.

    It is known of single precision on the CPU, also if that was converted to double since.
    """
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return True
    some = values.detach().flatten()[:MAX_VALUES_COMPARED].double()
    if not torch.equal(some.float().double(), some):
        return True
    a = torch.tensor(bound, device="cpu", dtype=torch.float32).double()
    steps = ((some + a) / (2 * a) * UNIFORM_STEPS).round()
    return torch.equal((steps / UNIFORM_STEPS * (2 * a) - a).float().double(), some)


@functools.cache
def _draws_in_steps() -> bool:
    """Whether this version of torch draws so."""
    draws = torch.Generator(device="cpu").manual_seed(0)
    drawn = torch.empty(MAX_VALUES_COMPARED, device="cpu", dtype=torch.float32).uniform_(-0.3, 0.3, generator=draws)
    return _can_be_drawn(drawn, 0.3)
