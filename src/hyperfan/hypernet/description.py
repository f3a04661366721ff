"""What a hypernet says of itself, in a line."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def summary(net: "HyperNet") -> str:
    """A hypernet in a line: what is generated, by which heads, and how it starts."""
    values = sum(t.numel for t in net.generated)
    share = "" if net.share == 1 or net.heads.config.updates_base else f", share={net.share:g}"
    return (
        f"generates {len(net.generated)} of {len(net.spec)} tensors ({values:,} values) of "
        f"{type(net.skeleton.module).__name__}, d_k={net.heads.head_width}, {net.heads.summary()}, "
        f"init={net.init} ({net.fidelity}, {net.distribution}){share}"
    )


def trainable_parameters(net: "HyperNet") -> str:
    """How many parameters are trained, and how many the mainnet has."""
    parameters = list(net.parameters())
    trained, stored = sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)
    main, generated = sum(t.numel for t in net.spec), sum(t.numel for t in net.generated)
    return f"trainable parameters: {trained:,} of {stored:,} | mainnet: {main:,}, of which generated: {generated:,}"
