"""Where does a tensor's code come from? A condition and an identity, with noise, through a trunk."""

from hyperfan.codes.embedding import Embedding
from hyperfan.codes.encoding import CosSin

__all__ = ["CosSin", "Embedding"]
