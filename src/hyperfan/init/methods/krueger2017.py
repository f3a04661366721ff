"""M2 of Chang et al.: small random values, as in Krueger et al., *Bayesian Hypernetworks*, 2017.

Var(H) = std², whatever the shapes. How small is nowhere derived; 0.01 is a common choice, and a setting.
"""

from hyperfan.generators.aims import Aim
from hyperfan.init.registry import Method, Reading, register


def small_random(read: Reading, std: float = 0.01) -> Aim:
    """One variance for every head."""
    return Aim("Var(H) = std²", head=lambda fans: std**2)


register(
    Method(
        "m2",
        "Krueger et al. 2017",
        "small random values in every head",
        small_random,
        {"std": 0.01},
        needs_nonlinearity=False,
        needs_fans=False,
    )
)
