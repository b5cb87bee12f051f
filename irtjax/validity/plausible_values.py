"""Plausible values: abilities drawn from their posteriors, for questions of groups.

Estimates of abilities vary less than abilities, since they are drawn to the mean, and
their differences by group or correlations are too small or too large. Draws from the
posteriors have the distribution of the abilities. A statistic is computed of each draw
and pooled (Rubin 1987; Mislevy 1991): with means m and variances v of D draws,

    estimate = mean m,   variance = mean v + (1 + 1 / D) var m.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.populations import Populations
from irtjax.data.frames import HasTable
from irtjax.data.matching import match_all_items, places_of
from irtjax.data.table import ResponseTable
from irtjax.likelihood.counts import log_likelihood_at_nodes
from irtjax.likelihood.quadrature import REACH
from irtjax.models.model import check_one_ability
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.random_keys import as_key

#: Nodes, and standard deviations of the population that they reach to either side:
#: spacings of a fortieth of it, where the narrowest posteriors of 250 items have .08.
NODES, SPAN = 481, 6.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlausibleValues(HasTable):
    """Abilities drawn from their posteriors.

    Attributes:
        table: A row for each subject: subject, and value_1, value_2, ... of each draw.
        draws: The same numbers, `[draws, subjects]`.
    """

    title = "Plausible values"

    table: pa.Table
    draws: np.ndarray

    def pooled(
        self, statistic: Callable[[np.ndarray], tuple[float, float]]
    ) -> tuple[float, float]:
        """A statistic of all abilities, and its standard error.

        Args:
            statistic: From abilities `[subjects]` to an estimate and its standard
                error.
        """
        estimates, errors = np.array([statistic(x) for x in self.draws], float).T
        between = estimates.var(ddof=1) * (1 + 1 / estimates.size)
        return float(estimates.mean()), float(np.sqrt(np.mean(errors**2) + between))


@full_precision
def plausible_values(
    fit: Calibration, data: ResponseTable, *, num_draws: int = 10, key: RandomKey = 0
) -> PlausibleValues:
    """Draws abilities from their posteriors, the items fixed at their estimates.

    The posterior of a subject is its likelihood times the population's density (of its
    group, if there are several), at 481 nodes; draws have its mean and variance.

    Args:
        fit: A fit of one ability, of responses in categories.
        data: The responses that were fitted.
        num_draws: Number of draws; pooling needs two.
        key: Seed of the draws.

    Raises:
        ValueError: If the model has several abilities, no population, no categories
            or response lengths, an item or a subject is not in the fit, or there are
            fewer than two draws.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]] * 5
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> fit = irtjax.fit(table, "rasch", method="em")
    >>> irtjax.plausible_values(fit, table).draws.shape
    (10, 20)
    """
    check_one_ability(fit.model, "plausible values")
    if fit.multilevel or fit.parameters.theta is not None:
        raise ValueError(
            "plausible values need abilities integrated out: fit with"
            ' model="2pl", method="em"'
        )
    if fit.model.family.num_categories < 2 or fit.model.has_lengths:
        raise ValueError(
            f"plausible values need responses in categories alone, not those of"
            f" {fit.model.name}"
        )
    if num_draws < 2:
        raise ValueError(f"num_draws {num_draws} cannot be pooled: give at least 2")
    places = match_all_items(data, fit.item_names, "draw from", fit.item_contents)
    items = jax.tree.map(lambda x: jnp.asarray(x)[places], fit.parameters.items)
    nodes, log_prior = _populations(fit, data)
    dtype = items[0].dtype
    of_nodes = jnp.asarray(nodes, dtype), jnp.asarray(log_prior, dtype)
    model = dataclasses.replace(fit.model, family=fit.model.family.of_items(places))
    posterior = _posterior(model, items, *of_nodes, data.responses(dtype))
    draws = _drawn(np.asarray(posterior, np.float64), nodes, num_draws, key)
    columns = {f"value_{k + 1}": x for k, x in enumerate(draws)}
    return PlausibleValues(
        pa.table({"subject": data.subjects.tolist(), **columns}), draws
    )


@stored_jit
def _posterior(model: Any, items: Any, nodes: Any, log_prior: Any, data: Any) -> Any:
    """Posteriors `[subjects, nodes]`."""
    tables = model.family.table(items, nodes)
    joint = log_likelihood_at_nodes(model, tables, data) + log_prior
    return jax.nn.softmax(joint, axis=1)


def _populations(
    fit: Calibration, data: ResponseTable
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and log densities `[1 or subjects, nodes]` of populations."""
    population, groups = fit.parameters.population, fit.part(Populations)
    mean, sd = (np.atleast_1d(np.asarray(x, float)) for x in population[:2])
    if groups is not None:
        places = places_of(fit.subject_names, data.subjects)
        if (places < 0).any():
            name = data.subjects[np.argmin(places)]
            raise ValueError(
                f"subject {name!r} is not in the fit, so that its group is unknown:"
                " draw for the subjects that were fitted"
            )
        mean, sd = (x[groups.group][places] for x in (groups.mean, groups.sd))
    ends = (mean - SPAN * sd).min(), (mean + SPAN * sd).max()
    nodes = np.linspace(*ends, NODES)
    standard = (nodes - mean[:, None]) / sd[:, None]
    if population.log_weights is None or groups is not None:
        return nodes, -(standard**2) / 2
    log_weights = np.asarray(population.log_weights, float)
    grid = np.asarray(equal_nodes(-REACH, REACH, log_weights.size), float)
    return nodes, np.interp(standard, grid, log_weights, left=-1e3, right=-1e3)


def _drawn(
    posterior: np.ndarray, nodes: np.ndarray, num_draws: int, key: RandomKey
) -> np.ndarray:
    """Draws `[draws, subjects]` with the posteriors' means and variances."""
    size, step = len(posterior), nodes[1] - nodes[0]
    chance, offset = np.asarray(
        jax.random.uniform(as_key(key), (2, num_draws, size)), float
    )
    below = np.cumsum(posterior, 1)
    mean = posterior @ nodes
    variance = posterior @ nodes**2 - mean**2
    # A draw within the cell of its node adds step^2 / 12 to the variance.
    shrunk = np.sqrt(variance / (variance + step**2 / 12))
    draws = np.empty((num_draws, size))
    for k in range(num_draws):
        place = (below < chance[k, :, None] * below[:, -1:]).sum(1)
        draws[k] = nodes[np.minimum(place, nodes.size - 1)]
    return mean + (draws + step * (offset - 0.5) - mean) * shrunk
