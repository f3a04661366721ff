"""Access to the inside of a :class:`HyperNet`, for the whole probe: no other file of it looks inside one."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hyperfan.codes import Embedding
from hyperfan.codes.moments import moment_scatter
from hyperfan.errors import CallError
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.kept import kept
from hyperfan.init.registry import Method
from hyperfan.mainnet.spec import Spec
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, head_part
from hyperfan.probe.subject import SEED, Source


def inspection_copy(net: HyperNet) -> HyperNet:
    """A copy that may be changed, without the optimiser's engine, whose trunk has no dropout."""
    if any(t.is_meta for t in net.parameters()):
        raise CallError("the net is on the meta device: call net.to_empty(device='cpu') and net.reset_parameters()")
    copied = copy.deepcopy(net)
    for module in copied.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    return copied


def plain_tensors(net: HyperNet) -> dict[str, Tensor]:
    """The mainnet's parameters that are not generated, and its buffers, by their names in the mainnet."""
    return kept(net.mainnet)


def embedding(net: HyperNet) -> Embedding:
    """The settings of the embeddings: size, tasks, noise, and whether they are given at the call."""
    return net.embeddings.config


def draw_embedding(net: HyperNet) -> Tensor:
    """Draw an embedding like those that are given at the call, always the same one."""
    config = embedding(net)
    drawn = net.embeddings.draw_(torch.empty(net.embeddings.n, config.size), torch.Generator().manual_seed(SEED))
    drawn = drawn.to(net.heads.scale)
    return drawn if config.per == "tensor" else drawn[0]


@torch.no_grad()
def tensor_sources(net: HyperNet, spec: Spec, codes: Tensor) -> list[Source]:
    """The source of each generated tensor, with ‖h‖² of the code that it is generated from now."""
    squares, sources = net.heads.head_inputs(codes).double().square().sum(-1), []
    for i, (t, head, span) in enumerate(zip(net.generated, net.heads.names, net.heads.spans, strict=True)):
        moment = squares[span].mean().item()
        linear = math.isclose(net.heads.tensor_variance(i, 1.0, moment), moment)
        outputs = int(net.heads.head_fans(i).fan_out)
        sources.append(Source(spec[t.name], head, outputs, moment if linear else None))
    return sources


def code_scatter(net: HyperNet) -> float:
    """Relative variance of ‖h‖² about the value that the heads were started for; 0 where they were fitted to it."""
    config = embedding(net)
    if config.normalise:
        return 0.0
    fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
    found = 0.0 if fitted else moment_scatter(net.code_source, net.heads.spans)
    return max(found, 2 / net.heads.head_width) if config.noise else found


def trained_parts(net: HyperNet) -> dict[str, dict[str, Tensor]]:
    """The trained parameters of each head, the trunk and the embeddings: part → name → parameter."""
    heads = {head_part(part.name): part.map for part in net.heads.parts()}
    parts: dict[str, dict[str, Tensor]] = {}
    for part, module in {**heads, TRUNK_PART: net.trunk, EMBEDDING_PART: net.embeddings}.items():
        if module is not None:
            parts[part] = {name: p for name, p in module.named_parameters() if p.requires_grad}
    return {part: parameters for part, parameters in parts.items() if parameters}


@contextmanager
def other_embeddings(net: HyperNet) -> Iterator[None]:
    """Change every stored embedding, and change it back at the end."""
    stored = net.embeddings.stored
    saved = [t.detach().clone() for t in stored]
    try:
        for tensor in stored:
            tensor.data.copy_(other_embedding(tensor))
        yield
    finally:
        for tensor, old in zip(stored, saved, strict=True):
            tensor.data.copy_(old)


def other_embedding(embedding: Tensor) -> Tensor:
    """Another embedding: not a multiple, so that no norm or symmetry of a trunk makes the same code of both."""
    return embedding.detach() * -1.5 + 0.1


def planned_variances(net: HyperNet) -> dict[str, float]:
    """The variance that the plan has for each generated tensor, rescaled ones included, where it aims at one."""
    return {row.tensor: row.target for row in net.plan.rows if row.made_by == "head" and row.target is not None}


def restarted_copy(net: HyperNet, spec: Spec, method: Method) -> HyperNet:
    """A copy of the net, restarted with another method, by this reading of its mainnet."""
    copied = copy.deepcopy(net)
    copied.restart_(method, spec)
    return copied
