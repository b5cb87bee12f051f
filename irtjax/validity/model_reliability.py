r"""Reliability by a fitted model, and what the plain sum of responses loses.

At an ability :math:`\theta`, with the mean :math:`\mu_j`, the variance
:math:`\sigma_j^2` and the information :math:`I_j` of the response to item j:

- the conditional standard error of the mean score is :math:`\sqrt{\sum_j \sigma_j^2} /
  J` (Lord 1980, Applications of item response theory, eq. 4-8);
- the information of the sum is :math:`(\sum_j \mu_j')^2 / \sum_j \sigma_j^2`, and its
  share of the test's :math:`\sum_j I_j` is the relative efficiency of the sum (Birnbaum
  1968): 1 in Rasch's model, of which the sum is the sufficient statistic.

Of factor models omega is the share of the variance of the sum of the latent responses
that all factors explain, and hierarchical omega that of a general factor, which Schmid
and Leiman's (1957, Psychometrika 22) transformation separates from the others: with
:math:`\Phi \approx \gamma \gamma' + diag(1 - \gamma^2)` its loadings are
:math:`\Lambda \gamma` (McDonald 1999, Test theory).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.tables import floats
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted, points
from irtjax.inference.block import table_of
from irtjax.inference.information import empirical_reliability, marginal_reliability
from irtjax.numerics.programs import stored_jit

if TYPE_CHECKING:
    import pyarrow as pa

#: Abilities of the table, in standard deviations of the population, and their number.
REACH, NODES = 3.0, 61
#: Reach of the abilities that the sentence is about: 95 % of a normal population.
CENTRAL = 1.96
#: Steps of the one factor of the factors' correlations, and the change that ends them.
STEPS, TOLERANCE = 1000, 1e-10


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ModelReliability(HasTable):
    """Reliability by a fitted model.

    Attributes:
        table: At each `ability` the expected `score`, `score_sem`, the standard error
            of a mean score given the ability, `ability_se`, the posterior one, and
            `efficiency`, the share of information that the sum keeps. Empty of factors.
        marginal: Expected share of the variance of ability that the items reveal.
        empirical: The same from the estimated abilities and their errors.
        efficiency: Share of information that the sum keeps, over the population.
        omega: Share of the variance of the sum of latent responses by all factors.
        omega_hierarchical: The same by the general factor.
        sentence: What the sum keeps, or what the general factor explains, in words.
    """

    title = "Reliability by the model"

    table: pa.Table
    marginal: float
    empirical: float
    efficiency: float
    omega: float
    omega_hierarchical: float
    sentence: str


def model_reliability(fit: Calibration) -> ModelReliability:
    """Measures reliability by a fitted model, and what the sum of responses loses.

    Args:
        fit: A calibration of one ability with categories of responses, or of factors.

    Returns:
        The conditional errors and coefficients; NaN where a model has none.

    Raises:
        ValueError: The fit has an ability for each benchmark, or is of scores.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> right = rng.normal(size=(60, 1)) + rng.normal(size=(60, 20)) > 0
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "rasch", method="em")
    >>> round(model_reliability(fit).efficiency, 6)
    1.0
    """
    if fit.factors is not None:
        return _of_factors(fit)
    if fit.num_groups > 1 or fit.several_abilities:
        raise ValueError(
            "reliability by the model is of one ability or of factors, and this fit has"
            f" {counted(fit.num_groups, 'ability', 'abilities')}: fit 2pl or factor"
        )
    if not fit.model.family.num_categories:
        raise ValueError(
            "reliability by the model is of categories of responses, and this fit is of"
            " scores: leave the fit out"
        )
    import pyarrow as pa

    population, items = fit.parameters.population, fit.parameters.items
    mean, sd = float(population.mean), float(population.sd)
    nodes = np.linspace(-REACH, REACH, NODES)
    # Without 64 bits JAX warns of dtype=float64, and not of values of that type.
    theta = jnp.asarray((mean + sd * nodes).astype(np.asarray(items[0]).dtype))
    moments = _moments(fit.model.family, items, theta)
    score, slope, variance, information = (
        np.asarray(x, float).sum(axis=1) for x in moments
    )
    of_sum = np.divide(slope**2, variance, out=np.zeros(NODES), where=variance > 0)
    share = np.divide(
        of_sum, information, out=np.full(NODES, np.nan), where=information > 0
    )
    weight = np.exp(np.asarray(population.log_weights_at(jnp.asarray(nodes)), float))
    whole = float(weight @ information)
    efficiency = float(weight @ of_sum) / whole if whole > 0 else math.nan
    count = len(fit.item_names)
    table = pa.table(
        {
            "ability": np.asarray(theta, float),
            "score": score / count,
            "score_sem": np.sqrt(variance) / count,
            "ability_se": 1 / np.sqrt(information + 1 / sd**2),
            "efficiency": share,
        }
    )
    ability, error = floats(fit.abilities.table, "ability", "ability_se")
    finite = np.isfinite(ability) & np.isfinite(error)
    arrays = jnp.asarray(ability[finite]), jnp.asarray(error[finite])
    return ModelReliability(
        table,
        float(marginal_reliability(fit.model, items, population)),
        float(empirical_reliability(*arrays)),
        efficiency,
        math.nan,
        math.nan,
        _sentence(np.asarray(theta, float), nodes, share, efficiency),
    )


@stored_jit
def _moments(family: Any, items: Any, theta: Any):
    """`[nodes, items]` mean, its slope, variance, and information of each response."""
    codes = jnp.asarray(family.category_codes, theta.dtype)

    def variance(item, t):
        chances = jnp.exp(family.category_log_probs(item, t))
        mean = chances @ codes
        return chances @ (codes - mean) ** 2

    slope = lambda item, t: jax.jvp(
        lambda x: family.expected_response(item, x), (t,), (jnp.ones_like(t),)
    )[1]
    kinds = family.expected_response, slope, variance, family.information
    return tuple(table_of(kind, items, theta) for kind in kinds)


def _sentence(
    theta: np.ndarray, nodes: np.ndarray, share: np.ndarray, efficiency: float
) -> str:
    """What the plain sum keeps, and where it loses most."""
    text = f"The plain sum keeps {efficiency:.0%} of the information of the model"
    central = np.flatnonzero((np.abs(nodes) <= CENTRAL) & np.isfinite(share))
    if not len(central):
        return f"{text}."
    least = central[np.argmin(share[central])]
    if share[least] > efficiency - 0.02:
        return f"{text}."
    place = points(float(theta[least]), 1)
    return f"{text}; least at an ability of {place}: {share[least]:.0%}."


def _of_factors(fit: Calibration) -> ModelReliability:
    """Omega and hierarchical omega of the sum of latent responses."""
    import pyarrow as pa

    factors = fit.factors
    assert factors is not None
    omega, hierarchical = omegas(
        factors.loadings, factors.correlation, general=factors.rotation == "bifactor"
    )
    text = f"All factors explain {omega:.0%} of the variance of the sum"
    if math.isfinite(hierarchical):
        text += f", a general one alone {hierarchical:.0%}"
    return ModelReliability(
        pa.table({}), math.nan, math.nan, math.nan, omega, hierarchical, f"{text}."
    )


def omegas(
    loadings: np.ndarray, correlation: np.ndarray, *, general: bool = False
) -> tuple[float, float]:
    """Omega total and hierarchical omega of standardised loadings.

    Args:
        loadings: `[items, factors]` pattern.
        correlation: `[factors, factors]` of the factors.
        general: Whether the first factor is the general one, and orthogonal to the
            others, as by a bifactor rotation.

    Returns:
        The two; the second NaN of two factors, which identify no general one, and of
        uncorrelated factors.

    >>> simple = np.kron(np.eye(3), np.full((4, 1), 0.7))
    >>> correlation = np.full((3, 3), 0.36) + 0.64 * np.eye(3)
    >>> [round(x, 4) for x in omegas(simple, correlation)]
    [0.8686, 0.5454]
    """
    loadings, phi = np.asarray(loadings, float), np.asarray(correlation, float)
    explained = np.sum((loadings @ phi) * loadings, axis=1)
    common = float(np.sum(loadings.sum(axis=0) @ phi @ loadings.sum(axis=0)))
    total = common + float(np.sum(np.maximum(1 - explained, 0)))
    if general:
        return common / total, float(loadings[:, 0].sum()) ** 2 / total
    if len(phi) == 1:
        return common / total, common / total
    gamma = _one_factor(phi)
    if gamma is None:
        return common / total, math.nan
    return common / total, float((loadings @ gamma).sum()) ** 2 / total


def _one_factor(correlation: np.ndarray) -> np.ndarray | None:
    """Loadings of the one factor of correlations, by principal axes; None if none."""
    size = len(correlation)
    outside = ~np.eye(size, dtype=bool)
    if size < 3 or not np.abs(correlation[outside]).max() > 0.01:
        return None
    communality = np.abs(np.where(outside, correlation, 0)).max(axis=1)
    loading = np.sqrt(communality)
    for _ in range(STEPS):
        reduced = np.where(outside, correlation, 0) + np.diag(communality)
        values, vectors = np.linalg.eigh(reduced)
        loading = vectors[:, -1] * math.sqrt(max(values[-1], 0.0))
        new = np.minimum(loading**2, 1.0)
        change, communality = float(np.abs(new - communality).max()), new
        if change < TOLERANCE:
            break
    return np.clip(loading, -1, 1)
