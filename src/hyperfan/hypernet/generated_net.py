"""``GeneratedNet``: how a mainnet runs with generated parameters, from a call to its output."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.codes.embedding import Task
from hyperfan.codes.embeddings import Embeddings
from hyperfan.distributed.sharded import check_unsharded, unsharded
from hyperfan.generators.generator import Generator
from hyperfan.generators.linear_map import NetTrainer, zero_held_gradients
from hyperfan.hypernet import attributes, batch_loss, checks
from hyperfan.hypernet.cache import Cache
from hyperfan.hypernet.per_sample import PerSample
from hyperfan.hypernet.ragged import read_inputs
from hyperfan.mainnet.skeleton import Skeleton


class GeneratedNet(nn.Module):
    """A mainnet with some of its parameters generated; :class:`HyperNet` adds how it is built, started and saved.

    Args:
        embeddings: where codes begin.
        trunk: what embeddings go through, if anything.
        heads: the generator.
        skeleton: the mainnet as a function of the generated tensors, with all others in it.
    """

    def __init__(self, embeddings: Embeddings, trunk: nn.Module | None, heads: Generator, skeleton: Skeleton) -> None:
        super().__init__()
        self.embeddings, self.trunk, self.heads = embeddings, trunk, heads
        self.per_sample, self._cache, self.skeleton = PerSample(), Cache(), skeleton
        self.mainnet = skeleton.module
        """The mainnet's layers, in which each generated parameter is ``None`` but for the time of a call."""
        self.trainer: NetTrainer | None = None
        self._ranks_agree = False
        """Whether processes that train the net together were found to do so alike."""

    def forward(
        self,
        *args: Any,
        task: Task | None = None,
        embedding: Tensor | None = None,
        noise: bool | None = None,
        grouped: bool = False,
        shared: bool = False,
        counts: Sequence[int] | Tensor | None = None,
        code_index: Tensor | None = None,
        labels: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Run the mainnet with generated parameters.

        Args:
            args, kwargs: the mainnet's own.
            task: which row of a table of embeddings; a tensor of them means one for each sample.
            embedding: the embedding, where it is given at the call; with a leading batch dimension one for each sample.
            noise: whether to add the embedding's noise; by default in training mode.
            grouped: whether each of many codes serves a batch of its own: inputs and outputs are (codes, batch, …).
            shared: whether all of many codes serve the same inputs: (batch, …), and outputs are (codes, batch, …).
            counts: how many rows each of many codes serves, one behind the other: inputs and outputs are (rows, …).
            code_index: instead, the number of each row's code, (rows,), in any order.
            labels: the mainnet's own, named for those who look for it here. With many codes each has a loss of its own,
                but one for the batch, its mean, if ``num_items_in_batch=`` is given as Hugging Face's Trainer does.
        """
        checks.check_mainnet(self)
        if not self._ranks_agree and torch.distributed.is_available() and torch.distributed.is_initialized():
            self._ranks_agree = checks.ranks_agree(self)
        kwargs = kwargs if labels is None else {**kwargs, "labels": labels}
        special = grouped or shared or counts is not None or code_index is not None
        if embedding is None and not noise and not special:
            known = self._known_tensors(task)
            if known is not None:
                return self.run(known, *args, **kwargs)
        heads = cast(Generator, self._modules["heads"])  # at every call, where an attribute takes ten times as long
        codes = self.code_source(task, embedding, noise, heads.code_dtype)
        if codes.ndim == 3 or special:
            each = batch_loss.for_each_code(kwargs, len(codes))
            inputs = read_inputs(codes, grouped, shared, counts, code_index, args, each)
            out = self.per_sample(self.skeleton, heads, codes, inputs)
            return batch_loss.of_batch(out) if batch_loss.ITEMS in kwargs else out
        return self.skeleton(heads.for_layers(codes), *args, **kwargs)

    def _known_tensors(self, task: Task | None) -> Mapping[str, Tensor] | None:
        """What stored embeddings made before, if it still holds: in evaluation, or from an optimiser's last step."""

        def generate() -> dict[str, Any]:
            tensors: dict[str, Any] = self.heads(self.codes(task=task), defer=self.heads.deferrable(many=False))
            return tensors

        makers = [m for m in (self.embeddings, self.trunk, self.heads) if m is not None]
        known = self._cache.get(generate, makers, task)
        if known is None and task is None and self.trainer is not None:
            return self.trainer.tensors()
        return known

    def run(self, tensors: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the mainnet with these tensors in place of those generated now, as :meth:`generate` returns them."""
        return self.skeleton(self.heads.assemble(tensors), *args, **kwargs)

    @property
    def code_source(self) -> Codes:
        """Embeddings and trunk, from which codes come."""
        modules: Mapping[str, Any] = self._modules  # by attribute it takes ten times as long
        return Codes(modules["embeddings"], modules.get("trunk"))

    def codes(self, *, task: Task | None = None, embedding: Tensor | None = None, noise: bool | None = None) -> Tensor:
        """What enters the heads, one row for each generated tensor or chunk: (n, d_k), or (batch, n, d_k)."""
        codes = self.code_source(task, embedding, noise, self.heads.code_dtype)
        return self.heads.spread(codes)

    def generate(
        self,
        *args: Any,
        task: Task | None = None,
        embedding: Tensor | None = None,
        noise: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """The generated parameters by their names in the mainnet, with a leading batch dimension if codes have one.

        It takes no other arguments; a mainnet's own method of this name is called in :meth:`bound`.
        """
        attributes.check_generate(self, args, kwargs)
        with unsharded(self):
            codes = self.codes(task=task, embedding=embedding, noise=noise)
            tensors: dict[str, Tensor] = self.heads(codes, copy=True)
        return tensors

    def freeze(self, *, task: int | None = None, embedding: Tensor | None = None) -> nn.Module:
        """An ordinary module with the parameters generated now, without noise; it shares nothing with this net."""
        tensors = self.generate(task=task, embedding=embedding, noise=False)
        attributes.check_one_net(self, tensors, "freeze()")
        with unsharded(self):
            return self.skeleton.materialise(tensors)

    def bound(
        self, *, task: int | None = None, embedding: Tensor | None = None, noise: bool | None = None
    ) -> contextlib.AbstractContextManager[nn.Module]:
        """A context in which the mainnet itself can be called, with the parameters generated now.

        For its methods, and for many calls with the same weights: ``with net.bound(task=2) as model:
        model.generate(ids)``. Gradients reach the hypernet. Afterwards the mainnet is as before.
        """
        check_unsharded(self, "bound()")
        return attributes.bound(self, self.generate(task=task, embedding=embedding, noise=noise))

    def __getattr__(self, name: str) -> Any:
        """Attributes that the net does not have are those of the mainnet, but for private ones."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return attributes.of_mainnet(self, name)

    def train(self, mode: bool = True) -> Self:
        """Set training mode, for the mainnet too; ``net.mainnet.train()`` sets it for the mainnet alone."""
        self._cache.clear()
        return super().train(mode)

    def _set_mode(self, mode: bool, unless: Sequence[object]) -> None:
        """Set training mode, but for parts that were given with modes of their own."""
        self.training = mode
        for part in self.children():
            if not any(part is given for given in unless):
                part.train(mode)

    def attach(self, trainer: NetTrainer | None) -> None:
        """Let an optimiser hand the net what it holds from step to step, or, with ``None``, no longer."""
        self.trainer, self._ranks_agree = trainer, False
        if trainer is None:
            self.skeleton.run_layers_in()
        else:
            self.skeleton.run_layers_in(trainer.mode, trainer.linear)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients, as in any module, without bringing heads up to date."""
        zero_held_gradients(self, set_to_none)
