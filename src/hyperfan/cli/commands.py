"""One function per command; its signature is its options."""

import dataclasses
import importlib
import inspect
import json as _json
import os
import sys
from typing import Annotated, Any, Literal

import tyro

from hyperfan.errors import HyperfanError, InitError, nearest

Json = Annotated[bool, tyro.conf.arg(help="Print JSON instead of a table.")]


def compare(
    seeds: int = 5, batch: int = 300, fidelity: Literal["paper", "exact"] = "paper", json: Json = False
) -> None:
    """How each init starts the paper's MNIST net (784-500×5-10, tanh).

    On standardised Gaussian input, for each init: standard deviation of every layer's pre-activations and of the
    gradients that reach them, and the loss; mean and spread (one standard deviation) over seeds.

    Example: hyperfan compare --seeds 10 --json > start.json

    Args:
        seeds: How many seeds to average over.
        batch: How many inputs.
        fidelity: "paper" is Table 1 to the letter, "exact" uses numeric gains and actual norms.
        json: Print JSON instead of a table.
    """
    from rich.console import Console

    from hyperfan.cli.tables import compare_tables
    from hyperfan.experiments.compare import compare as measure

    if seeds < 1 or batch < 2:
        raise HyperfanError(f"--seeds {seeds} --batch {batch}: at least 1 seed and 2 inputs are needed")
    log = Console(stderr=True)
    with log.status("measuring") as status:
        show = status.update if log.is_terminal else log.print
        starts = measure(seeds, batch, fidelity, lambda init: show(f"measuring {init}"))
    if json:
        config = {"seeds": seeds, "batch": batch, "fidelity": fidelity}
        print(_json.dumps({"config": config, "rows": [dataclasses.asdict(s) for s in starts]}, indent=2))
    else:
        console = _console()
        for table in compare_tables(starts, seeds, fidelity, console.width):
            console.print(table)


def plan(
    factory: tyro.conf.Positional[str],
    embedding: int = 32,
    generate: str = "weights",
    trunk: tuple[int, ...] = (),
    heads: Literal["shared", "separate"] | None = None,
    init: str = "hyperfan-in",
    fidelity: Literal["exact", "paper"] = "exact",
    nonlinearity: str | None = None,
    json: Json = False,
) -> None:
    """What an init would write into a net: every tensor with its fans, gain, variances and equation.

    The factory is a function without arguments. It returns a HyperNet, or a mainnet, or a mainnet and example inputs.
    For a mainnet the options make the hypernet, and nothing is written; a HyperNet has its own.

    Example: hyperfan plan hyperfan.models:mnist_net --embedding 50 --init hyperfan-out

    Args:
        factory: Where the function is, as pkg.module:function.
        embedding: Size of the embedding.
        generate: weights, weights+biases, or a glob pattern on parameter names.
        trunk: Hidden widths of a ReLU trunk.
        heads: One head for all tensors of one shape, or one for each. Without it, what fits the embedding.
        init: An init method; "hyperfan methods" lists them.
        fidelity: Exact moments, or the paper's table to the letter.
        nonlinearity: The nonlinearity after every hidden layer, if it cannot be found.
        json: Print JSON instead of a table.
    """
    subject = call(factory)
    from torch import nn

    from hyperfan.hypernet import HyperNet
    from hyperfan.mainnet import Skeleton

    example = None
    if isinstance(subject, tuple) and len(subject) == 2:
        subject, example = subject
    if isinstance(subject, HyperNet):
        if (embedding, generate, trunk, heads, init, fidelity, nonlinearity) != _PLAN_DEFAULTS:
            raise HyperfanError(f"{factory} makes a HyperNet, so the options that would make one do not apply")
        net = subject
    elif isinstance(subject, nn.Module):
        try:
            net = HyperNet(
                Skeleton(subject).module,
                embedding,
                generate=generate,
                trunk=trunk,
                heads=heads,
                init=init,
                fidelity=fidelity,
                example=example,
                nonlinearity=nonlinearity,
            )
        except InitError as error:
            if "nonlinearity=" not in str(error):
                raise
            raise InitError(f"{error} (here: --nonlinearity relu, or let the factory return (net, example))") from error
    else:
        raise HyperfanError(
            f"{factory} returned a {type(subject).__name__}; it should return an nn.Module or a HyperNet"
        )
    if json:
        print(_json.dumps(net.plan.to_dict(), indent=2))
    else:
        print(net.plan)


def methods(json: Json = False) -> None:
    """The init methods, their papers and their settings.

    Example: hyperfan methods --json

    Args:
        json: Print JSON instead of a table.
    """
    from hyperfan.cli.tables import methods_table
    from hyperfan.init import available

    if json:
        rows = [
            {"name": m.name, "paper": m.paper, "settings": dict(m.settings), "summary": m.summary} for m in available()
        ]
        print(_json.dumps(rows, indent=2))
    else:
        _console().print(methods_table(available()))


_PLAN_DEFAULTS = tuple(p.default for p in list(inspect.signature(plan).parameters.values())[1:-1])


def call(factory: str) -> Any:
    """Import pkg.module:function and call it."""
    module_name, colon, name = factory.partition(":")
    if not colon or not name:
        raise HyperfanError(f"'{factory}' does not name a function: write pkg.module:function")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise HyperfanError(f"cannot import '{module_name}': {type(error).__name__}: {error}") from error
    if name not in vars(module):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise HyperfanError(f"'{module_name}' has no '{name}': {nearest(name, public)}")
    try:
        return vars(module)[name]()
    except (Exception, SystemExit) as error:
        raise HyperfanError(f"{factory}() failed: {type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next(iter(str(error).splitlines()), "")


def _console() -> Any:
    from rich.console import Console

    console = Console()
    # A file or a pipe has no width.
    return console if console.is_terminal else Console(width=160)
