"""One run of the mainnet for n samples: what differs between them has a first dimension n, hidden from it.

The mainnet's code sees one sample. A tensor that it calls (1, 6) is stored as (n, 1, 6) and marked, and a mode of torch
hands every function to a rule that runs it for all samples at once: ``x.flatten(1)`` as ``x.flatten(2)``, a linear
layer with weights of each sample's own as ``torch.baddbmm``. This is what vmap does, at a fraction of its cost per
function. A function without a rule, or used in a way that its rule does not know, raises :class:`MixingError`; the
caller then takes vmap. Tensors without the mark are the same for all samples.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hyperfan.generators.stand_in import StandIn
from hyperfan.hypernet.objects import VALUES, Copies, Kept, in_objects
from hyperfan.mainnet.checkpointing import Reentrant

Rule = Callable[..., Any]
"""Runs a function for all samples: called with the mode, the function and its arguments."""
RULES: dict[Any, Rule] = {}
LAZY_RULES: dict[Any, Rule] = {}
"""Rules of layers that may run from the codes of their weights; they return ``None`` if they do not."""
MARK, WEIGHTS = "_hyperfan_samples", "_hyperfan_weights"
PLAIN = (Tensor, nn.Parameter, nn.Buffer)


class MixingError(BaseException):
    """A function of torch is not known to act on each sample by itself. Not for a mainnet's ``except Exception``."""


class DisagreementError(BaseException):
    """The mainnet's code asks for a value in which samples differ.

    Args:
        same: (n,), those that have the value of the first.
    """

    def __init__(self, same: Tensor) -> None:
        super().__init__("samples differ in a value that the mainnet's code asks for")
        self.same = same.cpu()


class Samples(TorchFunctionMode):
    """Where it is entered, functions of torch run for n samples at once.

    Args:
        n: number of samples.
        held: returns the tensors that are not of this run: the mainnet's, and inputs that samples share.
    """

    def __init__(self, n: int, held: Callable[[], Iterable[Tensor]] = tuple) -> None:
        super().__init__()
        self.n = n
        self._held = held
        self._storages: set[int] | None = None
        self.in_rule = 0
        """Depth of rules that run now: what torch computes in none of them is not seen."""
        self._entered = False
        self.without_grad = False
        """Whether something that differs between samples was computed where no gradients are taken, as it is in
        the forward pass of an autograd function."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the mode, unless this was done already; rules, which run without it, enter it as it is."""
        if self._entered:
            yield
            return
        self._entered = True
        try:
            with self:
                yield
        finally:
            self._entered = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch by its rule."""
        rule = RULES.get(func)
        if rule is None or (kwargs and kwargs.pop("out", None) is not None):
            refuse(func)
        self.in_rule += 1
        try:
            for kind in types:
                if kind not in PLAIN:
                    return self._run_special(rule, kind, func, args, kwargs or {})
            return rule(self, func, *args, **kwargs) if kwargs else rule(self, func, *args)
        finally:
            self.in_rule -= 1

    def _run_special(self, rule: Rule, kind: type, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a function on stand-ins of weights; it is refused for other subclasses of tensors."""
        if not issubclass(kind, StandIn):
            refuse(func)
        lazy = LAZY_RULES.get(func)
        made = None if lazy is None else lazy(self, func, *args, **kwargs)
        if made is not None:
            return made
        return rule(self, func, *self.weights(args), **{name: self.weights(x) for name, x in kwargs.items()})

    def is_held(self, x: Tensor) -> bool:
        """Whether a tensor that is the same for all samples was there before the run."""
        if self._storages is None:
            with torch._C.DisableTorchFunction():
                tensors = [t for t in self._held() if not isinstance(t, StandIn)]  # which have no values
                self._storages = {t.untyped_storage().data_ptr() for t in tensors}
        return x.untyped_storage().data_ptr() in self._storages

    def has(self, x: Any) -> bool:
        """Whether something is a tensor that differs between samples."""
        return getattr(x, MARK, None) is self

    def mark(self, made: Any) -> Any:
        """Note that a tensor, or each of several, has a first dimension of samples."""
        if not torch.is_grad_enabled():
            self.without_grad = True
        if isinstance(made, Tensor):
            setattr(made, MARK, self)
        else:
            for x in made:
                setattr(x, MARK, self)
        return made

    def ndim(self, x: Tensor) -> int:
        """Number of dimensions of one sample's tensor."""
        return x.ndim - 1 if self.has(x) else x.ndim

    def shape(self, x: Tensor) -> torch.Size:
        """Shape of one sample's tensor."""
        return x.shape[1:] if self.has(x) else x.shape

    def batched(self, x: Tensor) -> Tensor:
        """A tensor with the dimension of samples, of stride 0 if it is the same for all."""
        return x if self.has(x) else x.expand(self.n, *x.shape)

    def weights(self, x: Any) -> Any:
        """Weights in place of their stand-ins."""
        if isinstance(x, StandIn):
            made = getattr(x, WEIGHTS, None)
            if made is None or (torch.is_grad_enabled() and not made.requires_grad):  # made where none are taken
                made = self.mark(x.make())
                setattr(x, WEIGHTS, made)
            return made
        return type(x)(map(self.weights, x)) if type(x) in (list, tuple) else x

    def unmarked(self, x: Tensor) -> Tensor:
        """A tensor with the dimension of samples, for use outside of the mode."""
        if self.has(x):
            return x.view_as(x)  # without the mark, which a tensor that the mainnet holds keeps
        return x.expand(self.n, *x.shape)

    def dim(self, x: Tensor, dim: Any) -> Any:
        """Where a dimension of one sample's tensor, or several, is in the stored one."""
        if isinstance(dim, (tuple, list)):
            if not dim:
                raise MixingError("an empty tuple of dimensions")  # torch would take all, that of the samples too
            return tuple(self.dim(x, d) for d in dim)
        nd = x.ndim - 1
        if not isinstance(dim, int) or isinstance(dim, bool) or not -nd <= dim < nd:
            raise MixingError(f"a dimension {dim!r}")
        return dim + 1 if dim >= 0 else dim

    def any(self, args: Iterable[Any]) -> bool:
        """Whether something among these, or in lists of them, differs between samples."""
        return any(self.any(x) if isinstance(x, (list, tuple)) else self.has(x) for x in args)


class _Unseen(TorchDispatchMode):
    """Raises where torch computes something that no rule ran, as in scripted code."""

    samples: Samples
    refused: MixingError | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch if a rule calls it."""
        if not self.samples.in_rule:
            self.refused = MixingError(str(func))
            raise self.refused
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def see_all(samples: Samples) -> Iterator[None]:
    """Enter the mode, and raise where torch computes something that no rule runs, as in scripted code."""
    unseen = _Unseen()
    unseen.samples = samples
    try:
        with unseen, samples.entered():
            yield
    finally:
        if unseen.refused is not None:  # of which scripted code makes an error of its own
            raise unseen.refused


def check_graph(outputs: Any, sources: Iterable[Any]) -> None:
    """Raise if a function of autograd that is not torch's own lies between sources and outputs.

    Its backward pass will run without the mode.
    """
    known: set[Any] = {None, *(x.grad_fn for x in sources if type(x) is Tensor)}
    waiting: list[Any] = [x.grad_fn for x in pytree.tree_leaves(outputs) if isinstance(x, Tensor)]
    kinds = {}
    while waiting:
        node = waiting.pop()
        if node not in known:
            known.add(node)
            kinds[type(node)] = node
            waiting += [before for before, _ in node.next_functions]
    for kind, node in kinds.items():
        if issubclass(kind, torch.autograd.function.BackwardCFunction) and not _is_of_hyperfan(node):
            raise MixingError(f"the autograd function {kind.__name__.removesuffix('Backward')}")


def check_outputs(outputs: Any) -> None:
    """Raise if tensors may hide in something of an unknown class, and are not found in it."""
    if isinstance(outputs, Tensor):
        return
    for x in pytree.tree_leaves(outputs):
        if not isinstance(x, (Tensor, Kept, Copies, *VALUES)) and not in_objects(x):
            raise MixingError(f"an output of class {type(x).__name__}")


def _is_of_hyperfan(node: Any) -> bool:
    """Whether a node of the graph is of an autograd function of this library."""
    function = type(node)._forward_cls
    return function is Reentrant or function.__module__.startswith("hyperfan.")


def rule(*functions: Any, rules: dict[Any, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Register the rule of some functions."""

    def register(run: Rule) -> Rule:
        rules.update(dict.fromkeys(functions, run))
        return run

    return register


def named(names: str, *owners: Any) -> list[Any]:
    """The functions of these names that torch has, in any of these places."""
    return [f for name in names.split() for owner in owners if (f := getattr(owner, name, None)) is not None]


def getters(names: str) -> list[Any]:
    """The functions by which torch reads these properties of a tensor, as far as it has them."""
    return [f.__get__ for f in named(names, Tensor)]


def refuse(func: Any) -> NoReturn:
    """Raise for a function that cannot be run for all samples at once."""
    raise MixingError(str(getattr(func, "__qualname__", getattr(func, "__name__", func))))
