"""The nets of the zoo do what its page says: some of them in a quick run, all with ``--full``."""

import json

import pytest

from products import only_in_full
from zoo.names import HELD_OUT, NEW, TESTED_BEFORE
from zoo.nets import KINDS, ZOO
from zoo.page import PAGE, RECORD, first_look, page
from zoo.trial import CHECKS, try_net

QUICK = ("GPT-2", "DistilBERT", "nn.TransformerEncoder, norm first", "LSTM", "Deep Sets", "SIREN")
"""Nets of distinct code paths: layers without a rule, tied tables, attention, states, sums, sines."""
RECORDED = json.loads(RECORD.read_text())


@pytest.mark.parametrize("name", only_in_full(ZOO, QUICK))
def test_nothing_fails_that_holds_on_the_page(name):
    recorded = next(r for r in RECORDED["results"] if r["name"] == name)
    result = try_net(name, ZOO[name])
    failed = {
        check: result.why.get(check) for check in CHECKS if recorded["passed"][check] and not result.passed[check]
    }
    assert not failed


def test_the_page_is_made_of_the_record():
    assert PAGE.read_text() == page(RECORDED, first_look())
    assert [r["name"] for r in RECORDED["results"]] == list(ZOO)


def test_there_are_enough_nets_of_each_kind():
    assert len(ZOO) >= 50
    assert sum(KINDS[name].startswith("transformers") for name in ZOO) >= 30
    assert not set(NEW) & set(TESTED_BEFORE)


def test_the_nets_held_out_are_those_of_the_first_look():
    """A new name may move others out of the ten that the rule picks, whose first score is on the page."""
    assert sorted(r["name"] for r in first_look()) == list(HELD_OUT)
