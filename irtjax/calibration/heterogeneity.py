r"""How much discriminations differ, and whether ability ranks as accuracy does.

If all items discriminate equally, abilities have the order of accuracies. The paper on
cBMM (4.4) compares benchmarks by the coefficient of variation of the estimated
discriminations, sd / mean. Estimates vary by chance too, and priors pull them together:

- Estimates of a mode are taken back to what the responses alone give,
  l_j = v_j (a_j / e_j^2 - m / t^2), v_j = 1 / (1 / e_j^2 - 1 / t^2), for errors e_j and
  the prior N(m, t^2). The variance tau^2 of the true ones is then that of Paule and
  Mandel (1982), at which sum_j (l_j - mean)^2 / (v_j + tau^2) = J - 1, mean being
  weighted by 1 / (v_j + tau^2).
- Posterior means, where a prior is estimated from all items (`laplace`): the variance
  of the means plus the mean of the posterior variances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import rankdata

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.tables import floats
from irtjax.models.priors import Normal

#: Resamples of subjects behind the interval of Spearman's correlation.
RESAMPLES = 1000
#: Fewest items whose discriminations are compared.
FEWEST = 3


class Heterogeneity(NamedTuple):
    """Coefficients of variation of discriminations; ranks by ability and accuracy.

    Attributes:
        cv: Standard deviation over mean of the estimates.
        cv_corrected: The same of the true ones; None without standard errors.
        num_items: Items with a standard error, or all.
        spearman: Correlation of abilities and accuracies; None where one is constant.
        lower, upper: Its interval at the level of the fit, by resampled subjects.
    """

    cv: float
    cv_corrected: float | None
    num_items: int
    spearman: float | None
    lower: float | None
    upper: float | None


def discrimination_heterogeneity(fit: Calibration, *, seed: int = 0) -> Heterogeneity:
    """How much discriminations differ, with and without the noise of estimates.

    Args:
        fit: A calibration of a model with a discrimination for each item.
        seed: Seed of the resamples of subjects.

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
    if fit.factors is not None or not getattr(family, "has_slope", True):
        raise ValueError(
            f"a {fit.model.name} model has no discrimination for each item: fit 2pl"
        )
    slope, error = floats(fit.item_table, "discrimination", "discrimination_se")
    known = np.isfinite(slope)
    has_error = known & np.isfinite(error) & (error > 0)
    used = has_error if has_error.sum() >= FEWEST else known
    value = slope[used]
    if value.size < FEWEST:
        raise ValueError(f"{value.size} items: discriminations differ from {FEWEST} on")
    mean = float(value.mean())
    if mean <= 0:
        raise ValueError(f"discriminations have the mean {mean:.3g}, not above 0")
    corrected = None
    if used is has_error:
        if fit.structure is not None:
            total = value.var(ddof=1) + np.mean(error[used] ** 2)
            corrected = float(np.sqrt(total)) / mean
        else:
            corrected = variation(*_without_prior(fit, value, error[used]))
    ability, accuracy = floats(fit.ability_table, "ability", "accuracy")
    both = np.isfinite(ability) & np.isfinite(accuracy)
    found = _spearman(ability[both], accuracy[both], fit.level, seed)
    cv = float(value.std(ddof=1)) / mean
    return Heterogeneity(cv, corrected, int(value.size), *found)


def variation(value: np.ndarray, variance: np.ndarray) -> float:
    """Coefficient of variation of what estimates with known variances are of.

    >>> variation(np.array([0.5, 1.0, 1.5]), np.zeros(3))
    0.5
    >>> variation(np.array([0.9, 1.0, 1.1]), np.ones(3))  # Chance alone.
    0.0
    """

    def excess(tau: float) -> tuple[float, float]:
        weight = 1 / (variance + tau)
        mean = float(np.sum(weight * value) / np.sum(weight))
        total = float(np.sum(weight * (value - mean) ** 2))
        return total - (value.size - 1), mean

    tiny = 1e-12 * float(np.mean(value**2))
    high = max(float(value.var(ddof=1)) * value.size, 2 * tiny)
    tau = 0.0
    if excess(tiny)[0] > 0:
        # More than the whole sum of squares leaves less than J - 1.
        root: Any = brentq(lambda x: excess(x)[0], tiny, high, xtol=tiny)
        tau = float(root)
    return float(np.sqrt(tau)) / excess(max(tau, tiny))[1]


def _without_prior(fit: Calibration, value, error) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and variances that the responses alone give; see the module."""
    prior, variance = fit.model.priors.get("discrimination"), error**2
    if not isinstance(prior, Normal) or float(prior.mean) <= 0:
        return value, variance
    mean, sd = float(prior.mean), float(prior.sd)
    if not fit.options.get("anchored_items"):
        # A prior holds up to the scale of ability at which it is highest.
        unit = float(np.sum(value**2) / np.sum(value)) / mean
        mean, sd = mean * unit, sd * unit
    precision = 1 / variance - 1 / sd**2
    enough = precision > 1e-3 / variance
    alone = 1 / np.where(enough, precision, 1e-3 / variance)
    return alone * (value / variance - mean / sd**2), alone


def _spearman(x: np.ndarray, y: np.ndarray, level: float, seed: int):
    """Spearman's correlation, with the central `level` of resampled subjects."""
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, None, None
    draws = np.random.default_rng(seed).integers(0, x.size, (RESAMPLES, x.size))
    rows = np.concatenate([np.arange(x.size)[None], draws])
    ranks = [rankdata(values[rows], axis=1) for values in (x, y)]
    first, second = (r - r.mean(axis=1, keepdims=True) for r in ranks)
    size = np.sqrt(np.sum(first**2, axis=1) * np.sum(second**2, axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sum(first * second, axis=1) / size
    low, high = np.nanquantile(found[1:], [(1 - level) / 2, (1 + level) / 2])
    return float(found[0]), float(low), float(high)
