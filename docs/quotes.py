"""Write the numbers that pages quote as the results have them: ``python docs/quotes.py``.

A quote is a piece of text with fields; wherever its page has that text with any numbers in the fields, they are
replaced by those of the results. ``docs/speed_table.py`` writes the table of speeds.
"""

import json
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MACHINE = ROOT / "benchmarks/results/amd-epyc-2-cores"
"""The results of the machine that pages quote."""
NUMBER = r"\d+(?:[.,]\d+)*"


def benchmark(name: str) -> dict[str, Any]:
    """A benchmark's result."""
    return json.loads((MACHINE / f"{name}.json").read_text())


def ratio(name: str) -> float:
    """The median of a benchmark."""
    return benchmark(name)["ratio"]["median"]


def claims(experiment: str) -> dict[str, dict[str, Any]]:
    """The claims of an experiment, by name."""
    summary = json.loads((ROOT / f"results/{experiment}/summary.json").read_text())
    return {claim["name"]: claim for claim in summary["claims"]}


def zoo() -> dict[str, int]:
    """How many nets there are in the zoo, how many hold, and how many are of the transformers library."""
    results = json.loads((ROOT / "docs/zoo.json").read_text())["results"]
    sections = re.findall(r"^## Transformers:.*?(?=^## )", (ROOT / "docs/zoo.md").read_text(), re.DOTALL | re.MULTILINE)
    rows = sum(section.count("\n| ") - 1 for section in sections)
    return {"nets": len(results), "hold": sum(all(r["passed"].values()) for r in results), "transformers": rows}


def peers() -> dict[str, float]:
    """Steps of other libraries over ours: the fastest as tuned, the slowest as documented."""
    tuned, documented = benchmark("peer_step_tuned")["times_ours"], benchmark("peer_step")["times_ours"]
    return {"low": min(tuned.values()), "high": max(documented.values())}


def unseen() -> dict[str, str]:
    """Comparisons that the claim on unseen conditions wins, and all of them."""
    won, of = re.match(r"(\d+) of (\d+) facts", claims("conditions")["S4"]["counts"]).groups()
    return {"won": won, "of": of}


def beside_linear() -> dict[str, str]:
    """Comparisons with the start of nn.Linear: in which the default is no worse, all, and in which it is."""
    facts = list(claims("conditions")["S1"]["facts"].values())
    return {"good": str(facts.count(True)), "of": str(len(facts)), "worse": str(facts.count(False))}


def lora() -> dict[str, str]:
    """Mean training loss over that of other starts."""
    measured = claims("lora")["L1"]["measured"]  # for each start at the rates chosen on other seeds first
    starts = {"linear": "nn.Linear", "text": "Text-to-LoRA"}
    return {
        name: f"{next(m['estimate']['value'] for label, m in measured.items() if start in label):.3g}"
        for name, start in starts.items()
    }


def lora_rates() -> dict[str, str]:
    """Learning rates with the least loss at the end: of a hypernet for LoRA, of a LoRA per task, and of the example."""
    page = (ROOT / "results/lora/README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    head = next(row for row in rows if row[1:2] == ["start"] and "mean training loss" in row)
    first = {row[1]: row for row in reversed(rows) if len(row) == len(head)}
    ends = {
        name: first[name][head.index("loss at the end, trained tasks")]
        for name in ("hyperfan, B = 0", "a LoRA per task")
    }
    ours, alone = (end.partition(" at ")[2] for end in ends.values())
    example = benchmark("examples_by_hand")["found"]["lora"]["best_rate"]["ours"]
    return {"ours": ours, "alone": alone, "example": example}


def steps() -> dict[str, float]:
    """Milliseconds of a step: plain, ours, and of other libraries."""
    times = benchmark("peer_step")["median_ms"]
    others = [value for name, value in times.items() if name != "classical" and not name.startswith("ours")]
    return {"plain": times["classical"], "ours": times["ours"], "low": min(others), "high": max(others)}


def peer_starts() -> dict[str, float]:
    """Standard deviation of the first layer as the constructors of other libraries start it."""
    stds = {peer: [n["first_layer_std"] for n in nets] for peer, nets in benchmark("peers_diagnosed")["found"].items()}
    loud = stds["hypnettorch"] + stds["hyper-nn"]
    return {"low": min(loud), "high": max(loud), "hyperlight": max(stds["hyperlight"])}


def default_share() -> dict[str, str]:
    """Loss at the end under unseen conditions at the default share over that at 1, with SGD and with AdamW."""
    page = (ROOT / "results/conditions/README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    head = next(row for row in rows if "ρ = 0.01" in row and "optimiser" in row)
    unseen = [row for row in rows if row[1:3] == ["given", "loss at the end, unseen conditions"]]
    found = sorted((row[head.index("ρ = 0.01")] for row in unseen), key=float)
    return {"low": found[0], "high": found[-1]}


def mixture() -> dict[str, float]:
    """How far the plan's rule for attention's output is off, by number of tokens."""
    found = benchmark("attention_mixture")["rules"]["geometric mean of the bounds"]
    return {f"at_{n}": each["typical"] for n, each in found.items()}


QUOTES: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
    "README.md": {
        "of [{nets} nets designed elsewhere]": zoo,
        "from SIREN to Llama, {hold} start, train": zoo,
        "In {won} of {of} comparisons": unseen,
        "and in {good} of {of} it is [at least as good]": beside_linear,
        "as `nn.Linear` does, worse in {worse}.": beside_linear,
        "takes {ratio:.2f} times the plain net's": lambda: {"ratio": ratio("training_step")},
        "where other libraries take {low:.0f} to {high:.0f} times ours": peers,
        "AdamW needs {ours:.2f} times the parameters' bytes, where dense needs {dense:.2f}": lambda: {
            "ours": ratio("adamw_step_memory"),
            "dense": benchmark("adamw_step_memory")["dense_autograd"],
        },
        "{speed:.1f} times as fast as `vmap(functional_call)`, in {memory:.2f} of the memory": lambda: {
            "speed": 1 / ratio("per_sample"),
            "memory": ratio("per_sample_memory"),
        },
        "{linear} times the mean training loss": lora,
        "{text} times that of Text-to-LoRA's start": lora,
        "[{claims} claims](results/README.md)": lambda: {
            "claims": (ROOT / "results/README.md").read_text(encoding="utf-8").count("\n| [")
        },
    },
    "docs/guides/any-mainnet.md": {"has {nets} nets that were designed elsewhere, {transformers} of them": zoo},
    "docs/limits.md": {"is off by a factor of {at_16:.2f}, {at_64:.2f} and {at_512:.2f}, most": mixture},
    "docs/guides/conditions.md": {"ends at {low} to {high} times the loss of 1": default_share},
    "docs/guides/lora.md": {
        "README.md) {ours} ended best": lora_rates,
        "one task alone wants {alone}. The": lora_rates,
        "there {example} was the best of the rates [compared]": lora_rates,
    },
    "docs/guides/diagnose.md": {
        "a first layer of std {low:.0f} to {high:.0f}, and are told why": peer_starts,
        "hyperlight's has {hyperlight:.1f}": peer_starts,
    },
    "docs/speed.md": {
        "plain net {plain:.1f} ms, hyperfan {ours:.1f}, other libraries {low:.0f} to {high:.0f}]": steps,
    },
}
"""Page → text with fields → where their numbers come from."""


def filled(page: str, text: str) -> str:
    """A page's text with the numbers of the results; a quote that it does not have, or has twice, is an error."""
    for quote, values in QUOTES[page].items():
        pieces = list(string.Formatter().parse(quote))
        pattern = "".join(_spaced(before) + (f"({NUMBER})" if field else "") for before, field, _, _ in pieces)
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            raise ValueError(f"{page} has {len(found)} times: {quote}")
        fields = [(field, spec) for _, field, spec, _ in pieces if field]
        for i, (field, spec) in reversed(list(enumerate(fields, 1))):
            start, end = found[0].span(i)
            text = text[:start] + format(values()[field], spec) + text[end:]
    return text


def _spaced(text: str) -> str:
    """A pattern for text in which lines may be broken elsewhere."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))


if __name__ == "__main__":
    for name in QUOTES:
        path = ROOT / name
        path.write_text(filled(name, path.read_text(encoding="utf-8")), encoding="utf-8")
