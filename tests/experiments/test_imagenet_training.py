"""The Bayesian MobileNet on small pictures of noise: what it trains, what it tests, and several processes as one."""

import dataclasses
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from toy import InterruptedAfter, Silent, assert_resumes

import hyperfan as hf
from hyperfan.errors import DataError, RunError
from hyperfan.experiments.imagenet import INITS, PROFILES, Imagenet, grid
from hyperfan.experiments.imagenet.pictures import Crops
from hyperfan.experiments.imagenet.training import _histograms, batch_keys
from hyperfan.experiments.loop import run
from hyperfan.experiments.ranks import Ranks
from hyperfan.experiments.results.write import write_summary
from hyperfan.experiments.seeds import derived_seed
from hyperfan.metrics import read_metrics
from ports import free_port

SINGLE_PROCESS = Ranks(0, 1, "cpu")
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
             "first_classes": 2, "held_out": 1, "images": 1000, "batch": 2, "batches": 2, "threads": 2, "init": "m2",
             "checkpoint_every": 2}  # fmt: skip
    watching = {"test_images", "interim_images", "test_every", "log_every", "device", "workers", "skip_bad"}
    assert {f.name for f in dataclasses.fields(Imagenet)} == {*other, *watching}
    folders = [Imagenet(**{name: value}).folder for name, value in other.items()]
    assert len({Imagenet().folder, *folders}) == len(other) + 1


def test_the_laptop_s_runs():
    """Tiny ImageNet: 50 classes of 500 pictures, two epochs, and about eight tests."""
    c = PROFILES["laptop"]
    assert (c.first_classes, c.held_out, c.images) == (60, 10, (60 - 10) * 500)
    assert (c.size, c.width, c.batch, c.lr, c.epochs, c.total) == (64, 0.5, 64, 0.025, 2, 780)
    assert len([step for step in range(1, c.total + 1) if step % c.tested_every == 0 or step == c.total]) == 8
    assert (c.workers, c.threads, c.device) == (0, 1, "cpu")


def test_the_grid_has_the_most_important_runs_first():
    base = PROFILES["laptop"]
    runs = grid(base)
    assert len({run.folder for run in runs}) == len(runs) == 64 + 16 + 9 + 8 + 24
    settings = {(init, last) for init in INITS for last in ("generated", "plain")}
    for seed in range(8):
        part = runs[8 * seed : 8 * (seed + 1)]
        assert {(r.init, r.last) for r in part} == settings
        assert {(r.seed, r.norm, r.width, r.noise) for r in part} == {(seed, True, 0.5, 0.1)}
    further, runs = runs[64:80], runs[80:]
    assert [(r.seed, r.init) for r in further] == list(
        itertools.product(range(8, 16), ("kaiming-fan-out", "hyperfan-in"))
    )
    assert {(r.last, r.norm, r.width, r.noise) for r in further} == {("plain", True, 0.5, 0.1)}
    assert [(r.seed, r.noise) for r in runs[:9]] == [(seed, noise) for seed in range(3) for noise in (0, 0.3, 0.5)]
    assert {(r.init, r.last, r.norm, r.width) for r in runs[:9]} == {("hyperfan-in", "generated", True, 0.5)}
    assert {(r.init, r.last) for r in runs[9:17]} == {(r.init, r.last) for r in runs[17:25]} == settings
    assert {(r.seed, r.norm, r.width, r.total) for r in runs[9:17]} == {(0, True, 1.0, 780)}
    assert {(r.seed, r.norm, r.width, r.total) for r in runs[17:25]} == {(0, False, 0.5, 100)}


def test_the_grid_of_the_paper_has_no_run_twice():
    runs = grid(PROFILES["paper"])
    assert len({run.folder for run in runs}) == len(runs) == 64 + 16 + 9 + 24


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 0}, "--samples 0: at least 1 is needed"),
        ({"noise": -0.1}, "--noise -0.1: it must be at least 0 and finite"),
        ({"held_out": -1}, "--held-out -1: at least 0 is needed"),
        ({"images": 9}, "--batch 256: a batch has no more than the 9 training images"),
        ({"width": 0.001}, "--width 0.001: no channels would be left"),
        ({"lr": 0.0}, "--lr 0: it must be positive and finite"),
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
    with pytest.raises(DataError, match="hyperfan data fetch tiny-imagenet"):
        SMALL.start(tmp_path)


# ── the net ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hypernet_is_the_papers(pictures):
    made = SMALL.start(pictures)
    assert made.classes == 3
    assert made.plan["fidelity"] == "paper"
    weights = [t for t in made.net.spec if t.role == "weight"]
    assert [t.name for t in made.net.generated] == [t.name for t in weights]
    assert len(made.net.heads.layouts) == len(weights) == 28  # a convolution, 13 blocks of two, a linear layer
    groups = made.net.embeddings.noise_groups
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
    seen, left = zip(*((a.step(step), torch.rand(()).item()) for step in range(2)), strict=True)
    assert left[0] != left[1]  # what comes after the noise
    torch.manual_seed(99)  # whatever else draws numbers
    assert (b.step(0), b.step(1)) == seen
    assert replace(SMALL, noise=0.0).start(pictures).step(0) != seen[0]


def test_a_batch_that_is_not_the_next_is_found_too(pictures):
    made, other = SMALL.start(pictures), SMALL.start(pictures)
    batches = [made.batch(step) for step in range(4)]
    for step in (2, 3, 0):
        x, y = other.batch(step)
        assert torch.equal(x, batches[step][0])
        assert torch.equal(y, batches[step][1])


def test_every_epoch_has_every_picture_once_in_an_order_of_its_own():
    batches = [batch_keys(SMALL, SINGLE_PROCESS, step) for step in range(6)]
    assert [{epoch for epoch, _ in batch} for batch in batches] == [{0}] * 3 + [{1}] * 3
    epochs = [[i for batch in batches[e : e + 3] for _, i in batch] for e in (0, 3)]
    assert all(sorted(e) == list(range(18)) for e in epochs)
    assert epochs[0] != epochs[1]
    assert batch_keys(replace(SMALL, seed=8), SINGLE_PROCESS, 0) != batches[0]


def test_processes_share_each_batch():
    parts = [batch_keys(SMALL, Ranks(rank, 3, "cpu"), 0) for rank in range(3)]
    assert {len(part) for part in parts} == {2}
    assert sorted(key for part in parts for key in part) == sorted(batch_keys(SMALL, SINGLE_PROCESS, 0))


def test_all_test_pictures_come_once_in_order(pictures, monkeypatch):
    made = SMALL.start(pictures)
    monkeypatch.setattr(made, "TEST_BATCH", 4)
    labels = [y for _, y in made.test_batches()]
    assert [len(y) for y in labels] == [4, 4, 1]
    assert torch.cat(labels).tolist() == [label for _, label in made.known]


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "fields", [{}, pytest.param({"last": "plain", "norm": False}, marks=pytest.mark.full)], ids=str
)
def test_stopped_and_resumed(tmp_path, pictures, fields):
    assert_resumes(replace(SMALL, **fields), tmp_path, 3, data_dir=pictures)
    page, text = write_summary(tmp_path / "whole")
    assert "NLL" in text
    assert "Does it know what it does not know?" in page.read_text()


def test_a_bad_picture_is_one_line_also_from_a_worker(tmp_path, pictures):
    root = tmp_path / "copy"
    shutil.copytree(pictures, root)
    (root / "train/a/0.png").write_bytes(b"")
    for workers in (0, 1):
        with pytest.raises(DataError, match="--skip-bad leaves such pictures out") as caught:
            run(replace(SMALL, workers=workers), tmp_path / f"{workers}", Silent(), data_dir=root)
        assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pictures):
    """A run from start to end."""
    path = tmp_path_factory.mktemp("finished") / "run"
    assert run(SMALL, path, Silent(), data_dir=pictures) == "finished"
    return path


def test_resuming_with_workers(tmp_path, pictures, finished):
    config = replace(SMALL, workers=1)
    assert run(config, tmp_path / "b", InterruptedAfter(3), data_dir=pictures) == "stopped"
    assert run(config, tmp_path / "b", Silent(), data_dir=pictures, resume=True) == "finished"
    assert (finished / "metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()


def test_a_batch_is_random_crops_standardised_as_usual_for_imagenet(pictures):
    made = SMALL.start(pictures)
    x, y = made.batch(0)
    keys = batch_keys(SMALL, made.ranks, 0)
    crops = Crops(made.train.files, SMALL.size, SMALL.seed)
    raw = torch.stack([crops[key][0] for key in keys])
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    torch.testing.assert_close(x, (raw / 255 - mean) / std, rtol=1e-4, atol=1e-5)
    assert y.tolist() == [made.train.files[i][1] for _, i in keys]
    middle = torch.stack([Crops(made.train.files, SMALL.size, None)[key][0] for key in keys])
    assert not torch.equal(raw, middle)


def test_a_net_that_overflows_is_said_to_be_unsure_of_nothing_and_draws_no_error(tmp_path, pictures):
    config = replace(SMALL, init="kaiming-fan-in", norm=False, batches=1, width=0.25, embedding=64, lr=1e-30)
    assert run(config, tmp_path / "a", Silent(), data_dir=pictures) == "finished"
    (row,) = [r for r in read_metrics(tmp_path / "a") if r["kind"] == "test"]
    (told,) = [r for r in read_metrics(tmp_path / "a") if r["kind"] == "uncertainty"]
    assert told["known"]["entropy"] == told["known"]["disagreement"] == [9] + 39 * [0]
    assert write_summary(tmp_path / "a")[1].startswith(f"{row['accuracy']:.2%} of the test images right")


def test_what_is_tested(finished, pictures):
    rows = read_metrics(finished)
    tests = [r for r in rows if r["kind"] == "test"]
    assert [r["step"] for r in tests] == [3, 6]  # each epoch; before training batch norm has no statistics
    assert set(tests[0]) == {"kind", "step", "loss", "accuracy", "nll", "brier", "ece", "skipped"}
    assert tests[1]["loss"] == pytest.approx(9 * tests[1]["nll"])
    (told,) = [r for r in rows if r["kind"] == "uncertainty"]
    assert sum(n for n, _, _ in told["reliability"]) == sum(told["known"]["entropy"]) == 9
    assert sum(told["unknown"]["entropy"]) == sum(told["unknown"]["disagreement"]) == 3
    made = SMALL.start(pictures)
    for step in range(6):
        made.step(step)
    _, told = made.tests(6)
    seed = derived_seed(SMALL.seed, "test", 6)
    known, unknown = (made._predict(files, seed) for files in (made.known, made.unknown))
    for i, name in ((2, "entropy"), (3, "disagreement")):
        pairs = [(u > k) + 0.5 * (u == k) for k in known[i].tolist() for u in unknown[i].tolist()]
        assert told[f"separation by {name}"] == pytest.approx(sum(pairs) / len(pairs))
        for kind, values in (("known", known[i]), ("unknown", unknown[i])):
            counts = torch.histc(values.double().clamp(max=math.log(3)), 40, 0, math.log(3))
            assert told[kind][name] == counts.tolist()


def test_tests_before_the_end_may_use_fewer_pictures(tmp_path, pictures):
    run(replace(SMALL, interim_images=3), tmp_path / "a", Silent(), data_dir=pictures)
    rows = read_metrics(tmp_path / "a")
    first, last = [r for r in rows if r["kind"] == "test"]
    assert first["accuracy"] in (0, 1 / 3, 2 / 3, 1)
    for row in (first, last):  # so that the two can be compared
        assert row["loss"] == pytest.approx(9 * row["nll"])
    (told,) = [r for r in rows if r["kind"] == "uncertainty"]
    assert sum(n for n, _, _ in told["reliability"]) == 9
    assert told["data"] == pictures.name


def test_no_picture_is_lost_from_a_histogram():
    """In float32 the entropy of guessing may be a hair above ln(classes)."""
    sure = torch.full((50,), math.log(8) * (1 + 1e-6))
    assert sum(_histograms(sure, sure, 8)["entropy"]) == 50


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
    monkeypatch.setattr(made, "TEST_BATCH", 2)
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
    assert plan["data"]["held out"] == ["d"]


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
    assert "3 pictures or classes skipped" in write_summary(tmp_path / "b")[1]
    assert run(config, tmp_path / "c", InterruptedAfter(5), data_dir=root) == "stopped"
    assert run(config, tmp_path / "c", Silent(), data_dir=root, resume=True) == "finished"
    assert (tmp_path / "b/metrics.jsonl").read_bytes() == (tmp_path / "c/metrics.jsonl").read_bytes()


# ── several processes ──────────────────────────────────────────────────────────────────────────────────────────────

TOGETHER = """
import os, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_imagenet_training import SMALL
from toy import Silent
from hyperfan.experiments.loop import follow, run

config, pictures = replace(SMALL, **{fields!r}), Path({pictures!r})
if int(os.environ["RANK"]):
    print(follow(config, pictures))
else:
    print(run(config, Path({out!r}), Silent(), data_dir=pictures, resume={resume}))

"""
AVERAGED = """
import os, sys, torch, hyperfan as hf
from torch import nn
from hyperfan.experiments.group import leave
from hyperfan.experiments.ranks import Ranks
ranks = Ranks.join("cpu")
torch.manual_seed(0)
mainnet = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
for noise in (0.3, 0.0):
    net = hf.HyperNet(mainnet, hf.Embedding(7, noise=noise))
    opt = hf.SGD(net, lr=0.1, momentum=0.9)
    kinds = {row.kind for row in opt.plan.rows}
    draws = torch.Generator().manual_seed(1)
    for step in range(5):
        x, y = torch.randn(9, 5, generator=draws).double(), torch.randint(3, (9,), generator=draws)
        mine = slice(0, 9) if ranks.world == 1 else (slice(0, 4), slice(4, 9))[ranks.rank]
        torch.manual_seed(step)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x[mine]), y[mine]) * ranks.weight(len(y[mine]))
        loss.backward()
        ranks.average(opt)
        opt.step()
    values = net.state_dict().values()
    total = sum((t.double() * torch.arange(1, t.numel() + 1).view(t.shape)).sum().item() for t in values)
    print(*kinds, f"{total:.10e}", f"{ranks.mean(loss.item()):.10e}")
leave()
"""


def together(script, world):
    """What each of so many processes prints."""
    environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    environment["MASTER_PORT"] = str(free_port())
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in range(world)
    ]  # fmt: skip
    said = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        said.append(out.strip())
    return said


@pytest.mark.full  # quickly with toys: test_ranks.py, and ../optim/test_data_parallel.py
def test_gradients_are_averaged_as_if_there_were_one_process():
    """Though the processes have parts of different size, and no gradient of a head is written out."""
    (alone,), two = together(AVERAGED, 1), together(AVERAGED, 2)
    assert two[0] == two[1]
    for a, b, kind in zip(alone.splitlines(), two[0].splitlines(), ("factored", "collapsed"), strict=True):
        assert a.split()[0] == b.split()[0] == kind
        assert [float(v) for v in b.split()[1:]] == pytest.approx([float(v) for v in a.split()[1:]], rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("begun", ["not at all", "in part", "over"])
def test_two_processes_train_as_one(tmp_path, pictures, begun):
    """Batch norm apart, which sees each process's own part; begun by one, and gone on with by two."""
    fields = {"norm": False, "lr": 1e-2}
    config = replace(SMALL, **fields)
    assert run(config, tmp_path / "alone", Silent(), data_dir=pictures) == "finished"
    if begun != "not at all":
        progress = Silent() if begun == "over" else InterruptedAfter(3)
        run(config, tmp_path / "two", progress, data_dir=pictures)
    script = TOGETHER.format(
        tests=str(Path(__file__).parent),
        fields=fields,
        pictures=str(pictures),
        out=str(tmp_path / "two"),
        resume=begun != "not at all",
    )
    assert together(script, 2) == ["finished", "finished"]
    alone, two = (
        [r["loss"] for r in read_metrics(tmp_path / name) if r["kind"] == "train"] for name in ("alone", "two")
    )
    assert len(alone) == 6
    assert two == pytest.approx(alone, rel=2e-6)  # sums in another order
