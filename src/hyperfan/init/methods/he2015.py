"""He, Zhang, Ren & Sun, *Delving Deep into Rectifiers*, ICCV 2015.

Xavier with a gain for the nonlinearity: 2/fan for ReLU. On a head the gain is that of the mainnet layer it makes;
layers of the trunk take the gain of the trunk's own nonlinearity.
"""

from hyperfan.init.classical import register_family

register_family("kaiming", "He, Zhang, Ren & Sun 2015", gained=True)
