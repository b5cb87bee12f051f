r"""Agreement of raters beyond chance: Cohen's and Fleiss' kappa, Krippendorff's alpha.

With the observed agreement P and that by chance P_e,

.. math::

    \kappa = \frac{P - P_e}{1 - P_e}.

Cohen (1960, Educational and Psychological Measurement 20) has two raters, each with its
own shares of verdicts; Fleiss (1971, Psychological Bulletin 76) has many, whose shares
are pooled. Krippendorff's alpha compares disagreements, as one rater may have none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array


class PairAgreement(NamedTuple):
    """Agreement of each two raters, `[raters, raters]` each.

    Attributes:
        number: Units that both have rated.
        share: Share of these with the same verdict, NaN where there are none.
        kappa: Cohen's kappa; NaN also where both have one and the same verdict alone.
    """

    number: np.ndarray
    share: np.ndarray
    kappa: np.ndarray


def cohen_kappa(
    verdict: np.ndarray, rater: np.ndarray, unit: np.ndarray
) -> PairAgreement:
    """Cohen's kappa of each two raters, of verdicts 0 and 1.

    Args:
        verdict: `[ratings]` 0 or 1.
        rater: `[ratings]` whole numbers from 0.
        unit: `[ratings]` what is rated; a rater rates a unit once.

    >>> verdict, unit = np.array([1, 1, 0, 0, 1, 0, 0, 0]), np.tile(np.arange(4), 2)
    >>> float(cohen_kappa(verdict, np.repeat([0, 1], 4), unit).kappa[0, 1])
    0.5
    """
    shape = int(rater.max()) + 1, int(unit.max()) + 1
    rated = coo_array((np.ones(len(verdict)), (rater, unit)), shape).tocsr()
    right = coo_array((np.asarray(verdict, float), (rater, unit)), shape).tocsr()
    product = lambda one, other: np.asarray((one @ other.T).toarray())
    number, both, one = (
        product(*x) for x in ((rated, rated), (right, right), (right, rated))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        own, other = one / number, one.T / number
        share = (number - one - one.T + 2 * both) / number
        chance = own * other + (1 - own) * (1 - other)
        kappa = np.where(chance < 1, (share - chance) / (1 - chance), np.nan)
    return PairAgreement(number, share, kappa)


def fleiss_kappa(verdict: np.ndarray, unit: np.ndarray) -> float:
    """Fleiss' kappa of nominal verdicts.

    Units with one verdict do not count. Where numbers of verdicts differ between units,
    each unit has the same weight in P, and each verdict in P_e.

    >>> verdict = np.array([1, 1, 1, 0, 1, 0, 0, 0])  # P = 1/2 and P_e = 1/2.
    >>> fleiss_kappa(verdict, np.repeat(np.arange(4), 2))
    0.0
    """
    counts = _counts(verdict, unit)
    size = counts.sum(axis=1)
    if not counts.size or np.count_nonzero(counts.sum(axis=0)) < 2:
        return float("nan")
    share = np.mean(np.sum(counts * (counts - 1), axis=1) / (size * (size - 1)))
    chance = np.sum((counts.sum(axis=0) / size.sum()) ** 2)
    return float((share - chance) / (1 - chance))


def krippendorff_alpha(verdict: np.ndarray, unit: np.ndarray) -> float:
    """Krippendorff's alpha of nominal verdicts: 1 - observed / expected disagreement.

    Units with one verdict do not count. The example is that of Krippendorff (2011,
    Computing Krippendorff's alpha-reliability, A).

    >>> one, other = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    >>> round(krippendorff_alpha(np.array(one + other), np.tile(np.arange(10), 2)), 3)
    0.095
    """
    counts = _counts(verdict, unit)
    size, total = counts.sum(axis=1), counts.sum()
    by_value = counts.sum(axis=0)
    expected = (total**2 - np.sum(by_value**2)) / (total - 1) if total > 1 else 0.0
    if not expected:
        return float("nan")
    observed = np.sum((size**2 - np.sum(counts**2, axis=1)) / (size - 1))
    return float(1 - observed / expected)


def _counts(verdict: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Numbers of each verdict on each unit with two or more, `[units, verdicts]`."""
    values, value = np.unique(verdict, return_inverse=True)
    units, place = np.unique(unit, return_inverse=True)
    counts = np.zeros((len(units), len(values)))
    np.add.at(counts, (place.reshape(-1), value.reshape(-1)), 1)
    return counts[counts.sum(axis=1) > 1]
