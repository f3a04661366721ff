"""What some tests need of the machine; where it is not there, they are skipped."""

import os
from pathlib import Path

import pytest

from hyperfan.data.lookup import find
from hyperfan.errors import DataError

POSIX = pytest.mark.skipif(os.name == "nt", reason="needs signals, fork, pipes and permissions as POSIX has them")


def data_set(name: str) -> Path:
    """The folder of an official data set, where users have it."""
    try:
        return find(name)
    except DataError as error:
        pytest.skip(f"{error}. To run this test: hyperfan data fetch {name}")
