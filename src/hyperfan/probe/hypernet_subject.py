"""A :class:`HyperNet` as the subject of a diagnosis: no other file of the probe looks inside one."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes.moments import moment_scatter
from hyperfan.errors import CallError
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.kept import kept
from hyperfan.init.registry import method
from hyperfan.mainnet.read import read
from hyperfan.mainnet.skeleton import duplicate
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, head_part
from hyperfan.probe.subject import SEED, GeneratedTensor, Subject, with_targets


class HyperNetSubject(Subject):
    """A copy of a :class:`HyperNet`, for one task or one embedding, without an optimiser's engine or dropout."""

    net: HyperNet

    def __init__(self, net: HyperNet, example: Any, task: int | None, embedding: Tensor | None) -> None:
        if any(t.is_meta for t in net.parameters()):
            raise CallError("the net is on the meta device: call net.to_empty(device='cpu') and net.reset_parameters()")
        copied, config = _copy(net), net.embeddings.config
        for module in copied.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.eval()
        self._task = 0 if task is None and config.tasks is not None else task
        self._embedding = _draw_embedding(copied) if embedding is None and config.given else embedding
        spec, noise, theory = net.spec, config.noise > 0, net.init
        if spec.unknown_nonlinearities:
            spec = read(copied.freeze(task=self._task, embedding=self._embedding), example, warn=False)
        torch.manual_seed(SEED)
        with torch.no_grad():
            codes = copied.codes(task=self._task, embedding=self._embedding, noise=noise)
        specs = [spec[t.name] for t in net.generated]
        tensors = with_targets(specs, theory, net.fidelity)
        if any(t.reading is not None and t.target is None for t in tensors.values()):
            theory = method("hyperfan-in")  # the net's method sets heads, and says nothing about what they make
            tensors = with_targets(specs, theory, net.fidelity)
        super().__init__(
            f"{type(net).__name__}({net.extra_repr()})",
            copied.skeleton,
            kept(copied.mainnet),
            example,
            spec,
            _with_heads(copied, tensors, codes),
            theory,
            copied,
            _code_scatter(copied),
            random=noise,
        )

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate from the stored or given embeddings, with noise as in training."""
        if self.random and not new_draw:
            torch.manual_seed(SEED)
        with torch.enable_grad():
            return self.net.generate(task=self._task, embedding=self._embedding, noise=self.random)

    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
        """The trained parameters of each head, the trunk and the embeddings."""
        heads = {head_part(part.name): part.map for part in self.net.heads.parts()}
        parts = {**heads, TRUNK_PART: self.net.trunk, EMBEDDING_PART: self.net.embeddings}
        return {part: [p for p in m.parameters() if p.requires_grad] for part, m in parts.items() if m is not None}

    @torch.no_grad()
    def constant(self) -> list[str]:
        """The tensors that stay as they are when all embeddings change."""
        before, given, stored = self.generate(), self._embedding, self.net.embeddings.stored
        saved = [t.detach().clone() for t in stored]
        for tensor in stored:
            tensor.data.copy_(_other_embedding(tensor))
        self._embedding = None if given is None else _other_embedding(given)
        after = self.generate()
        self._embedding = given
        for tensor, old in zip(stored, saved, strict=True):
            tensor.data.copy_(old)
        same = [name for name, tensor in before.items() if torch.equal(tensor, after[name])]
        return [name for name in same if self.generated[name].spec.start is None]


def started_with(net: HyperNet, example: Any, init: str) -> HyperNet:
    """A copy of a net, restarted with another method."""
    copied = _copy(net)
    copied.restart_(init, HyperNetSubject(net, example, None, None).spec)
    return copied


def _copy(net: HyperNet) -> HyperNet:
    copied = duplicate(net, {})
    assert isinstance(copied, HyperNet)
    return copied


def _draw_embedding(net: HyperNet) -> Tensor:
    """Draw an embedding like those that are given at the call, always the same one."""
    config = net.embeddings.config
    drawn = net.embeddings.draw_(torch.empty(net.embeddings.n, config.size), torch.Generator().manual_seed(SEED))
    drawn = drawn.to(net.heads.scale)
    return drawn if config.per == "tensor" else drawn[0]


def _other_embedding(embedding: Tensor) -> Tensor:
    """Another embedding: not a multiple, so that no norm or symmetry of a trunk makes the same code of both."""
    return embedding.detach() * -1.5 + 0.1


@torch.no_grad()
def _with_heads(net: HyperNet, tensors: Mapping[str, GeneratedTensor], codes: Tensor) -> dict[str, GeneratedTensor]:
    """The tensors with their heads, ‖h‖² of their codes and, where the plan has one, as after rescaling, its target."""
    planned = {row.tensor: row.target for row in net.plan.rows if row.made_by == "head" and row.target is not None}
    squares, found = net.heads.head_inputs(codes).double().square().sum(-1), {}
    for i, (name, tensor) in enumerate(tensors.items()):
        span = net.heads.spans[i]
        moment = squares[span].mean().item()
        linear = math.isclose(net.heads.tensor_variance(i, 1.0, moment), moment)
        found[name] = replace(
            tensor,
            target=planned.get(name, tensor.target),
            head=net.heads.names[i],
            width=net.heads.head_width,
            outputs=net.heads.head_fans(i).fan_out,
            moment=moment if linear else math.nan,
            spread=squares[span].var(correction=0).item() / moment**2 if moment else 0.0,
        )
    return found


def _code_scatter(net: HyperNet) -> float:
    """Relative variance of ‖h‖² about the value that the heads were started for; 0 where they were fitted to it."""
    config = net.embeddings.config
    if config.normalise:
        return 0.0
    fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
    found = 0.0 if fitted else moment_scatter(net.code_source, net.heads.spans)
    return max(found, 2 / net.heads.head_width) if config.noise else found
