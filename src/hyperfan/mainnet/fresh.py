"""Whether a module's values are those that torch drew when it was built, or may have been trained.

Torch draws the weights and biases of linear layers, convolutions and recurrent cells from U(−a, a), with a = 1/√fan_in
or 1/√hidden_size. Training leaves that range somewhere in the net, or, with weight decay, a mean square other than
a²/3. Where a layer is too small for its values to tell, another one of the same net does.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from hyperfan.mainnet.spec import qualified_name

STANDARD_ERRORS = 6.0
"""Deviation of a mean square, in its standard errors, that is no accident: one in 10⁹ for a large layer."""
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
    return abs(square - bound**2 / 3) <= STANDARD_ERRORS * bound**2 * math.sqrt(4 / 45 / count)
