"""A :class:`HyperNet` as the subject of a diagnosis or a calibration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hyperfan.codes.embedding import Task
from hyperfan.codes.moments import code_squares, moment_scatter
from hyperfan.distributed.sharded import check_unsharded
from hyperfan.errors import CallError, HyperfanError
from hyperfan.hypernet import HyperNet
from hyperfan.hypernet.plain import named_tensors
from hyperfan.init.registry import method
from hyperfan.mainnet.read import arguments, read
from hyperfan.mainnet.skeleton import duplicate
from hyperfan.probe.diagnosis import BASE_PART, EMBEDDING_PART, ENCODER_PART, TRUNK_PART, head_part
from hyperfan.probe.per_code import in_one_batch, inputs_in_common
from hyperfan.probe.relation import CONDITIONS, ConditionReading, calls, correlation
from hyperfan.probe.subject import SEED, GeneratedTensor, Subject, leaves, with_targets

EXPECTED_EMBEDDINGS = 64
"""Embeddings in the mean that those given at the call are compared with."""


class HyperNetSubject(Subject):
    """A copy of a :class:`HyperNet`, without an optimiser's engine or dropout.

    For one task or embedding, or for one of each input's. A condition that is given at the call is drawn for each
    input where none is passed, if the net can run so.
    """

    net: HyperNet

    def __init__(
        self, net: HyperNet, example: Any, task: Task | None, embedding: Tensor | None, grouped: bool = False
    ) -> None:
        check_unsharded(net, "diagnose and calibrate_")
        if any(t.is_meta for t in net.parameters()):
            raise CallError("the net is on the meta device: call net.to_empty(device='cpu') and net.reset_parameters()")
        copied, config = _copy(net), net.embeddings.config
        for module in copied.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.eval()
        self._user_parameters: dict[str, Tensor] = {name: p for name, p in net.named_parameters() if p.requires_grad}
        if embedding is not None and embedding.requires_grad:
            of_net = {id(p) for p in self._user_parameters.values()}
            before = [p for p in leaves([embedding]) if id(p) not in of_net and p is not embedding]
            self._user_parameters |= {f"{ENCODER_PART} {i}": p for i, p in enumerate(before)}
        self._task = 0 if task is None and config.tasks is not None else task
        self._embedding = _condition(copied, example) if embedding is None and config.given else embedding
        spec, noise, theory = net.spec, config.noise > 0, net.init
        torch.manual_seed(SEED)
        with torch.no_grad():
            codes = copied.codes(task=self._task, embedding=self._embedding, noise=noise)
            many = len(codes) if codes.ndim == 3 else 0
            if many or grouped:
                call(copied, example, self._task, self._embedding, noise, grouped)  # raises where this cannot be done
        if spec.unknown_nonlinearities:
            task = int(self._task.reshape(-1)[0]) if isinstance(self._task, Tensor) else self._task
            embedding = self._embedding[0] if many and self._embedding is not None else self._embedding
            spec = read(copied.freeze(task=task, embedding=embedding), in_one_batch(example, grouped), warn=False)
        specs = [spec[t.name] for t in net.generated]
        tensors = with_targets(specs, theory, net.fidelity)
        if any(t.reading is not None and t.target is None for t in tensors.values()):
            theory = method("hyperfan-in")  # the net's method sets heads, and says nothing about what they make
            tensors = with_targets(specs, theory, net.fidelity)
        super().__init__(
            f"{type(net).__name__}({net.extra_repr()})",
            copied.skeleton,
            named_tensors(copied.mainnet),
            example,
            spec,
            _with_heads(copied, tensors, codes),
            theory,
            copied,
            _code_scatter(copied) / max(many, 1),
            random=noise,
            codes=max(many, 1),
            grouped=grouped,
        )

    def generate(self, new_draw: bool = False) -> dict[str, Tensor]:
        """Generate from the stored or given embeddings, with noise as in training."""
        if self.random and not new_draw:
            torch.manual_seed(SEED)
        with torch.enable_grad():
            return self.net.generate(task=self._task, embedding=self._embedding, noise=self.random)

    def output(self) -> Any:
        """The output of the mainnet; with a code for each input or group, as in training."""
        if self.codes == 1:
            return super().output()
        if self.random:
            torch.manual_seed(SEED)
        return call(self.net, self.example, self._task, self._embedding, self.random, self.grouped)

    def user_parameters(self, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """The trained parameters of the net that was copied, by name, and those that made the embedding given."""
        return self._user_parameters

    def hypernet_parts(self, generated: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
        """The trained parameters of each head, the bases, the trunk and the embeddings."""
        net = self.net
        parts = {
            **{head_part(part.name): list(part.map.parameters()) for part in net.heads.parts()},
            BASE_PART: net.heads.common_parameters(),
            TRUNK_PART: [] if net.trunk is None else list(net.trunk.parameters()),
            EMBEDDING_PART: list(net.embeddings.parameters()),
        }
        return {part: [p for p in parameters if p.requires_grad] for part, parameters in parts.items()}

    def started_biases(self) -> dict[str, float]:
        """The plain biases that init writes, not those that it keeps because they are trained, and their variance."""
        rows = {row.tensor: row for row in self.net.plan.rows if row.made_by in ("plain", "kept")}
        written = {name: rows[name].variance for name in super().started_biases() if rows[name].made_by == "plain"}
        return {name: variance or 0.0 for name, variance in written.items()}

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

    @torch.no_grad()
    def conditions(self) -> ConditionReading | None:
        """The conditions given, or the embeddings of all tasks."""
        net, config, given = self.net, self.net.embeddings.config, self._embedding
        if config.tasks is not None:
            stored = net.embeddings.conditions
            assert stored is not None
            return ConditionReading.of(stored, config.std**2, math.nan, given=False)
        if given is None:
            return None
        one, examples = 2 if config.per == "tensor" else 1, net.embeddings.examples
        expected = config.std**2 if examples is None else examples.double().square().mean().item()
        usual = _conditions(net, EXPECTED_EMBEDDINGS)
        code_ratio = _ratio(*(_conditioned_square(net, conditions) for conditions in (given, usual)))
        rows = given if given.ndim > one else given.unsqueeze(0)
        return ConditionReading.of(rows, expected, code_ratio, given=True, learnt=given.requires_grad)

    def correlation(self) -> float | None:
        """Mean correlation between the weights of two conditions: those given, or others like them."""
        embeddings = self._embedding
        if self.net.embeddings.config.given and self.codes == 1:
            embeddings = _conditions(self.net, CONDITIONS)
        drawn = [name for name, t in self.generated.items() if t.spec.start is None]
        return correlation(self.net, calls(self.net, embeddings), drawn)


def started_with(net: HyperNet, example: Any, init: str) -> HyperNet:
    """A copy of a net, restarted with another method."""
    copied = _copy(net)
    copied.restart_(init, HyperNetSubject(net, example, None, None).spec)
    return copied


def _copy(net: HyperNet) -> HyperNet:
    copied = duplicate(net, {})
    assert isinstance(copied, HyperNet)
    return copied


def call(
    net: HyperNet, example: Any, task: Task | None, embedding: Tensor | None, noise: bool, grouped: bool = False
) -> Any:
    """Call a net on an example as its user would."""
    args, kwargs = arguments(pytree.tree_map_only(Tensor, Tensor.clone, example))
    return net(*args, task=task, embedding=embedding, noise=noise, grouped=grouped, **kwargs)


def _condition(net: HyperNet, example: Any) -> Tensor:
    """Embeddings like those that are given at the call: a condition for each input, or one for all if need be."""
    each = _conditions(net, inputs_in_common(example) if net.embeddings.config.per == "net" else 1)
    if len(each) > 1:
        try:
            with torch.no_grad():
                call(net, example, None, each, False)
        except (HyperfanError, RuntimeError):  # batch norm in training, or what vmap cannot do
            return each[0]
    return each if len(each) > 1 else each[0]


def _conditions(net: HyperNet, count: int) -> Tensor:
    """A number of embeddings like those that are given at the call, always the same: examples, or draws."""
    config, examples = net.embeddings.config, net.embeddings.examples
    count = max(count, 1)
    if examples is None:
        empty = torch.empty(count, net.embeddings.n, config.size)
        many = net.embeddings.draw_(empty, torch.Generator().manual_seed(SEED))
    else:
        rows = examples.reshape(-1, *examples.shape[-2:])
        many = rows[torch.arange(count) % len(rows)]
    many = many.to(net.heads.scale)
    return many if config.per == "tensor" else many.squeeze(1)


def _other_embedding(embedding: Tensor) -> Tensor:
    """Another embedding: not a multiple, so that no norm or symmetry of a trunk makes the same code of both."""
    return embedding.detach() * -1.5 + 0.1


@torch.no_grad()
def _with_heads(net: HyperNet, tensors: Mapping[str, GeneratedTensor], codes: Tensor) -> dict[str, GeneratedTensor]:
    """The tensors with their heads, ‖h‖² of their codes and, where the plan has one, as after rescaling, its target.

    On a base that was given, what is generated is to have its share of the target, and no layer a target of its own.
    """
    planned = {row.tensor: row.target for row in net.plan.rows if row.made_by == "head" and row.target is not None}
    phases = {row.tensor: row.variance for row in net.plan.rows if row.made_by == "plain" and row.variance}
    given = () if net.heads.base is None else net.heads.base.to_json()
    squares, expected, found = _mean_squares(net, codes), _expected_squares(net), {}
    for i, (name, tensor) in enumerate(tensors.items()):
        span, target = net.heads.spans[i], planned.get(name, tensor.target)
        moment = squares[span].mean().item()
        made = net.heads.tensor_variance(i, 1.0, moment)
        code_factor = _ratio(made, net.heads.tensor_variance(i, 1.0, expected[span].mean().item()))
        share = _generated_share(net, i, name)
        if net.heads.base is not None and name in given and target is not None:
            based = net.heads.base.value(name).detach()
            tensor, target = replace(tensor, mean=based, layer_output=None), share * target
        else:
            code_factor = 1 - share + share * code_factor
        added = sum(phases[t.name] or 0.0 for t in net.spec if t.name in phases and name in t.weights)
        found[name] = replace(
            tensor,
            target=target,
            layer_output=None if tensor.layer_output is None else tensor.layer_output + added,
            head=net.heads.names[i],
            width=net.heads.head_width,
            outputs=net.heads.head_fans(i).fan_out,
            moment=moment if net.heads.is_linear(i) or not moment else math.nan,
            spread=squares[span].var(correction=0).item() / moment**2 if moment else 0.0,
            code_factor=code_factor,
        )
    return found


def _mean_squares(net: HyperNet, codes: Tensor) -> Tensor:
    """‖h‖² of what the heads read for each tensor or chunk, in the mean over a batch of codes."""
    squares = code_squares(net.heads.head_inputs(codes))
    return squares.reshape(-1, squares.shape[-1]).mean(0)


def _expected_squares(net: HyperNet) -> Tensor:
    """‖h‖² in the mean over embeddings like those that the heads were started for; NaN where none are given."""
    if not net.embeddings.config.given:
        return torch.full((net.heads.n,), math.nan)
    return _mean_squares(net, net.codes(embedding=_conditions(net, EXPECTED_EMBEDDINGS), noise=False))


def _conditioned_square(net: HyperNet, conditions: Tensor) -> float:
    """The mean of ‖h − h₀‖², where h₀ is the code of a condition of zeros, which an identity or a bias may make."""
    read, zero = (net.heads.head_inputs(net.codes(embedding=e, noise=False)) for e in (conditions, conditions * 0))
    return code_squares(read - zero.nan_to_num(0.0)).mean().item()


def _generated_share(net: HyperNet, index: int, name: str) -> float:
    """The part of a tensor's target that its head was started to make; not the same for all where sines follow."""
    row = next(row for row in net.plan.rows if row.made_by == "head" and row.tensor == name)
    if not row.target or row.variance is None or row.moment is None:
        return net.share
    return min(net.heads.started_variance(index, row.variance, row.moment) * row.scale**2 / row.target, 1.0)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def _code_scatter(net: HyperNet) -> float:
    """Relative variance of ‖h‖² about the value that the heads were started for; 0 where they were fitted to it."""
    config = net.embeddings.config
    if config.normalise:
        return 0.0
    fitted = net.fidelity == "exact" and not config.given and (config.tasks or 1) == 1
    found = 0.0 if fitted else moment_scatter(net.code_source, net.heads.spans)
    return max(found, 2 / net.heads.head_width) if config.noise else found
