"""What the embeddings do at a call."""

import contextlib
import io

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_mean, assert_variance
from nets import Tied


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))


def test_fixed_embeddings_are_no_parameters_and_trainable_ones_are():
    assert "embeddings.weight" not in dict(hf.HyperNet(mlp(), 4).named_parameters())
    assert "embeddings.weight" in hf.HyperNet(mlp(), 4).state_dict()
    assert "embeddings.weight" in dict(hf.HyperNet(mlp(), hf.Embedding(4, trainable=True)).named_parameters())


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_their_distribution(distribution):
    net = hf.HyperNet(mlp(), hf.Embedding(50, tasks=100, std=0.7, distribution=distribution))
    e = net.embeddings.weight
    assert_variance(e, 0.49)
    assert_mean(e, 0.0)
    assert (e.abs().max() <= 0.7 * 3**0.5) == (distribution == "uniform")


def test_noise_is_drawn_anew_at_each_call_in_training_and_off_or_asked_for_in_eval():
    net = hf.HyperNet(mlp(), hf.Embedding(4, noise=0.5))
    x = torch.randn(3, 6)
    assert not torch.equal(net(x), net(x))
    assert torch.equal(net(x, noise=False), net(x, noise=False))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert not torch.equal(net(x, noise=True), net(x, noise=True))
    assert torch.equal(net.freeze()(x), net(x))


def test_noise_has_its_width():
    net = hf.HyperNet(mlp(), hf.Embedding(400, noise=0.5))
    noise = torch.stack([net.codes() - net.codes(noise=False) for _ in range(20)]) / net.heads.scale
    assert_variance(noise, 0.25 / 3)
    assert noise.abs().max() <= 0.5 + 1e-6


class Blocks(nn.Module):
    """Two blocks of two layers, and one that the net itself holds."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.b(self.a(x)))


def noisy(embedding, **options):
    return hf.HyperNet(Blocks(), embedding, nonlinearity="relu", **options)


SCOPES = {
    # tensors in order: a.0 weight, bias, a.2 weight, bias, b.0 …, b.2 …, last …
    "embedding": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    "layer": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
    "block": [0, 0, 0, 0, 1, 1, 1, 1, 2, 2],
    "network": [0] * 10,
}


@pytest.mark.parametrize("scope", SCOPES)
def test_those_of_one_scope_get_the_same_noise(scope):
    embedding = hf.Embedding(7, noise=0.5, scope=scope)
    net = noisy(embedding, generate="weights+biases")
    assert [t.layer for t in net.generated][::2] == ["a.0", "a.2", "b.0", "b.2", "last"]
    drawn = net.embeddings(None, None, True) - net.embeddings.weight
    for i in range(10):
        for j in range(10):
            same = torch.allclose(drawn[i], drawn[j], atol=1e-6)
            assert same == (SCOPES[scope][i] == SCOPES[scope][j]), (i, j)
    assert drawn.abs().max() <= 0.5 + 1e-6
    again = net.embeddings(None, None, True) - net.embeddings.weight
    assert not torch.allclose(drawn, again)


def test_the_chunks_of_a_layer_share_its_noise():
    net = noisy(hf.Embedding(7, noise=0.5, scope="block"), heads=hf.Chunks(size=2))
    drawn = net.embeddings(None, None, True) - net.embeddings.weight
    first = drawn[net.heads.spans[0]]
    assert len(first) == 8
    assert torch.allclose(first, first[:1].expand_as(first), atol=1e-6)
    assert not torch.allclose(first[0], drawn[net.heads.spans[2]][0])


def test_every_task_or_sample_has_noise_of_its_own():
    net = noisy(hf.Embedding(7, noise=0.5, scope="network", tasks=3))
    tasks = torch.tensor([1, 1])
    drawn = net.embeddings(tasks, None, True) - net.embeddings.weight[tasks]
    assert drawn.shape == (2, 5, 7)
    assert torch.allclose(drawn[0], drawn[0][:1].expand(5, 7), atol=1e-6)
    assert not torch.allclose(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("fields", "heads", "message"),
    [
        ({"scope": "blocks", "noise": 0.1}, None, "scope='blocks': did you mean 'block'"),
        ({"scope": "layer"}, None, "there is no noise"),
        ({"scope": "layer", "noise": 0.1, "per": "net"}, None, "there is one embedding for the net"),
        ({"scope": "layer", "noise": 0.1}, hf.Chunks(size=9, flat=True), "a code may serve several layers"),
    ],
)
def test_scopes_that_cannot_be(fields, heads, message):
    with pytest.raises(hf.HyperfanError, match=message):
        noisy(hf.Embedding(4, **fields), heads=heads)


def test_flat_chunks_may_share_the_noise_of_the_network():
    net = noisy(hf.Embedding(4, noise=0.1, scope="network"), heads=hf.Chunks(size=9, flat=True))
    drawn = net.embeddings(None, None, True) - net.embeddings.weight
    assert torch.allclose(drawn, drawn[:1].expand_as(drawn), atol=1e-6)


def test_tasks_have_embeddings_of_their_own():
    net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=3, trainable=True))
    x = torch.randn(3, 6)
    outs = [net(x, task=t) for t in range(3)]
    assert not torch.equal(outs[0], outs[1])
    outs[1].sum().backward()
    used = net.embeddings.weight.grad.flatten(1).any(1)
    assert used.tolist() == [False, True, False]


def test_one_task_per_sample_equals_a_loop():
    net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=3))
    x, tasks = torch.randn(5, 6), torch.tensor([2, 0, 0, 1, 2])
    loop = torch.cat([net(x[i : i + 1], task=int(t)) for i, t in enumerate(tasks)])
    torch.testing.assert_close(net(x, task=tasks), loop)


def test_one_embedding_per_sample_equals_a_loop_with_gradients():
    embedding = hf.Embedding(4, given=True, per="net")
    net = hf.HyperNet(mlp().double(), embedding, trunk=(7,), generate="weights+biases")
    x, e = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    together = net(x, embedding=e)
    loop = torch.cat([net(x[i : i + 1], embedding=e[i]) for i in range(5)])
    torch.testing.assert_close(together, loop, rtol=1e-12, atol=1e-12)
    target = torch.randn_like(loop)
    grads = [torch.autograd.grad((out * target).sum(), list(net.parameters())) for out in (together, loop)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_separate_heads_start_differently_with_one_embedding_for_the_net():
    net = hf.HyperNet(nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5)), hf.Embedding(4, per="net"))
    made = list(net.generate().values())
    assert net.heads.config.sharing == "separate"
    assert not torch.equal(*made)


def test_m4_warns_that_tensors_of_one_head_stay_equal():
    with pytest.warns(hf.HyperfanWarning, match=r"head 5x5.*heads='separate'"):
        net = hf.HyperNet(nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5)), 4, init="m4")
    assert torch.equal(*net.generate().values())


def test_buffers_live_on_the_hypernet_and_are_updated():
    main = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    main.register_buffer("constant", torch.ones(2), persistent=False)
    net = hf.HyperNet(main, 4)
    assert "mainnet.1.running_mean" in net.state_dict()
    assert "mainnet.constant" not in net.state_dict()
    net(torch.randn(8, 6) + 3)
    assert net.mainnet.get_buffer("1.running_mean").any()
    assert int(net.mainnet.get_buffer("1.num_batches_tracked")) == 1
    assert not main[1].running_mean.any()


def test_frozen_parameters_stay_frozen():
    main = mlp()
    main[4].bias.requires_grad_(False)
    net = hf.HyperNet(main, 4)
    assert not net.mainnet.get_parameter("4.bias").requires_grad


def test_tied_parameters_are_generated_once():
    x = torch.tensor([1, 2, 3])
    net = hf.HyperNet(Tied(nn.Tanh(), bias=False), 4, example=x)
    assert list(net.generate()) == ["embed.weight"]
    plain = net.freeze()
    assert plain.embed.weight is plain.decode.weight
    assert torch.equal(plain(x), net(x))


def test_it_says_what_it_is():
    net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=3, noise=0.1, trainable=True), trunk=(8,))
    text = repr(net)
    assert "generates 3 of 6 tensors (65 values) of Sequential, d_k=8, shared heads" in text
    assert "init=hyperfan-in(bias_share=0.5) (exact, uniform)" in text
    assert "trainable, 3 × 4, 3 tasks, noise ±0.1" in text
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        net.print_trainable_parameters()
    count = sum(p.numel() for p in net.parameters())
    assert out.getvalue() == f"trainable parameters: {count:,} of {count:,} | mainnet: 77, of which generated: 65\n"


def test_mixed_dtypes():
    main = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    main[1].double()
    net = hf.HyperNet(main, 3)
    made = net.generate()
    assert made["0.weight"].dtype == torch.float32
    assert made["1.weight"].dtype == torch.float64


def test_a_code_that_the_trunk_kills_is_drawn_anew():
    """With two ReLU units every fourth code would be exactly zero, and its tensor with it, for ever."""
    for seed in range(20):
        torch.manual_seed(seed)
        for fidelity in ("exact", "paper"):
            net = hf.HyperNet(mlp(), 4, trunk=(2,), fidelity=fidelity)
            assert all(w.any() for w in net.generate().values())


def test_a_trunk_that_kills_embeddings_set_by_the_init_is_drawn_anew():
    """Meyerson's M4 sets every embedding to one number, so that another draw of the trunk alone can help."""
    for seed in range(20):
        torch.manual_seed(seed)
        for tasks in (None, 2):
            net = hf.HyperNet(mlp(), hf.Embedding(4, tasks=tasks), trunk=(2,), init="m4", fidelity="paper")
            of_tasks = [net.generate()] if tasks is None else [net.generate(task=task) for task in range(tasks)]
            assert all(w.any() for made in of_tasks for name, w in made.items() if name.endswith("weight"))


def test_a_normalised_code_of_zeros_is_not_a_nan():
    net = hf.HyperNet(mlp(), hf.Embedding(4, given=True, per="net", normalise=True))
    e = torch.zeros(4, requires_grad=True)
    out = net(torch.ones(2, 6), embedding=e)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(e.grad).all()


def test_a_plain_bias_beside_a_tied_weight_starts_at_zero():
    net = hf.HyperNet(Tied(nn.Tanh()), 4, example=torch.tensor([1, 2, 3]))
    assert not net.mainnet.get_parameter("decode.bias").any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_tasks_of_any_integer_type_are_numbers_and_no_mask(dtype):
    net = hf.HyperNet(nn.Linear(3, 2), hf.Embedding(4, tasks=3))
    x, tasks = torch.randn(2, 3), torch.tensor([1, 0])
    each = torch.cat([net(x[:1], task=1), net(x[1:], task=0)])
    torch.testing.assert_close(net(x, task=tasks.to(dtype)), each)
    torch.testing.assert_close(net(x, task=tasks.numpy()[0]), net(x, task=1))
