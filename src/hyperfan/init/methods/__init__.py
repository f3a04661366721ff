"""The init methods, one file per paper. Importing a file registers its methods."""

from hyperfan.init.methods import auddy2024, chang2020, glorot2010, he2015, krueger2017, meyerson2019, ukai2018

__all__ = ["auddy2024", "chang2020", "glorot2010", "he2015", "krueger2017", "meyerson2019", "ukai2018"]
