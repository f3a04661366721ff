"""Student's t: how far a mean of few values may be from the truth."""

# Quantile 0.975 for 1 to 30 degrees of freedom.
_TABLE = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_QUANTILE = 1.959964
"""Quantile 0.975 of the normal distribution."""


def student_quantile(freedom: int) -> float:
    """Quantile 0.975 of Student's t, for 95 % intervals: from a table, then by its expansion in 1/freedom.

    >>> [round(student_quantile(n), 3) for n in (1, 3, 30, 31, 100)]
    [12.706, 3.182, 2.042, 2.04, 1.984]
    """
    if freedom <= len(_TABLE):
        return _TABLE[freedom - 1]
    z = NORMAL_QUANTILE
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
