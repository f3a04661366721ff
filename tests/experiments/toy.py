"""An experiment that takes a moment and needs no data: a small net on random numbers, trained as MNIST is.

Other processes import it too, to be killed or to run out of disk.
"""

import functools
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

import hyperfan as hf
from hyperfan.errors import HyperfanError
from hyperfan.experiments import environment, folder, group, signals
from hyperfan.experiments.classifier import Classifier, build
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.loop import follow, run
from hyperfan.experiments.mnist.training import MnistTraining
from hyperfan.experiments.seeds import generator
from hyperfan.probe import Probe
from ports import free_port

UNITS, HIDDEN, CLASSES, IMAGES = 6, 20, 3, 20


@dataclass(frozen=True)
class Toy(Configuration):
    experiment: ClassVar[str] = "toy"

    seed: int = 0
    init: str = "hyperfan-in"
    lr: float = 0.05
    total: int = 5
    batch: int = 8
    probe_images: int = 7
    probe_every: int = 4
    log_every: int = 2
    checkpoint_every: int = 3
    threads: int = 1
    nothing: None = None

    title = "toy"
    images, fidelity, optimiser = IMAGES, "exact", "sgd"
    epoch_batches = tested_every = IMAGES // 8
    stage = ("epoch", epoch_batches)

    def start(self, data_dir):
        return ToyTraining(self, data_dir)


class ToyTraining(MnistTraining):
    """Batches, tests, probes and states are those of MNIST."""

    def __init__(self, config, _data_dir):
        data = generator(config.seed, "data")
        self.x, self.test_x = torch.randn(2, IMAGES, UNITS, generator=data)
        self.y, self.test_y = torch.randint(CLASSES, (2, IMAGES), generator=data)
        self.probe = Probe(self.test_x[: config.probe_images], self.test_y[: config.probe_images])
        mainnet = nn.Sequential(nn.Linear(UNITS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
        net, plan = build(mainnet, config, 4)
        kind = hf.SGD if isinstance(net, hf.HyperNet) else torch.optim.SGD
        given = net if isinstance(net, hf.HyperNet) else net.parameters()
        Classifier.__init__(self, config, net, plan, kind(given, lr=config.lr, momentum=0.9))


def summarise(path):
    (path / "report.html").write_text("drawn")


class Silent:
    """Progress that keeps its notes and steps."""

    def __init__(self):
        self.notes, self.steps = [], []

    def record(self, row):
        pass

    def update(self, step, total, stage):
        self.steps.append(step)

    def note(self, text):
        self.notes.append(text)

    def close(self):
        pass


class InterruptedAfter(Silent):
    """Ctrl-C comes after so many batches."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def update(self, step, total, stage):
        super().update(step, total, stage)
        if step == self.batches:
            self.interrupt()

    def interrupt(self):
        raise KeyboardInterrupt


class TerminatedAfter(InterruptedAfter):
    """A real SIGTERM, as from a scheduler, after so many batches."""

    def interrupt(self):
        os.kill(os.getpid(), signal.SIGTERM)


def contents(path):
    """Every file of a run, but for the lock and the times, which alone may differ."""
    files = (p for p in Path(path).rglob("*") if p.is_file() and p.name not in (".lock", "time.json"))
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def assert_resumes(config, path, batches, **more):
    """Assert that a run which is stopped after so many batches, and resumed, leaves the same bits as another."""
    assert run(config, path / "whole", Silent(), **more) == "finished"
    assert run(config, path / "parts", InterruptedAfter(batches), **more) == "stopped"
    assert run(config, path / "parts", Silent(), resume=True, **more) == "finished"
    assert contents(path / "parts") == contents(path / "whole")


# ── in a process of its own ────────────────────────────────────────────────────────────────────────────────────────


def serve(jobs):
    """Call functions, each in a fork of this process, which has loaded what a run loads, and has a single thread."""
    importlib.import_module("torch._dynamo")  # as an optimiser of torch's does in its first step
    os.fsync = lambda handle: None
    environment.fingerprint = functools.cache(environment.fingerprint)
    folder.commit = functools.cache(folder.commit)
    with tempfile.TemporaryDirectory() as path:
        run(Toy(), Path(path, "first"), Silent())
    while True:
        function, args, kill_after = jobs.recv()
        child = os.fork()
        if child == 0:
            _call(jobs, function, args)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        jobs.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _call(jobs, function, args):
    code = 70
    try:
        code = function(*args)
    except HyperfanError as error:
        jobs.send(f"{type(error).__name__}: {error}")
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def resume(experiment, path):
    """Go on with a run."""
    return {"finished": 0, "diverged": 1, "stopped": 130}[run(experiment, path, Silent(), resume=True)]


def killed_before_touching_files(experiment, path, nth):
    """Killed just before the n-th time that it opens to write, names, makes or removes something in its folder.

    Between two of these only the content of a file changes, and to be killed there is another test.
    """
    seen = 0

    def watch(event, args):
        nonlocal seen
        writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.rename", "os.remove", "os.mkdir")) and str(path) in str(args[0]):
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    return resume(experiment, path)


def with_small_files(experiment, path, size, action):
    """No file may grow beyond a size. A write beyond it is killed halfway, or fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, action)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return resume(experiment, path)


def as_ranks(configs, path, out, resume=False, action=None):
    """One process for each configuration, which train together.

    An action is a rank, a batch, and a signal, which that rank sends itself before that batch, or a function, which it
    calls. What each process says is
    in a file of the folder ``out``, as are their exit codes; a process that is stopped has none.
    """
    port, running = free_port(), {}
    for rank, config in enumerate(configs):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(configs)), "MASTER_ADDR": "127.0.0.1"}
            os.environ["MASTER_PORT"] = str(port)
            os.dup2(os.open(out / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os._exit(_as_rank(rank, config, path, resume, action))
        running[child] = rank
    codes = [None] * len(configs)
    stopped = action is not None and action[2] == signal.SIGSTOP
    while len(running) > stopped:
        child, status = os.waitpid(-1, 0)
        codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    (out / "codes").write_text(json.dumps(codes))
    return 0


def _as_rank(rank, config, path, resume, action):
    group.BEAT_SECONDS = 0.1
    if action is not None and action[2] == signal.SIGSTOP:
        group.SILENCE_SECONDS = 2.0  # otherwise nobody should be silent, and a busy machine may be for longer
    if action is not None and action[0] == rank:
        real_start = type(config).start

        def start(self, data_dir):
            training = real_start(self, data_dir)
            real_step = training.step

            def step(at):
                if at == action[1]:
                    action[2]() if callable(action[2]) else os.kill(os.getpid(), action[2])
                return real_step(at)

            training.step = step
            return training

        type(config).start = start
    progress = Silent()
    try:
        outcome = follow(config) if rank else run(config, path, progress, resume=resume)
        code = {"terminated": 143}.get(outcome, 0)
    except HyperfanError as error:
        progress.note(f"hyperfan: {error}")
        code = 2
    except BaseException:
        traceback.print_exc()
        code = 70
    for note in progress.notes:
        print(note, file=sys.stderr)
    sys.stderr.flush()
    return code


def reach_no_server():
    """An error of one's own, with words that those of lost connections have."""
    raise RuntimeError("Connection to the server of pictures failed")


def run_out_of_grace():
    """SIGTERM, with no time to end."""
    signals.GRACE_SECONDS = 0.01
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def as_nobody(experiment, path):
    """Without the rights of root, who may write everywhere."""
    os.umask(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    return resume(experiment, path)


def interrupted(experiment, path, batches):
    """A real signal, as from Ctrl-C, after so many batches."""

    class Sends(InterruptedAfter):
        def update(self, step, total, stage):
            if step == self.batches:
                os.kill(os.getpid(), signal.SIGINT)

    return {"finished": 0, "stopped": 130}[run(experiment, path, Sends(batches))]
