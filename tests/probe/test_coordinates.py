"""The coordinate check: scales of layers over widths and depths, as a table, a picture and a verdict."""

import dataclasses
import importlib.util
import itertools
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from patients import zero_biases
from torch import nn

import hyperfan as hf
from hyperfan.charts.coordinates import coordinate_panels
from hyperfan.charts.scale import Interval
from hyperfan.errors import HyperfanError
from hyperfan.probe.trends import LAST_LAYER, Size, along_size, ratio
from hyperfan.report import coordinate_page

WIDTHS = (32, 64, 128)
X, Y = torch.randn(60, 64, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 10


def mlp(width: int, depth: int = 3) -> nn.Sequential:
    widths = [64, *[width] * (depth - 1), 10]
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def of_one_std(width: int, depth: int = 3) -> dict[str, object]:
    """Weights whose std is right where the fan-in is 64, whatever the width: each net alone is within tolerance."""
    main = zero_biases(mlp(width, depth))
    gains = {"0.weight": 1.0}  # it reads inputs, the others what ReLU has halved
    shapes = {n: p.shape for n, p in main.named_parameters() if p.ndim == 2}
    heads = {n: nn.Parameter(torch.randn(shape)) for n, shape in shapes.items()}
    return {
        "net": main,
        "generated": lambda: {n: head * math.sqrt(gains.get(n, 2.0) / 64) for n, head in heads.items()},
    }


@pytest.fixture(scope="module")
def healthy():
    torch.manual_seed(0)
    return hf.diagnose(lambda width, depth: hf.HyperNet(mlp(width, depth), 16), X, Y, widths=WIDTHS, depths=(2, 4))


@pytest.fixture(scope="module")
def sick():
    torch.manual_seed(0)
    return hf.diagnose(of_one_std, X, widths=WIDTHS)


def test_hyperfan_depends_on_neither(healthy):
    assert list(healthy.diagnoses) == [Size(w, d) for d in (2, 4) for w in WIDTHS]
    assert [f.name for f in healthy.findings if f.severity != "note"] == []
    assert healthy.healthy
    assert healthy.summary.startswith("Healthy: no layer's scale depends on the width or the depth; ")
    # Two and four layers along the width, and one end of the net at each of three widths; each forward and backward.
    assert len(healthy.trends) == 2 * (2 + 4) + 2 * 3
    assert all(t.low < t.slope < t.high for t in healthy.trends)


def test_a_scale_that_fits_one_width_is_found_though_each_net_passes(sick):
    """The hidden layer that reads 'width' values has rms ∝ √width; the last adds a factor √width of its own."""
    assert all(seen.healthy for seen in sick.diagnoses.values())
    assert not sick.healthy
    assert {f.name for f in sick.findings} == {"scale that depends on the width"}
    slopes = {t.layer: t for t in sick.trends if t.of == "activations"}
    for layer, exponent in {"0": 0.0, "2": 0.5, "4": 1.0}.items():
        assert slopes[layer].low < exponent < slopes[layer].high
        assert slopes[layer].dependent == (exponent > 0)
    found = sick.findings[0]
    assert found.where == ("2", "4")
    assert "hyperfan.init.hyperfan_in_uniform_" in found.remedy
    assert "the output of '4' goes as width^" in found.evidence


def test_a_factor_per_layer_is_found_along_the_depth():
    torch.manual_seed(0)
    check = hf.diagnose(lambda depth: of_one_std(128, depth), X, Y, depths=(2, 3, 5))
    (trend,) = (t for t in check.trends if t.of == "activations")
    # Each further layer reads 128 values instead of 64, as the last does from the start on.
    assert trend.low < math.log(2) / 2 < trend.high
    assert next(f.name for f in check.findings if f.where == ()) == "scale that depends on the depth"


def test_findings_of_the_nets_are_told_once_with_their_sizes():
    torch.manual_seed(0)
    check = hf.diagnose(lambda width: hf.HyperNet(mlp(width), 16, init="kaiming-fan-in"), X, Y, widths=(16, 32), lr=0.1)
    wrong = [f for f in check.findings if f.name == "wrong scale of a head"]
    assert len(wrong) == 1
    assert wrong[0].evidence.startswith("at 2 of 2 sizes; at width 16: ")
    assert check.findings[0] == wrong[0]


def test_the_slope_is_that_of_a_line_through_the_ratios(sick):
    """Of three sizes at equal steps of log(width), the slope is half the difference of the ends."""
    found = along_size(sick.diagnoses, "width", None, "activations", "2")
    assert found == {w: ratio(sick.diagnoses[Size(w, None)].layers[1], "activations") for w in WIDTHS}
    trend = next(t for t in sick.trends if (t.of, t.layer) == ("activations", "2"))
    assert trend.slope == pytest.approx(math.log(found[128].value / found[32].value) / math.log(4))
    reach = math.hypot(*(math.log(found[w].high / found[w].value) for w in (32, 128))) / math.log(4)
    assert (trend.low, trend.high) == pytest.approx((trend.slope - reach, trend.slope + reach))


def test_no_layer_stands_in_for_a_last_one_that_overflows(healthy):
    size = Size(WIDTHS[0], 4)
    *layers, last = healthy.diagnoses[size].layers
    measured = dataclasses.replace(last.measured, value=math.inf)
    overflows = dataclasses.replace(
        healthy.diagnoses[size], layers=(*layers, dataclasses.replace(last, measured=measured))
    )
    found = along_size({**healthy.diagnoses, size: overflows}, "depth", WIDTHS[0], "activations", LAST_LAYER)
    assert math.isfinite(found[2].value)
    assert not math.isfinite(found[4].value)


def test_what_cannot_be_measured_has_no_slope():
    torch.manual_seed(0)

    def silent(width):
        net = hf.HyperNet(mlp(width), 16)
        torch.nn.init.zeros_(net.heads.head(f"10x{width}").weight)
        return net

    check = hf.diagnose(silent, X, Y, widths=(16, 32))
    slopes = {t.layer: t for t in check.trends if t.of == "activations"}
    assert math.isnan(slopes["4"].slope)
    assert not slopes["4"].dependent
    assert not check.healthy  # by the dead head
    assert json.loads(json.dumps(check.to_dict(), allow_nan=False))["trends"][2]["slope"] is None


def test_the_picture_shows_every_layer_and_the_plain_nets(sick, healthy):
    outputs, gradients = coordinate_panels(sick.panels())
    assert [c.label for c in outputs.curves] == ["plain nets", "layer 0", "layer 2", "layer 4"]
    line = next(c for c in outputs.curves if c.label == "layer 4")
    assert [round(2**x) for x, _ in line.points] == list(WIDTHS)
    assert [y for _, y in line.points] == [r.value for r in sick.panels()[0].curves["4"].values()]
    assert "Gradients" in gradients.title
    titles = [panel.title for panel in coordinate_panels(healthy.panels())]
    assert titles[:2] == ["Outputs, depth 2, over plain nets", "Gradients, depth 2, over plain nets"]
    assert titles[-2:] == [
        "Outputs at the last layer, over plain nets",
        "Gradients at the first layer, over plain nets",
    ]
    ET.fromstring(healthy.chart("A title"))
    for check in (sick, healthy):
        assert "data:image/svg+xml" in check._repr_html_()
        assert check.summary in str(check)
    assert "DEPENDS" in str(sick)
    assert "DEPENDS" not in str(healthy)
    page = coordinate_page(sick, {"torch": "2"})
    assert page.count('<div class="panel">') == 2
    assert "scale that depends on the width" in page


def test_a_curve_of_missing_values_is_drawn_with_a_gap_and_the_band_is_that_of_the_layer_that_scatters_most():
    nan = Interval(math.nan, math.nan, math.nan)
    from hyperfan.charts.coordinates import AlongPanel, coordinate_chart

    seen = {"0": nan, "1": Interval(3, 1.5, 6), "2": Interval(1, 0.9, 1.1)}
    panel = AlongPanel("width", None, "activations", {layer: {8: at, 16: nan} for layer, at in seen.items()})
    ET.fromstring(coordinate_chart([panel]))
    assert coordinate_panels([panel])[0].curves[0].band == [(0.5, 2.0), (1.0, 1.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (64,)}, "compares sizes: give two or more"),
        ({"widths": (64, 64)}, "different positive integers"),
        ({"depths": (0, 2)}, "different positive integers"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, message):
    with pytest.raises(HyperfanError, match=message):
        hf.diagnose(lambda **_: mlp(8), X, Y, **options)


def test_nets_and_functions_are_not_mistaken_for_each_other():
    net = hf.HyperNet(mlp(8), 4)
    with pytest.raises(HyperfanError, match="this HyperNet has one: pass a function"):
        hf.diagnose(net, X, Y, widths=(8, 16))
    with pytest.raises(HyperfanError, match="a function is no module: pass a net, or, with a function"):
        hf.diagnose(lambda width: net, X, Y)
    with pytest.raises(HyperfanError, match="a diagnosis needs inputs"):
        hf.diagnose(net)


def test_what_a_factory_returns_is_used_or_refused():
    def make(width):
        net = hf.HyperNet(nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)), 5)
        return net, torch.randn(8, 4), None, nn.functional.l1_loss

    with pytest.raises(hf.HyperfanError, match="4 values were returned"):
        hf.diagnose(make, widths=(8, 16))


def test_the_pages_code_runs_and_its_pictures_are_there():
    path = Path(__file__).parents[2] / "docs" / "coordinate_figure.py"
    spec = importlib.util.spec_from_file_location("coordinate_figure", path)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    found = page.checks()
    assert found["healthy"].healthy
    assert found["sick"].findings[0].name == "scale that depends on the width"
    for name in page.TITLES:
        picture = page.PAGE.with_name(f"coordinate-check-{name}.svg")
        assert picture.name in page.PAGE.read_text(encoding="utf-8")
        assert page.TITLES[name] in picture.read_text(encoding="utf-8").replace("&#x27;", "'")
