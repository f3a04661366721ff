"""The LASA set of handwriting (Khansari-Zadeh & Billard 2011): shapes in the plane, each recorded several times."""

import importlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperfan.data.lookup import LASA_SHAPES, fetch_advice, find, read_errors
from hyperfan.errors import DataError


def lasa(data_dir: str | os.PathLike[str] | None = None, *, points: int = 100) -> dict[str, Tensor]:
    """Read LASA: seven recordings of each of 26 shapes, (7, points, 2), at equal steps of time.

    As :func:`hyperfan.data.demonstrations` draws shapes: all end at the origin, and all coordinates are in [−1, 1]. Its
    files are those of https://github.com/epfl-lasa/LASAHandwritingDataset, of MATLAB's version 5. The four that hold
    several shapes are left out.
    """
    load = _matlab_reader()
    with fetch_advice("lasa", data_dir):
        folder = find("lasa", data_dir)
        return {shape: _recordings(load, folder / f"{shape}.mat", points) for shape in LASA_SHAPES}


def _recordings(load: Any, path: Path, points: int) -> Tensor:
    with read_errors(path), open(path, "rb") as file:
        try:
            recorded = load(file, simplify_cells=True)["demos"]
            positions = torch.stack([torch.from_numpy(each["pos"]) for each in recorded]).mT
            kept = torch.linspace(0, positions.shape[1] - 1, points).round().long()
            return (positions[:, kept] / positions.abs().max()).float()
        except OSError:
            raise
        except Exception as error:  # SciPy raises whatever a damaged file leads to
            raise DataError(f"{path} is not a file of the LASA set: {error}") from error


def _matlab_reader() -> Any:
    try:
        return importlib.import_module("scipy.io").loadmat
    except ImportError as error:
        raise DataError("LASA's files need SciPy: pip install 'hyperfan[data]'") from error
