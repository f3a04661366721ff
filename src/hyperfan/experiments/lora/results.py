"""What is read from runs of the LoRA experiment, drawn and published."""

from collections.abc import Iterator
from dataclasses import dataclass

from hyperfan.experiments.lora import Lora
from hyperfan.experiments.results.runs import NamedFigure, Run


@dataclass(frozen=True)
class LoraRun(Run[Lora]):
    """The finished nets of one seed."""

    def sentence(self) -> str:
        """How many there are."""
        return f"{len(self.config.members)} nets, {self.config.steps} steps each."

    def figures(self) -> Iterator[NamedFigure]:
        """None."""
        return iter(())
