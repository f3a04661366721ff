"""Init methods: how one reads a layer, which variance it asks for, and how it is found by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from hyperfan.errors import InitError, nearest
from hyperfan.formulas import targets
from hyperfan.formulas.fans import Fans
from hyperfan.generators.aims import Aim
from hyperfan.mainnet.read import nonlinearity_advice
from hyperfan.mainnet.spec import Role, TensorSpec

Fidelity = Literal["exact", "paper"]


@dataclass(frozen=True)
class Reading:
    """One tensor, as a method sees it under one of the two fidelities.

    The paper counts ReLU as 2 and everything else as 1, on the layer *before* the activation, and leaves strides
    out. The exact reading puts numeric gains on the layer that consumes the activation.

    Args:
        fan_in, fan_out: terms in the forward and in the backward sum.
        gain_in, gain_out: forward and backward gain.
        consumed: second moment of what the layer reads.
        output: second moment the layer's output should have.
        entry: the same by the sine beside the layer, which has a scale of its own: 1/ω² for sin(ω·z), and 1 elsewhere.
        generable: part of the output's second moment that a share is of. What turns a sine by more than a radian tells
            nothing; all of it elsewhere.
        branch: part of that moment that a residual branch may carry; 1 outside residual nets.
        logits: second moment of attention logits that the layer would make at unit variance; 1 elsewhere.
        row: second moment of the tied table's rows to which a table's are added; 1 elsewhere.
        bias_generated: for a weight, whether its layer's bias is generated too.
        summands: for a bias, how many are added to the same output.
    """

    role: Role
    fan_in: float
    fan_out: float
    gain_in: float = 1.0
    gain_out: float = 1.0
    consumed: float = 1.0
    output: float = 1.0
    entry: float = 1.0
    generable: float = 1.0
    branch: float = 1.0
    logits: float = 1.0
    row: float = 1.0
    bias_generated: bool = False
    summands: int = 1


def reading(tensor: TensorSpec, fidelity: Fidelity, *, gains: bool, before: float = 1.0) -> Reading:
    """Read a tensor.

    Args:
        tensor: what to read.
        fidelity: which reading.
        gains: whether the nonlinearity is needed; then an unknown one is an error.
        before: variance of the pre-activation that goes into the nonlinearity it consumes.
    """
    if tensor.fans is None:
        raise InitError(
            f"'{tensor.name}' has no known fans ({tensor.kind} has no rule for it): register one with "
            f"@hyperfan.rule({tensor.kind}), or leave it out of generate="
        )
    fans: Fans = tensor.fans.unstrided() if fidelity == "paper" else tensor.fans
    plain = Reading(tensor.role, fans.fan_in, fans.fan_out)
    if not gains:
        return plain
    if fidelity == "paper":
        if tensor.followed_by is None:
            raise InitError(f"the nonlinearity after '{tensor.layer}' is not known: {nonlinearity_advice(tensor)}")
        gain = 2.0 if tensor.followed_by.name == "relu" else 1.0
        return replace(plain, gain_in=gain, gain_out=gain, output=gain)
    if tensor.consumes is None:
        raise InitError(
            f"the nonlinearity that '{tensor.layer}' reads from is not known: {nonlinearity_advice(tensor)}"
        )
    if tensor.consumes.curve is None:
        raise InitError(
            f"'{tensor.layer}' reads the result of '{tensor.consumes.name}', whose mean square cannot be predicted. If "
            "a module of yours makes that 1, declare it with @hyperfan.rule(MyNorm, norm=True); if torch has the same "
            "function, name it for the layer before it, as nonlinearity={'…': 'relu'}; any other name would start it "
            f"at a wrong scale, so else leave '{tensor.name}' out of generate="
        )
    found = tensor.consumes.gains_at(before)
    branch, entry = targets.residual_share(tensor.residual_blocks), _entry(tensor, fans)
    frequency = 1.0 if tensor.followed_by is None else tensor.followed_by.frequency
    return replace(
        plain,
        gain_in=found.forward,
        gain_out=found.backward,
        consumed=1 / found.forward,
        output=entry,
        entry=entry,
        generable=min(frequency**-2 / entry, 1.0),
        branch=branch,
        logits=tensor.logits,
    )


def _entry(tensor: TensorSpec, fans: Fans) -> float:
    """Second moment of a layer's output by the sines before or behind it: 1 where there are none of their own ω."""
    behind = 1.0 if tensor.followed_by is None else tensor.followed_by.frequency
    before = 1.0 if tensor.consumes is None else tensor.consumes.frequency
    return targets.sine_entry(before if behind == 1 else behind, fans.fan_in, tensor.reads_inputs)


def has_known_gain(tensor: TensorSpec, fidelity: Fidelity) -> bool:
    """Whether :func:`reading` finds the gain of a tensor."""
    if fidelity == "paper":
        return tensor.followed_by is not None
    return tensor.consumes is not None and tensor.consumes.curve is not None


Aims = Callable[[Reading], Aim]
TrunkVariance = Callable[[Reading], float]


@dataclass(frozen=True)
class Method:
    """An init method.

    Args:
        name: as given to ``HyperNet(init=…)``.
        paper: where it comes from.
        summary: one line on what it does.
        aim: from a tensor's reading to an :class:`Aim`.
        settings: what can be set, with defaults; passed to ``aim`` by keyword.
        trunk: variance for a layer of the trunk; by default that of fan-in init, with which codes have the second
            moment expected of embeddings.
        needs_nonlinearity: whether an unknown nonlinearity is an error.
        needs_fans: whether a parameter without a rule is an error.
        embedding: constant that the embedding of a tensor is set to, if the method sets it.
    """

    name: str
    paper: str
    summary: str
    aim: Callable[..., Aim]
    settings: Mapping[str, float] = field(default_factory=dict)
    trunk: TrunkVariance | None = None
    needs_nonlinearity: bool = True
    needs_fans: bool = True
    embedding: Callable[[Reading], float] | None = None

    def aims(self) -> Aims:
        """The aim with the settings filled in."""
        return partial(self.aim, **self.settings)

    def trunk_variance(self, read: Reading) -> float:
        """Variance for a layer of the trunk."""
        return targets.fan_in_weight(read.fan_in, read.gain_in) * read.entry if self.trunk is None else self.trunk(read)

    @property
    def trunk_preserves(self) -> bool:
        """Whether the trunk passes on the second moment of embeddings, as under fan-in init."""
        return self.trunk is None

    @property
    def sets_heads(self) -> bool:
        """Whether it sets the variance of heads, whatever they make, and no tensor's."""
        return self.aims()(Reading("weight", 1.0, 1.0)).target is None

    @property
    def has_bases(self) -> bool:
        """Whether it sets a base beside the heads."""
        return self.aims()(Reading("weight", 1.0, 1.0)).base is not None

    @property
    def generates_nothing(self) -> bool:
        """Whether weights start as a base alone, with heads of zeros."""
        head = self.aims()(Reading("weight", 1.0, 1.0)).head
        return self.has_bases and head is not None and head(Fans(1, 1)) == 0

    def __str__(self) -> str:
        chosen = ", ".join(f"{k}={v:g}" for k, v in self.settings.items())
        return f"{self.name}({chosen})" if chosen else self.name


_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Make a method known by its name."""
    _METHODS[method.name] = method
    return method


def available() -> list[Method]:
    """All registered methods, by name."""
    return [_METHODS[name] for name in sorted(_METHODS)]


def method(name: str, **settings: float) -> Method:
    """A method by its name, with some of its settings changed.

    >>> str(method("hyperfan-in", bias_share=0.25))
    'hyperfan-in(bias_share=0.25)'
    """
    if name not in _METHODS:
        raise InitError(f"there is no init method '{name}': {nearest(name, _METHODS)}")
    found = _METHODS[name]
    for key in settings:
        if key not in found.settings:
            known = ", ".join(found.settings) or "none"
            raise InitError(f"'{name}' has no setting '{key}'; it has: {known}")
    return replace(found, settings={**found.settings, **settings})


def as_method(init: object) -> Method:
    """A method, or the one of this name."""
    found = method(init) if isinstance(init, str) else init
    if not isinstance(found, Method):
        raise InitError(f"init={init!r}: give a method's name, or hyperfan.init.method(name, …)")
    return found
