"""Commands about nets: what an init would write, what is wrong with a hypernet, and how each init starts.

One function per command; its signature is its options.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from hyperfan.cli.factories import call
from hyperfan.cli.output import print_json, status
from hyperfan.errors import HyperfanError, RunError, one_line

if TYPE_CHECKING:
    from hyperfan.probe import Diagnosis

PIPE_WIDTH = 160
"""Columns where there is no terminal."""
Flat = tyro.conf.arg(name="")
"""A dataclass whose fields are options without a prefix."""


def compare(
    seeds: int = 5, batch: int = 300, fidelity: Literal["paper", "exact"] = "paper", json: bool = False
) -> None:
    """How each init starts the paper's MNIST net (784-500×5-10, tanh).

    On standardised Gaussian input, for each init: standard deviation of every layer's pre-activations and of the
    gradients that reach them, and the loss; means over seeds.

    Example: hyperfan compare --seeds 10 --json > start.json

    Args:
        seeds: How many seeds to average over.
        batch: How many inputs.
        fidelity: "paper" is Table 1 to the letter, "exact" uses numeric gains and actual norms.
        json: Print JSON instead of tables.
    """
    from hyperfan.experiments.compare import compare as measure
    from hyperfan.text import table

    if seeds < 1 or batch < 2:
        raise HyperfanError(f"--seeds {seeds} --batch {batch}: at least 1 seed and 2 inputs are needed")
    with status("measuring") as show:
        starts = measure(seeds, batch, fidelity, lambda init: show(f"measuring {init}"))
    if json:
        config = {"seeds": seeds, "batch": batch, "fidelity": fidelity}
        print_json({"config": config, "rows": [dataclasses.asdict(start) for start in starts]})
        return
    layers = range(1, len(starts[0].preactivation) + 1)
    activations = [[s.init, *(f"{y:.3g}" for y in (*s.preactivation, s.ratio))] for s in starts]
    gradients = [[s.init, *(f"{g:.3g}" for g in (*s.gradient, s.loss))] for s in starts]
    print("Standard deviation of each layer's pre-activations y. ×: against the classical net, geometric mean.\n")
    print(table(["init", *(f"y{i}" for i in layers), "×"], activations))
    print("\nStandard deviation of their gradients, and the loss.\n")
    print(table(["init", *(f"∂L/∂y{i}" for i in layers), "loss"], gradients))


@dataclass(frozen=True)
class HypernetOptions:
    """The hypernet for a mainnet.

    Args:
        embedding: Size of the embedding.
        generate: weights, weights+biases, or a glob pattern on parameter names.
        trunk: Hidden widths of a ReLU trunk.
        heads: One head for all tensors of one shape, or one for each, or one for all tensors of one module in repeated
            layers. Without it, what fits the embedding.
        init: An init method; "hyperfan methods" lists them.
        fidelity: Exact moments, or the paper's table to the letter.
        nonlinearity: The nonlinearity after every hidden layer, if it cannot be found.
    """

    embedding: int = 32
    generate: str = "weights"
    trunk: tuple[int, ...] = ()
    heads: Literal["shared", "separate", "module"] | None = None
    init: str = "hyperfan-in"
    fidelity: Literal["exact", "paper"] = "exact"
    nonlinearity: str | None = None


USUAL_HYPERNET = HypernetOptions()


def plan(
    factory: tyro.conf.Positional[str],
    options: Annotated[HypernetOptions, Flat] = USUAL_HYPERNET,
    json: bool = False,
) -> None:
    """What an init would write into a net: every tensor with its fans, gain, variances and equation.

    The factory is a function without arguments. It returns a HyperNet, or a mainnet, or a mainnet and example inputs.
    For a mainnet the options make the hypernet, and nothing is written; a HyperNet has its own. An example, or
    --nonlinearity, is needed where the order of layers does not show what lies between them.

    Example: hyperfan plan hyperfan.models:mnist_net --embedding 50 --init hyperfan-out

    Args:
        factory: Where the function is, as pkg.module:function.
        options: The hypernet for a mainnet.
        json: Print JSON instead of a table.
    """
    subject = call(factory)
    from torch import nn

    from hyperfan.hypernet import HyperNet
    from hyperfan.mainnet import Skeleton

    net, example = subject if isinstance(subject, tuple) and len(subject) == 2 else (subject, None)
    if not isinstance(net, nn.Module):
        raise HyperfanError(f"{factory} returned a {type(net).__name__}; it should return an nn.Module or a HyperNet")
    if not isinstance(net, HyperNet):
        net = HyperNet(Skeleton(net).module, example=example, **vars(options))
    elif options != USUAL_HYPERNET:
        raise HyperfanError(f"{factory} makes a HyperNet, so the options that would make one do not apply")
    if json:
        print_json(net.plan.to_dict())
    else:
        print(net.plan)


def methods(json: bool = False) -> None:
    """The init methods, their papers and their settings.

    Example: hyperfan methods --json

    Args:
        json: Print JSON instead of a table.
    """
    from rich.console import Console
    from rich.table import Table

    from hyperfan.init import available

    found = available()
    if json:
        names = ("name", "paper", "settings", "summary")
        print_json([{name: getattr(m, name) for name in names} | {"settings": dict(m.settings)} for m in found])
        return
    table = Table("name", "paper", "settings", "what it does")
    for m in found:
        table.add_row(m.name, m.paper, ", ".join(f"{k}={v:g}" for k, v in m.settings.items()), m.summary)
    console = Console()
    (console if console.is_terminal else Console(width=PIPE_WIDTH)).print(table)


def diagnose(
    factory: tyro.conf.Positional[str],
    init: str | None = None,
    lr: float | None = None,
    optimiser: Literal["sgd", "adam", "adamw"] | None = None,
    widths: tuple[int, ...] = (),
    depths: tuple[int, ...] = (),
    seed: int = 0,
    html: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Look into a hypernet before its first step: predicted and measured scales, findings, and what mends them.

    The factory is a function without arguments. It returns (net, x) or (net, x, y), or a dict of the arguments of
    hyperfan.diagnose: for a foreign hypernet {"net": mainnet, "x": x, "y": y, "generated": function}.

    With --widths or --depths it is a coordinate check: the factory is called with width= and depth=, of those that are
    given, for every size, and the scale of every layer should depend on neither.

    The exit code is 0 if the net is healthy, 1 if something was found, 2 if the net could not be looked at.

    Example: hyperfan diagnose my.module:make_net --html diagnosis.html
    Example: hyperfan diagnose my.module:make_net --widths 64 128 256 --depths 2 4 8 --html check.html

    Args:
        factory: Where the function is, as pkg.module:function.
        init: Also show what the net would be with this init; "hyperfan methods" lists them.
        lr: Try one step of the optimiser at this learning rate.
        optimiser: The optimiser of that step and of the effective rates, SGD by default.
        widths: Widths of a coordinate check.
        depths: Depths of a coordinate check.
        seed: For torch's random numbers, before the factory is called.
        html: Write the diagnosis as a page too.
        overwrite: Replace a page that is there.
        json: Print JSON instead of text.
    """
    if html is not None and html.exists() and not overwrite:
        raise RunError(f"{html} exists: --overwrite replaces it, --html names another place")
    import torch

    from hyperfan.hypernet import HyperNet
    from hyperfan.probe import started_with

    torch.manual_seed(seed)
    given = {name: value for name, value in {"lr": lr, "optimiser": optimiser}.items() if value is not None}
    if widths or depths:
        return _coordinate_check(factory, given, {"widths": widths, "depths": depths}, init, html, json)
    arguments = _arguments(factory, call(factory)) | given
    now, others = _diagnose(factory, arguments), {}
    if init is not None:
        if not isinstance(arguments["net"], HyperNet):
            raise HyperfanError(
                f"--init {init}: {factory} makes no HyperNet, whose heads could be started anew; the predicted scales "
                "are those of hyperfan-in"
            )
        net = started_with(arguments["net"], arguments["x"], init)
        others[init] = _diagnose(factory, {**arguments, "net": net})
    if json:
        print_json(now.to_dict() | {f"with {name}": other.to_dict() for name, other in others.items()})
    else:
        print("\n\n".join([str(now), *(_change(now, other, name) for name, other in others.items())]))
    if html is not None:
        from hyperfan.report import diagnosis_page

        _write_page(html, diagnosis_page(now, _environment(), others))
    return 0 if now.healthy else 1


def _coordinate_check(
    factory: str,
    given: dict[str, Any],
    sizes: dict[str, tuple[int, ...]],
    init: str | None,
    html: Path | None,
    json: bool,
) -> int:
    """Make and diagnose a net of every size; returns the exit code."""
    if init is not None:
        raise HyperfanError(
            f"--init {init} starts one net anew: for a coordinate check let {factory} make nets with it"
        )
    check = _diagnose(factory, {"net": lambda **size: _arguments(factory, call(factory, **size)), **given, **sizes})
    if json:
        print_json(check.to_dict())
    else:
        print(check)
    if html is not None:
        from hyperfan.report import coordinate_page

        _write_page(html, coordinate_page(check, _environment()))
    return 0 if check.healthy else 1


def _environment() -> dict[str, str]:
    from hyperfan.experiments.environment import environment

    return {name: str(value) for name, value in environment().items()}


def _write_page(path: Path, content: str) -> None:
    from hyperfan.files import explain_write_errors, write_text

    with explain_write_errors(str(path), "Choose another place with --html"):
        write_text(path, content)


def _arguments(factory: str, returned: Any) -> dict[str, Any]:
    """The arguments of a diagnosis by name, from what the factory returned."""
    from hyperfan.probe.coordinates import named_arguments

    arguments = named_arguments(returned)
    if not {"net", "x"} <= arguments.keys():
        raise HyperfanError(
            f"{factory} returned a {type(returned).__name__}; a diagnosis needs inputs too: return (net, x) or "
            "(net, x, y), or a dict of the arguments of hyperfan.diagnose"
        )
    return arguments


def _diagnose(factory: str, arguments: dict[str, Any]) -> Any:
    """The diagnosis, or coordinate check, that these arguments of hyperfan.diagnose make."""
    from hyperfan.probe import diagnose as look

    try:
        return look(**arguments)
    except HyperfanError:
        raise
    except Exception as error:
        raise HyperfanError(
            f"the net of {factory}, or its loss, does not run on these inputs: {one_line(error)}"
        ) from error


def _change(now: "Diagnosis", then: "Diagnosis", init: str) -> str:
    """A table of the net's scales now and with another init, layer by layer."""
    from hyperfan.text import number, table

    rows = []
    for pair in zip(now.layers, then.layers, strict=True):
        scales = [*(reading.measured for reading in pair), *(reading.measured_gradient for reading in pair)]
        rows.append([pair[0].layer, *(number(None if scale is None else scale.value) for scale in scales)])
    header = ["layer", "now", f"with {init}", "gradient now", f"with {init}"]
    return f"With {init}: {then.summary}\n{table(header, rows)}"
