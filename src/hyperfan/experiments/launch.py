"""Which of how many processes this is, from the variables that torchrun or SLURM's srun sets. Nothing here needs torch.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; srun sets SLURM_PROCID, SLURM_STEP_NUM_TASKS,
SLURM_LOCALID and SLURM_STEP_NODELIST, from which the others follow. A batch script of SLURM by itself has no
SLURM_STEP_NUM_TASKS, so that what it starts without srun is one process.
"""

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hyperfan.errors import RunError

FIRST_PORT, PORTS = 20_000, 20_000
"""Ports that a job of SLURM may meet at, by its number."""
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_STEP_NUM_TASKS")
"""Variables by which a process takes itself for one of several; what it starts by itself should not inherit them."""
ADVICE = "start all processes with torchrun --nproc-per-node, or with srun"


@dataclass(frozen=True)
class Launch:
    """Which process this is: of how many, and which on its machine, if that is known; and where they meet."""

    rank: int = 0
    world: int = 1
    local: int | None = None
    address: str = ""
    port: int = 0

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] = os.environ) -> "Launch":
        """Read it from the environment; without variables of torchrun or srun it is one process."""
        if "WORLD_SIZE" in variables or "RANK" in variables:
            return cls._of_torchrun(variables)
        if _number(variables, "SLURM_STEP_NUM_TASKS", 1) > 1:
            return cls._of_slurm(variables)
        return cls()

    @classmethod
    def _of_torchrun(cls, variables: Mapping[str, str]) -> "Launch":
        world, rank = _number(variables, "WORLD_SIZE"), _number(variables, "RANK")
        if not 0 <= rank < world:
            raise RunError(f"RANK is {rank} and WORLD_SIZE is {world}: ranks count from 0; {ADVICE}")
        if world == 1:
            return cls()
        local = _number(variables, "LOCAL_RANK") if "LOCAL_RANK" in variables else None
        if "MASTER_ADDR" not in variables:
            raise RunError(f"WORLD_SIZE is {world} and MASTER_ADDR is not set: {ADVICE}")
        return cls(rank, world, local, variables["MASTER_ADDR"], _number(variables, "MASTER_PORT"))

    @classmethod
    def _of_slurm(cls, variables: Mapping[str, str]) -> "Launch":
        rank, world = _number(variables, "SLURM_PROCID"), _number(variables, "SLURM_STEP_NUM_TASKS")
        local = _number(variables, "SLURM_LOCALID")
        address = variables.get("MASTER_ADDR") or first_host(variables.get("SLURM_STEP_NODELIST", "127.0.0.1"))
        # Two steps of one job may run at once, each with its own processes.
        default = FIRST_PORT + (_number(variables, "SLURM_JOB_ID", 0) + _number(variables, "SLURM_STEP_ID", 0)) % PORTS
        return cls(rank, world, local, address, _number(variables, "MASTER_PORT", default))


def first_host(nodes: str) -> str:
    """The first of SLURM's list of hosts.

    >>> first_host("gpu[003-007,12],login"), first_host("a,b")
    ('gpu003', 'a')
    """
    found = re.match(r"([^,\[]*)(?:\[([^\]\-,]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else nodes


def _number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = variables.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        seen = f"is '{text}'" if text is not None else "is not set"
        raise RunError(f"{name} {seen}, beside other variables of a launcher: {ADVICE}") from None


def even_parts(count: int, ranks: int, named: str) -> list[slice]:
    """The part of so many members that each process has, as even as can be; raises, by their name, if one has none.

    >>> even_parts(5, 2, "--seeds 5")
    [slice(0, 3, None), slice(3, 5, None)]
    """
    if count < ranks:
        raise RunError(f"{named} cannot be shared by {ranks} processes: each needs one at least")
    size, more = divmod(count, ranks)
    ends = [rank * size + min(rank, more) for rank in range(ranks + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]
