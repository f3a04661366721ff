"""Making the golden record, keeping it in a file, and comparing with it.

A plan is recorded as it is. Of a generated tensor only three numbers are: its sum of squares, and its products with two
fixed vectors. Floats are compared to a relative 1e-9, because another CPU adds in another order.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
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
            net = configuration.after(net) or net
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


def differences(now: dict[str, Any], then: dict[str, Any]) -> dict[str, str]:
    """Where what is made now is not what was recorded, and both in words; nothing if all is the same."""
    found = dict(_unlike(now["plan"], then["plan"], "plan"))
    if len(now["calls"]) != len(then["calls"]):
        return {**found, "calls": f"{len(now['calls'])}, {len(then['calls'])} recorded"}
    for i, (made, recorded) in enumerate(zip(now["calls"], then["calls"], strict=True)):
        if list(made) != list(recorded):
            found[f"call {i}"] = f"makes {list(made)}, recorded {list(recorded)}"
            continue
        for name, (square, *products) in made.items():
            before, *others = recorded[name]
            if not math.isclose(square, before, rel_tol=TOLERANCE):
                found[f"call {i}, {name}, sum of squares"] = f"{square}, recorded {before}"
            # A product's own size says nothing of its rounding error, so all are compared with the tensor's norm.
            if any(abs(a - b) > TOLERANCE * math.sqrt(before) for a, b in zip(products, others, strict=True)):
                found[f"call {i}, {name}, products"] = f"{products}, recorded {others}"
    return found


def surprises(found: Mapping[str, str], listed: Sequence[str]) -> list[str]:
    """Differences at places that are not listed, and listed places where nothing differs; ``*`` stands for any text."""
    unlisted = [f"{place}: {text}" for place, text in found.items() if not any(fnmatchcase(place, p) for p in listed)]
    unseen = [
        f"{p}: nothing differs, but is listed" for p in listed if not any(fnmatchcase(place, p) for place in found)
    ]
    return unlisted + unseen


def renewed(now: dict[str, Any], then: dict[str, Any], *, changed: bool) -> dict[str, Any]:
    """What to record in place of what was: the same, with new columns, if it is equal or changed on purpose."""
    made, recorded = now["plan"]["rows"], then["plan"]["rows"]
    if len(made) != len(recorded):
        return now
    rows = [{c: old.get(c, new[c]) for c in new} for new, old in zip(made, recorded, strict=True)]
    kept = {**then, "plan": {**then["plan"], "rows": rows}}
    return kept if changed or not differences(now, kept) else now


def _unlike(now: Any, then: Any, where: str) -> Iterator[tuple[str, str]]:
    """Floats nearly, everything else exactly."""
    if isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys():
        for key in now:
            yield from _unlike(now[key], then[key], f"{where}.{key}")
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        for i, (a, b) in enumerate(zip(now, then, strict=True)):
            yield from _unlike(a, b, f"{where}.{i}")
    elif isinstance(now, float) and isinstance(then, float | int):
        if not math.isclose(now, then, rel_tol=TOLERANCE):
            yield where, f"{now!r}, recorded {then!r}"
    elif now != then:
        yield where, f"{now!r}, recorded {then!r}"


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
