"""Init writes what it wrote when the golden record was made, but for what is said to be changed on purpose."""

import copy

import pytest

from golden.configurations import CHANGED, CONFIGURATIONS, MIXTURE, MIXTURES
from golden.record import TOLERANCE, differences, read, renewed, surprises, take
from hyperfan.init import available


@pytest.fixture(scope="module")
def recorded():
    return read()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_net_starts_as_recorded_but_for_what_is_listed_as_changed(name, recorded):
    places = CHANGED[name].places if name in CHANGED else ()
    found = surprises(differences(take(CONFIGURATIONS[name]), recorded[name]), places)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", MIXTURES)
def test_what_reads_a_mixture_differs_by_its_gain_alone(name, recorded):
    now, then = take(CONFIGURATIONS[name]), recorded[name]
    rows = [next(row for row in taken["plan"]["rows"] if row["tensor"] == MIXTURE) for taken in (now, then)]
    squares = [taken["calls"][0][MIXTURE][0] for taken in (now, then)]
    gain = rows[0]["gain"] / rows[1]["gain"]
    assert gain > 1
    for a, b in (squares, *([row[column] for row in rows] for column in ("target", "variance"))):
        assert a / b == pytest.approx(gain, rel=TOLERANCE)


def test_the_record_and_the_list_of_changes_name_known_configurations(recorded):
    assert list(recorded) == list(CONFIGURATIONS)
    assert CHANGED.keys() <= CONFIGURATIONS.keys()
    assert all(change.reason for change in CHANGED.values())


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


def test_a_change_is_no_excuse_for_another_place_and_must_be_seen():
    found = {"plan.rows.3.gain": "1.0, recorded 2.0"}
    assert not surprises(found, ["plan.rows.3.gain"])
    assert not surprises(found, ["plan.rows.*"])
    assert surprises(found, ["call *"]) == [
        "plan.rows.3.gain: 1.0, recorded 2.0",
        "call *: nothing differs, but is listed",
    ]


def test_writing_anew_keeps_what_is_equal_and_what_is_changed_on_purpose(recorded):
    then = recorded["heads, shared"]
    equal, other = copy.deepcopy(then), copy.deepcopy(then)
    equal["plan"]["rows"][0]["variance"] *= 1 + 1e-12
    other["plan"]["rows"][0]["variance"] *= 2
    assert renewed(equal, then, changed=False) == then
    assert renewed(other, then, changed=False) == other
    assert renewed(other, then, changed=True) == then
    for row in other["plan"]["rows"]:
        row["new"] = "column"
    kept = renewed(other, then, changed=True)
    assert kept["plan"]["rows"] == [{**row, "new": "column"} for row in then["plan"]["rows"]]
