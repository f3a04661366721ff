"""Linear layers of the mainnet keep their weights' gradients in factors; what autograd promises holds all the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twins import Twins, assert_same, batches

import hyperfan as hf
from hyperfan.generators.stand_in import FromCode
from hyperfan.optim.factor import Factor

LR = 1e-3


class Wide(nn.Module):
    """Layers large enough for factors of a batch of six; one is used twice, one in another way too."""

    def __init__(self):
        super().__init__()
        self.first, self.twice, self.both, self.last = (
            nn.Linear(4, 40),
            nn.Linear(40, 40),
            nn.Linear(40, 40, bias=False),
            nn.Linear(40, 3),
        )

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        x = torch.tanh(F.linear(x, weight=self.both.weight) + self.both(x) + x @ self.both.weight.T)
        return self.last(x)


@pytest.fixture(params=["SGD", "AdamW"])
def twins(request):
    torch.manual_seed(0)
    net = hf.HyperNet(Wide().double(), 7, heads="separate", nonlinearity="tanh")
    return Twins(net, request.param, lr=LR)


def both(twins):
    return ((twins.ours, twins.opt), (twins.theirs, twins.oracle))


def test_layers_used_once_and_in_several_ways(twins):
    twins.train(10)


def assert_in_factors(net, head):
    x, y = next(batches(1))
    F.cross_entropy(net(x), y).backward()
    ((factor, _),) = dict(net.heads.head(head)._parameters)["weight"].grad.parts
    assert type(factor.grads[0]).__name__ == "FactoredGradient"
    assert factor.grads[0].parts[0][0].codes.shape == (6, 40)


def test_the_gradient_is_not_multiplied_out(twins):
    assert_in_factors(twins.ours, "twice/weight")


def test_nor_is_that_of_a_chain_which_runs_without_its_modules():
    layers = (nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))
    net = hf.HyperNet(nn.Sequential(*layers).double(), 7, heads="separate")
    assert net.skeleton.chain() is not None
    opt = hf.SGD(net, LR)
    assert_in_factors(net, "2/weight")
    opt.release()
    assert net.skeleton.linear is F.linear


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}])
@pytest.mark.parametrize("max_rank", [18, 17])
def test_layers_that_share_a_head_are_stepped_by_one_product_up_to_a_rank(monkeypatch, max_rank, momentum):
    monkeypatch.setattr("hyperfan.optim.sgd.RANK_PER_THREAD", max_rank / torch.get_num_threads())
    torch.manual_seed(0)
    hidden = (layer for _ in range(3) for layer in (nn.Linear(40, 40), nn.Tanh()))
    mainnet = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), *hidden, nn.Linear(40, 3))
    twins = Twins(hf.HyperNet(mainnet.double(), 7), lr=LR, **momentum)
    written = []
    join = Factor.join
    monkeypatch.setattr(Factor, "join", lambda factor, memory: written.append(memory.shape) or join(factor, memory))
    twins.train(5)
    assert bool(written) == (max_rank < 3 * 6)


def test_a_penalty_on_the_gradient_of_the_input(twins):
    for x, y in batches(5):
        for net, opt in both(twins):
            x = x.clone().requires_grad_()
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.square().sum()).backward()
            opt.step()
    twins.compare()


def test_a_batch_that_is_overwritten_before_the_step(twins):
    for net, opt in both(twins):
        held = torch.empty(6, 4, dtype=torch.float64)
        for i, (x, y) in enumerate(batches(6)):
            held.copy_(x)
            F.cross_entropy(net(held), y).backward()
            held.zero_()
            if i % 2:
                opt.step()
                opt.zero_grad()
    twins.compare()


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_a_batch_that_a_large_layer_reads_is_overwritten_before_the_step(optimiser):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)).double()
    twins = Twins(hf.HyperNet(mainnet, 7), optimiser, lr=LR)
    for net, opt in both(twins):
        for x, y in batches(6):
            held = x.repeat(1, 10)
            opt.zero_grad()
            F.cross_entropy(net(held), y).backward()
            held.zero_()
            opt.step()
    twins.compare()


def test_inputs_with_more_dimensions_and_gradients_given_by_hand(twins):
    g = torch.Generator().manual_seed(0)
    for _ in range(4):
        x, grad = (torch.randn(2, 3, n, generator=g, dtype=torch.float64) for n in (4, 3))
        for net, opt in both(twins):
            opt.zero_grad()
            given = grad.clone()
            net(x).backward(given)
            given.zero_()
            opt.step()
    twins.compare()


def test_gradients_of_weights_that_someone_holds(twins):
    """As a regulariser on what is generated would."""
    x, y = next(batches(1))
    made = []
    for net, _ in both(twins):
        weights = net.heads(net.codes())
        (grad,) = torch.autograd.grad(F.cross_entropy(net.run(weights, x), y), [weights["twice.weight"]])
        made.append(grad + 0)
    assert_same(made[0], made[1])


def test_lower_precision_is_left_to_autocast(twins):
    x, _ = next(batches(1))
    net = twins.ours.float()
    with torch.autocast("cpu", dtype=torch.float16):
        net(x.float()).sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in net.parameters())


def test_a_layer_that_runs_from_its_code_makes_no_weight_and_no_dense_gradient(monkeypatch):
    made = []
    make = FromCode.make
    monkeypatch.setattr(FromCode, "make", lambda self: made.append(tuple(self.shape)) or make(self))
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 40)).double()
    net = hf.HyperNet(mainnet, hf.Embedding(7, given=True, per="net"), heads="separate")
    opt = hf.AdamW(net)
    x, codes = torch.randn(6, 40, dtype=torch.float64), torch.randn(6, 7, dtype=torch.float64)
    net(x, embedding=codes).square().sum().backward()
    assert set(net.per_sample.orders.popitem()[1].values()) == {"codes"}
    assert not made
    for head in net.heads.children():
        assert all(p.grad.parts is not None for p in head.parameters())
    del opt
