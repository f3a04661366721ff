"""Trials of nets by their names, in processes of their own."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch

from zoo.nets import ZOO
from zoo.trial import Result, try_net

ROOT = Path(__file__).parents[2]
ROOMS = ("formulas", "mainnet", "codes", "generators", "init", "hypernet", "optim", "probe")


def fingerprint() -> str:
    """Of the code on which results depend: the rooms of the package that a trial uses, and the zoo itself."""
    files = [file for room in ROOMS for file in (ROOT / "src" / "hyperfan" / room).rglob("*.py")]
    files += [file for file in Path(__file__).parent.glob("*.py") if not file.name.startswith(("test_", "page", "__"))]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def try_all(names: Iterable[str]) -> Iterator[Result]:
    """Try nets side by side, and return each result when it is there."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_try, name) for name in names]):
            yield done.result()


def _try(name: str) -> Result:
    torch.set_num_threads(1)
    result = try_net(name, ZOO[name])
    result.code = fingerprint()
    return result
