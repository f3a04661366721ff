"""The Bayesian MobileNet on small pictures of noise: what it trains, what it tests, and several processes as one."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from toy import InterruptedAfter, Silent, contents

import hyperfan as hf
from hyperfan.errors import DataError, RunError
from hyperfan.experiments.folder import read_metrics
from hyperfan.experiments.imagenet.config import INITS, PROFILES, Imagenet, grid
from hyperfan.experiments.loop import run

SMALL = Imagenet(
    lr=1e-3, epochs=2, width=0.1, embedding=3, size=32, held_out=1, images=18, batch=6, samples=3, log_every=1,
    checkpoint_every=2, workers=0, device="cpu",
)  # fmt: skip


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Four classes of noise, 6 pictures each to train on and 3 to test on."""
    root = tmp_path_factory.mktemp("pictures")
    drawn = torch.Generator().manual_seed(0)
    for split, many in (("train", 6), ("val", 3)):
        for name in "abcd":
            (root / split / name).mkdir(parents=True)
            for i in range(many):
                noise = torch.randint(256, (40, 48, 3), generator=drawn, dtype=torch.uint8)
                Image.frombytes("RGB", (48, 40), bytes(noise.flatten().tolist())).save(root / split / name / f"{i}.png")
    return root


# ── the configuration ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_papers_run():
    """Section 4.4: 25 epochs of batches of 256, SGD with 0.1, L2 0.0005, embeddings of 32, noise 0.1, 10 samples."""
    c = PROFILES["paper"]
    assert c == Imagenet()
    assert (c.epochs, c.batch, c.lr, c.weight_decay, c.embedding, c.noise, c.samples) == (
        25, 256, 0.1, 0.0005, 32, 0.1, 10)  # fmt: skip
    assert (c.scope, c.width, c.size, c.fidelity) == ("block", 1.0, 224, "paper")
    assert c.total == 25 * 5004  # of 5004.6 batches in ImageNet the paper counts 5005


def test_every_field_that_changes_what_is_trained_changes_the_folder():
    other = {"seed": 1, "epochs": 2, "lr": 0.5, "weight_decay": 0.1, "last": "plain", "norm": False, "noise": 0.2,
             "scope": "layer", "samples": 2, "fidelity": "exact", "embedding": 2, "width": 0.5, "size": 32,
             "held_out": 1, "images": 1000, "batch": 2, "batches": 2, "threads": 2, "init": "m2",
             "checkpoint_every": 2}  # fmt: skip
    watching = {"test_images", "test_every", "log_every", "device", "workers", "skip_bad"}
    assert {f.name for f in dataclasses.fields(Imagenet)} == {*other, *watching}
    folders = [Imagenet(**{name: value}).folder for name, value in other.items()]
    assert len({Imagenet().folder, *folders}) == len(other) + 1


def test_the_grid_is_every_init_with_and_without_norm_and_last_layer():
    runs = grid(PROFILES["laptop"])
    assert len({run.folder for run in runs}) == len(runs) == 4 * 2 * 2 * 3
    assert {(r.init, r.last, r.norm, r.seed) for r in runs} == {
        (init, last, norm, seed)
        for init in INITS
        for last in ("generated", "plain")
        for norm in (True, False)
        for seed in range(3)
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 0}, "--samples 0: at least 1 is needed"),
        ({"noise": -0.1}, "--noise -0.1: it must not be negative"),
        ({"held_out": -1}, "--held-out -1: it must not be negative"),
        ({"images": 9}, "--batch 256: a batch has no more than the 9 training images"),
        ({"width": 0.001}, "--width 0.001: no channels would be left"),
        ({"lr": 0.0}, "--lr 0: a learning rate is positive and finite"),
    ],
)
def test_what_cannot_be(fields, message):
    with pytest.raises(RunError) as caught:
        Imagenet(**fields)
    assert str(caught.value) == message


def test_the_number_of_pictures_is_checked(pictures):
    with pytest.raises(RunError, match="the 3 classes trained on have 18 pictures: pass --images 18"):
        replace(SMALL, images=19).start(pictures)
    some = replace(SMALL, images=9).start(pictures)
    assert [label for _, label in some.train.files] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_without_pictures(tmp_path):
    with pytest.raises(DataError, match="hyperfan data fetch imagenette"):
        SMALL.start(tmp_path)


# ── the net ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hypernet_is_the_papers(pictures):
    made = SMALL.start(pictures)
    assert made.classes == 3
    assert made.plan["fidelity"] == "paper"
    weights = [t for t in made.net.spec if t.role == "weight"]
    assert [t.name for t in made.net.generated] == [t.name for t in weights]
    assert len(made.net.heads.layout.heads) == len(weights) == 28  # a convolution, 13 blocks of two, a linear layer
    groups = made.net.embeddings.groups
    assert [groups.count(g) for g in dict.fromkeys(groups)] == [1, *[2] * 13, 1]
    assert {row.kind for row in made.optimiser.plan.rows} == {"factored"}
    assert made.optimiser.param_groups[0]["weight_decay"] == 0.0005
    assert any(isinstance(m, torch.nn.BatchNorm2d) for m in made.net.skeleton.module.modules())
    bare = replace(SMALL, norm=False).start(pictures)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in bare.net.skeleton.module.modules())


def test_a_plain_last_layer_starts_the_same_under_every_init(pictures):
    lasts = []
    for init in INITS:
        net = replace(SMALL, init=init, last="plain").start(pictures).net
        assert len(net.generated) == 27
        lasts.append(net.mainnet.get_parameter("16.weight").detach().clone())
        assert not net.mainnet.get_parameter("16.bias").any()
    assert all(torch.equal(last, lasts[0]) for last in lasts)
    assert lasts[0].var().item() == pytest.approx(1 / lasts[0].shape[1], rel=0.2)


def test_each_batch_sees_other_weights_that_follow_from_seed_and_step(pictures):
    a, b = SMALL.start(pictures), SMALL.start(pictures)
    seen = [a.step(0), a.step(1)]
    torch.manual_seed(99)  # whatever else draws numbers
    assert [b.step(0), b.step(1)] == seen
    assert replace(SMALL, noise=0.0).start(pictures).step(0) != seen[0]


def test_a_batch_that_is_not_the_next_is_found_too(pictures):
    made, other = SMALL.start(pictures), SMALL.start(pictures)
    batches = [made.batch(step) for step in range(4)]
    for step in (2, 3, 0):
        x, y = other.batch(step)
        assert torch.equal(x, batches[step][0])
        assert torch.equal(y, batches[step][1])


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fields", [{}, {"last": "plain", "norm": False}], ids=str)
def test_stopped_and_resumed(tmp_path, pictures, fields):
    config = replace(SMALL, **fields)
    assert run(config, tmp_path / "a", Silent(), data_dir=pictures) == "finished"
    assert run(config, tmp_path / "b", InterruptedAfter(3), data_dir=pictures) == "stopped"
    assert run(config, tmp_path / "b", Silent(), data_dir=pictures, resume=True) == "finished"
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    page, says = config.summarise(tmp_path / "a")
    assert "NLL" in says
    assert page.read_text().count("<img ") == 2


def test_what_is_tested(tmp_path, pictures):
    run(SMALL, tmp_path / "a", Silent(), data_dir=pictures)
    rows = read_metrics(tmp_path / "a")
    tests = [r for r in rows if r["kind"] == "test"]
    assert [r["step"] for r in tests] == [3, 6]  # each epoch; before training batch norm has no statistics
    assert set(tests[0]) == {"kind", "step", "loss", "accuracy", "nll", "brier", "ece", "skipped"}
    assert tests[1]["loss"] == pytest.approx(9 * tests[1]["nll"])
    (told,) = [r for r in rows if r["kind"] == "uncertainty"]
    assert sum(n for n, _, _ in told["reliability"]) == sum(told["known"]["entropy"]) == 9
    assert sum(told["unknown"]["entropy"]) == sum(told["unknown"]["disagreement"]) == 3
    assert 0 <= told["separation by entropy"] <= 1


def test_the_predictions_are_those_of_the_library(pictures):
    made = SMALL.start(pictures)
    made.step(0)
    probabilities, labels, entropy, disagreement = made._predict(made.known, 7)
    ((x, y),) = made.test_batches()
    found = hf.predict(made.net, x, 3, seed=7)
    assert torch.equal(probabilities, found.probabilities)
    assert torch.equal(labels, y)
    assert torch.equal(entropy, found.entropy)
    assert torch.equal(disagreement, found.mutual_information)


def test_known_and_unknown_classes_are_seen_by_the_same_weights(pictures, monkeypatch):
    """Else their entropies would differ for that alone."""
    from hyperfan.experiments.imagenet import training

    made, seeds = SMALL.start(pictures), []
    monkeypatch.setattr(training, "PIECE", 2)
    predict = training.predict
    monkeypatch.setattr(training, "predict", lambda *args, seed: seeds.append(seed) or predict(*args, seed=seed))
    list(made.tests(6))
    assert len(seeds) == 7  # pieces of 9 known and 3 unknown pictures
    assert len(set(seeds)) == 1
    list(made.tests(3))
    assert len(set(seeds)) == 2


def test_a_run_does_not_go_on_with_other_pictures(tmp_path, pictures):
    assert run(SMALL, tmp_path / "a", InterruptedAfter(3), data_dir=pictures) == "stopped"
    moved, other = tmp_path / "moved", tmp_path / "other"
    shutil.copytree(pictures, moved)
    shutil.copytree(pictures, other)
    (other / "train/a").rename(other / "train/a2")
    (other / "val/a").rename(other / "val/a2")
    with pytest.raises(RunError, match="not those that the run was started on"):
        run(SMALL, tmp_path / "a", Silent(), data_dir=other, resume=True)
    assert run(SMALL, tmp_path / "a", Silent(), data_dir=moved, resume=True) == "finished"
    plan = json.loads((tmp_path / "a/plan.json").read_text())
    assert plan["data"]["classes"] == ["a", "b", "c"]
    assert plan["data"]["pictures"] == 18


def test_bad_pictures_are_skipped_and_counted_if_asked(tmp_path, pictures):
    root = tmp_path / "copy"
    shutil.copytree(pictures, root)
    (root / "train/a/0.png").write_bytes(b"")
    (root / "val/b/0.png").write_bytes(b"no")
    (root / "val/z").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        run(SMALL, tmp_path / "a", Silent(), data_dir=root)
    config = replace(SMALL, skip_bad=True)
    assert run(config, tmp_path / "b", Silent(), data_dir=root) == "finished"
    last = [r for r in read_metrics(tmp_path / "b") if r["kind"] == "test"][-1]
    assert last["skipped"] == 3
    assert "3 pictures or classes skipped" in config.summarise(tmp_path / "b").says
    assert run(config, tmp_path / "c", InterruptedAfter(5), data_dir=root) == "stopped"
    assert run(config, tmp_path / "c", Silent(), data_dir=root, resume=True) == "finished"
    assert (tmp_path / "b/metrics.jsonl").read_bytes() == (tmp_path / "c/metrics.jsonl").read_bytes()


# ── several processes ──────────────────────────────────────────────────────────────────────────────────────────────

TOGETHER = """
import sys, torch
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_imagenet_training import SMALL
from hyperfan.experiments.loop import follow, run
from toy import InterruptedAfter, Silent
import torch.distributed as dist, os
config = replace(SMALL, norm=False, lr=1e-2)
if int(os.environ["RANK"]):
    print(follow(config, Path({pictures!r})))
else:
    print(run(config, Path({out!r}), Silent(), data_dir=Path({pictures!r}), resume={resume}))
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")
@pytest.mark.parametrize("resume", [False, True], ids=["from the start", "resumed"])
def test_two_processes_train_as_one(tmp_path, pictures, resume):
    """Batch norm apart, which sees each process's own part."""
    config = replace(SMALL, norm=False, lr=1e-2)
    assert run(config, tmp_path / "alone", Silent(), data_dir=pictures) == "finished"
    if resume:
        assert run(config, tmp_path / "two", InterruptedAfter(3), data_dir=pictures) == "stopped"
    script = TOGETHER.format(
        tests=str(Path(__file__).parent), pictures=str(pictures), out=str(tmp_path / "two"), resume=resume
    )
    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    environment["MASTER_PORT"] = str(_free_port())
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in range(2)
    ]  # fmt: skip
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "finished"), err
    alone, two = (
        [r["loss"] for r in read_metrics(tmp_path / name) if r["kind"] == "train"] for name in ("alone", "two")
    )
    assert len(alone) == 6
    assert max(alone) - min(alone) > 1e-3  # it trains
    assert two == pytest.approx(alone, rel=2e-6)  # sums in another order


def _free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
