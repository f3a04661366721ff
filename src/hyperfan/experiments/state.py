"""States of several parts as one, as a checkpoint holds them: the names of each part's tensors have its prefix."""

from collections.abc import Mapping

from torch import Tensor


def join_states(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The states of all parts, by their prefixes."""
    return {f"{prefix}{name}": t for prefix, state in parts.items() for name, t in state.items()}


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The state of the part with this prefix."""
    return {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}
