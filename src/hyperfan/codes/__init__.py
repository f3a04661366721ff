"""Where does a tensor's code come from? A condition and an identity, with noise, through a trunk."""

from hyperfan.codes.codes import Codes
from hyperfan.codes.draw import Distribution, fill_
from hyperfan.codes.embedding import Embedding, Task
from hyperfan.codes.embeddings import Embeddings
from hyperfan.codes.encoding import CosSin

__all__ = ["Codes", "CosSin", "Distribution", "Embedding", "Embeddings", "Task", "fill_"]
