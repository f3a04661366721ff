"""The second moment ‖h‖² of each tensor's code: in expectation, and as it really is.

The heads divide by it (PAPER: Var(H) = v/(d_k·Var(e)) is the case where it is d_k·Var(e)).
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyperfan.formulas.gains import gains
from hyperfan.init.registry import fan_in_trunk

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

_DRAWS = 4096
"""Draws to average over where noise or a given embedding goes through a trunk: about 1 % of sampling error."""


def predicted_moments(net: "HyperNet") -> list[float | None]:
    """Before anything is drawn; ``None`` where only a draw can tell."""
    config = net.embeddings.config
    count = len(net.generated)
    if config.normalise:
        return [float(net.width)] * count
    if net.fidelity == "paper":
        return [net.width * config.std**2] * count
    if net.trunk is None:
        return [net.width * config.mean_square] * count
    if net.trunk_widths and net.init.trunk is fan_in_trunk:
        # Fan-in init passes E[e²] on to the last layer's output, of which ReLU leaves one half.
        return [net.width * config.mean_square / gains("relu").forward] * count
    return [None] * count


def measured_moments(net: "HyperNet") -> list[float | None]:
    """From the codes themselves where fidelity is exact; in expectation over what is not known before the call."""
    predicted = predicted_moments(net)
    config = net.embeddings.config
    if config.normalise or net.fidelity == "paper":
        return predicted
    stored = net.embeddings.weight
    if net.trunk is None:
        if stored is None:
            return predicted
        noise = config.size * config.noise**2 / 3
        return _per_tensor(net, stored.double().square().sum(-1) + noise)
    if stored is None:
        stored = torch.empty(_DRAWS, net.embeddings.n, config.size).normal_(0, config.std, generator=_seeded())
        if config.distribution == "uniform":
            stored.uniform_(-(3**0.5) * config.std, 3**0.5 * config.std, generator=_seeded())
    elif config.noise:
        stored = stored.detach().expand(_DRAWS // 16, *stored.shape)
    like = net.code_scale
    e = stored.detach().to(like.device, like.dtype)
    if config.noise:
        e = e + torch.empty(e.shape).uniform_(-config.noise, config.noise, generator=_seeded()).to(e)
    training = net.trunk.training
    net.trunk.eval()
    with torch.no_grad():
        h = net.trunk(e.reshape(-1, e.shape[-1])).view(*e.shape[:-1], -1)
    net.trunk.train(training)
    return _per_tensor(net, h.double().square().sum(-1))


def _per_tensor(net: "HyperNet", squares: Tensor) -> list[float | None]:
    """Mean over draws and tasks, one value for each generated tensor."""
    each = squares.reshape(-1, squares.shape[-1]).mean(0).expand(len(net.generated)).tolist()
    return [float(m) for m in each]


def _seeded() -> torch.Generator:
    # A generator of its own, so that averaging does not shift anyone else's random numbers.
    return torch.Generator().manual_seed(0)
