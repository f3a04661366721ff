"""hyperfan.SGD equals torch.optim.SGD on dense autograd, whatever happens in between."""

import copy
import itertools
import pickle
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from twins import STEPS, Twins, assert_same, batches, build, loss_of, mainnet

import hyperfan as hf
from products import covered

LR = 3e-4  # small enough that training does not amplify rounding
OPTIONS = [
    {"lr": LR, "momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay,
     "maximize": maximize}
    for momentum, dampening, nesterov, decay, maximize in itertools.product(
        (0, 0.9), (0, 0.3), (False, True), (0, 0.2), (False, True)
    )
    if not (nesterov and (dampening or not momentum)) and not (dampening and not momentum)
]  # fmt: skip
NETS = {
    f"{heads}-{generate}-{noise}-{trunk}": {
        "heads": heads,
        "generate": generate,
        "embedding": hf.Embedding(7, noise=0.3 if noise == "noise" else 0.0),
        "trunk": None if trunk == "none" else (8,),
    }
    for heads, generate, noise, trunk in itertools.product(
        ("shared", "separate"), ("weights", "weights+biases"), ("fixed", "noise"), ("none", "trained")
    )
}
# One head: that of the last layer alone has a bias whose gradient is zero but for rounding.
CHUNKS = hf.Chunks(one_head=True)
NETS["chunks"] = {"heads": CHUNKS, "embedding": hf.Embedding(7)}


def named(options):
    """What is set, as the name of a test."""
    return "-".join(f"{k}{v}" for k, v in options.items() if v)


def settings(case):
    """What a net and its optimiser are built with, setting by setting; of chunks only that they are such."""
    name, options = case
    return [*(f"{name}---".split("-")[:4]), *options.values()]


EVERY_OPTION = covered(OPTIONS, lambda options: list(options.values()))


def kinds(opt):
    return {row.kind for row in opt.plan.rows}


def disturb(twins, step):
    """A scheduler, looks, a save and restore, and changes of plan, in one run."""
    for opt in (twins.opt, twins.oracle):
        if step and step % 3 == 0:
            for group in opt.param_groups:
                group["lr"] *= 0.8
    if step == 3:
        twins.ours.state_dict()
    if step == 5:
        net_state, opt_state = twins.ours.state_dict(), twins.opt.state_dict()
        fresh = copy.deepcopy(twins.ours)
        fresh.reset_parameters()
        fresh.load_state_dict(net_state)
        twins.ours, twins.opt = fresh, hf.SGD(fresh, lr=1.0)
        twins.opt.load_state_dict(opt_state)
    if step == 8:
        twins.opt.use("dense")
        assert kinds(twins.opt) == {"dense"}
    if step == 10:
        twins.opt.use("factored")
        # Chunks have more codes than their head is wide, so that the dense gradient is the smaller one.
        assert kinds(twins.opt) == {"dense" if isinstance(twins.ours.heads.config, hf.Chunks) else "factored"}
    if step == 12:
        twins.opt.use()
    if step == 14:
        next(iter(twins.ours.parameters()))


@pytest.mark.parametrize(
    ("name", "options"),
    covered(list(itertools.product(NETS, OPTIONS)), settings, strength=3),
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_a_disturbed_run_equals_dense_autograd(name, options):
    Twins(build(**NETS[name]), **options).train(between=disturb)


@pytest.mark.parametrize("options", EVERY_OPTION, ids=named)
@pytest.mark.parametrize("name", ["shared-weights-fixed-none", "shared-weights+biases-noise-trained"])
def test_an_undisturbed_run_equals_dense_autograd(name, options):
    twins = Twins(build(**NETS[name]), **options)
    assert kinds(twins.opt) == {"collapsed" if "fixed" in name else "factored"}
    twins.train()


@pytest.mark.parametrize("options", EVERY_OPTION, ids=named)
def test_the_input_layers_of_chunks_collapse(options):
    """Their gradient is never written out, and neither are they."""
    # A step goes through two layers here, and is larger for it.
    twins = Twins(build(**NETS["chunks"]), **{**options, "lr": LR / 10})
    layers = twins.ours.heads.inputs
    before = {name: p.detach().clone() for name, p in dict.items(layers._parameters)}
    assert {row.head: row.kind for row in twins.opt.plan.rows} == {"5": "dense", "inputs": "collapsed"}

    def untouched(twins, step):
        held = dict(layers._parameters)  # as they are
        assert all(torch.equal(held[name], p) for name, p in before.items())
        assert step == 0 or all(type(p.grad).__name__ == "FactoredGradient" for p in held.values())

    twins.train(between=untouched)
    assert not torch.equal(layers.weight, before["weight"])


@pytest.mark.parametrize(
    "options",
    [
        {"embedding": hf.Embedding(7, trainable=True)},
        {"embedding": hf.Embedding(7, noise=0.1)},
        {"embedding": hf.Embedding(7, per="net"), "heads": replace(CHUNKS, embedding=3, inputs=4)},
    ],
    ids=["trained", "noise", "chunks"],
)
def test_input_layers_whose_embeddings_change_do_not(options):
    twins = Twins(build(**{"heads": CHUNKS, **options}), lr=LR, momentum=0.9)
    row = next(r for r in twins.opt.plan.rows if r.head == "inputs")
    assert row.kind == "dense"
    assert re.fullmatch(
        "its (embeddings are trained|codes have noise); in factors small maps would gain little", row.reason
    )
    twins.train(10)


def test_the_plan_counts_what_input_layers_save():
    net = build(**NETS["chunks"])
    row = next(r for r in hf.SGD(net, lr=LR, momentum=0.9).plan.rows if r.head == "inputs")
    chunks, size, width = net.heads.inputs.weight.shape
    assert row.codes == chunks == 17
    assert row.saved == 2 * 8 * chunks * size * width  # gradient and momentum of the weight; the bias's are held


def test_input_layers_under_functional_call_and_torch_func():
    twins = Twins(build(**NETS["chunks"]), lr=LR, momentum=0.9)
    twins.train(3)
    x, y = next(batches(1))
    other = {name: p.detach() + 0.1 for name, p in twins.theirs.named_parameters()}
    outs = [torch.func.functional_call(net, other, (x,)) for net in (twins.ours, twins.theirs)]
    assert_same(*outs)
    parameters = [dict(net.named_parameters()) for net in (twins.ours, twins.theirs)]
    grads = [
        torch.func.grad(
            lambda p, net=net: torch.nn.functional.cross_entropy(torch.func.functional_call(net, p, (x,)), y)
        )(held)
        for net, held in zip((twins.ours, twins.theirs), parameters, strict=True)
    ]
    for name in grads[1]:
        assert_same(grads[0][name], grads[1][name], name)
    twins.train(3)


@pytest.mark.parametrize("name", ["chunks", "shared-weights-fixed-none"])
def test_inside_torch_func_heads_must_be_up_to_date(name):
    twins = Twins(build(**NETS[name]), lr=LR)
    x, y = next(batches(1))
    loss_of(twins.ours, x, y).backward()
    twins.opt.step()
    with pytest.raises(hf.HyperfanError, match=r"call opt\.sync\(\) before"):
        torch.func.jacrev(lambda x: twins.ours(x))(x)
    twins.opt.sync()
    loss_of(twins.theirs, x, y).backward()
    twins.oracle.step()
    assert_same(*(torch.func.jacrev(lambda x, net=net: net(x))(x) for net in (twins.ours, twins.theirs)))


def test_input_layers_frozen_hooked_and_given_in_part():
    twins = Twins(build(**NETS["chunks"]), lr=LR, momentum=0.9)

    def plan():
        return next((r.kind, r.reason) for r in twins.opt.plan.rows if r.head == "inputs")

    twins.train(3)
    for net in (twins.ours, twins.theirs):
        net.heads.inputs.requires_grad_(False)
    assert plan() == ("frozen", "requires no gradients")
    twins.train(3)
    for net in (twins.ours, twins.theirs):
        net.heads.inputs.weight.requires_grad_(True)
    assert plan()[0] == "dense"
    twins.train(3)
    for net in (twins.ours, twins.theirs):
        net.heads.inputs.requires_grad_(True)
    assert plan()[0] == "collapsed"
    twins.train(3)
    for net in (twins.ours, twins.theirs):
        net.heads.inputs.register_forward_hook(
            lambda layers, args, out: out.mul_(1.1)
        )  # in place: not for what is lent
    assert plan() == ("dense", "it has hooks")
    twins.train(3)


def test_with_frozen_heads_evaluation_still_sees_every_step():
    twins = Twins(build(**NETS["chunks"]), lr=LR)
    x, _ = next(batches(1))
    for net in (twins.ours, twins.theirs):
        net.heads.requires_grad_(False)
        net.heads.inputs.requires_grad_(True)
        net.mainnet.requires_grad_(False)

    def look(twins, step):
        with torch.no_grad():
            assert_same(*(net.eval()(x) for net in (twins.ours, twins.theirs)))
        twins.ours.train()
        twins.theirs.train()

    twins.train(5, between=look)


def test_a_net_trained_in_evaluation_mode_is_looked_at_as_it_is():
    """What it generated for the last look is cached, and nothing else than the optimiser knows that it is old."""
    twins = Twins(build(**NETS["chunks"]), lr=LR)
    x, _ = next(batches(1))
    for net in (twins.ours, twins.theirs):
        net.eval()
        net.heads.requires_grad_(False)
        net.heads.inputs.requires_grad_(True)
        net.mainnet.requires_grad_(False)

    def look(twins, step):
        with torch.no_grad():
            assert_same(*(net(x) for net in (twins.ours, twins.theirs)))

    twins.train(5, between=look)


@pytest.mark.parametrize("lost", [0, 1], ids=["weight", "bias"])
@pytest.mark.parametrize("name", ["chunks", "shared-weights-fixed-none"])
def test_momentum_of_one_parameter_taken_away(name, lost):
    twins = Twins(build(**NETS[name]), lr=LR, momentum=0.9)
    twins.train(4)
    for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
        part = net.heads.inputs if name == "chunks" else net.heads.head("5x5")
        opt.state.pop(list(part.parameters())[lost])
    twins.train(4)


def test_two_nets_that_share_input_layers():
    """Each with an optimiser of its own, in turn; and one of them only looking."""
    found = []
    for ours in (True, False):
        one, two = build(**NETS["chunks"]), build(**NETS["chunks"])
        two.heads.inputs = one.heads.inputs
        watching = build(**NETS["chunks"]).eval()
        watching.heads.inputs = one.heads.inputs
        make = hf.SGD if ours else lambda net, **options: torch.optim.SGD(net.parameters(), **options)
        opts = [make(net, lr=LR) for net in (one, two)]
        seen = []
        for i, (x, y) in enumerate(batches(6)):
            net, opt = (one, two)[i % 2], opts[i % 2]
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
            with torch.no_grad():
                seen.append(watching(x))
        found.append(([t.clone() for net in (one, two) for t in net.state_dict().values()], seen))
    for a, b in zip(found[0][0] + found[0][1], found[1][0] + found[1][1], strict=True):
        assert_same(a, b)


def test_input_layers_are_read_copied_and_given_other_embeddings():
    twins = Twins(build(**NETS["chunks"]), lr=LR)
    twins.train(3)
    for read in (
        lambda net: net.heads.inputs.weight,
        lambda net: net.state_dict()["heads.inputs.weight"],
        lambda net: copy.deepcopy(net.heads.inputs).weight,
        lambda net: copy.deepcopy(net).heads.inputs.weight,
    ):
        twins.train(3)
        assert_same(read(twins.ours).detach(), read(twins.theirs).detach())
    with torch.no_grad():
        for net in (twins.ours, twins.theirs):
            net.embeddings.weight.mul_(1.5)
    twins.train(3)
    twins.opt.release()
    assert twins.ours.heads.inputs.trainer is None
    assert type(twins.ours.heads.inputs._parameters) is dict


def test_a_frozen_trunk_collapses():
    net = build(trunk=(8,))
    net.trunk.requires_grad_(False)
    twins = Twins(net, lr=LR, momentum=0.9, weight_decay=0.2)
    assert kinds(twins.opt) == {"collapsed"}
    twins.train(between=disturb)


EMBEDDINGS = {
    "trainable": (hf.Embedding(7, trainable=True), {}),
    "tasks": (hf.Embedding(7, tasks=3), {"task": 1}),
    "normalised": (hf.Embedding(7, normalise=True), {}),
    "per-sample tasks": (hf.Embedding(7, tasks=3, trainable=True), {"task": torch.tensor([0, 1, 2, 0, 1, 2])}),
    "identity": (hf.Embedding(7, tasks=3, per="net", trainable=True, identity=4), {"task": 1}),
    "per-sample identity": (
        hf.Embedding(7, given=True, per="net", identity=4), {"embedding": torch.randn(6, 7).double()}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_other_embeddings(name):
    embedding, call = EMBEDDINGS[name]
    Twins(build(embedding), lr=LR, momentum=0.9, weight_decay=0.2).train(**call)


def test_torchs_schedulers_drive_it():
    twins = Twins(build(), lr=LR, momentum=0.9)
    schedulers = [torch.optim.lr_scheduler.OneCycleLR(o, 5 * LR, total_steps=STEPS) for o in (twins.opt, twins.oracle)]
    # OneCycle moves momentum too.

    def tick(twins, step):
        if step:
            for scheduler in schedulers:
                scheduler.step()

    twins.train(between=tick)


def test_settings_changed_by_hand_in_mid_run():
    def change(twins, step):
        for opt in (twins.opt, twins.oracle):
            group = opt.param_groups[0]
            if step == 3:
                group["momentum"] = 0.9
            if step == 6:
                group["weight_decay"] = 0.3
            if step == 9:
                group["momentum"] = 0.0
            if step == 12:
                group["momentum"], group["nesterov"] = 0.5, True

    Twins(build(), lr=LR).train(between=change)


def test_a_decay_that_takes_everything():
    """lr · decay = 1 leaves nothing of the head it started from."""

    def take(twins, step):
        for opt in (twins.opt, twins.oracle):
            opt.param_groups[0]["weight_decay"] = 1 / LR if step == 5 else 0.0

    Twins(build(), lr=LR, momentum=0.9).train(20, between=take)
    Twins(build(), lr=LR).train(20, between=take)


def test_accumulation_over_several_backwards():
    for net in (build(), build(hf.Embedding(7, noise=0.3)), build(hf.Embedding(7, trainable=True), trunk=(8,))):
        twins = Twins(net, lr=LR, momentum=0.9)
        for i, (x, y) in enumerate(batches(8)):
            for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
                torch.manual_seed(i)
                opt.zero_grad()
                for part in range(5):
                    loss_of(net, x + part, y).backward()
                opt.step()
        twins.compare()


def test_two_forwards_before_one_backward():
    twins = Twins(build(), lr=LR)
    for x, y in batches(10):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            opt.zero_grad()
            (loss_of(net, x, y) + 2 * loss_of(net, -x, y)).backward()
            opt.step()
    twins.compare()


def test_gradients_kept_as_zeros():
    twins = Twins(build(), lr=LR, momentum=0.9, weight_decay=0.2)
    for x, y in batches(10):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            opt.zero_grad(set_to_none=False)
            loss_of(net, x, y).backward()
            opt.step()
    for opt in (twins.opt, twins.oracle):  # decay and momentum go on without a gradient
        opt.zero_grad(set_to_none=False)
        opt.step()
    twins.compare()


def test_closure():
    twins = Twins(build(), lr=LR)
    for x, y in batches(5):
        losses = []
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):

            def closure(net=net, opt=opt, x=x, y=y):
                opt.zero_grad()
                loss = loss_of(net, x, y)
                loss.backward()
                return loss

            losses.append(opt.step(closure))
        assert_same(*(loss.detach() for loss in losses))
    twins.compare()


@pytest.mark.parametrize("embedding", [hf.Embedding(7), hf.Embedding(7, noise=0.3)], ids=["collapsed", "factored"])
@pytest.mark.parametrize("how", ["ours", "torch's"])
def test_clipping_by_norm(embedding, how):
    twins = Twins(build(embedding), lr=LR, momentum=0.9)
    for i, (x, y) in enumerate(batches(20)):
        norms = []
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            torch.manual_seed(i)
            opt.zero_grad()
            loss_of(net, x, y).backward()
            if how == "ours" and net is twins.ours:
                norms.append(twins.opt.clip_grad_norm_(0.5))
            else:
                norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5))
            opt.step()
        assert norms[1] > 0.5
        assert_same(*norms, "norm")
    twins.compare()
    assert kinds(twins.opt) == {"factored" if embedding.noise else "collapsed"}


def test_clipping_by_value_makes_dense_and_says_so():
    twins = Twins(build(), lr=LR, momentum=0.9)

    def train():
        for x, y in batches(20):
            for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
                opt.zero_grad()
                loss_of(net, x, y).backward()
                torch.nn.utils.clip_grad_value_(net.parameters(), 0.01)
                opt.step()

    with pytest.warns(hf.HyperfanWarning, match="dense gradient from now on") as warned:
        train()
    assert len(warned) == 3  # once for each head
    twins.compare()
    assert kinds(twins.opt) == {"dense"}
    assert "element by element" in str(twins.opt.plan)


def test_freezing_heads_trunk_and_embeddings_in_mid_run():
    def freeze(twins, step):
        for net in (twins.ours, twins.theirs):
            first, second, *_ = net.heads.layouts
            net.heads.head(first).requires_grad_(not 5 <= step < 10)
            net.heads.head(second).weight.requires_grad_(not 10 <= step < 15)
            net.heads.head(second).bias.requires_grad_(not 15 <= step < 20)
            net.trunk.requires_grad_(not 20 <= step < 30)

    Twins(build(trunk=(8,)), lr=LR, momentum=0.9, weight_decay=0.2).train(35, between=freeze)


def test_groups_of_their_own():
    def groups(net):
        weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
        return [
            {"params": weights, "weight_decay": 0.3},
            {"params": [p for n, p in net.named_parameters() if not n.endswith("weight")], "lr": 2 * LR},
        ]

    twins = Twins(build(), lr=LR)
    twins.opt = hf.SGD(twins.ours, lr=LR, momentum=0.9, params=groups(twins.ours))
    twins.oracle = torch.optim.SGD(groups(twins.theirs), lr=LR, momentum=0.9)
    twins.train()
    assert kinds(twins.opt) == {"factored"}
    assert "different settings" in str(twins.opt.plan)


def test_a_group_added_later():
    encoders = [nn.Linear(4, 4).double() for _ in range(2)]
    encoders[1].load_state_dict(encoders[0].state_dict())
    twins = Twins(build(), lr=LR)
    for opt, encoder in zip((twins.opt, twins.oracle), encoders, strict=True):
        opt.add_param_group({"params": encoder.parameters(), "momentum": 0.9})
    for x, y in batches(10):
        for net, opt, encoder in zip((twins.ours, twins.theirs), (twins.opt, twins.oracle), encoders, strict=True):
            opt.zero_grad()
            loss_of(net, encoder(x), y).backward()
            opt.step()
    twins.compare()
    for a, b in zip(encoders[0].parameters(), encoders[1].parameters(), strict=True):
        assert_same(a.detach(), b.detach())


def test_heads_added_later():
    twins = Twins(build(), lr=LR, momentum=0.9)
    pairs = []
    for net, kind in ((twins.ours, hf.SGD), (twins.theirs, torch.optim.SGD)):
        plain = [p for name, p in net.named_parameters() if name.startswith("mainnet.")]
        options = {"lr": LR, "momentum": 0.9}
        pairs.append(kind(net, params=plain, **options) if kind is hf.SGD else kind(plain, **options))
    twins.opt, twins.oracle = pairs
    assert "not given to this optimiser" in str(twins.opt.plan)

    def add(twins, step):
        if step == 5:
            for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
                opt.add_param_group({"params": net.heads.parameters()})
            assert kinds(twins.opt) == {"collapsed"}

    twins.train(15, between=add)


@pytest.mark.parametrize("embedding", [hf.Embedding(7), hf.Embedding(7, noise=0.3)], ids=["collapsed", "factored"])
@pytest.mark.parametrize("release", [True, False])
def test_switching_to_another_optimiser_and_back(embedding, release):
    twins = Twins(build(embedding), lr=LR, momentum=0.9)
    twins.train(10)
    if release:
        twins.opt.release()
        assert kinds(twins.opt) == {"dense"}
        assert "released" in str(twins.opt.plan)
    back = twins.opt, twins.oracle
    twins.opt, twins.oracle = (torch.optim.Adam(net.parameters(), lr=LR) for net in (twins.ours, twins.theirs))
    for i, (x, y) in enumerate(batches(10)):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            torch.manual_seed(i)
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    twins.opt = back[0] if not release else hf.SGD(twins.ours, **twins.options)
    twins.oracle = back[1] if not release else torch.optim.SGD(twins.theirs.parameters(), **twins.options)
    twins.train(10)


def test_its_state_goes_to_torchs_sgd_and_back():
    def swap(twins, step):
        if step == 5:
            theirs = torch.optim.SGD(twins.ours.parameters(), lr=1.0)
            theirs.load_state_dict(twins.opt.state_dict())
            twins.opt.release()
            theirs.sync = lambda: None
            twins.opt = theirs
        if step == 10:
            ours = hf.SGD(twins.ours, lr=1.0)
            ours.load_state_dict(twins.opt.state_dict())
            twins.opt = ours

    Twins(build(), lr=LR, momentum=0.9, weight_decay=0.2).train(15, between=swap)


def test_saving_and_going_on_is_bit_identical_to_saving_and_loading():
    nets = [build(), build()]
    for net in nets:
        opt = hf.SGD(net, lr=LR, momentum=0.9, weight_decay=0.2)
        for i, (x, y) in enumerate(batches(40)):
            if i == 20:
                saved = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
                if net is nets[1]:
                    net.reset_parameters()
                    net.load_state_dict(saved[0])
                    opt = hf.SGD(net, lr=1.0)
                    opt.load_state_dict(saved[1])
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    for a, b in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True):
        assert torch.equal(a, b)


# ── looking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def trained(embedding=7, steps=10):
    twins = Twins(build(embedding), lr=LR, momentum=0.9)
    for x, y in batches(steps):
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    return twins


LOOKS = {
    "state_dict": lambda net, opt: net.state_dict(),
    "heads' state_dict": lambda net, opt: {f"heads.{k}": v for k, v in net.heads.state_dict().items()},
    "parameters": lambda net, opt: dict(net.named_parameters()),
    "deepcopy": lambda net, opt: dict(copy.deepcopy(net).heads.named_parameters("heads")),
    "pickle": lambda net, opt: dict(pickle.loads(pickle.dumps(net)).heads.named_parameters("heads")),
    "sync": lambda net, opt: (opt.sync(), dict(net.heads.named_parameters("heads")))[1],
    "release": lambda net, opt: (opt.release(), dict(net.heads.named_parameters("heads")))[1],
    "float": lambda net, opt: dict(net.float().double().heads.named_parameters("heads")),
    "another optimiser": lambda net, opt: (hf.SGD(net), dict(net.heads.named_parameters("heads")))[1],
    "the optimiser's state": lambda net, opt: (opt.state_dict(), dict(net.heads.named_parameters("heads")))[1],
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_sees_what_was_trained(look):
    twins = trained()
    seen = LOOKS[look](twins.ours, twins.opt)
    for name, expected in twins.theirs.named_parameters():
        if name.startswith("heads."):
            expected = expected.detach()
            if look == "float":
                torch.testing.assert_close(seen[name].detach(), expected.detach(), rtol=1e-5, atol=1e-6)
            else:
                assert_same(seen[name].detach(), expected.detach(), name)


def test_generating_with_other_codes_sees_what_was_trained():
    twins = trained()
    for net in (twins.ours, twins.theirs):
        net.embeddings.weight.mul_(-2.0)
    for a, b in zip(twins.ours.generate().values(), twins.theirs.generate().values(), strict=True):
        assert_same(a.detach(), b.detach())
    twins.train(10)


def test_save_pretrained_and_freeze(tmp_path):
    twins = trained()
    x = next(batches(1))[0]
    assert_same(twins.ours.freeze()(x).detach(), twins.theirs(x).detach())
    twins.ours.save_pretrained(tmp_path / "net")
    loaded = hf.HyperNet.from_pretrained(tmp_path / "net", mainnet())
    assert_same(loaded(x).detach(), twins.theirs(x).detach())
    twins.train(10)


def test_what_was_generated_does_not_change_with_training():
    net = build()
    opt = hf.SGD(net, lr=0.1)
    x, y = next(batches(1))
    made = net.generate()
    kept = {name: t.detach().clone() for name, t in made.items()}
    loss_of(net, x, y).backward()
    opt.step()
    for name, t in made.items():
        assert torch.equal(t, kept[name])
        assert not torch.equal(net.generate()[name], kept[name])


def test_a_copy_trains_on_its_own():
    twins = trained()
    net, opt = copy.deepcopy((twins.ours, twins.opt))
    assert kinds(opt) == {"collapsed"}
    other = copy.deepcopy((twins.theirs, twins.oracle))
    for x, y in batches(5):
        for n, o in ((net, opt), other):
            o.zero_grad()
            loss_of(n, x, y).backward()
            o.step()
    copied = trained()
    copied.ours, copied.opt, copied.theirs, copied.oracle = net, opt, *other
    copied.compare()
    twins.compare()


def test_writing_to_a_head_is_seen():
    twins = trained()
    with torch.no_grad():
        for net in (twins.ours, twins.theirs):
            for name, p in net.named_parameters():  # which recovers the heads
                if name.startswith("heads."):
                    p.mul_(0.9)
    twins.train(5)
    for net in (twins.ours, twins.theirs):
        for name, p in net.named_parameters():
            if name.startswith("heads."):
                p.data.clamp_(-0.1, 0.1)  # which raises no version counter
    twins.train(5)


def test_reset_parameters_starts_anew():
    net = trained().ours
    net.reset_parameters(torch.Generator().manual_seed(3))
    other = build()
    other.reset_parameters(torch.Generator().manual_seed(3))
    x = next(batches(1))[0]
    assert_same(net(x).detach(), other(x).detach())


# ── what it does not support, and bad input ────────────────────────────────────────────────────────────────────────


def test_torchs_own_errors():
    net = build()
    with pytest.raises(ValueError, match="Invalid learning rate"):
        hf.SGD(net, lr=-1.0)
    with pytest.raises(ValueError, match="Nesterov momentum requires"):
        hf.SGD(net, nesterov=True)
    with pytest.raises(ValueError, match="more than one parameter group"):
        hf.SGD(net, params=[{"params": net.parameters()}, {"params": net.heads.parameters()}])
    assert all(part.map.trainer is None for part in net.heads.parts())  # nothing was attached on the way


def test_what_is_not_a_hypernet():
    with pytest.raises(hf.HyperfanError, match="SGD\\(net"):
        hf.SGD(build().parameters())
    with pytest.raises(hf.HyperfanError, match=r"torch\.optim\.SGD"):
        hf.SGD(nn.Linear(2, 2))


def test_an_unknown_plan():
    with pytest.raises(hf.HyperfanError, match="did you mean 'factored'"):
        hf.SGD(build()).use("factorised")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("embedding", [hf.Embedding(7), hf.Embedding(7, noise=0.3)], ids=["collapsed", "factored"])
def test_what_is_not_finite_goes_where_torch_would_put_it(bad, embedding):
    twins = Twins(build(embedding), lr=LR)
    for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
        torch.manual_seed(0)
        x, y = next(batches(1))
        x[0, 0] = bad
        loss_of(net, x, y).backward()
        opt.step()
    for a, b in zip(twins.ours.state_dict().values(), twins.theirs.state_dict().values(), strict=True):
        assert torch.equal(a.isfinite(), b.isfinite())


def test_modules_that_hold_hypernets():
    both = nn.ModuleList([build(), build(hf.Embedding(7, noise=0.3))])
    opt = hf.SGD(both, lr=LR)
    assert [row.kind for row in opt.plan.rows] == ["collapsed"] * 3 + ["factored"] * 3


def test_under_torch_func_the_given_parameters_count():
    twins = trained()
    x, _ = next(batches(1))
    losses = []
    for net in (twins.ours, twins.theirs):
        params = {name: 1.1 * p.detach() for name, p in net.named_parameters()}
        grads = torch.func.grad(lambda p, net=net: torch.func.functional_call(net, p, (x,)).square().sum())(params)
        losses.append(torch.cat([g.flatten() for g in grads.values()]))
    assert_same(*losses)
    outs = [torch.func.vmap(net)(torch.stack([x, 2 * x])) for net in (twins.ours, twins.theirs)]
    assert_same(*(o.detach() for o in outs))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, from looking at tensors between two graphs
def test_compiled_with_graph_breaks():
    torch._dynamo.reset()
    twins = Twins(build(), lr=LR, momentum=0.9)
    compiled = torch.compile(twins.ours, backend="aot_eager")
    for x, y in batches(5):
        for net, opt in ((compiled, twins.opt), (twins.theirs, twins.oracle)):
            opt.zero_grad()
            loss_of(net, x, y).backward()
            opt.step()
    twins.compare()


def test_the_plan_tells_why():
    cases = {
        "constant": build(),
        "noise": build(hf.Embedding(7, noise=0.1)),
        "trained": build(hf.Embedding(7, trainable=True)),
        "trunk": build(trunk=(8,)),
        "task": build(hf.Embedding(7, tasks=2)),
        "given": build(hf.Embedding(7, given=True)),
        "more codes": build(1),
        "no gradients": build().requires_grad_(False),
    }
    for word, net in cases.items():
        assert word in str(hf.SGD(net).plan), word
    dependent = build()
    for stored in (dependent.embeddings.weight, dependent.heads.scale):
        stored[2] = stored[1]
    assert [row.kind for row in hf.SGD(dependent).plan.rows] == ["collapsed", "factored", "collapsed"]
    twins = Twins(dependent, lr=LR, momentum=0.9)
    twins.train(10)


def test_the_plan_counts_bytes():
    """Of heads with 20, 25 and 15 outputs in double precision, less the factors of 1, 2 and 1 codes."""
    gradients = [8 * outputs * (7 + 1 - codes) for outputs, codes in ((20, 1), (25, 2), (15, 1))]
    assert [row.saved for row in hf.SGD(build()).plan.rows] == gradients
    assert [row.saved for row in hf.SGD(build(), momentum=0.9).plan.rows] == [2 * g for g in gradients]
    noisy = build(hf.Embedding(7, noise=0.1))
    assert [row.saved for row in hf.SGD(noisy, momentum=0.9).plan.rows] == gradients
    assert sum(row.saved for row in hf.SGD(build().requires_grad_(False)).plan.rows) == 0
