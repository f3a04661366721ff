"""A run among others is the run alone."""

import math
from dataclasses import replace

import pytest
import torch
from continual_alone import alone
from torch.nn.functional import mse_loss

from hyperfan.errors import RunError
from hyperfan.experiments.continual import ALL_INITS, Continual
from hyperfan.experiments.continual.stack import RegressionStack
from hyperfan.experiments.continual.training import ContinualTraining, build, order, points, widths
from hyperfan.experiments.draws import draw_init
from hyperfan.experiments.stack import HEAD_BIAS, values_and_embeddings_of
from hyperfan.optim import Memory
from products import only_in_full

BASE = Continual(inits=ALL_INITS, seeds=1, iterations=30, log_every=30, precision="float64")
CHOSEN = [i * len(BASE.rates) + (i - 1) % len(BASE.rates) for i in range(len(ALL_INITS))]
"""One run of each init, at each rate in turn; of the two structures, each has a run that does not diverge."""


def together(config):
    """Losses of every run at every step, (run, step), as the stacks return them; and the training."""
    training = ContinualTraining(config)
    found = {}
    for prefix, stack in training.stacks.items():

        def seen(loss, count, prefix=prefix, step=stack.step):
            found[prefix] = step(loss, count)
            return found[prefix]

        stack.step = seen
    losses = []
    for step in range(config.total):
        list(training.tests(step))
        training.step(step)
        losses.append(torch.cat([found[f"{init}/"] for init in config.inits]))
    return torch.stack(losses, 1), training


def diverged(losses):
    """The first step at which the loss of each run is not finite, or −1; raises if it is finite again."""
    gone = ~losses.isfinite()
    assert torch.equal(gone, gone.cummax(1).values)
    return [row.index(True) if True in row else -1 for row in gone.tolist()]


@pytest.fixture(scope="module")
def config(request):
    return replace(BASE, iterations=170, log_every=170) if request.config.getoption("full") else BASE


@pytest.fixture(scope="module")
def batched(config):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield together(config)
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "number",
    only_in_full(range(len(BASE.runs)), CHOSEN),
    ids=lambda n: f"{BASE.runs[n].init}-{BASE.runs[n].lr:g}",
)
def test_each_run_equals_the_run_alone(config, batched, number):
    losses, training = batched
    net, steps = alone(config, config.runs[number])
    expected = torch.tensor(list(steps), dtype=torch.float64)
    finite = expected.isfinite()
    found = losses[number, : len(expected)]
    torch.testing.assert_close(found[finite], expected[finite], rtol=1e-9, atol=0)
    if not finite.all():  # and it was noticed at the same step
        assert diverged(losses)[number] == len(expected) - 1
        return
    assert len(expected) == config.total
    assert diverged(losses)[number] == -1
    stack, row = training.stacks[f"{config.runs[number].init}/"], number % len(config.rates)  # of one seed
    held = {**stack.theta, "embeddings": stack.embeddings}
    values, embeddings = values_and_embeddings_of(net)
    for name, value in {**values, "embeddings": embeddings}.items():
        torch.testing.assert_close(held[name][row], value, rtol=1e-9, atol=1e-9 * value.abs().max().item(), msg=name)


def test_some_runs_diverge_and_some_do_not(batched):
    """Else the test above says less than it seems to."""
    gone = diverged(batched[0])
    assert 0 < sum(step >= 0 for step in gone) < len(BASE.runs) / 2
    assert 0 < sum(gone[n] >= 0 for n in CHOSEN) < len(CHOSEN)


def test_with_adam_too():
    config = replace(BASE, inits=("hyperfan-in",), rates=(1e-2,), iterations=20, log_every=20, optimiser="adam")
    losses, _ = together(config)
    net = draw_init(build(config, "hyperfan-in"), 0)
    rate, found = 1e-2, []
    for task, data in enumerate(points(config, 0)):
        theta = torch.optim.Adam([p for n, p in net.named_parameters() if n != "embeddings.weight"], lr=rate)
        own = net.embeddings.weight.detach()[task].clone().requires_grad_()
        embedding = torch.optim.Adam([own], lr=rate)
        memory = Memory(net, tasks=range(task))
        for chosen in order(config, 0, task):
            net.embeddings.weight.data[task] = own.data
            net.zero_grad()
            loss = mse_loss(net(data.train_x[chosen], task=task), data.train_y[chosen])
            loss.backward()
            own.grad = net.embeddings.weight.grad[task].clone()
            (config.beta * memory.drift(lookahead=candidate(net, theta, rate))).backward()
            embedding.step()
            theta.step()
            found.append(loss.item())
        net.embeddings.weight.data[task] = own.data
    torch.testing.assert_close(losses[0], torch.tensor(found, dtype=torch.float64), rtol=1e-9, atol=0)


def candidate(net, optimiser, rate):
    """The step that Adam would take now."""
    steps = {}
    for name, p in net.named_parameters():
        held = optimiser.state.get(p, {})
        if name == "embeddings.weight":
            continue
        n = float(held.get("step", 0)) + 1
        mean = 0.9 * held.get("exp_avg", torch.zeros_like(p)) + 0.1 * p.grad
        square = 0.999 * held.get("exp_avg_sq", torch.zeros_like(p)) + 0.001 * p.grad**2
        steps[name] = -rate * (mean / (1 - 0.9**n)) / ((square / (1 - 0.999**n)).sqrt() + 1e-8)
    return steps


def test_a_run_that_diverges_leaves_the_others_as_they_are():
    config = replace(BASE, inits=("m4", "hyperfan-in"), rates=(1e-2, 1e-3), iterations=20, log_every=5)
    losses, _ = together(config)
    assert diverged(losses) == [3, -1, -1, -1]
    assert losses[0, 4:].isnan().all()
    without, _ = together(replace(config, rates=(1e-3,)))
    torch.testing.assert_close(losses[[1, 3]], without, rtol=1e-12, atol=0)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_loss_that_was_infinite_once_is_never_finite_again(optimiser):
    """Though gradients were finite, as where only the square of an error overflows."""
    config = replace(BASE, inits=("hyperfan-in",), rates=(1e-3,), seeds=2, iterations=5, log_every=5)
    config = replace(config, optimiser=optimiser)
    training, twin = ContinualTraining(config), ContinualTraining(config)
    training.step(0), twin.step(0)
    (stack,) = training.stacks.values()
    step, overflow = stack.step, torch.tensor([math.inf, 0.0])
    stack.step = lambda loss, count: step(lambda values: loss(values) + overflow, count)
    training.step(1), twin.step(1)
    stack.step = step
    training.step(2), twin.step(2)
    assert torch.equal(training.latest, twin.latest[1:])
    (found,), (expected,) = (
        [row["losses"] for row in each.tests(0) if row["kind"] == "losses"] for each in (training, twin)
    )
    assert math.isnan(found[0])
    assert math.isfinite(expected[0])
    assert found[1] == expected[1]


def test_the_loss_shown_is_the_median_and_nothing_is_left_when_all_are_gone():
    config = replace(BASE, inits=("hyperfan-in",), rates=(1e-3,), seeds=3, iterations=5, log_every=5)
    singles = [next(alone(config, run)[1]) for run in config.runs]
    assert ContinualTraining(config).step(0) == pytest.approx(sorted(singles)[1])
    hopeless = ContinualTraining(replace(BASE, inits=("m4",), rates=(1e-2,), iterations=5, log_every=5))
    shown = [hopeless.step(step) for step in range(4)]
    assert math.isfinite(shown[2])
    assert math.isnan(shown[3])


def test_every_pass_takes_every_point_once():
    config = replace(BASE, iterations=25, log_every=25)
    chosen = order(config, seed=3, task=1)
    assert chosen.shape == (25, 32)
    for one in chosen.flatten()[:800].view(8, 100):
        assert one.sort().values.tolist() == list(range(100))
    assert not torch.equal(chosen, order(config, seed=3, task=2))
    assert not torch.equal(chosen, order(config, seed=4, task=1))


def test_runs_of_one_seed_share_points_and_embeddings():
    nets = {init: draw_init(build(BASE, init), 5) for init in ("kaiming-fan-in", "hyperfan-out", "hyperfan-in@exact")}
    embeddings = [net.embeddings.weight for net in nets.values()]
    assert all(torch.equal(e, embeddings[0]) for e in embeddings)
    assert nets["hyperfan-in@exact"].fidelity == "exact"
    assert nets["hyperfan-out"].fidelity == "paper"
    a, b = points(BASE, 5)[0].train_x, points(BASE, 6)[0].train_x
    assert torch.equal(a, points(BASE, 5)[0].train_x)
    assert not torch.equal(a, b)
    with pytest.raises(RunError, match="write 'm2' for the paper's fidelity"):
        build(BASE, "m2@paper")


def test_an_embedding_for_each_tensor_makes_each_tensor_from_its_own():
    net = draw_init(build(BASE, "m4"), 0)
    with torch.no_grad():
        net.embeddings.weight.normal_()
    stack = RegressionStack([values_and_embeddings_of(net)], (1e-3,), widths(), torch.relu, "SGD", beta=0.0)
    (made,) = stack.generate(stack.theta, stack.embeddings[:, 1:])
    for row, task in zip(made, (1, 2), strict=True):
        expected = torch.cat([tensor.flatten() for tensor in net.generate(task=task).values()])
        torch.testing.assert_close(row, expected)
    x = torch.linspace(-1, 1, 4, dtype=torch.float64)[:, None]
    torch.testing.assert_close(stack.predict(2, x[None])[0], net(x, task=2))


def test_runs_of_several_seeds_and_rates_equal_those_alone_across_a_divergence():
    """Each has the points of its seed and the rate that the grid counts it under."""
    config = replace(
        BASE, inits=("hyperfan-out@exact", "hyperfan-in"), rates=(1e-2, 1e-3), seeds=3, iterations=12, log_every=4
    )
    losses, _ = together(config)
    gone = diverged(losses)
    assert 0 < sum(step >= 0 for step in gone) < 6
    for number, run in enumerate(config.runs):
        expected = torch.tensor(list(alone(config, run)[1]), dtype=torch.float64)
        finite = expected[expected.isfinite()]
        torch.testing.assert_close(losses[number, : len(finite)], finite, rtol=1e-9, atol=0)
        assert gone[number] == (-1 if len(finite) == config.total else len(finite))


def test_what_is_measured_is_what_the_run_alone_would_show():
    """Losses before a task are those with its own embedding; errors after a task are each task's with its own."""
    config = replace(BASE, inits=("hyperfan-in",), rates=(1e-3,), seeds=2, iterations=5, log_every=5)
    training = ContinualTraining(config)
    rows = []
    for step in range(config.total + 1):
        rows += training.tests(step)
        if step < config.total:
            training.step(step)
    for number, run in enumerate(config.runs):
        net, steps = alone(config, run)
        tasks = points(config, run.seed)
        for task in range(3):
            for iteration in (0, 5):
                row = next(
                    r for r in rows if (r["kind"], r.get("task"), r.get("iteration")) == ("losses", task, iteration)
                )
                expected = mse_loss(net(tasks[task].train_x, task=task), tasks[task].train_y).item()
                assert row["losses"][number] == pytest.approx(expected, rel=1e-9)
                if iteration == 0:
                    for _ in range(5):
                        next(steps)
            tested = next(r for r in rows if (r["kind"], r.get("after")) == ("errors", task))
            for other in range(3):
                fit = net(tasks[other].test_x, task=other)
                assert tested["errors"][number][other] == pytest.approx(mse_loss(fit, tasks[other].test_y).item())
                assert tested["fits"][number][other] == pytest.approx(fit.flatten().tolist(), rel=1e-3, abs=1e-6)


def test_adam_goes_on_for_the_runs_that_are_left_and_after_a_load():
    config = replace(BASE, inits=("hyperfan-in", "m3"), rates=(1e-2,), iterations=6, log_every=3, optimiser="adam")
    whole, _ = together(config)
    training = ContinualTraining(config)
    for step in range(3):
        training.step(step)
    training.stacks["hyperfan-in/"].theta[HEAD_BIAS].fill_(math.nan)  # as if it had diverged
    state = {name: tensor.clone() for name, tensor in training.state().items()}
    training = ContinualTraining(config)
    training.load(state)
    for step in range(3, 6):
        assert training.step(step) == pytest.approx(whole[1, step].item(), rel=1e-12)


def test_an_init_whose_runs_are_all_gone_does_not_stop_the_others():
    config = replace(BASE, inits=("m4", "hyperfan-in"), rates=(1e-2,), iterations=20, log_every=5)
    losses, training = together(config)
    assert losses[1].isfinite().all()
    twin = ContinualTraining(config)
    twin.load({name: tensor.clone() for name, tensor in training.state().items()})
    for row in twin.tests(config.total):
        found = torch.tensor(row[row["kind"]])
        assert found[0].isnan().all()
        assert found[1].isfinite().all()
