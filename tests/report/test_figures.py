"""Figures show what was measured, as SVG that needs no other file."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
import torch
from made_up import rows

from hyperfan.charts.palette import INITS, NEUTRAL, Look
from hyperfan.metrics import Kind, histograms
from hyperfan.report import (
    Drawn,
    Fit,
    StartScores,
    accuracy_by_rate,
    evolution,
    fits,
    loss_and_accuracy,
    losses_and_accuracies,
    losses_and_scores,
    losses_by_share,
    losses_by_task,
    paths,
    ridges,
    settings,
    training_losses,
    uncertainty,
)
from hyperfan.report.inside import RIDGE_HEIGHT, evolution_panels, ridge_panels
from hyperfan.report.losses import loss_panels
from hyperfan.report.paths import path_panels
from hyperfan.report.uncertainty import uncertainty_panels

SVG = "{http://www.w3.org/2000/svg}"
PANELS = [("0", "layer 1"), ("2", "layer 2")]
LAYERS = [("0", "layer 1", ()), ("2", "layer 2", ())]


@pytest.fixture
def compared():
    return settings({"small": [rows((0.1, 0.9), (0.5,)), rows((0.1, 0.7), (0.3,))], "large": [rows(scale=1e4)]})


def curve(panel, label, kind="line"):
    return next(c for c in panel.curves if (c.label, c.kind) == (label, kind))


def texts(svg):
    return [e.text for e in ET.fromstring(svg).iter(f"{SVG}text") if e.text]


def test_loss_is_the_mean_over_runs_by_epoch(compared):
    train, test, accuracy = loss_panels(compared, "epoch", 6000)
    assert curve(train, "small").points == [(1.0, 0.4)]
    assert curve(train, "small").band == [(0.3, 0.5)]
    assert curve(accuracy, "small").points == [(0.0, 0.1), (1.0, pytest.approx(0.8))]
    assert [y for _, y in curve(test, "large").points] == pytest.approx([90.0, 10.0])
    assert curve(test, "large").band == ()  # one run has no range
    note = "Mean of up to 2 runs; bands reach from the lowest to the highest."
    assert note in texts(loss_and_accuracy(compared, 6000, "title"))


def test_where_nobody_is_good_accuracy_is_drawn_as_it_is_and_batches_may_be_counted(compared):
    poor = settings({"poor": [rows((0.1, 0.2))]})
    for drawn, marks in ((compared, ["10 %", "50 %", "90 %"]), (poor, ["0 %", "5 %", "10 %", "15 %", "20 %"])):
        assert [mark for _, mark in loss_panels(drawn, "epoch", 6000)[2].y.marks] == marks
    assert "batch" in texts(loss_and_accuracy(poor, 1, "title", "batch"))
    assert loss_panels(poor, "batch", 1)[0].curves[0].points == [(6000, 1.0)]


def test_histograms_are_those_before_training_or_those_taken_last():
    lines = [
        {"kind": Kind.HISTOGRAMS, "of": "weights", "step": step, "layers": {"0": {"centre": float(step)}}}
        for step in (0, 10, 20)
    ]
    assert histograms(lines, "weights", last=False) == {"0": {"centre": 0.0}}
    assert histograms(lines, "weights", last=True) == {"0": {"centre": 20.0}}


def test_accuracies_by_rate_and_runs_that_diverged():
    found = {"hyperfan-in": {1e-3: [None], 1e-4: [0.4, 0.5]}, "m2": {1e-3: [None, None], 1e-9: [0.1]}}
    svg = accuracy_by_rate(found, 0.1, "title")
    paths = [(e.get("class"), e.get("d")) for e in ET.fromstring(svg).iter(f"{SVG}path")]
    finished, diverged = ([d for c, d in paths if c == f"line {kind}"] for kind in ("dots", "crosses"))
    (x, y), (other, above) = re.findall(r"M([\d.]+),([\d.]+)h0", finished[0])
    assert x == other
    assert float(above) < float(y)
    assert [d.count("M") for d in diverged] == [1, 2]
    assert {"hyperfan-in", "m2", "guessing", "learning rate"} <= set(texts(svg))
    assert f"series {INITS['m2'].classes}" in svg


def test_runs_of_different_length_are_averaged_alike():
    def run(steps, value):
        losses = [{"kind": "train", "step": i + 1, "loss": value} for i in range(steps)]
        return [*losses, {"kind": "end", "step": steps, "outcome": "finished"}]

    both = settings({"both": [run(700, 3.0), run(300, 1.0)]})
    drawn = loss_panels(both, "batch", 1, 120)[0].curves[0].points
    assert len(drawn) <= 121
    assert [y for x, y in drawn if x <= 300] == [2.0] * sum(x <= 300 for x, _ in drawn)
    assert {y for x, y in drawn if x > 300} == {3.0}
    assert texts(training_losses({"panel": both, "other": both}, "title")).count("batch") == 2
    more = settings({"small": [rows((0.1, 0.2))] * 5})
    assert any(
        "mean of up to 5 runs" in text for text in texts(training_losses({"panel": both, "other": more}, "title"))
    )
    assert texts(losses_and_accuracies({"panel": both, "other": both}, "title")).count("batch") == 4


def test_losses_that_are_no_numbers_are_gaps_and_a_run_that_diverges_at_once_is_said_to():
    lost = [{"kind": "train", "step": 1, "loss": 1e9}, {"kind": "train", "step": 2, "loss": None}]
    gone = settings({"gone": [[*lost, {"kind": "end", "step": 2, "outcome": "diverged"}]], "here": [rows()]})
    assert loss_panels(gone, "batch", 1)[0].curves[0].points == [(1, 1e9), (2, None)]
    for svg in (loss_and_accuracy(gone, 1, "title", "batch"), training_losses({"panel": gone}, "title")):
        assert "← diverges at once" in texts(svg)


def test_evolution_is_the_mean_with_a_deviation_to_each_side():
    shifted = settings({"up": [rows(mean=0.5)], "large": [rows(scale=1e4)]})
    first = evolution_panels(shifted, "activations", LAYERS, "epoch", 6000)[0]
    assert [y for _, y in curve(first, "up").points] == [0.5, 1.0, 1.0, 1.0]
    assert [x for x, _ in curve(first, "up").points] == pytest.approx([0, 1 / 3, 2 / 3, 1], abs=1e-4)
    assert curve(first, "up").band == [(-0.5, 1.5), (-1.0, 3.0), (-1.0, 3.0), (-1.0, 3.0)]
    assert curve(first, "large").band[-1] == (-2e4, 2e4)
    assert first.y.at(3.0) - first.y.at(1.0) > 0.04  # beside what is 10 000 times as large it can still be seen


def test_a_start_far_from_all_that_follows_is_written_and_does_not_set_the_axis():
    start = settings({"calm": [rows()], "wild": [rows(deviations=(400.0, 1.0, 1.0, 1.0))]})
    first = evolution_panels(start, "activations", LAYERS, "epoch", 6000)[0]
    assert [note.text for note in first.notes] == ["σ₀ = 400"]
    assert first.y.at(400.0) is None
    assert first.y.at(2.0) is not None


def test_a_run_that_diverged_at_once_does_not_set_the_axis():
    gone = [r for r in rows(scale=1e6, outcome="diverged") if r["step"] == 0 or r["kind"] == "end"]
    both = settings({"calm": [rows()], "gone": [gone]})
    first = evolution_panels(both, "activations", LAYERS, "epoch", 6000)[0]
    assert [note.text for note in first.notes] == ["σ₀ = 1e6"]
    assert first.y.at(100.0) is None


def test_a_long_title_is_written_smaller(compared):
    for title, fitted in (("short", None), ("long " * 40, "font-size")):
        root = ET.fromstring(loss_and_accuracy(compared, 6000, title))
        style = next(e.get("style") for e in root.iter(f"{SVG}text") if e.get("class") == "headline")
        assert (style or "").partition(":")[0] == (fitted or "")


def test_ridges_stand_one_above_the_other_with_their_deviations(compared):
    written = texts(ridges(compared, "activations", PANELS, "title", last=False))
    assert [t for t in written if t in ("small", "large")] == ["large", "small"]  # from the bottom
    assert [t for t in written if t.startswith("σ ")] == ["σ 1", "σ 10,000"] * 2
    first = ridge_panels(compared, "activations", LAYERS, last=False)[0]
    assert None not in (first.x.at(-2e4), first.x.at(2e4))
    bars = [c.points for c in first.curves if c.kind == "extent"]
    assert [(bar[0][0], bar[1][0]) for bar in bars] == [(-1.0, 1.0), (-1e4, 1e4)]
    assert bars[0][0][1] > bars[1][0][1]
    assert "σ 2" in texts(ridges(compared, "activations", PANELS, "t", last=True))


def test_the_axes_of_a_figure_have_one_width_whatever_is_written_beside_them(compared):
    root = ET.fromstring(ridges(compared, "activations", PANELS, "title", last=False))
    edges = [e for e in root.iter(f"{SVG}line") if e.get("class") == "edge" and e.get("y1") == e.get("y2")]
    labelled, other = (float(e.get("x2")) - float(e.get("x1")) for e in edges)
    assert labelled == pytest.approx(other, abs=0.2)  # both ends are rounded to a tenth of a pixel
    first, second = (e for e in root if e.tag == f"{SVG}svg")
    assert float(first.get("x")) + float(first.get("width")) == pytest.approx(float(second.get("x")), abs=0.2)


def test_a_run_that_diverged_is_said_to():
    lines = rows(outcome="diverged")
    gone = settings({"gone": [[*lines[:-1], {**lines[-1], "step": 6000}]]})
    assert texts(ridges(gone, "activations", PANELS, "title", last=True)).count("diverged at batch 6,001") == 2
    assert "layer 1" in texts(evolution(gone, "activations", PANELS, 6000, "title"))


def test_a_ridge_is_a_density_on_the_axis_it_is_drawn_on():
    ridge = ridge_panels(settings({"one": [rows()]}), "activations", LAYERS, last=False)[0].curves[0]
    # Nine bins of counts 1 2 4 2 1 0 0 3 0, equal in asinh(x / 1) up to 2, as is the axis: the densest holds 4.
    edges = [math.sinh(math.asinh(2) * (2 * i / 9 - 1)) for i in range(10)]
    assert (ridge.points[0], ridge.points[-1]) == ((pytest.approx(-2), 0.0), (pytest.approx(2), 0.0))
    heights = [0.0, *(RIDGE_HEIGHT * c / 4 for c in (1, 2, 4, 2, 1, 0, 0, 3, 0)), 0.0]
    assert [y for _, y in ridge.points] == pytest.approx(heights)
    assert ridge.points[4][0] == pytest.approx((edges[3] + edges[4]) / 2)


def test_the_legend_counts_runs_that_diverged():
    gone = settings({"some": [rows(), rows(outcome="diverged")], "none": [rows()]})
    for svg in (loss_and_accuracy(gone, 6000, "t"), evolution(gone, "activations", PANELS, 6000, "t")):
        assert {"some (1 of 2 diverged)", "none"} <= set(texts(svg))


def test_reliability_and_entropies_are_over_all_runs():
    scores = {
        "classes": 8,
        "reliability": [[1, 0.2, 1.0], [3, 0.8, 0.5]],
        "known": {"entropy": [3, 1]},
        "unknown": {"entropy": [0, 4]},
    }
    other = {**scores, "reliability": [[1, 0.4, 0.0], [0, 0.0, 0.0]], "known": {"entropy": [0, 4]}}
    reliability, entropies = uncertainty_panels([scores, other], INITS["m2"])
    assert curve(reliability, "accuracy", "dots").points == [(pytest.approx(0.3), 0.5), (pytest.approx(0.8), 0.5)]
    assert [y for _, y in curve(reliability, "share of images", "area").points] == [0.4, 0.4, 0.6, 0.6]
    middle, end = pytest.approx(math.log(8) / 2), pytest.approx(math.log(8))
    known = curve(entropies, "known classes", "area").points
    assert known == [(0, 3 / 8), (middle, 3 / 8), (middle, 5 / 8), (end, 5 / 8)]
    assert [y for _, y in curve(entropies, "unknown classes").points] == [0, 0, 1, 1]
    alone = {k: v for k, v in scores.items() if k != "unknown"}
    assert "unknown classes" not in texts(uncertainty({"net": [alone]}, "title"))


def test_starts_differ_in_colour_and_optimisers_in_dashes():
    found = {name: (torch.rand(2, 5), torch.rand(5)) for name in ("SGD", "AdamW")}
    root = ET.fromstring(losses_by_share({"a job": found, "another": found}, [1, 0], "nn.Linear", "title"))
    ours, others = INITS["hyperfan-in"].colour, NEUTRAL.colour
    expected = {f"series s{colour} d{dash}" for colour in (ours, others) for dash in (0, 2)}
    series = [e.get("class") for e in root.iter(f"{SVG}g") if (e.get("class") or "").startswith("series")]
    assert (set(series), len(series)) == (expected, 8)
    shown = [e.text for e in root.iter(f"{SVG}text") if e.get("class") == "category"]
    assert shown == ["hyperfan-in, SGD", "hyperfan-in, AdamW", "nn.Linear, SGD", "nn.Linear, AdamW"]


@pytest.mark.parametrize("draw", ["losses", "accuracies", "uncertainty", "fits"])
def test_a_label_has_the_look_of_the_init_beside_it(draw):
    label, inits = "at 0.1", {"at 0.1": "m2"}
    x = torch.linspace(0, 1, 5).expand(1, 5)
    scores = {"classes": 8, "reliability": [[1, 0.2, 1.0]] * 15, "known": {"entropy": [3] * 30}}
    svg = {
        "losses": lambda: losses_by_task({label: torch.rand(2, 1, 3)}, [0, 1, 2], ["x"], "title", inits),
        "accuracies": lambda: accuracy_by_rate({label: {0.1: [0.5]}}, 0.1, "title", inits),
        "uncertainty": lambda: uncertainty({label: [scores]}, "title", inits),
        "fits": lambda: fits([Fit(label, x[None], x[:, :1], "m2")], x, x, ["x"], "title"),
    }[draw]()
    assert f'class="series s{INITS["m2"].colour} ' in svg
    assert settings({label: [rows()]}, inits)[0].look == INITS["m2"]


def figures(compared):
    losses = torch.rand(5, 3, 61) + 0.01
    x = torch.linspace(-1, 1, 50).expand(3, 50)
    learnt = Fit("m2 at 0.1", torch.rand(3, 3, 50), torch.rand(3, 3))
    bins = {"known": {"entropy": [3] * 30}, "unknown": {"entropy": [4] * 30}}
    scores = {"classes": 8, "reliability": [[1, 0.2, 1.0]] * 15, **bins}
    title = "a < b"
    return {
        "loss": loss_and_accuracy(compared, 6000, title),
        "training": training_losses({"panel": compared}, title),
        "accuracies": losses_and_accuracies({"panel": compared}, title),
        "evolution": evolution(compared, "activations", PANELS, 6000, title),
        "ridges": ridges(compared, "activations", PANELS, title, last=True),
        "rates": accuracy_by_rate({"m2": {0.1: [0.5, None]}}, 0.1, title),
        "shares": losses_by_share({"m2": {"SGD": (torch.rand(2, 5), torch.full((5,), math.nan))}}, [1, 0], "m3", title),
        "tasks": losses_by_task({"m2": losses, "m3": losses}, range(0, 6001, 100), ["x", "x²", "x³"], title),
        "fits": fits([learnt], x, x**2, ["x", "x²", "x³"], title),
        "uncertainty": uncertainty({"m2": [scores]}, title),
        "starts": losses_and_scores([StartScores("m2", Look(7), {0: 1.0}, None)], title, "right", ""),
        "paths": paths([Drawn("m2", torch.full((1, 4, 2), math.nan))], torch.rand(1, 7, 9, 2), ["S"], title),
    }


def test_every_figure_is_one_file_that_says_what_it_is(compared):
    for name, svg in figures(compared).items():
        root = ET.fromstring(svg)
        title, described, style, paper = list(root)[:4]
        assert (title.tag, title.text) == (f"{SVG}title", "a < b"), name
        assert (described.tag, described.text[:15]) == (f"{SVG}desc", "a < b. Panels: ")
        assert "prefers-color-scheme: dark" in style.text
        assert (paper.get("class"), paper.get("width")) == ("paper", root.get("width"))
        assert not re.search(r"(href|src|url\()", svg)
        assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)
        assert texts(svg)[0] == "a < b"


def test_the_largest_figure_of_30_epochs_stays_small():
    long = rows((0.1,) * 31, [0.5] * 30, [1.0 + i % 7 for i in range(181)])
    four = settings({init: [long] for init in ("classical", "xavier-fan-in", "hyperfan-in", "hyperfan-out")})
    panels = [(f"{2 * i}.{role}", f"layer {i}") for role in ("weight", "bias") for i in range(6)]
    for svg in (evolution(four, "weights", panels, 6000, "title"), ridges(four, "weights", panels, "t", last=False)):
        assert len(svg.encode()) < 200_000


def test_the_same_numbers_make_the_same_figure(compared):
    first, second = (loss_and_accuracy(compared, 6000, "title") for _ in range(2))
    assert first == second


def test_starts_have_a_curve_with_its_name_and_a_bar_with_its_score():
    losses = {10: 2.0, 20: 0.5}
    starts = [StartScores("ours", Look(1), losses, (0.4, 0.3, 0.55)), StartScores("without", Look(2), losses, None)]
    svg = losses_and_scores(starts, "title", "right", "a note")
    shown = texts(svg)
    assert shown.count("without") == 1  # beside its curve
    assert shown.count("ours") == 2
    assert "40 % [30, 55]" in shown


def test_paths_are_drawn_over_the_demonstrations_with_a_gap_where_they_leave_the_panel():
    line = torch.linspace(-1, 0, 5)[:, None].repeat(1, 2)
    shown = torch.stack([line, line / 2]).expand(2, 2, 5, 2)
    started = {"hyperfan-in at 0.1": "hyperfan-in", "theirs, normal at 1": "auddy2024-normal"}
    drawn = [Drawn(label, torch.stack([line, 2 * line]), init) for label, init in started.items()]
    panels = path_panels(drawn, shown, ["S", "N"])
    assert [p.title for p in panels] == ["hyperfan-in at 0.1", "N", "theirs, normal at 1", "N"]
    *behind, path = panels[3].curves
    assert [c.kind for c in behind] == ["reference", "reference"]
    assert behind[1].points == [(x / 2, x / 2) for x in (-1.0, -0.75, -0.5, -0.25, 0.0)]
    assert [y for _, y in path.points] == [None, None, -1.0, -0.5, 0.0]
    assert path.look.colour == INITS["auddy2024-normal"].colour
