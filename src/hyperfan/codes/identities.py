"""Identities: which tensor, chunk or rank is wanted, as stored vectors beside a condition.

Each code may have a vector of its own, or one that is joined of several: of its repeated layer, of the module in it,
and of its rank, each of which other codes have too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from hyperfan.codes.embedding import CODE, Embedding, IdentityPart
from hyperfan.errors import HyperfanError
from hyperfan.mainnet.spec import TensorSpec, layer_and_module


@dataclass(frozen=True)
class Identity:
    """Vectors that tell codes apart, or a part of that.

    Args:
        name: of the table that holds them.
        config: how they are drawn, and whether they are trained.
        rows: the row of each code in the table.
    """

    name: str
    config: Embedding
    rows: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of vectors of an identity."""
        return max(self.rows) + 1

    def of_codes(self, table: Tensor) -> Tensor:
        """The vector of each code, (n, size)."""
        if len(self.rows) == self.count:  # then they are in order
            return table
        return table.index_select(0, torch.tensor(self.rows, device=table.device))

    def has(self, codes: Tensor) -> Tensor:
        """Which vectors belong to codes that a mask names, (count, 1)."""
        found = torch.zeros(self.count, dtype=torch.bool, device=codes.device)
        return found.index_fill(0, torch.tensor(self.rows, device=codes.device)[codes], True).unsqueeze(1)


def read_identities(
    configs: Mapping[str, Embedding],
    tensors: Sequence[TensorSpec],
    spans: Sequence[slice],
    n: int,
    exclusive: bool,
    shared: Sequence[Sequence[slice]],
) -> list[Identity]:
    """The identities of n codes.

    Args:
        configs: by what has one, as :attr:`Embedding.identities` says.
        tensors: what is generated.
        spans: the codes of each tensor, which are ``exclusive`` if each belongs to one tensor.
        shared: codes that one head reads, which must differ.
    """
    if not configs or CODE in configs:
        return [Identity("identity", config, tuple(range(n))) for config in configs.values()]
    if not exclusive:
        raise HyperfanError(
            "a code may serve several tensors, as that of a flat chunk: it has no layer and module, so use identity=8"
        )
    if "rank" in configs and n == len(tensors):
        raise HyperfanError(
            "identity= has a 'rank', but each tensor has one code: leave 'rank' out, or use code_per='rank' with a "
            "rank above 1"
        )
    keys: dict[str, list[object]] = {part: [None] * n for part in configs}
    owner = [""] * n
    for t, span in zip(tensors, spans, strict=True):
        layer, module = layer_and_module(t.name)
        for rank, code in enumerate(range(span.start, span.stop)):
            owner[code] = t.name
            for part, key in (("layer", layer), ("module", module), ("rank", rank)):
                if part in keys:
                    keys[part][code] = key
    every = list(zip(*keys.values(), strict=True))
    for spans_of_head in shared:
        first: dict[object, int] = {}
        for code in (code for span in spans_of_head for code in range(span.start, span.stop)):
            other = first.setdefault(every[code], code)
            if other != code:
                whose = "ranks or chunks" if owner[other] == owner[code] else f"'{owner[other]}' and '{owner[code]}'"
                at = f" of '{owner[code]}'" if owner[other] == owner[code] else ""
                missing = ", ".join(f"'{part}'" for part in get_args(IdentityPart) if part not in configs)
                raise HyperfanError(
                    f"identity={sorted(configs)} gives {whose}{at} the same code, and one head makes both, so that "
                    f"they would be equal: add what tells them apart ({missing}), or use identity=8, one for each"
                )
    found = []
    for part, config in configs.items():
        number = {key: i for i, key in enumerate(dict.fromkeys(keys[part]))}
        found.append(Identity(f"identity_{part}", config, tuple(number[key] for key in keys[part])))
    return found
