"""What the golden record covers: generators, methods, embeddings, trunks, fidelities and distributions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import hyperfan as hf


@dataclass(frozen=True)
class Change:
    """A difference from the record that is meant.

    Args:
        reason: why.
        places: all that differs, named as by :func:`golden.record.differences`; ``*`` stands for any text.
    """

    reason: str
    places: tuple[str, ...]


def _mixture(row: int) -> Change:
    """In this row of the plan, the only layer that reads a mixture."""
    of_row = tuple(f"plan.rows.{row}.{column}" for column in ("gain", "target", "variance"))
    reason = "what reads a mixture of attention makes up for the number of its values"
    return Change(reason, (*of_row, f"call 0, {MIXTURE}, *"))


MIXTURE = "attention.out_proj.weight"
MIXTURES = {"heads, residual": _mixture(8), "heads, residual, out": _mixture(16)}
SIGNS = Change("flat chunks have fixed random signs", ("call *, products",))
SIGNS_AND_TEXT = Change(
    f"{SIGNS.reason}; and input layers before flat chunks, which are not scaled, are not said to be",
    (*SIGNS.places, "plan.rows.13.equation", "plan.rows.14.equation"),
)
CHANGED: dict[str, Change] = {
    **MIXTURES,
    **dict.fromkeys(["flat", "flat, paper, trunk", "flat, tasks", "flat, m4", "flat, noise", "rescaled, flat"], SIGNS),
    "flat, everything": SIGNS_AND_TEXT,
}
"""Configurations that differ from the record on purpose: each with its reason, and with the places that alone differ.

Two texts were changed in the record itself: the rows of the input layers of chunks were ``trunk.*``, and are now
``heads.inputs.*`` and the last ones, since the layers belong to the generator; and biases that Weight-HyperInit starts
at zero say so.
"""


@dataclass(frozen=True)
class Configuration:
    """One hypernet, and the calls whose generated tensors are recorded.

    Args:
        mainnet: makes it.
        embedding: as for ``HyperNet``.
        options: the other arguments of ``HyperNet``.
        trunk: makes the trunk, if it is a module.
        calls: arguments of ``net.generate``, one call after another.
        after: what to do with the net before recording it, or which net to record in its place.
        meta: whether the mainnet is on the meta device; then the plan is all there is.
    """

    mainnet: Callable[[], nn.Module]
    embedding: int | hf.Embedding
    options: Mapping[str, Any]
    trunk: Callable[[], nn.Module] | None = None
    calls: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    after: Callable[[hf.HyperNet], hf.HyperNet | None] | None = None
    meta: bool = False


# ── mainnets ──────────────────────────────────────────────────────────────────────────────────


def mlp() -> nn.Module:
    """Two weights of one shape, with tanh between."""
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)
    )


def relu() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))


def conv() -> nn.Module:
    """Convolutions of one shape, norms, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1), nn.PReLU(), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 4),
    )  # fmt: skip


def strided() -> nn.Module:
    """Strides, groups, and a depthwise-separable block."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, groups=2, padding=1), nn.SiLU(),
        nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 1)),
    )  # fmt: skip


def transposed() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.ConvTranspose2d(6, 6, 3, groups=2),
        nn.ReLU(), nn.ConvTranspose1d(6, 2, 2),
    )  # fmt: skip


class Residual(nn.Module):
    """Blocks with norms, a recurrent cell and attention on top."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 6)
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(6, 10) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(10, 6) for _ in range(blocks))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.cell = nn.GRUCell(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(torch.relu(up(norm(x))))
        attended, _ = self.attention(x, x, x, need_weights=False)
        return self.cell(x + attended)


def smaller() -> nn.Module:
    """What slices of a net for :func:`mlp` fit."""
    return nn.Sequential(
        nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)
    )


def module_trunk() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.LayerNorm(7))


# ── configurations ──────────────────────────────────────────────────────────────────────────────────

TASKS: list[dict[str, Any]] = [{"task": 0}, {"task": 2}]
NOISE: list[dict[str, Any]] = [{"noise": True}, {"noise": False}]


def _given(*shapes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Calls with an embedding of each shape: sines, so that they depend on no generator of random numbers."""
    return [{"embedding": torch.arange(1.0, 1 + _numel(s), dtype=torch.float64).sin().view(s)} for s in shapes]


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _case(
    mainnet: Callable[[], nn.Module],
    embedding: int | hf.Embedding = 6,
    *,
    module: Callable[[], nn.Module] | None = None,
    calls: list[dict[str, Any]] | None = None,
    after: Callable[[hf.HyperNet], hf.HyperNet | None] | None = None,
    meta: bool = False,
    **options: Any,
) -> Configuration:
    return Configuration(mainnet, embedding, options, module, [{}] if calls is None else calls, after, meta)


def _residual(embedding: int | hf.Embedding = 6, **options: Any) -> Configuration:
    return _case(Residual, embedding, example=torch.zeros(2, 4, dtype=torch.float64), **options)


@torch.no_grad()
def _leave_zero(net: hf.HyperNet) -> None:
    """As after some training: heads that start at zero no longer are, so that one sees what they are multiplied by."""
    for p in net.heads.parameters():
        if not p.any():
            p.copy_(torch.arange(1.0, 1 + p.numel()).sin().view(p.shape))


_TASK_TABLE = hf.Embedding(3, per="net", tasks=3, trainable=True)
_VECTORS = ["0.weight", "2.*", "4.weight", "6.weight"]

CONFIGURATIONS: dict[str, Configuration] = {
    # Linear heads: methods, fidelities, distributions.
    "heads, shared": _case(mlp),
    "heads, separate": _case(mlp, heads="separate"),
    "heads, paper": _case(relu, fidelity="paper", generate="weights+biases"),
    "heads, normal, hyperfan-out": _case(relu, init="hyperfan-out", generate="weights+biases", distribution="normal"),
    "heads, bias share": _case(relu, init=hf.init.method("hyperfan-in", bias_share=0.25), generate="weights+biases"),
    "heads, harmonic": _case(conv, init="hyperfan-harmonic", generate="weights+biases"),
    "heads, geometric": _case(strided, init="hyperfan-geometric", fidelity="paper"),
    "heads, arithmetic": _case(strided, init="hyperfan-arithmetic", generate="weights+biases"),
    "heads, gist": _case(relu, init="chang2020-gist", generate="weights+biases"),
    "heads, xavier fan-in": _case(mlp, init="xavier-fan-in", trunk=(5,), heads="separate"),
    "heads, xavier fan-out": _case(conv, init="xavier-fan-out", fidelity="paper"),
    "heads, xavier harmonic": _case(relu, init="xavier-harmonic", distribution="normal"),
    "heads, xavier geometric": _case(mlp, init="xavier-geometric"),
    "heads, xavier arithmetic": _case(mlp, init="xavier-arithmetic", trunk=(5,)),
    "heads, kaiming fan-in": _case(relu, init="kaiming-fan-in", trunk=(5,), generate="weights+biases"),
    "heads, kaiming fan-out": _case(conv, init="kaiming-fan-out", trunk=(5, 4)),
    "heads, kaiming harmonic": _case(relu, init="kaiming-harmonic", fidelity="paper"),
    "heads, kaiming geometric": _case(strided, init="kaiming-geometric"),
    "heads, kaiming arithmetic": _case(relu, init="kaiming-arithmetic", trunk=(5,), distribution="normal"),
    "heads, m2": _case(conv, init=hf.init.method("m2", std=0.02), generate="*"),
    "heads, m3": _case(relu, init="m3", trunk=(5,), heads="separate"),
    "heads, m4": _case(relu, init="m4", heads="separate", generate="weights+biases"),
    "heads, auddy kaiming": _case(relu, init="auddy2024-kaiming", trunk=(5, 5), generate="weights+biases"),
    "heads, auddy uniform": _case(relu, init="auddy2024-uniform", trunk=(5, 5), generate="weights+biases"),
    "heads, auddy normal": _case(relu, init="auddy2024-normal", trunk=(5, 5), distribution="normal"),
    # Linear heads: mainnets.
    "heads, everything": _case(conv, generate="*"),
    "heads, transposed": _case(transposed, generate="weights+biases", nonlinearity="relu"),
    "heads, residual": _residual(),
    "heads, residual, out": _residual(generate="weights+biases", init="hyperfan-out", heads="separate"),
    # Linear heads: methods that came later.
    "heads, bias hyperinit": _case(relu, init="beck2022-bias", heads="separate"),
    "heads, weight hyperinit": _case(relu, init="beck2022-weight", generate="weights+biases"),
    "heads, neural fields": _case(mlp, init="sitzmann2020", generate="weights+biases", distribution="normal"),
    "heads, light fields": _case(mlp, init="sitzmann2021", generate="weights+biases", heads="separate"),
    "heads, magnitude invariant": _case(relu, init="ortiz2023", trunk=(5,)),
    "heads, GHN-2": _case(conv, init="knyazev2021", generate="weights+biases"),
    "heads, GHN-3": _case(conv, init="knyazev2023"),
    # Linear heads: embeddings and trunks.
    "heads, tasks": _case(mlp, hf.Embedding(6, tasks=3, trainable=True, std=0.5), calls=TASKS),
    "heads, tasks per sample": _case(mlp, hf.Embedding(6, tasks=3), calls=[{"task": torch.tensor([2, 0])}]),
    "heads, tasks per net": _case(relu, hf.Embedding(6, tasks=3, per="net"), trunk=(8, 7), share=1.0, calls=TASKS),
    "heads, given": _case(mlp, hf.Embedding(6, given=True), calls=_given((4, 6), (2, 4, 6))),
    "heads, given, trunk": _case(
        relu,
        hf.Embedding(6, given=True, per="net", distribution="normal"),
        generate="weights",
        trunk=(8,),
        share=1.0,
        calls=_given((6,), (2, 6)),
    ),
    "heads, module": _case(conv, module=module_trunk, init_trunk=True, generate="weights+biases"),
    "heads, normalised": _case(
        relu,
        hf.Embedding(6, given=True, normalise=True, per="net"),
        generate="weights",
        share=1.0,
        module=module_trunk,
        init_trunk=True,
        calls=_given((6,)),
    ),
    "heads, module kept": _case(conv, module=module_trunk, init_biases=False),
    "heads, noise": _case(mlp, hf.Embedding(6, noise=0.3, distribution="normal"), calls=NOISE),
    "heads, noise by layer": _case(
        relu, hf.Embedding(6, noise=0.3, scope="layer"), generate="weights+biases", trunk=(8,), calls=NOISE
    ),
    "heads, noise by block": _case(strided, hf.Embedding(6, noise=0.3, scope="block"), calls=NOISE),
    "heads, noise by network": _case(mlp, hf.Embedding(6, noise=0.3, scope="network", normalise=True), calls=NOISE),
    # Chunks by channels.
    "channels": _case(mlp, heads=hf.Chunks(), generate=_VECTORS),
    "channels, paper": _case(mlp, heads=hf.Chunks(size=2), fidelity="paper", distribution="normal"),
    "channels, together": _case(conv, heads=hf.Chunks(size=4, one_head=True), init="hyperfan-out"),
    "channels, apart": _case(conv, heads=hf.Chunks(size=2), generate="*"),
    "channels, narrow inputs, gist": _case(strided, heads=hf.Chunks(inputs=3), init="chang2020-gist"),
    "channels, no inputs": _case(mlp, heads=hf.Chunks(inputs=0)),
    "channels, trunk": _case(
        strided, hf.Embedding(6, trainable=True, noise=0.2), heads=hf.Chunks(inputs=0), trunk=(7,), calls=NOISE
    ),
    "channels, classical": _case(mlp, heads=hf.Chunks(), init="kaiming-fan-in"),
    "channels, m4": _case(mlp, heads=hf.Chunks(size=4), init="m4"),
    "channels, tasks": _case(mlp, _TASK_TABLE, heads=hf.Chunks(embedding=4), calls=TASKS),
    "channels, given, normalised": _case(
        mlp,
        hf.Embedding(3, per="net", given=True, normalise=True),
        generate="weights",
        heads=hf.Chunks(embedding=4),
        calls=_given((3,)),
    ),
    # Flat chunks.
    "flat": _case(mlp, heads=hf.Chunks(size=50, flat=True), generate="weights+biases"),
    "flat, paper, trunk": _case(
        relu, heads=hf.Chunks(size=30, flat=True), fidelity="paper", trunk=(8,), init="hyperfan-out"
    ),
    "flat, tasks": _case(
        mlp, _TASK_TABLE, heads=hf.Chunks(size=40, flat=True, embedding=4, trainable=False), trunk=(8,), calls=TASKS
    ),
    "flat, everything": _case(conv, heads=hf.Chunks(size=64, flat=True, inputs=5), generate="*"),
    "flat, m4": _case(relu, hf.Embedding(6, trainable=True), heads=hf.Chunks(size=50, flat=True), init="m4"),
    "flat, noise": _case(
        mlp, hf.Embedding(6, noise=0.3, scope="network"), heads=hf.Chunks(size=50, flat=True), calls=NOISE
    ),
    # Products, and slices.
    "low rank": _case(conv, heads=hf.LowRank(2), generate="weights+biases", trunk=(7,)),
    "low rank, code per rank": _case(
        mlp, hf.Embedding(6, tasks=3, noise=0.3), heads=hf.LowRank(3, code_per="rank"), init="hyperfan-out", calls=TASKS
    ),
    "LoRA": _case(
        conv, heads=hf.LoRA(2, alpha=3, share=0.25), generate="weights+biases", trunk=(7,), after=_leave_zero
    ),
    "LoRA, code per rank, shared": _case(
        relu,
        hf.Embedding(6, given=True, per="net", identity=4),
        heads=hf.LoRA(2, code_per="rank", sharing="shared"),
        generate="weights",
        calls=_given((6,), (2, 6)),
        after=_leave_zero,
    ),
    "slices": _case(mlp, generate="weights+biases", after=lambda net: net.for_mainnet(smaller())),
    # What changes a net after it was made, and what is planned before.
    "reset": _case(
        conv, generate="*", trunk=(8,),
        after=lambda net: net.reset_parameters(
            torch.Generator().manual_seed(4), embeddings=torch.Generator().manual_seed(5)
        ),
    ),
    "rescaled, shared": _case(mlp, after=lambda net: net.rescale_({"2.weight": 2.0, "6.weight": 0.5})),
    "rescaled, channels": _case(mlp, heads=hf.Chunks(), after=lambda net: net.rescale_({"2.weight": 2.0})),
    "rescaled, flat": _case(
        mlp, heads=hf.Chunks(size=50, flat=True), after=lambda net: net.rescale_({"2.weight": 2.0})
    ),
    "meta, trunk": _case(relu, trunk=(8,), generate="weights+biases", meta=True),
    "meta, channels": _case(mlp, heads=hf.Chunks(), meta=True),
}  # fmt: skip
