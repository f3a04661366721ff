"""The folder of results, and a single run's page."""

import json
import re
from dataclasses import replace

import pytest
from made_up import rows, write
from test_mnist_claims import BASE, World

from hyperfan.errors import RunError
from hyperfan.experiments.mnist import EXPERIMENT, Mnist, grid
from hyperfan.experiments.mnist.claims import CLAIMS
from hyperfan.experiments.mnist.results import MnistResults, paper_figures
from hyperfan.experiments.results.write import write_results, write_summary

PAPER_TITLES = """\
Loss and Test Accuracy Plots on MNIST
Mainnet Activations before the Start of Training on MNIST
Evolution of Mainnet Activations during Training on MNIST
Mainnet Activations at the End of Training on MNIST
Mainnet Gradients before the Start of Training on MNIST
Evolution of Mainnet Gradients during Training on MNIST
Mainnet Gradients at the End of Training on MNIST
Hypernet Output Layer Activations before the Start of Training on MNIST
Evolution of Hypernet Output Layer Activations during Training on MNIST
Hypernet Output Layer Activations at the End of Training on MNIST
Hypernet Output Layer Gradients before the Start of Training on MNIST
Evolution of Hypernet Output Layer Gradients during Training on MNIST
Hypernet Output Layer Gradients at the End of Training on MNIST
""".splitlines()


def test_thirteen_figures_under_the_papers_titles():
    from hyperfan.report import settings

    made = settings({"hyperfan-in": [rows()], "Xavier fan-in": [rows(scale=100.0)]})
    drawn = dict(paper_figures(made, Mnist()))
    assert [re.search("<title>(.*?)</title>", f)[1] for f in drawn.values()] == PAPER_TITLES
    both = dict(paper_figures(made, Mnist(generate="weights+biases")))
    assert list(both) == list(drawn)
    panels = {name: f.count('class="title"') for name, f in both.items()}
    assert panels["hypernet-output-layer-activations-before"] == 12  # weights and biases
    assert panels["mainnet-activations-before"] == 6


@pytest.fixture
def runs_dir(tmp_path):
    world = World()
    for c in grid(BASE)[:-1]:  # the last is missing
        write(tmp_path / "runs", c, world.run(c))
    return tmp_path / "runs"


def test_results_say_what_was_found_and_what_is_missing(runs_dir, tmp_path, monkeypatch):
    # Starts need real images; test_mnist_starts has their numbers.
    monkeypatch.setattr(MnistResults, "starts", lambda self, **changes: World().starts(replace(BASE, **changes)))
    monkeypatch.setattr(MnistResults, "figures", lambda self: iter(()))
    out = tmp_path / "results"
    out.mkdir()
    write_results(EXPERIMENT, runs_dir, out, BASE)
    summary = json.loads((out / "summary.json").read_text())
    missing = grid(BASE)[-1]
    assert summary["missing"] == [missing.title]
    assert [c["name"] for c in summary["claims"]] == list(CLAIMS)
    assert sum(len(row["seeds"]) for row in summary["settings"]) == len(grid(BASE)) - 1
    page = (out / "README.md").read_text()
    for claim in summary["claims"]:
        section = page.split(f"## {claim['name']}\n")[1].split("\n## ")[0]
        assert f"**Verdict: {claim['verdict']}**, {claim['counts']}." in section
    assert f"Not run yet: {missing.title}." in page
    assert {"value", "n", "low", "high"} <= set(
        summary["claims"][0]["measured"].popitem()[1]["estimate"]
    )  # numbers, not words
    before = page
    with pytest.raises(RunError, match="holds results already: --overwrite"):
        write_results(EXPERIMENT, runs_dir, out, BASE)
    assert (out / "README.md").read_text() == before


def test_a_runs_page_holds_its_charts_and_runs_nothing_it_was_given(tmp_path):
    folder = write(tmp_path, Mnist(epochs=1), rows())
    page, says = write_summary(folder)
    text = page.read_text()
    assert says.startswith("90.00% of the test images right")
    assert "<img " not in text
    assert text.count('role="img"') == 3 + 3 * (2 * 6 + 2 * 12)  # losses; then evolution and two histograms of each
    assert "http" not in text.replace("http-equiv", "")
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "90.00% of the test images right after 1 epochs" in text
    assert len(list((folder / "figures").glob("*.svg"))) == len(list((folder / "figures").iterdir())) == 13


def test_a_run_that_diverged_says_where(tmp_path):
    folder = write(tmp_path, Mnist(epochs=1), rows(outcome="diverged"))
    assert "Diverged at batch 8; the first to overflow was layer &#x27;4&#x27;." in write_summary(folder)[0].read_text()


def test_results_are_not_written_over_other_files(runs_dir, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunError, match=r"holds files and no summary\.json"):
        write_results(EXPERIMENT, runs_dir, tmp_path, BASE, overwrite=True)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_what_is_missing_is_said_before_anything_takes_time(tmp_path):
    told = []
    with pytest.raises(RunError, match="there is no finished run 'classical seed-0 epochs-2'"):
        write_results(EXPERIMENT, tmp_path / "nowhere", tmp_path / "out", BASE, told.append)
    assert told == [f"0 of {len(grid(BASE))} runs are in {tmp_path / 'nowhere'}"]
    assert not (tmp_path / "out").exists()
