"""``Adam`` and ``AdamW``: the results of torch's, in the structure of a head's gradient.

*One constant code on a head.* At every step the gradient of H is h⊗g, with g = ∂L/∂W, and that of β is g. So, exactly,

    m_H = h⊗m_β        v_H = h²⊗v_β        max v_H = h²⊗max v_β

and the moments of H need not be held: a step reads and writes H, and nothing else of its size. That holds for AdamW's
weight decay, but not for Adam's, which adds H to the gradient.

*Several constant codes on one head.* The square of Σᵢ hᵢ⊗gᵢ has N(N + 1)/2 moments of W's size, whose sum cancels in
single precision. Such heads are *factored*, as those are whose codes change: the gradient is made block by block.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hyperfan.errors import HyperfanError
from hyperfan.generators import head_shards
from hyperfan.generators.part import Part
from hyperfan.optim.factor import Factor
from hyperfan.optim.form import Form, Group, State
from hyperfan.optim.gradient import FactoredGradient
from hyperfan.optim.kernels import (
    MAX_COMPILED_RANK,
    MIN_COMPILED,
    Hyper,
    step_moments_,
    step_product_,
    step_rows_,
    why_not_compiled,
)
from hyperfan.optim.map_trainer import StepRule
from hyperfan.optim.optimiser import HyperNetOptimiser
from hyperfan.optim.plan import TrainingKind

STEP, FIRST, SECOND, LARGEST = "step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"
"""Keys of torch's state."""
POWERS = {FIRST: 1, SECOND: 2, LARGEST: 2}
"""Powers of the code in the moments of a head's weight."""
MAX_SMALL = 2**17
"""Values of a map's weight up to which its structure saves no time."""
MIXED = "its moments are not those of one constant code"
TOLERANCE = 64
"""How far moments may be from those of one code, in units of the precision."""


class OneCode(Form):
    """A map with one constant code, whose weight's moments are those of its bias times the code."""

    def __init__(self, part: Part, codes: Tensor, state: Callable[[], State], compiled: bool) -> None:
        super().__init__(part, codes, state)
        self.compiled = compiled
        self.group = head_shards.group_of(part.map.held[0]) if part.map.sharded else None

    def why_impossible(self) -> str | None:
        """Why the state is not that of a map with one constant code."""
        of_weight, of_bias = (self._state().get(p, {}) for p in self.pair)
        if (STEP in of_weight) != (STEP in of_bias):
            return "only one of its parameters has moments"
        for key in POWERS:
            moment, expected = self.held_state(self.weight, key), self._moment(key)
            if moment is None:
                continue
            if expected is None or of_weight[STEP] != of_bias[STEP]:
                return MIXED
            near = TOLERANCE * torch.finfo(moment.dtype).eps * self._norm(moment)
            if self._norm(moment - expected) > near:
                return MIXED
        return None

    def _norm(self, values: Tensor) -> Tensor:
        """The norm of something of the weight's shape, over all processes that have shards of it."""
        square = values.square().sum()
        if self.group is not None:
            torch.distributed.all_reduce(square, group=self.group)
        return square.sqrt()

    def _moment(self, key: str) -> Tensor | None:
        """The weight's moment, from the bias's."""
        moment = self.held_state(self.bias, key)
        return None if moment is None else self.codes.mT.pow(POWERS[key]) * moment.unsqueeze(-2)

    def make(self) -> None:
        """Compute W from the head. The weight's moments are held no more."""
        super().make()
        for key in POWERS:
            self._state().get(self.weight, {}).pop(key, None)

    def step(self, factor: Factor, scale: float, group: Group) -> None:
        """One step of the head, and W made from it."""
        assert self.outputs is not None
        self.check_state(STEP)
        state = self._state()
        state[self.weight].setdefault(STEP, _new_step(self.weight, group))
        state[self.weight][STEP] += 1
        m, v, v_max, hyper = _moments(self.bias, state, group)
        grad = factor.matrix.view(self.bias.shape) * (-scale if hyper.maximize else scale)
        m_hat, root = (t.unsqueeze(-2) for t in step_moments_(grad, m, v, v_max, hyper))
        step_rows_(self.weight, self.codes.mT, m_hat, root, hyper, self.compiled)
        step_rows_(self.bias.unsqueeze(-2), torch.ones_like(self.codes[..., :1]), m_hat, root, hyper, False)
        self.outputs.copy_(self.through(self.weight, self.bias))
        self._remember()

    def write(self) -> None:
        """Write the moments of the weight to the optimiser's state, from those of the bias."""
        entry = self._state().get(self.weight, {})
        if STEP in entry and FIRST not in entry:
            for key in POWERS:
                moment = self._moment(key)
                if moment is not None:
                    entry[key] = moment
        self.outputs = None


class AdamRule(StepRule):
    """Adam and AdamW on gradients in factors.

    Args:
        compile: whether to compile the steps of heads; ``None`` where that pays.
    """

    def __init__(self, compile: bool | None) -> None:
        self.compile = compile

    def why_dense(self, part: Part) -> str | None:
        """Torch steps all small parameters at once, which is faster than one by one."""
        return "it is small" if part.map.held[0].numel() <= MAX_SMALL else None

    def why_not_collapsed(self, part: Part, group: Group) -> str | None:
        """Why moments are not those of one code."""
        if part.gradient_rank > 1:
            return "its codes are constant, but their moments mix"
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            return "weight decay is added to its gradient"
        return None

    def form(self, part: Part, codes: Tensor, state: Callable[[], State]) -> Form:
        """The form of a map with one code, whose moments have W's size."""
        return OneCode(part, codes, state, self.compiled(part))

    def step(self, p: Tensor, state: State, grad: FactoredGradient, group: Group) -> bool:
        """Step a head's weight along its gradient's factors; biases and input layers, which are small, are torch's."""
        parts = grad.parts
        if not parts or grad.value.summed or p.ndim != 2:
            return False
        m, v, v_max, hyper = _moments(p, state, group)
        scaled = [factor.codes if scale == 1 else factor.codes * scale for factor, scale in parts]
        codes, grads = scaled[0], parts[0][0].matrix
        if len(parts) > 1:
            codes, grads = torch.cat(scaled), torch.cat([factor.matrix for factor, _ in parts])
        step_product_(p, codes, grads, (m, v, v_max), hyper, self._compiles(p))
        return True

    def saved_state(self, part: Part, kind: TrainingKind, group: Group) -> int:
        """The moments of a weight with one constant code."""
        return part.map.held[0].numel() * (3 if group["amsgrad"] else 2) if kind == "collapsed" else 0

    def compiled(self, part: Part) -> bool:
        """Whether the map is large enough, there is a compiler, and the loop is not a product of matrices."""
        return part.gradient_rank <= MAX_COMPILED_RANK and self._compiles(part.map.held[0])

    def _compiles(self, weight: Tensor) -> bool:
        wanted = weight.numel() >= MIN_COMPILED if self.compile is None else self.compile
        return wanted and why_not_compiled(weight.device.type) is None


def _new_step(p: Tensor, group: Group) -> Tensor:
    """A count of steps as torch keeps it: in at least single precision, and for its fused kernel beside the values."""
    double = torch.get_default_dtype() == torch.float64 and not group["fused"]
    device = p.device if group["fused"] else "cpu"
    return torch.zeros((), dtype=torch.float64 if double else torch.float32, device=device)


def _moments(p: Tensor, state: State, group: Group) -> tuple[Tensor, Tensor, Tensor | None, Hyper]:
    """A parameter's moments in torch's state, new ones at its first step, and what to step by; counts the step."""
    entry = state[p]
    entry.setdefault(STEP, _new_step(p, group))
    for key in (FIRST, SECOND, *([LARGEST] if group["amsgrad"] else [])):
        entry[key] = entry[key].to(p) if key in entry else torch.zeros_like(p)
    entry[STEP] += 1
    beta1, beta2 = map(float, group["betas"])
    decoupled, decay = group["decoupled_weight_decay"], float(group["weight_decay"])
    numbers = (float(group["lr"]), beta1, beta2, float(group["eps"]), decay, decoupled, group["maximize"])
    hyper = Hyper(*numbers, int(entry[STEP]))
    return entry[FIRST], entry[SECOND], entry[LARGEST] if group["amsgrad"] else None, hyper


class Adam(HyperNetOptimiser, torch.optim.Adam):
    """Adam on a hypernet: the results of :class:`torch.optim.Adam`, in less time and memory.

    Heads with one constant code are *collapsed*: their moments have the size of the weights they make. Other heads are
    *factored*: their gradient is never written out. ``opt.plan`` tells which, why, and which steps are compiled.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        args, options: those of torch.optim.Adam from lr on; foreach and fused are for what is not a head's.
        compile: whether to compile the steps of heads; by default those of a million values and more, where a compiler
            is found. That takes some seconds, once.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.
    """

    torch_class: ClassVar[type[torch.optim.Optimizer]] = torch.optim.Adam

    def __init__(self, net: nn.Module, *args: Any, compile: bool | None = None, **options: Any) -> None:
        self.rule = AdamRule(compile)
        super().__init__(net, *args, **options)
        for device in {trainer.weight.device.type for trainer in self._trainers} - {"meta"} if compile else ():
            reason = why_not_compiled(device)
            if reason is not None:
                self.release()
                raise HyperfanError(f"compile=True: {reason}; leave it out to train without a compiler")


class AdamW(Adam, torch.optim.AdamW):
    """AdamW on a hypernet: :class:`Adam` with weight decay that is not part of the gradient, 0.01 by default.

    Args:
        net: a :class:`HyperNet`, or a module that holds some.
        args, options: those of torch.optim.AdamW from lr on (lr, betas, eps, weight_decay, amsgrad, maximize); foreach
            and fused are for what is not a head's.
        compile: whether to compile the steps of heads; by default those of a million values and more, where a compiler
            is found. That takes some seconds, once.
        params: parameters or groups as torch takes them; by default all parameters of the net in one group.
    """

    torch_class = torch.optim.AdamW
