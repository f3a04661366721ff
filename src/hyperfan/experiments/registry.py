"""The experiments, by name. An experiment is imported when it is asked for; its configuration needs no torch."""

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hyperfan.errors import RunError

if TYPE_CHECKING:
    from hyperfan.experiments.experiment import Configuration, Experiment

EXPERIMENTS = {name: f"hyperfan.experiments.{name}" for name in ("mnist", "continual", "cifar10", "imagenet")}
"""Name → module, whose ``EXPERIMENT`` is the value. Commands, results and reports all come from here."""


def experiment(name: str) -> "Experiment[Any]":
    """The experiment of this name."""
    found: Experiment[Any] = importlib.import_module(EXPERIMENTS[name]).EXPERIMENT
    return found


def experiment_of(content: Mapping[str, Any]) -> "Experiment[Any] | None":
    """The experiment whose run has this ``config.json``, if it is one of ours.

    A configuration names its experiment. One from before that was so is recognised: it has most of the fields, and no
    others.
    """
    if "experiment" in content:
        name = content["experiment"]
        return experiment(name) if name in EXPERIMENTS else None
    for found in map(experiment, EXPERIMENTS):
        known = {f.name for f in fields(found.config)}
        if known >= set(content) and 2 * len(content) > len(known):
            return found
    return None


def read_configuration(content: Mapping[str, Any]) -> "Configuration":
    """The configuration that a ``config.json`` holds; fields that did not exist when it was written have defaults."""
    found = experiment_of(content)
    if found is None:
        raise RunError("it is not the configuration of a known experiment")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items() if k != "experiment"}
    try:
        config: Configuration = found.config(**values)
    except TypeError as error:
        raise RunError(f"it is not the configuration of a run of {found.name}: {error}") from error
    return config
