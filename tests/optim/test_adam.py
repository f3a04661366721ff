"""hyperfan.Adam and AdamW equal torch's on dense autograd, whatever happens in between."""

import copy
import itertools

import pytest
import torch
from torch import nn
from twins import Twins, assert_same, batches, build

import hyperfan as hf
from products import covered, covering

LR = 1e-3
STEPS = 100
TOLERANCE = 1e-11
OPTIONS = [
    {"betas": betas, "eps": eps, "weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    for betas, eps, decay, amsgrad, maximize in itertools.product(
        ((0.9, 0.999), (0.5, 0.9)), (1e-3, 1e-2), (0.0, 0.2), (False, True), (False, True)
    )
]
EMBEDDINGS = {
    "fixed": hf.Embedding(7),
    "noise": hf.Embedding(7, noise=0.3),
    "trained": hf.Embedding(7, trainable=True),
    "given": hf.Embedding(7, given=True, per="net"),
    "tasks": hf.Embedding(7, tasks=6, trainable=True),
}
HEADS = {"shared": "shared", "separate": "separate", "chunks": hf.Chunks(one_head=True), "low rank": hf.LowRank(2)}
GROUPED = ("once", "per sample", "grouped")
NETS = [
    case
    for case in itertools.product(
        ("Adam", "AdamW"), HEADS, EMBEDDINGS, ("none", "trunk"), ("weights", "weights+biases"), GROUPED
    )
    if (case[2] in ("given", "tasks")) == (case[5] != "once")
    and not (case[1] == "chunks" and (case[5] != "once" or case[3] == "trunk"))
    and not (case[1] == "shared" and case[2] == "given")
]
CASES = [
    (*net, options)
    for net, options in zip(
        NETS, itertools.cycle(covering(OPTIONS, lambda options: list(options.values()))), strict=False
    )
]


def flat(case):
    return [*case[:-1], *case[-1].values()]


def named(value):
    return "-".join(f"{k}{v}" for k, v in value.items() if v) if isinstance(value, dict) else value


def call(embedding, how):
    """What a net with such embeddings is called with, and how many samples it gets."""
    if how == "once":
        return {}
    grouped = {"grouped": True} if how == "grouped" else {}
    count = 3 if grouped else 6
    if embedding == "tasks":
        return {"task": torch.arange(count), **grouped}
    return {"embedding": torch.randn(count, 7, generator=torch.Generator().manual_seed(2)).double(), **grouped}


def disturbed(twins, optimiser, arguments, steps=STEPS):
    """A run with a scheduler, accumulation, clipping, looks, a save and restore, and changes of plan."""
    for i, (x, y) in enumerate(batches(steps)):
        if i == 30:
            state, opt_state = copy.deepcopy(twins.ours.state_dict()), copy.deepcopy(twins.opt.state_dict())
            fresh = copy.deepcopy(twins.ours)
            fresh.load_state_dict(state)
            twins.ours, twins.opt = fresh, getattr(hf, optimiser)(fresh, lr=1.0)
            twins.opt.load_state_dict(opt_state)
        if i in (50, 60, 70):
            twins.opt.use({50: "dense", 60: "factored", 70: None}[i])
        losses = []
        for net, opt in ((twins.ours, twins.opt), (twins.theirs, twins.oracle)):
            if i and i % 20 == 0:
                opt.param_groups[0]["lr"] *= 0.8
            torch.manual_seed(i)
            if i % 7 != 3:  # else two batches are accumulated
                opt.zero_grad()
            inputs = x.view(3, 2, -1) if arguments.get("grouped") else x
            out = net(inputs, **arguments).flatten(0, -2)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            if i % 5 == 2:
                params = [p for group in opt.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(params, 0.5)
            opt.step()
            losses.append(loss.detach())
        assert_same(*losses, tolerance=TOLERANCE)
    twins.compare(TOLERANCE)


@pytest.mark.parametrize(
    ("optimiser", "heads", "embedding", "trunk", "generate", "how", "options"), covered(CASES, flat), ids=named
)
def test_a_disturbed_run_equals_dense_autograd(optimiser, heads, embedding, trunk, generate, how, options):
    net = build(EMBEDDINGS[embedding], heads=HEADS[heads], trunk=(8,) if trunk == "trunk" else None, generate=generate)
    twins = Twins(net, optimiser, lr=LR, **options)
    disturbed(twins, optimiser, call(embedding, how))
