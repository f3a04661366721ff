"""hyperfan.Adam and AdamW equal torch's on dense autograd, whatever happens in between."""

import copy
import itertools

import pytest
import torch
from torch import nn
from twins import Twins, assert_same, batches, build, loss_of

import hyperfan as hf
from hyperfan.optim import kernels
from products import covered, covering

LR = 1e-3
STEPS, FULL_STEPS = 20, 100
"""Of a disturbed run, in a quick run of the tests and in a full one."""
TOLERANCE = 1e-11
NOT_COMPILED = kernels.why_not_compiled("cpu")
"""Why this machine cannot compile, if so: then ``compile=`` is refused, which another test sees."""
OPTIONS = [
    {"betas": betas, "eps": eps, "weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    for betas, eps, decay, amsgrad, maximize in itertools.product(
        ((0.9, 0.999), (0.5, 0.9)), (1e-3, 1e-2), (0.0, 0.2), (False, True), (False, True)
    )
]
EMBEDDINGS = {
    "fixed": hf.Embedding(7),
    "noise": hf.Embedding(7, noise=0.3),
    "trained": hf.Embedding(7, trainable=True),
    "given": hf.Embedding(7, given=True, per="net"),
    "tasks": hf.Embedding(7, tasks=6, trainable=True),
    "identity": hf.Embedding(7, given=True, per="net", identity=2),
}
HEADS = {"shared": "shared", "separate": "separate", "chunks": hf.Chunks(one_head=True), "low rank": hf.LowRank(2)}
GROUPED = ("once", "per sample", "grouped")
NETS = [
    case
    for case in itertools.product(
        ("Adam", "AdamW"), HEADS, EMBEDDINGS, ("none", "trunk"), ("weights", "weights+biases"), GROUPED
    )
    if (case[2] in ("given", "tasks", "identity")) == (case[5] != "once")
    and not (case[1] == "chunks" and (case[5] != "once" or case[3] == "trunk"))
    and not (case[1] == "shared" and case[2] == "given")
]
CASES = [
    (*net, options)
    for net, options in zip(
        NETS, itertools.cycle(covering(OPTIONS, lambda options: list(options.values()))), strict=False
    )
]


def flat(case):
    return [*case[:-1], *case[-1].values()]


def named(value):
    return "-".join(f"{k}{v}" for k, v in value.items() if v) if isinstance(value, dict) else value


def call(embedding, how):
    """What a net with such embeddings is called with, and how many samples it gets."""
    if how == "once":
        return {}
    grouped = {"grouped": True} if how == "grouped" else {}
    count = 3 if grouped else 6
    if embedding == "tasks":
        return {"task": torch.arange(count), **grouped}
    return {"embedding": torch.randn(count, 7, generator=torch.Generator().manual_seed(2)).double(), **grouped}


def disturbed(twins, optimiser, arguments, steps=STEPS):
    """A run with a scheduler, accumulation, clipping, looks, a save and restore, and changes of plan."""
    tenth = steps // 10
    for i, (x, y) in enumerate(batches(steps)):
        if i == 3 * tenth:
            state, opt_state = copy.deepcopy(twins.ours.state_dict()), copy.deepcopy(twins.opt.state_dict())
            fresh = copy.deepcopy(twins.ours)
            fresh.load_state_dict(state)
            twins.ours, twins.opt = fresh, getattr(hf, optimiser)(fresh, lr=1.0)
            twins.opt.load_state_dict(opt_state)
        if i in (5 * tenth, 6 * tenth, 7 * tenth):
            twins.opt.use({5: "dense", 6: "factored", 7: None}[i // tenth])
        losses = []
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            if i and i % (2 * tenth) == 0:
                opt.param_groups[0]["lr"] *= 0.8
            torch.default_generator.manual_seed(i)
            if i % 7 != 3:  # else two batches are accumulated
                opt.zero_grad()
            inputs = x.view(3, 2, -1) if arguments.get("grouped") else x
            out = net(inputs, **arguments).flatten(0, -2)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            if i % 5 == 2:
                params = [p for group in opt.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(params, 0.5)
            opt.step()
            losses.append(loss.detach())
        assert_same(*losses, tolerance=TOLERANCE)
    twins.compare(TOLERANCE)


@pytest.mark.parametrize(
    ("optimiser", "heads", "embedding", "trunk", "generate", "how", "options"), covered(CASES, flat), ids=named
)
def test_a_disturbed_run_equals_dense_autograd(optimiser, heads, embedding, trunk, generate, how, options, request):
    net = build(EMBEDDINGS[embedding], heads=HEADS[heads], trunk=(8,) if trunk == "trunk" else None, generate=generate)
    twins = Twins(net, optimiser, lr=LR, **options)
    disturbed(twins, optimiser, call(embedding, how), FULL_STEPS if request.config.getoption("full") else STEPS)


# ── one constant code ──────────────────────────────────────────────────────────────────────────────────────────────


def separate(optimiser="AdamW", **options):
    return Twins(build(7, heads="separate"), optimiser, lr=LR, **options)


def test_the_moments_of_a_weight_with_one_constant_code_are_not_held():
    twins = separate()
    assert {row.kind for row in twins.opt.plan.rows} == {"collapsed"}
    twins.train(5)  # which reads the state at its end
    x, y = next(batches(1))
    for _ in range(2):
        twins.opt.zero_grad()
        loss_of(twins.ours, x, y).backward()
        twins.opt.step()
    for head in twins.ours.heads.children():
        assert set(twins.opt.state[head.weight]) == {"step"}
        assert set(twins.opt.state[head.bias]) == {"step", "exp_avg", "exp_avg_sq"}
    saved = {row.head: row.saved for row in twins.opt.plan.rows}
    assert saved["0/weight"] == 8 * 3 * 7 * 20  # a gradient and two moments of 7 × (5 × 4), in double precision


def test_weight_decay_of_adam_and_several_codes_are_factored():
    for twins, reason in (
        (separate("Adam", weight_decay=0.1), "weight decay is added"),
        (Twins(build(7, heads="shared"), "AdamW", lr=LR), "their moments mix"),
    ):
        assert reason in str(twins.opt.plan)
        twins.train(10)


def test_weight_decay_switched_on_later():
    twins = separate("Adam")
    twins.train(5)
    for opt in (twins.opt, twins.oracle):
        opt.param_groups[0]["weight_decay"] = 0.1
    twins.train(5)
    assert {row.kind for row in twins.opt.plan.rows} == {"factored"}


def test_moments_that_are_not_those_of_one_code_are_kept_whole():
    """As from a net whose embeddings were trained until now."""
    twins = separate()
    twins.train(3)
    state = twins.oracle.state_dict()
    g = torch.Generator().manual_seed(0)
    for entry in state["state"].values():
        entry["exp_avg"] = torch.randn(entry["exp_avg"].shape, generator=g, dtype=torch.float64)
    for opt in (twins.opt, twins.oracle):
        opt.load_state_dict(copy.deepcopy(state))
    twins.train(5)
    assert "not those of one constant code" in str(twins.opt.plan)


def test_a_code_of_zeros():
    """Its rows of the head get no gradient: they decay, and that is all."""
    twins = separate()
    for net in (twins.ours, twins.theirs):
        net.embeddings.weight[:, :2] = 0.0
    twins.train(10)


# ── torch's ways ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_state_goes_to_torch_and_back(kind):
    twins = Twins(build(7, heads=kind), "AdamW", lr=LR)
    twins.train(5)
    plain = torch.optim.AdamW(twins.ours.parameters(), lr=1.0)
    plain.load_state_dict(twins.opt.state_dict())
    twins.opt.load_state_dict(plain.state_dict())
    twins.train(5)


@pytest.mark.parametrize("option", ["foreach", "fused"])
def test_options_for_what_is_not_a_heads(option):
    twins = Twins(build(7, trunk=(8,)), "AdamW", lr=LR, **{option: True})
    twins.train(10)


@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_options_that_cannot_be(option):
    with pytest.raises(hf.HyperfanError, match=f"{option}=True"):
        hf.AdamW(build(), **{option: True})


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1.0}, {"weight_decay": -1.0}])
def test_bad_options_are_refused_in_torchs_words(options):
    with pytest.raises(ValueError, match="Invalid"):
        hf.AdamW(build(), **options)


@pytest.mark.parametrize("net", [{"heads": "separate"}, {"embedding": hf.Embedding(7, noise=0.3)}])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_gradient_scaler(net, name):
    twins = Twins(build(**net), name, lr=LR)
    kinds = [row.kind for row in twins.opt.plan.rows]
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3) for _ in range(2)]
    for i, (x, y) in enumerate(batches(12)):
        for scaler, net, opt in zip(scalers, (twins.ours, twins.theirs), (twins.opt, twins.oracle), strict=True):
            torch.manual_seed(i)
            opt.zero_grad()
            loss = loss_of(net, x, y) * (float("inf") if i == 5 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
    assert scalers[0].get_scale() == scalers[1].get_scale()
    assert [row.kind for row in twins.opt.plan.rows] == kinds
    twins.compare()


def test_embeddings_at_a_rate_of_their_own():
    twins = Twins(build(hf.Embedding(7, trainable=True)), "AdamW", lr=LR)

    def groups(net):
        others = [p for n, p in net.named_parameters() if not n.startswith("embeddings")]
        return [{"params": others}, {"params": list(net.embeddings.parameters()), "lr": 0.1, "weight_decay": 0.0}]

    twins.opt = hf.AdamW(twins.ours, lr=LR, params=groups(twins.ours))
    twins.oracle = torch.optim.AdamW(groups(twins.theirs), lr=LR)
    twins.train(10)


# ── in blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", [16, 60])
@pytest.mark.parametrize("optimiser", ["Adam", "AdamW"])
@pytest.mark.parametrize("heads", ["shared", "separate"])
def test_heads_larger_than_a_block(monkeypatch, heads, optimiser, block):
    """Blocks of parts of a row, and of several rows; the last ones are smaller."""
    monkeypatch.setattr(kernels, "BLOCK", block)
    Twins(build(7, heads=heads), optimiser, lr=LR, amsgrad=True).train(10)


# ── compiled ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(NOT_COMPILED is not None, reason=f"needs a C++ compiler: {NOT_COMPILED}")
def test_compiled_steps():
    for embedding in (hf.Embedding(7), hf.Embedding(7, noise=0.3)):
        torch.manual_seed(0)
        net = hf.HyperNet(nn.Linear(4, 3).double(), embedding)
        twins = Twins(net, "AdamW", lr=LR, weight_decay=0.2)
        twins.opt = hf.AdamW(twins.ours, lr=LR, weight_decay=0.2, compile=True)
        assert [row.compiled for row in twins.opt.plan.rows] == [True]
        assert ", compiled" in str(twins.opt.plan)
        twins.train(4)


@pytest.mark.parametrize("options", covered(OPTIONS, lambda options: list(options.values())), ids=named)
@pytest.mark.parametrize("optimiser", ["Adam", "AdamW"])
def test_what_would_be_compiled_steps_as_torch_does(monkeypatch, optimiser, options):
    """With all options, of which a compiled test takes one: the same functions, run as they are."""
    monkeypatch.setattr(kernels, "_compile", lambda function: function)
    monkeypatch.setattr("hyperfan.optim.adam.MIN_COMPILED", 0)
    monkeypatch.setattr("hyperfan.optim.adam.why_not_compiled", lambda device: None)
    for heads in ("shared", "separate"):
        twins = Twins(build(7, heads=heads), optimiser, lr=LR, **options)
        assert all(row.compiled for row in twins.opt.plan.rows)
        twins.train(10)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr("hyperfan.optim.adam.why_not_compiled", lambda device: "no compiler is installed")
    with pytest.raises(hf.HyperfanError, match="compile=True: no compiler is installed; leave it out"):
        hf.AdamW(net := build(), compile=True)
    assert net.trainer is None
    assert not any(row.compiled for row in hf.AdamW(build()).plan.rows)


def test_a_compiler_is_needed_only_for_devices_that_heads_are_on(monkeypatch):
    monkeypatch.setattr("hyperfan.optim.adam.why_not_compiled", {"cpu": "no compiler is installed"}.get)
    hf.AdamW(build().to("meta"), compile=True)


def test_a_compiler_that_fails_is_told_and_trained_without(monkeypatch):
    def broken(*args):
        raise torch._dynamo.exc.TorchDynamoException("the linker is missing")

    monkeypatch.setattr(kernels, "_FAILED", set())
    monkeypatch.setattr(kernels, "_compile", lambda function: broken)
    monkeypatch.setattr("hyperfan.optim.adam.MIN_COMPILED", 0)
    twins = separate()
    with pytest.warns(hf.HyperfanWarning, match="could not be compiled and is slower: the linker is missing"):
        twins.train(3)


def test_small_maps_are_dense_unless_asked_otherwise(monkeypatch):
    monkeypatch.setattr("hyperfan.optim.adam.MAX_SMALL", 7 * 20 - 1)
    twins = separate()
    assert [row.kind for row in twins.opt.plan.rows] == ["collapsed", "collapsed", "collapsed", "dense"]
    assert "it is small" in str(twins.opt.plan)
    twins.train(5)
    twins.opt.use("factored")
    assert {row.kind for row in twins.opt.plan.rows} == {"factored"}
    twins.train(5)


def test_a_copy_compiles_as_the_original_does():
    net, opt = copy.deepcopy((net := build(), hf.AdamW(net, compile=False)))
    assert opt.rule.compile is False
    assert net.trainer is not None
    opt.release()
    assert net.trainer is None
