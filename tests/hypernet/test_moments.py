"""The second moment that the heads divide by: expected, measured, and drawn from nobody else's random numbers."""

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import hyperfan as hf
from checks import assert_mean
from hyperfan.codes import moments as moments_file


def main() -> nn.Sequential:
    return nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100))


def moments(net):
    return [r.moment for r in net.plan.rows if r.made_by == "head"]


def on_meta(*args, **kwargs):
    with torch.device("meta"):
        empty = main()
    return hf.HyperNet(empty, *args, **kwargs)


NOISY = hf.Embedding(8, std=0.5, noise=0.6)


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (lambda: on_meta(NOISY), 8 * (0.25 + 0.36 / 3)),
        (lambda: on_meta(NOISY, trunk=(20,)), 20 * (0.25 + 0.36 / 3) / 2),
        (lambda: on_meta(NOISY, fidelity="paper"), 8 * 0.25),  # the table has Var(e), whatever is added later
        (lambda: on_meta(NOISY, trunk=(20,), fidelity="paper"), 20 * 0.25),
        (lambda: on_meta(hf.Embedding(8, std=0.5, noise=0.6, normalise=True), trunk=(20,)), 20.0),
        (lambda: on_meta(NOISY, heads=hf.Chunks(inputs=20)), 20 * (0.25 + 0.36 / 3)),  # Σ_kl G_kl²·e_l², Var(G) = 1/8
        (lambda: on_meta(NOISY, heads=hf.Chunks(inputs=20), fidelity="paper"), 20 * 0.25),
        (lambda: on_meta(NOISY, heads=hf.Chunks(inputs=20), init="xavier-fan-out"), None),
        (lambda: on_meta(NOISY, trunk=nn.Linear(8, 20)), None),  # a module of one's own: only a draw can tell
        (lambda: on_meta(NOISY, trunk=(20,), init="xavier-fan-in"), None),
    ],
)
def test_in_expectation(net, expected):
    assert moments(net()) == [expected if expected is None else pytest.approx(expected)] * 2


def test_as_drawn():
    net = hf.HyperNet(main(), NOISY)
    norms = net.embeddings.weight.square().sum(-1) + 8 * 0.36 / 3
    assert moments(net) == pytest.approx(norms.tolist())
    tasks = hf.HyperNet(main(), hf.Embedding(8, tasks=5))
    assert moments(tasks) == pytest.approx(tasks.embeddings.weight.square().sum(-1).mean(0).tolist())


@pytest.mark.parametrize("trunk", [None, (64,)], ids=str)
def test_noise_on_given_embeddings_counts(trunk):
    embedding = hf.Embedding(8, given=True, per="net", noise=2.0)
    net = hf.HyperNet(main(), embedding, generate="weights", trunk=trunk, share=1.0)
    e = torch.empty(1000, 8).uniform_(-(3**0.5), 3**0.5)
    assert_mean(100 * net.generate(embedding=e, noise=True)["0.weight"].flatten(1).var(1), 1.0)


def test_averaging_draws_from_nobody_elses_random_numbers():
    net = hf.HyperNet(main(), hf.Embedding(8, given=True, per="net", noise=0.5), trunk=(16,))
    state = torch.get_rng_state()
    net.heads.measured_moments(net.code_source)
    assert torch.equal(torch.get_rng_state(), state)


def test_codes_are_revived_from_the_generator_given():
    net = hf.HyperNet(main(), 8, trunk=(1,))  # with one ReLU unit every second code is dead
    states = []
    for _ in range(2):
        state = torch.get_rng_state()
        net.reset_parameters(torch.Generator().manual_seed(7))
        assert torch.equal(torch.get_rng_state(), state)
        states.append(net.embeddings.weight.clone())
        torch.rand(3)
    assert torch.equal(*states)


@pytest.mark.parametrize("embedding", [hf.Embedding(4, per="net"), hf.Embedding(4, normalise=True)])
def test_m4_needs_embeddings_of_its_own(embedding):
    with pytest.raises(hf.HyperfanError, match=r"use Embedding\(size, per='tensor'\) without given= and normalise="):
        hf.HyperNet(main(), embedding, init="m4", heads="separate")


def test_plain_weights_are_reset_from_the_distribution_asked_for():
    net = hf.HyperNet(main(), 4, generate="0.weight", distribution="normal")
    net.reset_parameters()
    plain = net.mainnet.get_parameter("2.weight")
    assert plain.abs().max() > 3 * plain.std()  # beyond any uniform distribution's √3


def test_each_sample_has_a_dropout_of_its_own():
    dropped = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5))
    net = hf.HyperNet(dropped, hf.Embedding(4, tasks=2)).train()
    out = net(torch.ones(3, 6), task=torch.zeros(3, dtype=torch.long))
    assert not torch.equal(out[0] == 0, out[1] == 0)


# ── chunks, each with an identity, under a given condition ─────────────────────────────────────────────────────────

GIVEN = hf.Embedding(6, given=True, per="net", std=0.7, noise=0.4)


class LargestTensor(TorchDispatchMode):
    """Remembers the number of values in the largest tensor that was made."""

    def __init__(self):
        super().__init__()
        self.values = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [t.numel() for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.values = max([self.values, *made])
        return out


@pytest.mark.parametrize(
    ("heads", "trunk"), [(hf.Chunks(5, embedding=8), None), (hf.Chunks(5, embedding=8, inputs=0), (16,))], ids=str
)
def test_many_chunks_under_many_conditions_go_through_in_blocks(heads, trunk):
    """Averaging over 64 conditions or more, times 4000 chunks, times 14 or 16 values, makes no tensor of that size."""
    with LargestTensor() as seen:
        net = hf.HyperNet(main(), GIVEN, generate="weights", heads=heads, trunk=trunk)
    assert net.heads.n == 4000
    assert seen.values <= max(
        moments_file.MAX_VALUES_AT_ONCE, moments_file.MAX_GIVEN_CODES, *(p.numel() for p in net.parameters())
    )
