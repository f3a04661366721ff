"""Which runs there are, what they are called, and which cannot be."""

import dataclasses
from collections import Counter

import pytest

from hyperfan.errors import RunError
from hyperfan.experiments.mnist import CLOSE_SEEDS, PROFILES, SHARING_SEEDS, Mnist, grid


def test_the_paper_s_run():
    """Section 4.1: embeddings of 50, batches of 10, 30 epochs, SGD with 0.0005, 300 images for the probe."""
    run = PROFILES["paper"]
    assert run == Mnist()
    assert (run.epochs, run.batch, run.embedding, run.rate, run.images) == (30, 10, 50, 0.0005, 60_000)
    assert (run.epoch_batches, run.total) == (6_000, 180_000)
    assert (run.probe_images, run.probe_every) == (300, 1000)
    assert (run.activation, run.generate, run.heads, run.optimiser, run.fidelity) == (
        "tanh", "weights", "shared", "sgd", "paper")  # fmt: skip


def test_rates():
    assert Mnist(init="classical").rate == 0.01
    assert Mnist(init="m2").rate == 0.0005
    assert Mnist(init="classical", lr=0.3).rate == Mnist(lr=0.3).rate == 0.3


def test_totals():
    assert Mnist(epochs=2, images=1000, batch=7).epoch_batches == 142
    assert Mnist(epochs=2, images=1000, batch=7).total == 284
    assert Mnist(epochs=2, images=1000, batch=10, batches=150).total == 150
    assert Mnist(epochs=2, images=1000, batch=10, batches=999).total == 200
    assert PROFILES["laptop"].total == 18_000
    assert PROFILES["smoke"].total == 200


def test_titles_say_what_is_unusual():
    assert Mnist().title == "hyperfan-in seed-0"
    assert PROFILES["smoke"].title == "hyperfan-in seed-0 epochs-2 images-1000 checkpoint_every-50"
    assert str(Mnist(init="classical", activation="relu", lr=0.1, seed=7).folder) == (
        "classical_seed-7_lr-0.1_activation-relu"
    )


def test_every_field_that_changes_what_is_trained_changes_the_folder():
    other = {"seed": 1, "epochs": 2, "lr": 0.5, "activation": "relu", "generate": "weights+biases",
             "heads": "separate", "optimiser": "adam", "fidelity": "exact", "embedding": 2, "batch": 2, "images": 20,
             "batches": 2, "threads": 2, "init": "m2"}  # fmt: skip
    watching = {"probe_images", "probe_every", "log_every", "checkpoint_every"}
    assert {f.name for f in dataclasses.fields(Mnist)} == {*other, *watching}
    folders = [Mnist(**{name: value}).folder for name, value in other.items()]
    assert len({Mnist().folder, *folders}) == len(other) + 1
    assert all(len(folder.parts) == 1 for folder in folders)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, 5])
def test_every_run_of_the_grid_has_a_folder_of_its_own(profile, seed):
    runs = grid(dataclasses.replace(PROFILES[profile], seed=seed))
    assert len({run.folder for run in runs}) == len(runs)
    assert {run.seed for run in runs} == set(range(seed, seed + SHARING_SEEDS))


def test_the_grid_is_what_the_results_rest_on():
    """By the issue: what is run, on how many seeds, for how many epochs."""
    settings = Counter(
        (run.init, run.activation, run.generate, run.heads, run.epochs)
        for run in grid(Mnist())
        if run
        == Mnist(run.init, run.seed, run.epochs, activation=run.activation, generate=run.generate, heads=run.heads)
    )
    hypernets = ("xavier-fan-in", "hyperfan-in", "hyperfan-out")
    usual = ("tanh", "weights", "shared")
    for init in ("classical", *hypernets):
        assert settings.pop((init, *usual, 30)) == 3
    for init in hypernets:
        assert settings.pop((init, "tanh", "weights+biases", "shared", 30)) >= 1
    for init in ("classical", "kaiming-fan-in", "hyperfan-in", "hyperfan-out"):
        assert settings.pop((init, "relu", "weights", "shared", 30)) >= 1
    means = [f"hyperfan-{mean}" for mean in ("harmonic", "geometric", "arithmetic")]
    for init in ("xavier-harmonic", "xavier-fan-out", "m2", "m3"):  # torch's xavier is the harmonic mean
        assert settings.pop((init, *usual, 5)) == 3
    for init in means:
        assert settings.pop((init, *usual, 5)) == CLOSE_SEEDS
    for init, seeds in (("hyperfan-in", CLOSE_SEEDS), ("hyperfan-out", SHARING_SEEDS)):
        assert settings.pop((init, *usual, 5)) == seeds - 3  # the first seeds have longer runs
        assert settings.pop((init, "tanh", "weights", "separate", 5)) == seeds
    assert settings == {("m4", "tanh", "weights", "separate", 5): 3}


def test_the_headline_comes_first():
    assert [run.init for run in grid(Mnist())[:4]] == ["classical", "xavier-fan-in", "hyperfan-in", "hyperfan-out"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "--epochs 0: at least 1 is needed"),
        ({"probe_every": -1}, "--probe-every -1: at least 1 is needed"),
        ({"batches": 0}, "--batches 0: at least 1 is needed"),
        ({"threads": 0}, "--threads 0: at least 1 is needed"),
        ({"checkpoint_every": 0}, "--checkpoint-every 0: at least 1 is needed"),
        ({"images": 60_001}, "--images 60001: there are 60000"),
        ({"images": 9}, "--batch 10: a batch has no more than the 9 training images"),
        ({"probe_images": 10_001}, "--probe-images 10001: there are 10000"),
        ({"lr": 0.0}, "--lr 0: it must be positive and finite"),
        ({"lr": float("nan")}, "--lr nan: it must be positive and finite"),
        ({"lr": float("inf")}, "--lr inf: it must be positive and finite"),
    ],
)
def test_what_cannot_be(fields, message):
    with pytest.raises(RunError) as caught:
        Mnist(**fields)
    assert str(caught.value) == message
