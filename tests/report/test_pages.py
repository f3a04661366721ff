"""What the pages say, that nothing in them is run, and that they stay small."""

import base64
import html as html_module
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from made_up import rows
from readings import BAD, EXPLODES, HOT, NOTE, diagnosis, layer, tensor
from test_charts import ODD
from torch import nn

import hyperfan as hf
from hyperfan.charts.axis import linear_axis
from hyperfan.charts.markup import tag, text
from hyperfan.charts.palette import INITS
from hyperfan.charts.panel import Curve, Panel
from hyperfan.probe.diagnosis import PartReading
from hyperfan.probe.findings import Finding
from hyperfan.probe.moments import Scale
from hyperfan.report import RunData, Section, diagnosis_page, run_page, scale_chart
from hyperfan.report.page import page, switches

EVIL = "</script><script>alert(1)</script>"
WORSE = "\"><img src=x onerror='alert(2)'>"


def texts(html):
    """What stands between the tags, apart from style and script."""
    return re.sub(r"<[^>]*>", "\n", re.sub(r"<(style|script)[ >].*?</\1>", "", html, flags=re.S))


def evil_diagnosis():
    bad = Finding(EVIL, "error", (WORSE, EVIL), EVIL, WORSE, f"{EVIL} or {WORSE}")
    return diagnosis(
        net=EVIL,
        theory=WORSE,
        layers=(layer(0, layer=EVIL, kind=WORSE), layer(1, layer=WORSE)),
        tensors=(tensor(0, tensor=WORSE, role=EVIL, head=EVIL, equation=WORSE),),
        parts=(PartReading(EVIL, 3, 1.0, None),),
        findings=(bad,),
    )


def evil_run():
    made = rows()
    for row in made:
        if "layers" in row:
            row["layers"] = {EVIL if k[0] == "0" else WORSE: v for k, v in row["layers"].items() if k[0] in "02"}
    x = linear_axis(0, 1)
    own = Section(EVIL, WORSE, [Panel(EVIL, [Curve(WORSE, [(0, 0), (1, 1)], switches=(EVIL,))], x, x, WORSE)])
    config = {EVIL: WORSE, WORSE: [EVIL], "lone surrogate": "\ud800", "control": "\x00"}
    made = [{"kind": "diagnosis", "step": 0, **evil_diagnosis().to_dict()}, *made]
    return RunData(EVIL, made, config, {WORSE: EVIL}, {EVIL: 1.0}, WORSE, EVIL, sections=[own])


@pytest.mark.parametrize(
    "html",
    [diagnosis_page(evil_diagnosis(), {EVIL: WORSE}), run_page([evil_run()]), run_page([evil_run(), evil_run()])],
    ids=["diagnosis", "run", "two runs"],
)
def test_hostile_names_are_shown_and_not_run(html):
    assert html.count("<script") == html.count("</script>") == 1
    assert "<img" not in html
    shown = texts(html)
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "&quot;&gt;&lt;img src=x onerror=&#x27;alert(2)&#x27;&gt;" in shown
    html.encode("utf-8")


def test_nothing_becomes_markup_unescaped():
    assert tag("p", text("<b>"), title='"<') == '<p title="&quot;&lt;">&lt;b&gt;</p>'


def test_a_page_forbids_all_but_its_own_script():
    html = page("title", [])
    assert "default-src &#x27;none&#x27;" in html
    assert not re.search(r"(src|href)=", html)
    assert "http" not in html.replace("http-equiv", "")


# ── diagnoses ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_diagnosis_says_what_is_wrong_and_how_to_mend_it():
    html = diagnosis_page(diagnosis(BAD, [EXPLODES, HOT, NOTE]), {"torch": "2.13"})
    shown = texts(html)
    for said in (
        "Exploding activations in &#x27;0&#x27;, &#x27;2&#x27;, &#x27;4&#x27;, and 1 more.",
        "✖ error",
        "▲ warning",
        "ℹ note",
        "mean square 478 where hyperfan-in predicts 0.61",
        "up to 77× theory",
        "σ 22",
        "12,750,000",
        "loss 2.41 (guessing has 2.3)",
        "allows a learning rate of 0.0123",
        "2.13",
    ):
        assert said in shown
    assert "<code>hf.HyperNet(mainnet, 50, init=&#x27;hyperfan-in&#x27;)</code>" in html
    assert "<code>hf.SGD(net, lr=5e-4)</code>" in html


def test_a_healthy_net_has_no_findings():
    shown = texts(diagnosis_page(diagnosis()))
    assert "Healthy: 6 layers have a target, and are like those of plain nets that hyperfan-in starts." in shown
    assert "None: nothing is out of place." in shown
    assert "Environment" not in shown


def test_another_init_is_shown_beside_it():
    html = diagnosis_page(diagnosis(BAD, [EXPLODES]), others={EVIL: diagnosis()})
    assert html.count("within 1.03× of theory") == 1
    assert "With &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;: </b>Healthy: 6 layers" in html
    assert html.count('data-switch="row-') == 2


def test_values_that_are_no_numbers_are_said():
    odd = diagnosis(
        layers=tuple(ODD),
        tensors=(tensor(0, realised=Scale(math.nan, 0.0, math.inf), gradient=math.nan), tensor(1, target=None)),
        parts=(PartReading("trunk", 1, math.inf, math.nan),),
        loss=math.nan,
        expected_loss=math.inf,
        stable_rate=0.0,
    )
    html = diagnosis_page(odd)
    shown = texts(html)
    assert "Not on the axis: measured of &#x27;0&#x27; is infinite" in shown
    assert "Without a target: 2.weight." in shown
    assert "loss no number (guessing has infinite)" in shown
    assert not re.search(r'="[^"]*\b(nan|inf)\b', html)


# ── notebooks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def picture(html):
    return base64.b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', html)[1]).decode()


def test_a_notebook_shows_findings_above_the_scale_of_every_layer():
    html = diagnosis(BAD, [EXPLODES])._repr_html_()
    assert html.index("exploding activations") < html.index("<img ")
    assert "<code>hf.HyperNet(mainnet, 50, init=&#x27;hyperfan-in&#x27;)</code>" in html
    assert picture(html) == scale_chart({"measured": diagnosis(BAD).layers})
    assert "out of place" not in diagnosis()._repr_html_()


def test_a_notebook_shows_a_plan_as_a_table():
    plan = hf.HyperNet(nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)), 4).plan
    shown = html_module.unescape(texts(plan._repr_html_())).split("\n")
    assert {plan.title, *(cell for row in plan.rows for cell in (row.tensor, row.equation))} <= set(shown)


def test_what_a_notebook_shows_is_escaped_and_styles_nothing_else():
    plan = hf.HyperNet(nn.Sequential(nn.Linear(7, 5)), 4).plan
    plan = replace(plan, method=EVIL, rows=(replace(plan.rows[0], tensor=EVIL, equation=WORSE),))
    for html in (evil_diagnosis()._repr_html_(), plan._repr_html_()):
        assert "<script" not in html
        assert "<img src=x" not in html
        assert "&lt;script&gt;alert(1)" in html
        (style,) = re.findall("<style>(.*?)</style>", html, re.S)
        assert all(part.strip().startswith(".hyperfan ") for part in re.split(r"\{[^}]*\}|,", style) if part.strip())
    ET.fromstring(picture(evil_diagnosis()._repr_html_()))


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(name="a", **changes):
    return replace(
        RunData(name, rows(), {"init": name, "seed": 0}, {"torch": "2.13"}, stage=("epoch", 6000)), **changes
    )


def test_a_run_shows_what_it_has():
    shown = texts(run_page([run(times={"training": 600.0, "batches": 6000})]))
    for said in ("Finished after batch 6,000; training loss 1; 90.00% of the test images right.", "Training loss",
                 "Test accuracy", "epoch", "layer 0", "0.weight", "10.bias", "σ 2", "10 min", "2.13"):  # fmt: skip
        assert said in shown


def seen_at_the_start(name, factor):
    seen = diagnosis(layers=tuple(layer(i, factor) for i in range(6)))
    return run(name, rows=[{"kind": "diagnosis", "step": 0, **seen.to_dict()}, *rows()])


def test_a_colour_means_the_same_init_on_every_page():
    for runs in ([run("hyperfan-in")], [run("m2"), run("hyperfan-in"), run("m3")]):
        (classes,) = set(re.findall(r'class="series ([^"]*)" [^>]*data-label="hyperfan-in"', run_page(runs)))
        assert classes == INITS["hyperfan-in"].classes


def test_a_run_that_was_diagnosed_shows_findings_and_the_scale_of_its_layers():
    runs = [run("classical"), seen_at_the_start("good one", 1.0), seen_at_the_start("bad one", 40.0)]
    shown = texts(run_page(runs))
    assert "Before training: good one" in shown
    assert "Before training: bad one" in shown
    assert "Before training: classical" not in shown
    assert "Scale by layer" in shown
    assert "within 1.01× of theory" in shown
    html = run_page(runs)
    assert re.search(r'class="series [^"]*" data-in="run-2" data-label="bad one"', html)  # its run's switch, and colour
    assert "Scale by layer" not in texts(run_page([run()]))


def test_a_run_without_a_probe_or_without_anything_is_shown_as_far_as_it_goes():
    bare = [r for r in rows() if r["kind"] in ("train", "test", "end")]
    assert "Activations" not in run_page([run(rows=bare)])
    nothing = texts(run_page([run(rows=[])]))
    assert "Not finished: it has come to batch 0." in nothing
    assert "No losses were recorded." in nothing
    cut = texts(run_page([run(rows=[*bare[:-1], {"kind": "strange", "step": 7000}])]))
    assert "Not finished: it has come to batch 7,000" in cut


def test_a_run_that_diverged_says_where_and_losses_that_are_no_numbers_are_gaps():
    gone = [{"kind": "test", "step": 0, "loss": None, "accuracy": 0.1}, {"kind": "train", "step": 1, "loss": None}]
    html = run_page([run(rows=[*gone, {"kind": "end", "step": 2, "outcome": "diverged", "layer": "4"}])])
    assert "Diverged at batch 3; the first to overflow was layer &#x27;4&#x27;." in html
    assert "Test accuracy" in html
    assert "Training loss" not in html


def test_settings_that_differ_come_first_and_are_marked():
    html = run_page([run("a"), run("b", environment={"torch": "2.14"})])
    cells = re.findall(r'<tr( class="marked")?><th scope="row">(.*?)</th>', html)
    assert cells == [(' class="marked"', "≠ init"), ("", "seed"), (' class="marked"', "≠ torch")]


def test_runs_that_count_differently_are_counted_in_batches():
    html = run_page([run("a"), run("b", stage=("epoch", 10))])
    assert ">batch</text>" in html
    assert ">epoch</text>" not in html


def test_a_single_thing_has_no_switch():
    assert switches({"Runs": [("run-0", "a", 0)], "Layers": []}) == ""


def long_run(epochs=30, layers=6):
    """As long as one of the paper's, with all that the MNIST experiment records."""
    draw = random.Random(0)
    made = []
    for step in range(0, epochs * 6000 + 1, 100):
        made.append({"kind": "train", "step": step, "loss": draw.lognormvariate(0, 3)})
        if step % 6000 == 0:
            made.append({"kind": "test", "step": step, "loss": draw.random() * 1e4, "accuracy": draw.random()})
        for of in ("activations", "gradients", "weights", "weight gradients") if step % 1000 == 0 else ():
            names = [f"{2 * i}{end}" for i in range(layers) for end in ((".weight", ".bias") if "w" in of else ("",))]
            moments = {n: [draw.gauss(0, 1e-3), draw.lognormvariate(0, 3)] for n in names}
            made.append({"kind": "moments", "step": step, "of": of, "layers": moments})
            if step in (0, epochs * 6000):
                bins = {"centre": 0.1, "unit": 0.05, "reach": 4.0, "counts": [draw.randrange(5000) for _ in range(81)]}
                made.append({"kind": "histograms", "step": step, "of": of, "layers": dict.fromkeys(names, bins)})
    return json.loads(json.dumps([*made, {"kind": "end", "step": epochs * 6000, "outcome": "finished"}]))


def test_the_page_of_a_30_epoch_run_is_under_3_mb():
    html = run_page([run(rows=long_run())])
    assert len(html.encode()) < 1e6  # a third, so that three runs beside each other stay below it too
