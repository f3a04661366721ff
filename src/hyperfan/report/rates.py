"""At which learning rates something trains."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperfan.report.canvas import canvas, styled
from hyperfan.report.setting import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tried = Mapping[float, Sequence[float | None]]
"""Learning rate → the accuracy of each run at it; ``None`` of one that diverged."""


@styled
def accuracy_by_rate(found: Mapping[str, Tried], guess: float, title: str) -> "Figure":
    """Accuracy at the end against the learning rate, a panel for each label: dots are runs, crosses ones that diverged.

    Args:
        found: what came out for each label.
        guess: the accuracy of guessing, drawn as a line, on which those that diverged stand.
        title: of the figure.
    """
    figure, [axes] = canvas(1, len(found), title, (12.5, 3.4), sharey=True)
    for ax, (label, tried), (colour, _) in zip(axes, found.items(), looks(len(found) + 1)[1:], strict=True):
        look: dict[str, Any] = {"color": colour, "linestyle": "none", "markersize": 6}
        points = [(lr, accuracy) for lr, runs in tried.items() for accuracy in runs]
        done = [(lr, accuracy) for lr, accuracy in points if accuracy is not None]
        ax.plot([lr for lr, _ in done], [a for _, a in done], marker="o", alpha=0.7, **look)
        gone = [lr for lr, accuracy in points if accuracy is None]
        ax.plot(gone, [guess] * len(gone), marker="x", **look)
        ax.axhline(guess, color="#999999", linewidth=0.8, linestyle="--", zorder=0)
        ax.set_xscale("log")
        rates = sorted(tried)
        ax.set_xlim(rates[0] / 3, rates[-1] * 3)
        ax.set_title(label)
        ax.set_xlabel("learning rate")
        ax.grid(color="#e5e5e5", linewidth=0.6)
    axes[0].set_ylim(bottom=0)
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes[0].set_ylabel("test accuracy\n● at the end   × diverged")
    axes[0].annotate("guessing", (axes[0].get_xlim()[0], guess), xytext=(3, -10), textcoords="offset points")
    return figure
