"""``HyperNet``: any ``nn.Module``, with some of its parameters generated."""

import os
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from hyperfan.codes.draw import Distribution
from hyperfan.codes.embedding import Embedding
from hyperfan.codes.trunk import Trunk
from hyperfan.generators.config import GeneratorConfig
from hyperfan.generators.layout import Sharing
from hyperfan.hypernet import adapter, checks, description, other_mainnet, saving, sharding, signature, start, tasks
from hyperfan.hypernet.bases import (
    BaseArgument,
    BaseOperation,
    frozen_names,
    keeps_values,
    read_base_arguments,
    restarted_share,
    share_of,
)
from hyperfan.hypernet.condition_defaults import what_to_generate
from hyperfan.hypernet.generated_net import GeneratedNet
from hyperfan.hypernet.kept_values import KeptValues, read_kept_values
from hyperfan.hypernet.parts import build_parts, read_heads
from hyperfan.hypernet.plain import fill_missing_buffers, load_beside_frozen, plain_skeleton, write_tied_once
from hyperfan.init.plan import Plan
from hyperfan.init.registry import Fidelity, Method, as_method
from hyperfan.mainnet.read import NonlinearityArgument, read
from hyperfan.mainnet.select import Generate, select
from hyperfan.mainnet.spec import Spec


class HyperNet(GeneratedNet):
    """A mainnet whose parameters are generated from embeddings, initialised at the right scale.

    Each generated tensor is ``W = H·h(e) + β``: its embedding ``e`` goes through the trunk ``h`` to a linear head
    ``(H, β)``. Parameters that are not generated stay trainable, and keep their values, except that a bias beside a
    generated weight starts at zero if it is as torch draws it. The mainnet itself is left as it is.

    Args:
        mainnet: any module.
        embedding: its size, or an :class:`Embedding`.
        generate: "weights", "weights+biases", a glob pattern on parameter names or a list of them, or a function of
            a :class:`TensorSpec`. By default weights, and biases too where one condition is given for the net. Norm
            parameters are only picked by name, and frozen ones too, as PEFT's, unless the mainnet's values are a base.
        trunk: ``None``, the hidden widths of a ReLU MLP, or a module from (n, size) to (n, d_k), which is held as
            it is, so that several nets may share one, and keeps its values.
        init_trunk: whether to draw the values of such a module too.
        heads: "shared" has one head for all weights of one shape, "separate" one for each tensor, "module" one for the
            weights of one module in all repeated layers, as "self_attn.q_proj"; :class:`Chunks` make tensors in pieces,
            :class:`LowRank` as products, :class:`LoRA` as low-rank updates of the mainnet's values.
            By default shared if no two codes are equal.
        init: a method's name (``hyperfan methods`` lists them) or a :class:`Method`.
        share: part of each tensor's variance that is generated, ρ; the rest is a base that all codes have in common, so
            that what one condition teaches helps the others. For methods that aim at a variance. By default all; but
            where each tensor has a head of its own, 0.01 with given embeddings, and 0.5 with tasks.
        base: where that base comes from: drawn at the "start" and trained; the "mainnet", or tensors by name, which are
            trained if they require gradients, and else held as they are and not saved.
        base_op: "add", W = W⁰ + M for a base W⁰ and what is generated, M; or "multiply", W = W⁰ ⊙ (1 + M).
        init_biases: whether biases beside generated weights start at zero; by default those that are as torch draws
            them, and are not frozen. ``net.plan`` tells which are kept, and why.
        example_embeddings: embeddings like those that will be given at the call, (batch, …), to scale the heads on; by
            default they are drawn from the distribution that the :class:`Embedding` names. Not saved with the net.
        fidelity: "exact" uses numeric gains, strides and the codes' actual norms; "paper" is Table 1 to the letter.
        distribution: "uniform" or "normal".
        example: inputs to run the mainnet on once, to see which nonlinearity follows which layer: a tensor, a tuple
            of arguments or a dict of keyword arguments. An ``nn.Sequential`` does without.
        nonlinearity: instead, one name for all hidden layers, or layer path → name of what follows it.

    A mainnet on the meta device makes a hypernet on the meta device: ``net.plan`` can be read, and
    ``net.to_empty(device="cpu").reset_parameters()`` starts it.

    >>> mainnet = nn.Sequential(nn.Linear(784, 500), nn.Tanh(), nn.Linear(500, 10))
    >>> net = HyperNet(mainnet, embedding=50)
    >>> net(torch.randn(3, 784)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        mainnet: nn.Module,
        embedding: int | Embedding,
        *,
        generate: Generate | None = None,
        trunk: Trunk = None,
        init_trunk: bool = False,
        heads: Sharing | GeneratorConfig | None = None,
        init: str | Method = "hyperfan-in",
        share: float | None = None,
        base: BaseArgument = None,
        base_op: BaseOperation = "add",
        init_biases: bool | None = None,
        example_embeddings: Tensor | None = None,
        fidelity: Fidelity = "exact",
        distribution: Distribution = "uniform",
        example: Any = None,
        nonlinearity: NonlinearityArgument = None,
    ) -> None:
        checks.check_choices(mainnet, fidelity, distribution)
        embedding = embedding if isinstance(embedding, Embedding) else Embedding(embedding)
        heads, method = read_heads(heads, embedding), as_method(init)
        spec, keeps = read(mainnet, example, nonlinearity, warn=False), keeps_values(heads, base)
        chosen = what_to_generate(embedding, keeps) if generate is None else generate
        generated = select(spec, chosen, () if keeps else frozen_names(mainnet))
        requested, bases = read_base_arguments(share, base, base_op, mainnet, generated, embedding, heads, method)
        parts = build_parts(generated, embedding, trunk, heads, next(mainnet.parameters()).device, bases)
        super().__init__(parts.embeddings, parts.trunk, parts.generator, plain_skeleton(mainnet, generated))
        self.init, self.fidelity, self.distribution = method, fidelity, distribution
        self.spec, self.generated, self.trunk_spec = spec, generated, parts.trunk_spec
        self._requested_share = requested
        self.share = share_of(requested, embedding, parts.generator, method, fidelity)
        checks.set_examples(self, example_embeddings)
        self.kept_values = read_kept_values(mainnet, spec, generated, bases, trunk, init_trunk, init_biases)
        write_tied_once(self)
        load_beside_frozen(self)
        checks.check_shared_heads(self)
        checks.check_constant_embeddings(self, method)
        self._valueless = checks.without_rule(self)
        self.plan: Plan = start.first_plan(self)
        """The init as it was written last, or, on the meta device, as it will be."""
        signature.show_arguments(self, mainnet)
        self._set_mode(mainnet.training, unless=(trunk, self.mainnet))  # modules that were given keep their modes

    def reset_parameters(
        self, generator: torch.Generator | None = None, *, embeddings: torch.Generator | None = None
    ) -> None:
        """Draw everything anew: embeddings, heads, the trunk, and the mainnet's plain parameters, trained or not.

        These keep their values: a trunk that was given (unless ``init_trunk``), bases that were given and the biases
        beside them, frozen parameters, those without a rule, and buffers other than those of norms.

        Args:
            generator: where the random numbers come from; by default torch's own.
            embeddings: where those of the embeddings come from, if not from the same.
        """
        other_mainnet.check_may_redraw(self)
        checks.check_values(self, self._valueless)
        self.plan, self._ranks_agree = start.reset(self, generator, embeddings), False

    def restart_(self, init: str | Method, spec: Spec | None = None) -> None:
        """Draw everything anew by another method, for which the mainnet may have been read again."""
        other_mainnet.check_may_redraw(self)
        method, config = as_method(init), self.embeddings.config
        checks.check_constant_embeddings(self, method)
        self.share = restarted_share(self._requested_share, self.share, config, self.heads, method, self.fidelity)
        self.init = method
        if spec is not None:
            self.spec, self.generated = spec, tuple(spec[t.name] for t in self.generated)
        self.reset_parameters()

    def restore_(
        self, init: Method, plan: Plan, state: Mapping[str, Tensor], buffers: Mapping[str, Tensor], kept: KeptValues
    ) -> None:
        """Take over the method, the plan and the values of a saved net; buffers that are not saved come as given."""
        self.load_state_dict(state, assign=True)
        fill_missing_buffers(self.mainnet, buffers)
        self.init, self.plan, self.kept_values, self._valueless = init, plan, kept, []

    def rescale_(self, factors: Mapping[str, float]) -> None:
        """Multiply generated tensors by positive factors, given by name.

        A factor goes into the head where that makes no other tensor. Else it goes on the tensor's code, and the
        effective learning rate changes with it; ``heads="separate"`` avoids that.

        >>> net = HyperNet(nn.Linear(3, 2), embedding=4)
        >>> before = net.generate()["weight"]
        >>> net.rescale_({"weight": 2.0})
        >>> torch.allclose(net.generate()["weight"], 2 * before)
        True
        """
        checks.check_values(self)
        checks.check_factors(factors, [t.name for t in self.generated])
        self.plan = start.rescale(self, factors)

    def for_mainnet(
        self, mainnet: nn.Module, *, example: Any = None, nonlinearity: NonlinearityArgument = None
    ) -> Self:
        """A net around a smaller mainnet that shares embeddings, trunk and heads with this one.

        Its tensors are the first values, along each dimension, of those with the same names here, each at the scale of
        its own layer. Parameters that are not generated are its own.

        Args:
            mainnet: of other widths, or with fewer layers.
            example, nonlinearity: as for the constructor.
        """
        return other_mainnet.for_mainnet(self, mainnet, example, nonlinearity)

    def add_task(self, *, generator: torch.Generator | None = None) -> nn.Parameter:
        """Add a task; returns its embedding, drawn as the others were, for ``opt.add_param_group({"params": …})``.

        It is a parameter of its own, which momentum and weight decay leave alone while other tasks are trained.
        """
        return tasks.add_task(self, generator)

    def freeze_task(self, task: int) -> None:
        """Train the embedding of a task no more, whatever its optimiser holds."""
        tasks.freeze_task(self, task)

    def shard_heads_(self, mesh: Any = None) -> set[nn.Parameter]:
        """Shard the heads over their outputs between the processes of a mesh, by default all; returns their parameters.

        ``fully_shard(net, ignored_params=net.shard_heads_())`` shards all else. No head is ever gathered: each process
        makes its part of every tensor, and these are exchanged. Use one seed in all processes.
        """
        return sharding.shard_heads_(self, mesh)

    def print_trainable_parameters(self) -> None:
        """Print how many parameters are trained, and how many the mainnet has."""
        print(description.trainable_parameters(self))

    def extra_repr(self) -> str:
        """What is generated, by which heads, and how it starts."""
        return description.summary(self)

    def save_pretrained(self, path: str | os.PathLike[str], *, overwrite: bool = False, frozen: bool = False) -> None:
        """Save to a folder: ``config.json`` and a safetensors file. An existing one is only replaced if ``overwrite``.

        Parameters that were frozen in the mainnet are its own, and only saved if ``frozen``.
        """
        saving.save(self, path, overwrite, frozen)

    def save_adapter(self, path: str | os.PathLike[str], *, overwrite: bool = False, **condition: Any) -> None:
        """Save the low-rank updates of one condition (``task=`` or ``embedding=``) as a folder that PEFT can load."""
        adapter.save_adapter(self, path, self.heads.low_rank_updates(self.codes(**condition, noise=False)), overwrite)

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        mainnet: nn.Module,
        *,
        trunk: nn.Module | None = None,
        example: Any = None,
        nonlinearity: NonlinearityArgument = None,
    ) -> Self:
        """Load what :meth:`save_pretrained` wrote.

        Args:
            path: the folder.
            mainnet: a module of the same architecture; values that were not saved are its own.
            trunk: a module of the same architecture, if the trunk was a module of your own or is to be shared; it gets
                the values that were saved.
            example, nonlinearity: as for the constructor; only needed to call :meth:`reset_parameters` afterwards.
        """
        return saving.load(cls, path, mainnet, trunk, example, nonlinearity)
