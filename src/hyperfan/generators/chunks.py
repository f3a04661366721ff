"""``Chunks``: tensors made in chunks, many from one head, by channels or of one flat vector."""

from dataclasses import dataclass

from hyperfan.codes.embedding import Embedding
from hyperfan.codes.embeddings import Identity
from hyperfan.errors import HyperfanError
from hyperfan.generators.base import BuildContext, Generator, GeneratorConfig
from hyperfan.generators.channels import ChannelChunks
from hyperfan.generators.flat import FlatChunks


@dataclass(frozen=True)
class Chunks(GeneratorConfig):
    """How to cut what is generated into chunks; ``HyperNet(mainnet, 50, heads=Chunks())`` is Ha et al.'s architecture.

    Args:
        size: channels in a chunk, by default the greatest number that divides the output or the input channels of
            every weight; with ``flat``, values in a chunk.
        flat: cut one long vector of all tensors instead of each weight by its channels.
        inputs: width of an input layer for each chunk; 0 for none, so that a trunk can be shared. By default the
            embedding's size, or 0 if flat.
        embedding: size of an embedding for each chunk, beside the one that the net has with ``per="net"``, such as a
            task's.
        trainable: whether that is trained.
        one_head: whether weights cut along their input channels come from the head of those cut along their output
            channels, as in Ha et al. One layer's outputs then lie where the next one looks, in the span of the head,
            and grow by up to √(size / d_k) more than their variances say; so the default is a head for each.
        signs: whether each generated value has a fixed random sign, without which values from one head are alike. By
            default if flat.
    """

    size: int | None = None
    flat: bool = False
    inputs: int | None = None
    embedding: int = 0
    trainable: bool = True
    one_head: bool = False
    signs: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("inputs", 0), ("embedding", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise HyperfanError(f"Chunks({name}={value!r}): give an integer from {least}")
        if self.flat and self.size is None:
            raise HyperfanError("Chunks(flat=True): say how many values a chunk has with size=")

    @property
    def identity(self) -> Identity:
        """The embedding of each chunk."""
        return Identity(self.embedding, self.trainable)

    @property
    def signed(self) -> bool:
        """Whether generated values have signs."""
        return self.flat if self.signs is None else self.signs

    def input_width(self, size: int) -> int:
        """Width of the input layers for embeddings of this size; 0 if there are none."""
        if self.inputs is not None:
            return self.inputs
        return 0 if self.flat else size

    def check(self, embedding: Embedding, has_trunk: bool) -> None:
        """Raise if chunks would be equal, or have two embeddings or both a trunk and input layers."""
        if embedding.per == "net" and not self.embedding:
            raise HyperfanError(
                "one embedding for the whole net would make all chunks equal: give each its own beside it with "
                "Chunks(embedding=…), or use Embedding(…, per='tensor')"
            )
        if embedding.per == "tensor" and self.embedding:
            raise HyperfanError(
                "Chunks(embedding=…) is for a net with one embedding, Embedding(…, per='net'); here each chunk has an "
                "embedding of its own already"
            )
        if self.input_width(embedding.size) and has_trunk:
            raise HyperfanError(
                "each chunk has an input layer of its own, in place of a trunk: use Chunks(inputs=0) to share a trunk"
            )

    def build(self, context: BuildContext) -> Generator:
        """Chunks by channels, or flat ones."""
        return (FlatChunks if self.flat else ChannelChunks)(self, context)
