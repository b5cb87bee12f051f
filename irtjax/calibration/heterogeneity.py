r"""How much discriminations differ, and whether ability ranks as accuracy does.

If all items discriminate equally, abilities have the order of accuracies. The paper on
cBMM (4.4) compares benchmarks by the coefficient of variation of the estimated
discriminations, sd / mean. Estimates vary by chance too, and priors pull them together:

- Estimates of a mode are taken back to what the responses alone give,
  l_j = v_j (a_j / e_j^2 - m / t^2), v_j = 1 / (1 / e_j^2 - 1 / t^2), for errors e_j and
  the prior N(m, t^2). The variance tau^2 of the true ones is then that of Paule and
  Mandel (1982), at which sum_j (l_j - mean)^2 / (v_j + tau^2) = J - 1, mean being
  weighted by 1 / (v_j + tau^2). Items whose error is mostly that of the prior
  (1 / e_j^2 < 2 / t^2) are left out: l_j would be far from any estimate. Bounds are
  the tau at which the sum has the quantiles of chi-squared with J - 1 degrees of
  freedom (Viechtbauer 2007, Statistics in Medicine 26, 37-52).
- Posterior means, where a prior is estimated from all items (`laplace`): the variance
  of the means plus the mean of the posterior variances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.tables import floats
from irtjax.data.result_text import lines_below
from irtjax.data.wording import counted
from irtjax.models.priors import Normal
from irtjax.numerics.seeds import seed_of

#: Resamples of subjects behind the interval of Spearman's correlation, fewest of them,
#: and how many subjects all of them together have: a tenth of a second.
RESAMPLES, FEWEST_RESAMPLES, MOST_DRAWN = 1000, 100, 10**6
#: Numbers of a block of resamples.
BLOCK = 10**6
#: Fewest items whose discriminations are compared.
FEWEST = 3
#: Least share of an item's information that is that of the responses.
LEAST_SHARE = 0.5


class DiscriminationHeterogeneity(NamedTuple):
    """Coefficients of variation of discriminations; ranks by ability and accuracy.

    Attributes:
        cv: Standard deviation over mean of the estimates.
        cv_corrected: The same of the true ones; None without standard errors, or if
            the responses identify fewer than half of the discriminations.
        num_items: Items with a standard error, or all.
        spearman: Correlation of abilities and accuracies; None where one is constant.
        lower, upper: Its interval at the level of the fit, by resampled subjects.
        cv_lower, cv_upper: Interval of `cv_corrected` at that level; None for posterior
            means.
    """

    cv: float
    cv_corrected: float | None
    num_items: int
    spearman: float | None
    lower: float | None
    upper: float | None
    cv_lower: float | None = None
    cv_upper: float | None = None

    def __repr__(self) -> str:
        """Both results in words."""
        corrected, rank = "", ""
        if self.cv_corrected is not None:
            ends = _ends(self.cv_lower, self.cv_upper)
            corrected = f", of the true ones {self.cv_corrected:.2f}{ends}"
        if self.spearman is not None:
            ends = _ends(self.lower, self.upper)
            rank = "Spearman's correlation of abilities and accuracies is"
            rank += f" {self.spearman:.2f}{ends}."
        text = (
            f"Discriminations of {counted(self.num_items, 'item')} have a coefficient"
            f" of variation of {self.cv:.2f}{corrected}."
        )
        return "\n".join(lines_below([x for x in (text, rank) if x]))


def _ends(lower: float | None, upper: float | None) -> str:
    """An interval in brackets, if there is one."""
    return "" if lower is None or upper is None else f" [{lower:.2f}, {upper:.2f}]"


def discrimination_heterogeneity(
    fit: Calibration, *, key: RandomKey | None = None
) -> DiscriminationHeterogeneity:
    """How much discriminations differ, with and without the noise of estimates.

    Args:
        fit: A calibration of a model with a discrimination for each item.
        key: A whole number or a JAX key, for the resamples of subjects.

    Returns:
        Coefficients of variation, and the correlation of ability and accuracy.

    Raises:
        ValueError: If the model has no discriminations, there are fewer than three
            items, or their mean is not above 0.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> chance = 1 / (1 + np.exp(-rng.normal(size=(90, 1)) - rng.normal(size=9)))
    >>> table = irtjax.ResponseTable.from_arrays(rng.random(chance.shape) < chance)
    >>> found = discrimination_heterogeneity(irtjax.fit(table, "2pl"))
    >>> found.num_items, found.cv > found.cv_corrected  # Slopes were equal.
    (9, True)
    """
    family = getattr(fit.model, "family", None)
    if fit.factor_names or not getattr(family, "has_slope", True):
        raise ValueError(
            f"a {fit.model.name} model has no discrimination for each item: fit 2pl"
        )
    slope, error = floats(fit.items.table, "discrimination", "discrimination_se")
    finite = np.isfinite(slope)
    has_error = finite & np.isfinite(error) & (error > 0)
    used = has_error if has_error.sum() >= FEWEST else finite
    value = slope[used]
    if value.size < FEWEST:
        raise ValueError(f"{value.size} items: discriminations differ from {FEWEST} on")
    mean = float(value.mean())
    if mean <= 0:
        raise ValueError(f"discriminations have the mean {mean:.3g}, not above 0")
    corrected, ends = None, (None, None)
    if used is has_error:
        if fit.multilevel:
            total = value.var(ddof=1) + np.mean(_variances(fit)[used])
            corrected = float(np.sqrt(total)) / mean
        else:
            alone = _without_prior(fit, value, error[used])
            if alone[0].size >= max(FEWEST, value.size / 2):
                shares, free = np.array([1, -1]) * fit.level, alone[0].size - 1
                targets = free, *2 * gammaincinv(free / 2, (1 + shares) / 2)
                three = [variation(*alone, float(x)) for x in targets]
                if min(three) >= 0:  # Else the mean is not above 0.
                    corrected, *ends = three
    ability, accuracy = floats(fit.abilities.table, "ability", "accuracy")
    finite_pairs = np.isfinite(ability) & np.isfinite(accuracy)
    spearman = _spearman(
        ability[finite_pairs], accuracy[finite_pairs], fit.level, seed_of(key)
    )
    cv = float(value.std(ddof=1)) / mean
    return DiscriminationHeterogeneity(cv, corrected, int(value.size), *spearman, *ends)


def _variances(fit: Calibration) -> np.ndarray:
    """Posterior variances of slopes `[items]`; their intervals are made longer."""
    assert fit.item_covariance is not None
    variance = np.asarray(fit.item_covariance, float)[:, 0, 0]
    # Positive slopes have logarithms for coordinates.
    positive = fit.model.family.with_any_sign() is not None
    slope = floats(fit.items.table, "discrimination")[0]
    return variance * np.where(positive, slope**2, 1.0)


def variation(
    value: np.ndarray, variance: np.ndarray, target: float | None = None
) -> float:
    """Coefficient of variation of what estimates with known variances are of.

    That at which the weighted sum of squares is `target`; None for J - 1.

    >>> variation(np.array([0.5, 1.0, 1.5]), np.zeros(3))
    0.5
    >>> variation(np.array([0.9, 1.0, 1.1]), np.ones(3))  # Chance alone.
    0.0
    """
    wanted = value.size - 1.0 if target is None else target

    def excess(tau: float) -> tuple[float, float]:
        weight = 1 / (variance + tau)
        mean = float(np.sum(weight * value) / np.sum(weight))
        total = float(np.sum(weight * (value - mean) ** 2))
        return total - wanted, mean

    tiny = 1e-12 * float(np.mean(value**2))
    # A larger variance leaves less than the target.
    high = max(float(value.var()) * value.size * 1.01 / wanted, 2 * tiny)
    tau = 0.0
    if excess(tiny)[0] > 0:
        # By halves, since `scipy.optimize` takes a quarter of a second to import.
        low = tiny
        while high - low > tiny and low < (tau := (low + high) / 2) < high:
            low, high = (tau, high) if excess(tau)[0] > 0 else (low, tau)
    return float(np.sqrt(tau)) / excess(max(tau, tiny))[1]


def _without_prior(fit: Calibration, value, error) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and variances that the responses alone give, where they do so."""
    prior, variance = fit.model.priors.get("discrimination"), error**2
    if not isinstance(prior, Normal) or float(prior.mean) <= 0:
        return value, variance
    mean, sd = float(prior.mean), float(prior.sd)
    if not fit.options.get("anchored_items"):
        # A prior holds up to the scale of ability at which it is highest.
        unit = float(np.sum(value**2) / np.sum(value)) / mean
        mean, sd = mean * unit, sd * unit
    precision = 1 / variance - 1 / sd**2
    enough = precision >= LEAST_SHARE / variance
    value, variance, alone = value[enough], variance[enough], 1 / precision[enough]
    return alone * (value / variance - mean / sd**2), alone


def _spearman(x: np.ndarray, y: np.ndarray, level: float, seed: int):
    """Spearman's correlation, with the central `level` of resampled subjects."""
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, None, None
    number = min(RESAMPLES, max(FEWEST_RESAMPLES, MOST_DRAWN // x.size))
    rng, size = np.random.default_rng(seed), max(1, BLOCK // x.size)
    # Subjects of equal values count together.
    pairs, pair_of, times = np.unique(
        np.stack([x, y]), axis=1, return_inverse=True, return_counts=True
    )
    sides, distinct = [_grouped(values) for values in pairs], len(times)
    estimate = _weighted_spearman(sides, times[None].astype(float))
    drawn = []
    for begin in range(0, number, size):
        rows = rng.integers(0, x.size, (min(size, number - begin), x.size))
        cells = pair_of.ravel()[rows] + distinct * np.arange(len(rows))[:, None]
        counts = np.bincount(cells.ravel(), minlength=distinct * len(rows))
        counts = counts.reshape(len(rows), distinct)
        drawn.append(_weighted_spearman(sides, counts.astype(float)))
    ends = (1 - level) / 2, (1 + level) / 2
    low, high = np.nanquantile(np.concatenate(drawn), ends)
    return float(estimate[0]), float(low), float(high)


def _grouped(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order of values, where each distinct one begins, and which one each is."""
    order = np.argsort(values, kind="stable")
    _, begins, distinct = np.unique(
        values[order], return_index=True, return_inverse=True
    )
    place = np.empty_like(distinct)
    place[order] = distinct
    return order, begins, place


def _weighted_spearman(sides: list[Any], counts: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each resample, given how often it has each pair."""
    ranks, total = [], counts.sum(axis=1, keepdims=True)
    for order, begins, place in sides:
        number = np.add.reduceat(counts[:, order], begins, axis=1)
        # The mean rank of equal values, from the mean of all ranks.
        middle = np.cumsum(number, axis=1) - (number + total) / 2
        ranks.append(middle[:, place])
    first, second = ranks
    products = first * first, second * second, first * second
    squares = [np.einsum("rn,rn->r", counts, x) for x in products]
    with np.errstate(divide="ignore", invalid="ignore"):
        return squares[2] / np.sqrt(squares[0] * squares[1])
