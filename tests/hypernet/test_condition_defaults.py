"""What is generated where nothing is said."""

import pytest
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
