"""Whether a module's values are those that torch drew when it was built, or may have been trained.

Torch draws the weights and biases of linear layers, convolutions and recurrent cells from U(−a, a), with a = 1/√fan_in
or 1/√hidden_size. Training leaves that range somewhere in the net, or, with weight decay, a mean square other than
a²/3. Where a layer is too small for its values to tell, another one of the same net does.

A single step within the range shows too: on the CPU torch draws single precision as −a + 2a·k/2²⁴ with integers k,
rounded once, and double precision with 2⁵³. Near zero floats are denser than these values, and near ±a about as dense,
so that of n other values all are such with a chance of about 2⁻ⁿ. Half precision is too coarse to tell.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

import torch
from torch import Tensor, nn

from hyperfan.mainnet.spec import qualified_name

STANDARD_ERRORS = 6.0
"""Deviation of a mean square, in its standard errors, that is no accident: one in 10⁹ for a large layer."""
MIN_CONSTANT_VALUES = 4
"""Equal values that are no accident, whatever the precision: someone set them."""
UNIFORM_STEPS = {torch.float32: 2**24, torch.float64: 2**53}
"""Number of values, at equal distances, that torch's uniform distribution takes on the CPU."""
MAX_VALUES_COMPARED = {torch.float32: 4096, torch.float64: 64}
"""Values of a parameter that are compared with those; in double precision by exact fractions, which take longer."""
_BUILT_BY_TORCH = (nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def trained_biases(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """The biases among these names whose values may have been trained, with the reason to think so.

    A bias of zeros has nothing to lose, and one on the meta device has no values.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    unlike_zero = [name for name in names if not parameters[name].is_meta and bool(parameters[name].any())]
    if not unlike_zero:
        return {}
    trained = first_trained_layer(module)
    if trained is not None:
        return dict.fromkeys(unlike_zero, f"'{trained}' is not as torch draws it on the CPU, so the net may be trained")
    reasons = {
        name: _why_unsure(module.get_submodule(name.rpartition(".")[0]), parameters[name]) for name in unlike_zero
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _why_unsure(layer: nn.Module, bias: Tensor) -> str | None:
    """Why a bias may be trained that looks like a draw; ``None`` if it is one."""
    if not isinstance(layer, _BUILT_BY_TORCH):
        return "how its layer starts is not known, so it may be trained"
    if bias.dtype not in UNIFORM_STEPS:
        return f"{str(bias.dtype).removeprefix('torch.')} is too coarse to tell whether it was trained"
    return None


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
    bilinear = isinstance(layer, nn.Bilinear)
    fan_in = weight.shape[1] if bilinear else weight[0].numel()
    bound = 1 / math.sqrt(fan_in)
    # The same, but for its last bit: a uniform distribution by Kaiming's rule with a negative slope of √5.
    kaiming = math.sqrt(3.0) * (nn.init.calculate_gain("leaky_relu", math.sqrt(5)) / math.sqrt(fan_in))
    return {"weight": bound if bilinear else kaiming, "bias": bound}


@torch.no_grad()
def _as_drawn(values: Tensor | None, bound: float) -> bool:
    """Whether values may be a draw of U(−bound, bound), or are zero, as many people let biases start."""
    if values is None or values.is_meta or not values.is_floating_point() or not values.any():
        return True
    if not values.abs().max() <= bound * (1 + torch.finfo(values.dtype).eps):
        return False
    count = values.numel()
    if count >= MIN_CONSTANT_VALUES and values.max() == values.min():
        return False
    square = float(torch.linalg.vector_norm(values.float())) ** 2 / count
    # z² of z ~ U(−a, a) has mean a²/3 and variance 4a⁴/45.
    if abs(square - bound**2 / 3) > STANDARD_ERRORS * bound**2 * math.sqrt(4 / 45 / count):
        return False
    return _can_be_drawn(values, bound) or not _draws_in_steps(values.dtype)


def _can_be_drawn(values: Tensor, bound: float) -> bool:
    """Whether torch can draw exactly these values from U(−bound, bound) on the CPU; also where that cannot be told.

    Values in double precision may have been drawn in single precision and converted.
    """
    if values.dtype not in UNIFORM_STEPS:
        return True
    some = values.detach().flatten()[: MAX_VALUES_COMPARED[torch.float32]].cpu().double()
    if torch.equal(some.float().double(), some):
        steps, a = UNIFORM_STEPS[torch.float32], torch.tensor(bound, device="cpu", dtype=torch.float32).double()
        nearest = ((some + a) / (2 * a) * steps).round()
        return torch.equal((nearest / steps * (2 * a) - a).float().double(), some)
    return all(_is_step(value, Fraction(bound)) for value in some[: MAX_VALUES_COMPARED[torch.float64]].tolist())


def _is_step(value: float, a: Fraction) -> bool:
    """Whether a value is one of −a + 2a·k/2⁵³, rounded to double precision."""
    steps = UNIFORM_STEPS[torch.float64]
    nearest = round((Fraction(value) + a) / (2 * a) * steps)
    return any(float(2 * a * k / steps - a) == value for k in range(nearest - 1, nearest + 2))


@functools.cache
def _draws_in_steps(dtype: torch.dtype) -> bool:
    """Whether this version of torch draws uniform values of a dtype in the steps that a bias is compared with."""
    draws = torch.Generator(device="cpu").manual_seed(0)
    drawn = torch.empty(4096, device="cpu", dtype=dtype).uniform_(-0.3, 0.3, generator=draws)
    return _can_be_drawn(drawn, 0.3)
