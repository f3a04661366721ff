"""The page of results that people read: verdicts first, then what was measured, then how to repeat it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hyperfan.experiments.claims import Claim, claim_sections, verdict_lines
from hyperfan.experiments.mnist.config import Mnist
from hyperfan.experiments.statistics import Estimate

PAGE = """\
# MNIST, section 4.1 of the paper

Does the paper hold on its first experiment? A feedforward net, 784-500×5-10, is trained plain and with its weights made
by a linear hypernet. Each claim is taken apart into facts, and each fact is decided by a 95 % interval (Student's t
over seeds; settings are compared seed by seed, since runs of one seed share embeddings and data order). A claim holds
if all of its facts do, in part if some do and some do not, and is not decided while nothing speaks against it. Written
by `hyperfan results mnist` from the runs of `hyperfan run mnist --all`; `summary.json` holds the same as data.

![Loss and test accuracy](figures/weights/loss.svg)

| claim | the paper says | verdict |
|---|---|---|
{verdicts}

![Mainnet activations before training](figures/weights/mainnet-activations-before.svg)

## Accuracy on the test images
| setting | epochs | seeds | accuracy [95 % interval] | diverged |
|---|---|---|---|---|
{accuracies}

{claims}
## Figures
The paper's figures under its titles, from the runs with seed {seed}; loss and accuracy over all seeds. The classical
net, which has no hypernet, stands beside the others with its own weights.

{figures}

Activations are a layer's outputs before its nonlinearity, for every image and unit; gradients are those of each image's
own loss. The paper can be read as averaging over the images first; an exploding layer, whose values have both signs,
would then look small. Values lie on an axis that is logarithmic far from zero.

## Choices that the paper leaves open
- Inputs are standardised with the mean and deviation of all training pixels.
- "Xavier init" on a hypernet is read as fan-in, Var(H) = 1/d_k, which is what explodes. torch's `xavier_uniform_` takes
  both fans and vanishes: `xavier-harmonic` in the table.
- M4 gives layers of one shape the same embedding, so that a shared head would make them equal for good; it has a head
  for each layer.
- The classical net has Xavier's harmonic mean for tanh and Kaiming's fan-in for ReLU, biases zero.
- A run of fewer epochs is the beginning of the longer run with its seed; nothing depends on the length.

## Repeat it
```sh
hyperfan data fetch mnist
hyperfan run mnist --all --resume     # some hours on 2 cores, and 130 MB for each run; can be stopped and resumed
hyperfan results mnist --overwrite
```
"""


def readme(
    claims: Sequence[Claim],
    rows: Sequence[Mapping[str, Any]],
    missing: Sequence[str],
    variants: Sequence[str],
    base: Mnist,
) -> str:
    """The page, from the claims, a row of numbers for each setting, and the runs that are not there yet."""
    page = PAGE.format(
        seed=base.seed,
        verdicts=verdict_lines(claims),
        accuracies=_lines(map(_accuracy, rows)),
        claims=claim_sections(claims),
        figures=_lines(f"- [{v.replace('-', ' ')}](figures/{v})" for v in variants),
    )
    return page if not missing else f"{page}\nNot run yet: {', '.join(missing)}.\n"


def _accuracy(row: Mapping[str, Any]) -> str:
    e = Estimate(**row["accuracy"])
    interval = "" if e.low is None or e.high is None else f" [{max(e.low, 0):.2%}, {min(e.high, 1):.2%}]"
    return f"| {row['setting']} | {row['epochs']:.2g} | {e.n} | {e.value:.2%}{interval} | {row['diverged'] or ''} |"


def _lines(lines: Any) -> str:
    return "\n".join(lines)
