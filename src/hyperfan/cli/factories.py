"""Functions of a user's that commands call: ``pkg.module:function``, which returns a net."""

import importlib
import os
import sys
from typing import Any

from hyperfan.errors import HyperfanError, nearest, one_line


def call(factory: str, **options: Any) -> Any:
    """Import pkg.module:function and call it with options; an error in it is one line."""
    module_name, _, name = factory.partition(":")
    if not name:
        raise HyperfanError(f"'{factory}' does not name a function: write pkg.module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise HyperfanError(f"cannot import '{module_name}': {one_line(error)}") from error
    if name not in vars(module):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise HyperfanError(f"'{module_name}' has no '{name}': {nearest(name, public)}")
    try:
        return vars(module)[name](**options)
    except (Exception, SystemExit) as error:
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        raise HyperfanError(f"{factory}({shown}) failed: {one_line(error)}") from error
