import functools
import multiprocessing
import os

import pytest
import torch
from toy import Silent, Toy, contents, serve

from hyperfan.experiments import environment, folder
from hyperfan.experiments.loop import run

FINGERPRINT = functools.cache(environment.fingerprint)
COMMIT = functools.cache(environment.commit)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """For the disk: what a process has written stays when it is killed; only a power cut would need more.

    Nor for a checksum of all the code and its commit at the start of each run, which do not change meanwhile.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(environment, "fingerprint", FINGERPRINT)
    monkeypatch.setattr(folder, "commit", COMMIT)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def in_a_process():
    """Call a function in a process of its own.

    Returns its exit code, which is minus the signal that killed it, and the error it ended with, if it did.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there,), daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command does
        server.start()

    def call(function, *args, kill_after=None):
        here.send((function, args, kill_after))
        told, error = here.recv(), None
        if isinstance(told, str):
            error, told = told, here.recv()
        return told, error

    yield call
    server.kill()
    server.join()
    here.close()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """What a run leaves that nothing happened to."""
    path = tmp_path_factory.mktemp("undisturbed")
    assert run(Toy(), path, Silent()) == "finished"
    return contents(path)
