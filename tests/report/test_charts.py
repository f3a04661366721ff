"""What is drawn lies where its value is, and what cannot be drawn is said."""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from readings import BAD, diagnosis, histogram, layer, layers, scale, tensor

from hyperfan.charts.axis import asinh_axis, linear_axis, log_axis, share_axis, thinned
from hyperfan.charts.bars import bar_panel
from hyperfan.charts.density import density, edges, wide_enough
from hyperfan.charts.figure import figure
from hyperfan.charts.palette import CLASSICAL, INITS, LINEAR, NEUTRAL, RESERVED, THEORY, Look, looks, style
from hyperfan.charts.panel import DOWN, LABEL_WIDTH, MAX_POINTS, SHAPES, UP, Curve, Note, Panel, draw
from hyperfan.charts.scale import interval_panel, layer_names, not_on_axis, scale_measurements
from hyperfan.init import available
from hyperfan.probe.moments import Scale
from hyperfan.report import diagnosis_page, scale_chart
from hyperfan.report.diagnosis_page import tensor_ratios

SVG = "{http://www.w3.org/2000/svg}"


def drawn(curves, x=None, y=None, **changes):
    panel = Panel("title", curves, x or log_axis([1, 100]), y or log_axis([1, 100]), **changes)
    return ET.fromstring(draw(panel))


def points(element):
    return [tuple(map(float, p)) for p in re.findall(r"(-?[\d.]+),(-?[\d.]+)", element.get("d"))]


def test_a_line_goes_through_its_values_and_has_gaps():
    svg = drawn([Curve("a", [(1, 1), (10, 10), (20, None), (100, 100)])])
    line = next(e for e in svg.iter("path") if e.get("class") == "line")
    assert points(line) == [(46, 155), (143, 89.5), (240, 24)]
    assert line.get("d").count("M") == 2
    assert line.get("data-tip").split("|") == [" 1: 1", " 10: 10", " 100: 100"]


def test_long_lines_are_thinned_and_keep_their_peaks():
    values = [1.0] * 5000
    values[1234], values[4321] = 99.0, 2.0
    svg = drawn([Curve("a", [(1 + i / 51, v) for i, v in enumerate(values)])])
    line = next(e for e in svg.iter("path") if e.get("class") == "line")
    assert len(points(line)) <= MAX_POINTS
    said = line.get("data-tip").split("|")
    assert len(said) == len(points(line))
    assert sum(s.endswith(" 99") for s in said) == sum(s.endswith(": 2") for s in said) == 1
    assert thinned([None] * 1000, 10)[-1] == 999


def test_axes_leave_out_what_they_cannot_hold():
    axis = log_axis([1e-3, math.nan, math.inf, 0.0, -1.0, None, 1e3])
    assert (axis.low, axis.high) == (-4, 4)
    assert [axis.at(v) for v in (0.0, -1.0, math.inf, math.nan, None)] == [None] * 5
    assert [axis.at(v, clip=True) for v in (0.0, math.inf, math.nan)] == [0.0, 1.0, None]
    assert log_axis([]).at(1.0) == 0.5
    assert next(mark for _, mark in log_axis([5e-324, 1e308]).marks).startswith("10⁻")
    assert share_axis([]).at(0.5) == 0.5
    assert 0.9 < share_axis([0.1, 1.0]).at(1.0) < 1  # all right has a place
    assert asinh_axis(1e300, 1e-300).at(1e300) is None or math.isfinite(asinh_axis(1e300, 1e-300).at(1e300))


def test_marks_that_would_run_into_each_other_have_no_text():
    crowded = replace(linear_axis(0, 1), marks=tuple((i / 50, f"{i * 1000}") for i in range(51)))
    svg = drawn([], x=crowded)
    written = [e for e in svg.iter("text") if e.get("class") == "tick" and e.get("text-anchor") == "middle"]
    ends = [(float(e.get("x")), LABEL_WIDTH * len(e.text) / 2) for e in written]
    assert len(ends) > 3
    assert all(a + half < b - other for (a, half), (b, other) in itertools.pairwise(ends))


def test_an_area_reaches_its_base_and_a_note_its_place():
    curve = Curve("a", [(0, 1), (1, 2)], kind="area", base=1)
    notes = [Note("here", None, (0, 1), "start"), Note("top"), Note("second"), Note(30 * "x")]
    svg = drawn([curve], x=linear_axis(0, 1), y=linear_axis(0, 3), notes=notes)
    area = next(e.get("d") for e in svg.iter("path") if e.get("class") == "area")
    base = 155 - (155 - 24) / 3
    assert (area[: area.index("L")], area[area.index("V") :]) == (f"M46,{base:.1f}", f"V{base:.1f}Z")
    written = [(e.text, float(e.get("x")), float(e.get("y"))) for e in svg.iter("text") if e.get("class") == "note"]
    assert written == [("here", 51, round(base, 1)), ("top", 240, 13), ("second", 212.3, 13), (30 * "x", 240, 26)]


def test_a_band_is_clipped_to_the_frame_and_a_line_is_not_drawn_beyond_it():
    svg = drawn([Curve("a", [(1, 10), (10, 1e9)], band=[(1e-9, 1e9), (1, 1e9)])])
    band, line = (next(e for e in svg.iter("path") if e.get("class") == name) for name in ("band", "line"))
    assert {y for _, y in points(band)} == {24, 155}
    assert len(points(line)) == 1


# ── looks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_init_has_one_look_whatever_is_beside_it():
    for init, look in INITS.items():
        assert looks([init]) == looks(["label"], {"label": init}) == [look]
        assert look.colour == looks(["something", init])[1].colour
    first, second = looks(["hyperfan-in", "hyperfan-in"])
    assert first.colour == second.colour
    assert first.dash != second.dash
    assert {init.partition("@")[0] for init in INITS} <= {"classical", LINEAR, *(m.name for m in available())}


def test_an_init_is_named_beside_a_label_that_may_say_anything():
    inits = {"their start, 0.1": "xavier-fan-in", "hyperfan-in's rival": "m3", "new": "beck2022-bias"}
    assert looks(list(inits), inits) == [INITS["xavier-fan-in"], INITS["m3"], Look(RESERVED[0])]


def test_a_colour_is_of_one_init_or_of_none():
    colours = {}
    for init, look in INITS.items():
        colours.setdefault(look.colour, set()).add(init.partition("@")[0])
    assert all(len(inits) == 1 for inits in colours.values())
    assert colours[NEUTRAL.colour] == {LINEAR}
    assert not {*RESERVED, THEORY.colour} & set(colours)
    assert THEORY.colour not in RESERVED
    assert {look.colour for look in looks([str(i) for i in range(100)])} == set(RESERVED)


def test_black_dashes_are_the_classical_net_and_nothing_else():
    others = [look for init, look in INITS.items() if init != "classical"] + looks([str(i) for i in range(100)])
    assert INITS["classical"] == CLASSICAL
    assert all(look.colour != CLASSICAL.colour and look.dash != CLASSICAL.dash for look in others)


def test_inits_of_one_figure_differ_in_colour_and_in_dash():
    for shown in (
        ("classical", "xavier-fan-in", "hyperfan-in", "hyperfan-out"),
        ("classical", "kaiming-fan-in", "kaiming-fan-out", "hyperfan-in", "hyperfan-out"),
        ("hyperfan-in@exact", "hyperfan-out@exact", "m2", "m3", "m4"),
    ):
        for of in zip(*looks(shown), strict=True):
            assert len(set(of)) == len(shown)


def test_names_without_an_init_get_looks_that_differ():
    assert len(set(looks([str(i) for i in range(42)]))) == 42
    for of in zip(*looks([str(i) for i in range(6)]), strict=True):
        assert len(set(of)) == 6


def test_every_look_is_in_the_style_sheet_in_light_and_dark():
    for look in [*INITS.values(), THEORY, *looks([str(i) for i in range(100)])]:
        assert len(re.findall(rf"--s{look.colour}: #", style())) == 2
        assert f".s{look.colour} {{" in style()
        assert look.dash == 0 or f".d{look.dash} > .line" in style()
        assert look.dash < len(SHAPES)


# ── histograms ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_few_values_get_wide_bins_and_keep_a_middle_one():
    assert wide_enough([1] * 81) == [9] * 9  # three times as wide until there are no more than √81
    assert wide_enough([1000] * 81) == [1000] * 81
    assert sum(wide_enough([0, 5, 0] * 27)) == 135


def test_density_is_that_of_a_gaussian():
    counts = layer(0).histogram.counts
    h = layer(0).histogram
    rms = math.sqrt(0.61)
    line = density(linear_axis(-5 * rms, 5 * rms), h.centre, h.unit, h.reach, counts)
    for x, height in line[1:-1]:
        if abs(x) < 2 * rms:
            # A bin holds at least 1/60 of 20 000 values, or is rms/4 wide, where e^-2 of the densest still has 270:
            # four standard errors of its count and of the densest one's, and the curve's bend across the bin.
            assert height == pytest.approx(math.exp(-((x / rms) ** 2) / 2), abs=4 / math.sqrt(270))
    ends = edges(h.centre, h.unit, h.reach, len(wide_enough(counts)))
    assert (line[0], line[-1]) == ((ends[0], 0.0), (ends[-1], 0.0))


def test_on_an_axis_that_is_logarithmic_far_out_a_wide_distribution_looks_wide():
    """The area beyond a value is the share of values there, so what is 1000 times as wide lies almost all far out."""
    axis = asinh_axis(5e3, 1.0)
    shares = []
    for rms in (1.0, 1000.0):
        h = histogram(rms)
        line = [(axis.at(x), height) for x, height in density(axis, h.centre, h.unit, h.reach, h.counts)]
        areas = [((a + b) / 2, (b - a) * (p + q) / 2) for (a, p), (b, q) in itertools.pairwise(line)]
        shares.append(sum(area for x, area in areas if abs(x - 0.5) > axis.at(30.0) - 0.5) / sum(a for _, a in areas))
    assert shares[0] == 0
    # Of a Gaussian 97.6 % lie beyond 0.03 standard deviations, and trapezoids between some 40 points miss little of it.
    assert shares[1] > 0.9


@pytest.mark.parametrize("bins", [(0, 1, 2, ()), (0, 0, 2, (1, 2)), (math.nan, 1, 2, (1, 2)), (0, 1, math.inf, (1,))])
def test_no_density_where_there_is_none(bins):
    assert density(linear_axis(-1, 1), *bins) == []


# ── the library's picture ──────────────────────────────────────────────────────────────────────────────────────────


def chart(series, **options):
    return ET.fromstring(scale_chart(series, **options))


def layer_panel(series, of="activations"):
    """As in a page, where points have tips."""
    return ET.fromstring(draw(interval_panel("title", layer_names(series), scale_measurements(series, of))))


def series(svg, number):
    return [e for e in svg.iter("g") if "series" in (e.get("class") or "")][number]


def test_points_lie_on_the_line_where_theory_holds_and_off_it_where_not():
    compared = {"ours": layers(*[1.0] * 6), "theirs": layers(*BAD)}
    svg = layer_panel(compared)
    theory = [e for e in svg.iter("g") if e.get("class") == f"theory {THEORY.classes}"]
    assert len(theory) == 1  # both have the same
    line = points(next(e for e in theory[0] if e.get("class") == "line"))[1:-1]
    for number, on in ((0, True), (1, False)):
        dots = [e for e in series(svg, number) if e.get("class") == "point"]
        assert [(float(e.get("data-x")), float(e.get("data-y"))) == at for e, at in zip(dots, line, strict=True)] == [
            on
        ] * 6
    written = [e.text for e in chart(compared, title="Scale").iter(f"{SVG}text")]
    assert {"Scale", "ours", "theirs", "theory", "within 1.01× of theory", "up to 77× theory"} <= set(written)
    said = [e.get("data-tip") for e in series(svg, 1) if e.get("class") == "point"]
    assert said[0] == "0: 21.9 [20.9, 22.9], theory 0.781"


def test_gradients_have_a_chart_of_their_own():
    svg = chart({"net": layers()}, of="gradients")
    assert any("gradient" in e.text for e in svg.iter(f"{SVG}text") if e.get("class") == "title")
    said = [e.get("data-tip") for e in series(layer_panel({"net": layers()}, "gradients"), 0)]
    assert said[-1] == "10: 0.3 [0.286, 0.315], theory 0.3"


ODD = [
    layer(0, measured=Scale(math.inf, math.nan, math.inf)),
    layer(1, measured=Scale(math.nan, math.nan, math.nan), predicted=None),
    layer(2, measured=Scale(0.0, 0.0, 0.0), predicted=Scale(math.inf, 0.0, math.inf)),
    layer(3, target=None, predicted=None, predicted_gradient=None, measured_gradient=None),
    layer(4, measured=Scale(1e300, 0.0, math.inf), predicted=Scale(1e-300, 0.0, math.nan)),
]


def test_what_has_no_place_on_the_axis_is_said():
    rows = scale_measurements({"net": ODD}, "activations")
    said = "net of '0' is infinite; net of '2' is no number; net of '4' is 0; net, theory of '4' is infinite"
    assert not_on_axis(rows, 4) == f"Not on the axis: {said}."
    assert not_on_axis(rows, 3).endswith("'4' is 0; and 1 more.")
    svg = chart({"net": ODD})
    assert any("Not on the axis: net of '0' is infinite" in (e.text or "") for e in svg.iter(f"{SVG}text"))
    dots = [e for e in series(layer_panel({"net": ODD}), 0) if e.get("class") == "point"]
    assert [e.get("data-tip").partition(":")[0] for e in dots] == ["0", "4", "6", "8"]  # all but what is no number
    shapes = [next(e for e in dot if e.get("class") == "dot").get("d") for dot in dots]
    assert shapes == [UP, DOWN, SHAPES[0], SHAPES[0]]  # infinite, zero, and two on the axis
    assert "nan" not in ET.tostring(svg, encoding="unicode")


@pytest.mark.parametrize("empty", [(), (replace(ODD[3], measured_gradient=None),)], ids=["no layer", "no gradient"])
def test_nothing_to_draw_is_no_error(empty):
    for of in ("activations", "gradients"):
        chart({"net": empty}, of=of)
    diagnosis_page(diagnosis(layers=tuple(empty), tensors=(), parts=()))


def test_many_layers_with_long_names_fit():
    many = [layer(i % 6, layer=f"blocks.{i}.attention.projection", measured=scale(1.0)) for i in range(120)]
    svg = chart({"net": many})
    turned = [e for e in svg.iter(f"{SVG}text") if (e.get("transform") or "").endswith("rotate(-40)")]
    assert 20 < len(turned) < 120
    assert all(len(e.text) <= 15 for e in turned)


def test_tensors_are_drawn_over_their_targets():
    shown = tensor_ratios([tensor(0), tensor(1, 4.0), tensor(2, target=None), tensor(3, target=0.0)])
    assert list(shown.values) == ["0.weight", "2.weight"]
    assert [round(s.value, 6) for s in shown.values.values()] == [1.0, 4.0]
    assert shown.distance == "up to 4× target"


def test_bars_are_as_long_as_their_values():
    bars = [("<us>", 1.0, "1 ms", Look(1)), ("they", 4.0, "4 ms", Look(11))]
    panel = bar_panel("Times", bars, linear_axis(0, 4), size=(400, 100), left=50, right=50)
    svg = ET.fromstring(figure("", [panel], 1))
    ends = [points(bar[0]) for bar in svg.iter(f"{SVG}g") if "bar" in bar.get("class")]
    theirs, ours = (end[0] - start[0] for start, end in ends)
    assert theirs == pytest.approx(4 * ours, rel=0.01)
    assert {"Times", "<us>", "1 ms", "they", "4 ms"} <= {e.text for e in svg.iter(f"{SVG}text")}
