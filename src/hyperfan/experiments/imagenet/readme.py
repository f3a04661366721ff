"""The page of results that people read: verdicts first, then what was measured, then how to repeat it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hyperfan.experiments.claims import Claim, claim_sections, verdict_lines
from hyperfan.experiments.imagenet.claims import FAR, MOST, NEAR
from hyperfan.experiments.imagenet.config import PROFILES, Imagenet
from hyperfan.experiments.scores import BINS
from hyperfan.experiments.statistics import Estimate

PAGE = """\
# Bayesian MobileNet, section 4.4 of the paper

A linear hypernet makes the weights of a MobileNet from embeddings with noise, so that every batch sees other weights:
a Bayesian net by {samples} draws. Which init starts at the right scale, and what does batch norm make up for?
{scale} Written by `hyperfan results imagenet` from the runs of `hyperfan run imagenet --all`; `summary.json` holds the
same as data.

![Training loss by init](figures/loss.svg)

| claim | the paper says | verdict |
|---|---|---|
{verdicts}

## How good the predictions are
On {tested} pictures of the classes trained on, the mean of {samples} softmaxes: accuracy, negative log-likelihood (of
guessing: {guess:.3g}), Brier score and expected calibration error ({bins} bins), means over seeds with 95 % intervals.
Unknown is how well the entropy tells pictures of {held_out} classes that were not trained on from those of the others
(AUROC; 0.5 is no better than chance).

| init | last layer | batch norm | seeds | diverged | accuracy | NLL | Brier | ECE | unknown |
|---|---|---|---|---|---|---|---|---|---|
{rows}

{picture}{claims}
## How facts are decided
Settings are compared seed by seed, since runs of one seed share embeddings' draws, noise, data order and crops:
geometric means of ratios with their 95 % interval (Student's t on logarithms). "Far" is a factor of {far:g}, "about
equal" within {near:g}. A loss that overflowed counts as {most:g}. A claim holds if all of its facts do, in part if some
do and some do not, and is not decided while nothing speaks against it.

## Choices that the paper leaves open
- Noise is drawn for each depthwise-separable block (`--scope`). The first convolution and the last layer are blocks by
  themselves.
- L2 is weight decay on all that is trained, batch norm included.
- A last layer that is not generated starts with Kaiming's fan-in at gain 1, the same under every init.
- The loss of the first batch is that of training, where batch norm sees the batch. Before training its running
  statistics say nothing.
- {width}

## Repeat it
```sh
hyperfan run imagenet --all --resume{profile}     # {time}; can be stopped and resumed
hyperfan results imagenet --overwrite{profile}
```
"""
UNCERTAINTY = "![Reliability, and entropy on known and unknown classes](figures/uncertainty.svg)\n\n"


def readme(
    claims: Sequence[Claim],
    rows: Sequence[Mapping[str, Any]],
    missing: Sequence[str],
    base: Imagenet,
    tested: int,
    guess: float,
) -> str:
    """The page, from the claims, a row of numbers for each setting, and the runs that are not there yet."""
    profile = next((name for name, p in PROFILES.items() if p.total == base.total), "paper")
    paper = profile == "paper"
    page = PAGE.format(
        samples=base.samples,
        scale=(
            f"{base.total} batches of {base.batch} pictures of {base.size} pixels, {base.images} in all, at a learning "
            f"rate of {base.lr:g}."
        ),
        verdicts=verdict_lines(claims),
        tested=tested,
        bins=BINS,
        guess=guess,
        picture=UNCERTAINTY if tested else "",
        held_out=base.held_out or "no",
        rows="\n".join(map(_row, rows)),
        claims=claim_sections(claims),
        far=FAR,
        near=NEAR,
        most=MOST,
        width=f"Channels are {base.width:g} times MobileNet's; the paper's net is whole.",
        profile="" if paper else f" --profile {profile}",
        time="on GPUs" if paper else "under two hours on 2 cores",
    )
    return page if not missing else f"{page}\nNot run: {', '.join(missing)}.\n"


def _row(row: Mapping[str, Any]) -> str:
    cells = [row["init"], row["last"], "yes" if row["norm"] else "no", str(len(row["seeds"]))]
    cells.append(str(row["diverged"] or ""))
    forms = {"accuracy": ".1%", "nll": ".3g", "brier": ".3g", "ece": ".2g", "unknown": ".2f"}
    for name, form in forms.items():
        held = row[name]
        cells.append("" if held is None else _interval(Estimate(**held), form))
    return f"| {' | '.join(cells)} |"


def _interval(e: Estimate, form: str) -> str:
    interval = "" if e.low is None or e.high is None else f" [{e.low:{form}}, {e.high:{form}}]"
    return f"{e.value:{form}}{interval}".replace("-", "−")
