"""On what? The paper's mainnets."""

from hyperfan.models.mnist import mnist_net

__all__ = ["mnist_net"]
