"""Monte-Carlo predictions, beside the same written out with the net's own calls."""

import math

import pytest
import torch
from torch import nn

import hyperfan as hf
from hyperfan.errors import CallError

N, CLASSES = 7, 3


def build(**options):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES)).double()
    return hf.HyperNet(mainnet, hf.Embedding(5, noise=0.8, **options))


def inputs():
    return torch.randn(N, 4, dtype=torch.float64)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_they_are_the_mean_of_draws(batch):
    net, x = build(), inputs()
    net(x)  # so that the norm's statistics are some
    net.eval()
    torch.manual_seed(1)
    drawn = torch.stack([net(x, noise=True).softmax(1) for _ in range(6)])
    torch.manual_seed(1)
    found = hf.predict(net.train(), x, samples=6, batch=batch)
    mean = drawn.mean(0)
    entropy = -(mean * mean.log()).sum(1)
    inside = -(drawn * drawn.log()).sum(2).mean(0)
    torch.testing.assert_close(found.probabilities, mean)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(found.mutual_information, entropy - inside)
    assert (found.mutual_information > 1e-3).all()  # the draws do differ
    assert not found.probabilities.requires_grad


def test_weights_are_drawn_once_for_each_sample(monkeypatch):
    net, made = build(), []
    generate = net.generate
    monkeypatch.setattr(net, "generate", lambda **call: made.append(call) or generate(**call))
    hf.predict(net, inputs(), samples=4, batch=2)
    assert made == [{"task": None, "embedding": None, "noise": True}] * 4


def test_modes_and_statistics_are_left_as_they_were():
    net = build()
    net.skeleton.module[1].eval()
    before = [m.training for m in net.skeleton.module.modules()], net.training
    statistics = {name: t.clone() for name, t in net.state_dict().items()}
    hf.predict(net, inputs(), samples=2)
    assert ([m.training for m in net.skeleton.module.modules()], net.training) == before
    assert all(torch.equal(t, statistics[name]) for name, t in net.state_dict().items())


def test_a_sure_net_has_no_entropy_and_one_draw_no_disagreement():
    net, x = build(), inputs()
    with torch.no_grad():
        net.heads.head("3x6").bias.zero_()
        net.mainnet.get_parameter("3.bias").copy_(torch.tensor([1000.0, 0.0, -1000.0]))
    found = hf.predict(net, x, samples=3)
    assert found.probabilities.isfinite().all()
    assert found.entropy.max() < 1e-12
    one = hf.predict(build(), x, samples=1)
    assert (one.mutual_information < 1e-12).all()
    assert one.entropy.max() <= math.log(CLASSES)


def test_a_seed_gives_the_same_draws_and_leaves_torchs_own_alone():
    net, x = build(), inputs()
    before = torch.random.get_rng_state()
    a, b, c = (hf.predict(net, x, samples=3, batch=n, seed=s) for n, s in ((100, 5), (2, 5), (100, 6)))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(a.probabilities, b.probabilities)
    assert not torch.allclose(a.probabilities, c.probabilities)
    first = hf.predict(net, x[:3], samples=3, seed=5)
    torch.testing.assert_close(first.entropy, a.entropy[:3])


def test_a_net_that_is_given_its_embedding():
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, CLASSES))
    net = hf.HyperNet(mainnet, hf.Embedding(5, noise=0.8, given=True, per="net"))
    x, e = torch.randn(N, 4), torch.randn(2, 5)
    a, b = (hf.predict(net, x, seed=1, embedding=one) for one in e)
    assert not torch.allclose(a.probabilities, b.probabilities)
    with pytest.raises(CallError, match="one task or embedding for all inputs"):
        hf.predict(net, x, embedding=e)


def test_a_net_that_overflows_is_not_said_to_be_sure():
    net, x = build(), inputs()
    x[2] = math.nan
    found = hf.predict(net, x, samples=2)
    assert found.entropy.isnan().tolist() == [i == 2 for i in range(N)]


def test_one_task_for_all_inputs():
    net, x = build(tasks=2), inputs()
    torch.manual_seed(1)
    a = hf.predict(net, x, samples=2, task=1)
    torch.manual_seed(1)
    b = hf.predict(net, x, samples=2, task=0)
    assert not torch.allclose(a.probabilities, b.probabilities)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hf.predict(nn.Linear(4, 3), inputs()), "this is a Linear"),
        (lambda: hf.predict(build(), inputs(), samples=0), "at least 1 of each"),
        (lambda: hf.predict(build(), inputs(), batch=0), "at least 1 of each"),
        (lambda: hf.predict(build(), inputs()[:0]), "nothing to predict"),
        (lambda: hf.predict(build(tasks=2), inputs(), task=torch.tensor([0, 1])), "one task or embedding for all"),
        (lambda: hf.predict(hf.HyperNet(nn.Linear(4, 1), hf.Embedding(5, noise=0.1)), torch.randn(2, 4)),
         "at least two classes"),
        (lambda: hf.predict(hf.HyperNet(nn.Linear(4, 3), 5), torch.randn(2, 4)), "have no noise"),
        (lambda: hf.predict(hf.HyperNet(nn.Linear(4, 3), hf.Embedding(5, noise=0.1)), torch.randn(2, 5, 4)),
         r"put out \(2, 5, 3\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted(call, message):
    with pytest.raises(CallError, match=message):
        call()
