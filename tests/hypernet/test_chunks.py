"""Tensors made in chunks: by channels as in Ha et al., and flat; against loops over chunks."""

import itertools
import math
from typing import ClassVar

import pytest
import torch
from generator_suite import Case, GeneratorSuite
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_mean
from hyperfan.errors import HyperfanError, InitError
from hyperfan.init import available
from hyperfan.models import all_cnn


def code(net: hf.HyperNet, m: int, task=None, embedding=None) -> Tensor:
    """Of the m-th chunk, by the definition."""
    e = net.embeddings.weight if embedding is None else embedding
    if task is not None:
        e = e[task]
    if net.embeddings.config.per == "tensor":
        e = e[..., m, :]
    elif embedding is None:
        e = e[..., 0, :]
    if net.embeddings.identities:
        behind = net.embeddings.identity[m]
        e = torch.cat([e, behind.expand(*e.shape[:-1], -1)], -1)
    if net.heads.inputs is not None:
        return torch.einsum("...l,lk->...k", e, net.heads.inputs.weight[m]) + net.heads.inputs.bias[m]
    h = e if net.trunk is None else net.trunk(e.reshape(-1, e.shape[-1])).reshape(*e.shape[:-1], -1)
    return h if net.heads.config.flat else h * net.heads.scale[m]


def piece(net: hf.HyperNet, head: str, m: int, **call) -> Tensor:
    made = net.heads.head(head)
    return torch.einsum("...k,kp->...p", code(net, m, **call), made.weight) + made.bias


def channels(net: hf.HyperNet, **call) -> dict[str, Tensor]:
    """Chunk by chunk into its place."""
    size, m, made = net.heads.size, 0, {}
    for t in net.generated:
        if t.role != "weight":
            flat = piece(net, net.heads.names[net.generated.index(t)], m, **call)
            made[t.name], m = flat.reshape(*flat.shape[:-1], *t.shape), m + 1
            continue
        (out, into), kernel = t.shape[:2], t.shape[2:]
        head = "x".join(map(str, (size, *kernel))) + ("" if out % size == 0 or net.heads.config.one_head else "-inputs")
        places = {}
        if out % size == 0:
            for a in range(out // size):
                for j in range(into):
                    chunk, m = piece(net, head, m, **call), m + 1
                    chunk = chunk.reshape(*chunk.shape[:-1], size, *kernel)
                    for i in range(size):
                        places[a * size + i, j] = chunk.select(chunk.ndim - len(kernel) - 1, i)
        else:
            for i in range(out):
                for b in range(into // size):
                    chunk, m = piece(net, head, m, **call), m + 1
                    chunk = chunk.reshape(*chunk.shape[:-1], size, *kernel)
                    for j in range(size):
                        places[i, b * size + j] = chunk.select(chunk.ndim - len(kernel) - 1, j)
        at = places[0, 0].ndim - len(kernel)
        rows = [torch.stack([places[i, j] for j in range(into)], at) for i in range(out)]
        made[t.name] = torch.stack(rows, at)
    assert m == net.heads.n
    return made


def flat(net: hf.HyperNet, **call) -> dict[str, Tensor]:
    """One long vector, value by value from its chunk."""
    cut = [t for t in net.generated if t.start is None]
    total = sum(t.numel for t in cut)
    pieces = -(-total // net.heads.size)
    vector = torch.cat([piece(net, "flat", m, **call) for m in range(pieces)], -1)
    made, at, own = {}, 0, pieces
    for i, t in enumerate(net.generated):
        if t.start is None:
            values, at = vector[..., at : at + t.numel], at + t.numel
        else:
            values, own = piece(net, net.heads.names[i], own, **call), own + 1
        made[t.name] = values.reshape(*values.shape[:-1], *t.shape) * net.heads.scale[i]
        if t.start is None:
            made[t.name] = made[t.name] * net.heads.signs[at - t.numel : at].view(t.shape)
    return made


def case(oracle, embedding, chunks, call=dict, **options) -> Case:
    return Case(lambda mainnet: hf.HyperNet(mainnet, embedding, heads=chunks, **options), oracle, call)


def given(*shape):
    return lambda: {"embedding": torch.randn(*shape, generator=torch.Generator().manual_seed(2))}


TASKS = hf.Embedding(3, per="net", tasks=4, trainable=True)
SOME = ["0.weight", "6.weight", "8.weight"]
"""Of the suite's mainnet, weights with channels (3, 2), (5, 5) and (5, 5); of all, none have a common factor."""
LINEAR = ["4.weight", "6.weight", "8.*"]


class TestChannels(GeneratorSuite):
    GRAPHS = ("ha", "per sample")
    BACKWARD_GRAPHS = ("ha",)
    CASES: ClassVar = {
        "ha": case(channels, 6, hf.Chunks(), generate=LINEAR),
        "ha, paper, given size": case(channels, 6, hf.Chunks(size=5), generate=LINEAR, fidelity="paper"),
        "ha, other width": case(channels, 6, hf.Chunks(inputs=3), generate=LINEAR, init="hyperfan-out"),
        "shared trunk": case(channels, 6, hf.Chunks(inputs=0), generate=LINEAR, trunk=(7,)),
        "no trunk": case(channels, 6, hf.Chunks(inputs=0), generate=LINEAR),
        "convolution, cut by inputs": case(channels, 6, hf.Chunks(size=2), generate="0.weight"),
        "trainable, tasks": case(
            channels, hf.Embedding(6, tasks=3, trainable=True), hf.Chunks(), lambda: {"task": 1}, generate=LINEAR
        ),
        "classical": case(channels, 6, hf.Chunks(), generate=LINEAR, init="kaiming-fan-out"),
        "m4": case(channels, 6, hf.Chunks(), generate=["4.weight", "6.weight"], init="m4"),
        "per sample": case(
            channels,
            hf.Embedding(6, tasks=4),
            hf.Chunks(),
            lambda: {"task": torch.tensor([2, 0, 1, 1])},
            generate=LINEAR,
        ),
    }


class TestFlat(GeneratorSuite):
    GRAPHS = ("with norms",)
    BACKWARD_GRAPHS = GRAPHS
    CASES: ClassVar = {
        "flat": case(flat, 6, hf.Chunks(size=20, flat=True)),
        "one chunk": case(flat, 6, hf.Chunks(size=182, flat=True), generate="weights+biases"),
        "biases": case(flat, 6, hf.Chunks(size=7, flat=True), generate="weights+biases", fidelity="paper"),
        "with norms": case(flat, 6, hf.Chunks(size=33, flat=True), generate="*"),
        "own inputs": case(flat, 6, hf.Chunks(size=33, flat=True, inputs=4)),
        "tasks": case(
            flat,
            TASKS,
            hf.Chunks(size=20, flat=True, embedding=5),
            lambda: {"task": 3},
            trunk=(7,),
            init="hyperfan-out",
        ),
        "tasks, fixed chunk embeddings": case(
            flat, TASKS, hf.Chunks(size=20, flat=True, embedding=5, trainable=False), lambda: {"task": 3}, trunk=(7,)
        ),
        "given": case(
            flat, hf.Embedding(3, per="net", given=True), hf.Chunks(size=20, flat=True, embedding=5), given(3)
        ),
        "per sample": case(
            flat, hf.Embedding(3, per="net", given=True), hf.Chunks(size=20, flat=True, embedding=5), given(4, 3)
        ),
    }


def all_cnn_net(**options):
    """As Ha et al. have it."""
    torch.manual_seed(0)
    return hf.HyperNet(all_cnn(), 50, heads=hf.Chunks(one_head=True), **options)


def test_all_cnn_has_the_papers_chunks():
    net = all_cnn_net(fidelity="paper")
    assert [s.stop - s.start for s in net.heads.spans] == [3, 96, 96, 192, 384, 384, 384, 384, 20]
    assert net.heads.n == 1943
    assert {name: tuple(net.heads.head(name).weight.shape) for name in net.heads.layouts} == {
        "96x3x3": (50, 864),
        "96x1x1": (50, 96),
    }
    assert net.heads.inputs.weight.shape == (1943, 50, 50)


def test_weights_cut_along_their_inputs_have_a_head_of_their_own():
    """From one head for both, a layer's outputs lie where the next one looks, and grow by √(size / d_k)."""
    mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    x, size = torch.randn(200, 784), 500
    for d_k in (8, 50):
        stds = {True: [], False: []}
        for one_head, found in stds.items():
            for seed in range(3):
                torch.manual_seed(seed)
                net = hf.HyperNet(mainnet, d_k, heads=hf.Chunks(one_head=one_head))
                assert [s.stop - s.start for s in net.heads.spans] == [784, 10]
                assert list(net.heads.layouts) == (["500"] if one_head else ["500", "500-inputs"])
                found.append(net(x).std().item())
        assert sum(stds[False]) / 3 == pytest.approx(1, abs=0.3)
        assert sum(stds[True]) / 3 == pytest.approx(math.sqrt(size / d_k), rel=0.3)


def layer_squares(signs: bool) -> list[float]:
    """Mean square of each layer's outputs, its geometric mean over seeds, for the flat chunks of several tasks."""
    sizes, x = [200, 100, 100, 10], torch.randn(100, 200, generator=torch.Generator().manual_seed(0))
    logs = torch.zeros(3)
    for seed in range(8):
        torch.manual_seed(seed)
        layers = [nn.Linear(*pair) for pair in itertools.pairwise(sizes)]
        mainnet = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
        chunks = hf.Chunks(size=800, flat=True, embedding=16, signs=signs)
        tasks = hf.Embedding(8, per="net", tasks=2)
        net = hf.HyperNet(mainnet, tasks, heads=chunks, trunk=(64,), generate="weights+biases")
        for task in range(2):
            h, plain = x, net.freeze(task=task)
            for i in range(3):
                h = plain[2 * i](h).detach()
                logs[i] += h.square().mean().log() / 16
                h = torch.tanh(h)
    return logs.exp().tolist()


def test_signs_keep_layers_of_one_head_from_growing():
    """Behind a ReLU trunk codes are alike, and so are chunks. Every variance is right either way."""
    assert max(layer_squares(signs=False)) > 1.6
    assert layer_squares(signs=True) == pytest.approx([1, 1, 1], rel=0.25)
    assert hf.HyperNet(nn.Linear(4, 4), 3, heads=hf.Chunks(size=1, flat=True)).heads.signs is not None
    assert hf.HyperNet(nn.Linear(4, 4), 3, heads=hf.Chunks()).heads.signs is None


def test_signs_let_weights_of_both_directions_share_a_head():
    mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    stds = []
    for seed in range(3):
        torch.manual_seed(seed)
        net = hf.HyperNet(mainnet, 8, heads=hf.Chunks(one_head=True, signs=True))
        assert list(net.heads.layouts) == ["500"]
        stds.append(net(torch.randn(200, 784)).std().item())
    assert sum(stds) / 3 == pytest.approx(1, abs=0.3)  # without signs √(500/8), which is 8


def test_signs_are_drawn_for_what_comes_in_chunks_alone_and_are_saved():
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(30, 20), nn.LayerNorm(20), nn.Linear(20, 10))
    net = hf.HyperNet(mainnet, 6, heads=hf.Chunks(size=50, flat=True), generate="*")
    assert (net.generate()["1.weight"] == 1).all()  # a norm's scale keeps its sign
    signs = net.state_dict()["heads.signs"].clone()
    assert len(signs) == sum(t.numel for t in net.generated if t.start is None)
    assert set(signs.tolist()) == {-1, 1}
    assert abs(signs.double().mean().item()) < 4 / math.sqrt(len(signs))
    net.reset_parameters(torch.Generator().manual_seed(1))
    assert not torch.equal(net.state_dict()["heads.signs"], signs)


@pytest.mark.parametrize(("init", "fan"), [("hyperfan-in", 0), ("hyperfan-out", 1)])
def test_the_scale_goes_into_the_input_layers_as_in_the_paper(init, fan):
    """Var(H) = 1/d_k, Var(G) = 2/(d·receptive·d_l·Var(e)), d the layer's input or output channels."""
    net = all_cnn_net(init=init, fidelity="paper")
    for head in map(net.heads.head, net.heads.layouts):
        assert head.weight.var().item() == pytest.approx(1 / 50, rel=0.1)
        assert head.weight.abs().max().item() <= math.sqrt(3 / 50)
    layers = [(3, 96, 9), (96, 96, 9), (96, 96, 9), (96, 192, 9), *[(192, 192, 9)] * 3, (192, 192, 1), (192, 10, 1)]
    for span, (*channels_, receptive) in zip(net.heads.spans, layers, strict=True):
        expected = 2 / (channels_[fan] * receptive * 50)
        values = net.heads.inputs.weight[span]
        # The relative error of a uniform sample's variance is √(0.8/n).
        assert values.var().item() == pytest.approx(expected, rel=4 * math.sqrt(0.8 / values.numel()))
        assert values.abs().max().item() <= math.sqrt(3 * expected) * (1 + 1e-6)


@pytest.mark.parametrize("init", ["hyperfan-in", "hyperfan-out", "chang2020-gist"])
def test_every_layer_meets_its_target(init):
    """Within three standard errors at fidelity paper, a chunk's coefficient of variation being 0.24; else exactly."""
    for fidelity in ("paper", "exact"):
        net = all_cnn_net(init=init, fidelity=fidelity)
        made = net.generate()
        for row, span in zip(net.plan.rows, net.heads.spans, strict=False):
            ratio = made[row.tensor].square().mean().item() / row.target
            error = 0.24 / math.sqrt(span.stop - span.start)
            common = math.sqrt(0.8 / 96)  # of the head itself, which all chunks share
            assert ratio == pytest.approx(1, abs=3 * math.hypot(error, common) if fidelity == "paper" else 0.02)


def test_the_gist_has_twice_the_variance():
    ours, theirs = all_cnn_net(fidelity="paper"), all_cnn_net(init="chang2020-gist", fidelity="paper")
    for a, b in zip(ours.plan.rows[:9], theirs.plan.rows[:9], strict=True):
        assert b.target == pytest.approx(2 * a.target)
        assert (a.variance, b.variance) == (1 / 50, 2 / 50)


@pytest.mark.parametrize(("init", "variance"), [("kaiming-fan-in", 2 / 50), ("kaiming-fan-out", None)])
def test_classical_init_takes_the_fans_of_the_head_itself(init, variance):
    """It sees a linear layer from 50 codes to a chunk, whatever tensor the chunk goes to."""
    net = all_cnn_net(init=init, fidelity="paper")
    for name, head in ((name, net.heads.head(name)) for name in net.heads.layouts):
        expected = variance or 2 / head.weight.shape[1]
        assert next(r for r in net.plan.rows if r.head == name).variance == pytest.approx(expected)
        assert head.weight.var().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("name", [m.name for m in available()])
@pytest.mark.parametrize("chunks", [hf.Chunks(), hf.Chunks(size=50, flat=True, inputs=9)], ids=["ha", "flat"])
def test_every_method_starts_both(name, chunks):
    torch.manual_seed(0)
    mainnet = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 1), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)
    )
    net = hf.HyperNet(mainnet, 10, heads=chunks, init=name)
    made = net.generate()
    assert all(made[t.name].square().mean() > 0 for t in net.generated)
    for row in net.plan.rows:
        if row.made_by == "head" and row.target is not None:
            assert made[row.tensor].square().mean().item() == pytest.approx(row.target, rel=1e-4)
    net(torch.randn(2, 4, 3, 3)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_a_chunk_across_tensors_gives_each_its_own_variance():
    mainnet = nn.Sequential(nn.Linear(1000, 10), nn.Tanh(), nn.Linear(10, 10))
    net = hf.HyperNet(mainnet, 16, heads=hf.Chunks(size=10_100, flat=True), fidelity="paper", distribution="normal")
    assert net.heads.n == 1
    ratios = []
    for seed in range(20):  # the 100 values of the second weight scatter by √(2/100), and so 20 ratios by 3 %
        net.reset_parameters(torch.Generator().manual_seed(seed))
        made = net.generate()
        ratios.append(made["2.weight"].square().mean() / made["0.weight"].square().mean())
    assert_mean(torch.stack(ratios), 100)


MIXED = nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 10))


@pytest.mark.parametrize("fidelity", ["paper", "exact"])
def test_normalised_codes_do_not_lose_the_scale(fidelity):
    net = hf.HyperNet(MIXED, hf.Embedding(30, normalise=True), heads=hf.Chunks(), fidelity=fidelity)
    made = net.generate()
    for row in net.plan.rows:
        if row.made_by == "head":
            ratio = made[row.tensor].square().mean().item() / row.target
            assert ratio == pytest.approx(1, rel=1e-4 if fidelity == "exact" else 0.5)


@pytest.mark.parametrize(
    "chunks", [hf.Chunks(), hf.Chunks(inputs=0), hf.Chunks(size=70, flat=True)], ids=["ha", "no inputs", "flat"]
)
def test_noise_is_part_of_the_scale(chunks):
    """The target is the variance with noise, on average over its draws."""
    torch.manual_seed(0)
    net = hf.HyperNet(MIXED, hf.Embedding(30, noise=1.5), heads=chunks)
    draws = [net.generate(noise=True) for _ in range(200)]
    for row in net.plan.rows:
        if row.made_by == "head":
            mean = sum(made[row.tensor].square().mean().item() for made in draws) / len(draws)
            # Few chunks from one draw of the head; without care it would be 1.75 times the target.
            assert mean / row.target == pytest.approx(1, abs=0.35)


def test_tensors_of_different_dtypes_have_different_heads():
    mainnet = nn.Sequential(nn.Linear(4, 4).double(), nn.Linear(4, 4))
    net = hf.HyperNet(mainnet, 6, heads=hf.Chunks(), nonlinearity="linear")
    assert {name: tensor.dtype for name, tensor in net.generate().items()} == {
        "0.weight": torch.float64,
        "1.weight": torch.float32,
    }
    assert set(net.heads.layouts) == {"4-float64", "4-float32"}
    with pytest.raises(HyperfanError, match="different dtypes cannot be one flat vector"):
        hf.HyperNet(mainnet, 6, heads=hf.Chunks(size=5, flat=True), nonlinearity="linear")


def test_many_tasks_are_met_on_average():
    net = hf.HyperNet(MIXED, hf.Embedding(8, tasks=5, per="net"), heads=hf.Chunks(size=70, flat=True, embedding=6))
    made = net.generate(task=torch.arange(5))
    for row in net.plan.rows:
        if row.made_by == "head":
            assert made[row.tensor].square().mean().item() == pytest.approx(row.target, rel=1e-4)


def test_m4_on_flat_chunks_puts_its_constant_on_the_tensors():
    mainnet = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 100))
    net = hf.HyperNet(mainnet, 10, heads=hf.Chunks(size=7000, flat=True, inputs=20), init="m4")
    assert (net.embeddings.weight == 1).all()
    for name, fan_in in (("0.weight", 400), ("2.weight", 300)):  # gains are 1 and 2, and the head takes their mean
        assert net.generate()[name].square().mean().item() == pytest.approx(1.5 / fan_in, rel=0.35)
    with pytest.warns(hf.HyperfanWarning, match="so they stay equal"):
        hf.HyperNet(mainnet, 10, heads=hf.Chunks(size=7000, flat=True), init="m4")


def test_sizes_that_do_not_fit_are_named():
    mainnet = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 9))
    with pytest.raises(HyperfanError, match=r"'0\.weight' has 8 × 12 channels, neither a multiple of") as e:
        hf.HyperNet(mainnet, 4, heads=hf.Chunks(size=9))
    assert str(e.value).endswith("sizes that fit every tensor: 8, 4, 3, 2")
    assert hf.HyperNet(mainnet, 4, heads=hf.Chunks()).heads.size == 8
    with pytest.raises(HyperfanError, match="no common factor to cut them by"):
        hf.HyperNet(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5), nn.Linear(5, 7)), 4, heads=hf.Chunks())


@pytest.mark.parametrize(
    ("embedding", "options", "message"),
    [
        (hf.Embedding(4, per="net"), {"heads": hf.Chunks()}, "would make all chunks equal"),
        (4, {"heads": hf.Chunks(embedding=3)}, "is for a net with one embedding"),
        (4, {"heads": hf.Chunks(), "trunk": (5,)}, "use Chunks\\(inputs=0\\) to share a trunk"),
        (4, {"heads": hf.Chunks(), "generate": "*.bias"}, "no generated tensor has channels"),
        (4, {"heads": "chunks"}, "use 'shared', 'separate', 'module', Chunks"),
    ],
)
def test_what_does_not_go_together_is_said(embedding, options, message):
    with pytest.raises(HyperfanError, match=message):
        hf.HyperNet(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), embedding, **options)


def test_a_flat_chunk_larger_than_everything_is_refused():
    mainnet = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with pytest.raises(HyperfanError, match=r"Chunks\(size=33\): there are only 32 values to cut"):
        hf.HyperNet(mainnet, 4, heads=hf.Chunks(size=33, flat=True))
    assert hf.HyperNet(mainnet, 4, heads=hf.Chunks(size=32, flat=True)).heads.n == 1


@pytest.mark.parametrize("bad", [{"size": 0}, {"size": 2.5}, {"inputs": -1}, {"embedding": True}, {"flat": True}])
def test_bad_chunks_are_refused(bad):
    with pytest.raises(HyperfanError, match="Chunks\\("):
        hf.Chunks(**bad)


def test_a_target_of_zero_cannot_be_part_of_a_flat_chunk():
    mainnet = nn.Sequential(nn.Linear(9, 3), nn.ReLU(), nn.Linear(3, 3))
    with pytest.raises(InitError, match=r"nothing of '0\.bias' would be generated at the start, which chunks and pro"):
        hf.HyperNet(mainnet, 4, heads=hf.Chunks(size=5, flat=True), generate="weights+biases", init="hyperfan-out")


def test_a_start_that_is_refused_writes_nothing():
    """Not even where ‖h‖² of the codes, behind a trunk of one's own, is known only once these are drawn."""
    mainnet = nn.Sequential(nn.Linear(9, 3), nn.ReLU(), nn.Linear(3, 3))
    heads = hf.Chunks(size=5, flat=True)
    net = hf.HyperNet(mainnet, 4, heads=heads, generate="weights+biases", trunk=nn.Linear(4, 4), init_trunk=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(InitError, match="would be generated at the start"):
        net.restart_("hyperfan-out")
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_chunks_are_saved_and_loaded(tmp_path):
    mainnet = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    for i, (embedding, chunks) in enumerate(((5, hf.Chunks()), (TASKS, hf.Chunks(size=7, flat=True, embedding=2)))):
        net = hf.HyperNet(mainnet, embedding, heads=chunks)
        net.save_pretrained(tmp_path / str(i))
        twin = hf.HyperNet.from_pretrained(tmp_path / str(i), mainnet)
        call = {"task": 2} if embedding is TASKS else {}
        x = torch.randn(3, 6)
        assert torch.equal(net(x, **call), twin(x, **call))
        assert twin.heads.config == chunks
        assert str(twin.plan) == str(net.plan)


def test_a_million_chunks_are_planned_and_a_hundred_thousand_made_without_a_loop():
    with torch.device("meta"):
        wide = nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(2)))
    net = hf.HyperNet(wide, 8, heads=hf.Chunks(size=2), nonlinearity="linear")
    assert net.heads.n == 1_000_000
    assert len(net.plan.rows) == 4
    real = nn.Sequential(nn.Linear(400, 500, bias=False), nn.ReLU(), nn.Linear(500, 400, bias=False))
    made = hf.HyperNet(real, 8, heads=hf.Chunks(size=4))
    assert made.heads.n == 100_000
    calls = []
    for head in map(made.heads.head, made.heads.layouts):
        head.register_forward_hook(lambda *_: calls.append(1))
    made(torch.randn(2, 400)).sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("embedding", "chunks", "options"),
    [
        (6, hf.Chunks(), {}),
        (hf.Embedding(6, trainable=True), hf.Chunks(inputs=0), {"trunk": (5,)}),
        (6, hf.Chunks(size=11, flat=True), {"generate": "weights+biases"}),
        (hf.Embedding(3, per="net", trainable=True), hf.Chunks(size=11, flat=True, embedding=4), {"trunk": (5,)}),
    ],
    ids=["ha", "shared trunk", "flat", "flat with trunk"],
)
def test_our_sgd_trains_them_as_torch_does(embedding, chunks, options):
    trained = []
    for make in (lambda net: hf.SGD(net, lr=0.05, momentum=0.9), None):
        torch.manual_seed(0)
        mainnet = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        net = hf.HyperNet(mainnet, embedding, heads=chunks, **options)
        optimiser = make(net) if make else torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for _ in range(6):
            x = torch.randn(5, 6, dtype=torch.float64)
            optimiser.zero_grad()
            net(x).square().mean().backward()
            optimiser.step()
        trained.append(net.state_dict())
    for name, tensor in trained[0].items():
        torch.testing.assert_close(tensor, trained[1][name], rtol=1e-10, atol=1e-13, msg=name)
