"""A checkpoint: tensors in safetensors and the rest in JSON, never half-written.

``state.json`` names the file with the tensors, which is complete before it is named. A process killed at any instant
leaves the checkpoint before it intact.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hyperfan.errors import RunError
from hyperfan.files import atomic_write, read_json, remove_partial, write_json

STATE = "state.json"
SAFETENSORS_PREFIX = ".tmp"
"""Of the temporary files of safetensors."""


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Args:
        step: batches trained.
        metrics: bytes of ``metrics.jsonl`` written by then.
        done: whether the run is over.
        loss_sum, loss_count: training losses since the last line of metrics.
    """

    step: int
    metrics: int
    done: bool
    loss_sum: float
    loss_count: int


def save(folder: Path, state: State, tensors: dict[str, Tensor]) -> None:
    """Replace the checkpoint in the folder by this one."""
    folder.mkdir(exist_ok=True)
    file = folder / f"step-{state.step}.safetensors"
    with atomic_write(file) as partial:
        try:
            save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, partial)
        except SafetensorError as error:
            raise OSError(str(error)) from error
    content = {**asdict(state), "tensors": file.name, "sha256": _digest(file)}
    write_json(folder / STATE, {**content, "check": _check(content)})
    _remove_others(folder, file)


def load(folder: Path) -> tuple[State, dict[str, Tensor]] | None:
    """Read the checkpoint in the folder, if there is one."""
    remove_partial(folder)
    remove_partial(folder, SAFETENSORS_PREFIX)
    if not (folder / STATE).exists():
        return None
    content: dict[str, Any] = read_json(folder / STATE)
    try:
        if content.pop("check") != _check(content):
            raise RunError(f"{folder / STATE} is damaged: it does not match its checksum")
        file, digest = folder / Path(content.pop("tensors")).name, content.pop("sha256")
        state = State(**content)
    except (AttributeError, KeyError, TypeError) as error:
        raise RunError(f"{folder / STATE} is not the state of a checkpoint: {error}") from error
    try:
        if _digest(file) != digest:
            raise RunError(f"{file} is damaged: its checksum is not the one in {STATE}")
        tensors = {name: t.clone() for name, t in load_file(file).items()}  # copied, since the file is memory-mapped
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    _remove_others(folder, file)
    return state, tensors


def _remove_others(folder: Path, file: Path) -> None:
    """Remove the tensors of earlier checkpoints, which a process killed after writing this one has left."""
    for other in folder.glob("step-*.safetensors"):
        if other != file:
            other.unlink()


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
