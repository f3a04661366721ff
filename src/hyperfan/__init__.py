"""Hypernetworks that start at the right scale.

>>> import torch, hyperfan as hf
>>> mainnet = torch.nn.Sequential(torch.nn.Linear(784, 500), torch.nn.Tanh(), torch.nn.Linear(500, 10))
>>> net = hf.HyperNet(mainnet, embedding=50)
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from hyperfan import formulas, init
    from hyperfan.codes import Embedding
    from hyperfan.errors import HyperfanError, HyperfanWarning
    from hyperfan.formulas import Fans
    from hyperfan.generators import Chunks, LoRA, LowRank
    from hyperfan.hypernet import HyperNet, predict
    from hyperfan.mainnet import Use, read, rule
    from hyperfan.optim import SGD, Adam, AdamW
    from hyperfan.probe import calibrate_, diagnose

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Chunks",
    "Embedding",
    "Fans",
    "HyperNet",
    "HyperfanError",
    "HyperfanWarning",
    "LoRA",
    "LowRank",
    "Use",
    "calibrate_",
    "diagnose",
    "formulas",
    "init",
    "predict",
    "read",
    "rule",
]

_NAMES = {
    "codes": ("Embedding",),
    "errors": ("HyperfanError", "HyperfanWarning"),
    "formulas": ("Fans",),
    "generators": ("Chunks", "LoRA", "LowRank"),
    "hypernet": ("HyperNet", "predict"),
    "mainnet": ("Use", "read", "rule"),
    "optim": ("SGD", "Adam", "AdamW"),
    "probe": ("calibrate_", "diagnose"),
}
"""The public names of each room."""
_ROOMS = {name: room for room, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line answers without loading torch."""
    if name in _ROOMS:
        return getattr(importlib.import_module(f"hyperfan.{_ROOMS[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"hyperfan.{name}")
    raise AttributeError(f"module 'hyperfan' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
