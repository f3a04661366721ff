"""Learning task after task without forgetting: the output regulariser of von Oswald et al., *Continual learning with
hypernetworks*, ICLR 2020.

What the net makes for earlier tasks is kept from the moment before a new one, and later steps are held to it:
``beta / t · Σ_j ‖Θ*_j − h(e_j, θ + Δθ)‖²`` over the t tasks before, with Δθ the step that the new task's loss alone
would take.
"""

import copy
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import SupportsFloat

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import SGD, Adam, AdamW, Optimizer

from hyperfan.distributed.sharded import check_unsharded
from hyperfan.errors import CallError, CheckpointError, HyperfanWarning, nearest
from hyperfan.hypernet import HyperNet
from hyperfan.optim.optimiser import HyperNetOptimiser

TASKS, REMEMBERED = "tasks", "remembered."
"""Keys of a state: the tasks, and the prefix of the tensors' names."""


class Memory:
    """What a net with task embeddings makes for some of its tasks, as it is now.

    Args:
        net: built with ``Embedding(…, tasks=…)``.
        tasks: which to remember.

    In a training loop, after the gradients of the new task's loss are there::

        memory = Memory(net, tasks=range(task))      # before the first step on a task
        ...
        optimiser.zero_grad()
        mse_loss(net(x, task=task), y).backward()
        (0.005 * memory.drift(lookahead=optimiser)).backward()
        optimiser.step()

    Only what is generated is remembered, so generate all that is trained. Gradients reach the trunk and the heads,
    never the tasks' embeddings. Those of all tasks that a net is built with are one parameter, so momentum, also
    Adam's, and weight decay would go on moving earlier ones: call ``net.freeze_task`` for each that was learnt, or
    build the net with one task and call ``net.add_task`` for every other.
    """

    def __init__(self, net: HyperNet, tasks: Iterable[int]) -> None:
        if not isinstance(net, HyperNet) or net.embeddings.config.tasks is None:
            raise CallError("this net has no tasks to remember: build a HyperNet with Embedding(…, tasks=…)")
        if isinstance(tasks, int):
            raise CallError(f"tasks={tasks}: name the tasks to remember, as in range({tasks}) for the first {tasks}")
        check_unsharded(net, "Memory")
        self.net, self.tasks = net, list(tasks)
        shared = [name for name, p in net.mainnet.named_parameters() if p.requires_grad]
        if shared and self.tasks:
            warnings.warn(
                f"{', '.join(shared)} of the mainnet are not generated, so a new task changes them for all tasks, and "
                "nothing holds them: generate them too, with generate='weights+biases', or freeze them",
                HyperfanWarning,
                stacklevel=2,
            )
        self._codes = _Codes(net)
        with torch.no_grad():
            self.remembered = net.heads(self._codes(self.tasks), copy=True)

    def drift(
        self,
        *,
        lookahead: float | Optimizer | Mapping[str, Tensor] = 0.0,
        sample: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """How far the net's tensors for these tasks are from those remembered: the sum of squares, mean over tasks.

        Args:
            lookahead: where to look. After the next step of this optimiser (SGD, Adam or AdamW, torch's or hyperfan's)
                along the gradients that the parameters hold now, which changes none of them; after a step of plain SGD
                with this learning rate, 0 for the net as it is; or after any other step, by parameter name.
            sample: look only at so many of the tasks, drawn without replacement, where they are many; the mean over
                these is expected to be that over all.
            generator: where their random numbers come from; by default torch's own.
        """
        if sample is not None and (not isinstance(sample, int) or sample < 1):
            raise CallError(f"drift(sample={sample!r}): give the number of tasks to look at, an integer from 1")
        if not self.tasks:
            return self.net.heads.scale.new_zeros(()).requires_grad_()  # so that it can go backward like any other
        net, steps = self.net, self._steps(lookahead)
        chosen, remembered = self._sample(sample, generator)
        ahead = {}
        for name, p in net.named_parameters():
            if name.startswith(("trunk.", "embeddings.identity")):
                ahead[f"net.{name}"] = p + steps[name] if name in steps else p
            elif name.startswith("embeddings."):
                ahead[f"net.{name}"] = p.detach()
        codes: Tensor = functional_call(self._codes, ahead, (chosen,))
        of_heads = {name.removeprefix("heads."): s for name, s in steps.items() if name.startswith("heads.")}
        tensors = net.heads(codes, copy=True, steps=of_heads)
        moved = [(tensor - remembered[name]).square().sum() for name, tensor in tensors.items()]
        return torch.stack(moved).sum() / len(chosen)

    def _sample(self, count: int | None, generator: torch.Generator | None) -> tuple[list[int], Mapping[str, Tensor]]:
        """A number of the tasks, or all, with what is remembered of them."""
        if count is None or count >= len(self.tasks):
            return self.tasks, self.remembered
        device = "cpu" if generator is None else generator.device
        picked = torch.randperm(len(self.tasks), generator=generator, device=device)[:count].tolist()
        return [self.tasks[i] for i in picked], {name: tensor[picked] for name, tensor in self.remembered.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """The tasks, and a copy of what is remembered of them: tensors by name, which share no memory."""
        tensors = {REMEMBERED + name: tensor.clone().contiguous() for name, tensor in self.remembered.items()}
        return {TASKS: torch.tensor(self.tasks, dtype=torch.long), **tensors}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Remember the tasks of a saved state in place of these; to resume, load it into ``Memory(net, tasks=[])``."""
        tasks: list[int] = state_dict[TASKS].tolist() if TASKS in state_dict else []
        saved = {name: list(tensor.shape) for name, tensor in state_dict.items()}
        wanted = {REMEMBERED + name: [len(tasks), *t.shape[1:]] for name, t in self.remembered.items()}
        wanted[TASKS] = [len(tasks)]
        for name in saved | wanted:
            if saved.get(name) != wanted.get(name):
                shapes = f"'{name}' is {saved.get(name, 'missing')} in it, and {wanted.get(name, 'unknown')} here"
                raise CheckpointError(f"this is not a memory of this net: {shapes}")
        known = self.net.embeddings.config.tasks
        if known is not None and max(tasks, default=0) >= known:
            tasks_of = f"it has task {max(tasks)}, and the net tasks 0 to {known - 1}"
            raise CheckpointError(f"this is not a memory of this net: {tasks_of}")
        self.tasks = tasks
        for name, tensor in self.remembered.items():
            self.remembered[name] = state_dict[REMEMBERED + name].to(tensor, copy=True)

    def _steps(self, lookahead: float | Optimizer | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        parameters = dict(self.net.named_parameters())
        if isinstance(lookahead, Mapping):
            for name in lookahead:
                if name not in parameters:
                    raise CallError(f"lookahead= names '{name}', which is no parameter: {nearest(name, parameters)}")
            return lookahead
        if not isinstance(lookahead, SupportsFloat):
            return _next_step(lookahead, parameters, _gradients(parameters))
        rate = float(lookahead)
        if rate == 0:
            return {}
        if rate < 0:
            raise CallError(f"lookahead={rate:g}: give the learning rate, which is positive, or 0")
        return {name: -rate * grad for name, grad in _gradients(parameters).items()}


def _gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradients that a net's parameters hold."""
    held = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
    if not any(name.startswith(("trunk.", "heads.")) for name in held):
        raise CallError(
            "lookahead= steps along the gradients of the new task's loss, and there are none yet: call its "
            "backward() before drift(), or pass lookahead=0"
        )
    return held


@torch.no_grad()
def _next_step(
    optimiser: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The step that an optimiser would take along these gradients: torch's own, of copies, one parameter at a time."""
    kind = optimiser.torch_class if isinstance(optimiser, HyperNetOptimiser) else type(optimiser)
    if kind not in (SGD, Adam, AdamW):
        raise CallError(
            f"lookahead= knows the next step of SGD, Adam and AdamW, not of {kind.__name__}: pass that step, as a "
            "mapping from parameter names to tensors"
        )
    # Codes that change with the task keep heads from being collapsed: hyperfan's state is torch's too.
    groups = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    steps = {}
    for name, gradient in gradients.items():
        p = parameters[name]
        if id(p) not in groups:
            continue
        ahead = p.detach().clone()
        ahead.grad = gradient.to_dense()
        # One tensor at a time torch leaves gradients as they are.
        group = {**groups[id(p)], "params": [ahead], "foreach": False, "fused": False, "differentiable": False}
        trial = kind([group])
        trial.state[ahead] = copy.deepcopy(optimiser.state.get(p, {}))
        inspect.unwrap(kind.step)(trial)  # without the hooks of all optimisers
        steps[name] = ahead - p
    if not steps:
        raise CallError("lookahead= is an optimiser of other parameters than this net's: pass the one that trains it")
    return steps


class _Codes(nn.Module):
    """A net as a function from tasks to codes, which ``functional_call`` can run with another trunk."""

    def __init__(self, net: HyperNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, tasks: list[int]) -> Tensor:
        chosen = torch.tensor(tasks, dtype=torch.long, device=self.net.heads.scale.device)
        return self.net.codes(task=chosen, noise=False)
