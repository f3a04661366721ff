"""The MNIST experiment on pictures of noise: what depends on which part of the seed, and what a state restores."""

import json
import math
from dataclasses import replace

import pytest
import torch
from toy import Silent, assert_resumes, contents

from hyperfan.data import Labelled, Splits
from hyperfan.errors import InitError
from hyperfan.experiments.loop import run
from hyperfan.experiments.mnist import Mnist, training
from hyperfan.experiments.seeds import generator
from hyperfan.hypernet import HyperNet
from hyperfan.metrics import read_metrics
from hyperfan.probe import Diagnosis

SMALL = Mnist(epochs=2, images=30, embedding=4, probe_images=20, probe_every=4, checkpoint_every=2, log_every=3)


@pytest.fixture(autouse=True)
def _noise(monkeypatch):
    def pictures(count):
        drawn = torch.Generator().manual_seed(count)
        images = torch.randint(256, (count, 28, 28), generator=drawn, dtype=torch.uint8)
        return Labelled(images, torch.randint(10, (count,), generator=drawn))

    monkeypatch.setattr(training, "mnist", lambda _data_dir: Splits(pictures(100), pictures(1100)))


def start(**fields):
    return replace(SMALL, **fields).start(None)


def order(made):
    """The labels of every batch, which tell which pictures it has."""
    return [made.batch(step)[1].tolist() for step in range(made.config.total)]


def embeddings(made):
    return {name: t for name, t in made.net.state_dict().items() if name.startswith("embeddings")}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def losses(made, *measuring):
    seen = []
    for step in range(made.config.total):
        seen.append(made.step(step))
        for measure in measuring:
            list(measure(step + 1))
    return seen


# ── the parts of a seed ────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_is_drawn_anew_for_another_seed():
    a, b = start(), start(seed=1)
    assert order(a) != order(b)
    assert not torch.equal(a.probe.x, b.probe.x)
    for name, tensor in a.net.state_dict().items():
        if tensor.unique().numel() > 1:  # the mainnet's biases are zero
            assert not torch.equal(tensor, b.net.state_dict()[name]), name


def test_the_init_changes_neither_data_nor_embeddings_nor_probe():
    a = start()
    for init in ("hyperfan-out", "xavier-fan-in", "classical"):
        b = start(init=init)
        assert order(a) == order(b)
        assert torch.equal(a.probe.x, b.probe.x)
        if init != "classical":
            assert embeddings(a)
            assert same(embeddings(a), embeddings(b))


def test_heads_and_embeddings_are_drawn_apart():
    """Other numbers for the one leave the other as it is."""
    made = start(init="xavier-fan-in").net
    before = {name: t.clone() for name, t in made.state_dict().items()}
    changed = {}
    for part, init, codes in (
        ("embeddings", (0, "init"), (1, "embeddings")),
        ("heads", (1, "init"), (0, "embeddings")),
    ):
        made.reset_parameters(generator(*init), embeddings=generator(*codes))
        changed[part] = {
            name.split(".")[0] for name, t in made.state_dict().items() if not torch.equal(t, before[name])
        }
    assert changed == {"embeddings": {"embeddings"}, "heads": {"heads"}}


def test_neither_does_what_is_generated_change_the_order():
    for fields in (
        {"generate": "weights+biases"},
        {"heads": "separate"},
        {"activation": "relu"},
        {"optimiser": "adam"},
    ):
        assert order(start(**fields)) == order(start())


def test_the_probe_does_not_change_training():
    made = start()
    plain = losses(made)
    for fields in ({}, {"probe_every": 1}, {"probe_images": 3}):
        other = start(**fields)
        assert losses(other, other.tests, other.probes) == plain
        assert same(other.state(), made.state())


def test_every_epoch_has_every_picture_once_in_an_order_of_its_own():
    made = start(images=60, batch=7)
    first, second = ([made.batch(s)[0] for s in range(e * 8, e * 8 + 8)] for e in (0, 1))
    assert made.config.epoch_batches == 8
    for epoch in (first, second):
        pictures = torch.cat(epoch)
        assert len(pictures.unique(dim=0)) == len(pictures) == 56
        assert (pictures[:, None] == made.x[None]).all(-1).any(-1).all()
    assert not torch.equal(torch.cat(first), torch.cat(second))


def test_a_batch_depends_on_its_step_alone():
    made = start()
    forwards = order(made)
    backwards = [made.batch(step)[1].tolist() for step in reversed(range(made.config.total))]
    assert forwards == backwards[::-1]


# ── what is measured ───────────────────────────────────────────────────────────────────────────────────────────────


def test_tests_are_sums_over_all_test_images():
    made = start()
    (row,) = made.tests(0)
    with torch.no_grad():
        out = made.net(made.test_x)
        loss = torch.nn.functional.cross_entropy(out.double(), made.test_y, reduction="sum").item()
    assert row["accuracy"] == (out.argmax(1) == made.test_y).double().mean().item()
    # A float32 product over 784 units is off by at most 784 half-ulps of the largest term, and so is each sum after it.
    assert row["loss"] == pytest.approx(loss, rel=6 * 784 * 2**-24)
    assert (row["kind"], row["step"]) == ("test", 0)


def test_they_come_before_the_start_after_each_epoch_and_at_the_end():
    made = start(images=60, batches=9)
    assert [s for s in range(10) if list(made.tests(s))] == [0, 6, 9]
    assert [s for s in range(10) if list(made.probes(s))] == [0, 4, 8, 9]
    kinds = {s: {row["kind"] for row in made.probes(s)} for s in (0, 4, 9)}
    assert kinds == {0: {"diagnosis", "moments", "histograms"}, 4: {"moments"}, 9: {"moments", "histograms"}}


def test_a_hypernet_is_diagnosed_before_it_is_trained_and_a_plain_net_is_not():
    made = start(init="xavier-fan-in")
    (row,) = [row for row in made.probes(0) if row["kind"] == "diagnosis"]
    assert row["findings"][0]["name"] == "wrong scale of a head"
    assert Diagnosis.from_dict(json.loads(json.dumps(row))).summary == row["summary"]
    assert not [row for row in start(init="classical").probes(0) if row["kind"] == "diagnosis"]


@pytest.mark.parametrize("init", ["hyperfan-in", "classical"])
def test_a_probe_looks_at_six_layers(init):
    rows = {row["of"]: row for row in start(init=init).probes(4)}
    paths = [str(2 * i) for i in range(6)]
    for quantity in ("activations", "gradients"):
        assert list(rows[quantity]["layers"]) == paths
    for quantity in ("weights", "weight gradients"):
        assert set(rows[quantity]["layers"]) == {f"{p}.{kind}" for p in paths for kind in ("weight", "bias")}


# ── a state is all there is ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"init": "classical", "optimiser": "adam"},
        {"optimiser": "adam"},
        {"heads": "separate", "generate": "weights+biases"},
    ],
    ids=str,
)
def test_stopped_and_resumed(tmp_path, fields):
    assert_resumes(replace(SMALL, **fields), tmp_path, 5)


def test_the_net_is_trained():
    """Noise can be learned by heart, in a few more epochs."""
    seen = losses(start(epochs=20, lr=0.005, images=60))
    assert max(seen[-6:]) < 0.5 * min(seen[:6])


def test_kaiming_fan_in_diverges(tmp_path):
    """As a hypernet's ReLU net does from an init that makes its weights too large, and the same way each time."""
    config = replace(SMALL, init="kaiming-fan-in", activation="relu")
    assert run(config, tmp_path / "a", Silent()) == run(config, tmp_path / "b", Silent()) == "diverged"
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    end = read_metrics(tmp_path / "a")[-1]
    assert end["outcome"] == "diverged"
    made = config.start(None)
    for _ in range(end["step"]):
        assert math.isfinite(made.step(_))
    assert not math.isfinite(made.step(end["step"]))
    x = made.batch(end["step"])[0]
    finite = {
        path: bool(made.net.freeze()[: int(path) + 1](x).isfinite().all()) for path in ("0", "2", "4", "6", "8", "10")
    }
    assert end["layer"] == next(path for path, fine in finite.items() if not fine)


# ── what is built ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_classical_net():
    for activation, name, a in (("tanh", "xavier", 1.0), ("relu", "kaiming", 2.0)):
        made = start(init="classical", activation=activation)
        assert not isinstance(made.net, HyperNet)
        assert made.plan["init"] == name
        layers = [m for m in made.net if isinstance(m, torch.nn.Linear)]
        assert [m.out_features for m in layers] == [500] * 5 + [10]
        for layer in layers:
            fan_in, fan_out = layer.in_features, layer.out_features
            variance = 2 / (fan_in + fan_out) if name == "xavier" else a / fan_in
            reach = (3 * variance) ** 0.5
            # Of n uniform numbers the largest is within 20/n of the edge but for one time in 10^8.
            assert reach * (1 - 20 / layer.weight.numel()) < layer.weight.abs().max() <= reach * (1 + 2**-23)
            assert not layer.bias.any()
        assert type(made.net[1]).__name__.lower() == activation


def test_the_hypernet_is_as_configured():
    made = start(init="m2", heads="separate", generate="weights+biases", activation="relu", embedding=3)
    assert made.plan["method"] == "m2(std=0.01)"
    assert made.plan["fidelity"] == "paper"
    assert isinstance(made.net, HyperNet)
    assert len(made.net.heads.layouts) == 12
    assert isinstance(made.net.freeze()[1], torch.nn.ReLU)
    assert made.optimiser.param_groups[0]["lr"] == 0.0005


def test_a_warning_goes_to_the_plan():
    assert start().plan["warnings"] == []
    (warning,) = start(init="m4").plan["warnings"]
    assert "'m4' gives the tensors of head 500x500 equal embeddings" in warning


def test_an_unknown_init():
    with pytest.raises(InitError, match="there is no init method 'hyperfan'"):
        start(init="hyperfan")
