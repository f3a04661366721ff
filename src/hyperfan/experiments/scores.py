"""How good predicted probabilities are: right, sharp and honest."""

from dataclasses import dataclass

import torch
from torch import Tensor

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Scores:
    """Scores of predictions for some inputs.

    Args:
        accuracy: share of inputs whose most probable class is the right one.
        nll: mean negative log-likelihood of the right class, in nats.
        brier: mean squared distance between the probabilities and the right answer, from 0 to 2.
        ece: expected calibration error: the mean distance between confidence and accuracy, over bins of confidence.
        reliability: for each bin how many inputs it has, their mean confidence and their accuracy.
    """

    accuracy: float
    nll: float
    brier: float
    ece: float
    reliability: tuple[tuple[int, float, float], ...]


def score(probabilities: Tensor, labels: Tensor, bins: int = CALIBRATION_BINS) -> Scores:
    """Score (n, classes) probabilities of (n,) labels; one of 0 counts as the smallest that there is.

    >>> score(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 1]), bins=2)
    Scores(accuracy=0.5, nll=0.569..., brier=0.4..., ece=0.2..., reliability=((0, 0.0, 0.0), (2, 0.7, 0.5)))
    """
    p = probabilities.double()
    right = p.gather(1, labels[:, None]).squeeze(1)
    answer = torch.nn.functional.one_hot(labels, p.shape[1]).double()
    confidence, guess = p.max(1)
    known = confidence.isfinite()  # the predictions of a net that overflowed are not right
    confidence, hit = torch.where(known, confidence, 0), ((guess == labels) & known).double()
    # Bins are open on the left and closed on the right, so that 1 is in the last.
    bin_of = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    counts = torch.bincount(bin_of, minlength=bins)
    sums = [torch.zeros(bins, dtype=torch.float64, device=p.device).index_add(0, bin_of, v) for v in (confidence, hit)]
    means = [s / counts.clamp_min(1) for s in sums]
    gaps = (means[0] - means[1]).abs() * counts / len(p)
    table = zip(counts.tolist(), *(m.tolist() for m in means), strict=True)
    return Scores(
        accuracy=hit.mean().item(),
        nll=-right.clamp_min(torch.finfo(probabilities.dtype).tiny).log().mean().item(),
        brier=(p - answer).square().sum(1).mean().item(),
        ece=gaps.sum().item(),
        reliability=tuple((n, round(c, 6), round(a, 6)) for n, c, a in table),
    )


def separation(known: Tensor, unknown: Tensor) -> float:
    """How well a number tells unknown inputs from known ones: how often it is larger for the former (the AUROC).

    >>> separation(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]))
    0.875
    """
    ordered, values = known.double().sort().values, unknown.double()
    below = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True)
    return below.double().mean().item() / (2 * len(ordered))
