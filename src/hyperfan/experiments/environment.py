"""What a run's results may depend on beside its configuration: versions, code and machine."""

import contextlib
import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hyperfan
from hyperfan.experiments.experiment import EXPERIMENTS

NO_TRAINING = {"charts", "cli", "report", "results", "claims", "sweep"}
"""Rooms, folders and modules that only draw, read finished runs, or start runs in processes of their own."""
PACKAGE = Path(hyperfan.__file__).parent
COMMIT = "commit"
"""The key of :func:`commit` beside an environment."""
GIT_TIMEOUT_SECONDS = 10.0


def environment(experiment: str | None = None) -> Mapping[str, Any]:
    """Everything beside the configuration that the results of an experiment, or of any, may depend on."""
    import torch

    return {
        "hyperfan": hyperfan.__version__,
        "code": fingerprint(experiment),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def fingerprint(experiment: str | None = None, root: Path = PACKAGE) -> str:
    """A checksum of all code under the package's root that can change the numbers of an experiment, or of any.

    That is every module but those of :data:`NO_TRAINING` and of other experiments. What trains imports none of them,
    but for charts by which a plan or a diagnosis shows itself; contracts on imports check that.
    """
    others = {("experiments", name) for name in EXPERIMENTS if experiment not in (None, name)}
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if not NO_TRAINING & {*name.parent.parts, name.stem} and name.parts[:2] not in others:
            digest.update(name.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def commit(root: Path = PACKAGE) -> str | None:
    """The last commit that changed the package under a root, if it lies in a repository as that commit left it.

    Nothing is asked that writes to the repository, or that users can configure, or that their environment redirects.
    """
    asked = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        done = subprocess.run(command, check=True, capture_output=True, env=asked, timeout=GIT_TIMEOUT_SECONDS)
        return done.stdout.decode().strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        git("cat-file", "-e", "HEAD:./__init__.py")
        if not git("status", "--porcelain", "--untracked-files=all", "--", "."):
            return git("rev-list", "-1", "--abbrev-commit", "--abbrev=12", "HEAD", "--", ".")
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
