"""Hypernets to be diagnosed: broken ones, with one fault planted in each, and healthy ones."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, sigmoid, tanh

import hyperfan as hf
from hyperfan.models import mobilenet


@dataclass
class Patient:
    """What goes into ``diagnose``."""

    net: nn.Module
    x: Any
    y: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def mlp(activation: type[nn.Module] = nn.Tanh, depth: int = 4, width: int = 64, inputs: int = 96) -> nn.Sequential:
    """Fan-in and fan-out of the first layer differ."""
    sizes = [inputs, *[width] * depth]
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def cnn(norm: bool = False, groups: int = 1) -> nn.Sequential:
    def block(a: int, b: int, g: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1, groups=g), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]

    layers = [*block(3, 32, 1), *block(32, 64, groups), nn.AvgPool2d(2), *block(64, 64, groups)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Residual(nn.Module):
    """Blocks x + F(x), without norms."""

    def __init__(self, blocks: int = 10, width: int = 96) -> None:
        super().__init__()
        self.stem = nn.Linear(96, width)
        self.a = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.b = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for a, b in zip(self.a, self.b, strict=True):
            x = x + b(relu(a(relu(x))))
        return self.last(relu(x))


def _same(z: Tensor) -> Tensor:
    return z


class Between(nn.Module):
    """An MLP with something between two of its layers, or behind the last."""

    def __init__(self, middle: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor] = _same) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(96, 128), nn.Linear(128, 128), nn.Linear(128, 10)
        self.middle, self.end = middle, end

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.first(x))
        return self.end(self.last(tanh(self.second(x))))


class ThreeAtOnce(nn.Module):
    """Sums of three layers, which the theory takes to have unit variance."""

    def __init__(self, levels: int = 6) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.ModuleList(nn.Linear(96, 96) for _ in range(3)) for _ in range(levels))

    def forward(self, x: Tensor) -> Tensor:
        for level in self.levels:
            x = sum(layer(x) for layer in level)
        return x


class Waves(nn.Module):
    """A neural field: the slope of sin(30·z) does not go with its scale."""

    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(96, 96) for _ in range(depth))
        self.last = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        return self.last(x)


class Encoder(nn.Module):
    """A small transformer encoder on numbers."""

    def __init__(self, layers: int = 2, width: int = 64, norm_first: bool = True) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=norm_first, activation="gelu"
        )
        self.read = nn.Linear(16, width)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.read(x)).mean(1))


class UNet(nn.Module):
    """Down, up, and across."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, padding=1)
        self.bottom = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.across, self.last = nn.Conv2d(2 * width, width, 3, padding=1), nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = relu(self.down1(x))
        low = relu(self.bottom(relu(self.down2(high))))
        return self.last(relu(self.across(torch.cat([high, relu(self.up(low))], 1))))


class Gru(nn.Module):
    """A recurrent net with a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.last = nn.GRU(16, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.gru(x)[0][:, -1])


class OwnHypernet(nn.Module):
    """Somebody's own: a trunk, and a linear head for each weight of the mainnet."""

    def __init__(self, mainnet: nn.Module, size: int = 32, embedding_std: float = 1.0) -> None:
        super().__init__()
        self.shapes = {n: tuple(p.shape) for n, p in mainnet.named_parameters() if p.ndim > 1}
        self.embedding = nn.Parameter(torch.randn(len(self.shapes), size) * embedding_std)
        self.heads = nn.ModuleList(nn.Linear(size, math.prod(s)) for s in self.shapes.values())

    def forward(self) -> dict[str, Tensor]:
        made = [head(e) for head, e in zip(self.heads, self.embedding, strict=True)]
        return {n: w.view(s) for (n, s), w in zip(self.shapes.items(), made, strict=True)}


def vectors(n: int = 100) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 96), torch.randint(10, (n,))


def pictures(n: int = 32, size: int = 16) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, size, size), torch.randint(10, (n,))


def ours(mainnet: nn.Module, x: Tensor, embedding: int | hf.Embedding = 32, **options: Any) -> hf.HyperNet:
    return hf.HyperNet(mainnet, embedding, example=x[:2], **options)


def zero_biases(mainnet: nn.Module) -> nn.Module:
    for name, p in mainnet.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
    return mainnet


@torch.no_grad()
def heads_times(net: hf.HyperNet, factor: float, only: str = "") -> hf.HyperNet:
    """The fault in every head, or in those with this in their name."""
    for name in net.heads.layouts:
        if only in name:
            net.heads.head(name).weight.mul_(factor)
    return net


@torch.no_grad()
def heads_std(net: hf.HyperNet, std: Callable[[hf.init.Row, int], float]) -> hf.HyperNet:
    """Every head drawn anew, with a standard deviation worked out from its row of the plan and its outputs."""
    for row in net.plan.rows:
        if row.made_by == "head" and row.target:
            weight = net.heads.head(row.head).weight
            weight.normal_(0, std(row, weight.shape[1]))
    return net


# ── broken, each in one place ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Fault:
    """How to plant it, and what the diagnosis must say."""

    plant: Callable[[], Patient]
    name: str
    says: str = ""
    note: bool = False
    """Whether it may be meant, so that it is told and the net counts as healthy."""


def _scaled(factor: float, activation: type[nn.Module] = nn.Tanh) -> Patient:
    x, y = vectors()
    return Patient(heads_times(ours(mlp(activation), x), factor), x, y)


def _method(init: str) -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x, init=init), x, y)


def _drawn(std: Callable[[hf.init.Row, int], float], embedding: int | hf.Embedding = 32) -> Patient:
    x, y = vectors()
    return Patient(heads_std(ours(mlp(), x, embedding, heads="separate"), std), x, y)


def _receptive() -> Patient:
    x, y = pictures()
    return Patient(heads_times(ours(cnn(), x), 3.0, only="3x3"), x, y)


def _groups() -> Patient:
    x, y = pictures()
    net = ours(cnn(groups=8), x, heads="separate")
    return Patient(heads_times(heads_times(net, 8**-0.5, only="2/"), 8**-0.5, only="5/"), x, y)


def _swapped() -> Patient:
    x, y = vectors()
    mainnet = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ours(mainnet, x, heads="separate")
    return Patient(heads_std(net, lambda r, _: math.sqrt(r.target * r.fan_in / r.fan_out / r.moment)), x, y)


def _bias_share() -> Patient:
    x, y = vectors()
    net = ours(mlp(), x, generate="weights+biases", heads="separate")
    return Patient(heads_times(net, 2**0.5, only="weight"), x, y)


def _depth() -> Patient:
    x, y = vectors()
    return Patient(heads_times(ours(Residual(), x, heads="separate"), 10**0.5, only="b/"), x, y)


def _own(change: Callable[[OwnHypernet], None], mainnet: nn.Module | None = None) -> Patient:
    x, y = vectors()
    mainnet = zero_biases(mainnet or mlp())
    hypernet = OwnHypernet(mainnet)
    healthy_own_(hypernet)
    change(hypernet)
    return Patient(mainnet, x, y, {"generated": hypernet})


@torch.no_grad()
def healthy_own_(hypernet: OwnHypernet) -> OwnHypernet:
    """As our README tells people to start a head of their own."""
    for i, (head, shape) in enumerate(zip(hypernet.heads, hypernet.shapes.values(), strict=True)):
        hf.init.hyperfan_in_uniform_(head.weight, shape, "tanh" if i else "linear")
        nn.init.zeros_(head.bias)
    return hypernet


def _torch_default(hypernet: OwnHypernet) -> None:
    for head in hypernet.heads:
        head.reset_parameters()


@torch.no_grad()
def _biases_by_default(hypernet: OwnHypernet) -> None:
    for head in hypernet.heads:
        nn.init.uniform_(head.bias, -(head.in_features**-0.5), head.in_features**-0.5)


class Detached(nn.Module):
    """A trunk that hands on nothing to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, e: Tensor) -> Tensor:
        return self.layer(e).detach() + 0 * self.layer(e)


def _deaf_trunk() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x, trunk=Detached()), x, y)


@torch.no_grad()
def saturated_trunk(**options: Any) -> Patient:
    x, y = vectors(20)
    trunk = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    trunk[0].bias.fill_(30.0)
    return Patient(ours(mlp(depth=1), x, CONDITION, trunk=trunk, **options), x, y)


@torch.no_grad()
def _zero_heads(hypernet: OwnHypernet) -> None:
    for head in hypernet.heads:
        nn.init.zeros_(head.weight)


def _zero_head() -> Patient:
    x, y = vectors()
    return Patient(heads_times(ours(mlp(), x, heads="separate"), 0.0, only="2/"), x, y)


class OneCode(nn.Module):
    """A trunk that puts out the same code for every embedding, and learns which."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(32))

    def forward(self, e: Tensor) -> Tensor:
        return self.code.expand(len(e), -1)


def _constant_trunk() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x, trunk=OneCode(), heads="separate"), x, y)


@torch.no_grad()
def _zero_factors() -> Patient:
    """Of a product on a base, as of a low-rank update of a net that works without it."""
    x, y = vectors()
    net = ours(mlp(), x, heads=hf.LowRank(4), share=0.2)
    for part in net.heads.parts():
        if part.name.startswith("2/"):
            part.map.weight.zero_()
            part.map.bias.zero_()
    return Patient(net, x, y)


@torch.no_grad()
def _zero_codes() -> Patient:
    """Heads of zeros on their biases behind a trunk whose last layer is zero too."""
    x, y = vectors()
    net = ours(mlp(), x, trunk=(32, 32), heads="separate", share=0.0)
    last = [m for m in net.trunk.modules() if isinstance(m, nn.Linear)][-1]
    last.weight.zero_()
    return Patient(net, x, y)


class OwnLoRA(nn.Module):
    """Somebody's own low-rank update of a net that is frozen, from a code."""

    def __init__(self, mainnet: nn.Module, rank: int = 4) -> None:
        super().__init__()
        self.base = {n: p.detach().clone() for n, p in mainnet.named_parameters() if p.ndim > 1}
        self.code = nn.Parameter(torch.randn(16))
        rows, columns = ([p.shape[i] * rank for p in self.base.values()] for i in (0, 1))
        self.a, self.b = (nn.ModuleList(nn.Linear(16, n) for n in sizes) for sizes in (columns, rows))
        self.rank = rank

    def forward(self) -> dict[str, Tensor]:
        made = {}
        for (name, base), a, b in zip(self.base.items(), self.a, self.b, strict=True):
            made[name] = base + b(self.code).view(-1, self.rank) @ a(self.code).view(self.rank, -1)
        return made


def own_lora(*zero: str) -> Patient:
    x, y = vectors()
    mainnet = zero_biases(hf.HyperNet(mlp(), 32).freeze())
    hypernet = OwnLoRA(mainnet)
    for name, p in hypernet.named_parameters():
        p.requires_grad_()
        if name[0] in zero:
            nn.init.zeros_(p)
    return Patient(mainnet, x, y, {"generated": hypernet})


CONDITION = hf.Embedding(16, given=True, per="net")


def _conditions(scale: float, count: int | None) -> Patient:
    """Conditions of another standard deviation than told: one for all inputs, or one for each."""
    x, y = vectors()
    e = scale * torch.randn(*(() if count is None else (count,)), 16)
    return Patient(ours(mlp(), x, CONDITION, trunk=(64,), share=0.5), x, y, {"embedding": e})


def _on_base(
    scale: float,
    count: int = 100,
    distinct: int = 100,
    embedding: hf.Embedding = CONDITION,
    common: float = 0.0,
    width: int = 64,
    **options: Any,
) -> Patient:
    """Conditions of another scale, or few of them, where most of each weight, or of each code, is common to all."""
    x, y = vectors()
    e = (common + scale * torch.randn(distinct, 16)).repeat(count // distinct, 1)
    return Patient(ours(mlp(width=width), x, embedding, trunk=(64,), **options), x, y, {"embedding": e})


@torch.no_grad()
def _equal_tasks() -> Patient:
    x, y = vectors()
    net = ours(mlp(), x, hf.Embedding(16, tasks=4, trainable=True, per="net"), trunk=(64,))
    net.embeddings.weight.copy_(net.embeddings.weight[:1].clone())
    return Patient(net, x, y)


def _between(middle: Callable[[Tensor], Tensor] = tanh, end: Callable[[Tensor], Tensor] = _same) -> Patient:
    x, y = vectors()
    return Patient(ours(Between(middle, end), x), x, y)


def _own_conditioned(enter: Callable[[Tensor], Tensor], start: str = "hyperfan") -> Patient:
    """Somebody's own: the first weight from a condition for each input, which enters a trunk like this."""
    x, y = vectors(20)
    mainnet, head = zero_biases(mlp(depth=1)), nn.Linear(8, 64 * 96)
    trunk = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    if start == "hyperfan":
        hf.init.hyperfan_in_uniform_(head.weight, (64, 96))
    elif start == "kaiming":
        nn.init.kaiming_uniform_(head.weight)
    if start != "nn.Linear":
        nn.init.zeros_(head.bias)
    e = torch.randn(20, 8)
    return Patient(mainnet, x, y, {"generated": lambda: {"0.weight": head(trunk(enter(e))).view(-1, 64, 96)}})


def _cut_off() -> Patient:
    x, y = vectors()
    mainnet = zero_biases(mlp())
    hypernet = healthy_own_(OwnHypernet(mainnet))
    return Patient(mainnet, x, y, {"generated": lambda: {n: t.detach() for n, t in hypernet().items()}})


@torch.no_grad()
def _biased(value: float, activation: type[nn.Module], layer: str) -> Patient:
    x, y = vectors()
    net = ours(mlp(activation), x)
    net.mainnet.get_parameter(f"{layer}.bias").fill_(value)
    return Patient(net, x, y)


@torch.no_grad()
def _norm_generated() -> Patient:
    x, y = pictures()
    net = ours(cnn(norm=True), x, generate=["*.weight"])
    net.heads.head("1/weight").weight.normal_()
    return Patient(net, x, y)


@torch.no_grad()
def _norm_plain() -> Patient:
    x, y = pictures()
    net = ours(cnn(norm=True), x)
    net.mainnet.get_parameter("1.weight").fill_(4.0)
    return Patient(net, x, y)


def _noisy() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x, hf.Embedding(32, noise=5.0)), x, y)


def _fast() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x), x, y, {"lr": 3.0})


def _plain_rate_of_adamw() -> Patient:
    """A rate at which AdamW lowers the loss of the plain net: ‖h‖₁ + 1 is about 28 for an embedding of 32."""
    x, y = vectors()
    return Patient(ours(mlp(), x), x, y, {"lr": 0.01, "optimiser": "adamw"})


def _left_out(*prefixes: str) -> Patient:
    """An optimiser of the parameters with these prefixes alone."""
    x, y = vectors(32)
    net = ours(mlp(depth=2), x, CONDITION, trunk=(16,))
    some = [p for name, p in net.named_parameters() if name.startswith(prefixes)]
    return Patient(net, x, y, {"optimiser": torch.optim.AdamW(some, lr=1e-5)})


def _loss(loss: Callable[[Tensor, Tensor], Tensor], **options: Any) -> Patient:
    x, _ = vectors(20)
    return Patient(ours(mlp(depth=1), x, CONDITION, trunk=(16,)), x, torch.randn(20, 10), {"loss": loss, **options})


def _pixels() -> Patient:
    x, y = torch.randint(256, (64, 3, 16, 16)).float(), torch.randint(10, (64,))
    return Patient(ours(cnn(), x), x, y)


def _targets(factor: float, mean: float = 0.0, **options: Any) -> Patient:
    x, _ = vectors()
    return Patient(ours(mlp(), x), x, factor * torch.randn(len(x), 10) + mean, options)


def _plain(mainnet: nn.Module, **options: Any) -> Patient:
    x, y = vectors()
    return Patient(ours(mainnet, x, **options), x, None if isinstance(mainnet, ThreeAtOnce) else y)


FAULTS = {
    "√3 left out": Fault(lambda: _scaled(3**-0.5), "wrong scale of a head", "√3 is left out"),
    "√3 twice": Fault(lambda: _scaled(3**0.5), "wrong scale of a head", "√3 is one too many"),
    "ReLU gain missing": Fault(
        lambda: _relu_hidden(2**-0.5), "wrong scale of a head", "gain of the nonlinearity is missing"
    ),
    "ReLU gain doubled": Fault(lambda: _relu_hidden(2**0.5), "wrong scale of a head", "doubled"),
    "tanh gain missing": Fault(lambda: _tanh_hidden(), "wrong scale of a head", "gain of the nonlinearity is missing"),
    "receptive field forgotten": Fault(_receptive, "wrong scale of a head", "receptive field is forgotten"),
    "groups forgotten": Fault(_groups, "wrong scale of a head", "groups are forgotten"),
    "Xavier on the head": Fault(lambda: _method("xavier-fan-in"), "wrong scale of a head", "fan-in of the head"),
    "Kaiming on the head": Fault(
        lambda: _method("kaiming-fan-in"), "wrong scale of a head", "with the layer's gain (Kaiming)"
    ),
    "fan-out of the head": Fault(lambda: _method("xavier-fan-out"), "wrong scale of a head", "fan-out of the head"),
    "both fans of the head": Fault(
        lambda: _method("xavier-harmonic"), "wrong scale of a head", "both fans of the head"
    ),
    "d_k forgotten": Fault(
        lambda: _drawn(lambda r, _: math.sqrt(r.target)), "wrong scale of a head", "d_k is forgotten"
    ),
    "d_k from the wrong axis": Fault(
        lambda: _drawn(lambda r, outputs: math.sqrt(r.target / outputs)), "wrong scale of a head", "wrong axis"
    ),
    "Var(e) forgotten": Fault(
        lambda: _drawn(lambda r, _: math.sqrt(r.target / 32), hf.Embedding(32, std=0.1)),
        "wrong scale of a head",
        "embedding's variance is forgotten",
    ),
    "fans swapped": Fault(_swapped, "wrong scale of a head", "swapped"),
    "bias share forgotten": Fault(_bias_share, "wrong scale of a head", "bias' share is forgotten"),
    "depth forgotten": Fault(_depth, "wrong scale of a head", "depth is forgotten"),
    "variance for std": Fault(
        lambda: _drawn(lambda r, _: r.target / r.moment), "wrong scale of a head", "variance was used as the standard"
    ),
    "someone's heads as nn.Linear starts them": Fault(
        lambda: _own(_torch_default), "wrong scale of a head", "as nn.Linear does by default"
    ),
    "someone's heads at zero": Fault(lambda: _own(_zero_heads), "dead head: zero output", "set to zero"),
    "someone's bias as nn.Linear starts it": Fault(
        lambda: _own(_biases_by_default, mlp(width=512)),
        "wrong scale of a head",
        "the head's bias is as nn.Linear starts it",
    ),
    "someone's heads behind a small code": Fault(
        lambda: _own_conditioned(lambda e: 0.1 * e), "wrong scale of a head", "its code has another"
    ),
    "someone's heads as nn.Linear starts them behind a small code": Fault(
        lambda: _own_conditioned(lambda e: 0.1 * e, "nn.Linear"),
        "wrong scale of a head",
        "as nn.Linear does by default",
    ),
    "someone's heads as Kaiming starts them behind a small code": Fault(
        lambda: _own_conditioned(lambda e: 0.1 * e, "kaiming"), "wrong scale of a head", "ReLU's gain (Kaiming)"
    ),
    "a trunk that gets no gradient": Fault(_deaf_trunk, "no gradient to the trunk", "detaches"),
    "standard deviation for variance": Fault(
        lambda: _drawn(lambda r, _: (r.target / r.moment) ** 0.25), "wrong scale of a head", "used as the variance"
    ),
    "tensors cut off from the graph": Fault(_cut_off, "no gradient to the hypernet", "detach"),
    "a head of zeros": Fault(_zero_head, "dead head: zero output", "no gradient comes back"),
    "two factors of zeros": Fault(_zero_factors, "two zero factors in a row", "neither of two zeros ever learns"),
    "heads of zeros behind codes of zeros": Fault(_zero_codes, "two zero factors in a row", "behind codes of zeros"),
    "someone's LoRA, both at zero": Fault(lambda: own_lora("a", "b"), "two zero factors in a row", "A and B"),
    "conditions without anything in common": Fault(
        lambda: _patient(mlp(), *vectors(), CONDITION, share=1.0),
        "unrelated nets of two conditions",
        "one condition",
        True,
    ),
    "tasks without anything in common": Fault(
        lambda: _patient(mlp(), *vectors(), hf.Embedding(32, tasks=5), share=1.0),
        "unrelated nets of two conditions",
        "of no use to the others",
        True,
    ),
    "conditions not standardised": Fault(
        lambda: _conditions(5.0, None), "wrong scale of a head", "they are not standardised"
    ),
    "conditions not standardised, one for each input": Fault(
        lambda: _conditions(0.3, 100), "wrong scale of a head", "they are not standardised"
    ),
    "conditions a hundred times too small": Fault(lambda: _on_base(0.01), "conditions off scale", "not standardised"),
    "conditions four times too large": Fault(
        lambda: _on_base(4.0, share=0.001), "conditions off scale", "not standardised"
    ),
    "conditions a hundred times too small beside an identity": Fault(
        lambda: _on_base(0.01, embedding=replace(CONDITION, identity=64), width=128),
        "conditions off scale",
        "not standardised",
    ),
    "conditions in hundreds, as std= says": Fault(
        lambda: _on_base(100.0, embedding=replace(CONDITION, std=100.0)), "conditions off scale", "std= or example_emb"
    ),
    "one condition for all": Fault(lambda: _on_base(1.0, distinct=1), "conditions that are alike", "repeated"),
    "conditions with a large part in common": Fault(
        lambda: _on_base(0.25, common=1.0), "conditions that are alike", "not subtracted: then it fills the codes"
    ),
    "tasks with one embedding": Fault(_equal_tasks, "conditions that are alike", "set by hand"),
    "nothing generated depends on the condition": Fault(
        lambda: _on_base(1.0, share=0.0), "no dependence on the condition at the start", "share=0", True
    ),
    "a trunk that ignores the embedding": Fault(_constant_trunk, "dead head: constant in the embedding", "trunk"),
    "someone's trunk, saturated": Fault(
        lambda: _own_conditioned(lambda e: e + 1e4), "dead head: constant in the embedding", "saturated"
    ),
    "a layer cut off inside": Fault(lambda: _between(lambda z: tanh(z.detach())), "dead head: zero gradient", "detach"),
    "saturated tanh": Fault(lambda: _between(lambda z: tanh(20 * z)), "saturated tanh", "too large"),
    "saturated sigmoid": Fault(lambda: _between(lambda z: sigmoid(40 * z)), "saturated sigmoid", "too large"),
    "dead ReLU": Fault(lambda: _biased(-20.0, nn.ReLU, "2"), "dead ReLU", "biases"),
    "inputs alike": Fault(lambda: _biased(100.0, nn.ReLU, "2"), "inputs that look alike at the output", "biases"),
    "loss": Fault(lambda: _between(end=lambda z: 30 * z), "loss far from ln(classes)", "outputs are too large"),
    "norm made like a weight": Fault(_norm_generated, "norm parameters not at 1 and 0", "like weights"),
    "norm set by hand": Fault(_norm_plain, "norm parameters not at 1 and 0", "by hand"),
    "noise": Fault(_noisy, "noise larger than signal", "noise"),
    "learning rate": Fault(_fast, "learning rate too large", "‖h‖² + 1"),
    "AdamW at the plain net's rate": Fault(_plain_rate_of_adamw, "learning rate too large", "‖h‖₁ + 1"),
    "an optimiser of the trunk alone": Fault(
        lambda: _left_out("trunk"), "parameters that the optimiser does not hold", "a part of the parameters"
    ),
    "an optimiser of the heads alone": Fault(
        lambda: _left_out("heads"), "parameters that the optimiser does not hold", "a part of the parameters"
    ),
    "a margin that all outputs keep": Fault(
        lambda: _loss(lambda out, y: (out - y).abs().sub(50).relu().mean()), "a loss without a gradient", "margin"
    ),
    "a loss of classes chosen": Fault(
        lambda: _loss(lambda out, y: (out.argmax(1) != y.argmax(1)).float().mean()),
        "a loss without a gradient",
        "argmax",
    ),
    "a loss of billionths": Fault(
        lambda: _loss(lambda out, y: 1e-9 * (out - y).square().mean(), optimiser="adamw"),
        "gradients below the optimiser's epsilon",
        "scaled down",
    ),
    "pixels": Fault(_pixels, "inputs off scale", "standardised"),
    "targets in the thousands": Fault(lambda: _targets(1000.0, 5000.0), "targets off scale", "not standardised"),
    "targets of hundredths": Fault(lambda: _targets(0.01, loss=nn.MSELoss()), "targets off scale", "drowns them"),
    "sums of layers": Fault(lambda: _plain(ThreeAtOnce()), "exploding activations", "analysis does not fit"),
    "twelve sigmoids": Fault(
        lambda: _plain(mlp(nn.Sigmoid, depth=12, width=32)), "vanishing gradients", "a sigmoid passes on a quarter"
    ),
    "steep waves": Fault(lambda: _plain(Waves(), fidelity="paper"), "exploding gradients", "slope"),
    "a neural field at unit variance": Fault(
        lambda: field(_at_unit_variance), "wrong scale of a head", "frequency of the sine is forgotten"
    ),
    "overflow": Fault(lambda: _scaled(1e30, nn.ReLU), "values that are not finite", "too large"),
    "exploding": Fault(lambda: _scaled(10.0, nn.ReLU), "exploding activations", "wrong scale"),
    "vanishing": Fault(lambda: _scaled(0.1, nn.ReLU), "vanishing activations", "wrong scale"),
    "equal layers from one head": Fault(lambda: _together(), "exploding activations", "correlated"),
}


def _relu_hidden(factor: float) -> Patient:
    """Only layers that read a ReLU have its gain."""
    x, y = vectors()
    net = ours(mlp(nn.ReLU), x, heads="separate")
    for layer in ("2", "4", "6", "8"):
        heads_times(net, factor, only=f"{layer}/")
    return Patient(net, x, y)


def _tanh_hidden() -> Patient:
    x, y = vectors()
    net = ours(mlp(), x, heads="separate")
    return Patient(heads_std(net, lambda r, _: math.sqrt(r.target / r.gain / r.moment)), x, y)


def _together() -> Patient:
    x, y = torch.randn(100, 256), torch.randint(10, (100,))
    mainnet = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))
    return Patient(ours(mainnet, x, 4, heads=hf.Chunks(one_head=True)), x, y)


# ── healthy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mobile() -> Patient:
    x, y = pictures(16, 32)
    return Patient(ours(mobilenet(classes=10, width=0.25), x, hf.Embedding(32, noise=0.3)), x, y)


def _own_healthy() -> Patient:
    return _own(lambda hypernet: None)


@torch.no_grad()
def _bias_hyperinit() -> Patient:
    """Heads of zeros, and all of the start in their biases (Beck et al. 2023): the first step moves the heads."""
    x, y = vectors()
    net = ours(mlp(), x, CONDITION, trunk=(32, 32))
    for row in net.plan.rows:
        if row.made_by == "head":
            net.heads.head(row.head).weight.zero_()
            net.heads.head(row.head).bias.normal_(0, math.sqrt(row.target))
    return Patient(net, x, y)


def _on_a_trained_net(trained: bool) -> Patient:
    """Its weights and biases are not those of any start, and none of our business."""
    x, _ = vectors()
    mainnet = mlp()
    for p in mainnet.parameters():
        nn.init.normal_(p, 0, 1.5 / math.sqrt(p.shape[-1]))
        p.requires_grad_(trained)
    return Patient(ours(mainnet, x, CONDITION, share=0.1, base="mainnet"), x, None)


class Siren(nn.Module):
    """A neural field on coordinates, as in Sitzmann et al. 2020."""

    def __init__(self, depth: int = 3, width: int = 64) -> None:
        super().__init__()
        sizes = [2, *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.last = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        return self.last(x)


def field(change: Callable[[hf.HyperNet, nn.Module], None] | None = None, depth: int = 3, **options: Any) -> Patient:
    """A hypernet of a neural field that is started by hand as its authors do, and what is done to it then."""
    x, y, mainnet = 2 * torch.rand(100, 2) - 1, torch.rand(100, 3), Siren(depth)
    for i, layer in enumerate([*mainnet.layers, mainnet.last]):
        bound = math.sqrt(6 / layer.in_features) / 30 if i else 1 / layer.in_features
        nn.init.uniform_(layer.weight, -bound, bound)
    net = ours(mainnet, x, CONDITION, **{"generate": "weights", **options})
    if change is not None:
        change(net, mainnet)
    return Patient(net, x, y)


@torch.no_grad()
def _in_biases(net: hf.HyperNet, mainnet: nn.Module) -> None:
    """The authors' start in the heads' biases, and little generated."""
    for row in net.plan.rows:
        if row.made_by == "head":
            head = net.heads.head(row.head)
            head.weight.mul_(0.01)
            head.bias.copy_(mainnet.get_parameter(row.tensor).flatten())


def _at_unit_variance(net: hf.HyperNet, _mainnet: nn.Module) -> None:
    """As other nets start: what enters each sine has variance 1, and is then multiplied by 30."""
    heads_std(net, lambda row, _: math.sqrt(row.gain / row.fan_in / row.moment))


def _patient(mainnet: nn.Module, x: Tensor, y: Any, embedding: int | hf.Embedding = 32, **options: Any) -> Patient:
    return Patient(ours(mainnet, x, embedding, **options), x, y)


HEALTHY: dict[str, Callable[[], Patient]] = {
    "MLP, hyperfan-out, weights and biases": lambda: _patient(
        nn.Sequential(*mlp()[:-1]), vectors()[0], None, init="hyperfan-out", generate="weights+biases"
    ),
    "small embeddings of many tasks behind a wide trunk": lambda: _patient(
        mlp(), *vectors(), hf.Embedding(4, tasks=30), trunk=(128,)
    ),
    "MLP, tanh": lambda: _patient(mlp(), *vectors()),
    "MLP, tanh, as in the paper": lambda: _patient(mlp(), *vectors(), fidelity="paper", distribution="normal"),
    "MLP, ten ReLU layers": lambda: _patient(mlp(nn.ReLU, depth=10), *vectors()),
    "MLP, hyperfan-out": lambda: _patient(nn.Sequential(*mlp()[:-1]), vectors()[0], None, init="hyperfan-out"),
    "MLP, weights and biases": lambda: _patient(mlp(nn.ReLU), *vectors(), generate="weights+biases"),
    "waves as in SIREN": lambda: _patient(Waves(), *vectors()),
    "tasks, a trunk, trained embeddings": lambda: _patient(
        mlp(nn.ReLU, width=128), *vectors(), hf.Embedding(32, tasks=5, trainable=True, per="net"), trunk=(64, 64)
    ),
    "embeddings given at the call": lambda: _patient(mlp(nn.GELU), *vectors(), hf.Embedding(64, given=True)),
    "conditions a tenth as large": lambda: _on_base(0.1),
    "a condition for each input": lambda: _patient(mlp(nn.GELU), *vectors(), CONDITION, trunk=(64,)),
    "a condition for each input, given": lambda: Patient(
        ours(mlp(), vectors()[0], CONDITION), *vectors(40), {"embedding": torch.randn(40, 16)}
    ),
    "a task for each input": lambda: Patient(
        ours(mlp(), vectors()[0], hf.Embedding(16, tasks=4)), *vectors(40), {"task": torch.arange(40) % 4}
    ),
    "heads of zeros on their biases": _bias_hyperinit,
    "few values of few conditions": lambda: Patient(
        ours(mlp(), vectors()[0], hf.Embedding(1, given=True, per="net"), trunk=(64,)),
        *vectors(),
        {"embedding": torch.tensor([0.05])},
    ),
    "small conditions, normalised": lambda: Patient(
        ours(mlp(), vectors()[0], hf.Embedding(16, given=True, per="net", normalise=True), trunk=(64,)),
        *vectors(40),
        {"embedding": 0.01 * torch.randn(40, 16)},
    ),
    "a base drawn at the start, little generated": lambda: _patient(mlp(), *vectors(), CONDITION, share=0.05),
    "on the weights of a trained net": lambda: _on_a_trained_net(trained=True),
    "on the weights of a frozen net": lambda: _on_a_trained_net(trained=False),
    "someone's LoRA, B at zero": lambda: own_lora("b"),
    "LoRA from a condition": lambda: _patient(mlp(), *vectors(), CONDITION, heads=hf.LoRA(2), trunk=(16,)),
    "a neural field": lambda: field(),
    "a neural field, its authors' start in the biases": lambda: field(_in_biases),
    "a neural field, its authors' start in the biases, biases generated": lambda: field(
        _in_biases, generate="weights+biases", depth=6
    ),
    "a neural field on its authors' start": lambda: field(share=0.1, base="mainnet"),
    "flat chunks": lambda: _patient(
        mlp(), *vectors(), hf.Embedding(8, per="net"), heads=hf.Chunks(size=2000, flat=True, embedding=16), trunk=(64,)
    ),
    "chunks by channels": lambda: _patient(
        cnn(), *pictures(), heads=hf.Chunks(size=32), generate=["0.*", "2.*", "5.*"]
    ),
    "CNN": lambda: _patient(cnn(), *pictures()),
    "CNN with batch norm": lambda: _patient(cnn(norm=True), *pictures()),
    "CNN with batch norm, norms generated": lambda: _patient(
        cnn(norm=True), *pictures(), generate=["*.weight", "*.bias"]
    ),
    "MobileNet with noise": _mobile,
    "ten residual blocks": lambda: _patient(Residual(), *vectors()),
    "fifty residual blocks": lambda: _patient(Residual(50), *vectors()),
    "transformer encoder": lambda: _patient(Encoder(), torch.randn(16, 12, 16), torch.randint(10, (16,))),
    "U-Net": lambda: _patient(UNet(), torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)),
    "GRU": lambda: _patient(Gru(), torch.randn(32, 10, 16), torch.randint(10, (32,)), generate=["last.weight"]),
    "someone's own, started with hyperfan.init": _own_healthy,
}
