"""Hypernets under other people's launchers: the results of one process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import launched
import pytest
import torch

SCRIPT = str(Path(__file__).with_name("launched.py"))
# With --cpu it would start one process, or several by MPI. What this starts computes on the CPU, as it asks for it.
ACCELERATE = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no "
ACCELERATE += "--main_process_port 0"
COMMANDS = {
    "accelerate-fork": ([], "accelerate"),
    "accelerate": (["-m", "accelerate.commands.launch", *ACCELERATE.split()], "accelerate"),
    "ddp_fork": ([], "lightning"),
    "ddp": ([], "lightning"),
}
"""By what starts the processes, and the library; quick ones fork, so that one process imports all."""


@pytest.mark.skipif(os.name == "nt" or not torch.distributed.is_available(), reason="gloo and fork are those of POSIX")
@pytest.mark.parametrize("how", [*(pytest.param(h, marks=pytest.mark.full) for h in ("accelerate", "ddp")),
                                 "accelerate-fork", "ddp_fork"])  # fmt: skip
def test_two_processes_train_as_one(tmp_path, how):
    before, library = COMMANDS[how]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"pip install {library}")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, *before, SCRIPT, how, str(tmp_path / "two")],
        env={**kept, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    launched.alone(tmp_path / "one")
    one, two = torch.load(tmp_path / "one"), torch.load(tmp_path / "two")
    torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-14)
