"""The mainnet, run once for many samples with weights of their own, without vmap."""

# Imported for the rules that they register.
from hyperfan.hypernet.batched import attention, control_flow, layers, losses, pointwise, recurrent, reductions, shapes  # noqa: F401
from hyperfan.hypernet.batched.checkpointed import SamplesCall
from hyperfan.hypernet.batched.mode import DisagreementError, MixingError, Samples, check_graph, check_outputs, see_all

__all__ = ["DisagreementError", "MixingError", "Samples", "SamplesCall", "check_graph", "check_outputs", "see_all"]
