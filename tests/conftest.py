import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


def pytest_generate_tests(metafunc):
    """A suite class lists its CASES; each of its tests that takes a ``case`` runs on all of them."""
    cases = getattr(metafunc.cls, "CASES", None)
    if cases is not None and "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(cases.values()), ids=list(cases))
