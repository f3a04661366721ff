"""Training of the LoRA experiment: the language model of a seed, then all hypernets on it, on the same strings."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hyperfan.experiments.classifier import load_into, state_of
from hyperfan.experiments.lora import PER_TASK, Lora
from hyperfan.experiments.lora.starts import build
from hyperfan.experiments.lora.strings import Language, split, vectors
from hyperfan.experiments.seeds import generator
from hyperfan.experiments.state import join_states, part_of
from hyperfan.experiments.training import GridTraining
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import Kind, Row
from hyperfan.models import Llama
from hyperfan.optim import AdamW

PRETRAINING_RATE = 3e-3
"""The highest rate of AdamW: it grows up to it over a tenth of the batches, and from there falls to zero."""
WARM_UP = 0.1
NAMED_PART = 0.85
"""Part of the strings in pretraining that have the words of their task."""
TRAINED, HELD_OUT = "trained", "held out"


class Member(NamedTuple):
    """A hypernet with its optimiser, the rate that it starts at, and the condition of each trained task."""

    net: HyperNet
    optimiser: AdamW
    rate: float
    conditions: Tensor


class LoraTraining(GridTraining):
    """A language model, and on it everything that is compared. What diverges has a loss of NaN from then on."""

    def __init__(self, config: Lora, data_dir: Path | None = None) -> None:
        self.config = config
        self.language = Language(config.letters, config.length)
        self.trained, self.held_out = split(config.seed)
        self.base = Llama(self.language.vocabulary, config.width, config.blocks, config.heads)
        draws = generator(config.seed, "language model")
        with torch.no_grad():
            for p in self.base.parameters():
                if p.ndim == 2:
                    p.normal_(0, p.shape[1] ** -0.5, generator=draws)
                else:
                    p.fill_(1.0)
        self.base_optimiser = torch.optim.AdamW(self.base.parameters(), PRETRAINING_RATE)
        self.members: list[Member] = []
        self.sums = torch.zeros(len(config.members), dtype=torch.float64)
        """The sum of each member's losses since the last line of metrics."""
        plans = {start: net.plan.to_dict() for start, net in ((s, self._build(s).net) for s in config.starts)}
        self.plan: Any = plans

    def _build(self, start: str, rate: float = 1.0) -> Member:
        """A member on the language model as it is, which is frozen."""
        self.base.requires_grad_(False)
        conditions = vectors(self.config, self.trained)
        if start == PER_TASK:
            conditions = torch.eye(len(self.trained))
        net = build(self.config, self.base, start, conditions)
        self.base.requires_grad_(True)
        # Nothing is compiled, so that a run has the same bits wherever there is a compiler or none.
        return Member(net, AdamW(net, rate, compile=False), rate, conditions)

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, step: int) -> float:
        """One batch of the language model, or one of every hypernet; returns the mean of the losses."""
        if step < self.config.pretraining:
            self.latest = torch.tensor([self._pretrain(step)], dtype=torch.float64)
            return self.typical(self.latest)
        self._begin()
        inputs, answers = self._batch(self.trained, self.config.strings, "strings", step)
        left_over = (self.config.total - step) / self.config.steps
        found = [self._train(member, inputs, answers, left_over) for member in self.members]
        losses = torch.tensor(found, dtype=torch.float64)
        self.sums += losses
        return self.summarise(losses)

    def _pretrain(self, step: int) -> float:
        c, draws = self.config, generator(self.config.seed, "pretraining", step)
        strings = self.language.draw(c.pretraining_strings, draws)
        every = torch.cat([self.trained, self.held_out])
        tasks = every[torch.randint(len(every), (len(strings),), generator=draws)]
        worded = torch.rand(len(strings), generator=draws) < NAMED_PART
        part = (step + 1) / c.pretraining
        for group in self.base_optimiser.param_groups:
            group["lr"] = PRETRAINING_RATE * min(part / WARM_UP, (1 - part) / (1 - WARM_UP))
        self.base_optimiser.zero_grad()
        answers = self.language.answers(strings, tasks)
        loss = self._loss(self.base(self.language.prompts(strings, tasks, worded)), answers)
        torch.autograd.backward(loss)
        self.base_optimiser.step()
        return loss.item()

    def _train(self, member: Member, inputs: Tensor, answers: Tensor, left_over: float) -> float:
        """One batch, at the part of the rate that is left over of it."""
        for group in member.optimiser.param_groups:
            group["lr"] = member.rate * left_over
        member.optimiser.zero_grad()
        loss = self._loss(member.net(inputs, embedding=member.conditions, grouped=True), answers)
        value = loss.item()
        if math.isfinite(value):
            torch.autograd.backward(loss)
            member.optimiser.step()
        return value

    def _begin(self) -> None:
        """Put every hypernet on the language model that has been pretrained."""
        if not self.members:
            self.members = [self._build(start, rate) for start, rate in self.config.members]

    def _batch(self, tasks: Tensor, count: int, *purpose: object) -> tuple[Tensor, Tensor]:
        """Prompts (tasks, count, tokens) that do not tell the task, and their answers."""
        strings = self.language.draw(len(tasks) * count, generator(self.config.seed, *purpose))
        strings, each = strings.view(len(tasks), count, -1), tasks[:, None].expand(-1, count, -1)
        return self.language.prompts(strings, each, worded=False), self.language.answers(strings, each)

    def _loss(self, logits: Tensor, answers: Tensor) -> Tensor:
        """Mean cross-entropy of the letters."""
        return cross_entropy(self._answered(logits).flatten(0, -2), answers.flatten())

    def _answered(self, logits: Tensor) -> Tensor:
        """The logits of letters in place of question marks."""
        return logits[..., -self.config.length :, :]

    # ── tests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def tests(self, step: int) -> Iterator[Row]:
        """Test the language model when it is pretrained, and hypernets from then on."""
        c, trained_for = self.config, step - self.config.pretraining
        if trained_for < 0:
            return
        if trained_for == 0:
            yield self._tested_with_words(step)
        if trained_for and trained_for % c.log_every == 0:
            yield {"kind": Kind.LOSSES, "step": step, "losses": (self.sums / c.log_every).tolist()}
            self.sums.zero_()
        if trained_for % c.test_every == 0 or step == c.total:
            self._begin()
            for of, tasks in ((TRAINED, self.trained), (HELD_OUT, self.held_out)):
                yield self._tested(step, of, tasks)

    def _tested_with_words(self, step: int) -> Row:
        """The language model where words tell it the task."""
        tasks = torch.cat([self.trained, self.held_out])[:, None].expand(-1, self.config.test_strings, -1)
        strings = self.language.draw(tasks[..., 0].numel(), generator(self.config.seed, "test", "told"))
        strings = strings.view(*tasks.shape[:2], -1)
        with torch.no_grad():
            logits = self.base(self.language.prompts(strings, tasks, worded=True).flatten(0, 1))
        loss, right = self._measured(logits, self.language.answers(strings, tasks))
        return {"kind": Kind.TEST, "step": step, "loss": loss, "accuracy": right}

    def _tested(self, step: int, of: str, tasks: Tensor) -> Row:
        """Mean loss of every member on some tasks, and the part of their strings that it answers without a mistake."""
        inputs, answers = self._batch(tasks, self.config.test_strings, "test", of)
        found = []
        for (start, _), member in zip(self.config.members, self.members, strict=True):
            if start == PER_TASK and of == HELD_OUT:
                found.append((math.nan, math.nan))  # nothing has been trained for them
                continue
            conditions = member.conditions if of == TRAINED else vectors(self.config, tasks)
            with torch.no_grad():
                found.append(self._measured(member.net(inputs, embedding=conditions, grouped=True), answers))
        losses, accuracies = zip(*found, strict=True)
        return {"kind": Kind.ERRORS, "step": step, "of": of, "losses": losses, "accuracies": accuracies}

    def _measured(self, logits: Tensor, answers: Tensor) -> tuple[float, float]:
        """Mean loss, and the part of the strings that are right in every letter."""
        right = (self._answered(logits).argmax(-1).view_as(answers) == answers).all(-1)
        return self._loss(logits, answers).item(), right.float().mean().item()

    # ── checkpoints ────────────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Tensor]:
        """The language model and its optimiser, and if it is pretrained all hypernets with theirs."""
        found = {"base.": state_of(self.base, self.base_optimiser)}
        for i, member in enumerate(self.members):
            state = state_of(member.net, member.optimiser)
            found[f"{i}."] = {name: t for name, t in state.items() if not self._is_of_base(t)}
        return {**join_states(found), "sums": self.sums.clone()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        load_into(self.base, self.base_optimiser, part_of(state, "base."))
        self.sums.copy_(state["sums"])
        if any(name.startswith("0.") for name in state):
            self._begin()
        for i, member in enumerate(self.members):
            frozen = {k: t for k, t in state_of(member.net, member.optimiser).items() if self._is_of_base(t)}
            load_into(member.net, member.optimiser, {**frozen, **part_of(state, f"{i}.")})

    def _is_of_base(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter of the language model, which all hypernets hold."""
        return any(tensor.data_ptr() == p.data_ptr() for p in self.base.parameters())
