"""The entry points of the experiments: each names a class of its own package, and a wrong one says what is wrong."""

from pkgutil import resolve_name

import pytest

from hyperfan.experiments.experiment import EXPERIMENTS, experiment
from hyperfan.experiments.results.runs import Run
from hyperfan.experiments.results.write import Results
from hyperfan.experiments.training import Training


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_names_its_own_classes(name):
    found = experiment(name)
    assert found.name == name
    for entry_point, kind in ((found.training, Training), (found.run, Run), (found.results, Results)):
        named = resolve_name(entry_point)
        assert issubclass(named, kind)
        assert entry_point.startswith(f"{found.config.__module__}.")
        assert entry_point == f"{named.__module__}:{named.__name__}"
