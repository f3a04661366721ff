"""Init writes what it wrote when the golden record was made, but for what is said to be changed on purpose."""

import copy

import pytest

from golden.configurations import CHANGED, CONFIGURATIONS
from golden.record import differences, read, take
from hyperfan.init import available


@pytest.fixture(scope="module")
def recorded():
    return read()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_net_starts_as_recorded_unless_it_is_listed_as_changed(name, recorded):
    found = differences(take(CONFIGURATIONS[name]), recorded[name])
    if name in CHANGED:
        assert found, f"nothing differs, so that the reason no longer holds: {CHANGED[name]}"
    else:
        assert not found, "\n".join(found)


def test_the_record_and_the_list_of_changes_name_known_configurations(recorded):
    assert list(recorded) == list(CONFIGURATIONS)
    assert CHANGED.keys() <= CONFIGURATIONS.keys()
    assert all(CHANGED.values())


def test_every_method_is_recorded(recorded):
    names = {taken["plan"]["method"].partition("(")[0] for taken in recorded.values()}
    assert names == {m.name for m in available()}


def test_a_difference_is_found_in_plans_and_in_tensors(recorded):
    then = recorded["heads, shared"]
    assert not differences(then, then)
    for spoil in (
        lambda taken: taken["plan"].update(paper="another"),
        lambda taken: taken["plan"]["rows"].pop(),
        lambda taken: taken["plan"]["rows"][0].update(variance=taken["plan"]["rows"][0]["variance"] * (1 + 1e-8)),
        lambda taken: taken["plan"]["rows"][0].update(target=None),
        lambda taken: taken["calls"].pop(),
        lambda taken: taken["calls"][0].pop("0.weight"),
        lambda taken: taken["calls"][0].update({"0.weight": [x * (1 + 1e-8) for x in taken["calls"][0]["0.weight"]]}),
    ):
        now = copy.deepcopy(then)
        spoil(now)
        assert differences(now, then)
