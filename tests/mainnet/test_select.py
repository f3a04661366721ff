"""Which parameters are generated."""

import pytest
import torch
from torch import nn

from hyperfan.errors import MainnetError
from hyperfan.mainnet import read, select


class Net(nn.Module):
    """One parameter of each role."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.act = nn.PReLU()
        self.head = nn.Linear(2, 2)
        self.tied = nn.Linear(2, 2, bias=False)
        self.tied.weight = self.head.weight
        self.token = nn.Parameter(torch.zeros(2))


SPEC = read(Net(), warn=False)
CHOICES = {
    "weights": ("weights", ["conv.weight", "head.weight"]),
    "and biases": ("weights+biases", ["conv.weight", "conv.bias", "head.weight", "head.bias"]),
    "one name": ("token", ["token"]),
    "a glob": ("*.weight", ["conv.weight", "norm.weight", "act.weight", "head.weight"]),
    "a glob of one layer": ("head.*", ["head.weight", "head.bias"]),
    "one of some letters": ("[ch]*.bias", ["conv.bias", "head.bias"]),
    "everything": ("*", [t.name for t in SPEC]),
    "several, in the mainnet's order": (["token", "conv.*"], ["token", "conv.weight", "conv.bias"]),
    "overlapping": (("*.weight", "head.*"), ["conv.weight", "norm.weight", "act.weight", "head.weight", "head.bias"]),
    "by a tied name": ("tied.weight", ["head.weight"]),
    "a predicate": (lambda t: t.role == "weight" and t.fans.fan_in > 2, ["conv.weight"]),
}


@pytest.mark.parametrize(("generate", "names"), CHOICES.values(), ids=CHOICES)
def test_choices(generate, names):
    assert [t.name for t in select(SPEC, generate)] == names


def test_roles_are_those_of_the_spec():
    assert [t.name for t in SPEC] == [
        "token", "conv.weight", "conv.bias", "norm.weight", "norm.bias", "act.weight", "head.weight", "head.bias",
    ]  # fmt: skip
    assert not {"scale", "shift", "slope", "other"} & {t.role for t in select(SPEC, "weights+biases")}


@pytest.mark.parametrize(
    ("generate", "message"),
    [
        ("haed.weight", r"generate='haed\.weight' matches no parameter.*did you mean 'head\.weight'"),
        ("weight", r"generate='weight' matches no parameter"),
        (
            ["conv.*", "bodies.*"],
            r"generate='bodies\.\*' matches no parameter.*known: weights, .*conv\.weight",
        ),
        ("CONV.*", r"matches no parameter"),
        ([], r"an empty list of patterns.*conv\.weight \(weight\)"),
        (lambda t: t.numel > 1000, r"a predicate that holds for none.*norm\.weight \(scale\)"),
    ],
)
def test_what_matches_nothing_is_an_error(generate, message):
    with pytest.raises(MainnetError, match=message):
        select(SPEC, generate)


def test_no_weights_to_generate():
    with pytest.raises(MainnetError, match=r"'weights', and no parameter has that role.*weight \(scale\)"):
        select(read(nn.LayerNorm(4)), "weights")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_only_real_numbers_can_be_generated(dtype):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = nn.Parameter(torch.zeros(4, 4, dtype=dtype), requires_grad=dtype.is_complex)
    spec = read(net)
    with pytest.raises(MainnetError, match=rf"'1\.weight' is {dtype}; only real floating-point") as caught:
        select(spec, "weights")
    mending = str(caught.value).partition("generate=")[2]
    assert [t.name for t in select(spec, eval(mending))] == ["0.weight"]
    assert [t.name for t in select(spec, "0.*")] == ["0.weight", "0.bias"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_point_type_will_do(dtype):
    assert len(select(read(nn.Sequential(nn.Linear(4, 4, dtype=dtype))), "weights")) == 1
