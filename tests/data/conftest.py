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


@pytest.fixture(autouse=True)
def _without_a_proxy(monkeypatch):
    """The servers of these tests are on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
