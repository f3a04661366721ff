"""The ``hyperfan`` command."""

import os
import sys

import tyro

import hyperfan
from hyperfan.cli import commands
from hyperfan.errors import HyperfanError

DESCRIPTION = """\
Hypernetworks that start at the right scale.

Examples:
  hyperfan compare                                how each init starts the paper's MNIST net
  hyperfan plan my.module:make_net                what an init would write into a net of yours
  hyperfan methods                                the init methods and their papers
"""


def main(args: list[str] | None = None) -> int:
    """Run a command; 2 is the exit code of one that could not."""
    if (sys.argv[1:] if args is None else args) == ["--version"]:
        print(f"hyperfan {hyperfan.__version__}")
        return 0
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"compare": commands.compare, "plan": commands.plan, "methods": commands.methods},
            prog="hyperfan",
            description=DESCRIPTION,
            args=args,
        )
    except HyperfanError as error:
        print(f"hyperfan: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("hyperfan: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
