"""What is generated where nothing is said."""

import pytest
import torch
from torch import nn

import hyperfan as hf

GIVEN = hf.Embedding(4, given=True, per="net")
WEIGHTS, ALL = {"0.weight", "2.weight"}, {"0.weight", "0.bias", "2.weight", "2.bias"}


CASES = {
    "given": (GIVEN, {}, ALL),
    "said": (GIVEN, {"generate": "weights"}, WEIGHTS),
    "low rank": (GIVEN, {"heads": hf.LowRank(2)}, ALL),
    "without a base": (GIVEN, {"share": 1.0, "trunk": (8,)}, ALL),
    "identity": (hf.Embedding(4, given=True, per="net", identity=2), {}, ALL),
    "update": (GIVEN, {"heads": hf.LoRA(2)}, WEIGHTS),
    "mainnet's values": (GIVEN, {"base": "mainnet"}, WEIGHTS),
    "values by name": (GIVEN, {"base": {"0.weight": nn.Linear(5, 6).weight}}, WEIGHTS),
    "given for each tensor": (hf.Embedding(4, given=True), {}, WEIGHTS),
    "tasks": (hf.Embedding(4, tasks=3, per="net"), {}, WEIGHTS),
    "no condition": (4, {}, WEIGHTS),
}


@pytest.mark.parametrize(("embedding", "options", "generated"), CASES.values(), ids=list(CASES))
def test_biases_are_generated_where_one_condition_is_given_and_no_values_stay(embedding, options, generated):
    net = hf.HyperNet(nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), embedding, **options)
    assert {t.name for t in net.generated} == generated


NORMALISED = hf.Embedding(4, given=True, per="net", normalise=True)
SQUARES = {
    "a trunk by widths": ({"trunk": (16,)}, 1.0),
    "all in a base": ({"trunk": (16,), "init": "beck2022-bias"}, 1.0),
    "no trunk": ({}, 4.0),
    "a trunk that is given": ({"trunk": nn.Linear(4, 8)}, 8.0),
    "without a base": ({"trunk": (16,), "share": 1.0}, 16.0),
    "a base outside the head": ({"trunk": (16,), "share": 0.01, "base_op": "multiply"}, 16.0),
    "the paper's": ({"trunk": (16,), "fidelity": "paper"}, 16.0),
}


@pytest.mark.parametrize(("options", "square"), SQUARES.values(), ids=list(SQUARES))
def test_normalised_codes_are_as_small_as_those_of_a_trunk(options, square, tmp_path):
    """A step moves what is generated ‖h‖² times as far as its base, whoever sets that."""
    net = hf.HyperNet(nn.Linear(5, 6), NORMALISED, **options)
    e = torch.randn(20, 4) * torch.logspace(-2, 2, 20)[:, None]
    squares = net.codes(embedding=e).square().sum(-1)
    torch.testing.assert_close(squares, torch.full_like(squares, square))
    assert [row.moment for row in net.plan.rows if row.made_by == "head"] == pytest.approx([square] * 2)
    net.save_pretrained(tmp_path)
    trunk = options["trunk"] if isinstance(options.get("trunk"), nn.Module) else None
    loaded = hf.HyperNet.from_pretrained(tmp_path, nn.Linear(5, 6), trunk=trunk)
    assert torch.equal(loaded.codes(embedding=e), net.codes(embedding=e))
