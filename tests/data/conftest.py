import contextlib
import os

import pytest

NOBODY = 65534


@pytest.fixture
def denied():
    """A context in which a file or folder may not be read, even if the tests are run by root."""

    @contextlib.contextmanager
    def context(path):
        mode, user = path.stat().st_mode, os.geteuid()
        path.chmod(0)
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(user)
            path.chmod(mode)

    return context
