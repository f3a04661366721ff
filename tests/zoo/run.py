"""Trials of nets by their names, in processes of their own."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from zoo.nets import ZOO
from zoo.trial import Result, try_net


def try_all(names: Iterable[str]) -> Iterator[Result]:
    """Try nets side by side; the results are in the order of the names."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield from pool.map(_try, names)


def _try(name: str) -> Result:
    torch.set_num_threads(1)
    return try_net(name, ZOO[name])
