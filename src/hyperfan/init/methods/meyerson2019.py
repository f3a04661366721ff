"""M4 of Chang et al.: Kaiming with a constant embedding, as in Meyerson & Miikkulainen, 2019.

With e = fan_in^(−1/2) in every coordinate and Var(H) = gain/d_k, Var(W) = d_k·Var(H)·e² = gain/fan_in: the right
scale, bought by giving up the choice of the embedding.
"""

from hyperfan.init.classical import KAIMING_AIM, KAIMING_TRUNK
from hyperfan.init.registry import Method, Reading, register


def _constant(read: Reading) -> float:
    return float(read.fan_in**-0.5)


register(
    Method(
        "m4",
        "Meyerson & Miikkulainen 2019",
        "Kaiming fan-in, embeddings set to the constant fan_in^(−1/2)",
        KAIMING_AIM,
        trunk=KAIMING_TRUNK,
        embedding=_constant,
    )
)
