"""The mainnet without its values, called with tensors from elsewhere."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from hyperfan.errors import CallError
from hyperfan.mainnet import Skeleton


def tensors_of(module):
    """Parameters and buffers, tied ones once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class Tied(nn.Module):
    """A tied weight, a tied module, a tied buffer, a buffer that is not saved, and a constant."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.block = nn.Linear(6, 6)
        self.again = self.block
        self.decoder = nn.Linear(6, 10, bias=False)
        self.decoder.weight = self.embedding.weight
        self.register_buffer("table", torch.randn(6), persistent=False)
        self.register_buffer("same", self.table)
        self.constant = torch.tensor(2.0)

    def forward(self, i, scale=1.0):
        h = torch.tanh(self.block(self.embedding(i) + self.table)) * self.constant
        return {"logits": self.decoder(self.again(h) * scale + self.same)}


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (torch.randn(5, 4),)),
    "conv and norm in eval": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU()).eval(),
        (torch.randn(2, 3, 8, 8),),
    ),
    "tied": (Tied, (torch.arange(5), 0.5)),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True), (torch.randn(3, 2, 4),)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16).eval(), (torch.randn(3, 2, 8),)),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3))), (torch.randn(5, 4),)),
    "double": (lambda: nn.Linear(4, 3).double(), (torch.randn(5, 4, dtype=torch.float64),)),
}


def leaves(outputs):
    return torch.utils._pytree.tree_leaves(outputs)


@pytest.mark.parametrize(("make", "args"), MODULES.values(), ids=MODULES)
def test_it_runs_as_the_module_does_bit_for_bit(make, args):
    module = make()
    before = copy.deepcopy(module.state_dict())
    skeleton = Skeleton(module)
    assert all(t.is_meta for t in skeleton.tensors.values())  # no memory
    assert all(t.is_meta for t in tensors_of(skeleton.module).values())
    assert not isinstance(skeleton, nn.Module)
    other = make()
    expected = leaves(other(*args))
    assert all(torch.equal(a, b) for a, b in zip(leaves(skeleton(tensors_of(other), *args)), expected, strict=True))
    assert all(torch.equal(now, before[name]) for name, now in module.state_dict().items())
    assert not any(t.is_meta for t in tensors_of(module).values())


@pytest.mark.parametrize(("make", "args"), MODULES.values(), ids=MODULES)
def test_a_copy_runs_and_materialises_too(make, args):
    module = make()
    copied = copy.deepcopy(Skeleton(module))
    if not any(parametrize.is_parametrized(m) for m in module.modules()):  # torch refuses to pickle those
        copied = pickle.loads(pickle.dumps(copied))
    expected = leaves(module(*args))
    for outputs in (copied(tensors_of(module), *args), copied.materialise(tensors_of(module))(*args)):
        assert all(torch.equal(a, b) for a, b in zip(leaves(outputs), expected, strict=True))


def test_keyword_arguments_and_gradients_pass_through():
    module = Tied()
    tensors = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in tensors_of(module).items()}
    Skeleton(module)(tensors, torch.arange(5), scale=0.5)["logits"].sum().backward()
    module(torch.arange(5), scale=0.5)["logits"].sum().backward()
    assert all(torch.equal(tensors[name].grad, p.grad) for name, p in module.named_parameters())
    assert tensors["table"].grad is not None


def test_statistics_of_a_batch_norm_are_updated_in_the_tensors_given():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    given = {name: t.detach().clone() for name, t in tensors_of(module).items()}
    same = dict(given)
    skeleton, x = Skeleton(module), torch.randn(8, 4)
    for _ in range(2):
        assert torch.equal(skeleton(given, x), module(x))
    assert all(given[name] is same[name] for name in given)
    assert all(torch.equal(given[name], t) for name, t in module.named_buffers())
    assert given["1.num_batches_tracked"].item() == 2
    assert all(t.is_meta for t in skeleton.module.buffers())


def test_nothing_stays_in_the_skeleton_after_a_call_that_fails():
    skeleton = Skeleton(nn.Linear(4, 4))
    with pytest.raises(RuntimeError):
        skeleton(tensors_of(nn.Linear(4, 4)), torch.randn(5, 3))
    assert all(p.is_meta for p in skeleton.module.parameters())


# ---------------------------------------------------------------- what is given must fit


def normed():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


# name → what is given under it instead of the tensor that belongs there
WRONG = {
    "missing": ({"0.weight": None}, r"'0\.weight' is missing: the mainnet needs a tensor of shape \(3, 4\)"),
    "missing buffer": ({"1.running_mean": None}, r"'1\.running_mean' is missing: .* shape \(3,\)"),
    "unexpected": ({"0.wieght": lambda _: torch.ones(3)}, r"'0\.wieght' was given, .*did you mean '0\.weight'"),
    "of no such name": ({"zzz": lambda _: torch.ones(3)}, r"'zzz' was given, .*known: 0\.weight, 0\.bias"),
    "transposed": ({"0.weight": lambda t: t.T}, r"shape \(4, 3\), the mainnet needs \(3, 4\): it looks transposed"),
    "flat": (
        {"0.weight": lambda t: t.flatten()},
        r"shape \(12,\), the mainnet needs \(3, 4\): the number of values fits",
    ),
    "of another size": ({"0.bias": lambda t: t[:2]}, r"'0\.bias' has shape \(2,\), the mainnet needs \(3,\)$"),
    "of another type": (
        {"0.bias": lambda t: t.double()},
        r"'0\.bias' is torch\.float64 while '0\.weight' is torch\.float32.*\.to\(torch\.float32\)",
    ),
    "elsewhere": ({"1.weight": lambda t: t.to("meta")}, r"'1\.weight' is on meta while '0\.weight' is on cpu"),
    "a buffer elsewhere": ({"1.running_var": lambda t: t.to("meta")}, r"'1\.running_var' is on meta"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_each_mistake_has_its_own_message(changes, message):
    skeleton, tensors = Skeleton(normed()), tensors_of(normed())
    for name, change in changes.items():
        old = tensors.pop(name, None)
        if change is not None:
            tensors[name] = change(old)
    with pytest.raises(CallError, match=message):
        skeleton(tensors, torch.randn(5, 4))
    with pytest.raises(CallError, match=message):
        skeleton.materialise(tensors)


def test_a_tied_tensor_is_given_by_its_first_name_only():
    skeleton, tensors = Skeleton(Tied()), tensors_of(Tied())
    assert skeleton.aliases == {
        "decoder.weight": "embedding.weight",
        "again.weight": "block.weight",
        "again.bias": "block.bias",
        "same": "table",
    }
    with pytest.raises(CallError, match=r"'again\.weight' was given"):
        skeleton({**tensors, "again.weight": tensors["block.weight"]}, torch.arange(5))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_the_hint_on_shapes_mends_them(shape):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones(shape))

        def forward(self):
            return self.p

    skeleton = Skeleton(One())
    wrong = torch.stack([torch.arange(float(torch.Size(shape).numel()))] * 2, dim=1)[:, :1]  # strided, too
    with pytest.raises(CallError, match="the number of values fits") as caught:
        skeleton({"p": wrong})
    call = str(caught.value).partition("so .")[2].removesuffix(" mends it")
    assert skeleton({"p": eval(f"wrong.{call}")}).shape == shape


def test_another_precision_is_fine_as_long_as_it_is_one():
    module = normed().double()
    x = torch.randn(5, 4, dtype=torch.float64)
    assert torch.equal(Skeleton(normed())(tensors_of(module), x), module(x))


def test_all_on_the_meta_device_gives_the_shape_of_the_output():
    module = normed().to("meta")
    out = Skeleton(module)(tensors_of(module), torch.randn(5, 4, device="meta"))
    assert out.is_meta
    assert out.shape == (5, 3)


# ---------------------------------------------------------------- an ordinary module again


def test_materialise_gives_a_module_with_memory_of_its_own():
    source = Tied()
    source.block.bias.requires_grad_(False)
    source.decoder.eval()
    tensors = {name: t.detach().clone() for name, t in tensors_of(source).items()}
    module = Skeleton(source).materialise(tensors)
    assert type(module) is Tied
    assert {n: (p.requires_grad, p.is_leaf) for n, p in module.named_parameters()} == {
        n: (p.requires_grad, True) for n, p in source.named_parameters()
    }
    assert all(isinstance(p, nn.Parameter) for p in module.parameters())
    assert [m.training for m in module.modules()] == [m.training for m in source.modules()]
    assert module.state_dict().keys() == source.state_dict().keys()  # the table is still not saved
    assert module.decoder.weight is module.embedding.weight
    assert module.again is module.block
    assert module.same is module.table
    with torch.no_grad():
        for t in tensors_of(module).values():
            t.zero_()
    assert all(torch.equal(t, tensors[name]) for name, t in tensors_of(source).items())


def test_generated_tensors_may_be_views_and_carry_gradients():
    flat = torch.randn(15, requires_grad=True)
    tensors = {"weight": flat[:12].view(4, 3).T, "bias": (2 * flat)[12:]}
    skeleton, x = Skeleton(nn.Linear(4, 3)), torch.randn(5, 4)
    module = skeleton.materialise(tensors)
    assert torch.equal(module(x), F.linear(x, tensors["weight"], tensors["bias"]))
    assert module.weight.is_leaf
    assert module.weight.untyped_storage().nbytes() == 12 * 4  # not the whole of what was generated
    pickle.loads(pickle.dumps(module))


def test_a_call_within_a_call_finds_its_tensors():
    inner = nn.Sequential(nn.Linear(3, 3))
    skeleton = Skeleton(inner)
    tensors = {name: p.detach() for name, p in inner.named_parameters()}
    seen = []

    def call_again(module, args):
        if not seen:
            seen.append(None)
            seen.append(skeleton({name: 2 * t for name, t in tensors.items()}, *args))

    skeleton.module.register_forward_pre_hook(call_again)
    x = torch.randn(2, 3)
    torch.testing.assert_close(skeleton(tensors, x), inner(x))
    torch.testing.assert_close(seen[1], 2 * inner(x))
    assert all(p.is_meta for p in skeleton.module.parameters())


def test_an_error_within_a_call_leaves_it_without_values():
    skeleton = Skeleton(nn.Linear(3, 3))
    with pytest.raises(RuntimeError):
        skeleton({"weight": torch.randn(3, 3), "bias": torch.randn(3)}, torch.randn(2, 4))
    assert all(p.is_meta for p in skeleton.module.parameters())
