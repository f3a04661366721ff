import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from products import only_in_full

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell lets its background jobs ignore
MEMORY, MIN_MEMORY = Path("/dev/shm"), 4 << 30
gc.disable()  # until all tests are collected: nothing of that goes away again


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run all of every product of cases, not the quick part of it")


def pytest_configure(config):
    # Some ten thousand small files are faster in memory, where there is enough of it: a container may have 64 MB.
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MIN_MEMORY:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    config.addinivalue_line("markers", "full: completes a product of cases; run with --full alone")
    config.addinivalue_line("markers", "one_per_graph: of a suite's cases, those of its class's GRAPHS will do")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores, since some tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config, items):
    if not config.getoption("full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish(session):
    if "torch" in sys.modules:  # not in the process that only hands tests out to the others
        import torch

        # All tests are on the CPU. Torch's own function formats the stack for each of three other kinds of devices.
        torch.manual_seed = torch.default_generator.manual_seed
    gc.freeze()  # what was imported and collected need not be looked at over and over
    gc.enable()


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    import torch  # which the process that only hands tests out to the others never needs

    torch.manual_seed(0)


def pytest_generate_tests(metafunc):
    """A suite class lists its CASES; each of its tests that takes a ``case`` runs on all of them.

    Where only the graph matters, a quick run takes the cases that the class lists in GRAPHS, if it does.
    """
    cases = getattr(metafunc.cls, "CASES", None)
    if cases is not None and "case" in metafunc.fixturenames:
        kept = list(cases)
        if metafunc.definition.get_closest_marker("one_per_graph"):
            kept = getattr(metafunc.cls, "GRAPHS", kept)
            assert set(kept) <= set(cases), f"{metafunc.cls.__name__}.GRAPHS names no case: {set(kept) - set(cases)}"
        chosen = [case for name, case in cases.items() if name in kept]
        metafunc.parametrize("case", only_in_full(cases.values(), chosen), ids=list(cases))
