"""Nets of torch's own larger layers, with the least around them that makes a net."""

import torch
from torch import Tensor, nn

from zoo.net import Net, integers, normal

TOKENS = integers(64, 4, 12)


class Seq2Seq(nn.Module):
    """An ``nn.Transformer`` between tables and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(64, 32), nn.Embedding(64, 32)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.out = nn.Linear(32, 64)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.out(self.transformer(self.source(source), self.target(target), tgt_mask=mask, tgt_is_causal=True))


class Encoder(nn.Module):
    """An ``nn.TransformerEncoder`` whose norms stand first."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, 32), nn.Parameter(torch.randn(12, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.out = nn.Linear(32, 10)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.encoder(self.tokens(ids) + self.positions).mean(1))


class Recurrent(nn.Module):
    """A table, a recurrent layer and logits."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.tokens, self.layer, self.out = nn.Embedding(64, 32), layer, nn.Linear(width, 64)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.layer(self.tokens(ids))[0])


class TwoInputs(nn.Module):
    """A bilinear layer of two towers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 24), nn.Linear(20, 24)
        self.both, self.out = nn.Bilinear(24, 24, 32), nn.Linear(32, 10)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.out(torch.relu(self.both(torch.tanh(self.left(left)), torch.tanh(self.right(right)))))


LAYERS: dict[str, Net] = {
    "nn.Transformer": Net(Seq2Seq, (TOKENS, TOKENS)),
    "nn.TransformerEncoder, norm first": Net(Encoder, TOKENS),
    "LSTM": Net(lambda: Recurrent(nn.LSTM(32, 48, 2, batch_first=True), 48), TOKENS),
    "GRU, both ways": Net(lambda: Recurrent(nn.GRU(32, 32, batch_first=True, bidirectional=True), 64), TOKENS),
    "RNN": Net(lambda: Recurrent(nn.RNN(32, 48, batch_first=True), 48), TOKENS),
    "Bilinear": Net(TwoInputs, (normal(32, 16), normal(32, 20))),
}
