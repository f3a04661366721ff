"""The optimiser's state of a head that is sharded between processes, as a rule sees it: by shards, and in shards."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hyperfan.distributed.sharded import is_sharded_tensor
from hyperfan.generators.head_shards import local_shard, shard_like

Entry = MutableMapping[str, Any]


class ShardState(Mapping[Tensor, Entry]):
    """The state of some sharded parameters, by what this process has of them.

    Args:
        state: the optimiser's, by parameter; in it, moments are sharded as the parameters are.
        parameters: those that are sharded.
    """

    def __init__(self, state: Mapping[Tensor, Entry], parameters: Sequence[Tensor]) -> None:
        self._state = state
        self._parameters = {id(local_shard(p)): p for p in parameters}

    def __getitem__(self, mine: Tensor) -> Entry:
        parameter = self._parameters[id(mine)]
        return _ShardEntry(self._state[parameter], parameter)  # a new one, in an optimiser's state

    def __contains__(self, mine: object) -> bool:
        return self._parameters[id(mine)] in self._state

    def get(self, mine: Tensor, default: Any = None) -> Any:
        """The value of a key, as in a dict."""
        known = mine in self  # an optimiser's state makes an entry for what it is asked for
        return self[mine] if known else default

    def __iter__(self) -> Iterator[Tensor]:
        return (local_shard(p) for p in self._parameters.values() if p in self._state)

    def __len__(self) -> int:
        return sum(p in self._state for p in self._parameters.values())


class _ShardEntry(MutableMapping[str, Any]):
    def __init__(self, entry: Entry, parameter: Tensor) -> None:
        self._entry, self._parameter = entry, parameter

    def __getitem__(self, key: str) -> Any:
        value = self._entry[key]
        return local_shard(value) if isinstance(value, Tensor) and is_sharded_tensor(value) else value

    def __setitem__(self, key: str, value: Any) -> None:
        like = isinstance(value, torch.Tensor) and value.shape == local_shard(self._parameter).shape
        self._entry[key] = shard_like(self._parameter, value) if like else value

    def __delitem__(self, key: str) -> None:
        del self._entry[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry)

    def __len__(self) -> int:
        return len(self._entry)
