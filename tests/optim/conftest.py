import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of steps on tensors of a few values: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_map_is_small(monkeypatch):
    """Those of the tests are, and would all be dense under Adam."""
    monkeypatch.setattr("hyperfan.optim.adam.MAX_SMALL", 0)
