"""Hypernets under other people's launchers: the results of one process."""

import os
import subprocess
import sys
from pathlib import Path

import launched
import pytest
import torch

import needs
from products import only_in_full

SCRIPT = str(Path(__file__).with_name("launched.py"))
# With --cpu it would start one process, or several by MPI. What this starts computes on the CPU, as it asks for it.
ACCELERATE = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no "
ACCELERATE += "--main_process_port 0"
COMMANDS = {
    "accelerate-fork": [],
    "accelerate": ["-m", "accelerate.commands.launch", *ACCELERATE.split()],
    "ddp_fork": [],
    "ddp": [],
}
"""What stands before the script, by what starts the processes: accelerate's two ways and Lightning's."""
FORKED = ("accelerate-fork", "ddp_fork")
"""The quick ones, of a process that has imported torch."""


@needs.POSIX
@pytest.mark.parametrize("how", only_in_full(COMMANDS, FORKED))
def test_two_processes_train_as_one(tmp_path, how, in_a_process):
    two = tmp_path / "two"
    if how in FORKED:
        code, _ = in_a_process(launched.forked, how, str(two))
        assert code == 0, [file.read_text()[-3000:] for file in tmp_path.glob("*.error")]
    else:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        command = [sys.executable, *COMMANDS[how], SCRIPT, how, str(two)]
        environment = {**kept, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr[-3000:]
    launched.alone(tmp_path / "one")
    torch.testing.assert_close(torch.load(two), torch.load(tmp_path / "one"), rtol=1e-12, atol=1e-14)
