"""Mainnets as people write them. What is said of each layer is right, or nothing is said."""

import math

import pytest
import torch
import torch.nn.functional as F
from mainnets import CELL, ROUGH, between, branches, pair
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

from gain_oracle import gains
from hyperfan.errors import HyperfanWarning
from hyperfan.mainnet import read, select


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.join = nn.Conv2d(8, 4, 3, padding=1)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        skip = F.relu(self.down(x))
        x = self.up(F.relu(self.middle(F.max_pool2d(skip, 2))))
        return self.out(F.relu(self.join(torch.cat([x, skip], dim=1))))


def test_u_net():
    spec = read(UNet(), torch.randn(1, 1, 8, 8))
    found = between(spec)
    assert found["middle.weight"] == ("relu", "relu")
    assert found["up.weight"][0] == "relu"
    assert pair(spec["join.weight"].consumes.gains) == pytest.approx((4 / 3, 4 / 3), rel=ROUGH)  # half 1, half ½
    assert branches(spec) == {}


class RMSNorm(nn.Module):
    """As LLaMA has it."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class Decoder(nn.Module):
    """One pre-norm block with attention by einsum, a gated MLP and a tied embedding."""

    def __init__(self, norm, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(10, width)
        self.position = nn.Parameter(torch.zeros(1, 16, width))
        self.norms = nn.ModuleList(norm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.gate, self.up, self.down = nn.Linear(width, 16), nn.Linear(width, 16), nn.Linear(16, width)
        self.head = nn.Linear(width, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i):
        x = self.embedding(i) + self.position[:, : i.shape[1]]
        b, t, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(w / self.heads)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        mixed = torch.einsum("bhqk,bhkd->bhqd", scores.masked_fill(mask, -torch.inf).softmax(-1), v)
        x = x + self.project(mixed.transpose(1, 2).reshape(b, t, w))
        h = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return self.head(self.norms[2](x))


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_a_decoder_written_by_hand(norm):
    spec = read(Decoder(norm), torch.randint(0, 10, (2, 5)))
    found = between(spec)
    assert found["qkv.weight"] == ("linear", "linear")
    assert found["project.weight"][0] == "attention"
    assert found["gate.weight"] == ("linear", "silu")
    assert found["up.weight"][0] == "linear"
    assert spec["down.weight"].consumes.gains.forward == pytest.approx(gains("silu").forward, rel=ROUGH)
    assert branches(spec) == {"project.weight": 2, "down.weight": 2}
    assert spec["head.weight"].fans.fan_in == 8


def test_a_norm_written_by_hand_is_not_mistaken_for_an_activation():
    by_hand = read(Decoder(RMSNorm), torch.randint(0, 10, (2, 5)))
    library = read(Decoder(nn.RMSNorm), torch.randint(0, 10, (2, 5)))
    assert between(by_hand) == between(library)
    assert branches(by_hand) == branches(library)
    for norm in range(3):
        assert (by_hand[f"norms.{norm}.scale"].role, by_hand[f"norms.{norm}.scale"].start) == ("scale", 1)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, stride=4)
        self.tokens = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
        self.channels = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norms[0](x).mT).mT
        x = x + self.channels(self.norms[1](x))
        return self.head(x.mean(1))


def test_mlp_mixer():
    spec = read(Mixer(), torch.randn(2, 3, 8, 8))
    assert branches(spec) == {"tokens.2.weight": 2, "channels.2.weight": 2}
    assert between(spec)["tokens.0.weight"] == ("linear", "gelu")
    assert between(spec)["channels.2.weight"][0] == "gelu"


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.a, self.b = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.squeeze, self.excite = nn.Linear(8, 2), nn.Linear(2, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = F.relu(self.stem(x))
        y = self.b(F.relu(self.a(x)))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3))))))
        x = F.relu(x + y * gate[:, :, None, None])
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_squeeze_and_excitation():
    spec = read(SqueezeExcite(), torch.randn(2, 3, 8, 8))
    found = between(spec)
    assert found["a.weight"] == ("relu", "relu")
    assert found["b.weight"][0] == "relu"
    assert found["squeeze.weight"] == ("linear", "relu")
    assert found["excite.weight"] == ("relu", "sigmoid")
    assert found["head.weight"] == ("relu", "linear")
    assert branches(spec)["b.weight"] == 1


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(4 * (i + 1), 4, 3, padding=1) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 * (i + 1)) for i in range(3))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        x = self.stem(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.cat([x, layer(F.relu(norm(x)))], dim=1)
        return self.head(F.relu(x).mean((2, 3)))


def test_densenet():
    spec = read(DenseNet(), torch.randn(2, 3, 8, 8))
    assert {name: found[0] for name, found in between(spec).items()} == {
        "stem.weight": "linear",
        "layers.0.weight": "relu",
        "layers.1.weight": "relu",
        "layers.2.weight": "relu",
        "head.weight": "relu",
    }
    assert branches(spec) == {}


class Text(nn.Module):
    def __init__(self, packed):
        super().__init__()
        self.packed = packed
        self.embedding = nn.Embedding(10, 6, padding_idx=0)
        self.gru = nn.GRU(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 2)

    def forward(self, i, lengths):
        x = self.embedding(i)
        if self.packed:
            x = pack_padded_sequence(x, lengths, batch_first=True)
        _, state = self.gru(x)
        return self.head(torch.cat([state[-2], state[-1]], dim=-1))


@pytest.mark.parametrize("packed", [True, False])
def test_a_text_classifier(packed):
    spec = read(Text(packed), (torch.randint(0, 10, (2, 5)), torch.tensor([5, 3])))
    assert between(spec)["embedding.weight"][0] == "linear"
    assert spec["head.weight"].consumes.name == "tanh"
    assert between(spec)["gru.weight_ih_l0"][0] == "linear"


class Cell(nn.Module):
    """An LSTM written by hand, whose state starts at zeros made from the input."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(4, 20), nn.Linear(5, 20, bias=False)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], 5)
        for step in x:
            i, f, g, o = (self.x(step) + self.h(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def test_an_lstm_written_by_hand():
    spec = read(Cell(), torch.randn(3, 2, 4))
    assert between(spec)["x.weight"][0] == "linear"
    assert spec["h.weight"].consumes.gains is not None
    assert branches(spec) == {}


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.sin(30 * layer(x))
        return self.layers[-1](x)


def test_siren():
    spec = read(Siren(), torch.randn(5, 2))
    assert spec["layers.0.weight"].consumes.name == "linear"
    for name in ("layers.1.weight", "layers.2.weight"):
        assert pair(spec[name].consumes.gains) == pytest.approx((2, 2 / 900), rel=CELL)


class NeRF(nn.Module):
    """Positional encoding, a skip by concatenation, two heads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(4))
        self.layers = nn.ModuleList([nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(48, 8)])
        self.density, self.colour = nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x):
        x = (x[..., None] * self.frequencies).flatten(-2)
        code = h = torch.cat([x.sin(), x.cos()], dim=-1)
        for i, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat([h, code], dim=-1) if i == 2 else h))
        return {"colour": torch.sigmoid(self.colour(h)), "density": F.softplus(self.density(h))}


def test_nerf():
    spec = read(NeRF(), torch.randn(5, 3))
    found = between(spec)
    assert spec["layers.0.weight"].consumes.gains.forward == pytest.approx(2, rel=ROUGH)  # sin² + cos² = 1
    assert found["layers.1.weight"][0] == "relu"
    assert spec["layers.2.weight"].consumes.gains.forward == pytest.approx(2, rel=ROUGH)
    assert found["density.weight"] == ("relu", "softplus")
    assert found["colour.weight"] == ("relu", "sigmoid")


class Coupling(nn.Module):
    """An additive coupling layer of a flow, which is a residual block on one half."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 2)

    def forward(self, x):
        kept, changed = x.chunk(2, dim=-1)
        return torch.cat([kept, changed + self.b(torch.tanh(self.a(kept)))], dim=-1)


def test_a_coupling_layer():
    spec = read(Coupling(), torch.randn(5, 4))
    assert between(spec) == {"a.weight": ("linear", "tanh"), "b.weight": ("tanh", "linear")}
    assert branches(spec) == {"b.weight": 1}


class Graph(nn.Module):
    """Two graph convolutions that mix first and multiply then."""

    def __init__(self):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(5))
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = F.relu(self.a(self.adjacency @ x))
        return self.b(torch.matmul(self.adjacency, x))


def test_a_graph_convolution_does_not_forget_the_activation():
    """What the adjacency mixes of it is not known."""
    found = read(Graph(), torch.randn(5, 4))["b.weight"].consumes
    assert (found.name, found.gains) == ("relu·matmul", None)


class Standardised(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, w, self.bias, padding=1)


def test_a_weight_that_is_changed_before_it_is_used():
    net = nn.Sequential(Standardised(3, 4, 3), nn.ReLU(), Standardised(4, 4, 3))
    spec = read(net, torch.randn(1, 3, 8, 8))
    assert between(spec) == {"0.weight": ("linear", "relu"), "2.weight": ("relu", "linear")}


class Masked(nn.Module):
    """Masked and transposed weights, as in autoregressive nets."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(3, 6)
        self.register_buffer("mask", torch.ones(6, 4).tril())

    def forward(self, x):
        return torch.tanh(F.linear(x, self.a.weight * self.mask, self.a.bias)) @ self.b.weight


def test_masked_weights():
    assert between(read(Masked(), torch.randn(5, 4))) == {
        "a.weight": ("linear", "tanh"),
        "b.weight": ("tanh", "linear"),
    }


def test_parametrised_weights_have_no_rule_and_say_so():
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))
    spec = read(net, torch.randn(5, 4))
    with pytest.warns(HyperfanWarning, match=r"parametrizations\.weight\.original1: no rule"):
        assert [t.name for t in select(spec, "weights")] == ["2.weight"]
    assert spec["0.parametrizations.weight.original1"].role == "other"
    assert spec["2.weight"].consumes.name == "relu"
    assert spec["2.weight"].consumes.gains is not None


class Shared(nn.Module):
    """The same layer in every round, as many rounds as the data say."""

    def __init__(self):
        super().__init__()
        self.stem, self.step, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        rounds = int(x.abs().sum()) % 3 + 2
        x = F.relu(self.stem(x))
        while rounds:
            x = F.relu(self.step(x))
            rounds -= 1
        return self.head(x) if x.mean() < 1e9 else self.head(x).sigmoid()


def test_shared_weights_and_depth_that_depends_on_data():
    spec = read(Shared(), torch.randn(5, 4))
    assert between(spec) == {
        "stem.weight": ("linear", "relu"),
        "step.weight": ("relu", "relu"),
        "head.weight": ("relu", "linear"),
    }


def test_hooks_are_part_of_the_mainnet():
    net = Shared()
    net.step.register_forward_hook(lambda module, args, out: 3 * out)
    net.head.register_forward_pre_hook(lambda module, args: (torch.tanh(args[0]),))
    found = read(net, torch.randn(5, 4))
    assert found["head.weight"].consumes.name == "relu·tanh"
    assert found["step.weight"].followed_by.gains is not None


class Fourier(nn.Module):
    """A Fourier layer: complex weights between two transforms."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(1, 4)
        self.modes = nn.Parameter(torch.randn(4, 4, 3, dtype=torch.complex64))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        x = F.relu(self.lift(x)).mT
        modes = torch.einsum("bim,iom->bom", torch.fft.rfft(x)[..., :3], self.modes)
        return self.head(torch.fft.irfft(modes, n=x.shape[-1]).mT)


def test_a_fourier_layer_is_not_guessed_at():
    spec = read(Fourier(), torch.randn(2, 8, 1))
    assert spec["head.weight"].consumes.gains is None
    assert spec["modes"].role == "other"
    assert between(spec)["lift.weight"][0] == "linear"


class Autoencoder(nn.Module):
    """A variational one: two heads on one code, noise, a scale by exp."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(6, 2), nn.Linear(6, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 8))

    def forward(self, x):
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        return self.decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)), mean, log_variance


def test_a_variational_autoencoder():
    found = between(read(Autoencoder(), torch.randn(5, 8), warn=False))
    assert found["mean.weight"][0] == found["log_variance.weight"][0] == "relu"
    assert found["decoder.0.weight"][1] == "relu"
    assert found["decoder.2.weight"] == ("relu", "linear")
