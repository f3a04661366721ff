"""A :class:`HyperNet` as the subject of a diagnosis."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hyperfan.hypernet import HyperNet
from hyperfan.init.registry import method
from hyperfan.mainnet.read import read
from hyperfan.probe import hypernet_view as view
from hyperfan.probe.subject import SEED, Subject
from hyperfan.probe.targets import aims_at_variances


class HyperNetSubject(Subject):
    """A copy of a :class:`HyperNet`, for one task or one embedding."""

    def __init__(self, net: HyperNet, example: Any, task: int | None, embedding: Tensor | None) -> None:
        self.net = view.inspection_copy(net)
        self._example = example
        config = view.embedding(net)
        self._task = 0 if task is None and config.tasks is not None else task
        self._embedding = view.draw_embedding(self.net) if embedding is None and config.given else embedding
        spec, noise = net.spec, config.noise > 0
        if spec.unknown_nonlinearities:
            spec = read(self.net.freeze(task=self._task, embedding=self._embedding), example, warn=False)
        torch.manual_seed(SEED)
        with torch.no_grad():
            codes = self.net.codes(task=self._task, embedding=self._embedding, noise=noise)
        sources = view.tensor_sources(self.net, spec, codes)
        aims = aims_at_variances([s.tensor for s in sources], net.init, net.fidelity)
        super().__init__(
            f"{type(net).__name__}({net.extra_repr()})",
            self.net.skeleton,
            view.plain_tensors(self.net),
            example,
            spec,
            sources,
            dict.fromkeys((s.tensor.name for s in sources), net.heads.head_width),
            net.init if aims else method("hyperfan-in"),
            net.fidelity,
            planned_variances=view.planned_variances(net),
            code_scatter=view.code_scatter(self.net),
            code_known=True,
            random=noise,
        )

    def renewed(self, net: HyperNet) -> "HyperNetSubject":
        """A subject with the same inputs, task and embedding, for the net as it is now."""
        return HyperNetSubject(net, self._example, self._task, self._embedding)

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate from the stored or given embeddings, with noise as in training."""
        if self.random and not new_draw:
            torch.manual_seed(SEED)
        with torch.enable_grad():
            return self.net.generate(task=self._task, embedding=self._embedding, noise=self.random)

    def trained_parts(self, generated: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The trained parameters of each head, the trunk and the embeddings."""
        return view.trained_parts(self.net)

    @torch.no_grad()
    def constant(self) -> list[str]:
        """The tensors that stay as they are when all embeddings change."""
        given, before = self._embedding, self.generate()
        self._embedding = None if given is None else view.other_embedding(given)
        with view.other_embeddings(self.net):
            after = self.generate()
        self._embedding = given
        return [t.name for t in self.generated if t.start is None and torch.equal(before[t.name], after[t.name])]


def started_with(net: HyperNet, example: Any, init: str) -> HyperNet:
    """A copy of a net, restarted with another method."""
    return view.restarted_copy(net, HyperNetSubject(net, example, None, None).spec, method(init))
