"""Random numbers: a generator for each purpose, so that changing one does not shift the others."""

import hashlib

import torch


def generator(seed: int, *purpose: object) -> torch.Generator:
    """The generator of a seed for a purpose. It depends on nothing else: no state needs to be saved to go on.

    >>> first = torch.rand(1, generator=generator(3, "order", 0))
    >>> bool(first == torch.rand(1, generator=generator(3, "order", 0)))
    True
    >>> bool(first == torch.rand(1, generator=generator(3, "order", 1)))
    False
    """
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def derived_seed(seed: int, *purpose: object) -> int:
    """The number that such a generator is seeded with; for torch's global generator, where a module draws from that."""
    words = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.sha256(words.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
