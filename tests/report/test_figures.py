"""What is drawn is what was measured, and can be told apart without colour."""

import itertools
import math

import pytest
from made_up import rows

from hyperfan.report import (
    accuracy_by_rate,
    evolution,
    loss_and_accuracy,
    ridges,
    save,
    settings,
    training_losses,
)
from hyperfan.report.density import wide_enough
from hyperfan.report.ridges import HEIGHT

PANELS = [[("0", "layer 1"), ("2", "layer 2")]]


@pytest.fixture
def made():
    return settings({"small": [rows((0.1, 0.9), (0.5,)), rows((0.1, 0.7), (0.3,))], "large": [rows(scale=1e4)]})


def line(ax, label):
    return next(drawn for drawn in ax.get_lines() if drawn.get_label() == label)


def test_loss_is_the_mean_over_runs_by_epoch(made):
    train, test, accuracy = loss_and_accuracy(made, 6000, "title").axes
    assert line(train, "small").get_xydata().tolist() == [[1.0, 0.4]]
    assert line(accuracy, "small").get_xydata().tolist() == [[0.0, 0.1], [1.0, pytest.approx(0.8)]]
    band = train.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0.3, 0.5)
    assert line(test, "large").get_ydata().tolist() == pytest.approx([90.0, 10.0])


def test_where_nobody_is_good_accuracy_is_drawn_as_it_is_and_batches_may_be_counted(made):
    poor = settings({"poor": [rows((0.1, 0.2))]})
    for drawn, scale in ((made, "logit"), (poor, "linear")):
        assert loss_and_accuracy(drawn, 6000, "title").axes[2].get_yscale() == scale
    first = loss_and_accuracy(poor, 1, "title", "batch").axes[0]
    assert (first.get_xlabel(), line(first, "poor").get_xdata().tolist()) == ("batch", [6000])


def test_accuracies_by_rate_and_what_diverged():
    found = {"good": {1e-3: [None], 1e-4: [0.4, 0.5]}, "bad": {1e-3: [None, None], 1e-9: [0.1]}}
    good, bad = accuracy_by_rate(found, 0.1, "title").axes
    finished, diverged = good.get_lines()[:2]
    assert finished.get_xydata().tolist() == [[1e-4, 0.4], [1e-4, 0.5]]
    assert diverged.get_xydata().tolist() == [[1e-3, 0.1]]
    assert (finished.get_marker(), diverged.get_marker()) == ("o", "x")
    assert len(bad.get_lines()[1].get_xdata()) == 2
    assert (good.get_title(), bad.get_title()) == ("good", "bad")
    assert good.get_ylim()[0] == 0
    assert good.get_xscale() == "log"


def test_runs_of_different_length_are_thinned_alike():
    def run(steps, value):
        return [{"kind": "train", "step": i + 1, "loss": value} for i in range(steps)] + [
            {"kind": "end", "step": steps}
        ]

    made = settings({"both": [run(700, 3.0), run(300, 1.0)]})
    (drawn,) = (ax.get_lines()[0].get_xydata() for ax in training_losses({"panel": made}, "title").axes)
    assert len(drawn) <= 180
    assert [y for x, y in drawn if x <= 300] == [2.0] * sum(x <= 300 for x, _ in drawn)
    assert {y for x, y in drawn if x > 300} == {3.0}


def test_evolution_is_mean_plus_deviation(made):
    first = evolution(made, "activations", PANELS, 6000, "title").axes[0]
    assert line(first, "small").get_ydata().tolist() == [1.0, 2.0, 2.0, 2.0]
    assert line(first, "large").get_ydata().tolist() == [1e4, 2e4, 2e4, 2e4]
    assert first.get_lines()[1].get_ydata().tolist() == [-1.0, -2.0, -2.0, -2.0]
    assert line(first, "large").get_xdata().tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1], abs=1e-4)


def test_ridges_stand_one_above_the_other_with_their_deviations(made):
    figure = ridges(made, "activations", PANELS, "title", last=False)
    first = figure.axes[0]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["large", "small"]
    assert [t.get_text() for t in first.texts] == ["σ 1", "σ 1e4"]
    low, high = first.get_xlim()
    assert low < -2e4
    assert high > 2e4
    assert next(t.get_text() for t in ridges(made, "activations", PANELS, "t", last=True).axes[0].texts) == "σ 2"


def test_a_run_that_diverged_is_said_to(made):
    gone = settings({"gone": [rows(outcome="diverged")]})
    end = ridges(gone, "activations", PANELS, "title", last=True)
    assert [t.get_text() for t in end.axes[0].texts] == ["diverged at batch 8"]
    evolution(gone, "activations", PANELS, 6000, "title")


def test_settings_can_be_told_apart_without_colour():
    looks = settings({str(i): [rows()] for i in range(7)})
    for a, b in itertools.combinations(looks, 2):
        assert a.line != b.line
        assert a.colour != b.colour


def test_few_values_get_wide_bins_and_keep_a_middle_one():
    assert wide_enough([1] * 81) == [9] * 9  # three times as wide until there are no more than √81
    assert wide_enough([1000] * 81) == [1000] * 81
    assert sum(wide_enough([0, 5, 0] * 27)) == 135


def test_a_ridge_is_a_density_on_the_axis_it_was_measured_on():
    first = ridges(settings({"one": [rows()]}), "activations", PANELS, "title", last=False).axes[0]
    x, y = first.get_lines()[0].get_xydata().T
    assert (x[0], x[-1]) == (pytest.approx(-2), pytest.approx(2))
    middle = len(x) // 2
    assert x[middle] == pytest.approx(0)
    # Nine bins of counts 1 2 4 2 1 0 0 3 0, equal in asinh(x / 1) up to 2, and the middle one holds 1.
    edges = [math.sinh(math.asinh(2) * (2 * i / 9 - 1)) for i in range(10)]
    densities = [c / (b - a) for c, (a, b) in zip([1, 2, 4, 2, 1, 0, 0, 3, 0], itertools.pairwise(edges), strict=True)]
    assert y[middle] == pytest.approx(HEIGHT * densities[4] / max(densities))


def test_the_legend_tells_of_runs_that_diverged():
    gone = settings({"some": [rows(), rows(outcome="diverged")], "none": [rows()]})
    for figure in (loss_and_accuracy(gone, 6000, "t"), evolution(gone, "activations", PANELS, 6000, "t")):
        assert [t.get_text() for t in figure.legends[0].get_texts()] == ["some (1 of 2 diverged)", "none"]


def test_saving_twice_gives_the_same_bytes(made, tmp_path):
    for name in "ab":
        save(loss_and_accuracy(made, 6000, "title"), tmp_path / name)
    for ending in ("png", "svg"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
