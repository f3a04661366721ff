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


def closest(name: str, options: Iterable[str]) -> str | None:
    """The option that was probably meant; ``None`` if none is like the name."""
    return next(iter(difflib.get_close_matches(name, list(options), n=1)), None)


def nearest(name: str, options: Iterable[str]) -> str:
    """The option that was probably meant, as the end of a sentence.

    >>> nearest("hyperfanin", ["hyperfan-in", "m2"])
    "did you mean 'hyperfan-in'?"
    >>> nearest("zzz", ["hyperfan-in", "m2"])
    'known: hyperfan-in, m2'
    """
    names = list(options)
    meant = closest(name, names)
    return f"known: {', '.join(names)}" if meant is None else f"did you mean '{meant}'?"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, of which torch's errors have many; of one without text, its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def one_line(error: BaseException) -> str:
    """An error's type and the first line of its text, if it has any.

    >>> one_line(ValueError("no number")), one_line(AssertionError())
    ('ValueError: no number', 'AssertionError')
    """
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
