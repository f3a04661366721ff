"""One hypernet for several mainnets: slices of what is made for the largest, each at the scale of its own layer."""

import copy
import itertools
import math
import pickle
from typing import ClassVar

import pytest
import torch
from generator_suite import Case, GeneratorSuite
from generator_suite import mainnet as suite_mainnet
from test_heads import given
from test_heads import oracle as oracle_of_heads
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_close, assert_variance


def larger() -> nn.Module:
    """Than the suite's mainnet, in every dimension."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 9), nn.Tanh(), nn.Linear(9, 9),
        nn.Tanh(), nn.Linear(9, 7),
    )  # fmt: skip


def oracle(net: hf.HyperNet, **call) -> dict[str, Tensor]:
    """Slices of the larger net's tensors, by index, times what their targets differ by."""
    large = net.large[0]
    made, scales = oracle_of_heads(large, **call), []
    if large.heads.base is not None:
        made = {name: w + large.heads.base.value(name) if name in large.heads.base else w for name, w in made.items()}
    for i, t in enumerate(net.generated):
        small, big = (next(r.target for r in n.plan.rows if r.tensor == t.name) for n in (net, large))
        scales.append(math.sqrt(small / big) * (net.heads.scale[i] / net.started[i]).item())
    return {
        t.name: made[t.name][(..., *(slice(s) for s in t.shape))] * scale
        for t, scale in zip(net.generated, scales, strict=True)
    }


def case(embedding, call=dict, **options) -> Case:
    def make(mainnet: nn.Module) -> hf.HyperNet:
        with torch.device(next(mainnet.parameters()).device):
            large = hf.HyperNet(larger().to(next(mainnet.parameters()).dtype), embedding, **options)
        net = large.for_mainnet(mainnet)
        net.large, net.started = [large], net.heads.scale.clone()  # which no list or attribute registers
        return net

    return Case(make, oracle, call)


class TestSlices(GeneratorSuite):
    GRAPHS = ("fixed",)
    CASES: ClassVar = {
        "fixed": case(6),
        "biases": case(hf.Embedding(6, trainable=True), generate="weights+biases", share=0.3),
        "given-per-sample": case(hf.Embedding(6, given=True, per="net", identity=2), given(4, 6), trunk=(8,)),
        "tasks": case(hf.Embedding(6, tasks=3, trainable=True), lambda: {"task": 2}, init="hyperfan-out"),
    }

    def test_meta_construction_then_reset(self, case):
        with torch.device("meta"):
            empty = suite_mainnet()
        with pytest.raises(hf.HyperfanError, match="to_empty"):
            case.make(empty)

    def test_save_and_load(self, case, tmp_path):
        torch.manual_seed(0)
        net = case.make(suite_mainnet()).eval()
        with pytest.raises(hf.HyperfanError, match=r"save that one, and call for_mainnet\(\) again after loading"):
            net.save_pretrained(tmp_path / "net")
        assert not (tmp_path / "net").exists()
        large = net.large[0]
        large.save_pretrained(tmp_path / "net")
        again = hf.HyperNet.from_pretrained(tmp_path / "net", larger()).for_mainnet(suite_mainnet())
        for name, tensor in again.generate(**case.call()).items():
            assert torch.equal(tensor, net.generate(**case.call())[name])


def mlp(*widths: int) -> nn.Sequential:
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def build(*widths: int, **options) -> hf.HyperNet:
    torch.manual_seed(0)
    return hf.HyperNet(mlp(*widths), options.pop("embedding", 7), **options)


HEADS = {"shared": {}, "separate": {"heads": "separate"}, "chunks": {"heads": hf.Chunks(size=50)}}
METHODS = ["hyperfan-in", "hyperfan-out"]


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("init", METHODS)
@pytest.mark.parametrize("fidelity", ["exact", "paper"])
def test_every_tensor_has_the_variance_of_its_own_layer(heads, init, fidelity):
    """As in a hypernet built for the smaller mainnet alone."""
    large = build(200, 300, 300, 100, init=init, fidelity=fidelity, embedding=hf.Embedding(40, normalise=True), **heads)
    small = large.for_mainnet(mlp(200, 100, 150, 50))
    alone = hf.HyperNet(mlp(200, 100, 150, 50), 40, init=init, fidelity=fidelity)
    wanted, big = ({r.tensor: r.target for r in n.plan.rows if r.made_by == "head"} for n in (alone, large))
    whole, made = large.generate(), small.generate()
    for row in small.plan.rows[:3]:
        assert row.target == pytest.approx(wanted[row.tensor])
        rows, columns = made[row.tensor].shape
        scale = math.sqrt(wanted[row.tensor] / big[row.tensor])
        torch.testing.assert_close(made[row.tensor], whole[row.tensor][:rows, :columns] * scale)
        if not isinstance(large.heads.config, hf.Chunks):  # of which there are too few to tell
            assert_variance(made[row.tensor], wanted[row.tensor])


def test_depth_comes_by_name_and_activations_keep_their_scale():
    large = build(100, 200, 200, 200, 200, 100, embedding=20)
    small = large.for_mainnet(mlp(100, 50, 80, 40))
    assert [t.name for t in small.generated] == ["0.weight", "2.weight", "4.weight"]
    x = torch.randn(2000, 100)
    assert 0.5 < small(x).var().item() < 2
    assert set(map(id, small.heads.parameters())) == set(map(id, large.heads.parameters()))
    assert small.embeddings is large.embeddings


@pytest.mark.parametrize(("kind", "count"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)])
def test_gates_are_cut_each_by_itself(kind, count):
    large = hf.HyperNet(kind(6, 8), 5, generate="weights+biases", nonlinearity="linear")
    small, whole = large.for_mainnet(kind(6, 3), nonlinearity="linear"), large.generate()
    made, scale = small.generate(), dict(zip((t.name for t in small.generated), small.heads.scale, strict=True))
    for i in range(count):
        for name, columns in (("weight_ih", 6), ("weight_hh", 3)):
            part = whole[name][8 * i : 8 * i + 3, :columns] * scale[name]
            assert torch.equal(made[name][3 * i : 3 * i + 3], part)
        assert torch.equal(made["bias_hh"][3 * i : 3 * i + 3], whole["bias_hh"][8 * i : 8 * i + 3] * scale["bias_hh"])


def test_heads_of_attention_are_cut_each_by_itself():
    def attention(width):
        return nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)

    embedding = hf.Embedding(5, given=True, per="net", identity=2)
    settings = {"trunk": (16,), "generate": "weights+biases"}
    large = hf.HyperNet(attention(8), embedding, **settings, example=torch.randn(1, 3, 8))
    small = large.for_mainnet(attention(4), example=torch.randn(1, 3, 4))
    codes = torch.randn(6, 5)
    whole, made = (net.generate(embedding=codes) for net in (large, small))
    scale = dict(zip((t.name for t in small.generated), small.heads.scale, strict=True))
    for name, cut in (("self_attn.in_proj_weight", (..., slice(4))), ("self_attn.in_proj_bias", ...)):
        parts = torch.cat([whole[name][:, 8 * i : 8 * i + 4] for i in range(3)], 1)[cut]
        assert torch.equal(made[name], parts * scale[name])
    assert small(torch.randn(6, 3, 4), embedding=codes[0]).shape == (6, 3, 4)


def test_a_slice_of_a_slice():
    large = build(6, 9, 9, 4)
    direct, twice = large.for_mainnet(mlp(6, 5, 5, 2)), large.for_mainnet(mlp(6, 7, 7, 3)).for_mainnet(mlp(6, 5, 5, 2))
    for name, tensor in direct.generate().items():
        torch.testing.assert_close(twice.generate()[name], tensor)
    assert [r.variance for r in twice.plan.rows[:3]] == [r.variance for r in direct.plan.rows[:3]]


def test_of_a_head_only_the_part_that_is_needed_is_used(monkeypatch):
    large = hf.HyperNet(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double(), 5, heads="separate")
    small = large.for_mainnet(nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 4)).double())
    expected = large.generate()
    monkeypatch.setattr(hf.generators.linear_map.Head, "forward", lambda *_: pytest.fail("made a whole tensor"))
    made = small.generate()
    assert_close(made["0.weight"], expected["0.weight"][:3, :5] * small.heads.scale[0])
    made["0.weight"].sum().backward()
    assert large.heads.head("0/weight").weight.grad.view(5, 8, 6)[:, 3:].eq(0).all()


def test_scaling_a_slice_leaves_the_whole():
    large = build(6, 9, 9, 4)
    small, before = large.for_mainnet(mlp(6, 5, 5, 2)), large.generate()
    small.rescale_({"0.weight": 2.0})
    assert all(torch.equal(t, before[name]) for name, t in large.generate().items())
    large.rescale_({"2.weight": 3.0})
    fresh = large.for_mainnet(mlp(6, 5, 5, 2)).generate()["2.weight"]
    torch.testing.assert_close(fresh, small.generate()["2.weight"])


def test_copies_stay_together():
    large = build(6, 9, 9, 4).double()
    nets = nn.ModuleList([large, large.for_mainnet(mlp(6, 5, 5, 2).double())])
    for one, two in (copy.deepcopy(nets), pickle.loads(pickle.dumps(nets))):
        with torch.no_grad():
            for p in one.heads.parameters():
                p.mul_(2.0)
        for name, tensor in nets[1].generate().items():
            assert_close(two.generate()[name], 2 * tensor)


@pytest.mark.parametrize("trained", [0, 1])
def test_modes_of_what_both_have_are_not_changed(trained):
    large = build(6, 9, 4, trunk=(8,)).train(bool(trained))
    large.for_mainnet(mlp(6, 5, 4).train(not trained))
    assert {m.training for m in large.modules()} == {bool(trained)}


EMBEDDINGS = {
    "fixed": (7, {}),
    "trained": (hf.Embedding(7, trainable=True), {}),
    "given": (hf.Embedding(7, given=True, per="net", identity=3), {"embedding": torch.randn(7).double()}),
}
WHICH = {"the first": lambda nets: nets[0], "both": lambda nets: nets, "the second": lambda nets: nets[1]}


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_training_through_both_gives_torchs_results(kind, embedding, which):
    results = []
    config, call = EMBEDDINGS[embedding]
    for module in (hf, torch.optim):
        torch.manual_seed(0)
        large = hf.HyperNet(mlp(6, 9, 9, 4).double(), config, generate="weights+biases")
        nets = nn.ModuleList(
            [large, large.for_mainnet(mlp(6, 5, 5, 2).double()), large.for_mainnet(mlp(6, 9, 4).double())]
        )
        trained = WHICH[which](nets)
        options = {"lr": 1e-3, "momentum": 0.9} if kind == "SGD" else {"lr": 1e-2}
        opt = getattr(module, kind)(trained if module is hf else trained.parameters(), **options)
        for step in range(8):
            x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            opt.zero_grad()
            for net in nets if step % 3 else nets[:1]:
                net(x, **call).square().mean().backward()
            opt.step()
        results.append(nets.state_dict())
    for name, tensor in results[0].items():
        torch.testing.assert_close(tensor, results[1][name], rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


def test_both_train_the_same_heads():
    large = build(6, 9, 9, 4)
    small = large.for_mainnet(mlp(6, 5, 5, 2))
    x = torch.randn(5, 6)
    alone = []
    for net in (large, small):
        large.zero_grad()
        net(x).square().sum().backward()
        alone.append(large.heads.head("9x6").weight.grad.clone())
    large.zero_grad()
    (large(x).square().sum() + small(x).square().sum()).backward()
    torch.testing.assert_close(large.heads.head("9x6").weight.grad, sum(alone))
    assert all(g.any() for g in alone)


def test_what_all_codes_have_in_common_is_the_larger_nets():
    large = build(12, 16, 16, 4, heads="shared", share=0.3)
    common = large.heads.common_parameters()
    assert [id(p) for p in large.for_mainnet(mlp(12, 8, 8, 4)).heads.common_parameters()] == [id(p) for p in common]
    assert common


def test_a_diagnosis_of_the_smaller_net():
    small = build(100, 200, 200, 100, embedding=20).for_mainnet(mlp(100, 80, 60, 40))
    assert not [f for f in hf.diagnose(small, torch.randn(300, 100)).findings if f.severity == "error"]


BAD = {
    "wider": (lambda net: net.for_mainnet(mlp(6, 10, 4)), r"'0.weight' has shape \(10, 6\), of which \(9, 6\) is not"),
    "deeper": (lambda net: net.for_mainnet(mlp(6, 9, 9, 9, 4)), "'6.weight' is no parameter of the mainnet that"),
    "another kind": (
        lambda net: net.for_mainnet(nn.Sequential(nn.Conv1d(6, 9, 1), nn.ReLU(), nn.Linear(9, 4))),
        "'0.weight' is the weight of Conv1d, and in the hypernet's mainnet the weight of Linear",
    ),
    "another precision": (
        lambda net: net.for_mainnet(mlp(6, 5, 4).double()), r"is torch.float64 on cpu, .*\.to\('cpu', torch.float32\)"
    ),
    "reset": (lambda net: net.for_mainnet(mlp(6, 5, 4)).reset_parameters(), "start that one anew"),
    "restart": (lambda net: net.for_mainnet(mlp(6, 5, 4)).restart_("m2"), "start that one anew"),
    "given base": (
        lambda net: build(6, 9, 4, base="mainnet", share=0.1).for_mainnet(mlp(6, 5, 4)), "was given for one mainnet"
    ),
    "a bias from zero": (
        lambda net: build(6, 9, 4, generate="weights+biases", init="hyperfan-out").for_mainnet(mlp(6, 5, 4)),
        "'0.bias' should start with variance 0 in this mainnet, and has 0.333333 in the one",
    ),
    "a bias to zero": (
        lambda net: build(6, 9, 4, generate="2.*", init="hyperfan-out").for_mainnet(mlp(6, 3, 4)),
        "'2.bias' should start with variance 0.25 in this mainnet, and has 0 in the one .* use init='hyperfan-in'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_refusals(call, message):
    net = build(6, 9, 9, 4)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    with pytest.raises(hf.HyperfanError, match=message) as error:
        call(net)
    assert "\n" not in str(error.value)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
