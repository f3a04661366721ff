"""``Skeleton``: a copy of the mainnet that lacks some or all of its values, called with tensors given at the call."""

import contextlib
import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from hyperfan.errors import CallError, nearest
from hyperfan.mainnet.binding import Binding, no_place
from hyperfan.mainnet.chain import Chain, LinearFunction, read_chain
from hyperfan.mainnet.checkpointing import MainnetCall, Rerunning
from hyperfan.mainnet.places import Place, Places


class Skeleton:
    """A copy of a module that runs with the tensors it is given.

    At first it has no memory: all its tensors are on the meta device. After :meth:`hold` it has some of its own, and
    only the others must be given. Not an ``nn.Module``, so that whoever holds it does not register its parameters.
    ``functional_call`` accepts wrong shapes silently and runs on tensors left on the meta device; this checks names,
    shapes, dtypes and devices.
    """

    def __init__(self, module: nn.Module) -> None:
        memo: dict[int, Any] = {}
        names: dict[int, str] = {}
        self.aliases: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        named = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
        for name, tensor in itertools.chain(*named):
            if id(tensor) in names:
                self.aliases[name] = names[id(tensor)]
                continue
            names[id(tensor)] = name
            empty = torch.empty_like(tensor, device="meta", requires_grad=False)
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = self.tensors[name] = empty
        self.module = duplicate(module, memo)
        self.kinds = {path: type(m).__name__ for path, m in module.named_modules()}
        """The classes of the module and its submodules, by path."""
        self._lent: dict[str, int] = {}
        self.held: set[str] = set()
        """Names of the tensors that are held from call to call."""
        self.run_layers_in()
        self._expected = [(name, empty.shape, empty.dtype) for name, empty in self.tensors.items()]
        self._places = Places(self.module, {**{name: name for name in self.tensors}, **self.aliases})
        self._chain: tuple[int, Chain | None] | None = None
        """The mainnet's chain, with the arrangement that it was read in."""
        self.repeated = {path: name for path, name in self.aliases.items() if path not in self._places.now()}
        """Tensors of layers that have two paths: the second path of each, and its name."""

    def run_layers_in(
        self,
        mode: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        linear: LinearFunction = F.linear,
    ) -> None:
        """Let layers run in a mode, by default in none, and linear layers of a chain, which needs no mode, by this."""
        self.mode, self.linear = mode, linear

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The module and its submodules, by path."""
        self._places.now()
        return self._places.modules

    def state(self) -> tuple[Any, ...]:
        """What the functions that the module calls may depend on: its layers, and which are in training.

        As of the last look at :attr:`modules`.
        """
        training = tuple([m.training for m in self._places.modules.values()])
        return self._places.arrangement, training

    def present(self) -> list[Tensor]:
        """The tensors in the module now: parameters, buffers, and attributes."""
        stores = [d for m in self.modules.values() for d in (m._parameters, m._buffers, vars(m))]
        return [t for d in stores for t in d.values() if isinstance(t, Tensor)]

    def hold(self, values: Mapping[str, Tensor]) -> None:
        """Hold these in their places; in those of other tensors, and in second ones, is ``None``.

        Frozen parameters are held as they are, and others as copies.
        """
        self.held = set(values)
        frozen: dict[str, Tensor] = {}
        for path, (owner, store, local, _) in self._places.now().items():
            value = values.get(path)
            place = getattr(owner, store)
            if value is None:
                place[local] = None
            elif store == "_parameters":
                copied = value.requires_grad or value.is_meta
                place[local] = nn.Parameter(value.detach().clone() if copied else value.detach(), value.requires_grad)
                frozen |= {} if copied else {path: value}
            else:
                place[local] = value.detach().clone()
        self.lend(frozen)

    def lend(self, frozen: Mapping[str, Tensor]) -> None:
        """Note which parameters are held as their owner has them."""
        self._lent = {name: value._version for name, value in frozen.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Skeleton":
        """A copy that knows which parameters are as their owner has them, though torch counts its changes anew."""
        made = memo[id(self)] = object.__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        places, lent = made._places.now(), self.lent_parameters()
        made.lend({name: found for name in lent if (found := places[name].tensor) is not None})
        return made

    def lent_parameters(self) -> dict[str, nn.Parameter]:
        """The lent parameters that were not written to since, and are still frozen."""
        now = {name: place.tensor for name, place in self._places.now().items() if name in self._lent}
        return {
            name: p
            for name, p in now.items()
            if isinstance(p, nn.Parameter) and not p.requires_grad and p._version == self._lent[name]
        }

    def __call__(self, tensors: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the mainnet with these parameters and buffers, one for each name that is not held (tied ones once)."""
        places = self._places.now()
        if not self._fits(tensors, places):
            self._check(tensors, places)
        if torch.compiler.is_compiling():
            return functional_call(self.module, self._by_path(tensors), args, kwargs, tie_weights=False)
        chain = None if kwargs or len(args) != 1 else self.chain()
        if chain is not None:
            return chain.run(tensors, args[0], self.linear)
        if self.mode is contextlib.nullcontext:  # which takes time to enter
            return self._run(tensors, places, args, kwargs)
        with self.mode():
            return self._run(tensors, places, args, kwargs)

    def chain(self) -> Chain | None:
        """The mainnet as a chain of layers, if it is one that can run without calling its modules.

        As of the last look at :attr:`modules`.
        """
        now = self._places.arrangement
        if self._chain is None or self._chain[0] != now:
            self._chain = now, None if self.aliases else read_chain(self.module, self.tensors)
        chain = self._chain[1]
        return chain if chain is not None and chain.holds() else None

    def call(self, tensors: Mapping[str, Tensor], call: MainnetCall, args: Any, kwargs: Any) -> Any:
        """Run the mainnet without a check, in no mode but the caller's, who says how layers run again."""
        with self.bound(tensors), Rerunning(call):
            return self.module(*args, **kwargs)

    def _run(self, tensors: Mapping[str, Tensor], places: Mapping[str, Place], args: Any, kwargs: Any) -> Any:
        """What functional_call does, in less time; checkpoints in the mainnet find the tensors again."""
        seconds, recurrent = self._places.seconds, self._places.recurrent
        with Binding(places, seconds, recurrent, tensors), Rerunning(MainnetCall(tensors, self.bound)):
            return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def running(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """A context in which the module, its layers and its methods can be called with these tensors."""
        with self.mode(), self.bound(tensors), Rerunning(MainnetCall(tensors, self.bound)):
            yield

    def bound(self, tensors: Mapping[str, Tensor]) -> Binding:
        """A context in which the module has these tensors."""
        return Binding(self._places.now(), self._places.seconds, self._places.recurrent, tensors)

    def _by_path(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Tensors for the places that are to be filled: those given, and second places of what is held."""
        places = self._places.now()
        return {
            path: tensors[place.name] if place.name in tensors else places[place.name].tensor
            for path, place in places.items()
            if place.name in tensors or path != place.name
        }

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise unless every name has a tensor, given or held, of the right shape and dtype, all on one device."""
        self._check(tensors, self._places.now())

    def _fits(self, tensors: Mapping[str, Tensor], places: Mapping[str, Place]) -> bool:
        """Whether every place, and no other, has a tensor of its shape, all on one device and in the mainnet's dtypes.

        As mostly; otherwise :meth:`_check` takes a closer look.
        """
        device: torch.device | None = None
        for name, shape, kind in self._expected:
            place, given = places.get(name), tensors.get(name)
            if place is None:
                return False
            if given is None and name in self.held:
                given = place.owner.__dict__[place.store][place.local]
            if given is None or given.shape != shape or given.dtype is not kind:
                return False
            if device is None:
                device = given.device
            elif given.device != device:
                return False
        return tensors.keys() <= self.tensors.keys()

    def _check(self, tensors: Mapping[str, Tensor], places: Mapping[str, Place]) -> None:
        for name in tensors:
            if name not in self.tensors:
                known = nearest(name, self.tensors)
                raise CallError(f"'{name}' was given, but the mainnet has no parameter or buffer of that name: {known}")
        dtypes: dict[torch.dtype, tuple[str, torch.dtype]] = {}
        device: tuple[str, torch.device] | None = None
        for name, shape, kind in self._expected:
            given = tensors.get(name)
            if name not in places and name not in self.held:
                no_place(name)
            if given is None:
                if name not in self.held:
                    raise CallError(f"'{name}' is missing: the mainnet needs a tensor of shape {tuple(shape)} for it")
                given = places[name].tensor if name in places else None
                if given is None:  # changed by its owner, as by a parametrization
                    continue
            if given.shape != shape:
                raise CallError(
                    f"'{name}' has shape {tuple(given.shape)}, the mainnet needs {tuple(shape)}"
                    + _hint(tuple(given.shape), tuple(shape))
                )
            first, dtype = dtypes.setdefault(kind, (name, given.dtype))
            if given.dtype != dtype and not torch.is_autocast_enabled(given.device.type):
                raise CallError(
                    f"'{name}' is {given.dtype} while '{first}' is {dtype}, and both are {kind} in the "
                    f"mainnet: convert one with .to(torch.{str(dtype).removeprefix('torch.')})"
                )
            device = device or (name, given.device)
            if given.device != device[1]:
                raise CallError(
                    f"'{name}' is on {given.device} while '{device[0]}' is on {device[1]}: "
                    f"move all of them with .to('{device[1]}')"
                )

    def materialise(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Make an ordinary module that owns copies of these tensors and of those held; ties stay ties."""
        self.check(tensors)
        places = self._places.now()
        real: dict[str, Tensor] = {}
        for name, empty in self.tensors.items():
            value = tensors[name] if name in tensors else places[name].tensor if name in places else None
            if value is not None:
                real[name] = value.detach().clone()
                if isinstance(empty, nn.Parameter):
                    real[name] = nn.Parameter(real[name], requires_grad=empty.requires_grad)
        with self.bound(real):
            return duplicate(self.module, {id(value): value for value in real.values()})


def duplicate(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Copy a module, with the tensors in ``memo`` in place of their originals.

    A weight that a hook computes from a parameter (pruning, old-style weight norm) is no leaf, and torch does not copy
    it; the hook computes it anew.
    """
    for value in (value for m in module.modules() for value in vars(m).values()):
        if isinstance(value, Tensor) and not value.is_leaf:
            memo[id(value)] = value.detach()
        elif type(value) is OrderedDict and not value:  # of hooks, ten in each module: most of what deepcopy would do
            memo[id(value)] = OrderedDict()
    return copy.deepcopy(module, memo)


def _hint(given: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if given == expected[::-1] and len(given) > 1:
        return ": it looks transposed, torch keeps (out, in)"
    if torch.Size(given).numel() == torch.Size(expected).numel():
        return f": the number of values fits, so .reshape({expected}) mends it"
    return ""
