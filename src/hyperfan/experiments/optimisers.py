"""The names of optimisers in experiments; nothing here needs torch."""

from collections.abc import Mapping
from typing import Literal

SgdOrAdamW = Literal["SGD", "AdamW"]
"""The optimisers that users compare most."""
Optimiser = Literal[SgdOrAdamW, "Adam"]
"""Optimisers of stacks, as torch calls them, and pages."""
OPTIMISER_NAMES: Mapping[str, Optimiser] = {"sgd": "SGD", "adam": "Adam"}
"""Their names by the values of an option ``--optimiser`` that has small letters."""
