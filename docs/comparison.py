"""Write docs/comparison.md and its picture from the results of the benchmarks: ``python -m docs.comparison``."""

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.examples_by_hand import FLOOR, RATES

from hyperfan.charts.figure import MARGIN, figure
from hyperfan.charts.palette import LINEAR, looks
from hyperfan.charts.scale import Interval, Measurements, interval_panel
from hyperfan.text import markdown_table

HERE = Path(__file__).parent
MACHINE = HERE.parent / "benchmarks/results/amd-epyc-2-cores"
PAGE, PICTURE = HERE / "comparison.md", HERE / "comparison-scale.svg"
FOLDER = "../benchmarks/results/amd-epyc-2-cores"
STARTS = {
    "hyperfan": "hyperfan-in",
    "by hand, nn.Linear": LINEAR,
    "hypnettorch, constructor": "",
    "hypnettorch, apply_hyperfan_init()": "",
    "hyperlight, constructor": "",
}
"""Starts in the picture, each with its init if it is ours or torch's; without those that would lie on another."""
SHORT = {"hypnettorch, apply_hyperfan_init()": "hypnettorch, own hyperfan"}
"""What a start is called in the picture."""
SIZE = (820, 360)


def read(name: str) -> dict[str, Any]:
    """The result of a benchmark."""
    found: dict[str, Any] = json.loads((MACHINE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def link(*names: str) -> str:
    """Links to results."""
    return ", ".join(f"[json]({FOLDER}/{name}.json)" for name in names)


def features() -> str:
    """A column for each library; what did not work, and how, below."""
    found, notes = read("comparison_features")["found"], []
    names = list(next(iter(found.values())))
    rows = []
    for feature, outcomes in found.items():
        cells = []
        for name in names:
            works, note = outcomes[name]["works"], outcomes[name]["note"]
            if note == "not offered":
                cells.append("yours to write" if name == "by hand" else "–")
            elif works:
                cells.append(f"yes, {note}" if note and name != "hyperfan" else "yes")
            else:
                seen = note.removeprefix("AssertionError: ").replace("`", "")
                notes.append(f"{name}, {feature.removeprefix('… ')}: `{seen}`")
                cells.append(f"no ({len(notes)})")
        rows.append([feature, *cells])
    listed = "\n".join(f"{i}. {note}" for i, note in enumerate(notes, 1))
    return f"{markdown_table(['', *names], rows)}\n\n{listed}"


def scale() -> str:
    """The root mean square of the first and last layer, as means over seeds, and the diagnosis of the first seed."""
    rows = []
    for start, seen in read("comparison_scale")["found"].items():
        means = [statistics.mean(layer) for layer in zip(*seen["rms"], strict=True)]
        healthy = f"{sum(seen['healthy'])} of {len(seen['healthy'])}"
        rows.append(
            [
                start,
                f"{means[0]:.3g}",
                f"{means[-1]:.3g}",
                f"{statistics.mean(seen['loss']):.3g}",
                healthy,
                seen["summary"],
            ]
        )
    header = ["start", "first layer", "last layer", "loss", "healthy seeds", "`hf.diagnose`, first seed"]
    return markdown_table(header, rows)


def picture() -> str:
    """Root mean squares by layer, with the range over seeds, beside plain nets."""
    rows = []
    for start, look in zip(STARTS, looks(list(STARTS), STARTS), strict=True):
        seen = read("comparison_scale")["found"][start]
        layers = seen["layers"]
        values, plain = (
            {n: _over_seeds(each) for n, each in zip(layers, zip(*seen[of], strict=True), strict=True)}
            for of in ("rms", "plain")
        )
        # The plain nets of one start are those of all: only the first has the line.
        rows.append(Measurements(SHORT.get(start, start), values, plain if not rows else {}, look, "plain nets"))
    title = "Root mean square of each layer's output, on a logarithmic axis"
    panel = interval_panel(title, layers, rows, band="", size=SIZE)
    headline = "The paper's MNIST net as each library starts it"
    return figure(headline, [panel], 1, width=SIZE[0] + 2 * MARGIN, description=f"{title}: {', '.join(STARTS)}.")


def _over_seeds(values: tuple[float, ...]) -> Interval:
    return Interval(statistics.geometric_mean(values), min(values), max(values))


def times() -> str:
    """Times of a step over ours, with SGD and with Adam."""
    sgd, tuned, adam = (read(name) for name in ("peer_step", "peer_step_tuned", "peer_adam_step"))
    rows = [["by hand, torch's fused optimiser", *(_times_by_hand(rule) for rule in ("sgd", "adam"))]]
    for name, ratio in sgd["times_ours"].items():
        rows.append([f"{name}, as documented", f"{ratio:.1f}", f"{adam['times_ours'][name]:.1f}"])
    rows += [[f"{name}, tuned", f"{ratio:.1f}", "–"] for name, ratio in tuned["times_ours"].items()]
    plain = [each["median_ms"]["classical"] / each["median_ms"]["ours, one embedding"] for each in (sgd, adam)]
    rows.append(["the plain net, no hypernet", *(f"{ratio:.2f}" for ratio in plain)])
    return markdown_table(["time of a step over ours", "SGD", "Adam"], rows)


def _times_by_hand(rule: str) -> str:
    ratio = read(f"comparison_{rule}")["ratio"]
    low, high = ratio["quartiles"]
    return f"{ratio['median']:.1f} [{low:.3g}, {high:.3g}]"


def memory() -> str:
    """Bytes at peak over those of the parameters."""
    found = read("comparison_memory")["found"]
    rows = [[name, f"{found['sgd'][name]:.2f}", f"{found['adam'][name]:.2f}"] for name in found["sgd"]]
    return markdown_table(["bytes at peak over bytes of parameters", "SGD", "Adam"], rows)


def reached() -> str:
    """What each example reaches, and what a hypernet by hand does."""
    rows = []
    for name, seen in read("examples_by_hand")["found"].items():
        low, high = seen["range"]
        cells = [f"{seen['mean'][who]:.3g} at {seen['best_rate'][who]}" for who in ("ours", "by hand")]
        rows.append(
            [f"[{name}](../examples/{name}.py)", seen["what"], *cells, f"{seen['ratio']:.2f} [{low:.2f}, {high:.2f}]"]
        )
    return markdown_table(["example", "error", "hyperfan", "by hand", "ratio [range over seeds]"], rows)


def versions() -> str:
    """The libraries with their versions, and what they ran on."""
    e = read("comparison_features")["environment"]
    names = ", ".join(f"{name} {e[name]}" for name in ("hypnettorch", "hyperlight", "hyper-nn"))
    return f"{names}, with torch {e['torch']} on {e['processor']}, {e['cores']} cores"


def page() -> str:
    """The page."""
    sections = {"versions": versions(), "features": features(), "scale": scale(), "times": times(), "memory": memory()}
    seeds = {"seeds": read("comparison_scale")["seeds"], "example_seeds": read("examples_by_hand")["seeds"]}
    links = {
        f"{name}_json": link(*files)
        for name, files in {
            "features": ("comparison_features",),
            "scale": ("comparison_scale",),
            "times": ("peer_step", "peer_step_tuned", "peer_adam_step", "comparison_sgd", "comparison_adam"),
            "memory": ("comparison_memory",),
            "reached": ("examples_by_hand",),
        }.items()
    }
    limits = {"floor": f"1/{1 / FLOOR:.0f}", "example_rates": len(RATES)}
    return TEMPLATE.format(**sections, **links, **seeds, **limits, reached=reached())


TEMPLATE = """\
# Other libraries

hyperfan beside the libraries for hypernetworks that PyPI has, and beside torch by hand: {versions}. Everything here was
run, by code in `benchmarks/`, and this page is written from its results by `docs/comparison.py`.

## What they can do
Every line is a small job with a check of its result: the call gives what the mainnet gives with the generated weights,
gradients arrive, a copy behaves as the original, and so on. "–" means that the library has no call for it. Where a job
failed, the error is below. ({features_json})

{features}

hypnettorch makes weights for any list of shapes; its own mainnets take them, any other module by
`torch.func.functional_call`. hyper-nn also has a version in JAX, which no other has.

## Scale at the start
The paper's MNIST net, 784-500×5-10 with tanh, and one embedding of size 50: root mean square of the layers' outputs on
standardised inputs, where a plain net has about 1, as means over {seeds} seeds. hypnettorch ships the paper's init as
`apply_hyperfan_init`, which its tutorial calls: its constructor alone starts the net far too large, that function mends
it. With Xavier's gain of 1 in place of Kaiming's 2 (`use_xavier=True`) signals fade in tanh. ({scale_json})

![Layers far above plain nets by hand and from hypnettorch's constructor, near them otherwise](comparison-scale.svg)

{scale}

## Time
A training step of that net at batch 10, with one fixed embedding and a head for each weight in all of them, so that the
parameters are the same; *tuned* shares heads, or fixes embeddings, as far as the library lets one, against ours with
heads shared. Medians of interleaved rounds in one process, over ours. That by hand, with quartiles, was measured on one
thread while the machine had other work, which a ratio bears better than a time. ({times_json})

{times}

## Memory
Of three steps of the same net, parameters and the optimiser's state included; torch versions of all. ({memory_json})

{memory}

## What they reach
Each example beside a hypernet by hand: the same trunk and data, an `nn.Linear` for every tensor as torch
starts it (for SIREN as its authors' code does), batched products, torch's AdamW; both at the best of {example_rates}
learning rates, {example_seeds} seeds. Below 1 ours is better. ({reached_json})

{reached}

In a ratio an error below {floor}, one letter of lora's test, counts as that: the job is solved, and both are equal.

## Where the comparison is fair, and where it is not
- Libraries run at their latest releases, once as their documentation uses them and once tuned, without changes to
  their code; hyper-nn's times are those of its JAX version, jitted, which updates in place.
- The job is ours: the paper's net. Fixed embeddings are what our optimisers are fastest at; with embeddings that are
  trained or given at the call the ratio to dense torch is that of AdamW in [speed](speed.md).
- hyper-nn makes one flat vector for all parameters, biases too, so it has slightly more of them.
- By hand means what one writes in an hour. A hand that knows the paper can start its heads by `hf.init` and reach the
  same scale: [only the init](guides/only-the-init.md).
"""


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
