"""``hyperfan diagnose``: what is wrong with a hypernet, with an exit code for scripts."""

import json as _json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from hyperfan.cli.commands import Json, call, first_line
from hyperfan.errors import HyperfanError, RunError

if TYPE_CHECKING:
    from hyperfan.probe import Diagnosis


def diagnose(
    factory: tyro.conf.Positional[str],
    init: str | None = None,
    lr: float | None = None,
    seed: int = 0,
    html: Path | None = None,
    overwrite: bool = False,
    json: Json = False,
) -> int:
    """Look into a hypernet before its first step: predicted and measured scales, findings, and what mends them.

    The factory is a function without arguments. It returns (net, x) or (net, x, y), or a dict of the arguments of
    hyperfan.diagnose: for a foreign hypernet {"net": mainnet, "x": x, "y": y, "generated": function}.

    The exit code is 0 if the net is healthy, 1 if something was found, 2 if the net could not be looked at.

    Example: hyperfan diagnose my.module:make_net --html diagnosis.html

    Args:
        factory: Where the function is, as pkg.module:function.
        init: Also show what the net would be with this init; "hyperfan methods" lists them.
        lr: Try one step of plain SGD at this learning rate.
        seed: For torch's random numbers, before the factory is called.
        html: Write the diagnosis as a page too.
        overwrite: Replace a page that is there.
        json: Print JSON instead of text.
    """
    if html is not None and html.exists() and not overwrite:
        raise RunError(f"{html} exists: --overwrite replaces it, --html names another place")
    import torch

    torch.manual_seed(seed)
    arguments = _arguments(factory, call(factory))
    if lr is not None:
        arguments["lr"] = lr
    found = {"as it is": _diagnose(factory, arguments)}
    if init is not None:
        found[init] = _diagnose(factory, {**arguments, "net": _reinitialised(factory, arguments, init)})
    now, *others = found.values()
    if json:
        content = now.to_dict() | ({f"with {init}": others[0].to_dict()} if others else {})
        print(_json.dumps(content, indent=2))
    else:
        print("\n\n".join([str(now), *(_change(now, other, str(init)) for other in others)]))
    if html is not None:
        _write(html, found)
    return 0 if now.healthy else 1


def _arguments(factory: str, returned: Any) -> dict[str, Any]:
    """The arguments of a diagnosis by name, from what the factory returned."""
    names = ("net", "x", "y")
    if isinstance(returned, tuple) and 2 <= len(returned) <= 3:
        returned = dict(zip(names, returned, strict=False))
    if not isinstance(returned, dict) or not {"net", "x"} <= returned.keys():
        raise HyperfanError(
            f"{factory} returned a {type(returned).__name__}; a diagnosis needs inputs too: return (net, x) or "
            "(net, x, y), or a dict of the arguments of hyperfan.diagnose"
        )
    known = {*names, "loss", "generated", "lr", "task", "embedding"}
    if unknown := sorted(set(returned) - known):
        raise HyperfanError(f"{factory} returned '{unknown[0]}', which is no argument of hyperfan.diagnose")
    return dict(returned)


def _diagnose(factory: str, arguments: dict[str, Any]) -> "Diagnosis":
    from hyperfan.probe import diagnose as look

    try:
        return look(**arguments)
    except HyperfanError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise HyperfanError(f"the net of {factory}, or its loss, does not run on these inputs: {reason}") from error


def _reinitialised(factory: str, arguments: dict[str, Any], init: str) -> Any:
    """A copy of the net, initialised with another method."""
    from hyperfan.hypernet import HyperNet
    from hyperfan.probe import started_with

    if not isinstance(arguments["net"], HyperNet):
        raise HyperfanError(
            f"--init {init}: {factory} makes no HyperNet, whose heads could be started anew; the predicted scales are "
            "those of hyperfan-in"
        )
    return started_with(arguments["net"], arguments["x"], init)


def _change(now: "Diagnosis", then: "Diagnosis", init: str) -> str:
    """A table of the net's scales now and with another init, layer by layer."""
    from hyperfan.text import number, table

    rows = [
        [a.layer, number(a.measured.value), number(b.measured.value), _gradient(a), _gradient(b)]
        for a, b in zip(now.layers, then.layers, strict=True)
    ]
    header = ["layer", "now", f"with {init}", "gradient now", f"with {init}"]
    return f"With {init}: {then.summary}\n{table(header, rows)}"


def _gradient(reading: Any) -> str:
    from hyperfan.text import number

    return number(None if reading.measured_gradient is None else reading.measured_gradient.value)


def _write(html: Path, found: "dict[str, Diagnosis]") -> None:
    from hyperfan.experiments.folder import environment
    from hyperfan.files import explain_write_errors, write_text
    from hyperfan.report import diagnosis_page

    now, *others = found.items()
    page = diagnosis_page(now[1], {k: str(v) for k, v in environment().items()}, dict(others))
    with explain_write_errors(str(html), "Choose another place with --html"):
        write_text(html, page)
