"""What a classifier with noisy embeddings predicts: its outputs averaged over draws of its weights."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from hyperfan.codes.draw import preserved_random_state
from hyperfan.codes.embedding import Task
from hyperfan.errors import CallError
from hyperfan.hypernet.hypernet import HyperNet
from hyperfan.mainnet.training_modes import training_modes_restored


@dataclass(frozen=True, eq=False)
class Prediction:
    """For each input, what the net expects and how unsure it is, in nats.

    Args:
        probabilities: (n, classes), the mean softmax over draws of the weights.
        entropy: (n,), of that mean: all of the uncertainty.
        mutual_information: (n,), the part of it that comes from the weights: by how much the draws disagree. The rest,
            the draws' mean entropy, is in the input itself.
    """

    probabilities: Tensor
    entropy: Tensor
    mutual_information: Tensor


@torch.no_grad()
def predict(
    net: HyperNet,
    x: Tensor,
    samples: int = 10,
    *,
    batch: int = 256,
    seed: int | None = None,
    task: Task | None = None,
    embedding: Tensor | None = None,
) -> Prediction:
    """Classify by the mean of several draws of the weights (Monte Carlo), in evaluation mode.

    Weights are made once for each draw, and inputs go through in batches, so that nothing but what is returned grows
    with their number.
    Entropies of two calls are to be compared only if both saw the same draws: give them one seed.

    Args:
        net: a hypernet whose embeddings have noise and whose mainnet puts out (n, classes) logits.
        x: inputs, the first dimension over them.
        samples: how many draws.
        batch: inputs that go through at once.
        seed: of the draws; by default they come from torch's own generator.
        task, embedding: as for the net, where it has tasks or is given its embedding; one for all inputs.
    """
    if not isinstance(net, HyperNet):
        raise CallError(f"predict() draws the weights of a HyperNet; this is a {type(net).__name__}")
    if samples < 1 or batch < 1:
        raise CallError(f"samples={samples}, batch={batch}: at least 1 of each is needed")
    if samples > 1 and not net.embeddings.config.noise:
        raise CallError(
            "this net's embeddings have no noise, so that all samples would be equal: build it with "
            "Embedding(…, noise=0.1), or pass samples=1"
        )
    per_tensor = net.embeddings.config.per == "tensor"
    if (isinstance(task, Tensor) and task.ndim) or (embedding is not None and embedding.ndim > 1 + per_tensor):
        raise CallError("predict() takes one task or embedding for all inputs")
    if not len(x):
        raise CallError(f"x has shape {tuple(x.shape)}: there is nothing to predict")
    mean: Tensor | None = None
    inside = torch.zeros(())
    with training_modes_restored(net), nullcontext() if seed is None else preserved_random_state():
        net.eval()
        if seed is not None:
            torch.manual_seed(seed)
        for _ in range(samples):
            tensors = net.generate(task=task, embedding=embedding, noise=True)
            logs = torch.cat([_classes(net.run(tensors, piece)) for piece in torch.split(x, batch)])
            p = logs.exp()
            mean = p if mean is None else mean + p
            inside = inside.to(p) + _entropy(p, logs)
    assert mean is not None
    mean = mean / samples
    entropy = _entropy(mean, mean.clamp_min(torch.finfo(mean.dtype).tiny).log())
    return Prediction(mean, entropy, (entropy - inside / samples).clamp_min(0))


def _classes(out: object) -> Tensor:
    if not isinstance(out, Tensor) or out.ndim != 2 or out.shape[1] < 2:
        seen = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise CallError(f"the mainnet put out {seen}; predict() needs (n, classes) logits, of at least two classes")
    return log_softmax(out, 1)


def _entropy(p: Tensor, logs: Tensor) -> Tensor:
    return -torch.where(p == 0, 0, p * logs).sum(1)  # what is not a number stays so
