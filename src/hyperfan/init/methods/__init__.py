"""The init methods, one file per paper. Importing a file registers its methods.

Two files register none: ``charakorn2025`` and ``oswald2020`` say which settings of hyperfan their starts are.
"""

from hyperfan.init.methods import (
    auddy2024,
    beck2022,
    chang2020,
    glorot2010,
    he2015,
    knyazev2021,
    krueger2017,
    meyerson2019,
    ortiz2023,
    sitzmann2020,
    ukai2018,
)

__all__ = [
    "auddy2024",
    "beck2022",
    "chang2020",
    "glorot2010",
    "he2015",
    "knyazev2021",
    "krueger2017",
    "meyerson2019",
    "ortiz2023",
    "sitzmann2020",
    "ukai2018",
]
