"""The conditions experiment: runs side by side against one run in the plainest way, its jobs, resuming, its grid."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from toy import Silent, assert_resumes

import hyperfan as hf
from checks import assert_variance
from hyperfan.data import Labelled, Splits
from hyperfan.errors import RunError
from hyperfan.experiments.conditions import (
    CODE_SQUARES,
    JOBS,
    LINEAR_TRUNK,
    PROFILES,
    RATES,
    SMALL_OUTPUTS,
    STAGES,
    TABLED,
    VARIANTS,
    WEIGHTS_ALONE,
    Conditions,
    grid,
    pictures,
    trunk_setting,
)
from hyperfan.experiments.conditions import training as module
from hyperfan.experiments.conditions.jobs import Preferences
from hyperfan.experiments.conditions.stack import values_of
from hyperfan.experiments.conditions.training import JOBS_BY_NAME, ConditionsTraining, build, draw
from hyperfan.experiments.experiment import CHOOSING_SEED
from hyperfan.experiments.loop import run
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet.condition_defaults import GIVEN_SHARE, TASKS_SHARE
from hyperfan.metrics import Kind, read_metrics

SMOKE = PROFILES["smoke"]


def made_up_digits(count, seed):
    draws = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 28, 28), dtype=torch.uint8, generator=draws)
    return Labelled(images, torch.arange(count) % 10)


@pytest.fixture(autouse=True)
def _digits(monkeypatch):
    """Noise in place of MNIST."""
    pictures.digits.cache_clear()
    monkeypatch.setattr(pictures, "mnist", lambda _data_dir: Splits(made_up_digits(300, 0), made_up_digits(200, 1)))
    yield
    pictures.digits.cache_clear()


def in_float64(training):
    """The same training with all numbers in double precision, drawn as in single."""
    for stack in training.stacks.values():
        stack.theta = {name: t.double() for name, t in stack.theta.items()}
        stack.begin(0)
    gather = training._gather

    def doubled(*args, **kwargs):
        conditions, batch = gather(*args, **kwargs)
        double = {name: t.double() if t.is_floating_point() else t for name, t in batch.items()}
        return conditions.double() if conditions.is_floating_point() else conditions, double

    training._gather = doubled
    return training


def weights_alone(net):
    """The same net with biases that are not generated, and start at zero, which a mainnet of its own has."""
    main = net.freeze(embedding=torch.zeros(8).double())
    other = hf.HyperNet(main, net.embeddings.config, generate="weights", trunk=net.trunk, heads="separate")
    with torch.no_grad():
        for name in other.heads.names:
            for p, value in zip(other.heads.head(name).parameters(), net.heads.head(name).parameters(), strict=True):
                p.copy_(value)
        for name, p in other.named_parameters():
            if name.startswith("mainnet."):
                p.zero_()
    return other


def alone(config, share, seed, lr, variant=None):
    """One run by itself, with the library's own parts, in float64; yields the net and the loss before each step."""
    job = module.JOBS_BY_NAME[config.job]
    net, world = draw(build(config, share), seed, share, variant).double(), job.world(seed, None)
    net = weights_alone(net) if variant == WEIGHTS_ALONE else net
    length = config.steps // job.stages
    for step in range(config.steps):
        if step % length == 0:
            optimiser = getattr(torch.optim, config.optimiser)(net.parameters(), lr=lr)
            task = step // length
            past = [{n: t.detach() for n, t in net.generate(task=i).items()} for i in range(task)]
        if job.stages > 1:
            chosen = torch.tensor([task])
        else:
            chosen = torch.randperm(job.known, generator=generator(seed, "chosen", step))[: job.batch]
        batch = world.batch(chosen, job.points, generator(seed, "batch", step), False)
        batch = {n: (t.double() if t.is_floating_point() else t).unsqueeze(0) for n, t in batch.items()}
        condition = {"task": chosen} if config.job in TABLED else {"embedding": world.conditions[chosen].double()}
        loss = job.loss(lambda x, c=condition: net(x[0], **c, grouped=True).unsqueeze(0), batch).mean()
        if job.beta and task:
            now = [net.generate(task=i) for i in range(task)]
            drifts = [(now[i][n] - t).square().sum() for i in range(task) for n, t in past[i].items()]
            loss = loss + job.beta * sum(drifts) / task
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield net, loss.item()


ALONE = [
    ("joint", 0.2, "AdamW"),
    ("tasks", None, "SGD"),
    ("policy", 0.0, "SGD"),
    ("field", 1.0, "AdamW"),
    ("clients", 0.5, "SGD"),
    ("remembered", 0.5, "AdamW"),
]


@pytest.mark.parametrize(("job", "share", "optimiser"), ALONE)
def test_every_run_equals_one_that_is_trained_alone_with_the_library(monkeypatch, job, share, optimiser):
    monkeypatch.setitem(RATES, optimiser, (0.01, 0.03))
    config = replace(SMOKE, job=job, shares=(share or 0.0,), optimiser=optimiser, seed=3)
    training = in_float64(ConditionsTraining(config))
    training.stacks = {"": training.stacks["1/" if share is None else "0/"]}
    singles = [alone(config, share, seed, lr) for lr in config.rates for seed in training.seeds]
    for step in range(config.total):
        found = [next(single) for single in singles]
        assert training.step(step) == pytest.approx(sum(loss for _, loss in found) / len(found), rel=1e-9)
    for i, (net, _) in enumerate(found):
        for name, value in values_of(net).items():
            torch.testing.assert_close(training.stacks[""].theta[name][i], value, rtol=1e-7, atol=1e-9)


def test_biases_that_are_not_generated_are_trained_as_the_library_does(monkeypatch):
    monkeypatch.setitem(RATES, "AdamW", (0.01, 0.03))
    config = replace(SMOKE, shares=(0.01,), variants=(WEIGHTS_ALONE,), seed=3)
    training = in_float64(ConditionsTraining(config))
    training.stacks = {"": training.stacks["1/"]}
    training.stacks[""].mask = training.stacks[""].mask.double()
    singles = [alone(config, 0.01, seed, lr, WEIGHTS_ALONE) for lr in config.rates for seed in training.seeds]
    for step in range(config.total):
        found = [next(single) for single in singles]
        assert training.step(step) == pytest.approx(sum(loss for _, loss in found) / len(found), rel=1e-9)


@pytest.mark.parametrize("job", ["turned", "joint"])  # with one layer in the trunk, and with two
def test_variants_change_one_thing_of_the_default(job):
    size = JOBS_BY_NAME[job].size
    net = build(replace(SMOKE, job=job, shares=(0.01,), width=16), 0.01)
    e = torch.randn(6, size)
    default = draw(net, 0, 0.01).generate(embedding=e)
    norms = [m.weight.norm().item() for m in net.trunk if isinstance(m, nn.Linear)]
    for name, square in CODE_SQUARES.items():
        other = draw(net, 0, 0.01, name)
        assert other.heads.measured_moments(other.code_source)[0] == pytest.approx(square, rel=1e-5)
        for tensor, made in other.generate(embedding=e).items():
            torch.testing.assert_close(made, default[tensor], rtol=1e-4, atol=1e-6)
        trunk = [m.weight.norm().item() for m in other.trunk if isinstance(m, nn.Linear)]
        factors = [a / b for a, b in zip(trunk, norms, strict=True)]
        assert factors == pytest.approx([factors[0]] * len(factors))  # each layer has its part
    linear = draw(net, 0, 0.01, LINEAR_TRUNK)
    assert linear.trunk[0].bias.any()
    assert_variance(linear.trunk[0].weight, 1 / (3 * size))
    bases = {n: linear.heads.head(n).bias.clone() for n in linear.heads.names}
    again = draw(net, 0, 0.01)
    assert all(torch.equal(again.heads.head(name).bias, base) for name, base in bases.items())
    generated = [
        n.heads.head("0/weight").weight.square().mean().item() * n.heads.measured_moments(n.code_source)[0]
        for n in (draw(net, 0, 0.01, variant) for variant in (None, LINEAR_TRUNK))
    ]
    assert generated[1] == pytest.approx(generated[0], rel=1e-5)  # whatever the size of its codes
    for tensor, made in draw(net, 0, 0.01, SMALL_OUTPUTS).generate(embedding=e).items():
        torch.testing.assert_close(made, default[tensor] * (0.1**0.5 if tensor.startswith("4.") else 1.0))


def test_variants_are_tried_at_the_default_share():
    for job in JOBS:
        (share,) = trunk_setting(Conditions(), job, "SGD").shares
        assert share == (TASKS_SHARE if job in TABLED else GIVEN_SHARE)


@pytest.mark.parametrize("job", JOBS)
def test_every_job_measures_known_and_unseen_conditions(tmp_path, job):
    config = replace(SMOKE, job=job)
    assert run(config, tmp_path / "run", Silent()) == "finished"
    rows = read_metrics(tmp_path / "run")
    found, runs = [r for r in rows if r["kind"] == Kind.LOSSES], SMOKE.seeds * len(config.rates) * len(config.starts)
    assert [r["iteration"] for r in found] == [0, 4, 8]
    assert all(len(r["losses"]) == runs for r in found)
    assert all(("unseen" in r) == (module.JOBS_BY_NAME[job].unseen > 0) for r in found)
    errors = [r for r in rows if r["kind"] == Kind.ERRORS]
    stages = module.JOBS_BY_NAME[job].stages
    assert [r["learnt"] for r in errors] == ([] if stages == 1 else list(range(STAGES + 1)))
    assert all(torch.tensor(r["errors"]).shape == (runs, STAGES) for r in errors)


def test_conditions_and_targets_have_variance_one():
    for name in ("turned", "projection", "preferences", "policy", "field"):
        world = module.JOBS_BY_NAME[name].world(0, None)
        assert world.conditions.square().mean().item() == pytest.approx(1, rel=0.2)
    for name in ("turned", "projection", "tasks"):
        job = module.JOBS_BY_NAME[name]
        chosen = torch.arange(job.known)
        y = job.world(0, None).batch(chosen, 64, generator(0), False)["y"]
        assert y.var().item() == pytest.approx(1, rel=0.2)


def test_the_best_answer_to_a_preference_has_no_loss_and_any_other_has_one():
    job = Preferences()
    batch = job.world(0, None).batch(torch.arange(4), 8, generator(0), True)
    y = batch["y"].double()
    one = {name: t.double().unsqueeze(0) for name, t in batch.items()}
    answers = torch.linspace(y.min().item(), y.max().item(), 2001, dtype=torch.float64)
    losses = torch.stack([job.loss(lambda x, a=a: torch.full_like(x[..., :1], a.item()), one) for a in answers])
    assert (losses > -1e-3).all()
    single = {name: t[:, :1, :1] for name, t in one.items()}
    at = torch.stack([job.loss(lambda x, a=a: torch.full_like(x[..., :1], a.item()), single) for a in answers])
    assert at.min().item() == pytest.approx(0, abs=1e-3)


def test_clients_have_their_own_digits_and_are_tested_on_others():
    world = module.JOBS_BY_NAME["clients"].world(0, None)
    chosen = torch.arange(16)
    train, test = (world.batch(chosen, 200, generator(0), part)["label"].flatten(1) for part in (False, True))
    for a, b in zip(train, test, strict=True):
        assert set(a.tolist()) == set(b.tolist())
        assert len(set(a.tolist())) == 3


def test_linear_starts_as_torchs_layers_do():
    net = draw(build(replace(SMOKE, job="turned", width=64), None), 0, None)
    for t, fan_in in ((net.trunk[0].weight, 8), (net.heads.head("2/weight").weight, 64)):
        assert_variance(t, 1 / (3 * fan_in))
        assert t.abs().max() <= fan_in**-0.5
    assert_variance(net.heads.head("2/weight").bias, 1 / (3 * 64))


def test_starts_share_everything_but_the_init():
    training = ConditionsTraining(replace(SMOKE, job="tasks"))
    first, *others = training.stacks.values()
    for other in others:
        assert torch.equal(other.theta["table"], first.theta["table"])
        assert not torch.equal(other.theta["heads.bias"], first.theta["heads.bias"])
    _, batch = training.batch(3)
    half = len(batch["x"]) // len(training.config.rates)
    assert torch.equal(batch["x"][:half], batch["x"][half : 2 * half])  # nor do rates differ


@pytest.mark.parametrize("batches", [3, 5])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, batches):
    assert_resumes(replace(SMOKE, job="remembered", checkpoint_every=2), tmp_path, batches)


def test_one_diverged_run_does_not_end_the_others():
    training = ConditionsTraining(SMOKE)
    training.stacks["0/"].theta["heads.bias"][0] = math.nan
    assert math.isfinite(training.step(0))
    losses = training._losses(unseen=False).mean(1)
    assert losses.isfinite().tolist() == [False, *[True] * (len(losses) - 1)]
    for stack in training.stacks.values():
        stack.theta["heads.bias"][:] = math.nan
    assert math.isnan(training.step(1))  # none is left


def test_the_grid_has_every_job_on_seeds_that_choose_and_on_others():
    configs = grid(Conditions())
    assert len(configs) == 2 * 2 * len(JOBS) * len(RATES)
    assert {c.variants for c in configs} == {(), VARIANTS}
    compared = [c for c in configs if c.seed < CHOOSING_SEED]
    assert {c.choosing() for c in compared} == set(configs) - set(compared)
    assert len({c.folder for c in configs}) == len(configs)
    assert set(module.JOBS_BY_NAME) == set(JOBS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": "turn"}, "turned"),
        ({"shares": (1.5,)}, "parts of 1"),
        ({"shares": (0.5, 0.5)}, "each once"),
        ({"log_every": 3}, "no multiple"),
        ({"variants": ("‖h‖² = 2",)}, "did you mean"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(RunError, match=words):
        replace(SMOKE, **changes)
