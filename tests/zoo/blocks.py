"""Well-known blocks for sets, graphs, fields, flows and tables, written out as their papers have them, small."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.net import Net, normal

PATCHES = normal(8, 16, 32)


class Mixer(nn.Module):
    """Tolstikhin et al. 2021: an MLP over patches, an MLP over channels; or Mai et al.'s hypernetwork over patches."""

    def __init__(self, hyper: bool, patches: int = 16, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.stem = nn.Linear(width, width)
        kind = HyperMixing if hyper else TokenMixing
        self.tokens = nn.ModuleList(kind(patches, width) for _ in range(layers))
        self.channels = nn.ModuleList(_mlp(width, 64, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * i](x))
            x = x + channels(self.norms[2 * i + 1](x))
        return self.out(self.norms[-1](x).mean(1))


class TokenMixing(nn.Module):
    """An MLP over patches."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.mlp = _mlp(patches, 32, patches)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x.transpose(1, 2)).transpose(1, 2)


class HyperMixing(nn.Module):
    """Mai et al. 2023: the weights of the MLP over patches are made of the patches."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.first, self.second, self.norm = _mlp(width, width, 24), _mlp(width, width, 24), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.first(x) @ F.gelu(self.second(x).transpose(1, 2) @ x))


def _mlp(width: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out))


class GatedMLP(nn.Module):
    """Liu et al. 2021: half of the channels, mixed over patches, gates the other half; the gate starts at 1."""

    def __init__(self, patches: int = 16, width: int = 32) -> None:
        super().__init__()
        self.norm, self.wide, self.gate_norm = nn.LayerNorm(width), nn.Linear(width, 64), nn.LayerNorm(32)
        self.spatial, self.back = nn.Conv1d(patches, patches, 1), nn.Linear(32, width)
        nn.init.ones_(self.spatial.bias)

    def forward(self, x: Tensor) -> Tensor:
        u, v = F.gelu(self.wide(self.norm(x))).chunk(2, -1)
        return x + self.back(u * self.spatial(self.gate_norm(v)))


class PointNet(nn.Module):
    """Qi et al. 2017: a transform made of the points, layers shared by points, the greatest of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.transform = self._shared(3, 32), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 9))
        self.first, self.second = self._shared(3, 32), self._shared(32, 64)
        self.out = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))

    def _shared(self, c_in: int, c_out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(c_in, c_out, 1), nn.BatchNorm1d(c_out), nn.ReLU())

    def forward(self, points: Tensor) -> Tensor:
        turn = self.transform(self.look(points).max(2).values).view(-1, 3, 3) + torch.eye(3)
        points = torch.bmm(points.transpose(1, 2), turn).transpose(1, 2)
        return self.out(torch.max(self.second(self.first(points)), 2)[0])


class DeepSets(nn.Module):
    """Zaheer et al. 2017: a sum over a set between two MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.rho = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.rho(self.phi(x).sum(1))


class Siren(nn.Module):
    """Sitzmann et al. 2020: sines of frequency 30."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 if i == 0 else 64, 64) for i in range(3))
        self.out = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        return self.out(x)


class Nerf(nn.Module):
    """Mildenhall et al. 2020: sines and cosines of coordinates, a layer that reads them again, density and colour."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Linear(27 if i == 0 else 64, 64) for i in range(3))
        self.after = nn.ModuleList(nn.Linear(64 + 27 if i == 0 else 64, 64) for i in range(2))
        self.density, self.feature = nn.Linear(64, 1), nn.Linear(64, 64)
        self.colour = nn.Sequential(nn.Linear(64 + 15, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())

    def _encode(self, x: Tensor, frequencies: int) -> Tensor:
        waves = [f(2**i * math.pi * x) for i in range(frequencies) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    def forward(self, place: Tensor, direction: Tensor) -> Tensor:
        code = x = self._encode(place, 4)
        for layer in self.before:
            x = F.relu(layer(x))
        x = torch.cat([x, code], -1)
        for layer in self.after:
            x = F.relu(layer(x))
        colour = self.colour(torch.cat([self.feature(x), self._encode(direction, 2)], -1))
        return torch.cat([F.relu(self.density(x)), colour], -1)


class RealNVP(nn.Module):
    """Dinh et al. 2017: half of the variables scale and shift the other half, in turn; its log-determinant too."""

    def __init__(self, size: int = 8, layers: int = 4) -> None:
        super().__init__()
        half = size // 2
        self.scales = nn.ModuleList(self._mlp(half, nn.Tanh()) for _ in range(layers))
        self.shifts = nn.ModuleList(self._mlp(half) for _ in range(layers))

    def _mlp(self, half: int, *last: nn.Module) -> nn.Sequential:
        return nn.Sequential(nn.Linear(half, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, half), *last)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = x.new_zeros(len(x))
        for scale, shift in zip(self.scales, self.shifts, strict=True):
            a, b = x.chunk(2, -1)
            s = scale(a)
            x, log_det = torch.cat([b * torch.exp(s) + shift(a), a], -1), log_det + s.sum(-1)
        return x, log_det


class GCN(nn.Module):
    """Kipf & Welling 2017, with a dense adjacency D^-½(A + 1)D^-½ that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.relu(adjacency @ self.first(x))
        return adjacency @ self.out(F.relu(adjacency @ self.second(x)))


class GATLayer(nn.Module):
    """Veličković et al. 2018: attention over neighbours, from a sum of a part for each end."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.W, self.a = nn.Linear(c_in, c_out, bias=False), nn.Parameter(torch.randn(2 * c_out, 1) / c_out**0.5)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.W(x)
        size = h.shape[-1]
        scores = F.leaky_relu(h @ self.a[:size] + (h @ self.a[size:]).transpose(-1, -2), 0.2)
        return torch.softmax(scores.masked_fill(~edges, -math.inf), -1) @ h


class GAT(nn.Module):
    """Two layers of graph attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = GATLayer(16, 32), GATLayer(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.out(F.elu(self.second(F.elu(self.first(x, edges)), edges)))


class KANLayer(nn.Module):
    """Liu et al. 2024, with Gaussian bumps for splines: a function of its own on every edge, and a SiLU beside it."""

    def __init__(self, c_in: int, c_out: int, bumps: int = 6) -> None:
        super().__init__()
        self.base, self.spline = nn.Linear(c_in, c_out, bias=False), nn.Linear(c_in * bumps, c_out, bias=False)
        self.register_buffer("centres", torch.linspace(-2, 2, bumps))

    def forward(self, x: Tensor) -> Tensor:
        bumps = torch.exp(-((x[..., None] - self.centres) ** 2) / 0.64)
        return self.base(F.silu(x)) + self.spline(bumps.flatten(-2))


class DeepONet(nn.Module):
    """Lu et al. 2021: a branch that reads a function, a trunk that reads a place, their inner product."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32))
        self.trunk = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())

    def forward(self, function: Tensor, places: Tensor) -> Tensor:
        return torch.einsum("bi,pi->bp", self.branch(function), self.trunk(places))


class Highway(nn.Module):
    """Srivastava et al. 2015: a gate between a layer and its input, at first mostly shut."""

    def __init__(self, width: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.stem, self.out = nn.Linear(width, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for gate in self.gates:
            nn.init.constant_(gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            t = torch.sigmoid(gate(x))
            x = t * F.relu(layer(x)) + (1 - t) * x
        return self.out(x)


def _edges(nodes: int = 48) -> Tensor:
    edges = normal(nodes, nodes) > 1.5
    return edges | edges.T | torch.eye(nodes, dtype=torch.bool)


def _adjacency() -> Tensor:
    dense = _edges().float()
    scale = dense.sum(1).rsqrt()
    return scale[:, None] * dense * scale


BLOCKS: dict[str, Net] = {
    "MLP-Mixer": Net(lambda: Mixer(hyper=False), PATCHES),
    "HyperMixer": Net(lambda: Mixer(hyper=True), PATCHES),
    "gMLP": Net(lambda: nn.Sequential(nn.Linear(32, 32), GatedMLP(), GatedMLP(), nn.Linear(32, 10)), PATCHES),
    "PointNet": Net(PointNet, normal(16, 3, 32)),
    "Deep Sets": Net(DeepSets, normal(32, 10, 8), "values"),
    "SIREN": Net(Siren, normal(64, 2).clamp(-1, 1), "values"),
    "NeRF": Net(Nerf, (normal(64, 3), F.normalize(normal(64, 3), dim=-1)), "values"),
    "RealNVP": Net(RealNVP, normal(64, 8), "values"),
    "GCN": Net(GCN, (normal(48, 16), _adjacency())),
    "GAT": Net(GAT, (normal(48, 16), _edges())),
    "KAN": Net(lambda: nn.Sequential(KANLayer(8, 32), KANLayer(32, 32), KANLayer(32, 4)), normal(64, 8), "values"),
    "DeepONet": Net(DeepONet, (normal(32, 20), normal(16, 2)), "values"),
    "Highway": Net(Highway, normal(32, 32)),
}
