r"""Power of the paired comparison of two subjects: before any response is seen.

Two subjects answer the same J items, in K clusters of m = J / K. Their difference of
mean responses is tested by Student's t with K - 1 degrees of freedom, as in
`ranking.accuracy`. With a variance v of the difference of two responses to one item,
and a correlation c of such differences within a cluster, the mean difference has error

    se^2 = v (1 + (m - 1) c) / J,                                                   (1)

and t has the noncentral distribution with delta / se (Cohen, Statistical Power
Analysis, chapter 2). Of right and wrong responses with accuracies p and q that
correlate by r, v = p (1 - p) + q (1 - q) - 2 r sqrt(p (1 - p) q (1 - q)): the variance
of McNemar's test under the alternative (Connor, Sample size for testing differences in
proportions for the paired-sample design, 1987). Two accuracies differ on a share of at
least |p - q| of the items, so v is at least |p - q| (1 - |p - q|).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr, stdtrit

#: Most items that are searched for.
MOST_ITEMS = 10**9
#: Gauss-Legendre nodes over the chance of the denominator of t. SciPy's noncentral t is
#: NaN in its tails.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)


class PairedDesign(NamedTuple):
    """What a paired comparison depends on, other than its items and its difference.

    Attributes:
        variance: Of the difference of two responses to one item; see (1).
        cluster_size: Items of a cluster; 1 where items are independent.
        cluster_correlation: Of the differences of two items of a cluster.
        clusters: Number of clusters where it is fixed, such as that of benchmarks: more
            items are then larger clusters. None where clusters have a fixed size.
    """

    variance: float
    cluster_size: float = 1.0
    cluster_correlation: float = 0.0
    clusters: int | None = None

    def size(self, items: float) -> float:
        """Items of a cluster among so many items."""
        if self.clusters is None:
            return self.cluster_size
        return max(items / self.clusters, 1.0)

    def factor(self, items: float) -> float:
        """By how much clusters multiply the variance of a mean over so many items."""
        return 1 + (self.size(items) - 1) * self.cluster_correlation

    def error(self, items: float) -> float:
        """Standard error of the mean difference over so many items; see (1).

        >>> designs = PairedDesign(0.25), PairedDesign(0.25, 4, 0.1)
        >>> [round(design.error(100), 3) for design in designs]
        [0.05, 0.057]
        """
        return float(np.sqrt(self.variance * self.factor(items) / items))

    def degrees(self, items: float) -> float:
        """Degrees of freedom of its t test."""
        return max(items / self.size(items) - 1, 1.0)


def paired_variance(first: float, second: float, correlation: float) -> float:
    """Variance of the difference of two right or wrong responses to an item.

    >>> round(paired_variance(0.7, 0.7, 0.5), 3), round(paired_variance(1.0, 0.4, 0), 2)
    (0.21, 0.24)
    """
    p, q = first * (1 - first), second * (1 - second)
    least = abs(first - second) * (1 - abs(first - second))
    return max(p + q - 2 * correlation * float(np.sqrt(p * q)), least)


def paired_power(
    design: PairedDesign, items: float, difference: float, level: float = 0.95
) -> float:
    """Chance that the paired test finds a difference significant at 1 - level.

    >>> round(paired_power(PairedDesign(0.21), 659, 0.05), 3)
    0.799
    """
    error, degrees = design.error(items), design.degrees(items)
    critical = float(stdtrit(degrees, 0.5 + level / 2))
    if error == 0:
        return float(difference != 0)
    shift = abs(difference) / error
    # The other end counts too: the level itself where there is no difference.
    return _above(critical, degrees, shift) + _above(critical, degrees, -shift)


def detectable_difference(
    design: PairedDesign, items: float, power: float = 0.8, level: float = 0.95
) -> float:
    """Smallest difference that the paired test finds with this power.

    >>> round(detectable_difference(PairedDesign(0.21), 659), 4)
    0.0501
    """
    low, high = 0.0, 1.0
    while paired_power(design, items, high, level) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = paired_power(design, items, middle, level) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def items_needed(
    design: PairedDesign, difference: float, power: float = 0.8, level: float = 0.95
) -> int | None:
    """Fewest items with which a difference is found with this power; None: too many.

    >>> items_needed(PairedDesign(0.21), 0.05)
    662
    """
    least = max(2, int(np.ceil(2 * design.cluster_size)), design.clusters or 0)
    if difference == 0:
        return None
    low, high = least - 1, least
    while paired_power(design, high, difference, level) < power:
        low, high = high, 2 * high
        if high > MOST_ITEMS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = paired_power(design, middle, difference, level) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _above(critical: float, degrees: float, shift: float) -> float:
    """P(t > critical) of a noncentral t: E P(normal + shift > critical s) over s."""
    chance = (1 + _NODES) / 2
    spread = np.sqrt(2 * gammaincinv(degrees / 2, chance) / degrees)
    return float(_WEIGHTS @ ndtr(shift - critical * spread) / 2)
