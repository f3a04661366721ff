"""The second moment ‖h‖² of each tensor's code: in expectation, and as it really is.

The heads divide by it. The paper's table is the case where it is d_k·Var(e).
"""

import copy
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from hyperfan.errors import InitError
from hyperfan.hypernet.chunks import InputLayers
from hyperfan.init.registry import fan_in_trunk
from hyperfan.init.write import fill_
from hyperfan.mainnet.gains import gains

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

_DRAWS = 4096
"""Draws to average over where given embeddings go through a trunk."""
_ROWS = 16384
"""Codes to average over where stored embeddings have noise: over 16 draws for each, at the least."""


def predicted_moments(net: "HyperNet") -> list[float | None]:
    """Before anything is drawn; ``None`` where only a draw can tell."""
    config = net.embeddings.config
    count = len(net.generated)
    if config.normalise:
        return [float(net.width)] * count
    if net.fidelity == "paper":
        return [net.width * config.std**2] * count
    if net.trunk is None and net.embeddings.chunks is None:
        return [net.width * config.mean_square] * count
    if isinstance(net.trunk, InputLayers) and net.init.trunk is fan_in_trunk:
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
    if net.trunk is None and net.embeddings.chunks is None:
        if stored is None:
            return predicted
        noise = config.size * config.noise**2 / 3
        return _per_tensor(net, stored.detach().double().square().sum(-1) + noise)
    # A generator of its own, so that averaging does not shift anyone else's random numbers.
    own = torch.Generator().manual_seed(0)
    if stored is None:
        e = torch.empty(max(_DRAWS // net.embeddings.n, 16), net.embeddings.n, config.size, device="cpu")
        e = fill_(e, config.std**2, config.distribution, generator=own).to(net.code_scale)
    else:
        draws = max(_ROWS // (stored.numel() // config.size), 16) if config.noise else 1
        e = stored.detach().expand(draws, *stored.shape)
    if config.noise:
        drawn = torch.empty(e.shape, device="cpu").uniform_(-config.noise, config.noise, generator=own)
        e = e + drawn.to(e)
    moments = _per_tensor(net, _squares(net.trunk, net.embeddings.beside_chunks(e.to(net.code_scale)).detach()))
    if not all(moments):
        raise InitError(_DEAD)
    return moments


def scatter(net: "HyperNet") -> float:
    """Relative variance of ‖h‖² from one draw of the embeddings to another, in the tensor where it is largest."""
    config = net.embeddings.config
    own = torch.Generator().manual_seed(0)
    e = torch.empty(max(_DRAWS // net.embeddings.n, 64), net.embeddings.n, config.size, device="cpu")
    e = fill_(e, config.std**2, config.distribution, generator=own).to(net.code_scale)
    squares = _squares(net.trunk, net.embeddings.beside_chunks(e).detach())
    spans = net.heads.layout.spans if squares.shape[-1] > 1 else [slice(0, 1)]
    each = torch.stack([squares[:, span].mean(1) for span in spans])
    return float((each.var(1) / each.mean(1).square()).max())


def level_inputs(net: "HyperNet") -> None:
    """Scale each chunk's input layer, if there are such, so that its code has the second moment expected of it."""
    stored, config = net.embeddings.weight, net.embeddings.config
    if not isinstance(net.trunk, InputLayers) or stored is None:
        return
    squares = _squares(net.trunk, net.embeddings.beside_chunks(stored).detach())
    squares = squares.reshape(-1, squares.shape[-1]).mean(0)
    expected = net.width * config.mean_square
    net.trunk.scale_((expected / squares).sqrt().to(net.trunk.weight))


def revive_codes(net: "HyperNet", generator: torch.Generator | None) -> None:
    """Draw those embeddings anew of which the trunk makes exactly zero, as a narrow ReLU trunk may.

    A tensor generated from such a code starts at zero, and its head never learns.
    """
    stored = net.embeddings.weight
    if net.trunk is None or stored is None:
        return
    for _ in range(100):
        dead = _squares(net.trunk, net.embeddings.beside_chunks(stored).detach()) == 0
        if not dead.any():
            return
        if net.init.embedding is not None:
            break
        config = net.embeddings.config
        if net.embeddings.chunks is not None:  # which of the two is to blame is not known, so each code's own is drawn
            stored, dead = net.embeddings.chunks, dead.reshape(-1, dead.shape[-1]).any(0)
        fresh = fill_(torch.empty_like(stored), config.std**2, config.distribution, generator=generator)
        with torch.no_grad():
            stored.copy_(torch.where(dead.unsqueeze(-1), fresh, stored))
        stored = net.embeddings.weight
        assert stored is not None
    raise InitError(_DEAD)


_DEAD = "the trunk makes a code of exactly zero, of which nothing can be made: is it too narrow, or its last layer 0?"


def _squares(trunk: nn.Module | None, e: Tensor) -> Tensor:
    """‖h‖² of each code as in training, averaged over the draws of a dropout."""
    if trunk is None:
        return e.double().square().sum(-1)
    double = copy.deepcopy(trunk).train()
    random = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in double.modules())
    repeats = 64 if random else 1
    flat = e.reshape(-1, e.shape[-1])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            squares = sum(double(flat).double().square().sum(-1) for _ in range(repeats)) / repeats
        except (RuntimeError, ValueError) as error:
            raise InitError(f"the trunk does not run on {len(flat)} codes in training mode: {error}") from error
    return cast(Tensor, squares).view(e.shape[:-1])


def _per_tensor(net: "HyperNet", squares: Tensor) -> list[float | None]:
    """Mean over draws and tasks, and over its pieces, one value for each generated tensor."""
    each = squares.reshape(-1, squares.shape[-1]).mean(0)
    spans = net.heads.layout.spans if len(each) > 1 else [slice(0, 1)] * len(net.generated)
    return [float(each[span].mean()) for span in spans]
