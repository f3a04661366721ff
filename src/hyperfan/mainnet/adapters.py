"""Adapters of the PEFT library, known by the names that their parameters have in its files.

They change a frozen model, and start as no change: LoRA's B at 0, IA³'s gains at 1. The magnitudes of DoRA are norms of
the model's weights, which no draw gives, and stay as they are.
"""

from dataclasses import replace

from hyperfan.mainnet.spec import TensorSpec


def with_start(t: TensorSpec) -> TensorSpec:
    """A parameter of an adapter as it starts; any other as it is.

    >>> import torch
    >>> b = TensorSpec("q.lora_B.default.weight", (6, 2), torch.float32, "weight", "q.lora_B.default", "Linear")
    >>> with_start(b).start
    0.0
    """
    parts = t.name.split(".")
    if is_low_rank(t) and "lora_B" in parts:
        return replace(t, start=0.0)
    if "ia3_l" in parts:
        return replace(t, role="scale", start=1.0)
    return replace(t, hand_set=True) if is_magnitude(t) else t


def is_magnitude(t: TensorSpec) -> bool:
    """Whether a parameter holds magnitudes of DoRA, the norms of a frozen weight's rows."""
    return "lora_magnitude_vector" in t.name.split(".")


def is_low_rank(t: TensorSpec) -> bool:
    """Whether a parameter is a factor of LoRA."""
    return t.role == "weight" and not {"lora_A", "lora_B"}.isdisjoint(t.name.split("."))
