"""Bad input: one clear line that says what mends it, and nothing has changed."""

import pytest
import torch
from small_nets import Custom, WithToken, X, mlp
from torch import nn

import hyperfan as hf


class Unused(Custom):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 4)


class Zero(nn.Module):
    def forward(self, e):
        return 0 * e


class Odd(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.odd = nn.Parameter(tensor, requires_grad=False)


BAD = {
    "unknown method": (lambda: hf.HyperNet(mlp(), 4, init="hyperfan_in"), "did you mean 'hyperfan-in'"),
    "unknown setting": (lambda: hf.init.method("m2", sd=1.0), "'m2' has no setting 'sd'; it has: std"),
    "share out of range": (
        lambda: hf.HyperNet(mlp(), 4, generate="weights+biases", init=hf.init.method("hyperfan-in", bias_share=1.0)),
        r"share of the variance lies in \[0, 1\)",
    ),
    "pattern": (lambda: hf.HyperNet(mlp(), 4, generate="0.wieght"), "matches no parameter.*did you mean '0.weight'"),
    "one pattern of two": (lambda: hf.HyperNet(mlp(), 4, generate=["0.*", "9.*"]), "'9.*' matches no parameter"),
    "predicate": (lambda: hf.HyperNet(mlp(), 4, generate=lambda t: False), "holds for none"),
    "complex": (lambda: hf.HyperNet(Odd(torch.ones(2) * 1j), 4, generate="*"), "'odd' is torch.complex64"),
    "integer": (lambda: hf.HyperNet(Odd(torch.ones(2, dtype=torch.long)), 4, generate="*"), "'odd' is torch.int64"),
    "no rule": (lambda: hf.HyperNet(Odd(torch.ones(2)), 4, generate="*"), r"@hyperfan\.rule\(Odd\)"),
    "no parameters": (lambda: hf.HyperNet(nn.ReLU(), 4), "ReLU has no parameters"),
    "no weights": (lambda: hf.HyperNet(nn.LayerNorm(3), 4), r"nothing to generate.*weight \(scale\)"),
    "lazy": (lambda: hf.HyperNet(nn.Sequential(nn.LazyLinear(3)), 4), "run the mainnet once"),
    "unknown nonlinearity": (lambda: hf.HyperNet(Custom(), 4), "inputs on which 'a' runs.*nonlinearity='relu'"),
    "unknown nonlinearity, paper": (lambda: hf.HyperNet(Custom(), 4, fidelity="paper"), "after 'a' is not known"),
    "unpredictable": (
        lambda: hf.HyperNet(nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1), nn.Linear(3, 3)), 4),
        r"'2' reads the result of 'softmax'.*rule\(MyNorm, norm=True\).*leave '2.weight' out of generate=",
    ),
    "misnamed nonlinearity": (lambda: hf.HyperNet(Custom(), 4, nonlinearity="rellu"), "did you mean 'relu'"),
    "misnamed layer": (lambda: hf.HyperNet(Custom(), 4, nonlinearity={"c": "relu"}), "'c', which is no layer"),
    "example": (lambda: hf.HyperNet(Custom(), 4, example=torch.ones(2, 9)), "does not run on example=: RuntimeError"),
    "not a module": (lambda: hf.HyperNet(nn.Linear, 4), "should be an nn.Module"),
    "no embedding": (lambda: hf.HyperNet(mlp(), None), r"size=None\): the number of coordinates is an integer"),
    "half an embedding": (lambda: hf.HyperNet(mlp(), 2.5), "an integer from 1"),
    "no method": (lambda: hf.HyperNet(mlp(), 4, init=None), "init=None: give a method's name"),
    "trunk of a number": (lambda: hf.HyperNet(mlp(), 4, trunk=64), r"hidden widths as in \(64, 64\)"),
    "no tasks": (lambda: hf.Embedding(4, tasks=0), "number of tasks is an integer from 1"),
    "nan": (lambda: hf.Embedding(4, std=float("nan")), "positive and finite"),
    "rank": (lambda: hf.HyperNet(mlp(), 4, heads=hf.LowRank(3)), "of 2 × 5: give a rank of at most 2, or leave it"),
    "LoRA's rank": (lambda: hf.HyperNet(mlp(), 4, heads=hf.LoRA(3)), r"rank 3 is more than '4\.weight' has"),
    "LoRA's alpha": (lambda: hf.LoRA(2, alpha=-8), "the factor of the update is α/r, positive and finite"),
    "share of LoRA": (lambda: hf.HyperNet(mlp(), 4, heads=hf.LoRA(2), share=0.1), "not go with LoRA.*leave it out"),
    "all of a multiplied base": (lambda: hf.HyperNet(mlp(), 4, share=1.0, base_op="multiply"), "give a share below 1"),
    "role for weights": (lambda: hf.HyperNet(mlp(), 4, generate="weight"), "did you mean 'weights'"),
    "misnamed role": (lambda: hf.Use("wieght", hf.Fans(1, 1)), "'weight'"),
    "weight without fans": (lambda: hf.Use("weight"), r"hyperfan\.Fans\(d_in, d_out\)"),
    "bias without weight": (lambda: hf.Use("bias"), r"Use\('bias', weight='W'\)"),
    "no fans": (lambda: hf.Fans(0, 3), "at least one value"),
    "rule without a class": (lambda: hf.rule(lambda layer: {}), r"as @hyperfan\.rule\(MyLayer\)"),
    "never ran": (lambda: hf.HyperNet(Unused(), 4, example=torch.zeros(1, 4)), "inputs on which 'spare' runs"),
    "nothing to generate": (lambda: hf.HyperNet(mlp(), 4, generate=3), "give 'weights', .*patterns"),
    "trunk in another precision": (lambda: hf.HyperNet(mlp(), 4, trunk=nn.Linear(4, 3).double()), r"trunk\.to\(torch"),
    "gainless trunk": (
        lambda: hf.HyperNet(
            mlp(), 4, trunk=nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4)), init_trunk=True
        ),
        "in the trunk, the layer '2' has no known gain",
    ),
    "examples of stored embeddings": (
        lambda: hf.HyperNet(mlp(), 4, example_embeddings=torch.ones(2, 4)),
        "this net stores them: leave example_embeddings= out",
    ),
    "examples of another size": (
        lambda: hf.HyperNet(mlp(), hf.Embedding(4, given=True, per="net"), example_embeddings=torch.ones(2, 5)),
        r"example_embeddings= has shape \(2, 5\); it should be \(4,\), or \(batch",
    ),
    "examples of zeros": (
        lambda: hf.HyperNet(mlp(), hf.Embedding(4, given=True, per="net"), example_embeddings=torch.zeros(2, 4)),
        "a code of exactly zero",
    ),
    "examples for the table": (
        lambda: hf.HyperNet(
            mlp(), hf.Embedding(4, given=True, per="net"), example_embeddings=torch.ones(2, 4), fidelity="paper"
        ),
        "example_embeddings= are measured with fidelity='exact'",
    ),
    "cauchy": (lambda: hf.Embedding(4, given=True, distribution="cauchy"), "use 'uniform' or 'normal'"),
    "no size": (lambda: hf.HyperNet(mlp(), 0), "an integer from 1"),
    "contradiction": (lambda: hf.Embedding(4, given=True, tasks=2), "nothing to train and no table"),
    "negative noise": (lambda: hf.Embedding(4, noise=-1.0), "must not be negative"),
    "per": (lambda: hf.Embedding(4, per="layer"), "each 'tensor', or one for the 'net'"),
    "identity without a condition": (lambda: hf.Embedding(4, per="net", identity=2), "to a condition, and there"),
    "identity of a tensor's own": (lambda: hf.Embedding(4, given=True, identity=2), "each has an embedding of its own"),
    "no identity": (lambda: hf.Embedding(4, given=True, per="net", identity=0), "its size is an integer from 1"),
    "identity with noise": (
        lambda: hf.Embedding(4, given=True, per="net", identity=hf.Embedding(2, noise=0.1)), "it has only a size, train"
    ),
    "two identities": (
        lambda: hf.HyperNet(mlp(), hf.Embedding(4, given=True, per="net", identity=2), heads=hf.Chunks(embedding=3)),
        "both give each code an identity",
    ),
    "sharing": (lambda: hf.HyperNet(mlp(), 4, heads="share"), "use 'shared', 'separate', 'module', Chunks"),
    "equal tensors": (
        lambda: hf.HyperNet(nn.Sequential(mlp(), mlp()), hf.Embedding(4, per="net"), heads="shared"),
        r"would make all tensors of head 5x6 equal.*beside a condition, Embedding\(…, identity=8\)",
    ),
    "fidelity": (lambda: hf.HyperNet(mlp(), 4, fidelity="letter"), "use 'exact' or 'paper'"),
    "distribution": (lambda: hf.HyperNet(mlp(), 4, distribution="cauchy"), "use 'uniform' or 'normal'"),
    "trunk that does not fit": (lambda: hf.HyperNet(mlp(), 4, trunk=nn.Linear(3, 2)), r"does not run on .*\(2, 4\)"),
    "trunk of zeros": (lambda: hf.HyperNet(mlp(), 4, trunk=Zero()), "the trunk makes a code of exactly zero"),
    "trunk of wrong shape": (lambda: hf.HyperNet(mlp(), 4, trunk=nn.Unflatten(1, (2, 2))), r"makes \(2, 2, 2\)"),
    "m4 without embeddings": (
        lambda: hf.HyperNet(mlp(), hf.Embedding(4, given=True), init="m4", heads="separate"), "they must be stored"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_construction(make, message):
    with pytest.raises(hf.HyperfanError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_failed_construction_costs_no_random_numbers():
    main = Custom()
    state = torch.get_rng_state()
    with pytest.raises(hf.HyperfanError):
        hf.HyperNet(main, 4, trunk=(5, 5))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_rule_that_does_not_fit_its_module():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.ones(2, 2))

    hf.rule(Layer)(lambda layer: {"V": hf.Use("weight", hf.Fans(2, 2))})
    with pytest.raises(hf.HyperfanError, match="the rule for Layer names 'V', which is no parameter of it"):
        hf.HyperNet(Layer(), 4)
    hf.rule(Layer)(lambda layer: None)
    with pytest.raises(hf.HyperfanError, match="it should return parameter name → Use"):
        hf.HyperNet(Layer(), 4)


def test_a_matrix_without_a_rule_is_not_left_out_silently():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.W, self.linear = nn.Parameter(torch.ones(4, 4)), nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x @ self.W.exp())

    with pytest.warns(hf.HyperfanWarning, match=r"W: no rule says.*@hyperfan\.rule\(Layer\)"):
        net = hf.HyperNet(Layer(), 4, example=torch.zeros(1, 4))
    assert [t.name for t in net.generated] == ["linear.weight"]


def test_a_single_layer_needs_no_example():
    assert hf.HyperNet(nn.Linear(7, 5), 8)(torch.zeros(2, 7)).shape == (2, 5)


def test_autocast():
    net = hf.HyperNet(mlp(), 4)
    with torch.autocast("cpu", torch.float16):
        out = net(torch.randn(2, 6))
    assert out.dtype == torch.float16


def test_a_mainnet_is_never_changed():
    main = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten(), nn.Linear(12, 2))
    main[1].eval()
    before = {k: v.clone() for k, v in main.state_dict().items()}
    modes = [m.training for m in main.modules()]
    net = hf.HyperNet(main, 4, example=torch.randn(2, 2, 4, 4), generate="*")
    net.train()(torch.randn(2, 2, 4, 4)).sum().backward()
    net.reset_parameters()
    assert [m.training for m in main.modules()] == modes
    assert all(torch.equal(main.state_dict()[k], v) for k, v in before.items())
    assert all(p.grad is None for p in main.parameters())


def given(**options):
    return hf.HyperNet(mlp(), hf.Embedding(4, given=True, **options), heads="separate")


def tasks():
    return hf.HyperNet(mlp(), hf.Embedding(4, tasks=3))


NAN = torch.tensor([0.0, float("nan"), 1.0, 2.0])
BAD_CALLS = {
    "size": (lambda: given(per="net")(X, embedding=torch.zeros(5)), r"shape \(5,\); it should be \(4,\)"),
    "rank": (lambda: given(per="net")(X, embedding=torch.zeros(1, 2, 4)), "shape"),
    "one for each tensor": (lambda: given()(X, embedding=torch.zeros(4)), "one for each of the 3 .*per='net'"),
    "nan": (lambda: given(per="net")(X, embedding=NAN), "1 values that are NaN or infinite"),
    "infinite": (lambda: given(per="net")(X, embedding=NAN.nan_to_num() / 0), "NaN or infinite"),
    "missing": (lambda: given()(X), "pass embedding="),
    "not wanted": (lambda: hf.HyperNet(mlp(), 4)(X, embedding=torch.zeros(4)), "stores embeddings"),
    "batch": (lambda: given(per="net")(X, embedding=torch.zeros(3, 4)), r"3 codes were given.*shape \(2, 6\)"),
    "embedding as a list": (lambda: given(per="net")(X, embedding=[0.0] * 4), "embedding= is list"),
    "embedding of integers": (lambda: given(per="net")(X, embedding=torch.zeros(4).long()), "is torch.int64"),
    "another precision": (lambda: given(per="net")(X, embedding=torch.zeros(4).double()), "the net is torch.float32"),
    "tasks out of range": (lambda: tasks()(X, task=torch.tensor([-1, 0])), "task= holds -1 to 0"),
    "task as a list": (lambda: tasks()(X, task=[0, 1]), "a tensor of integers with one for each sample"),
    "task as a float": (lambda: tasks()(X, task=1.0), "task=1.0: give an integer"),
    "task as a bool": (lambda: tasks()(X, task=True), "task=True: give an integer"),
    "many frozen": (lambda: tasks().freeze(task=torch.tensor([0, 1])), "makes one net"),
    "no task": (lambda: tasks()(X), "task=0 … task=2"),
    "task too large": (lambda: tasks()(X, task=3), "tasks 0 to 2"),
    "negative task": (lambda: tasks()(X, task=-1), "tasks 0 to 2"),
    "task not wanted": (lambda: hf.HyperNet(mlp(), 4)(X, task=0), "has no tasks"),
    "task for given": (lambda: given(per="net")(X, task=0, embedding=torch.zeros(4)), "pass embedding="),
    "batch norm per sample": (
        lambda: hf.HyperNet(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), hf.Embedding(4, tasks=2))(
            X, task=torch.tensor([0, 1])
        ),
        "'1' is a batch norm in training mode",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_calls(call, message):
    with pytest.raises(hf.HyperfanError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_failed_reset_writes_nothing():
    net = hf.HyperNet(mlp(), 4)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.init = hf.init.method("hyperfan-in", bias_share=2.0)
    with pytest.raises(hf.HyperfanError, match="share"):
        net.reset_parameters()
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_a_parameter_without_rule_is_kept_but_cannot_be_conjured_up():
    net = hf.HyperNet(WithToken(), 4, example=torch.zeros(1, 3))
    token = net.state_dict()["mainnet.token"].clone()
    net.reset_parameters()
    assert torch.equal(net.state_dict()["mainnet.token"], token)
    with torch.device("meta"):
        empty = WithToken()
    net = hf.HyperNet(empty, 4, example=torch.zeros(1, 3)).to_empty(device="cpu")
    with pytest.raises(hf.HyperfanError, match="token came without values and has no rule"):
        net.reset_parameters()


@pytest.mark.parametrize(
    "embedding", [hf.Embedding(5, normalise=True), hf.Embedding(5, given=True)], ids=["normalised", "given"]
)
def test_a_restart_by_a_method_that_sets_embeddings_is_refused_like_a_start(embedding):
    net = hf.HyperNet(nn.Sequential(nn.Linear(4, 3)), embedding)
    before = net.plan, {name: t.clone() for name, t in net.state_dict().items()}
    with pytest.raises(hf.HyperfanError, match="sets each tensor's embedding to a constant"):
        net.restart_("m4")
    assert net.init.name == "hyperfan-in"
    assert net.plan == before[0]
    assert all(torch.equal(t, before[1][name]) for name, t in net.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_groups_without_codes_are_refused_in_every_mode(training):
    net = hf.HyperNet(mlp(), 4).train(training)
    hf.SGD(net, lr=0.1)
    for _ in range(4):  # until the optimiser holds what the net makes
        net(X).sum().backward()
    with torch.set_grad_enabled(training), pytest.raises(hf.HyperfanError, match="grouped=True needs many codes"):
        net(X, grouped=True)
