"""The mainnet, run once for many samples with weights of their own, without vmap."""

from hyperfan.hypernet.batched import control_flow, layers, pointwise, recurrent, reductions, shapes
from hyperfan.hypernet.batched.checkpointed import SamplesCall
from hyperfan.hypernet.batched.mode import DisagreementError, MixingError, Samples, check_graph, check_outputs, see_all

__all__ = ["DisagreementError", "MixingError", "Samples", "SamplesCall", "check_graph", "check_outputs", "see_all"]

RULE_FILES = (control_flow, layers, pointwise, recurrent, reductions, shapes)
"""Imported for the rules that they register."""
