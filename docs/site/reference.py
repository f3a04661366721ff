"""Reference pages from the code: findings of ``diagnose`` as it reports planted faults, init methods, commands."""

import contextlib
import importlib
import io
import math
import os
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import torch
from roles import ROLE
from torch import nn

import hyperfan as hf
from hyperfan.cli.main import COMMANDS, GROUPS, main
from hyperfan.experiments.experiment import EXPERIMENTS
from hyperfan.init import Method, Reading, available, methods
from hyperfan.mainnet.gains import ACTIVATION_FUNCTIONS, gains
from hyperfan.probe.checks import mistakes
from hyperfan.probe.findings import MAX_PLACES_SHOWN, Finding, FindingName
from hyperfan.probe.hypernet_subject import HyperNetSubject
from hyperfan.report import scale_chart

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/probe"))

from patients import FAULTS, Between, Patient, mlp, ours, vectors, zero_biases

DEFAULT_FILE = "chang2020"
"""The file of the method that nets start with, which is shown first."""
HELP_WIDTH = 88
"""Columns of the help on a page."""


def _loss_overflows() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x), x, y, {"loss": lambda out, y: (out / 0).sum()})


class _Blind(nn.Module):
    """A trunk that reads the size of the embedding, and nothing of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        return self.layer(e.detach()) + 0 * e


def _deaf_embedding() -> Patient:
    x, y = vectors()
    return Patient(ours(mlp(), x, hf.Embedding(32, trainable=True), trunk=_Blind()), x, y)


def _gives_class_away() -> Patient:
    x, _ = vectors()
    net = ours(Between(torch.tanh, lambda z: 20 * z), x)
    return Patient(net, x, net(x).argmax(1))


class _Scaled(nn.Module):
    """A layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.power = nn.Linear(96, 10), nn.Parameter(torch.ones(96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.abs() ** self.power)


def _without_rule() -> Patient:
    x, y = vectors()
    return Patient(_Scaled(), x, y, {"generated": lambda: {"power": torch.ones(96, requires_grad=True) * 1.0}})


MORE_FAULTS = {
    FindingName.LOSS_NOT_FINITE: ("a loss that divides by zero", _loss_overflows),
    FindingName.NO_EMBEDDING_GRADIENT: ("a trunk that detaches its embedding", _deaf_embedding),
    FindingName.LOSS_BELOW_GUESSING: ("a net that knows the classes", _gives_class_away),
    FindingName.NO_PREDICTION: ("a generated exponent", _without_rule),
}
"""Findings that are tested without a planted fault of their own, with one."""


def _one_std(width: int = 192, depth: int = 3) -> dict[str, object]:
    """Weights of one standard deviation, whatever the width; it is right where that is 96."""
    mainnet = zero_biases(mlp(nn.ReLU, depth, width))
    drawn = {n: nn.Parameter(torch.randn(p.shape)) for n, p in mainnet.named_parameters() if p.ndim > 1}
    stds = {n: math.sqrt((1 if n == "0.weight" else 2) / 96) for n in drawn}
    return {"net": mainnet, "generated": lambda: {n: std * drawn[n] for n, std in stds.items()}}


SIZES = {
    FindingName.DEPENDS_ON_WIDTH: ("one standard deviation for every width", {"widths": (64, 96, 144)}),
    FindingName.DEPENDS_ON_DEPTH: ("weights of twice the variance in each layer", {"depths": (2, 3, 5)}),
}
"""Findings of a coordinate check, and the sizes over which they are shown."""


def examples() -> Iterator[tuple[Finding, str, str]]:
    """Each finding as ``diagnose`` reports a planted fault, with that fault's name and its picture."""
    planted = {fault.name: (title, fault.plant) for title, fault in reversed(FAULTS.items())}
    vanishing = {FindingName.VANISHING_GRADIENTS: ("vanishing", FAULTS["vanishing"].plant)}
    for name in FindingName:
        torch.manual_seed(0)
        if name in SIZES:
            title, sizes = SIZES[name]
            check = hf.diagnose(_one_std, *vectors(), **sizes)
            seen, chart = check.findings, check.chart(title.capitalize())
        else:
            title, plant = (planted | vanishing | MORE_FAULTS)[name]
            patient = plant()
            diagnosis = hf.diagnose(patient.net, patient.x, patient.y, **patient.options)
            of = "gradients" if "gradient" in name else "activations"
            chart = scale_chart({"measured": diagnosis.layers}, of=of, title=f"{title}: {of} by layer")
            seen = diagnosis.findings
        yield next(f for f in seen if f.name == name), title, chart


def findings() -> tuple[str, dict[str, str]]:
    """A section for each finding, and its pictures by file name."""
    sections, pictures = [], {}
    for finding, title, chart in examples():
        slug = re.sub(r"\W+", "-", finding.name.lower())
        pictures[f"{slug}.svg"] = chart
        alt = f"The scale of every layer beside the theory's line, with this fault planted: {title}"
        sections.append(f"## {finding.name}\n\n{_shown(finding, title)}\n\n![{alt}](findings/{slug}.svg)")
    return "\n\n".join(sections), pictures


def _shown(finding: Finding, title: str) -> str:
    where = ", ".join(f"`{name}`" for name in finding.where[:MAX_PLACES_SHOWN])
    lines = {"planted": title, "where": where, "seen": finding.evidence, "likely": finding.cause}
    listed = "".join(f"- **{label}**: {line}\n" for label, line in lines.items() if line)
    return f"*{finding.severity}*\n\n{listed}- **mend**: {finding.remedy}"


def usual_mistakes() -> str:
    """The mistakes by which a wrong scale is explained."""
    torch.manual_seed(0)
    net = hf.HyperNet(nn.Sequential(nn.Linear(8, 8)), 4)
    subject = HyperNetSubject(net, torch.randn(4, 8), None, None)
    name, tensor = next(iter(subject.generated.items()))
    return "\n".join(f"- {m}" for m in mistakes.variances(mistakes.Case(name, tensor, 1.0, 1.0, 1)))


def gain_table() -> str:
    """The gains of all activations."""
    rows = [(name, gains(name)) for name in sorted(ACTIVATION_FUNCTIONS)]
    lines = (f"| {name} | {g.forward:.3f} | {g.backward:.3f} |" for name, g in rows)
    return "\n".join(["| | forward | backward |", "|---|---|---|", *lines])


def init_methods() -> str:
    """A section for each paper: its methods in a table, then the derivation and when to use them."""
    files = [info.name for info in pkgutil.iter_modules(methods.__path__)]
    files.sort(key=lambda file: file != DEFAULT_FILE)
    sections = []
    for file in files:
        doc = importlib.import_module(f"hyperfan.init.methods.{file}").__doc__ or ""
        rows = [_row(m) for m in available() if _file(m, files) == file]
        head = "| `init=` | settings | a weight | a generated bias | what it does |\n|---|---|---|---|---|\n"
        table = head + "\n".join(rows) if rows else "No method of its own: settings of others."
        sections.append(f"## {file}\n\n{table}\n\n{_as_markdown(doc)}")
    return "\n\n".join(sections)


def _file(method: Method, files: list[str]) -> str:
    """The file of a method, which is named after its paper's first author and year, or after an earlier paper."""
    author = re.split(r",| &| et al", method.paper)[0].split()[-1].lower()
    (file,) = [f for f in files if f[:-4] == author]
    return file


def _row(method: Method) -> str:
    aims = method.aims()
    weight, bias = aims(Reading("weight", 2.0, 3.0)), aims(Reading("bias", 2.0, 3.0))
    settings = ", ".join(f"{k} = {v:g}" for k, v in method.settings.items())
    return f"| `{method.name}` | {settings} | {weight.equation} | {bias.equation} | {method.summary} |"


def _as_markdown(doc: str) -> str:
    """A docstring as Markdown: names without their roles, doctests in fences."""
    doc = ROLE.sub(r"`\1`", doc.replace("``", "`"))
    doctest = re.compile(r"^(?:>>> .*\n(?:(?!>>>|\n).*\n?)*)+", re.MULTILINE)
    return doctest.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", doc)


def commands() -> str:
    """The help of every command."""
    known = [[name] for name in COMMANDS]
    known += [[group, name] for group in GROUPS if group != "data" for name in EXPERIMENTS]
    known += [["data", "fetch"]]
    return "\n\n".join(f"## hyperfan {' '.join(c)}\n\n```text\n{_help(c)}\n```" for c in known)


def _help(command: list[str]) -> str:
    os.environ["COLUMNS"] = str(HELP_WIDTH)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    lines = printed.getvalue().strip().splitlines()
    return "\n".join(part for line in lines for part in textwrap.wrap(line, HELP_WIDTH, drop_whitespace=False) or [""])
