"""``diagnose``: why does it not learn?"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError
from hyperfan.probe.checks import CHECKS
from hyperfan.probe.diagnosis import Diagnosis
from hyperfan.probe.evidence import TWINS, gather
from hyperfan.probe.losses import GivenLoss
from hyperfan.probe.subject import Generated, subject_of, undisturbed


def diagnose(
    net: nn.Module,
    x: Any,
    y: Any = None,
    loss: GivenLoss | None = None,
    *,
    generated: Generated | None = None,
    lr: float | None = None,
    task: int | None = None,
    embedding: Tensor | None = None,
) -> Diagnosis:
    """Look into a hypernet as it stands before its first step, and say what is wrong with it.

    Every layer's activations and gradients are compared with those of plain nets that have independent weights of the
    target variances, which is what the theory promises; every generated tensor with its target. The net is left as it
    is, and so are torch's random numbers; of a foreign hypernet that is a module, its buffers too.

    Args:
        net: a :class:`HyperNet`; or any mainnet, with ``generated``.
        x: inputs, as many as a training batch has: a tensor, a tuple of arguments, or a dict of keyword arguments.
        y: what the loss compares the output with. Without it, gradients are those of a random direction.
        loss: a function of the output and ``y`` that returns the mean loss; by default cross-entropy for classes, mean
            squared error for numbers.
        generated: for a foreign hypernet, a function without arguments that returns the tensors it generates, by their
            names in the mainnet.
        lr: a learning rate of plain SGD to be tried for one step, which is taken back.
        task: which row of a table of embeddings to look at; the first by default.
        embedding: the embedding, where it is given at the call; one is drawn by default.

    >>> import torch, hyperfan as hf
    >>> _ = torch.manual_seed(0)
    >>> mainnet = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> net = hf.HyperNet(mainnet, embedding=16, init="kaiming-fan-in")
    >>> found = hf.diagnose(net, torch.randn(100, 64), torch.randint(10, (100,))).findings[0]
    >>> found.name, found.where
    ('wrong scale of a head', ('0.weight', '2.weight'))
    """
    if lr is not None and not 0 < lr < math.inf:
        raise HyperfanError(f"lr={lr:g}: a learning rate is positive and finite")
    if lr is not None and y is None:
        raise HyperfanError("lr= was given without y=: a step needs a loss, as diagnose(net, x, y, lr=…)")
    if loss is not None and y is None:
        raise HyperfanError("loss= was given without y=: pass both, as diagnose(net, x, y, loss=…)")
    if torch.is_inference_mode_enabled():
        raise HyperfanError("a diagnosis needs gradients, which torch.inference_mode() rules out: call it outside")
    with undisturbed(x):
        subject = subject_of(net, x, generated, task, embedding)
        evidence = gather(subject, y, loss, lr)
    findings = [f for check in CHECKS for f in check(evidence)]
    return Diagnosis(
        subject.name,
        subject.method.name,
        evidence.inputs,
        TWINS,
        evidence.layers,
        evidence.tensors,
        evidence.parts,
        tuple(sorted(findings, key=lambda f: ("error", "warning", "note").index(f.severity))),
        evidence.loss,
        evidence.expected_loss,
        None if evidence.trial is None else evidence.trial.stable,
    )
