"""Rules: how each kind of layer uses its parameters. Fans come from what a layer does, not from a tensor's shape."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from hyperfan.errors import MainnetError, nearest
from hyperfan.formulas.fans import Fans
from hyperfan.mainnet.spec import Role


@dataclass(frozen=True)
class Use:
    """The way in which a module uses one of its parameters.

    Args:
        role: "weight", "bias", "scale", "shift", "slope" or "other".
        fans: for a weight; see :class:`hyperfan.formulas.Fans`.
        weight: for a bias, the name of the weight in the same module whose output it is added to (or of several).
        start: for scale, shift and slope, the value it starts at.
        in_first: for a weight, whether its first dimension is that of the layer's inputs, and not of its outputs.
    """

    role: Role
    fans: Fans | None = None
    weight: str | tuple[str, ...] = ()
    start: float | None = None
    in_first: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of a bias' weights, as a tuple."""
        return (self.weight,) if isinstance(self.weight, str) else self.weight

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise MainnetError(f"Use('{self.role}'): {nearest(str(self.role), get_args(Role))}")
        if self.role == "weight" and not isinstance(self.fans, Fans):
            raise MainnetError(f"Use('weight', {self.fans!r}): a weight needs its fans, as hyperfan.Fans(d_in, d_out)")
        if self.role == "bias" and not self.weight:
            raise MainnetError("Use('bias'): a bias needs the name of its weight, as Use('bias', weight='W')")


Rule = Callable[[Any], dict[str, Use]]
_RULES: dict[type[nn.Module], Rule] = {}
_DECLARED_NORMS: set[type[nn.Module]] = set()
_F = TypeVar("_F", bound=Rule)


def rule(*kinds: type[nn.Module], norm: bool = False) -> Callable[[_F], _F]:
    """Register how modules of these classes, and of their subclasses, use their parameters.

    Args:
        kinds: the classes.
        norm: whether they put out a mean square of 1, times that of the gains (the parameters that are a "scale"),
            whatever comes in. What divides by a root mean square or a standard deviation is recognised without it.

    >>> import torch
    >>> from hyperfan import Fans, Use, rule
    >>> class Scale(nn.Module):
    ...     def __init__(self, n, m):
    ...         super().__init__()
    ...         self.W = nn.Parameter(torch.randn(n, m))
    ...     def forward(self, x):
    ...         return x @ self.W
    >>> @rule(Scale)
    ... def _(layer):
    ...     n, m = layer.W.shape
    ...     return {"W": Use("weight", Fans(channels_in=n, channels_out=m), in_first=True)}
    """

    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise MainnetError(f"rule({kind!r}): name the module classes, as @hyperfan.rule(MyLayer)")

    def register(function: _F) -> _F:
        for kind in kinds:
            _RULES[kind] = function
            (_DECLARED_NORMS.add if norm else _DECLARED_NORMS.discard)(kind)
        return function

    return register


def rule_class(module: nn.Module) -> type[nn.Module] | None:
    """The nearest of a module's classes that has a rule."""
    return next((kind for kind in type(module).__mro__ if kind in _RULES), None)


def is_declared_norm(module: nn.Module) -> bool:
    """Whether the rule for a module says that it is a norm."""
    return rule_class(module) in _DECLARED_NORMS


def uses(module: nn.Module) -> dict[str, Use]:
    """The uses of a module's parameters (not those of its children); none without a rule."""
    kind = rule_class(module)
    if kind is None:
        return {}
    found = _RULES[kind](module)
    if not isinstance(found, dict) or not all(isinstance(use, Use) for use in found.values()):
        raise MainnetError(f"the rule for {kind.__name__} returned {found!r}: it should return parameter name → Use")
    for name in found:
        computed = name in vars(module) or is_parametrized(module, name)  # by a norm or a mask on a parameter
        if name not in module._parameters and not computed:
            known = nearest(name, module._parameters)
            raise MainnetError(f"the rule for {kind.__name__} names '{name}', which is no parameter of it: {known}")
    return found


def _weight_and_bias(fans: Fans) -> dict[str, Use]:
    return {"weight": Use("weight", fans, in_first=fans.transposed), "bias": Use("bias", weight="weight")}


@rule(nn.Linear)
def _(m: nn.Linear) -> dict[str, Use]:
    return _weight_and_bias(Fans(m.in_features, m.out_features))


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def _(m: nn.Conv2d) -> dict[str, Use]:
    return _weight_and_bias(Fans.conv(m.in_channels, m.out_channels, m.kernel_size, m.stride, m.groups, m.transposed))


@rule(nn.Embedding, nn.EmbeddingBag)
def _(m: nn.Embedding) -> dict[str, Use]:
    # A look-up is a product with a one-hot vector: one term in the forward sum.
    return {"weight": Use("weight", Fans(1, m.embedding_dim))}


@rule(nn.Bilinear)
def _(m: nn.Bilinear) -> dict[str, Use]:
    # Backward, x1 receives out·in2 terms and x2 out·in1: the mean of the two.
    into_one_input = m.out_features * (m.in1_features + m.in2_features) / 2
    return _weight_and_bias(Fans(m.in1_features * m.in2_features, into_one_input))


@rule(nn.MultiheadAttention)
def _(m: nn.MultiheadAttention) -> dict[str, Use]:
    # in_proj stacks three layers, each embed_dim to embed_dim; out_proj is a Linear of its own.
    packed = "in_proj_weight" if m.in_proj_weight is not None else "q_proj_weight"
    return {
        "in_proj_weight": Use("weight", Fans(m.embed_dim, m.embed_dim)),
        "q_proj_weight": Use("weight", Fans(m.embed_dim, m.embed_dim)),
        "k_proj_weight": Use("weight", Fans(m.kdim, m.embed_dim)),
        "v_proj_weight": Use("weight", Fans(m.vdim, m.embed_dim)),
        "in_proj_bias": Use("bias", weight=packed),
    }


@rule(nn.RNNBase, nn.RNNCellBase)
def _(m: nn.RNNBase | nn.RNNCellBase) -> dict[str, Use]:
    # A cell is one linear layer on [x, h] for each gate, with its bias in two halves.
    found: dict[str, Use] = {}
    names = [name for name, p in m.named_parameters(recurse=False)]
    for name in names:
        if name.startswith("weight_ih"):
            hh = name.replace("_ih", "_hh")
            gates_hidden, inputs = getattr(m, name).shape
            fans = Fans(inputs + getattr(m, hh).shape[1], gates_hidden)
            suffix = name.removeprefix("weight_ih")
            found[name] = found[hh] = Use("weight", fans)
            if f"bias_ih{suffix}" in m._parameters:
                found[f"bias_ih{suffix}"] = found[f"bias_hh{suffix}"] = Use("bias", weight=(name, hh))
        elif name.startswith("weight_hr"):  # the LSTM's output projection
            found[name] = Use("weight", Fans(getattr(m, name).shape[1], getattr(m, name).shape[0]))
    return found


@rule(nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
def _(m: nn.Module) -> dict[str, Use]:
    return {"weight": Use("scale", start=1.0), "bias": Use("shift", start=0.0)}


@rule(nn.RMSNorm)
def _(m: nn.RMSNorm) -> dict[str, Use]:
    return {"weight": Use("scale", start=1.0)}


@rule(nn.PReLU)
def _(m: nn.PReLU) -> dict[str, Use]:
    return {"weight": Use("slope", start=m.init)}


def hand_set(module: nn.Module) -> set[str]:
    """The parameters of a state space (Mamba and its kin), and its children's, whose values its authors set by hand.

    They are time constants: A, the step sizes Δ that a layer and its bias make, the skip D and a short filter.
    """
    if "A_log" not in module._parameters:
        return set()
    names = [name for name, _ in module.named_parameters()]
    return {name for name in names if "." not in name or name.startswith(("dt_proj.", "conv1d."))}


BUFFER_STARTS = {"running_mean": 0.0, "running_var": 1.0, "num_batches_tracked": 0.0}
"""Starting values of the buffers of torch's norm layers; other buffers have no rule."""
