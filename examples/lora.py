"""LoRA from a task vector: one hypernet writes the low-rank updates of a frozen language model for every task.

A small Llama learns to shift strings by so many letters, as a first token says. Then the token is blank: a hypernet
makes LoRA of q_proj and v_proj from the task's vector. Reported: letters that are right. ``python -m examples.lora``
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hyperfan as hf
from hyperfan.models import Llama

LETTERS, LENGTH, TASKS, QUESTION, BLANK = 16, 6, torch.arange(8), 16, 17


def prompts(count: int, told: bool) -> tuple[Tensor, Tensor]:
    """For each task so many prompts, (task, count, 13), and answers; question marks stand for the answer."""
    strings = torch.randint(LETTERS, (len(TASKS), count, LENGTH))
    first = (BLANK + told * (1 + TASKS)).view(-1, 1, 1).expand(-1, count, 1)
    asked = torch.cat([first, strings, torch.full_like(strings, QUESTION)], -1)
    return asked, (strings + TASKS.view(-1, 1, 1)) % LETTERS


def pretrained(steps: int = 300) -> Llama:
    """A language model that can do every task if it is told which; frozen."""
    model = Llama(BLANK + 1 + len(TASKS), 32, 2, 4)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        asked, answers = prompts(8, told=step % 8 > 0)  # blank at times, so that it is no surprise later
        opt.zero_grad()
        cross_entropy(model(asked.flatten(0, 1))[:, -LENGTH:].flatten(0, 1), answers.flatten()).backward()
        opt.step()
    return model.requires_grad_(False)


def hypernet(model: nn.Module) -> hf.HyperNet:
    """Updates of rank 4 from a vector for each task; B starts at zero, so that the model starts as it is."""
    condition, heads = hf.Embedding(16, given=True, per="net", identity=8), hf.LoRA(rank=4, alpha=8, sharing="shared")
    example = prompts(1, told=False)[0][0]
    return hf.HyperNet(model, condition, generate="*.[qv]_proj.weight", heads=heads, trunk=(64,), example=example)


def train(net: nn.Module, vectors: Tensor, steps: int = 100, lr: float = 2e-3) -> float:
    """Train on all tasks at once; returns the part of the letters that are right on the last strings, all new."""
    opt = hf.AdamW(net, lr=lr)
    for step in range(steps + 1):
        asked, answers = prompts(8, told=False)
        made = net(asked, embedding=vectors, grouped=True)[..., -LENGTH:, :]
        if step < steps:
            opt.zero_grad()
            cross_entropy(made.flatten(0, -2), answers.flatten()).backward()
            opt.step()
    return (made.argmax(-1) == answers).float().mean().item()


if __name__ == "__main__":
    net, vectors = hypernet(pretrained()), torch.randn(len(TASKS), 16)
    print(f"letters that are right: {train(net, vectors, 0):.3f} as it is, {train(net, vectors):.3f} with its updates")
