"""A :class:`HyperNet` as the subject of a diagnosis: no other file of the probe looks inside one."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hyperfan.codes.moments import moment_scatter
from hyperfan.errors import CallError
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.kept import kept
from hyperfan.init.registry import method
from hyperfan.mainnet.read import read
from hyperfan.mainnet.spec import Spec
from hyperfan.probe.diagnosis import EMBEDDING_PART, TRUNK_PART, head_part
from hyperfan.probe.subject import SEED, Source, Subject
from hyperfan.probe.targets import aims_at_variances


class HyperNetSubject(Subject):
    """A copy of a :class:`HyperNet`, for one task or one embedding.

    The copy has no optimiser's engine and no dropout. Its ``embedding_config`` says how embeddings are made.
    """

    def __init__(self, net: HyperNet, example: Any, task: int | None, embedding: Tensor | None) -> None:
        if any(t.is_meta for t in net.parameters()):
            raise CallError("the net is on the meta device: call net.to_empty(device='cpu') and net.reset_parameters()")
        self.net = copy.deepcopy(net)
        for module in self.net.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.eval()
        self.embedding_config = config = net.embeddings.config
        self._task = 0 if task is None and config.tasks is not None else task
        self._embedding = _draw_embedding(self.net) if embedding is None and config.given else embedding
        spec, noise = net.spec, config.noise > 0
        if spec.unknown_nonlinearities:
            spec = read(self.net.freeze(task=self._task, embedding=self._embedding), example, warn=False)
        torch.manual_seed(SEED)
        with torch.no_grad():
            codes = self.net.codes(task=self._task, embedding=self._embedding, noise=noise)
            sources = _sources(self.net, spec, codes)
        aims = aims_at_variances([s.tensor for s in sources], net.init, net.fidelity)
        super().__init__(
            f"{type(net).__name__}({net.extra_repr()})",
            self.net.skeleton,
            kept(self.net.mainnet),
            example,
            spec,
            sources,
            net.init if aims else method("hyperfan-in"),
            net.fidelity,
            code_scatter=_code_scatter(self.net),
            code_known=True,
            random=noise,
        )

    def renewed(self, net: HyperNet) -> "HyperNetSubject":
        """A subject with the same inputs, task and embedding, for the net as it is now."""
        return HyperNetSubject(net, self.example, self._task, self._embedding)

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate from the stored or given embeddings, with noise as in training."""
        if self.random and not new_draw:
            torch.manual_seed(SEED)
        with torch.enable_grad():
            return self.net.generate(task=self._task, embedding=self._embedding, noise=self.random)

    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The trained parameters of each head, the trunk and the embeddings."""
        heads = {head_part(part.name): part.map for part in self.net.heads.parts()}
        parts = {**heads, TRUNK_PART: self.net.trunk, EMBEDDING_PART: self.net.embeddings}
        return {
            part: {name: p for name, p in module.named_parameters() if p.requires_grad}
            for part, module in parts.items()
            if module is not None
        }

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
        return [t.name for t in self.generated if t.start is None and torch.equal(before[t.name], after[t.name])]


def started_with(net: HyperNet, example: Any, init: str) -> HyperNet:
    """A copy of a net, restarted with another method."""
    copied = copy.deepcopy(net)
    copied.restart_(init, HyperNetSubject(net, example, None, None).spec)
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


def _sources(net: HyperNet, spec: Spec, codes: Tensor) -> list[Source]:
    """The source of each generated tensor, with ‖h‖² of the code that it is generated from now."""
    planned = {row.tensor: row.target for row in net.plan.rows if row.made_by == "head"}
    squares, sources = net.heads.head_inputs(codes).double().square().sum(-1), []
    for i, (t, head, span) in enumerate(zip(net.generated, net.heads.names, net.heads.spans, strict=True)):
        moment = squares[span].mean().item()
        linear = math.isclose(net.heads.tensor_variance(i, 1.0, moment), moment)
        outputs = net.heads.head_fans(i).fan_out
        spread = squares[span].var(correction=0).item() / moment**2 if moment else 0.0
        moment = moment if linear else math.nan
        sources.append(Source(spec[t.name], head, net.heads.head_width, outputs, moment, planned.get(t.name), spread))
    return sources


def _code_scatter(net: HyperNet) -> float:
    """Relative variance of ‖h‖² about the value that the heads were started for; 0 where they were fitted to it."""
    config = net.embeddings.config
    if config.normalise:
        return 0.0
    fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
    found = 0.0 if fitted else moment_scatter(net.code_source, net.heads.spans)
    return max(found, 2 / net.heads.head_width) if config.noise else found
