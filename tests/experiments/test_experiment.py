"""The entry points of the experiments: each names a class of its own package, and a wrong one says what is wrong."""

import pytest

from hyperfan.errors import RunError
from hyperfan.experiments.experiment import EXPERIMENTS, experiment, load_entry_point
from hyperfan.experiments.results.runs import Run
from hyperfan.experiments.results.write import Results
from hyperfan.experiments.training import Training


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_names_its_own_classes(name):
    found = experiment(name)
    assert found.name == name
    for entry_point, kind in ((found.training, Training), (found.run, Run), (found.results, Results)):
        named = load_entry_point(entry_point)
        assert issubclass(named, kind)
        assert entry_point.startswith(f"{found.config.__module__}.")
        assert entry_point == f"{named.__module__}:{named.__name__}"


@pytest.mark.parametrize(
    ("entry_point", "words"),
    [
        (
            "hyperfan.experiments.mnist.trainings:MnistTraining",
            "No module named 'hyperfan.experiments.mnist.trainings'",
        ),
        ("hyperfan.experiments.mnist.training:Training2", "has no attribute 'Training2'"),
        ("hyperfan experiments", "invalid format"),
    ],
)
def test_a_wrong_entry_point_is_named_in_the_error(entry_point, words):
    with pytest.raises(RunError, match=f"'{entry_point}' cannot be loaded: .*{words}"):
        load_entry_point(entry_point)
