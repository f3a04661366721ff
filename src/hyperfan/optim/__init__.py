"""How does it learn? Fast, by optimisers that use the structure of a head's gradient; and without forgetting."""

from hyperfan.optim.adam import Adam, AdamW
from hyperfan.optim.memory import Memory
from hyperfan.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Memory"]
