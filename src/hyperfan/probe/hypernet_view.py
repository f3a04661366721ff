"""Access to the inside of a :class:`HyperNet`, for the whole probe: no other file of it looks inside one."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.hypernet import Embedding, HyperNet
from hyperfan.hypernet.kept import kept
from hyperfan.hypernet.moments import scatter
from hyperfan.init.asked import Slot
from hyperfan.init.registry import Method
from hyperfan.init.write import fill_
from hyperfan.mainnet.spec import Spec
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, head_part
from hyperfan.probe.subject import SEED


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
    drawn = torch.empty(net.embeddings.n, config.size)
    generator = torch.Generator().manual_seed(SEED)
    drawn = fill_(drawn, config.std**2, config.distribution, generator=generator).to(net.code_scale)
    return drawn if config.per == "tensor" else drawn[0]


def head_slots(net: HyperNet, spec: Spec, codes: Tensor) -> list[Slot]:
    """The slot of each generated tensor, with ‖h‖² of the code that it is generated from now."""
    layout, squares = net.heads.layout, codes.double().square().sum(-1)
    return [
        Slot(spec[t.name], head, net.width, layout.heads[head].outputs, squares[span].mean().item(), cut)
        for t, head, span, cut in zip(net.generated, layout.names, layout.spans, layout.cut, strict=True)
    ]


def code_scatter(net: HyperNet) -> float:
    """Relative variance of ‖h‖² about the value that the heads were started for; 0 where they were fitted to it."""
    config = embedding(net)
    if config.normalise:
        return 0.0
    fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
    found = 0.0 if fitted else scatter(net)
    return max(found, 2 / net.width) if config.noise else found


def trained_parts(net: HyperNet) -> dict[str, dict[str, Tensor]]:
    """The trained parameters of each head, the trunk and the embeddings: part → name → parameter."""
    heads = {head_part(name): net.heads.head(name) for name in net.heads.layout.heads}
    parts: dict[str, dict[str, Tensor]] = {}
    for part, module in {**heads, TRUNK_PART: net.trunk, EMBEDDING_PART: net.embeddings}.items():
        if module is not None:
            parts[part] = {name: p for name, p in module.named_parameters() if p.requires_grad}
    return {part: parameters for part, parameters in parts.items() if parameters}


@contextmanager
def other_embeddings(net: HyperNet) -> Iterator[None]:
    """Change every stored embedding, and change it back at the end."""
    stored = [t for t in (net.embeddings.weight, net.embeddings.chunks) if t is not None]
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
    copied.init = method
    copied.spec, copied.generated = spec, tuple(spec[t.name] for t in net.generated)
    copied.reset_parameters()
    return copied
