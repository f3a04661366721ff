"""The paper's MNIST hypernet in each peer's own API, one training step per call, and the plain net beside them.

Embeddings are of size 50, heads are linear, the optimiser is plain SGD or Adam. Each library once as its documentation
uses it, and once as near to our set-up and as fast as it can be made without changing its code. Embeddings are fixed,
as ours are by default, except that hyper-nn trains its own unless it is taken apart. ``python -m benchmarks.peers``
prints sizes, times and losses.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import hyperlight as hl
import jax
import jax.numpy as jnp
import optax
import torch
import torch.nn.functional as F
from flax import linen
from hypernn.jax import JaxLinearHyperNetwork
from hypnettorch.hnets import HMLP, StructuredHMLP
from hypnettorch.mnets import MLP
from torch import Tensor, nn

from hyperfan.models import mnist_net

BATCH, EMBEDDING = 10, 50
WIDTHS = (784, 500, 500, 500, 500, 500, 10)
SHAPES = [(after, before) for before, after in pairwise(WIDTHS)]
RATE = 0.01
HEAD_RATE = RATE / (EMBEDDING + 1)  # what moves a generated weight as RATE would move a plain one
ADAM_RATE = 1e-4  # as in hypnettorch's tutorial
Rule = Literal["sgd", "adam"]
"""The optimiser: those of torch, or of optax, with their defaults."""


@dataclass(frozen=True)
class Trainer:
    """A call makes one full step and gives the loss before it; ``parameters`` counts what is trained."""

    step: Callable[[], object]
    parameters: int

    def __call__(self) -> object:
        return self.step()


def batch() -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    return torch.randn(BATCH, WIDTHS[0]), torch.randint(WIDTHS[-1], (BATCH,))


def classical(x: Tensor, y: Tensor, rule: Rule = "sgd") -> Trainer:
    """The plain net, no hypernetwork."""
    net = mnist_net()
    return torch_trainer(net.parameters(), lambda: net(x), y, rule, RATE)


def hypnettorch(x: Tensor, y: Tensor, rule: Rule = "sgd") -> Trainer:
    """HMLP, the class its documentation starts with: one embedding, a head for every weight."""
    return _hypnettorch(HMLP(SHAPES, cond_in_size=EMBEDDING, num_cond_embs=1, layers=(), verbose=False), x, y, rule)


def hypnettorch_shared(x: Tensor, y: Tensor, rule: Rule = "sgd") -> Trainer:
    """StructuredHMLP: one head per shape, an embedding per layer, the same maths as ours; its own hyperfan-in."""
    shapes = list(dict.fromkeys(SHAPES))
    hypernet = StructuredHMLP(
        SHAPES,
        chunk_shapes=[[shape] for shape in shapes],
        num_per_chunk=[SHAPES.count(shape) for shape in shapes],
        chunk_emb_sizes=EMBEDDING,
        hmlp_kwargs={"layers": ()},
        assembly_fct=lambda chunks: [weight for (weight,) in chunks],
        cond_chunk_embs=True,
        cond_in_size=0,
        verbose=False,
    )
    for head in hypernet.internal_hnets:
        head.apply_hyperfan_init()
    return _hypnettorch(hypernet, x, y, rule)


def _hypnettorch(hypernet: nn.Module, x: Tensor, y: Tensor, rule: Rule) -> Trainer:
    mainnet = MLP(WIDTHS[0], WIDTHS[-1], WIDTHS[1:-1], activation_fn=nn.Tanh(), no_weights=True, verbose=False)
    for embedding in hypernet.conditional_params:
        embedding.requires_grad_(False)
    biases = [nn.Parameter(torch.zeros(width)) for width in WIDTHS[1:]]

    def logits() -> Tensor:
        weights = hypernet.forward(cond_id=0)
        return mainnet.forward(x, weights=[t for pair in zip(weights, biases, strict=True) for t in pair])

    return torch_trainer([*hypernet.parameters(), *biases], logits, y, rule, HEAD_RATE)


def hyperlight(x: Tensor, y: Tensor, rule: Rule = "sgd") -> Trainer:
    """As in its README: one HyperNet for the whole mainnet, a head for every weight."""
    mainnet = _hyperlight_mainnet()
    hypernet = hl.HyperNet({"h": (EMBEDDING,)}, mainnet.external_shapes(), hidden_sizes=[], encoding=None)
    embedding = torch.randn(EMBEDDING)

    def logits() -> Tensor:
        with mainnet.using_externals(hypernet(h=embedding)):
            return mainnet(x)

    return torch_trainer([*hypernet.parameters(), *mainnet.parameters()], logits, y, rule, HEAD_RATE)


def hyperlight_shared(x: Tensor, y: Tensor, rule: Rule = "sgd") -> Trainer:
    """A HyperNet per shape, given the embeddings of all layers of that shape as a batch: heads shared as in ours."""
    mainnet = _hyperlight_mainnet()
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, shape in mainnet.external_shapes().items():
        groups.setdefault(shape, []).append(name)
    hypernets = nn.ModuleList(
        hl.HyperNet({"h": (EMBEDDING,)}, {names[0]: shape}, hidden_sizes=[], encoding=None)
        for shape, names in groups.items()
    )
    embeddings = [torch.randn(len(names), EMBEDDING) for names in groups.values()]

    def logits() -> Tensor:
        made = {}
        for hypernet, h, (shape, names) in zip(hypernets, embeddings, groups.items(), strict=True):
            weights = hypernet(h=h)[names[0]].view(-1, *shape)  # it drops a batch dimension of 1
            made.update(zip(names, weights.unbind(), strict=True))
        with mainnet.using_externals(made):
            return mainnet(x)

    return torch_trainer([*hypernets.parameters(), *mainnet.parameters()], logits, y, rule, HEAD_RATE)


def _hyperlight_mainnet() -> nn.Module:
    mainnet = mnist_net()
    return hl.hypernetize(mainnet, parameters=hl.find_parameters_from_patterns(mainnet, globs=["*.weight"]))


def hyper_nn(x: Tensor, y: Tensor, rule: Rule = "sgd", fixed: bool = False) -> Trainer:
    """JaxLinearHyperNetwork, jitted: one embedding for all, no heads shared; it generates the biases too."""
    # With one fixed embedding XLA fuses the head's gradient into the update; with two embeddings it takes longer.
    mainnet = linen.Sequential([layer for n in WIDTHS[1:] for layer in (linen.Dense(n), linen.tanh)][:-1])
    images, labels = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())
    keys = jax.random.split(jax.random.key(0), 3)
    leaves, tree = jax.tree.flatten(mainnet.init(keys[0], images))
    size = sum(leaf.size for leaf in leaves)
    hypernet = JaxLinearHyperNetwork(  # what its from_target does, which calls jax.tree_map, gone since jax 0.6
        target_network=mainnet,
        num_target_parameters=size,
        target_treedef=tree,
        target_weight_shapes=[leaf.shape for leaf in leaves],
        embedding_dim=EMBEDDING,
        num_embeddings=1,
        weight_chunk_dim=size,
    )
    head = hypernet.init(keys[1], images)["params"]["weight_generator"]
    # Its own embedding is so small that the mainnet's signal vanishes; with this one, weights have variance 1/500.
    embedding = {"embedding": jax.random.normal(keys[2], (1, EMBEDDING)) / WIDTHS[1] ** 0.5}

    def loss(trained):
        parameters = {"embedding_module": embedding, "weight_generator": head} | trained
        logits = hypernet.apply({"params": parameters}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    trained = {"weight_generator": head} if fixed else {"weight_generator": head, "embedding_module": embedding}
    return jax_trainer(trained, loss, rule, RATE)


AS_THEY_COME = {"hypnettorch": hypnettorch, "hyperlight": hyperlight, "hyper-nn": hyper_nn}
"""Each library as its documentation uses it."""
TUNED = {
    "hypnettorch, heads shared": hypnettorch_shared,
    "hyperlight, heads shared": hyperlight_shared,
    "hyper-nn, embedding fixed": partial(hyper_nn, fixed=True),
}
"""Each as fast as we could make it without changing its code."""


def torch_trainer(
    parameters: Iterable[nn.Parameter], logits: Callable[[], Tensor], y: Tensor, rule: Rule, rate: float
) -> Trainer:
    """A trainer with torch.optim.SGD of this rate, or torch.optim.Adam, on the cross-entropy of the logits."""
    trained = [p for p in parameters if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=rate) if rule == "sgd" else torch.optim.Adam(trained, lr=ADAM_RATE)

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(logits(), y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Trainer(step, sum(p.numel() for p in trained))


def jax_trainer(
    parameters: dict[str, Any], loss: Callable[[dict[str, Any]], jax.Array], rule: Rule, rate: float
) -> Trainer:
    """A trainer with optax, compiled as one function that updates in place; a call ends when its work has ended."""
    optimiser = optax.sgd(rate) if rule == "sgd" else optax.adam(ADAM_RATE)
    state = parameters, optimiser.init(parameters)

    @partial(jax.jit, donate_argnums=0)
    def update(state):
        parameters, memory = state
        value, gradient = jax.value_and_grad(loss)(parameters)
        change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(parameters, change), memory), value

    def step() -> jax.Array:
        nonlocal state
        state, value = jax.block_until_ready(update(state))
        return value

    return Trainer(step, sum(p.size for p in jax.tree.leaves(parameters)))


def measure(trainer: Trainer, steps: int = 30, warm_up: int = 5) -> tuple[float, list[float]]:
    """The median time of a step in ms, and the loss before every step."""
    times, losses = [], []
    for _ in range(warm_up + steps):
        start = time.perf_counter()
        loss = trainer()
        times.append(1e3 * (time.perf_counter() - start))
        losses.append(float(loss))
    return statistics.median(times[warm_up:]), losses


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y = batch()
    print(f"{'':31} {'parameters':>12} {'median ms':>10}   loss, first and last")
    builders = {"classical": classical, **AS_THEY_COME}
    for name, build in {
        **{f"{name}, SGD": build for name, build in (builders | TUNED).items()},
        **{f"{name}, Adam": partial(build, rule="adam") for name, build in builders.items()},
    }.items():
        trainer = build(x, y)
        median, losses = measure(trainer)
        print(f"{name:31} {trainer.parameters:12,} {median:10.1f}   {losses[0]:.3f} {losses[-1]:.3f}")
        if losses[-1] >= losses[0]:
            raise SystemExit(f"{name} does not learn")
