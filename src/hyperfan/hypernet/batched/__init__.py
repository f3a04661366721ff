"""The mainnet, run once for many samples with weights of their own, without vmap."""

from hyperfan.hypernet.batched import attention, control_flow, layers, losses, pointwise, recurrent, reductions, shapes
from hyperfan.hypernet.batched.checkpointed import SamplesCall
from hyperfan.hypernet.batched.mode import DisagreementError, MixingError, Samples, check_graph, check_outputs, see_all

__all__ = ["DisagreementError", "MixingError", "Samples", "SamplesCall", "check_graph", "check_outputs", "see_all"]

RULE_FILES = (attention, control_flow, layers, losses, pointwise, recurrent, reductions, shapes)
"""Imported for the rules that they register."""
