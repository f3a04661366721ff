"""The errors of hyperfan: every message says what was seen, why it is likely, and the call that mends it."""

import difflib
from collections.abc import Iterable


class HyperfanError(ValueError):
    """The base of all errors raised by hyperfan."""


class MainnetError(HyperfanError):
    """The mainnet cannot be read, or lacks a parameter or layer that was named."""


class CallError(HyperfanError):
    """The tensors, codes or task given at a call do not fit the net."""


class InitError(HyperfanError):
    """An init method is unknown, or cannot be applied to this net."""


class CheckpointError(HyperfanError):
    """A saved hypernet is missing, damaged, or belongs to another mainnet."""


class DataError(HyperfanError):
    """A data set is missing, damaged, another one, or cannot be fetched."""


class RunError(HyperfanError):
    """A run cannot be started, resumed or written."""


class HyperfanWarning(UserWarning):
    """Something works, but probably not as intended."""


def nearest(name: str, options: Iterable[str]) -> str:
    """The option that was probably meant, as the end of a sentence.

    >>> nearest("hyperfanin", ["hyperfan-in", "m2"])
    "did you mean 'hyperfan-in'?"
    >>> nearest("zzz", ["hyperfan-in", "m2"])
    'known: hyperfan-in, m2'
    """
    names = list(options)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
