"""Results keep the metrics of their runs, from which they can be made again and checked."""

import gzip
import json
import re
import shutil
from dataclasses import replace
from pkgutil import resolve_name

import pytest
from made_up import rows, write
from test_cifar10_results import BASE, World

from hyperfan.errors import RunError
from hyperfan.experiments import mnist
from hyperfan.experiments.cifar10 import EXPERIMENT, grid
from hyperfan.experiments.cifar10 import claims as cifar10_claims
from hyperfan.experiments.experiment import EXPERIMENTS, experiment
from hyperfan.experiments.mnist.results import MnistRun
from hyperfan.experiments.results.claims import Claim
from hyperfan.experiments.results.record import DIGITS, RECORD_FILE, differences, read_record, write_record
from hyperfan.experiments.results.runs import Runs
from hyperfan.experiments.results.statistics import Estimate
from hyperfan.experiments.results.write import check_index, check_results, write_index, write_results
from hyperfan.files import rounded


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Results of a world in which no number is round, and its runs."""
    root = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10_claims, "kernel_excess", lambda config: 1.0)
        World(spread=0.00212345678).write(root / "runs")
        write_results(EXPERIMENT, root / "runs", root / "cifar10", BASE)
    return root


@pytest.fixture
def out(written, tmp_path, monkeypatch):
    """A copy of the results."""
    monkeypatch.setattr(cifar10_claims, "kernel_excess", lambda config: 1.0)
    return shutil.copytree(written / "cifar10", tmp_path / "cifar10")


def files(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# ── the record ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_from_the_record_are_those_from_the_runs(out, tmp_path):
    write_results(EXPERIMENT, out, tmp_path / "again", BASE)
    assert files(tmp_path / "again") == files(out)
    assert {"README.md", "summary.json", RECORD_FILE, "figures/loss.svg"} < set(files(out))


def test_a_record_has_every_run_of_the_grid_in_its_order(out):
    lines = read_record(out / RECORD_FILE)
    assert [line["config"] for line in lines] == [c.to_dict() for c in grid(BASE)]
    assert all(line["rows"][-1]["kind"] == "end" for line in lines)
    assert all(line["environment"] for line in lines)


def test_numbers_are_rounded_and_stay_so():
    value = {"loss": [1234567.0, 1 / 3, -0.000123456789, None, 123456789, True], "layer": "4"}
    once = rounded(value, DIGITS)
    assert once == {"loss": [1234600.0, 0.33333, -0.00012346, None, 123456789, True], "layer": "4"}
    assert rounded(once, DIGITS) == once


def test_a_record_keeps_how_far_weights_move():
    """By a millionth of their size between two probes: less than the digits of other numbers could tell."""
    deviations = [1.234567 + 1.5e-6 * (i % 2) for i in range(12)]
    run = MnistRun(replace(mnist.Mnist(), epochs=1), rows(deviations=deviations, mean=0.5))
    kept = MnistRun(run.config, run.to_dict()["rows"])
    for of in ("mean", "deviation"):
        for relative in (True, False):
            assert kept.restless(of, relative) == pytest.approx(run.restless(of, relative), rel=0.02)  # 1e-8 of 1.5e-6


def test_a_record_keeps_what_is_drawn_of_the_first_run_alone():
    configs = [replace(mnist.Mnist(epochs=1), seed=seed) for seed in (4, 5)]
    runs = Runs(mnist.EXPERIMENT, [MnistRun(c, rows()) for c in configs])
    first, second = ({(row["kind"], row.get("of")) for row in line["rows"]} for line in runs.recorded(configs)[1])
    assert first == {(row["kind"], row.get("of")) for row in rows()}
    assert first - second == {(kind, of) for kind, of in first if kind == "histograms" or of not in (None, "weights")}
    assert ("moments", "weights") in second
    assert ("moments", "activations") in first - second


def test_a_record_keeps_the_biases_of_the_first_run_alone():
    moments = {"kind": "moments", "step": 0, "of": "weights", "layers": {"0.weight": [0.0, 1.0], "0.bias": [0.0, 2.0]}}
    configs = [replace(mnist.Mnist(epochs=1), seed=seed) for seed in (4, 5)]
    runs = Runs(mnist.EXPERIMENT, [MnistRun(c, [moments, *rows()]) for c in configs])
    kept = [list(line["rows"][0]["layers"]) for line in runs.recorded(configs)[1]]
    assert kept == [["0.weight", "0.bias"], ["0.weight"]]


def test_a_record_leaves_the_diagnosis_to_the_runs_own_page():
    made = [{"kind": "diagnosis", "step": 0, "report": "long"}, *rows()]
    kept = MnistRun(mnist.Mnist(epochs=1), made).to_dict()["rows"]
    assert {row["kind"] for row in kept} == {row["kind"] for row in made} - {"diagnosis"}


def test_a_run_that_is_not_of_the_grid_is_not_kept(out, tmp_path):
    other = replace(BASE, seed=77)
    write(out, other, World().rows(other))
    write_results(EXPERIMENT, out, tmp_path / "again", BASE)
    assert read_record(tmp_path / "again" / RECORD_FILE) == read_record(out / RECORD_FILE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "cannot be read as a record of runs"),
        (gzip.compress(b'{"config": 1')[:-9], "cannot be read as a record of runs"),
        (gzip.compress(b"x")[:10] + b"\xff" * 20, "cannot be read as a record of runs"),
        (gzip.compress(b'{"config": 1'), "cannot be read as a record of runs"),
        (gzip.compress(b'{"config": {}, "rows": []}\n'), "is damaged: line 1 should hold config, environment, rows"),
        (gzip.compress(b"[]\n"), "is damaged: line 1 should hold config, environment, rows"),
        (gzip.compress(b'{"config": {}, "environment": {}, "rows": []}\n'), "not the configuration of a known"),
    ],
    ids=["no gzip", "cut off", "bits", "no JSON", "no environment", "a list", "no experiment"],
)
def test_a_damaged_record_is_one_clear_line(out, content, message):
    (out / RECORD_FILE).write_bytes(content)
    with pytest.raises(RunError) as caught:
        check_results(EXPERIMENT, out)
    assert str(caught.value).startswith(str(out / RECORD_FILE))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_of_another_experiment_is_refused(out):
    config = mnist.Mnist(epochs=1)
    write_record(out / RECORD_FILE, [MnistRun(config, rows()).to_dict()])
    with pytest.raises(RunError, match="it holds runs of mnist, not of cifar10"):
        Runs.read(out, EXPERIMENT)
    with pytest.raises(RunError, match="has results of cifar10, not of mnist"):
        check_results(mnist.EXPERIMENT, out)


# ── the check ──────────────────────────────────────────────────────────────────────────────────────────────────────


def changed(file, old, new):
    text = file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))


def test_untouched_results_follow_from_their_runs(out):
    assert check_results(EXPERIMENT, out) == []


def test_a_changed_number_in_the_summary_is_found(out):
    summary = json.loads((out / "summary.json").read_text())
    row = next(row for row in summary["settings"] if row["batches"] == BASE.total)
    was, row["training loss"] = row["training loss"], row["training loss"] * 1.001
    at = summary["settings"].index(row)
    (out / "summary.json").write_text(json.dumps(summary))
    assert check_results(EXPERIMENT, out) == [
        f"summary.json: settings[{at}]: training loss is {was * 1.001:.6g} and comes out as {was:.6g}"
    ]


def test_a_changed_number_in_the_page_is_found(out):
    (facts,) = set(re.findall(r"(\d+) of \1 facts", (out / "README.md").read_text()))
    changed(out / "README.md", f"{facts} of {facts} facts", f"7 of {facts} facts")
    (found,) = check_results(EXPERIMENT, out)
    was, comes_out = f"7 of {facts} facts", f"{facts} of {facts} facts"
    assert re.fullmatch(rf"README\.md, line \d+ is '.*{was}.*' and comes out as '.*{comes_out}.*'", found)


def test_what_is_missing_or_not_from_the_runs_is_found(out):
    (out / "figures" / "rates.svg").unlink()
    (out / "figures" / "more.svg").write_text("<svg/>")
    assert check_results(EXPERIMENT, out) == [
        "figures/more.svg does not come from the runs", "figures/rates.svg is missing"]  # fmt: skip


def test_a_changed_figure_is_found(out):
    changed(out / "figures" / "loss.svg", "Kaiming fan-in", "Kaiming fan-on")
    assert check_results(EXPERIMENT, out) == ["figures/loss.svg differs"]


def test_a_run_that_was_taken_out_of_the_record_is_found(out):
    write_record(out / RECORD_FILE, read_record(out / RECORD_FILE)[:-1])
    found = check_results(EXPERIMENT, out)
    assert f"summary.json: missing is [] and comes out as ['{grid(BASE)[-1].title}']" in found
    assert any(line.startswith("README.md has") for line in found)


def test_results_without_a_record_cannot_be_checked(out):
    (out / RECORD_FILE).unlink()
    with pytest.raises(RunError, match=r"keeps no metrics of its runs, runs\.jsonl\.gz"):
        check_results(EXPERIMENT, out)


def test_a_summary_that_does_not_say_what_it_is_about(out):
    (out / "summary.json").write_text("{}")
    with pytest.raises(RunError, match=r"summary\.json does not say which runs it is about"):
        check_results(EXPERIMENT, out)


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("0.123 [0.1, 0.2]", "0.124 [0.1, 0.2]", False),  # the last digit, which another CPU may round otherwise
        ("0.123 [0.1, 0.2]", "0.125 [0.1, 0.2]", True),
        ("1.5e−06", "1.6e−06", False),
        ("1.5e-06", "1.5e-05", True),
        ("784 [780, 790]", "785 [780, 790]", False),
        ("n = 10", "n = 9", True),  # a count
        ("| 3 |", "|  |", True),
        ("holds", "does not hold", True),
        ("a\nb", "a\nb\nc", True),
    ],
)
def test_numbers_may_differ_in_their_last_digit_but_counts_may_not(tmp_path, old, new, differs):
    for name, text in (("a", old), ("b", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(text)
    assert bool(list(differences(tmp_path / "a", tmp_path / "b"))) is differs


def test_summaries_are_compared_value_by_value(tmp_path):
    old = {"environment": {"torch": "1"}, "facts": {"x": True}, "n": 3, "value": 1.0, "list": [1.0, None]}
    new = {"environment": {"torch": "2"}, "facts": {"x": None}, "n": 2, "value": 1.00001, "list": [1.0]}
    for name, content in (("a", old), ("b", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(content))
    assert list(differences(tmp_path / "a", tmp_path / "b")) == [
        "summary.json: facts: x is True and comes out as None",
        "summary.json: list is [1.0, None] and comes out as [1.0]",
        "summary.json: n is 3 and comes out as 2",
    ]


TITLE_LETTERS = 40
"""A line of the index is one on a page, which has some 125 letters, if title and number take no more than 90."""


# ── the table of all claims ────────────────────────────────────────────────────────────────────────────────────────


def claims(*names):
    out = []
    for name in names:
        claim = Claim(name, f"title of {name}", f"statement of {name}", headline=f"number of {name}")
        claim.measure("value", Estimate.of([1.0, 2.0]))
        claim.facts = {"a": True, "b": False}
        claim.halves = [Claim(name, "", "", facts={"a": x}) for x in (True, False)]
        out.append(claim)
    return out


def summaries(root, **found):
    for name, told in found.items():
        (root / name).mkdir()
        (root / name / "summary.json").write_text(json.dumps({"claims": [c.to_dict() for c in told]}))
        (root / name / "README.md").write_text("".join(f"## {c.name}\n" for c in told))


def tables(page):
    """The header and the rows of the paper's claims, and of others."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
        found.append((cells[0], cells[2:]))
    return found


def test_the_index_has_all_claims_in_order_with_working_links(tmp_path):
    summaries(
        tmp_path,
        mnist=claims("C1", "C2", "C12", "C15"),
        continual=claims("C7", "C15", "C16"),
        cifar10=claims("C9"),
        imagenet=claims("C10", "C11", "BN"),
    )
    write_index(tmp_path)
    (head, papers), (_, others) = tables((tmp_path / "README.md").read_text())
    links = [re.fullmatch(r"\[(\w+)\]\((\w+/README.md)#(.*)\)", cells[0]).groups() for cells in papers + others]
    names = ["C1", "C2", "C7", "C9", "C10", "C11", "C12", "C15", "C15", "C16", "BN"]
    assert [name for name, *_ in links] == names
    assert len(others) == 1
    for name, page, anchor in links:
        assert f"## {anchor.upper()}\n" == f"## {name}\n"
        assert f"## {name}\n" in (tmp_path / page).read_text()
    assert head[3] == "the number that decides"
    assert papers[0][1:] == ["title of C1", "**in part** 1/2", "number of C1", "holds / fails, differ"]


def test_the_index_follows_when_results_change(tmp_path):
    summaries(tmp_path, mnist=claims("C1"))
    write_index(tmp_path)
    summaries(tmp_path, cifar10=claims("C9"))
    write_index(tmp_path)
    ((_, papers),) = tables((tmp_path / "README.md").read_text())
    assert len(papers) == 2


def test_the_index_shows_results_of_an_older_version_as_far_as_they_go(tmp_path):
    (tmp_path / "mnist").mkdir()
    told = {"claims": [{"name": "C1", "statement": "so it is", "verdict": "holds"}]}
    (tmp_path / "mnist" / "summary.json").write_text(json.dumps(told))
    write_index(tmp_path)
    ((_, papers),) = tables((tmp_path / "README.md").read_text())
    assert papers[0][1:] == ["so it is", "**holds**", "", ""]


def test_a_claim_without_its_runs_says_so_and_sections_without_claims_are_left_out(tmp_path):
    summaries(tmp_path, mnist=[Claim("C1", "title", "statement")])
    write_index(tmp_path)
    page = (tmp_path / "README.md").read_text()
    ((_, papers),) = tables(page)
    assert papers[0][1:] == ["title", "**open**", "its runs are missing", ""]
    assert "Other claims" not in page


def test_titles_of_claims_are_short_and_each_has_its_own():
    titles = [title for name in EXPERIMENTS for title, *_ in resolve_name(experiment(name).results).claims.values()]
    assert len(titles) == len({*titles}) > 25
    assert max(map(len, titles)) <= TITLE_LETTERS, max(titles, key=len)


@pytest.mark.parametrize("mine", ["mine", "# Claims\nthat I make\n", "# Claims I make\n"])
def test_a_page_that_is_no_index_is_never_overwritten(tmp_path, mine):
    summaries(tmp_path, mnist=claims("C1"))
    (tmp_path / "README.md").write_text(mine)
    write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == mine
    assert check_index(tmp_path) == []


def test_without_results_there_is_no_index(tmp_path):
    write_index(tmp_path)
    assert not list(tmp_path.iterdir())
