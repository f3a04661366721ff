"""The user's choice of a generator, ``heads=``, and the context that it is built in."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.codes.embedding import Embedding, is_index
from hyperfan.mainnet.spec import TensorSpec

if TYPE_CHECKING:
    from hyperfan.generators.generator import Generator


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
    def updates_base(self) -> bool:
        """Whether it generates updates of a base, by default the mainnet's values, that are zero at the start.

        Every tensor then starts as its base: there is no share to choose, and no gain that must be known.
        """
        return False

    def mainnet_bases(self, mainnet: nn.Module, tensors: Sequence[TensorSpec]) -> dict[str, Tensor]:
        """The values of a mainnet that serve as bases of these tensors, with gradients where they are to be trained.

        What starts constant, as the scale of a norm, has none.
        """
        parameters = dict(mainnet.named_parameters())
        return {t.name: parameters[t.name] for t in tensors if t.start is None}

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
        """The embedding of each code beside the net's, if codes are to have one."""
        return None

    def why_unfit(self, embedding: Embedding, has_trunk: bool) -> str | None:
        """The reason why an embedding or trunk does not fit, and what would; most generators go with any."""
        return None

    def why_base_unfit(self, share: float | None, base_op: str, tensors: Sequence[TensorSpec]) -> str | None:
        """The reason why arguments about bases do not fit tensors, and what would; most generators go with any."""
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
        """The choice that :meth:`to_json` described; a TypeError or KeyError if it is not known here."""
        fields = dict(content)
        return GeneratorConfig.KINDS[fields.pop("kind")](**fields)
