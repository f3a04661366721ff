"""What is to be generated? ``read`` turns any ``nn.Module`` into a frozen :class:`Spec`; :class:`Skeleton` runs it."""

from hyperfan.mainnet.read import read
from hyperfan.mainnet.rules import Use, rule
from hyperfan.mainnet.select import select
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import Nonlinearity, Role, Spec, TensorSpec

__all__ = ["Nonlinearity", "Role", "Skeleton", "Spec", "TensorSpec", "Use", "read", "rule", "select"]
