"""What a run's results may depend on beside its configuration: versions, code and machine."""

import contextlib
import functools
import hashlib
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hyperfan

NO_TRAINING = {"cli", "report", "results", "claims", "sweep"}
"""Rooms, folders and modules that only read finished runs, or start runs in processes of their own."""
COMMIT = "commit"
"""The key of the commit in an environment."""
GIT_TIMEOUT = 10.0
"""Seconds."""


def environment() -> Mapping[str, Any]:
    """Everything beside the configuration that results may depend on."""
    import torch

    return {
        "hyperfan": hyperfan.__version__,
        "code": fingerprint(),
        COMMIT: commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def fingerprint(root: Path = Path(hyperfan.__file__).parent) -> str:
    """A checksum of all code under the package's root that can change the numbers of a run.

    That is every module but those of :data:`NO_TRAINING`; no module that trains may import one of them, which a
    contract on imports checks.
    """
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if not NO_TRAINING & {*name.parent.parts, name.stem}:
            digest.update(name.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def commit(root: Path = Path(hyperfan.__file__).parent) -> str | None:
    """The last commit that changed the package under a root, if it lies in a repository as that commit left it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        last, changes = (
            subprocess.run(
                ["git", "-C", str(root), *words, "--", "."],
                check=True,
                capture_output=True,
                text=True,
                timeout=GIT_TIMEOUT,
            ).stdout.strip()
            for words in (["log", "-1", "--format=%h", "--abbrev=12"], ["status", "--porcelain"])
        )
        return last if last and not changes else None
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
