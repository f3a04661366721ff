"""What variance? The equations of the paper and of what goes beyond it: floats in, floats out, no torch.

A *method* decides the variance ``v`` that each generated tensor should have (:mod:`targets`), from how many
values a layer sums (:mod:`fans`) and what its nonlinearity does to the scale (:mod:`gains`). The *generator*
reaches it: ``Var(H) = v / ‖h‖²`` (:mod:`contraction`).
"""

from hyperfan.formulas.fans import Fans
from hyperfan.formulas.gains import VARIANCES, GainCurve, Gains

__all__ = ["VARIANCES", "Fans", "GainCurve", "Gains"]
