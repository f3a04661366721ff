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


def summary(experiment: str) -> dict[str, Any]:
    """The numbers of an experiment's page."""
    return json.loads((ROOT / f"results/{experiment}/summary.json").read_text())


def facts(experiment: str, name: str) -> list[bool | None]:
    """The facts of a claim: whether each is so, or ``None`` if it is not decided."""
    claim = next(each for each in summary(experiment)["claims"] if each["name"] == name)
    return list(claim["facts"].values())


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
    found = facts("conditions", "S4")
    return {"won": str(found.count(True)), "of": str(len(found))}


def beside_linear() -> dict[str, str]:
    """Comparisons with the start of nn.Linear: in which the default is no worse, all, and in which it is."""
    found = facts("conditions", "S1")
    return {"good": str(found.count(True)), "of": str(len(found)), "worse": str(found.count(False))}


def lora() -> dict[str, str]:
    """Mean training loss over that of other starts."""
    over = summary("lora")["ours over rivals"]
    return {name: f"{over[start]['during']['value']:.3g}" for name, start in (("linear", "torch"), ("text", "t2l"))}


def lora_rates() -> dict[str, str]:
    """Learning rates with the least loss at the end: of a hypernet for LoRA, of a LoRA per task, and of the example."""
    best = summary("lora")["best rates"]
    example = benchmark("examples_by_hand")["found"]["lora"]["best_rate"]["ours"]
    return {"ours": f"{best['ours']['end']:g}", "alone": f"{best['per-task']['end']:g}", "example": example}


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
    rows = summary("conditions")["over published"]
    unseen = [row for row in rows if (row["conditions"], row["measure"]) == ("given", "unseen")]
    found = sorted(row["starts"][row["default"]] for row in unseen)
    return {"low": f"{found[0]:.2g}", "high": f"{found[-1]:.2g}"}


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
            "claims": sum(len(summary(path.parent.name)["claims"]) for path in ROOT.glob("results/*/summary.json"))
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
