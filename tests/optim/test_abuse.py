"""What people do to nets, gradients and optimisers in the middle of a run: equal to dense autograd, or refused."""

import copy
import itertools

import pytest
import torch
from torch import nn
from twins import Twins, assert_same, batches, build, loss_of

import hyperfan as hf

LR = 3e-4
NETS = {
    "collapsed": {"embedding": hf.Embedding(7)},
    "factored": {"embedding": hf.Embedding(7, noise=0.3)},
    "chunks": {"embedding": hf.Embedding(7), "heads": hf.Chunks(one_head=True)},
}


OPTIMISERS = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.2, "dampening": 0.3},
    "AdamW": {"weight_decay": 0.2, "amsgrad": True},
    "Adam": {},
}


PAIRS = [*itertools.product(NETS, ["SGD"]), ("collapsed", "AdamW"), ("factored", "AdamW"), ("chunks", "Adam")]


@pytest.fixture(params=PAIRS, ids="-".join)
def twins(request):
    net, optimiser = request.param
    return Twins(build(**NETS[net]), optimiser, lr=LR, **OPTIMISERS[optimiser])


def run(twins, steps=5, before=None, after=None, call=lambda step: {}):
    """``before`` and ``after`` the step, on (net, optimiser, step); ``call``: arguments of the net at a step."""
    for i, (x, y) in enumerate(batches(steps)):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            torch.manual_seed(i)
            opt.zero_grad()
            loss_of(net, x, y, **call(i)).backward()
            if before is not None:
                before(net, opt, i)
            opt.step()
            if after is not None:
                after(net, opt, i)
    twins.compare()


def on_gradients(change):
    def before(net, opt, step):
        for name, p in net.named_parameters():
            if name.startswith("heads.") and name.endswith("weight"):
                change(p)

    return before


GRADIENTS = {
    "a row of it": lambda p: p.grad[0].zero_(),
    "an item": lambda p: p.grad.__setitem__((0, 1), 0.5),
    "a slice": lambda p: p.grad[:, :2].mul_(3),
    "its view": lambda p: p.grad.view(-1).mul_(0.5),
    "a mask": lambda p: p.grad.__setitem__(p.grad > 0, 0.0),
    "clamped": lambda p: p.grad.clamp_(-0.01, 0.01),
    "a sign": lambda p: setattr(p, "grad", p.grad.sign()),
    "another": lambda p: setattr(p, "grad", torch.ones_like(p)),
    "none": lambda p: setattr(p, "grad", None),
    "decay by hand": lambda p: p.grad.add_(p, alpha=0.1),
    "scaled": lambda p: p.grad.mul_(0.5),
}


@pytest.mark.filterwarnings("ignore:'.*' is trained with a dense gradient")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_changed_by_hand(twins, name):
    run(twins, before=on_gradients(GRADIENTS[name]))


def test_reading_gradients_changes_nothing(twins):
    kinds = [row.kind for row in twins.opt.plan.rows]

    def read(net, opt, step):
        for p in (p for group in opt.param_groups for p in group["params"]):
            assert torch.isfinite(p.grad).all()
            p.grad[..., 0].tolist(), p.grad.numpy(), p.grad.norm(), str(p.grad)

    run(twins, before=read)
    assert [row.kind for row in twins.opt.plan.rows] == kinds


PARAMETERS = {
    "mul_": lambda p: p.mul_(0.99),
    ".data": lambda p: p.data.mul_(0.99),
    "noise": lambda p: p.add_(0.01),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_changed_by_hand(twins, name, when):
    @torch.no_grad()
    def change(net, opt, step):
        for p in net.parameters():
            PARAMETERS[name](p)

    run(twins, **{when: change})


@pytest.mark.parametrize("what", ["embeddings", "scale"])
def test_codes_changed_by_hand(twins, what):
    """In mid-run, where the optimiser hands over all that the net makes without making codes."""

    def change(net, opt, step):
        if step == 3:
            (net.embeddings.weight if what == "embeddings" else net.heads.scale).mul_(-1.5)

    run(twins, after=change)


def test_codes_changed_and_seen_between_backward_and_step(twins):
    """The gradient is still that of the codes it came from."""
    x, _ = next(batches(1))

    def change(net, opt, step):
        if step == 3:
            net.embeddings.weight.mul_(-1.5)
            net(x)

    run(twins, before=change)


def test_state_loaded_between_backward_and_step(twins):
    start = copy.deepcopy(twins.theirs.state_dict())
    run(twins, before=lambda net, opt, step: net.load_state_dict(start) if step == 4 else None)


def test_momentum_emptied_by_hand(twins):
    run(twins, after=lambda net, opt, step: opt.state.clear() if step == 4 else None)


def test_momentum_emptied_after_a_look_and_an_evaluation(twins):
    def after(net, opt, step):
        if step == 4:
            opt.state_dict()
            with torch.no_grad():
                net(next(batches(1))[0])
            opt.state.clear()

    run(twins, after=after)


def test_layers_that_are_not_always_used():
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(4, 3)

        def forward(self, x, which=0):
            return self.b(torch.tanh(self.a(x))) if which else self.c(x)

    torch.manual_seed(0)
    twins = Twins(hf.HyperNet(Either().double(), 7, nonlinearity="tanh"), lr=LR, momentum=0.9, weight_decay=0.2)
    run(twins, call=lambda step: {"which": step // 2 % 2})


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_layers_of_one_head_that_are_not_always_used(optimiser):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x, which=0):
            return self.b(x) if which else self.a(x)

    torch.manual_seed(0)
    net = hf.HyperNet(Either().double(), 7, nonlinearity="linear")
    twins = Twins(net, optimiser, lr=LR, **OPTIMISERS[optimiser])
    assert [row.codes for row in twins.opt.plan.rows] == [2]
    run(twins, call=lambda step: {"which": step // 2 % 2})


def test_inside_another_module_parameters_are_fresh_too():
    twins = Twins(build(), lr=LR)
    outer = nn.Sequential(nn.Identity(), twins.ours)
    averages = [torch.optim.swa_utils.AveragedModel(m) for m in (outer, twins.theirs)]
    run(twins, after=lambda net, opt, step: averages[net is twins.theirs].update_parameters(
        outer if net is twins.ours else net))  # fmt: skip
    for (_, a), (_, b) in zip(averages[0].named_parameters(), averages[1].named_parameters(), strict=True):
        assert_same(a.detach(), b.detach())


READS = {
    "heads": lambda net: dict(net.heads.named_parameters()),
    "get_parameter": lambda net: {"5x4.weight": net.get_parameter("heads.5x4.weight")},
    "attribute": lambda net: {"5x4.weight": net.heads.head("5x4").weight},
    "a head's state_dict": lambda net: {f"5x4.{k}": v for k, v in net.heads.head("5x4").state_dict().items()},
}


@pytest.mark.parametrize("read", READS)
def test_heads_read_directly_are_fresh(read):
    twins = Twins(build(), lr=LR)
    run(twins)
    expected = dict(twins.theirs.heads.named_parameters())
    for name, p in READS[read](twins.ours).items():
        assert_same(p.detach(), expected[name].detach())


SHARING = {
    "all heads": lambda one, two: setattr(two, "heads", one.heads),
    "one head": lambda one, two: two.heads.add_module("5x4", one.heads.head("5x4")),
    "one parameter": lambda one, two: setattr(two.heads.head("5x4"), "weight", one.heads.head("5x4").weight),
}


@pytest.mark.parametrize("share", SHARING)
def test_hypernets_that_share_heads(share):
    results = []
    for kind in (hf.SGD, lambda nets, **options: torch.optim.SGD(nets.parameters(), **options)):
        one, two = build(), build()
        SHARING[share](one, two)
        nets = nn.ModuleList([one, two])
        opt = kind(nets, lr=LR, momentum=0.9)
        if kind is hf.SGD:
            opt.use()  # which must not forget it
            assert "shared with another" in str(opt.plan)
        for x, y in batches(6):
            opt.zero_grad()
            (loss_of(one, x, y) + loss_of(two, -x, y)).backward()
            opt.step()
        results.append(nets.state_dict())
    for a, b in zip(results[0].values(), results[1].values(), strict=True):
        assert_same(a, b)


def test_evaluation_in_inference_mode_first(twins):
    x, _ = next(batches(1))
    with torch.inference_mode():
        twins.ours.eval()(x)
        twins.ours(x)
    twins.ours.train()
    run(twins, after=lambda net, opt, step: torch.inference_mode()(net.state_dict)())


def test_jacobians_by_batched_gradients(twins):
    x, _ = next(batches(1))
    jacobians = []
    for net in (twins.ours, twins.theirs):
        torch.manual_seed(0)
        out = net(x).sum(0)
        jacobians.append(torch.autograd.grad(out, list(net.parameters()), torch.eye(3).double(), is_grads_batched=True))
    for a, b in zip(*jacobians, strict=True):
        assert_same(a, b)


def test_a_bias_unfrozen_later(twins):
    def freeze(net, opt, step):
        for head in net.heads.children():
            head.bias.requires_grad_(step >= 3)

    for head in (*twins.ours.heads.children(), *twins.theirs.heads.children()):
        head.bias.requires_grad_(False)
    run(twins, after=freeze)


def test_forward_hooks_on_heads_run():
    twins = Twins(build(), lr=LR)
    for net in (twins.ours, twins.theirs):
        net.heads.head("5x5").register_forward_hook(lambda head, args, out: 2 * out)
    run(twins)
    assert [row.kind for row in twins.opt.plan.rows] == ["collapsed", "dense", "collapsed"]


DOUBLED = {
    "embeddings": lambda module, args, out: 2 * out,
    "heads": lambda module, args, out: {name: 2 * tensor for name, tensor in out.items()},
}


@pytest.mark.parametrize("where", DOUBLED)
def test_forward_hooks_on_what_makes_tensors_run_at_every_step(where):
    twins = Twins(build(), lr=LR)
    for net in (twins.ours, twins.theirs):
        getattr(net, where).register_forward_hook(DOUBLED[where])
    run(twins)


def test_a_group_taken_away():
    twins = Twins(build(), lr=LR)
    pairs = []
    for net in (twins.ours, twins.theirs):
        heads = list(net.heads.parameters())
        groups = [{"params": heads[:2]}, {"params": [*heads[2:], *net.mainnet.parameters()]}]
        options = {"lr": LR, "momentum": 0.9}
        pairs.append(hf.SGD(net, params=groups, **options) if net is twins.ours else torch.optim.SGD(groups, **options))
    twins.opt, twins.oracle = pairs
    with pytest.raises(KeyError):  # torch's: the state of what is in no group cannot be saved
        run(twins, after=lambda net, opt, step: opt.param_groups.pop(0) if step == 4 else None)
    for a, b in zip(twins.ours.state_dict().values(), twins.theirs.state_dict().values(), strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("net", NETS)
def test_single_precision_in_mid_run(net):
    """Not under Adam, whose moments torch does not convert."""
    twins = Twins(build(**NETS[net]), lr=LR, **OPTIMISERS["SGD"])
    run(twins, steps=4)
    for net in (twins.ours, twins.theirs):
        net.float()
    x, y = next(batches(1))
    for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
        torch.manual_seed(0)
        opt.zero_grad()
        loss_of(net, x.float(), y).backward()
        opt.step()
    for a, b in zip(twins.ours.state_dict().values(), twins.theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_two_optimisers_in_turn():
    twins = Twins(build(), lr=LR)
    second = hf.SGD(twins.ours, lr=2 * LR), torch.optim.SGD(twins.theirs.parameters(), lr=2 * LR)
    first = twins.opt, twins.oracle
    for i, (x, y) in enumerate(batches(8)):
        for net, opt in zip((twins.ours, twins.theirs), (first, second)[i % 2], strict=True):
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    twins.opt, twins.oracle = second
    twins.compare()


def test_a_mainnet_that_writes_to_its_weights_is_refused():
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            self.layer.weight.data.clamp_(-0.05, 0.05)
            return self.layer(x)

    net = hf.HyperNet(Clamped().double(), 7, nonlinearity="linear")
    opt = hf.SGD(net, lr=LR)
    x, y = next(batches(1))
    loss_of(net, x, y).backward()
    with pytest.raises(hf.HyperfanError, match=r"opt\.use\('factored'\)"):
        opt.step()


def test_a_head_written_to_behind_its_back_can_be_released():
    twins = Twins(build(), lr=LR)
    held = list(twins.ours.heads.parameters())
    run(twins, steps=3)
    x, y = next(batches(1))
    loss_of(twins.ours, x, y).backward()
    twins.opt.step()
    with torch.no_grad():
        held[0].mul_(0.5)
    with pytest.raises(hf.HyperfanError, match=r"release\(discard=True\)"):
        twins.ours.state_dict()
    twins.opt.release(discard=True)
    expected = {name: p.clone() for name, p in twins.theirs.state_dict().items()}
    name = next(iter(dict(twins.ours.heads.named_parameters())))
    expected[f"heads.{name}"] *= 0.5
    for key, value in twins.ours.heads.state_dict().items():
        assert_same(value, expected[f"heads.{key}"])


def test_a_recovery_that_fails_loses_nothing(monkeypatch):
    twins = Twins(build(), lr=LR, momentum=0.9)
    for x, y in batches(4):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    with monkeypatch.context() as patch:
        patch.setattr(torch.linalg, "inv", lambda k: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            twins.ours.state_dict()
    twins.compare()


def test_autocast_does_not_train_in_low_precision():
    net = build().float()
    opt = hf.SGD(net, lr=LR)
    with torch.autocast("cpu", dtype=torch.float16):
        net.heads(net.codes())
    assert {part.map.trainer._form.outputs.dtype for part in net.heads.parts()} == {torch.float32}
    del opt


def test_what_became_nan_can_still_be_looked_at():
    net = build()
    opt = hf.SGD(net, lr=LR)
    x, y = next(batches(1))
    for _ in range(3):
        opt.zero_grad()
        (loss_of(net, x, y) * float("nan")).backward()
        opt.step()
        assert net.state_dict()["heads.5x4.weight"].isnan().all()


def test_many_codes_for_one_head_and_outputs_in_pieces():
    """More codes than are added one by one, and outputs that factored heads make in several pieces."""
    for embedding in (hf.Embedding(12), hf.Embedding(12, noise=0.3)):
        torch.manual_seed(0)
        layers = [layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.Tanh())]
        twins = Twins(hf.HyperNet(nn.Sequential(*layers, nn.Linear(4, 4)).double(), embedding), lr=LR, momentum=0.9)
        assert [row.codes for row in twins.opt.plan.rows] == [7]
        twins.train(10)


def test_scaled_gradients_are_measured_and_accumulated(twins):
    def scale(net, opt, step):
        params = [p for group in opt.param_groups for p in group["params"]]
        for p in params:
            p.grad.mul_(0.5)
        x, y = next(batches(1))
        torch.manual_seed(step)
        loss_of(net, x, y).backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 0.1)
        dense = [p.grad.to_dense() if p.grad.layout != torch.strided else p.grad + 0 for p in params]
        expected = torch.stack([g.norm() for g in dense]).norm()
        assert norm >= 0.1
        assert abs(float(expected) - 0.1) < 1e-6

    run(twins, before=scale)


def test_recovery_loses_the_square_root_of_the_condition():
    """In single precision, over codes that are ever more alike."""
    for angle in (1.0, 0.1, 0.03, 0.01):
        torch.manual_seed(0)
        net = hf.HyperNet(nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5)), 40, heads="shared")
        net.embeddings.weight[1] = net.embeddings.weight[0] + angle * torch.randn(40)
        net.heads.scale.fill_(1.0)
        ours, exact = copy.deepcopy(net), copy.deepcopy(net).double()
        opts = hf.SGD(ours, lr=LR), torch.optim.SGD(exact.parameters(), lr=LR)
        assert opts[0].plan.rows[0].kind == ("collapsed" if angle > 0.02 else "factored")
        g = torch.Generator().manual_seed(0)
        for _ in range(30):
            x = torch.randn(6, 5, generator=g)
            for n, o in zip((ours, exact), opts, strict=True):
                o.zero_grad()
                n(x.to(n.heads.scale.dtype)).square().mean().backward()
                o.step()
        codes = net.codes().double()
        condition = torch.linalg.cond(codes @ codes.T + 1).item()
        head, expected = ours.heads.head("5x5").weight.double(), exact.heads.head("5x5").weight
        off = ((head - expected).norm() / expected.norm()).item()
        assert off < 10 * condition**0.5 * torch.finfo(torch.float32).eps, (off, condition)


def test_writing_through_data_behind_its_back_is_seen_in_evaluation():
    net = build()
    held = list(net.heads.parameters())
    opt = hf.SGD(net, lr=LR)
    x, y = next(batches(1))
    loss_of(net, x, y).backward()
    opt.step()
    held[0].data.mul_(0.5)
    with torch.no_grad(), pytest.raises(hf.HyperfanError, match="was written to"):
        net(x)


def test_a_parametrised_head(twins):
    """Its weight is computed, so that its gradient is dense; the net can be copied while it is trained."""
    for net in (twins.ours, twins.theirs):
        torch.nn.utils.parametrizations.weight_norm(net.heads.parts()[0].map)
    pair = Twins(twins.ours, lr=0.05, momentum=0.9)
    pair.train(4)
    copied = copy.deepcopy(pair.ours)
    assert copied.heads.parts()[0].map.trainer is None
    pair.train(2)


@pytest.mark.parametrize("change", [
    lambda net: net.rescale_({"2.weight": 1.5, "4.weight": 0.7}),
    lambda net: net.reset_parameters(torch.Generator().manual_seed(3)),
    lambda net: net.restart_("xavier-fan-in"),
], ids=["rescale", "reset", "restart"])  # fmt: skip
@pytest.mark.parametrize("heads", ["separate", hf.LowRank(2), hf.Chunks(size=9, flat=True)], ids=str)
def test_a_net_started_anew_in_mid_run(heads, change):
    pair = Twins(build(heads=heads), lr=0.05, momentum=0.9)

    def between(pair, step):
        if step == 3:
            for net in (pair.ours, pair.theirs):
                torch.manual_seed(5)
                change(net)

    pair.train(6, between)


def test_an_optimiser_of_other_modules_alone_is_refused():
    """Nothing of the net would move; a frozen net is meant to stay as it is."""
    net, encoder = build(hf.Embedding(7)), nn.Linear(3, 7)
    with pytest.raises(hf.HyperfanError, match=r"AdamW\(nn.ModuleList\(\[net, encoder\]\), lr=…\)"):
        hf.AdamW(net, params=encoder.parameters())
    with pytest.raises(hf.HyperfanError, match=r"takes the net, not list: .*ModuleList\(\[net, encoder\]\)"):
        hf.AdamW([*net.parameters(), *encoder.parameters()])
    hf.AdamW(net, params=[*net.embeddings.parameters(), *list(net.heads.parameters())[:1]])
    hf.AdamW(net.requires_grad_(False), params=encoder.parameters())
