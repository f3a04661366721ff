"""What happens inside? Statistics of the mainnet's activations and gradients."""

from hyperfan.probe.scales import LayerScales, layer_scales

__all__ = ["LayerScales", "layer_scales"]
