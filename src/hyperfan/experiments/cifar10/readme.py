"""The page of results that people read: verdict first, then what was measured, then how to repeat it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hyperfan.experiments.cifar10.config import PROFILES, Cifar10
from hyperfan.experiments.cifar10.runs import LAST
from hyperfan.experiments.claims import Claim, claim_sections, verdict_lines
from hyperfan.experiments.statistics import Estimate

PAGE = """\
# All-CNN on CIFAR-10, section 4.3 of the paper

A net of nine convolutions is trained with its weights made in 1943 chunks by Ha et al.'s hypernet: an embedding and an
input layer for each chunk, an output layer for all chunks of one kernel. Who trains, and at which learning rates?
{scale} Written by `hyperfan results cifar10` from the runs of `hyperfan run cifar10 --all`; `summary.json` holds the
same as data.

![Test accuracy at the end, by learning rate](figures/rates.svg)

| claim | the paper says | verdict |
|---|---|---|
{verdicts}

![Loss and test accuracy, each init at its best rate](figures/loss.svg)

{claims}
## All rates
The best rate of an init is that with the smallest training loss over the last {last} batches, by the first seed alone.
Values are means over seeds with their 95 % interval (Student's t); where three seeds left it open whether an init
trains, there are eight, added after three, and again after five, had been looked at. A run that diverged has the
accuracy of guessing. A fact is so if the whole interval is; the claim holds if all of its facts do.

| init | rate | seeds | diverged | test loss of an image, start | training loss, end | accuracy |
|---|---|---|---|---|---|---|
{rows}

## Choices that the paper leaves open
- Inputs are standardised with the means and deviations of the training images' channels. No augmentation (a setting),
  no dropout, no weight decay.
- Biases are not generated, and start at zero. Layers with 1×1 kernels have an output layer of their own, for chunks of
  96. ReLU comes after the last layer too, as in the paper's account of the net.
- Kaiming init is what it would be on any net: the input layers from 50 to 50, the output layer from 50 to 864 or 96.
- "classical" is the same net without a hypernet, with Kaiming init.

## Repeat it
```sh
hyperfan data fetch cifar10
hyperfan run cifar10 --all --resume{profile}     # {time}; can be stopped and resumed
hyperfan results cifar10 --overwrite{profile}
```
"""
SCALE = "This is the beginning of training only: {total} batches of {batch} images, {epochs:.2g} epochs."
WHOLE = "Each run has {total} batches of {batch} images, {epochs:.3g} epochs."


def readme(claims: Sequence[Claim], rows: Sequence[Mapping[str, Any]], missing: Sequence[str], base: Cifar10) -> str:
    """The page, from the claim, a row of numbers for each setting, and the runs that are not there yet."""
    profile = next((name for name, p in PROFILES.items() if p.total == base.total), "paper")
    paper = profile == "paper"
    epochs = base.total / base.epoch_batches
    page = PAGE.format(
        scale=(WHOLE if paper else SCALE).format(total=base.total, batch=base.batch, epochs=epochs),
        verdicts=verdict_lines(claims),
        claims=claim_sections(claims),
        last=LAST,
        rows="\n".join(map(_row, rows)),
        profile="" if paper else f" --profile {profile}",
        time="on a GPU" if paper else "some hours on 2 cores",
    )
    return page if not missing else f"{page}\nNot run: {', '.join(missing)}.\n"


def _row(row: Mapping[str, Any]) -> str:
    e = Estimate(**row["accuracy"])
    interval = "" if e.low is None or e.high is None else f" [{max(e.low, 0):.1%}, {min(e.high, 1):.1%}]"
    end = "" if row["training loss"] is None else f"{row['training loss']:.4g}"
    cells = [row["init"], f"{row['rate']:g}", str(e.n), str(row["diverged"] or ""), f"{row['first loss']:.3g}", end]
    return f"| {' | '.join(cells)} | {e.value:.1%}{interval} |"
