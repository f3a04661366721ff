"""The ``hyperfan`` command."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

import hyperfan
from hyperfan.cli import data, nets, runs
from hyperfan.errors import HyperfanError
from hyperfan.experiments.exit_codes import EXIT_CODES
from hyperfan.experiments.signals import Terminated
from hyperfan.metrics import Outcome

DESCRIPTION = """\
Hypernetworks that start at the right scale.

Examples:
  hyperfan compare                                how each init starts the paper's MNIST net
  hyperfan plan my.module:make_net                what an init would write into a net of yours
  hyperfan methods                                the init methods and their papers
  hyperfan diagnose my.module:make_net            what is wrong with a hypernet of yours
  hyperfan diagnose my.module:make_net --widths 64 128 256    whether its scale depends on the width
  hyperfan run mnist --init hyperfan-in           an experiment of the paper
  hyperfan results mnist                          figures and verdicts from its runs
  hyperfan report runs/mnist/hyperfan-in_seed-0   one page of a run, or of several side by side
  hyperfan data fetch mnist                       download a data set
"""

Commands = dict[str, Callable[..., Any]]
COMMANDS: Commands = {
    "compare": nets.compare,
    "plan": nets.plan,
    "methods": nets.methods,
    "diagnose": nets.diagnose,
    "report": runs.report,
}
GROUPS: dict[str, Callable[[Sequence[str]], Commands]] = {
    "run": runs.run_commands,
    "results": runs.results_commands,
    "data": data.commands,
}
"""Functions from the arguments that follow to commands."""


def main(args: list[str] | None = None) -> int:
    """Run a command; the exit code is 2 if it could not run."""
    args = sys.argv[1:] if args is None else args
    if args == ["--version"]:
        print(f"hyperfan {hyperfan.__version__}")
        return 0
    try:
        if args and args[0] in GROUPS:
            group, *rest = args
            code = _dispatch(GROUPS[group](rest), f"hyperfan {group}", GROUPS[group].__doc__, rest)
        else:
            code = _dispatch({**COMMANDS, **GROUPS}, "hyperfan", DESCRIPTION, args)
    except HyperfanError as error:
        print(f"hyperfan: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Terminated:
        print("hyperfan: SIGTERM: stopped", file=sys.stderr)
        return EXIT_CODES[Outcome.TERMINATED]
    except KeyboardInterrupt:
        print("hyperfan: stopped", file=sys.stderr)
        return EXIT_CODES[Outcome.STOPPED]
    return code


def _dispatch(known: Commands, prog: str, description: str | None, args: Sequence[str]) -> int:
    """Run the one that the arguments name; a command returns its exit code, or nothing."""
    code = tyro.extras.subcommand_cli_from_dict(known, prog=prog, description=description, args=args)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
