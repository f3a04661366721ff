"""M3 of Chang et al.: Kaiming with the head scaled by 1/10, as in Ukai, Matsubara & Uehara, 2018."""

from hyperfan.init.classical import Head, Trunk
from hyperfan.init.registry import Method, register

register(
    Method(
        "m3",
        "Ukai, Matsubara & Uehara 2018",
        "Kaiming fan-in, the head scaled by 1/10",
        Head("fan-in", gained=True),
        {"factor": 0.1},
        trunk=Trunk("fan-in", gained=True),
    )
)
