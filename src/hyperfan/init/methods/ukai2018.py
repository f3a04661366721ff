"""M3 of Chang et al.: Kaiming with the head scaled by 1/10, as in Ukai, Matsubara & Uehara, 2018."""

from hyperfan.init.classical import KAIMING_AIM, KAIMING_TRUNK
from hyperfan.init.registry import Method, register

register(
    Method(
        "m3",
        "Ukai, Matsubara & Uehara 2018",
        "Kaiming fan-in, the head scaled by 1/10",
        KAIMING_AIM,
        {"factor": 0.1},
        trunk=KAIMING_TRUNK,
    )
)
