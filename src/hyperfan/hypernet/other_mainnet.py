"""One hypernet for several mainnets: the others are smaller, and get slices of what is made for the largest."""

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from hyperfan.errors import InitError, MainnetError, nearest
from hyperfan.generators.sliced import Slices
from hyperfan.hypernet.checks import check_values
from hyperfan.mainnet.read import NonlinearityArgument
from hyperfan.mainnet.spec import TensorSpec
from hyperfan.mainnet.training_modes import training_modes_restored

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

_Net = TypeVar("_Net", bound="HyperNet")


def for_mainnet(net: _Net, mainnet: nn.Module, example: Any, nonlinearity: NonlinearityArgument) -> _Net:
    """A net around another mainnet that shares embeddings, trunk and heads with this one."""
    check_values(net)
    if net.heads.base is not None and net.heads.base.to_json():
        raise InitError(
            "what is generated lies on a base that was given for one mainnet (base=, or LoRA), and another has none: "
            "use base='start', or leave base= out"
        )
    with training_modes_restored(net):  # of parts that both have
        return type(net)(
            mainnet,
            net.embeddings.config,
            generate=partial(_is_generated, net),
            trunk=net.trunk,
            heads=Slices(net.heads, net.code_source),
            init=net.init,
            share=net.share,
            fidelity=net.fidelity,
            distribution=net.distribution,
            example=example,
            nonlinearity=nonlinearity,
        )


def check_may_redraw(net: "HyperNet") -> None:
    """Raise if the heads that a net would draw belong to another net."""
    if not net.heads.owns_heads:
        raise InitError(
            "this net uses the heads of the net whose for_mainnet() made it: start that one anew, and call "
            "for_mainnet() again"
        )


def _is_generated(net: "HyperNet", tensor: TensorSpec) -> bool:
    """Whether a tensor of another mainnet is a slice of a generated one; raise if it is none of this net's mainnet."""
    found = {name: t for t in net.spec for name in (t.name, *t.aliases)}.get(tensor.name)
    if found is None:
        known = nearest(tensor.name, [t.name for t in net.spec])
        raise MainnetError(f"'{tensor.name}' is no parameter of the mainnet that this hypernet was built for: {known}")
    if (found.kind, found.role) != (tensor.kind, tensor.role):
        raise MainnetError(
            f"'{tensor.name}' is the {tensor.role} of {tensor.kind}, and in the hypernet's mainnet the {found.role} of "
            f"{found.kind}: the layers of both must be of one kind"
        )
    return any(t.name == tensor.name for t in net.generated)
