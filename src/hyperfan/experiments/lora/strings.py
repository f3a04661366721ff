"""Strings and their transforms as tokens: what the language model reads, and what it should answer.

A prompt is two words that name the task's transforms, the string, and as many question marks, in whose place the answer
is expected, all of it at once. Where the words are blank, nothing but weights can say which task it is.
"""

import torch
from torch import Tensor

from hyperfan.experiments.lora import PLACES, SHIFTS, TASKS, Lora
from hyperfan.experiments.seeds import generator


class Language:
    """The tokens of an alphabet: letters, a question mark, a blank, and a word for each transform."""

    def __init__(self, letters: int, length: int) -> None:
        self.letters, self.length = letters, length
        self.question, self.blank, self.words = letters, letters + 1, letters + 2
        self.vocabulary = self.words + len(PLACES) + len(SHIFTS)
        places = torch.arange(length)
        self._orders = torch.stack(
            [places.flip(0), places.roll(-1), places.roll(-2), places.view(-1, 2).flip(1).flatten()]
        )

    def draw(self, count: int, draws: torch.Generator) -> Tensor:
        """Strings, (count, length)."""
        return torch.randint(self.letters, (count, self.length), generator=draws)

    def answers(self, strings: Tensor, tasks: Tensor) -> Tensor:
        """What each string (…, length) becomes by its task, the two numbers in (…, 2)."""
        moved = strings.gather(-1, self._orders[tasks[..., 0]])
        return (moved + torch.tensor(SHIFTS)[tasks[..., 1]].unsqueeze(-1)) % self.letters

    def prompts(self, strings: Tensor, tasks: Tensor, worded: Tensor | bool) -> Tensor:
        """Tokens (…, 2 + 2·length), with the words of a task, or with blank ones."""
        words = tasks + torch.tensor([self.words, self.words + len(PLACES)])
        words = torch.where(torch.as_tensor(worded).unsqueeze(-1), words, self.blank)
        return torch.cat([words, strings, torch.full_like(strings, self.question)], -1)


def split(seed: int) -> tuple[Tensor, Tensor]:
    """The tasks that a seed trains on and those held out, (tasks, 2): a random Latin square of the two transforms."""
    draws = generator(seed, "held out")
    partner = torch.randperm(len(SHIFTS), generator=draws)
    held = {(place, int(partner[place])) for place in range(len(PLACES))}
    trained = [task for task in TASKS if task not in held]
    return torch.tensor(trained), torch.tensor(sorted(held))


def vectors(config: Lora, tasks: Tensor) -> Tensor:
    """The vector of each task: as of a description of two words, the sum of a random vector for each, of variance 1."""
    draws = generator(config.seed, "task vectors")
    table = torch.randn(len(PLACES) + len(SHIFTS), config.embedding, generator=draws) * 0.5**0.5
    found: Tensor = table[tasks[:, 0]] + table[len(PLACES) + tasks[:, 1]]
    return found
