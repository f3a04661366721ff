"""Who else holds a gradient, a weight, a state entry or a hook: equal to dense autograd, or refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from twins import Twins, assert_same, batches, build, loss_of

import hyperfan as hf
from hyperfan.generators.stand_in import FromCode

LR = 1e-3
CONSTANT = {"heads": "separate"}
GIVEN = {"embedding": hf.Embedding(7, given=True, per="net"), "heads": "separate"}


def pairs(twins):
    return ((twins.ours, twins.opt), (twins.theirs, twins.oracle))


def step(net, opt, x, y, **call):
    opt.zero_grad()
    loss_of(net, x, y, **call).backward()
    opt.step()


# ── gradients ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_a_gradient_given_by_hand_and_overwritten_before_the_step_is_refused(optimiser):
    """Without a batch, it is the gradient of the bias too."""

    class Unbatched(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight) + self.bias

    net = hf.HyperNet(Unbatched(4, 3).double(), 7, generate="weights+biases", nonlinearity="linear")
    opt = getattr(hf, optimiser)(net, lr=LR)
    x, _ = next(batches(1))
    given = torch.ones(3).double()
    net(x[0]).backward(given)
    given.zero_()
    with pytest.raises(hf.HyperfanError, match="change a copy"):
        opt.step()


@pytest.mark.filterwarnings("ignore:'.*' is trained with a dense gradient")
@pytest.mark.parametrize("change", [lambda g: g.mul_(0.5), lambda g: g.clamp_(-0.01, 0.01)], ids=["mul_", "clamp_"])
@pytest.mark.parametrize("net", [CONSTANT, {"embedding": hf.Embedding(7, noise=0.3)}], ids=["constant", "noise"])
def test_gradients_changed_through_data(net, change):
    twins = Twins(build(**net), "AdamW", lr=LR)
    for i, (x, y) in enumerate(batches(4)):
        for net, opt in pairs(twins):
            torch.manual_seed(i)
            opt.zero_grad()
            loss_of(net, x, y).backward()
            for p in net.parameters():
                change(p.grad.data)
            opt.step()
    twins.compare()


def test_sums_of_a_weights_and_a_biass_gradient():
    net = build(hf.Embedding(7, noise=0.3))
    opt = hf.SGD(net)
    x, y = next(batches(1))
    loss_of(net, x, y).backward()
    head = net.heads.head("5x4")
    weight, bias = head.weight.grad, head.bias.grad
    assert_same(weight + bias, weight.to_dense() + bias.to_dense())
    del opt


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
@pytest.mark.parametrize("clip", [False, True])
def test_one_code_and_a_code_per_sample_before_one_step(optimiser, clip):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)).double()
    net = hf.HyperNet(mainnet, hf.Embedding(7, given=True, per="net"), heads="separate", generate="weights+biases")
    net.per_sample.choose = lambda sizes: "codes"
    twins = Twins(net, optimiser, lr=LR)
    twins.theirs.per_sample.choose = lambda sizes: "codes"
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        x, y = torch.randn(2, 40, generator=g, dtype=torch.float64), torch.randint(3, (2,), generator=g)
        codes = torch.randn(2, 7, generator=g, dtype=torch.float64)
        for net, opt in pairs(twins):
            opt.zero_grad()
            loss_of(net, x, y, embedding=codes[0]).backward()
            loss_of(net, x, y, embedding=codes).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            opt.step()
    twins.compare()


def one_layer_with_a_code_per_sample():
    """The twins, inputs and codes."""
    torch.manual_seed(0)
    net = hf.HyperNet(nn.Linear(40, 30).double(), hf.Embedding(7, given=True, per="net"), nonlinearity="linear")
    twins = Twins(net, lr=LR)
    x, codes = torch.randn(3, 40).double(), torch.randn(3, 7).double()
    return twins, x, codes


def test_jacobians_with_a_code_per_sample():
    twins, x, codes = one_layer_with_a_code_per_sample()
    jacobians = []
    for net, _ in pairs(twins):
        out = net(x, embedding=codes).sum(0)[:3]
        jacobians.append(torch.autograd.grad(out, list(net.parameters()), torch.eye(3).double(), is_grads_batched=True))
    for a, b in zip(*jacobians, strict=True):
        assert_same(a, b)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # in torch itself
def test_slopes_by_torch_func_with_a_code_per_sample():
    twins, x, codes = one_layer_with_a_code_per_sample()
    slopes = []
    for net, _ in pairs(twins):
        backward = torch.func.grad(lambda x, net=net: net(x, embedding=codes).square().sum())(x)
        forward = torch.func.jvp(lambda x, net=net: net(x, embedding=codes), (x,), (x.cos(),))[1]
        slopes.append(torch.cat([backward.flatten(), forward.flatten()]))
    assert_same(*(s.detach() for s in slopes))


def test_stand_ins_are_not_made_to_look_at_them(monkeypatch):
    torch.manual_seed(0)
    net = hf.HyperNet(nn.Linear(40, 30).double(), hf.Embedding(7, given=True, per="net"), nonlinearity="linear")
    opt = hf.SGD(net)
    made = []
    monkeypatch.setattr(FromCode, "make", lambda self: made.append(self))
    net(torch.randn(3, 40).double(), embedding=torch.randn(3, 7).double())
    assert not made
    del opt


# ── hooks ──────────────────────────────────────────────────────────────────────────────────────────────────────────

HOOKS = {
    "forward": lambda m: m.register_forward_hook(lambda m, args, out: 2 * out),
    "backward": lambda m: m.register_full_backward_hook(lambda m, to_inputs, of_outputs: (2 * to_inputs[0],)),
    "before backward": lambda m: m.register_full_backward_pre_hook(lambda m, of_outputs: (2 * of_outputs[0],)),
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch's own, where codes have no gradient
@pytest.mark.parametrize(
    ("hook", "trainable"), [*((hook, True) for hook in HOOKS), ("forward", False), ("before backward", False)]
)
def test_hooks_of_heads_run(hook, trainable):
    twins = Twins(build(hf.Embedding(7, trainable=trainable)), lr=LR)
    twins.train(2)
    for net, _ in pairs(twins):
        HOOKS[hook](net.heads.head("5x4"))
    twins.train(3)


# ── weights ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_a_mainnet_that_writes_to_its_weights_later_is_refused(optimiser):
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 3), 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 3:
                with torch.no_grad():
                    self.layer.weight.clamp_(-0.01, 0.01)
            return self.layer(x)

    net = hf.HyperNet(Clamped().double(), 7, nonlinearity="linear")
    opt = getattr(hf, optimiser)(net, lr=LR)
    x, y = next(batches(1))
    for _ in range(3):
        step(net, opt, x, y)
    with pytest.raises(RuntimeError, match="modified inplace"):  # torch's own
        step(net, opt, x, y)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_checkpointed_layers(optimiser):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 40), nn.Linear(40, 40)

        def forward(self, x):
            return checkpoint(F.linear, torch.tanh(self.first(x)), self.last.weight, None, use_reentrant=False)

    torch.manual_seed(0)
    twins = Twins(hf.HyperNet(Checkpointed().double(), 7, nonlinearity="tanh"), optimiser, lr=LR)
    twins.theirs.mainnet.requires_grad_(False), twins.ours.mainnet.requires_grad_(False)
    twins.train(4)


# ── the optimiser's state ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimiser", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("net", [CONSTANT, {}], ids=["separate", "shared"])
def test_two_optimisers_with_momentum_in_turn(optimiser, net):
    options = {"momentum": 0.9} if optimiser == "SGD" else {}
    twins = Twins(build(**net), optimiser, lr=LR, **options)
    first = second = twins.opt, twins.oracle
    for i, (x, y) in enumerate(batches(8)):
        if i == 3:
            second = (
                getattr(hf, optimiser)(twins.ours, lr=2 * LR, **options),
                getattr(torch.optim, optimiser)(twins.theirs.parameters(), lr=2 * LR, **options),
            )
        for net, opt in zip((twins.ours, twins.theirs), (first, second)[i in (3, 4, 6)], strict=True):
            step(net, opt, x, y)
    twins.compare()
    twins.opt, twins.oracle = second
    twins.compare()


@pytest.mark.parametrize("lost", ["weight", "bias"])
@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_state_of_one_parameter_taken_away_unsynced(optimiser, lost):
    net = build(**CONSTANT)
    opt = getattr(hf, optimiser)(net, lr=LR, **({"momentum": 0.9} if optimiser == "SGD" else {}))
    held = dict(net.heads.head(next(iter(net.heads.layouts)))._parameters)[lost]
    x, y = next(batches(1))
    for _ in range(3):
        step(net, opt, x, y)
    opt.state.pop(held)
    with pytest.raises(hf.HyperfanError, match=r"opt\.sync\(\)"):
        step(net, opt, x, y)


def test_momentum_in_the_state_is_up_to_date_or_not_there():
    twins = Twins(build(), lr=LR, momentum=0.9)
    twins.train(3)
    x, y = next(batches(1))
    step(twins.ours, twins.opt, x, y)
    assert not any("momentum_buffer" in twins.opt.state[p] for p in twins.opt.param_groups[0]["params"][:2])
    step(twins.theirs, twins.oracle, x, y)
    twins.compare()
    twins.ours(x)  # made anew, without a step
    twins.compare()
    twins.opt.release(discard=True)
    twins.compare()


def test_a_count_of_steps_is_not_kept_in_half_precision():
    torch.manual_seed(0)
    net = hf.HyperNet(nn.Linear(4, 3).double(), 7, nonlinearity="linear", heads="separate")
    opt = hf.AdamW(net, lr=LR)
    x, y = next(batches(1))
    torch.set_default_dtype(torch.bfloat16)
    try:
        step(net, opt, x, y)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {entry["step"].dtype for entry in opt.state_dict()["state"].values()} == {torch.float32}


def test_the_fastest_plan_is_found_again():
    net = build(**CONSTANT)
    opt = hf.Adam(net, lr=LR, weight_decay=0.1)
    assert {row.kind for row in opt.plan.rows} == {"factored"}
    opt.param_groups[0]["weight_decay"] = 0.0
    opt.use()
    assert {row.kind for row in opt.plan.rows} == {"collapsed"}


def test_groups_of_named_parameters_collapse():
    net = build(**CONSTANT)
    named = list(net.named_parameters())
    groups = [{"params": [pair for pair in named if pair[0].endswith(end)]} for end in ("weight", "bias")]
    opt = hf.SGD(net, lr=LR, params=groups)
    x, y = next(batches(1))
    step(net, opt, x, y)
    assert {row.kind for row in opt.plan.rows} == {"collapsed"}


def test_a_trunk_put_in_later_is_seen():
    twins = Twins(build(), lr=LR)
    twins.train(4)
    for net, _ in pairs(twins):
        torch.manual_seed(0)
        net.trunk = nn.Linear(7, 7).double().requires_grad_(False)
    twins.train(4)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW"])
def test_embeddings_changed_before_a_call_with_other_parameters(optimiser):
    twins = Twins(build(**CONSTANT), optimiser, lr=LR)
    data = list(batches(6))
    for i, (x, y) in enumerate(data):
        for net, opt in pairs(twins):
            if i == 4:
                net.embeddings.weight.mul_(-2.0)
                torch.func.functional_call(net, {name: 1.0 * p for name, p in net.named_parameters()}, (x,))
            step(net, opt, x, y)
    twins.compare()
