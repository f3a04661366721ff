"""What the commands show, as rich tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hyperfan.experiments.compare import NOTES, Spread, Start
from hyperfan.init import Method

FAR = 3.0
"""By which factor a scale must differ from the classical net's to be coloured as exploding or vanishing."""


def compare_table(starts: Sequence[Start], seeds: int, fidelity: str) -> Table:
    """A row for each init, a column for each layer, the spread below the mean."""
    depth = len(starts[0].preactivation)
    table = Table(
        title="How each init starts the paper's MNIST net",
        caption=f"mean and ± one standard deviation over {seeds} seeds; init at fidelity '{fidelity}'. "
        "× is the pre-activations' scale against the classical net, geometric mean over layers.",
        caption_justify="left",
        show_lines=False,
    )
    table.add_column("init", no_wrap=True)
    table.add_column("×", justify="right", no_wrap=True)
    for i in range(depth):
        table.add_column(f"std y{i + 1}", justify="right", no_wrap=True)
    for i in range(depth):
        table.add_column(f"∂L/∂y{i + 1}", justify="right", no_wrap=True)
    table.add_column("loss", justify="right", no_wrap=True)
    for start in starts:
        note = NOTES.get(start.init, "")
        name = Text.assemble(start.init, "\n", (note, "dim"))
        reference = starts[0]
        table.add_row(
            name,
            Text(_short(start.ratio), style=_style(start.ratio)),
            *(_cell(s, r) for s, r in zip(start.preactivation, reference.preactivation, strict=True)),
            *(_cell(s, r) for s, r in zip(start.gradient, reference.gradient, strict=True)),
            _cell(start.loss, None),
        )
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
    return "bold red" if ratio > FAR else "bold blue" if ratio < 1 / FAR else "green"


def _short(value: float) -> str:
    """Two digits below 1, three above, in as few characters as that takes: .0032, 1.01, 27.3, 4e-06."""
    if value and abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:.2g}".removeprefix("0") if abs(value) < 1 else f"{value:.3g}"
