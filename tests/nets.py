"""Small mainnets that several rooms' tests use."""

from torch import Tensor, nn


class Tied(nn.Module):
    """An embedding whose weight is the decoder's too."""

    def __init__(self, activation: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.embed, self.activation, self.decode = nn.Embedding(7, 5), activation, nn.Linear(5, 7, bias=bias)
        self.decode.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.activation(self.embed(x)))
