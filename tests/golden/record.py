"""Making the golden record, keeping it in a file, and comparing with it.

A plan is recorded as it is. Of a generated tensor only three numbers are: its sum of squares, and its products with two
fixed vectors. Floats are compared to a relative 1e-9, because another CPU adds in another order.
"""

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import hyperfan as hf
from golden.configurations import Configuration

PATH = Path(__file__).parent / "record.json"
TOLERANCE = 1e-9
MULTIPLIERS = (2654435761, 2246822519)
"""Odd numbers below 2³², of which i·m mod 2³² runs through all values without a pattern (Knuth's hash)."""


def take(configuration: Configuration) -> dict[str, Any]:
    """What this configuration makes now: its plan, and the checksums of its generated tensors for each call."""
    with _double():
        torch.manual_seed(0)
        with torch.device("meta") if configuration.meta else contextlib.nullcontext():
            mainnet = configuration.mainnet()
        options = dict(configuration.options)
        if configuration.trunk is not None:
            options["trunk"] = configuration.trunk()
        net = hf.HyperNet(mainnet, configuration.embedding, **options)
        if configuration.after is not None:
            configuration.after(net)
        taken: dict[str, Any] = {"plan": net.plan.to_dict(), "calls": []}
        for call in [] if configuration.meta else configuration.calls:
            torch.manual_seed(1)
            taken["calls"].append({name: checksum(t) for name, t in net.generate(**call).items()})
    return json.loads(json.dumps(taken))


def checksum(tensor: Tensor) -> list[float]:
    """Sum of squares, and two products with fixed values in [−1, 1); a different order of the values changes them."""
    assert tensor.dtype == torch.float64
    values = tensor.detach().flatten()
    places = torch.arange(1, len(values) + 1)
    products = [((places * m % 2**32).double() / 2**31 - 1) @ values for m in MULTIPLIERS]
    return [float(f"{x:.13g}") for x in (values @ values, *products)]


def differences(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """Where what is made now is not what was recorded, in words; nothing if all is the same."""
    found = list(_unlike(now["plan"], then["plan"], "plan"))
    if len(now["calls"]) != len(then["calls"]):
        return [*found, f"{len(now['calls'])} calls, {len(then['calls'])} recorded"]
    for i, (made, recorded) in enumerate(zip(now["calls"], then["calls"], strict=True)):
        if list(made) != list(recorded):
            found.append(f"call {i} makes {list(made)}, recorded {list(recorded)}")
            continue
        for name, (square, *products) in made.items():
            before, *others = recorded[name]
            # A product's own size says nothing of its rounding error, so all are compared with the tensor's norm.
            close = math.isclose(square, before, rel_tol=TOLERANCE) and all(
                abs(a - b) <= TOLERANCE * math.sqrt(before) for a, b in zip(products, others, strict=True)
            )
            if not close:
                found.append(f"call {i}, {name}: {[square, *products]}, recorded {recorded[name]}")
    return found


def _unlike(now: Any, then: Any, where: str) -> Iterator[str]:
    """Floats nearly, everything else exactly."""
    if isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys():
        for key in now:
            yield from _unlike(now[key], then[key], f"{where}.{key}")
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        for i, (a, b) in enumerate(zip(now, then, strict=True)):
            yield from _unlike(a, b, f"{where}[{i}]")
    elif isinstance(now, float) and isinstance(then, float | int):
        if not math.isclose(now, then, rel_tol=TOLERANCE):
            yield f"{where}: {now!r}, recorded {then!r}"
    elif now != then:
        yield f"{where}: {now!r}, recorded {then!r}"


def write(record: dict[str, Any]) -> None:
    """Keep it. A plan's rows all have the same keys, which are said once; each row has a line of its own."""
    lines = []
    for name, taken in record.items():
        plan = dict(taken["plan"])
        rows = [list(row.values()) for row in plan.pop("rows")]
        parts = [f'"plan": {_json(plan)}', f'"rows": {_listed(rows)}', f'"calls": {_listed(taken["calls"])}']
        lines.append(f"{_json(name)}: {{\n" + ",\n".join(parts) + "\n}")
    columns = [list(row) for taken in record.values() for row in taken["plan"]["rows"]]
    assert all(c == columns[0] for c in columns)
    PATH.write_text(f'{{\n"columns": {_json(columns[0])},\n' + ",\n".join(lines) + "\n}\n")


def read() -> dict[str, Any]:
    """What was kept."""
    stored = json.loads(PATH.read_text())
    columns = stored.pop("columns")
    for taken in stored.values():
        taken["plan"]["rows"] = [dict(zip(columns, row, strict=True)) for row in taken.pop("rows")]
    return stored


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _listed(values: list[Any]) -> str:
    return "[\n" + ",\n".join(_json(v) for v in values) + "\n]" if values else "[]"


@contextlib.contextmanager
def _double() -> Iterator[None]:
    """Everything in float64, also what the source makes without naming a type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
