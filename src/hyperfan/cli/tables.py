"""The rich tables that commands print."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hyperfan.experiments.compare import NOTES, Spread, Start
from hyperfan.init import Method

FAR_FACTOR = 3.0
"""A scale that differs from the classical net's by more is coloured as exploding or vanishing."""
FULL_WIDTH = 150
"""Columns of the full comparison; a narrower terminal gets activations and gradients one after the other."""


def compare_tables(starts: Sequence[Start], seeds: int, fidelity: str, width: int) -> list[Table]:
    """A row for each init, a column for each layer, the spread below the mean."""
    if width >= FULL_WIDTH:
        return [_compare_table(starts, seeds, fidelity, activations=True, gradients=True)]
    return [
        _compare_table(starts, seeds, fidelity, activations=True, gradients=False),
        _compare_table(starts, seeds, fidelity, activations=False, gradients=True),
    ]


def _compare_table(starts: Sequence[Start], seeds: int, fidelity: str, *, activations: bool, gradients: bool) -> Table:
    table = Table(
        title="How each init starts the paper's MNIST net",
        caption=f"y: pre-activations by layer. Mean and ± one standard deviation over {seeds} seeds; init at fidelity "
        f"'{fidelity}'. × is the scale of y against the classical net, geometric mean over layers.",
        caption_justify="left",
    )
    reference = starts[0]
    table.add_column("init", no_wrap=True)
    table.add_column("×", justify="right", no_wrap=True)
    for i in range(len(reference.preactivation) * activations):
        table.add_column(f"std y{i + 1}", justify="right", no_wrap=True)
    for i in range(len(reference.gradient) * gradients):
        table.add_column(f"∂L/∂y{i + 1}", justify="right", no_wrap=True)
    table.add_column("loss", justify="right", no_wrap=True)
    for start in starts:
        cells = []
        if activations:
            cells += [_cell(s, r) for s, r in zip(start.preactivation, reference.preactivation, strict=True)]
        if gradients:
            cells += [_cell(s, r) for s, r in zip(start.gradient, reference.gradient, strict=True)]
        name = Text.assemble(start.init, "\n", (NOTES.get(start.init, ""), "dim"))
        ratio = Text(_short(start.ratio), style=_style(start.ratio))
        table.add_row(name, ratio, *cells, _cell(start.loss, None))
    return table


def methods_table(methods: Sequence[Method]) -> Table:
    """A row for each method."""
    table = Table("name", "paper", "settings", "what it does")
    for m in methods:
        settings = ", ".join(f"{k}={v:g}" for k, v in m.settings.items())
        table.add_row(m.name, m.paper, settings, m.summary)
    return table


def _cell(value: Spread, reference: Spread | None) -> Text:
    style = _style(value.mean / reference.mean) if reference else ""
    spread = "" if value.spread is None else f"\n±{_short(float(f'{value.spread:.1g}'))}"
    return Text.assemble((_short(value.mean), style), (spread, "dim"))


def _style(ratio: float) -> str:
    return "bold red" if ratio > FAR_FACTOR else "bold blue" if ratio < 1 / FAR_FACTOR else "green"


def _short(value: float) -> str:
    """Two digits below 1, three above, in as few characters as that takes: .0032, 1.01, 27.3, 4e-06."""
    if value and abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:.2g}".removeprefix("0") if abs(value) < 1 else f"{value:.3g}"
