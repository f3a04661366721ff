"""A hypernet in a line: what it generates, how it starts, how much of it is trained."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


def describe(net: "HyperNet") -> str:
    """What is generated, by which heads, and how it starts."""
    values = sum(t.numel for t in net.generated)
    return (
        f"generates {len(net.generated)} of {len(net.spec)} tensors ({values:,} values) of "
        f"{type(net.skeleton.module).__name__}, d_k={net.heads.head_width}, {net.heads.summary()}, "
        f"init={net.init} ({net.fidelity}, {net.distribution})"
    )


def trainable_parameters(net: "HyperNet") -> str:
    """How many parameters are trained, and how many the mainnet has."""
    trained = sum(p.numel() for p in net.parameters() if p.requires_grad)
    stored = sum(p.numel() for p in net.parameters())
    main, generated = (sum(t.numel for t in tensors) for tensors in (net.spec, net.generated))
    return f"trainable parameters: {trained:,} of {stored:,} | mainnet: {main:,}, of which generated: {generated:,}"
