"""``docs/zoo.md`` and ``docs/zoo.json``: one table of all nets, made of their results."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo.names import HELD_OUT
from zoo.nets import KINDS
from zoo.run import fingerprint
from zoo.trial import CHECKS, DRAWS, EMBEDDING, FACTOR, MORE_DRAWS, RATE, Result

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PAGE = DOCS / "zoo.json", DOCS / "zoo.md"
FIRST_LOOK = DOCS / "zoo_first_look.json"
"""The results of the held-out nets when they were tried for the first time. Written once."""
LIBRARIES = ("torch", "transformers")

INTRO = f"""# The zoo: nets that were designed elsewhere

`python -m zoo` in `tests/` tries every net and writes this page; `python -m zoo Llama` tries one. Models of the
transformers library are made from small configurations (2 to 4 layers, 16 to 64 channels); torch's layers and
well-known blocks are written out in `tests/zoo/`. Every net is generated with
`hf.HyperNet(net, {EMBEDDING}, example=…)`, by hyperfan-in, and checked for:

- **read**: it is known of every weight what it reads, and of every matrix what it does; or one line says what to
  declare or leave out, and the trial leaves it out ("n out").
- **made**: how many tensors are generated / how many calls of layers have a target and were measured. Tied tables,
  where they are looked up, and states of recurrent layers have none. All weights at once run, and so does a
  **pattern** on names.
- **forward**: the worst layer's mean square, as a factor from the target of hyperfan-in. **gradient**: the same of
  ∂ℓ/∂(output), from what plain nets have whose weights are independent and of the target variances. Both are geometric
  means over {DRAWS} starts ({MORE_DRAWS} where that is off), as the net starts → after one `hf.calibrate_`, and hold
  within a factor of {FACTOR:g}. Where they hold only after that, **by** says "calibrate_", else "start". A mixture
  (attention) or a pool has a smaller mean square than what it mixes, for which the plan cannot wholly make up
  ([limits](limits.md#the-theory)), and calibrating does.
- **diagnosis**: `hf.diagnose` raises no warning and no error, at the state that counts, in the first {DRAWS} starts.
- **step**: one step of `hf.AdamW` at {RATE:g} lowers the loss. **frozen**, **saved**: `freeze()`, and a net that was
  saved and loaded, put out the same to 1e-5.
"""


def recorded() -> dict[str, dict[str, Any]]:
    """The results that were recorded, by the name of the net."""
    found = json.loads(RECORD.read_text())["results"] if RECORD.exists() else []
    return {r["name"]: r for r in found}


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the record and the page."""
    libraries = {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}
    record = {
        "libraries": libraries,
        "code": fingerprint(),
        "results": [results[name] for name in KINDS if name in results],
    }
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(record, first_look()))


def write_first_look(results: Sequence[Result]) -> None:
    """Keep the first results of the nets that are held out; never again."""
    if FIRST_LOOK.exists():
        raise FileExistsError(f"{FIRST_LOOK} holds the first look, of which there is only one")
    FIRST_LOOK.write_text(json.dumps([r.to_dict() for r in results], indent=1, ensure_ascii=False) + "\n")


def first_look() -> list[dict[str, Any]]:
    """The first results of the held-out nets, if they were tried."""
    found: list[dict[str, Any]] = json.loads(FIRST_LOOK.read_text()) if FIRST_LOOK.exists() else []
    return found


def page(record: Mapping[str, Any], first: Sequence[Mapping[str, Any]]) -> str:
    """The page."""
    results = record["results"]
    libraries = ", ".join(f"{name} {number}" for name, number in record["libraries"].items())
    seen = [r for r in results if r["name"] not in HELD_OUT]
    held_out = [r for r in results if r["name"] in HELD_OUT]
    parts = [INTRO, f"Measured with {libraries}.\n", f"**{_score(seen)}** of those that rules were made with."]
    if held_out:
        parts[-1] += f" Of the ten that were held out until the others were mended: **{_score(first)}** at the first "
        parts[-1] += f"look, before any mending, **{_score(held_out)}** now."
    if any(r.get("code") != record["code"] for r in results):
        parts[-1] += "\n\nRows with † were measured with an earlier version of the code."
    for kind in dict.fromkeys(KINDS[r["name"]] for r in results):
        rows = _table([r for r in results if KINDS[r["name"]] == kind], record["code"])
        parts.append(f"\n## {kind[0].upper()}{kind[1:]}\n\n{rows}")
    reasons = [line for r in results for line in _reasons(r)]
    parts.append("\n## What fails, and why\n\n" + ("\n".join(reasons) or "Nothing."))
    parts.append("\n## What was left out, as advised\n\n" + ("\n".join(_left_out(results)) or "Nothing."))
    if first:
        reasons = [line for r in first for line in _reasons(r)]
        parts.append(f"\n## The first look at those held out\n\n{_table(first)}\n")
        parts.append("\n".join(reasons) or "Nothing failed.")
    return "\n".join(parts) + "\n"


def _score(results: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(all(r['passed'].values()) for r in results)} of {len(results)} hold"


HEADER = "net | read | made | pattern | forward | gradient | by | diagnosis | step | frozen | saved"


def _table(results: Sequence[Mapping[str, Any]], code: str = "") -> str:
    lines = [f"| {HEADER} |", "|" + "---|" * len(HEADER.split("|"))]
    return "\n".join(lines + [f"| {' | '.join(_cells(r, code))} |" for r in results])


def _cells(r: Mapping[str, Any], code: str) -> list[str]:
    passed, numbers = r["passed"], r["numbers"]

    def mark(check: str, text: str = "✓") -> str:
        return text if passed[check] else f"**✗** {text}".removesuffix(" ✓")

    def factors(check: str) -> str:
        if f"{check} before" not in numbers:
            return mark(check)
        return mark(check, f"{_factor(numbers[f'{check} before'])} → {_factor(numbers[f'{check} after'])}")

    out = numbers.get("unknown")
    name = f"{r['name']}{' (held out)' if r['name'] in HELD_OUT else ''}"
    read = mark("read", f"{out:g} out" if out else "✓")
    loss = f"{numbers['loss before']:.3g} → {numbers['loss after']:.3g}" if "loss before" in numbers else "✓"
    by = "calibrate_" if r["calibrated"] else "start" if passed["forward"] and passed["gradient"] else "–"
    made = mark("whole", f"{r['generated']} / {numbers.get('measured', 0):g}")
    title = f"{'' if all(passed.values()) else '**✗** '}{name}{' †' if code and r.get('code') != code else ''}"
    scales = [factors("forward"), factors("gradient"), by, mark("diagnosis")]
    return [title, read, made, mark("pattern"), *scales, mark("step", loss), mark("freeze"), mark("save")]


def _factor(value: float) -> str:
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def _reasons(r: Mapping[str, Any]) -> list[str]:
    failed = [check for check in CHECKS if not r["passed"][check]]
    return [f"- **{r['name']}**, {check}: {r['why'].get(check, 'not reached')}" for check in failed]


def _left_out(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"- **{r['name']}**: {r['why']['read']}" for r in results if r["passed"]["read"] and "read" in r["why"]]
