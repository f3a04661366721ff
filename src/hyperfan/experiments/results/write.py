"""Writes what people see of runs: the page and figures of a finished run, and the results of an experiment."""

import copy
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, Self, TypeVar

from hyperfan.errors import RunError
from hyperfan.experiments.environment import environment
from hyperfan.experiments.experiment import EXPERIMENTS, Configuration, Experiment, read_configuration
from hyperfan.experiments.results.claims import (
    Claim,
    Claims,
    claim_sections,
    index_table,
    template,
    verdict_table,
)
from hyperfan.experiments.results.pairs import LOSS_MARGIN, MIN_PAIRS, SIGNIFICANT_P
from hyperfan.experiments.results.record import RECORD_FILE, differences, line_differences, write_record
from hyperfan.experiments.results.runs import NamedFigure, Run, Runs, read_run
from hyperfan.files import explain_write_errors, finite_or_none, read_json, write_json, write_text
from hyperfan.report import run_page
from hyperfan.text import capitalise

FIGURES_FOLDER, PAGE_FILE, README_FILE, SUMMARY_FILE = "figures", "report.html", "README.md", "summary.json"
INDEX_TEMPLATE, INDEX_MARK = "index.md", "Written by `hyperfan results`."
"""The page with all claims, and the sentence in it by which it is known."""
SHARED_PARTS = ("paired", "best_rates")
"""Texts of several pages, which have them as fields; each a Markdown file beside this module with fields of its own."""
PAPER = "paper"
"""The profile at the paper's scale, which commands have by default."""
LinkedClaim = tuple[str, Mapping[str, Any]]
"""A link to a claim, and what a summary holds of it."""
C = TypeVar("C", bound=Configuration)
R = TypeVar("R", bound=Run[Any])


def write_summary(path: Path) -> tuple[Path, str]:
    """Write page and figures of the run in this folder; returns the page, and text for a terminal.

    Writing again gives the same files.
    """
    run, page = read_run(path), path / PAGE_FILE
    with explain_write_errors(str(path), "Make room, and go on with --resume"):
        write_figures(path / FIGURES_FOLDER, run.figures())
        write_text(page, run_page([run.data()]))
    return page, run.text() or run.sentence()


def write_figures(folder: Path, figures: Iterable[NamedFigure]) -> None:
    """Write each figure into the folder, or into one below it if its name has a slash."""
    for name, figure in figures:
        path = folder / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, figure)


class Results(ABC, Generic[C, R]):
    """What an experiment publishes about its finished runs, whose grid starts from a base."""

    claims: ClassVar[Claims]
    """The claims, each with the function that decides it, which is given the results."""
    data_set = ""
    """The data set that its runs need, if they need one."""
    part = slice(None)
    """The untrained nets that are looked at, one for each seed from the base's."""

    def __init__(
        self, runs: Runs[R], base: C, data_dir: Path | None = None, log: Callable[[str], object] = lambda _: None
    ) -> None:
        self.runs, self.base, self.data_dir, self.log = runs, base, data_dir, log

    @abstractmethod
    def check(self) -> None:
        """Raise if a run is missing without which there is no page. It comes before anything that takes time."""

    @abstractmethod
    def figures(self) -> Iterator[NamedFigure]:
        """The figures."""

    @cached_property
    def drawn(self) -> dict[str, str]:
        """The figures by name."""
        return dict(self.figures())

    def pictures(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Fields of the page, each a figure with its text, or empty if it is not drawn."""
        shown = {name: f"![{text}]({FIGURES_FOLDER}/{name}.svg)\n\n" for name, text in texts.items()}
        return {f"{name}_picture": picture if name in self.drawn else "" for name, picture in shown.items()}

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """The numbers of all runs, for ``summary.json``."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Values for the fields of its page, ``page.md``, beside those of the base, and the time that its runs take."""

    def decide(self) -> list[Claim]:
        """Decide each claim, on all seeds and on each half of them."""
        claims = self._decide()
        for odd in (False, True):
            for claim, other in zip(claims, self._half(odd)._decide(), strict=True):
                claim.halves.append(other)
        return claims

    def _half(self, odd: bool) -> Self:
        """The results of runs with even seeds alone, or with odd ones, of which nothing was computed before."""
        half = copy.copy(self)
        for name in [
            name for kind in type(self).__mro__ for name, v in vars(kind).items() if isinstance(v, cached_property)
        ]:
            vars(half).pop(name, None)
        half.runs, half.part = self.runs.half(odd), slice((self.base.seed + odd) % 2, None, 2)
        return half

    def _decide(self) -> list[Claim]:
        """Decide each claim. One whose runs are missing is not decided, and its remark names them."""
        found = []
        for name, (title, statement, decide) in self.claims.items():
            claim = Claim(name, title, statement)
            try:
                decide(claim, self)
            except RunError as error:
                claim = Claim(name, title, statement, remark=f"{capitalise(str(error))}.")
            found.append(claim)
        return found

    def page(self, claims: list[Claim], missing: list[str]) -> str:
        """The page in Markdown, with the claims and the titles of runs that are missing."""
        experiment = self.runs.experiment
        profile = next((name for name, p in experiment.profiles.items() if p == self.base), PAPER)
        fields = {
            **vars(self.base),
            "name": experiment.name,
            "profile": "" if profile == PAPER else f" --profile {profile}",
            "code_version": " and ".join(_code_version(*each) for each in self.runs.code_versions().items()),
            "processors": " and ".join(self.runs.processors()),
            "fetch": f"hyperfan data fetch {self.data_set}\n" if self.data_set else "",
            "loss_margin": LOSS_MARGIN,
            "significant_p": SIGNIFICANT_P,
            "enough": MIN_PAIRS,
            "verdicts": verdict_table(claims),
            "claims": claim_sections(claims),
            **self.fields(),
        }
        text = "\n".join([template(experiment.config.__module__, "page.md"), template(__package__, "repeat.md")])
        for part in SHARED_PARTS:
            text = text.replace(f"{{{part}}}", template(__package__, f"{part}.md").rstrip())
        text = text.format(**fields)
        return text if not missing else f"{text}\nNot run yet: {', '.join(missing)}.\n"


def _code_version(fingerprint: str, commit: str | None) -> str:
    return f"commit {commit}" if commit else f"no known commit (fingerprint {fingerprint})"


def write_results(
    experiment: Experiment[C],
    runs_dir: Path,
    out: Path,
    base: C,
    log: Callable[[str], object] = lambda _: None,
    *,
    data_dir: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Write figures, numbers and a page with the claims of runs whose grid started from a base.

    A claim whose runs are missing is not decided. Files that are no results are never overwritten.
    """
    if out.exists() and any(out.iterdir()):
        if not (out / SUMMARY_FILE).exists():
            raise RunError(f"{out} holds files and no {SUMMARY_FILE}, so they are no results: choose another by --out")
        if not overwrite:
            raise RunError(f"{out} holds results already: --overwrite replaces them")
    wanted = experiment.grid(base)
    runs, lines = Runs[Any].read(runs_dir, experiment).recorded(wanted)
    missing = [c.title for c in wanted if c not in runs]
    log(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {runs_dir}")
    if runs.unverified:
        log(f"of {runs.unverified} it cannot be seen whether their metrics were changed: they have no checkpoint")
    results: Results[C, Any] = resolve_name(experiment.results)(runs, base, data_dir, log)
    results.check()
    claims = results.decide()
    with explain_write_errors(str(out), "Make room, and write the results again with --overwrite"):
        log("drawing")
        write_figures(out / FIGURES_FOLDER, results.drawn.items())
        content = {
            "environment": environment(experiment.name),
            "code of the runs": runs.code_versions(),
            "base": base.to_dict(),
            **results.summary(),
            "claims": [c.to_dict() for c in claims],
            "missing": missing,
        }
        write_text(out / README_FILE, results.page(claims, missing))
        write_json(out / SUMMARY_FILE, finite_or_none(content))
        write_record(out / RECORD_FILE, lines)


def check_results(
    experiment: Experiment[Any],
    out: Path,
    log: Callable[[str], object] = lambda _: None,
    *,
    data_dir: Path | None = None,
) -> list[str]:
    """Make results again from the metrics that they keep; returns where a number or a line comes out otherwise."""
    if not (out / RECORD_FILE).exists():
        raise RunError(f"{out} keeps no metrics of its runs, {RECORD_FILE}: name a folder of results with --out")
    summary = read_json(out / SUMMARY_FILE)
    try:
        base = read_configuration(summary["base"])
    except (KeyError, TypeError, RunError) as error:
        raise RunError(f"{out / SUMMARY_FILE} does not say which runs it is about: {error}") from error
    if base.experiment != experiment.name:
        raise RunError(f"{out} has results of {base.experiment}, not of {experiment.name}")
    with tempfile.TemporaryDirectory() as folder:
        write_results(experiment, out, Path(folder), base, log, data_dir=data_dir)
        return list(differences(out, Path(folder)))


def write_index(root: Path) -> None:
    """Write a page with all claims of the results in a folder, unless its page is about something else."""
    if (text := _index(root)) and (_has_index(root) or not (root / README_FILE).exists()):
        write_text(root / README_FILE, text)


def check_index(root: Path) -> list[str]:
    """Where the page with all claims, if a folder has it, says something else than the summaries in the folder."""
    if not _has_index(root):
        return []
    file = root / README_FILE
    return list(line_differences(file.read_text(encoding="utf-8"), _index(root), str(file)))


def _has_index(root: Path) -> bool:
    """Whether the page of a folder is one with all claims, as it says."""
    file = root / README_FILE
    return file.exists() and INDEX_MARK in file.read_text(encoding="utf-8")


def _index(root: Path) -> str:
    """A page with all claims of the results in a folder; empty if there are none."""
    claims = list(_linked_claims(root))
    papers = sorted(filter(_paper_number, claims), key=_paper_number)
    others = [claim for claim in claims if not _paper_number(claim)]
    if not claims:
        return ""
    first = index_table(papers) if papers else ""
    rest = template(__package__, "index_others.md").format(index_table(others)) if others else ""
    return template(__package__, INDEX_TEMPLATE).format(papers=first, others=rest)


def _linked_claims(root: Path) -> Iterator[LinkedClaim]:
    """All claims of the results in a folder."""
    for name in EXPERIMENTS:
        if (root / name / SUMMARY_FILE).exists():
            for claim in read_json(root / name / SUMMARY_FILE)["claims"]:
                yield f"[{claim['name']}]({name}/{README_FILE}#{claim['name'].lower()})", claim


def _paper_number(claim: LinkedClaim) -> int:
    """The number of one of the paper's claims, from 1; of another claim 0."""
    number = claim[1]["name"].removeprefix("C")
    return int(number) if number.isdecimal() else 0
