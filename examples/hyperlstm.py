"""A HyperLSTM (Ha et al., 2017): the weights of the main cell are generated anew at every time step, for each sample.

A small LSTM reads the input and the main state; its output is the code of the step. The main cell is an ordinary
module, which ``hf.HyperNet`` runs with the weights of each sample's own code. ``python -m examples.hyperlstm``
"""

import torch
from torch import Tensor, nn

import hyperfan as hf


class HyperLSTM(nn.Module):
    """(batch, time, inputs) → (batch, time, hidden).

    Args:
        inputs: features at each time step.
        hidden: size of the main state.
        code: size of the small LSTM's state, which is the code.
        share: part of each weight's variance that the code makes.
    """

    def __init__(self, inputs: int, hidden: int, code: int = 8, share: float = 0.1) -> None:
        super().__init__()
        self.hidden = hidden
        self.small = nn.LSTMCell(inputs + hidden, code)
        embedding = hf.Embedding(code, given=True, per="net", std=0.12)  # of the small state, as it starts
        cell, example = nn.LSTMCell(inputs, hidden), torch.zeros(1, inputs)
        self.net = hf.HyperNet(cell, embedding, generate="weights", share=share, example=example)

    def forward(self, x: Tensor) -> Tensor:
        """Run over time."""
        h = c = x.new_zeros(len(x), self.hidden)
        small, outputs = None, []
        for step in x.unbind(1):
            small = self.small(torch.cat([step, h], 1), small)
            h, c = self.net(step, (h, c), embedding=small[0])
            outputs.append(h)
        return torch.stack(outputs, 1)


def train(model: nn.Module, steps: int = 200, lr: float = 5e-3, length: int = 10, batch: int = 32) -> list[float]:
    """Learn to say which of two signals came first, after a time without news; returns the losses."""
    opt, losses = hf.AdamW(model, lr=lr), []
    for _ in range(steps):
        y = torch.randint(2, (batch,))
        x = 0.1 * torch.randn(batch, length, 2)
        x[:, :2] += torch.stack([nn.functional.one_hot(y, 2), nn.functional.one_hot(1 - y, 2)], 1)
        loss = nn.functional.cross_entropy(model(x)[:, -1], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    losses = train(nn.Sequential(HyperLSTM(2, 16), nn.Linear(16, 2)))
    print(f"cross-entropy of the first step {losses[0]:.3f}, of the last {losses[-1]:.3f}")
