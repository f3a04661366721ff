"""What a run does from its start to its end, and how it goes on after Ctrl-C."""

import dataclasses
import json
import os
import signal
import time

import pytest
import torch
from toy import InterruptedAfter, Silent, TerminatedAfter, Toy, ToyTraining, contents, interrupted

import needs
from hyperfan.experiments import folder, signals
from hyperfan.experiments.loop import run
from hyperfan.files import write_json
from hyperfan.metrics import read_metrics


def rows(path, kind):
    return [row for row in read_metrics(path) if row["kind"] == kind]


def end(experiment, path):
    assert run(experiment, path, Silent()) == "finished"
    return contents(path)


class Losses(ToyTraining):
    """Keeps the loss of every batch."""

    def __init__(self, *args):
        super().__init__(*args)
        self.losses = []

    def step(self, step):
        self.losses.append(super().step(step))
        return self.losses[-1]


def trained(experiment):
    training = Losses(experiment, None)
    for step in range(experiment.total):
        training.step(step)
        list(training.tests(step + 1)), list(training.probes(step + 1))
    return training


# ── the lines of metrics ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_of_training_loss_averages_the_batches_since_the_last_one(tmp_path):
    losses = trained(Toy()).losses
    run(Toy(), tmp_path, Silent())
    assert [(r["step"], r["loss"]) for r in rows(tmp_path, "train")] == [
        (2, (losses[0] + losses[1]) / 2),
        (4, (losses[2] + losses[3]) / 2),
        (5, losses[4]),
    ]


def test_tests_come_after_each_epoch_and_probes_when_they_are_due(tmp_path):
    run(Toy(), tmp_path, Silent())
    assert [r["step"] for r in rows(tmp_path, "test")] == [0, 2, 4, 5]
    quantities = ["activations", "gradients", "weights", "weight gradients"]
    assert [(r["step"], r["of"]) for r in rows(tmp_path, "moments")] == [(s, q) for s in (0, 4, 5) for q in quantities]
    assert [(r["step"], r["of"]) for r in rows(tmp_path, "histograms")] == [(s, q) for s in (0, 5) for q in quantities]
    assert read_metrics(tmp_path)[-1] == {"kind": "end", "step": 5, "outcome": "finished"}


def test_the_folder_says_what_was_run(tmp_path):
    run(Toy(), tmp_path, Silent())
    assert json.loads((tmp_path / "config.json").read_text()) == {"experiment": "toy", **dataclasses.asdict(Toy())}
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(json.dumps(ToyTraining(Toy(), None).plan))
    assert json.loads((tmp_path / "env.json").read_text())["torch"] == torch.__version__
    assert json.loads((tmp_path / "time.json").read_text()).keys() == {
        "batches", "training", "testing", "probing", "saving"}  # fmt: skip


def test_sinks_get_every_line(tmp_path):
    sink = []
    run(Toy(), tmp_path, Silent(), sinks=(sink.append,))
    assert json.loads(json.dumps(sink)) == read_metrics(tmp_path)


def test_the_threads_are_those_of_the_configuration_and_then_as_before(tmp_path):
    class Threads(Silent):
        def update(self, *_standing):
            self.steps.append(torch.get_num_threads())

    torch.set_num_threads(1)
    seen = Threads()
    run(Toy(threads=2), tmp_path, seen)
    assert set(seen.steps) == {2}
    assert torch.get_num_threads() == 1


# ── the same again ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path, undisturbed):
    torch.rand(17)  # whatever else draws numbers
    assert end(Toy(), tmp_path / "same") == undisturbed
    other = end(Toy(seed=1), tmp_path / "other")
    assert other.keys() == undisturbed.keys()
    for file in ("metrics.jsonl", "checkpoint/step-5-end.safetensors"):
        assert other[file] != undisturbed[file]


def test_checkpoints_and_lines_do_not_change_what_is_trained():
    """Lines are free. Checkpoints write the heads, which rounds; so they are part of the configuration."""
    plain = trained(Toy()).losses
    assert trained(Toy(log_every=1)).losses == plain
    assert trained(Toy(probe_every=1)).losses == plain
    assert trained(Toy(probe_images=3)).losses == plain


# ── Ctrl-C ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_ctrl_c_between_batches(tmp_path, undisturbed, batches):
    told = InterruptedAfter(batches)
    assert run(Toy(), tmp_path, told) == "stopped"
    assert told.steps[-1] == batches
    saved = 3 * (batches // 3)
    assert told.notes == [f"stopped after batch {batches}; --resume goes on from batch {saved}"]
    assert (tmp_path / "checkpoint" / f"step-{saved}.safetensors").exists()
    told = Silent()
    assert run(Toy(), tmp_path, told, resume=True) == "finished"
    assert told.steps == list(range(saved + 1, 6)), "more or less was trained again than was not saved"
    assert told.notes == [f"resumed {tmp_path} at batch {saved}"]
    assert contents(tmp_path) == undisturbed
    assert json.loads((tmp_path / "time.json").read_text())["batches"] == 5


@pytest.mark.parametrize("method", ["step", "tests", "probes", "state", "load"])
def test_ctrl_c_inside(tmp_path, undisturbed, monkeypatch, method):
    """In the middle of whatever the training does, at its third call; or, for a load, at its first."""
    real, calls = getattr(ToyTraining, method), []
    at = 1 if method == "load" else 3

    def interrupted_one(self, *args):
        calls.append(args)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(self, *args)

    if method == "load":
        run(Toy(), tmp_path, InterruptedAfter(4))
    with monkeypatch.context() as patch:
        patch.setattr(ToyTraining, method, interrupted_one)
        assert run(Toy(), tmp_path, Silent(), resume=True) == "stopped"
    assert run(Toy(), tmp_path, Silent(), resume=True) == "finished"
    assert contents(tmp_path) == undisturbed


@needs.POSIX
def test_a_real_interrupt(tmp_path, in_a_process, undisturbed):
    code, _ = in_a_process(interrupted, Toy(), tmp_path, 4)
    assert code == 130
    assert run(Toy(), tmp_path, Silent(), resume=True) == "finished"
    assert contents(tmp_path) == undisturbed


# ── SIGTERM ────────────────────────────────────────────────────────────────────────────────────────────────────────


@needs.POSIX
@pytest.mark.parametrize(("exact", "saved"), [(True, 2), (False, 3)])
def test_sigterm_saves_a_checkpoint_at_once_or_at_the_next_fixed_step(tmp_path, monkeypatch, exact, saved):
    """At once only if that changes nothing: a head that is trained collapsed is rounded by a checkpoint."""
    config = Toy(init="classical") if exact else Toy()
    whole = end(config, tmp_path / "whole")
    told = TerminatedAfter(1)
    assert run(config, tmp_path / "ended", told) == "terminated"
    assert told.notes == [f"SIGTERM: stopped after batch {saved}; --resume goes on from batch {saved}"]
    assert (tmp_path / "ended" / "checkpoint" / f"step-{saved}.safetensors").exists()
    assert run(config, tmp_path / "ended", Silent(), resume=True) == "finished"
    assert contents(tmp_path / "ended") == whole


@needs.POSIX
def test_sigterm_without_time_to_save_keeps_what_was_saved(tmp_path, monkeypatch, undisturbed):
    monkeypatch.setattr(signals, "GRACE_SECONDS", 0.01)
    real = ToyTraining.step

    def slow(self, at):
        if at == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        return real(self, at)

    told = Silent()
    with monkeypatch.context() as patch:
        patch.setattr(ToyTraining, "step", slow)
        assert run(Toy(), tmp_path, told) == "terminated"
    assert told.notes == ["SIGTERM: stopped after batch 1; --resume goes on from batch 0"]
    assert run(Toy(), tmp_path, Silent(), resume=True) == "finished"
    assert contents(tmp_path) == undisturbed


@needs.POSIX
def test_sigterm_before_training_raises_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "start", lambda self, data_dir: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(signals.Terminated):
        run(Toy(), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    assert signal.getsignal(signal.SIGTERM) is before


# ── runs that are over ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_finished_run_stays_as_it_is(tmp_path):
    run(Toy(), tmp_path, Silent())
    before = contents(tmp_path)
    told = Silent()
    assert run(Toy(), tmp_path, told, resume=True) == "finished"
    assert told.notes == [f"{tmp_path} is over already: finished after batch 5"]
    assert told.steps == []
    assert contents(tmp_path) == before


DIVERGING = Toy(lr=3e38)


def test_divergence_is_a_result(tmp_path):
    told = Silent()
    assert run(DIVERGING, tmp_path, told) == "diverged"
    end = read_metrics(tmp_path)[-1]
    first = next(i for i, loss in enumerate(trained(DIVERGING).losses) if not torch.tensor(loss).isfinite())
    assert end == {"kind": "end", "step": first, "outcome": "diverged", "layer": end["layer"]}
    assert end["layer"] in ("0", "2")
    told_so = f"diverged at batch {first + 1}; the first to overflow was layer '{end['layer']}'"
    assert told.notes == [told_so]
    state = json.loads((tmp_path / "checkpoint" / "state.json").read_text())
    assert (state["step"], state["done"]) == (first, True)
    before = contents(tmp_path)
    told = Silent()
    assert run(DIVERGING, tmp_path, told, resume=True) == "diverged"
    assert told.notes == [f"{tmp_path} is over already: {told_so}"]
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("layer", "says"), [("2", "layer '2'"), (None, "the loss itself")])
@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("step", [0, 3, 4])
def test_a_loss_that_is_not_finite_ends_the_run_at_its_step(tmp_path, monkeypatch, loss, step, layer, says):
    real = ToyTraining.step
    monkeypatch.setattr(ToyTraining, "step", lambda self, at: loss if at == step else real(self, at))
    monkeypatch.setattr(ToyTraining, "first_overflow", lambda self, at: layer if at == step else "wrong batch")
    told = Silent()
    assert run(Toy(), tmp_path, told) == "diverged"
    assert read_metrics(tmp_path)[-1] == {"kind": "end", "step": step, "outcome": "diverged", "layer": layer}
    assert told.notes == [f"diverged at batch {step + 1}; the first to overflow was {says}"]
    assert [p.name for p in tmp_path.glob("checkpoint/*.safetensors")] == [f"step-{step}-end.safetensors"]


def test_a_kill_while_a_diverged_run_saves_its_step_again(tmp_path, monkeypatch):
    """A forward pass may have changed the net since, as that of batch norm does."""

    class Killed(BaseException):
        pass

    def step(self, at):
        if at < 3:
            return 1.0
        self.net[0].bias.data += 1
        return float("nan")

    def write(path, content):
        if content.get("done"):
            raise Killed
        write_json(path, content)

    monkeypatch.setattr(ToyTraining, "step", step)
    config = Toy(init="classical")
    with monkeypatch.context() as halfway:
        halfway.setattr(folder, "write_json", write)
        with pytest.raises(Killed):
            run(config, tmp_path, Silent())
    assert run(config, tmp_path, Silent(), resume=True) == "diverged"
    assert [p.name for p in tmp_path.glob("checkpoint/*.safetensors")] == ["step-3-end.safetensors"]


def test_a_loss_that_is_not_finite_is_not_trained_on():
    training = ToyTraining(Toy(), None)
    training.x[:] = float("inf")
    before = {name: t.clone() for name, t in training.state().items()}
    assert not torch.tensor(training.step(0)).isfinite()
    assert training.first_overflow(0) == "0"
    torch.testing.assert_close(training.state(), before, rtol=0, atol=0)


def test_numbers_that_overflow_are_no_crash_where_they_are_measured(tmp_path, monkeypatch):
    """The last batch may be what breaks the net, so that only tests and probes see it."""
    real = ToyTraining.step

    def step(self, at):
        loss = real(self, at)
        if at == 4:
            with torch.no_grad():
                self.net.heads.sync()
                for head in self.net.heads.parameters():
                    head.mul_(1e38)
        return loss

    monkeypatch.setattr(ToyTraining, "step", step)
    assert run(Toy(), tmp_path, Silent()) == "finished"
    assert rows(tmp_path, "test")[-1]["loss"] is None


# ── elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_environment_is_noted(tmp_path):
    run(Toy(), tmp_path, InterruptedAfter(4))
    file = tmp_path / "env.json"
    file.write_text(file.read_text().replace(torch.__version__, "0.1"))
    told = Silent()
    run(Toy(), tmp_path, told, resume=True)
    assert told.notes[0] == (
        f"not the environment it was started in, so bits may differ: torch was 0.1 and is now {torch.__version__}"
    )


def test_signals_are_left_alone(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run(Toy(), tmp_path, Silent())
    assert signal.getsignal(signal.SIGINT) is before
