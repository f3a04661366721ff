"""The user's choice of a generator, ``heads=``, and the context that it is built in."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from hyperfan.codes.codes import Codes
from hyperfan.codes.embedding import Embedding, is_index
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.base import Generator


class BuildContext(NamedTuple):
    """What a generator is built for: tensors, and codes of a width and dtype, of root mean square 1 if normalised."""

    tensors: Sequence[TensorSpec]
    width: int
    normalise: bool
    device: torch.device
    dtype: torch.dtype


class GeneratorConfig(ABC):
    """What a user passes as ``heads=``: a frozen dataclass that builds a generator."""

    KINDS: ClassVar[dict[str, type["GeneratorConfig"]]] = {}

    def __init_subclass__(cls) -> None:
        GeneratorConfig.KINDS[cls.__name__] = cls

    @property
    def updates_mainnet(self) -> bool:
        """Whether what it makes starts at zero, on the mainnet's own values, which are frozen."""
        return False

    @property
    def separate_heads(self) -> str:
        """What a user writes for a head for each tensor."""
        return "heads='separate'"

    @property
    def codes(self) -> Codes | None:
        """Where codes come from, if from another net; mostly from embeddings and a trunk of this net's."""
        return None

    @property
    def identity(self) -> Embedding | None:
        """The embedding of each code beside the net's, if it is to have one."""
        return None

    def why_unfit(self, embedding: Embedding, has_trunk: bool) -> str | None:
        """Why it does not go with the embedding or the trunk, and what would; most generators go with anything."""
        return None

    def why_base_unfit(self, share: float | None, base_op: str, tensors: Sequence[TensorSpec]) -> str | None:
        """Why it does not go with a base under these tensors, and what would; most generators go with any."""
        return None

    @abstractmethod
    def build(self, context: BuildContext) -> "Generator":
        """A generator with these choices."""

    def to_json(self) -> dict[str, Any]:
        """Plain values from which :meth:`from_json` makes the same."""
        assert dataclasses.is_dataclass(self)
        fields = {name: int(value) if is_index(value) else value for name, value in dataclasses.asdict(self).items()}
        return {"kind": type(self).__name__, **fields}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "GeneratorConfig":
        """What :meth:`to_json` described; a TypeError or KeyError if it is not known here."""
        fields = dict(content)
        return GeneratorConfig.KINDS[fields.pop("kind")](**fields)
