"""How does it learn? Fast, by SGD that uses the structure of a head's gradient; and without forgetting."""

from hyperfan.optim.memory import Memory
from hyperfan.optim.sgd import SGD

__all__ = ["SGD", "Memory"]
