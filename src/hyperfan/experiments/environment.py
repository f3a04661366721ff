"""What a run's results may depend on beside its configuration: versions, code and machine."""

import contextlib
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hyperfan

NO_TRAINING = {"cli", "report", "results", "claims", "sweep"}
"""Rooms, folders and modules that only read finished runs, or start runs in processes of their own."""


def environment() -> Mapping[str, Any]:
    """Everything beside the configuration that results may depend on."""
    import torch

    return {
        "hyperfan": hyperfan.__version__,
        "code": fingerprint(),
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


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
