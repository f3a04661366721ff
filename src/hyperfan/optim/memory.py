"""Learning task after task without forgetting: the output regulariser of von Oswald et al., *Continual learning with
hypernetworks*, ICLR 2020.

What the net makes for earlier tasks is kept from the moment before a new one, and later steps are held to it:
``beta / t · Σ_j ‖Θ*_j − h(e_j, θ + Δθ)‖²`` over the t tasks before, with Δθ the step that the new task's loss alone
would take.
"""

import warnings
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hyperfan.errors import CallError, HyperfanWarning, nearest
from hyperfan.hypernet import HyperNet


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
        (0.005 * memory.drift(lookahead=lr)).backward()
        optimiser.step()

    Only what is generated is remembered, so generate all that is trained. Gradients reach the trunk and the heads,
    never the tasks' embeddings. Those of all tasks are one parameter, so momentum, also Adam's, would go on moving
    earlier ones: make a new optimiser for each task, without weight decay on them.
    """

    def __init__(self, net: HyperNet, tasks: Iterable[int]) -> None:
        if not isinstance(net, HyperNet) or net.embeddings.config.tasks is None:
            raise CallError("this net has no tasks to remember: build a HyperNet with Embedding(…, tasks=…)")
        if isinstance(tasks, int):
            raise CallError(f"tasks={tasks}: name the tasks to remember, as in range({tasks}) for the first {tasks}")
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

    def drift(self, *, lookahead: float | Mapping[str, Tensor] = 0.0) -> Tensor:
        """How far the net's tensors for these tasks are from those remembered: the sum of squares, mean over tasks.

        Args:
            lookahead: where to look. The learning rate of a plain SGD step along the gradients that the parameters
                hold now, or any other step by parameter name; 0 looks at the net as it is.
        """
        if not self.tasks:
            return self.net.heads.scale.new_zeros(()).requires_grad_()  # so that it can go backward like any other
        net, steps, stored = self.net, self._steps(lookahead), self.net.embeddings.weight
        assert stored is not None
        before = {n: p for n, p in net.named_parameters() if n.startswith(("trunk.", "embeddings.identity"))}
        ahead = {f"net.{name}": p + steps[name] if name in steps else p for name, p in before.items()}
        ahead["net.embeddings.weight"] = stored.detach()
        codes: Tensor = functional_call(self._codes, ahead, (self.tasks,))
        of_heads = {name.removeprefix("heads."): s for name, s in steps.items() if name.startswith("heads.")}
        tensors = net.heads(codes, copy=True, steps=of_heads)
        moved = [(tensor - self.remembered[name]).square().sum() for name, tensor in tensors.items()]
        return torch.stack(moved).sum() / len(self.tasks)

    def _steps(self, lookahead: float | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        parameters = dict(self.net.named_parameters())
        if isinstance(lookahead, Mapping):
            for name in lookahead:
                if name not in parameters:
                    raise CallError(f"lookahead= names '{name}', which is no parameter: {nearest(name, parameters)}")
            return lookahead
        if lookahead == 0:
            return {}
        if lookahead < 0:
            raise CallError(f"lookahead={lookahead:g}: give the learning rate, which is positive, or 0")
        held = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        if not any(name.startswith(("trunk.", "heads.")) for name in held):
            raise CallError(
                "lookahead= steps along the gradients of the new task's loss, and there are none yet: call its "
                "backward() before drift(), or pass lookahead=0"
            )
        return {name: -lookahead * grad.detach() for name, grad in held.items()}


class _Codes(nn.Module):
    """A net as a function from tasks to codes, which ``functional_call`` can run with another trunk."""

    def __init__(self, net: HyperNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, tasks: list[int]) -> Tensor:
        chosen = torch.tensor(tasks, dtype=torch.long, device=self.net.heads.scale.device)
        return self.net.codes(task=chosen, noise=False)
