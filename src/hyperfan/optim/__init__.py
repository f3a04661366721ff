"""How does it learn fast? SGD that uses the structure of a head's gradient."""

from hyperfan.optim.sgd import SGD

__all__ = ["SGD"]
