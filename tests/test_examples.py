"""Every example runs, is short, and learns; at the size of the test a little, with its own settings as it says."""

import importlib
import itertools
from pathlib import Path

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import hyperfan as hf
from checks import assert_close

EXAMPLES = Path(__file__).parents[1] / "examples"
MAX_LINES = 60


@pytest.fixture(autouse=True)
def _examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES.parent))
    torch.manual_seed(0)


def example(name):
    return importlib.import_module(f"examples.{name}")


def trainable_change(net, train):
    """What training of a net returns, and whether it has moved every kind of parameter."""
    before = {name: p.detach().clone() for name, p in net.named_parameters() if p.requires_grad}
    found = train(net)
    still = [name for name, p in net.named_parameters() if name in before and torch.equal(p, before[name])]
    return found, still


def test_every_example_is_short_and_tested():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"hyperlstm", "lora", "pareto", "pfedhn", "pinn", "siren"}
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < MAX_LINES
        assert f"``python -m examples.{path.stem}``" in text


def test_a_siren_from_an_image_encoder_draws_unseen_pictures():
    siren = example("siren")
    seen, unseen = siren.pictures(64), siren.pictures(32)
    net = siren.hypernet(seen, width=16, code=16)
    assert hf.diagnose(net, siren.coordinates(), embedding=seen[0]).healthy
    error, still = trainable_change(net, lambda net: siren.train(net, seen, unseen, steps=60))
    assert error < 0.5  # of the pictures' variance
    assert not still  # the encoder is trained too


def test_a_federated_update_is_the_gradient_of_one_local_step():
    """With one local step of SGD, Δ = lr·∂L/∂θ, so that the vector–Jacobian product is lr times the gradient of L."""
    fed = example("pfedhn")
    x, y = fed.clients(4)
    net = fed.hypernet(4).double()
    x = x.double()
    sent = net.generate(task=1)
    torch.autograd.backward(list(sent.values()), fed.change(sent, x[1], y[1], steps=1, lr=0.1))
    updates = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    cross_entropy(functional_call(fed.MAINNET, net.generate(task=1), x[1]), y[1]).backward()
    for name, p in net.named_parameters():
        assert (p.grad is None) == (name not in updates)
        if p.grad is not None:
            assert_close(updates[name], 0.1 * p.grad)


def test_federated_clients_get_nets_that_know_their_classes():
    fed = example("pfedhn")
    x, y = fed.clients(8)
    assert fed.train(fed.hypernet(8), x, y, rounds=64) > 0.4  # guessing has 0.25


def test_a_pareto_front_is_learnt_and_trades_one_loss_for_the_other():
    pareto = example("pareto")
    front = pareto.train(pareto.hypernet(), steps=80, lr=3e-3)
    preference, f, g, beyond = front.unbind(1)
    assert preference.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert f[0] > 2 * f[-1]
    assert g[-1] > 2 * g[0]
    assert beyond.mean() < 0.3  # the targets have a variance of about 0.5
    assert (beyond > -0.05).all()  # nothing is better than the best, but for the sample


def test_the_residual_of_a_pinn_is_zero_for_the_solution():
    pinn = example("pinn")
    coefficients, points = torch.randn(3, 4, dtype=torch.float64), torch.rand(20, 2, dtype=torch.float64)

    def exact(x, embedding, grouped):
        at = (x + 2) / 4
        edge = 16 * (at * (1 - at)).prod(-1, keepdim=True)
        return (pinn.waves(at) * embedding[:, None]).sum(-1, keepdim=True) / edge

    # The wave numbers are float32, and squared in the source: a relative error of about 1e-7 of terms of order 1.
    assert pinn.residual(exact, coefficients, points).abs().max() < 1e-5


def test_a_pinn_is_trained_through_two_derivatives():
    pinn = example("pinn")
    net = pinn.hypernet()
    points, sources = torch.rand(16, 2), torch.randn(4, 4)
    before = pinn.residual(net, sources, points).square().mean().item()
    error, still = trainable_change(net, lambda net: pinn.train(net, steps=15, lr=1e-3))
    assert pinn.residual(net, sources, points).square().mean() < before
    assert error < 1.5
    # Adding to the last bias adds to N, which the residual feels through the edge's factor: nothing is left out.
    assert not still


def test_lora_from_task_vectors_learns_what_the_model_cannot_be_told():
    lora = example("lora")
    model = lora.pretrained(steps=2)
    frozen = {name: p.clone() for name, p in model.named_parameters()}
    net, vectors = lora.hypernet(model), torch.randn(len(lora.TASKS), 16)
    asked, _ = lora.prompts(2, told=False)
    as_it_is = model(asked.flatten(0, 1)).unflatten(0, (-1, 2))
    torch.testing.assert_close(net(asked, embedding=vectors, grouped=True), as_it_is)
    before = net.generate(embedding=vectors[0])
    lora.train(net, vectors, steps=3)
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters())
    after = [net.generate(embedding=vector) for vector in vectors[:2]]
    for name, w in before.items():
        assert not torch.equal(w, after[0][name])
    assert any(not torch.equal(a, b) for a, b in zip(*(made.values() for made in after), strict=True))


def test_the_tasks_of_the_lora_example_are_shifts():
    lora = example("lora")
    for told, first in ((True, lora.BLANK + 1 + lora.TASKS), (False, lora.BLANK + 0 * lora.TASKS)):
        asked, answers = lora.prompts(3, told)
        assert (asked[..., 0] == first[:, None]).all()
        for task, i in itertools.product(range(len(lora.TASKS)), range(3)):
            strings = asked[task, i, 1 : 1 + lora.LENGTH]
            assert ((strings + task) % lora.LETTERS).tolist() == answers[task, i].tolist()
