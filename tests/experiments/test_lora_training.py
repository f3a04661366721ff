"""The LoRA experiment: what its language says, how its hypernets start, and that a run resumes to the same bits."""

import math
from dataclasses import replace

import pytest
import torch
from toy import Silent, contents

from checks import assert_variance
from hyperfan.errors import RunError
from hyperfan.experiments.experiment import CHOOSING_SEED
from hyperfan.experiments.loop import run
from hyperfan.experiments.lora import (
    D2L,
    OURS,
    PER_TASK,
    PLACES,
    PROFILES,
    RATES,
    SHIFTS,
    STARTS,
    T2L,
    TASKS,
    TORCH,
    Lora,
    grid,
)
from hyperfan.experiments.lora.starts import build
from hyperfan.experiments.lora.strings import Language, split, vectors
from hyperfan.experiments.lora.training import LoraTraining
from hyperfan.init.methods.charakorn2025 import text_to_lora_variance
from hyperfan.metrics import Kind, read_metrics

SMOKE = PROFILES["smoke"]
WIDE = replace(SMOKE, width=64, code=32, rank=4)


def test_answers_are_the_transforms_by_their_names():
    language, string = Language(letters=8, length=6), torch.tensor([0, 1, 2, 3, 4, 5])
    moved = {"reverse": "543210", "rotate by 1": "123450", "rotate by 2": "234501", "swap pairs": "103254"}
    for place, shift in TASKS:
        wanted = [(int(letter) + SHIFTS[shift]) % 8 for letter in moved[PLACES[place]]]
        assert language.answers(string, torch.tensor([place, shift])).tolist() == wanted


def test_prompts_tell_the_task_or_leave_its_words_blank():
    language = Language(letters=4, length=4)
    prompts = language.prompts(
        torch.zeros(2, 4, dtype=torch.long), torch.tensor([[1, 2]] * 2), torch.tensor([1, 0]) > 0
    )
    assert prompts.tolist() == [[7, 12, 0, 0, 0, 0, 4, 4, 4, 4], [5, 5, 0, 0, 0, 0, 4, 4, 4, 4]]
    assert language.vocabulary == 14


def test_every_transform_is_held_out_in_one_task_and_trained_in_others():
    trained, held = split(3)
    assert sorted(map(tuple, [*trained.tolist(), *held.tolist()])) == sorted(TASKS)
    assert sorted(held[:, 0].tolist()) == sorted(held[:, 1].tolist()) == [0, 1, 2, 3]
    assert len({tuple(split(seed)[1][:, 1].tolist()) for seed in range(10)}) > 2


def test_the_vector_of_a_task_is_the_sum_of_its_words():
    found = vectors(SMOKE, torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))
    torch.testing.assert_close(found[0] + found[3], found[1] + found[2])
    assert_variance(vectors(replace(SMOKE, embedding=4000), torch.tensor([[2, 3]])), 1.0)


@pytest.fixture(scope="module")
def base():
    return LoraTraining(replace(WIDE, starts=(OURS,))).base.requires_grad_(False)


@pytest.fixture(scope="module")
def nets(base):
    codes = vectors(WIDE, split(WIDE.seed)[0])
    return {s: build(WIDE, base, s, torch.eye(12) if s == PER_TASK else codes) for s in STARTS}


def heads_of(net):
    """H_A, β_A, H_B and β_B of all weights."""
    parts = dict(net.heads.named_parameters())
    ends = ("-A.weight", "-A.bias", "-B.weight", "-B.bias")
    return [torch.cat([p.flatten() for name, p in parts.items() if name.endswith(end)]) for end in ends]


def test_starts_have_the_variances_of_their_formulas(nets):
    d_in, d_k, rank = WIDE.width, WIDE.code, WIDE.rank
    doc = 0.25 / (d_k + rank * 2 * d_in)
    wanted = {
        T2L: (0, text_to_lora_variance(d_in), 0, 0),
        D2L: (doc, 0.04 / (rank * d_in), doc, 0),
        TORCH: (1 / (3 * d_k),) * 4,
    }
    for start, variances in wanted.items():
        for values, variance in zip(heads_of(nets[start]), variances, strict=True):
            if variance:
                assert_variance(values, variance)
            else:
                assert not values.any()
    _, common, b, _ = heads_of(nets[OURS])
    assert_variance(common, 0.9 / d_in)
    assert not b.any()


def test_all_but_torchs_start_as_the_language_model_is_and_from_one_trunk(nets, base):
    tokens = torch.randint(4, (12, 2, 10), generator=torch.Generator().manual_seed(0))
    for start, net in nets.items():
        codes = torch.eye(12) if start == PER_TASK else vectors(WIDE, split(WIDE.seed)[0])
        made = net(tokens, embedding=codes, grouped=True)
        assert torch.allclose(made, base(tokens.flatten(0, 1)).view_as(made), atol=1e-4) == (start != TORCH)
        if start != PER_TASK:
            assert torch.equal(net.trunk[0].weight, nets[OURS].trunk[0].weight)
        assert set(net.per_sample.mixing.values()) == {None}  # batched, without vmap


def test_doc_to_loras_factors_are_trained_first_and_let_the_heads_learn_after(base):
    net = build(WIDE, base, D2L, torch.eye(12))
    out = net(torch.zeros(12, 1, 10, dtype=torch.long), embedding=torch.eye(12), grouped=True)
    out.square().sum().backward()
    parts = dict(net.heads.named_parameters())
    assert parts["scale_b_0"].grad.any()
    assert parts["common_b_0"].grad.any()
    assert not net.trunk[0].weight.grad.any()


def test_losses_and_tests_come_when_the_language_model_is_pretrained(tmp_path):
    assert run(SMOKE, tmp_path / "run", Silent()) == "finished"
    rows = read_metrics(tmp_path / "run")
    assert [(r["step"], len(r["losses"])) for r in rows if r["kind"] == Kind.LOSSES] == [(6, 10), (8, 10)]
    tested = [(r["step"], r["of"]) for r in rows if r["kind"] == Kind.ERRORS]
    assert tested == [(step, of) for step in (4, 6, 8) for of in ("trained", "held out")]
    held = [r for r in rows if r["kind"] == Kind.ERRORS][-1]
    assert [loss is None for loss in held["losses"]] == [start == PER_TASK for start, _ in SMOKE.members]
    assert [r["step"] for r in rows if r["kind"] == Kind.TEST] == [SMOKE.pretraining]


@pytest.mark.parametrize("stopped_at", [2, 6])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch, stopped_at):
    config = replace(SMOKE, starts=(OURS, D2L), rates=(1e-2,), log_every=4, test_every=4)
    assert run(config, tmp_path / "whole", Silent()) == "finished"
    step = LoraTraining.step

    def stopping(training, number):
        if number == stopped_at + 1:
            raise KeyboardInterrupt
        return step(training, number)

    with monkeypatch.context() as patch:
        patch.setattr(LoraTraining, "step", stopping)
        assert run(config, tmp_path / "parts", Silent()) == "stopped"
    assert run(config, tmp_path / "parts", Silent(), resume=True) == "finished"
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_the_language_model_stays_as_it_was_pretrained():
    training = LoraTraining(replace(SMOKE, rates=(1e-2,)))
    for step in range(SMOKE.pretraining):
        training.step(step)
    before = [p.clone() for p in training.base.parameters()]
    losses = [training.step(step) for step in range(SMOKE.pretraining, SMOKE.total)]
    assert all(torch.equal(a, b) for a, b in zip(before, training.base.parameters(), strict=True))
    assert len(set(losses)) > 1


def test_one_diverged_net_does_not_end_the_others():
    training = LoraTraining(replace(SMOKE, pretraining=2, starts=(OURS, T2L), rates=(1e-2,)))
    for step in range(3):
        training.step(step)
    with torch.no_grad():
        training.members[0].net.trunk[0].weight.fill_(float("nan"))
    assert math.isfinite(training.step(3))
    assert [bool(x) for x in training.sums.isfinite()] == [False, True]


def test_rates_fall_to_zero():
    training = LoraTraining(replace(SMOKE, pretraining=2, starts=(OURS,), rates=(1e-2,)))
    seen = []
    for step in range(6):
        training.step(step)
        seen += [group["lr"] for member in training.members for group in member.optimiser.param_groups[:1]]
    assert seen == pytest.approx([1e-2, 0.75e-2, 0.5e-2, 0.25e-2])


def test_the_grid_has_seeds_that_choose_and_others_that_are_compared():
    seeds = [c.seed for c in grid(Lora())]
    assert len(set(seeds)) == len(seeds)
    assert sum(seed >= CHOOSING_SEED for seed in seeds) == 2
    assert Lora().members == [(start, rate) for start in STARTS for rate in RATES[start]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"starts": ("t3l",)}, "t2l"),
        ({"starts": ()}, "at least one"),
        ({"rates": (0.1, 0.1)}, "each once"),
        ({"steps": 5}, "no multiple"),
        ({"length": 5}, "pairs"),
        ({"width": 10}, "even part"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(RunError, match=words):
        replace(SMOKE, **changes)
