"""Values that a start keeps: of a trunk that was given, of frozen parameters, of biases that may be trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from hyperfan.codes.trunk import Trunk
from hyperfan.hypernet.bases import Bases
from hyperfan.mainnet.spec import Spec, TensorSpec
from hyperfan.mainnet.trained_values import trained_biases

FROZEN = "kept: it is frozen"
REQUESTED = "kept: init_biases=False"
BASED = "kept: the base of its weight is given"
REST = "kept: all that is generated stands on given values"


@dataclass(frozen=True)
class KeptValues:
    """The values of plain parameters and trunk that every start leaves as they are, and why.

    Args:
        init_trunk: whether the trunk is drawn, because it was given by its widths or because that was requested.
        init_biases: whether biases beside generated weights are written; ``None`` leaves it to what they are.
        beside: the biases beside generated weights.
        based: those of them whose weight has a base that was given.
        trained: those of them that may have been trained before the net was built, with the reason to think so.
        valueless: parameters that came without values, on the meta device, by their names in the mainnet.
        trunk_valueless: whether the trunk came so.
        keeps_mainnet: whether all that is generated stands on values that were given, so that the rest stays too.
    """

    init_trunk: bool
    init_biases: bool | None
    beside: frozenset[str]
    based: frozenset[str]
    trained: Mapping[str, str]
    valueless: frozenset[str]
    trunk_valueless: bool
    keeps_mainnet: bool

    @property
    def keeps_trunk(self) -> bool:
        """Whether the trunk keeps its values."""
        return not (self.init_trunk or self.trunk_valueless)

    def why_kept(self, name: str, parameter: Tensor, *, first: bool = False) -> str | None:
        """Why a plain parameter keeps its value, at the ``first`` start or at any; ``None`` if it does not."""
        if name in self.valueless or (name in self.beside and self.init_biases):
            return None
        if not parameter.requires_grad:
            return FROZEN
        if name in self.beside and self.init_biases is False:
            return REQUESTED
        if name in self.based:
            return BASED
        if self.keeps_mainnet:
            return REST
        if first and name in self.trained:
            return f"kept: {self.trained[name]}; init_biases=True writes 0"
        return None

    def with_values(self, init_trunk: bool) -> "KeptValues":
        """The kept values of a net whose values were loaded."""
        return replace(self, init_trunk=init_trunk, valueless=frozenset(), trunk_valueless=False)


def read_kept_values(
    mainnet: nn.Module,
    spec: Spec,
    generated: Sequence[TensorSpec],
    bases: Bases | None,
    trunk: Trunk,
    init_trunk: bool,
    init_biases: bool | None,
) -> KeptValues:
    """What is kept, from the arguments of :class:`HyperNet` and from the values of the mainnet."""
    made = {t.name for t in generated}
    beside = {t.name: t for t in spec if t.name not in made and made.intersection(t.weights)}
    given_bases = {} if bases is None else bases.values
    based = {name for name, t in beside.items() if given_bases.keys() & set(t.weights)}
    valued = {name for name, value in given_bases.items() if not value.is_meta}
    parameters = dict(mainnet.named_parameters())
    unsure = [name for name in beside if parameters[name].requires_grad and name not in based]
    given = trunk if isinstance(trunk, nn.Module) else None
    return KeptValues(
        init_trunk=init_trunk or given is None,
        init_biases=init_biases,
        beside=frozenset(beside),
        based=frozenset(based),
        trained=trained_biases(mainnet, unsure) if init_biases is None else {},
        valueless=frozenset(name for name, p in parameters.items() if p.is_meta),
        trunk_valueless=given is not None and any(p.is_meta for p in given.parameters()),
        keeps_mainnet=all(t.name in valued for t in generated if t.start is None),
    )
