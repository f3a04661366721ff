"""``HyperNet``: any ``nn.Module``, with some of its parameters generated."""

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from hyperfan.errors import CallError, HyperfanError, HyperfanWarning, InitError, nearest
from hyperfan.hypernet.cache import Cache
from hyperfan.hypernet.chunks import Chunks, InputLayers
from hyperfan.hypernet.embeddings import Embedding, Embeddings, Task
from hyperfan.hypernet.heads import Engined, Heads
from hyperfan.hypernet.kept import Kept, keep, kept
from hyperfan.hypernet.layout import Sharing, Whole
from hyperfan.hypernet.per_sample import PerSample
from hyperfan.hypernet.scopes import noise_groups
from hyperfan.hypernet.start import has_rule, predicted_plan, rescale, write
from hyperfan.hypernet.transforms import transformed
from hyperfan.hypernet.trunk import Trunk, make_trunk, read_trunk, trunk_width
from hyperfan.init.plan import Distribution, Plan
from hyperfan.init.registry import Fidelity, Method, method
from hyperfan.init.write import fill_
from hyperfan.mainnet.read import NonlinearityArgument, read
from hyperfan.mainnet.select import Generate, select
from hyperfan.mainnet.skeleton import Skeleton
from hyperfan.mainnet.spec import TensorSpec


class HyperNet(nn.Module):
    """A mainnet whose parameters are generated from embeddings, initialised at the right scale.

    Each generated tensor is ``W = H·h(e) + β``: its embedding ``e`` goes through the trunk ``h`` to a linear head
    ``(H, β)``. Parameters that are not generated stay trainable, and a bias beside a generated weight starts at zero.
    The mainnet itself is left as it is.

    Args:
        mainnet: any module.
        embedding: its size, or an :class:`Embedding`.
        generate: "weights", "weights+biases", a glob pattern on parameter names or a list of them, or a function of
            a :class:`TensorSpec`; whether they require gradients or not. Norm parameters are only generated if a
            pattern or function picks them.
        trunk: ``None``, the hidden widths of a ReLU MLP, or a module from (n, size) to (n, d_k), which is copied.
        heads: "shared" has one head for all weights of one shape, "separate" one for each tensor; :class:`Chunks` make
            tensors in pieces. By default shared where each tensor has an embedding of its own.
        init: a method's name (``hyperfan methods`` lists them) or a :class:`Method`.
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
        generate: Generate = "weights",
        trunk: Trunk = None,
        heads: Sharing | Chunks | None = None,
        init: str | Method = "hyperfan-in",
        fidelity: Fidelity = "exact",
        distribution: Distribution = "uniform",
        example: Any = None,
        nonlinearity: NonlinearityArgument = None,
    ) -> None:
        super().__init__()
        if not isinstance(mainnet, nn.Module):
            raise HyperfanError(f"the mainnet is {mainnet!r}; it should be an nn.Module")
        self.init = method(init) if isinstance(init, str) else init
        self.fidelity, self.distribution = fidelity, distribution
        self._check_choices()
        self.spec = read(mainnet, example, nonlinearity, warn=False)
        self.generated = select(self.spec, generate)
        embedding = embedding if isinstance(embedding, Embedding) else Embedding(embedding)
        self.sharing: Sharing | Chunks = heads or ("shared" if embedding.per == "tensor" else "separate")
        self._check_sharing(embedding, trunk)
        chunks = self.sharing if isinstance(self.sharing, Chunks) else None
        layout = chunks.layout(self.generated) if chunks else Whole(self.generated, cast(Sharing, self.sharing))
        first = next(mainnet.parameters())
        device, dtype = first.device, self.generated[0].dtype

        own = (chunks.embedding, chunks.trainable) if chunks else (0, False)
        self.embeddings = Embeddings(embedding, layout.pieces, device, dtype, own)
        self.embeddings.groups = noise_groups(embedding, layout)
        size = self.embeddings.size
        inputs = chunks.input_width(size) if chunks else 0
        self.trunk: nn.Module | None
        if inputs:
            self.trunk = InputLayers(layout.pieces, size, inputs, device, dtype)
        else:
            self.trunk = make_trunk(trunk, size, device, dtype)
        self.trunk_widths = None if isinstance(trunk, nn.Module) else list(trunk or ())
        self.width = inputs or trunk_width(self.trunk, size)
        self.trunk_spec = read_trunk(self.trunk, size, layout.pieces if inputs else 2)
        self.heads = Heads(layout, self.width, device)
        self._check_twins()
        # What a code's scale is, normalising would take away again; so it comes after that.
        scaled = 1 if (inputs and not embedding.normalise) or layout.mixed else layout.pieces
        self.register_buffer("code_scale", torch.ones(scaled, 1, device=device, dtype=dtype))
        self.code_scale: Tensor
        made = {t.name for t in self.generated}
        self.mainnet = keep(mainnet, [t.name for t in self.spec if t.name not in made])
        self._kept = Kept(self.mainnet)
        self.per_sample = PerSample()
        self._cache = Cache()
        self.skeleton = Skeleton(mainnet)
        self._valueless = self._without_rule()
        if self.init.embedding is not None:
            self._check_constant_embeddings()
        self._plan = predicted_plan(self, self._zeroed())
        if device.type != "meta":
            self._plan = write(self, self._zeroed(), None)
        super().train(mainnet.training)  # the mainnet's own modules keep the modes they have

    # ── calling ────────────────────────────────────────────────────────────────────────────────────────────────────

    def forward(
        self,
        *args: Any,
        task: Task | None = None,
        embedding: Tensor | None = None,
        noise: bool | None = None,
        grouped: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the mainnet with generated parameters.

        Args:
            args, kwargs: the mainnet's own.
            task: which row of a table of embeddings; a tensor of them means one for each sample.
            embedding: the embedding, where it is given at the call; with a leading batch dimension one for each sample.
            noise: whether to add the embedding's noise; by default in training mode.
            grouped: whether each of many codes serves a batch of its own: inputs and outputs are (codes, batch, …).
        """
        if self._reusable(task, embedding, noise):
            tensors = self._cache.get(lambda: self.heads(self.codes(task=task, noise=noise)), *self._sources(task))
            return self.run(tensors, *args, **kwargs)
        codes = self.codes(task=task, embedding=embedding, noise=noise)
        if codes.ndim == 3:
            return self.per_sample(self.skeleton, self.heads, codes, self._kept(), grouped, args, kwargs)
        if grouped:
            raise CallError("grouped=True needs many codes: a tensor of tasks, or embedding= with a leading dimension")
        return self.run(self.heads(codes), *args, **kwargs)

    def run(self, tensors: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the mainnet with these tensors in place of those generated now, as :meth:`generate` returns them."""
        return self.skeleton({**tensors, **self._kept()}, *args, **kwargs)

    def codes(self, *, task: Task | None = None, embedding: Tensor | None = None, noise: bool | None = None) -> Tensor:
        """What enters the heads, one row for each generated tensor or chunk: (n, d_k), or (batch, n, d_k)."""
        embeddings, trunk, scale = self.embeddings, self.trunk, self.code_scale  # a module looks each up in Python
        e = embeddings(task, embedding, noise)
        if e.dtype != scale.dtype and not torch.is_autocast_enabled(e.device.type):
            raise CallError(f"embedding= is {e.dtype} and the net is {scale.dtype}: convert one with .to(…)")
        h = e if trunk is None else trunk(e.reshape(-1, e.shape[-1])).view(*e.shape[:-1], self.width)
        if embeddings.config.normalise:
            square = h.square().mean(-1, keepdim=True)
            h = h * torch.rsqrt(square.clamp_min(torch.finfo(h.dtype).tiny))  # a code of zeros stays one
        codes: Tensor = h * scale
        return codes

    def generate(
        self, *, task: Task | None = None, embedding: Tensor | None = None, noise: bool | None = None
    ) -> dict[str, Tensor]:
        """The generated parameters by their names in the mainnet, with a leading batch dimension if codes have one."""
        made: dict[str, Tensor] = self.heads(self.codes(task=task, embedding=embedding, noise=noise), own=True)
        return made

    def freeze(self, *, task: int | None = None, embedding: Tensor | None = None) -> nn.Module:
        """An ordinary module with the parameters generated now, without noise; it shares nothing with this net."""
        tensors = self.generate(task=task, embedding=embedding, noise=False)
        if tensors[self.generated[0].name].ndim > len(self.generated[0].shape):
            raise CallError("freeze() makes one net: pass one task or one embedding, not one per sample")
        return self.skeleton.materialise({**tensors, **self._kept()})

    def _reusable(self, task: Task | None, embedding: Tensor | None, noise: bool | None) -> bool:
        """Whether what is generated now will be generated again: in evaluation, without noise or given codes."""
        if self.training or torch.is_grad_enabled() or noise or embedding is not None or isinstance(task, Tensor):
            return False
        if torch.compiler.is_compiling() or transformed():
            return False
        makers = [m for part in self._makers() for m in part.modules()]
        # Hooks and modules in training mode may do something else at every call.
        return not torch.is_autocast_enabled(self.code_scale.device.type) and not any(
            m.training or m._forward_hooks or m._forward_pre_hooks for m in makers
        )

    def _makers(self) -> list[nn.Module]:
        return [m for m in (self.embeddings, self.trunk, self.heads) if m is not None]

    def _sources(self, task: Task | None) -> tuple[list[Tensor], object]:
        """All that the generated tensors depend on."""
        modules = [m for part in self._makers() for m in part.modules()]
        # As they are: an engine that is ahead of the heads says so by its revision.
        held: list[dict[str, Any]] = [d for m in modules for d in (m._parameters, m._buffers)]
        tensors = [t for d in held for t in dict.values(d) if t is not None]
        engines = {m.engine for m in (self.heads, self.trunk) if isinstance(m, Engined) and m.engine is not None}
        ahead = frozenset((engine, engine.revision) for engine in engines)
        return [*tensors, self.code_scale], (type(task), task, ahead)

    def train(self, mode: bool = True) -> Self:
        """Set training mode, for the mainnet too."""
        self._cache.clear()
        self.skeleton.module.train(mode)
        return super().train(mode)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in any module."""
        for module in self.modules():
            held: dict[str, nn.Parameter | None] = module._parameters
            for p in dict.values(held):  # as they are: this reads no values
                if p is not None and p.grad is not None:
                    p.grad = None if set_to_none else p.grad.detach().zero_()

    # ── init ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def plan(self) -> Plan:
        """The init as it was written last, or, on the meta device, as it will be."""
        return self._plan

    def reset_parameters(
        self, generator: torch.Generator | None = None, *, embeddings: torch.Generator | None = None
    ) -> None:
        """Draw everything anew: embeddings, trunk, heads, and the mainnet's plain parameters.

        Plain parameters without a rule, and buffers other than those of norms, keep their values.

        Args:
            generator: where the random numbers come from; by default torch's own.
            embeddings: where those of the embeddings come from, if not from the same.
        """
        if any(t.device.type == "meta" for t in (*self.parameters(), *self.buffers())):
            raise InitError("the net is on the meta device: call net.to_empty(device='cpu') before reset_parameters()")
        if self._valueless:
            raise InitError(
                f"{', '.join(self._valueless)} came without values and has no rule to start from: "
                "build the mainnet on a real device, or register a rule with hyperfan.rule"
            )
        self.heads.sync()
        made = {t.name for t in self.generated}
        plain = [t for t in self.spec if t.name not in made and has_rule(t)]
        self._plan = write(self, plain, generator, embeddings)
        for module, spec in ((self.mainnet, self.spec), (self.trunk, self.trunk_spec)):
            for name, start in spec.buffers if spec is not None else ():
                if module is not None and start is not None:
                    fill_(module.get_buffer(name), 0.0, mean=start)

    def rescale_(self, factors: Mapping[str, float]) -> None:
        """Multiply generated tensors by positive factors, given by name.

        A factor goes into the head where that makes no other tensor. Else it goes on the tensor's code, and the
        effective learning rate ‖h‖² + 1 changes with it; ``heads="separate"`` avoids that.

        >>> net = HyperNet(nn.Linear(3, 2), embedding=4)
        >>> before = net.generate()["weight"]
        >>> net.rescale_({"weight": 2.0})
        >>> torch.allclose(net.generate()["weight"], 2 * before)
        True
        """
        made = {t.name for t in self.generated}
        for name, factor in factors.items():
            if name not in made:
                raise InitError(f"'{name}' is not generated: {nearest(name, made)}")
            if not 0 < factor < math.inf:
                raise InitError(f"rescale_({{'{name}': {factor:g}}}): a factor is positive and finite")
        self._plan = rescale(self, factors)

    def _check_constant_embeddings(self) -> None:
        """A method that sets embeddings needs some to set, and makes tensors of one shape equal."""
        config = self.embeddings.config
        if config.given or config.per == "net" or config.normalise:
            raise InitError(
                f"'{self.init.name}' sets each tensor's embedding to a constant, so they must be stored: use "
                "Embedding(size, per='tensor') without given= and normalise="
            )
        drawn = [head for head, t in zip(self.heads.names, self.generated, strict=True) if t.start is None]
        twins = sorted({head for head in drawn if drawn.count(head) > 1})
        if twins and not config.trainable and not isinstance(self.trunk, InputLayers):
            warnings.warn(
                f"'{self.init.name}' gives the tensors of head {', '.join(twins)} equal embeddings, so they stay "
                "equal: use heads='separate'",
                HyperfanWarning,
                stacklevel=3,
            )

    def _zeroed(self) -> list[TensorSpec]:
        """Biases beside generated weights: the theory has them at zero. Other plain parameters keep their values."""
        made = {t.name for t in self.generated}
        return [t for t in self.spec if t.name not in made and made.intersection(t.weights)]

    def _without_rule(self) -> list[str]:
        """What came without values, on the meta device, and has no rule to get them from."""
        lacking = []
        for prefix, module, spec in (("", self.mainnet, self.spec), ("trunk.", self.trunk, self.trunk_spec)):
            if module is not None and spec is not None:
                ruled = {t.name: has_rule(t) for t in spec} | {name: start is not None for name, start in spec.buffers}
                empty = [name for name, tensor in kept(module).items() if tensor.is_meta]
                lacking += [prefix + name for name in empty if not ruled[name]]
        return lacking

    # ── checks, printing, saving ───────────────────────────────────────────────────────────────────────────────────

    def _check_choices(self) -> None:
        if not isinstance(self.init, Method):
            raise InitError(f"init={self.init!r}: give a method's name, or hyperfan.init.method(name, …)")
        if self.fidelity not in ("exact", "paper"):
            raise InitError(f"fidelity='{self.fidelity}': use 'exact' or 'paper'")
        if self.distribution not in ("uniform", "normal"):
            raise InitError(f"distribution='{self.distribution}': use 'uniform' or 'normal'")

    def _check_sharing(self, embedding: Embedding, trunk: Trunk) -> None:
        if isinstance(self.sharing, Chunks):
            self.sharing.check(embedding, has_trunk=isinstance(trunk, nn.Module) or bool(trunk))
        elif self.sharing not in ("shared", "separate"):
            raise HyperfanError(f"heads='{self.sharing}': use 'shared', 'separate' or Chunks(…)")

    def _check_twins(self) -> None:
        if isinstance(self.sharing, Chunks):
            return
        twins = [name for name, made in self.heads.layout.heads.items() if len(made.tensors) > 1]
        if twins and self.embeddings.config.per == "net":
            raise HyperfanError(
                f"one embedding for the whole net and a shared head would make all tensors of head {twins[0]} equal: "
                "use heads='separate', or Embedding(…, per='tensor')"
            )

    def print_trainable_parameters(self) -> None:
        """Print how many parameters are trained, and how many the mainnet has."""
        trained = sum(p.numel() for p in self.parameters() if p.requires_grad)
        stored = sum(p.numel() for p in self.parameters())
        main = sum(t.numel for t in self.spec)
        print(
            f"trainable parameters: {trained:,} of {stored:,} | mainnet: {main:,}, of which generated: "
            f"{sum(t.numel for t in self.generated):,}"
        )

    def extra_repr(self) -> str:
        """What is generated, and how it starts."""
        made = sum(t.numel for t in self.generated)
        return (
            f"generates {len(self.generated)} of {len(self.spec)} tensors ({made:,} values) of "
            f"{type(self.skeleton.module).__name__}, d_k={self.width}, {self._heads_told()}, "
            f"init={self.init} ({self.fidelity}, {self.distribution})"
        )

    def _heads_told(self) -> str:
        if not isinstance(self.sharing, Chunks):
            return f"{self.sharing} heads"
        chunks = self.heads.layout.pieces
        return f"{chunks:,} chunks from {len(self.heads.layout.heads)} heads"

    def save_pretrained(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save to a folder: ``config.json`` and a safetensors file. An existing one is only replaced if asked."""
        from hyperfan.hypernet.saving import save

        save(self, path, overwrite)

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
            mainnet: a module of the same architecture; its values do not matter.
            trunk: a module of the same architecture, if the trunk was a module of your own.
            example, nonlinearity: as for the constructor; only needed to call :meth:`reset_parameters` afterwards.
        """
        from hyperfan.hypernet.saving import load

        return load(cls, path, mainnet, trunk, example, nonlinearity)
