"""What some tests need of the machine; where it is not there, they are skipped, and say what would run them.

Nothing that ``pip install 'hyperfan[dev]'`` brings is needed here: that is imported, and its lack is an error.
"""

import os
import shutil
from pathlib import Path

import pytest

from hyperfan.data.lookup import find
from hyperfan.errors import DataError

# These tests fork, and send signals that Windows does not have.
POSIX = pytest.mark.skipif(os.name == "nt", reason="needs signals, fork, pipes and permissions as POSIX has them")

GIT = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def data_set(name: str) -> Path:
    """The folder of an official data set: no test downloads gigabytes by itself, and none is part of the repository."""
    try:
        return find(name)
    except DataError as error:
        pytest.skip(f"{error}. To run this test: hyperfan data fetch {name}")
