"""How does it start? A method turns a mainnet's spec into a printable :class:`Plan`; the hypernet writes it.

``hyperfan_{in,out}_{uniform,normal}_`` initialise a head of your own, beside ``torch.nn.init``.
"""

from hyperfan.codes.draw import Distribution
from hyperfan.generators.aims import Aim
from hyperfan.init import methods  # importing them registers them
from hyperfan.init.plan import Plan, Row
from hyperfan.init.registry import Fidelity, Method, Reading, available, method, register
from hyperfan.init.tensors import hyperfan_in_normal_, hyperfan_in_uniform_, hyperfan_out_normal_, hyperfan_out_uniform_

__all__ = [
    "Aim",
    "Distribution",
    "Fidelity",
    "Method",
    "Plan",
    "Reading",
    "Row",
    "available",
    "hyperfan_in_normal_",
    "hyperfan_in_uniform_",
    "hyperfan_out_normal_",
    "hyperfan_out_uniform_",
    "method",
    "methods",
    "register",
]
