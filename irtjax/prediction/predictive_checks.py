"""Posterior predictions, and checks against replicated data."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.groups import structure_with_draws
from irtjax.data.coding import coded_as
from irtjax.data.frames import HasTable
from irtjax.data.responses import Responses
from irtjax.data.result_text import with_level
from irtjax.data.table import ResponseTable
from irtjax.estimators.posterior.psis import LeaveOneOut, psis_loo
from irtjax.models.families.bounded import options_of, prepare, with_scores
from irtjax.models.multilevel.density import cell_log_lik
from irtjax.numerics.precision import full_precision
from irtjax.numerics.random_keys import as_key

if TYPE_CHECKING:
    import pyarrow as pa

#: Log-likelihoods of draws and cells that are in memory at a time.
BLOCK_CELLS = 20_000_000


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PredictiveChecks(HasTable):
    """Statistics of responses and of their replicates: see `predictive_checks`.

    Attributes:
        table: A row for each statistic.
    """

    title = "Posterior predictive checks"

    table: pa.Table


@full_precision
def leave_one_out(fit: Calibration, table: ResponseTable) -> LeaveOneOut:
    """Expected log predictive density of each response given the others.

    Pareto-smoothed importance sampling over the draws of abilities and items (Vehtari,
    Gelman and Gabry 2017): to compare models of the same responses. Take the difference
    of the `pointwise` terms of two models; its standard error is sqrt(n) times their
    standard deviation, far smaller than that of either sum.

    Args:
        fit: A multilevel fit by `nuts`, in the session that made it.
        table: The responses it was fitted to.

    Returns:
        The sum over observed responses and its error; `pointwise` and `pareto_k` list
        the observed cells row by row.

    Raises:
        ValueError: If the fit has no draws, or is of other responses.
    """
    responses, ability, coordinates, structure = _draws_and_data(fit, table)
    seen = np.ones(responses.values.shape, bool)
    if responses.observed is not None:
        seen = np.asarray(responses.observed)
    group = jnp.asarray(structure.group)
    chains, draws, subjects = ability.shape[:3]
    size = max(BLOCK_CELLS // max(chains * draws * subjects, 1), 1)
    elpd, tail, p_loo = np.zeros(seen.shape), np.zeros(seen.shape), 0.0
    for first in range(0, seen.shape[1], size):
        places = np.arange(first, min(first + size, seen.shape[1]))
        here = seen[:, places]
        if not here.any():
            continue
        family, rows = fit.model.family.of_items(places), coordinates[:, :, places]
        cells = responses.values, responses.observed, responses.trials
        block = Responses(*jax.tree.map(lambda x, at=places: x[:, at], cells))
        logs = np.asarray(_cell_logs(family, ability, rows, group[places], block))
        loo = psis_loo(logs[:, :, here])
        # A slice of columns is a view.
        elpd[:, first : first + size][here] = loo.pointwise
        tail[:, first : first + size][here] = loo.pareto_k
        p_loo += loo.p_loo
    pointwise = elpd[seen]
    error = float(np.sqrt(pointwise.size) * pointwise.std())
    return LeaveOneOut(float(pointwise.sum()), error, p_loo, tail[seen], pointwise)


@full_precision
def predictive_checks(
    fit: Calibration,
    table: ResponseTable,
    *,
    key: RandomKey | None = None,
    num_draws: int = 200,
    level: float = 0.9,
) -> PredictiveChecks:
    """Statistics of the responses and of data replicated from the posterior.

    Each replicate takes one draw of all parameters and draws the observed cells again
    (Rubin 1984; Gelman, Meng and Stern 1996). A statistic in a tail of its replicates
    is one that the model does not explain. Statistics:

    - ``mean`` of the responses of a subject or an item;
    - ``item-rest correlation`` of an item with the mean of its group's other items:
      low where an item measures something else;
    - ``sd of subjects``, ``sd of items``: of their means in each group;
    - ``correlation`` of the subjects' means in two groups.

    Args:
        fit: A multilevel fit by `nuts`, in the session that made it.
        table: The responses it was fitted to.
        key: A whole number or a JAX key; a fixed one when None.
        num_draws: Replicates.
        level: Level of the interval of replicates.

    Returns:
        A table with a row for each statistic: `statistic`, `of`, `observed`,
        `replicated` (mean), `lower`, `upper`, and `p_value`, two-sided with ties
        halved. By chance a share of 1 - `level` of the rows lies outside; less of
        means, which are fitted.

    Raises:
        ValueError: If the fit has no draws, or is of other responses.
    """
    import pyarrow as pa

    responses, ability, coordinates, structure = _draws_and_data(fit, table)
    if num_draws < 20:
        raise ValueError(f"num_draws {num_draws} are too few to see a tail: give 20")
    family, num_groups = fit.model.family, len(structure.groups)
    total = ability.shape[0] * ability.shape[1]
    # Evenly spread over all chains.
    chosen = np.linspace(0, total - 1, min(num_draws, total)).round().astype(int)
    ability, coordinates = (jnp.concatenate(x)[chosen] for x in (ability, coordinates))
    group = jnp.asarray(structure.group)
    keys = jax.random.split(as_key(key), len(chosen))
    replicated = _replicate(
        family, ability, coordinates, group, responses, num_groups, keys
    )
    items = jax.vmap(family.constrain)(coordinates[0])
    means = as_means(family, responses.values, items, responses)
    observed = _statistics(means, _weights(responses), group, num_groups)
    names = [str(name) for name in structure.groups]
    of = {
        "mean of subject": table.subjects.tolist(),
        "mean of item": table.items.tolist(),
        "item-rest correlation": table.items.tolist(),
        "sd of subjects": names,
        "sd of items": names,
        "correlation": [f"{a}, {b}" for a, b in combinations(names, 2)],
    }
    tail = (1 - level) / 2
    parts = []
    for name, labels in of.items():
        seen, drawn = (np.asarray(x[name], float) for x in (observed, replicated))
        finite = np.isfinite(seen) & np.isfinite(drawn).all(axis=0)
        seen, drawn = seen[finite], drawn[:, finite]
        below = (drawn < seen).mean(axis=0) + (drawn == seen).mean(axis=0) / 2
        lower, upper = np.quantile(drawn, [tail, 1 - tail], axis=0)
        columns = {
            "statistic": pa.array([name] * len(seen), pa.string()),
            "of": pa.array(np.asarray(labels, object)[finite], pa.string()),
            "observed": seen,
            "replicated": drawn.mean(axis=0),
            "lower": lower,
            "upper": upper,
            "p_value": 2 * np.minimum(below, 1 - below),
        }
        parts.append(pa.table(columns))
    whole = pa.concat_tables(parts).combine_chunks()
    return PredictiveChecks(with_level(whole, level))


def _draws_and_data(fit: Calibration, table: ResponseTable):
    """Responses as fitted, draws `[chains, draws, ...]` of both, and the structure."""
    if "worth" in fit.options:
        raise ValueError(
            "a share model has means of scores and no distribution: it cannot be"
            " checked by replicates or densities; fit continuous or inflated_beta"
        )
    table = coded_as(fit.options, table)
    structure, values = structure_with_draws(fit)
    scores = None
    if not fit.model.family.num_categories and table.num_items == len(fit.item_names):
        labelled, options = options_of(fit.options, table, fit.benchmarks)
        scores = prepare(labelled, fit.model, **options)
    prepared = table if scores is None else scores.table
    if fit.data_hash not in (table.data_hash(), prepared.data_hash()):
        raise ValueError("the table is not the one that was fitted: pass that one")
    ability = jnp.asarray(values["ability"])
    responses = with_scores(prepared.responses(ability.dtype), scores, ability.dtype)
    return responses, ability, jnp.asarray(values["coordinates"]), structure


@eqx.filter_jit
def _cell_logs(family, ability, coordinates, group, data: Responses):
    """Log densities `[chains, draws, subjects, items]` of the cells."""

    def one(draw):
        theta, rows = draw
        items = jax.vmap(family.constrain)(rows)
        logs = cell_log_lik(family, items, theta[:, group], data)
        logs = logs + family.log_base(data.values, items)
        if data.trials is not None:
            right, trials = data.values.astype(float), data.trials.astype(float)
            gamma = jax.scipy.special.gammaln
            binomial = gamma(trials + 1) - gamma(right + 1) - gamma(trials - right + 1)
            logs = logs + binomial
        return logs

    return lax.map(lambda chain: lax.map(one, chain), (ability, coordinates))


@eqx.filter_jit
def _replicate(family, ability, coordinates, group, data, num_groups: int, keys):
    """Statistics of one replicate for each draw."""

    def one(draw):
        theta, rows, key = draw
        items = jax.vmap(family.constrain)(rows)
        values = sample_cells(family, items, theta[:, group], data, key)
        means = as_means(family, values, items, data)
        return _statistics(means, _weights(data), group, num_groups)

    return lax.map(one, (ability, coordinates, keys))


def _weights(data: Responses) -> Array:
    """Number of responses of each cell."""
    if data.exposure is None:
        return jnp.ones(data.values.shape)
    return data.exposure.astype(float)


def sample_cells(family, items, theta, data: Responses, key) -> Array:
    """Random responses at an ability for each cell."""
    if data.trials is not None and family.num_categories == 2:
        expected = jax.vmap(family.expected_response, in_axes=(None, 0))
        chance = jax.vmap(expected, in_axes=(0, 1), out_axes=1)(items, theta)
        return jax.random.binomial(key, data.trials.astype(chance.dtype), chance)

    def alone(key, item, at):
        return family.sample(key, jax.tree.map(lambda x: x[None], item), at)[:, 0]

    keys = jax.random.split(key, theta.shape[1])
    return jax.vmap(alone, in_axes=(0, 0, 1), out_axes=1)(keys, items, theta)


def as_means(family, values, items, data: Responses) -> Array:
    """Responses to average: scores, categories, or shares of right responses."""
    trials = 1 if data.trials is None else jnp.maximum(data.trials, 1)
    return family.to_scores(values, items) / trials


def _statistics(values, weight, group, num_groups: int) -> dict[str, Array]:
    """The statistics of `predictive_checks`; NaN where there are none."""
    onto = jax.nn.one_hot(group, num_groups, dtype=values.dtype)
    total, count = (values * weight) @ onto, weight @ onto
    of_subject = _ratio(jnp.sum(total, axis=1), jnp.sum(count, axis=1))
    of_item = _ratio(jnp.sum(values * weight, axis=0), jnp.sum(weight, axis=0))
    by_group = _ratio(total, count)
    rest = _ratio(total[:, group] - values * weight, count[:, group] - weight)
    used = (weight > 0) & jnp.isfinite(rest)
    share = used / jnp.maximum(jnp.sum(used, axis=0), 1)
    mean = lambda x: jnp.sum(jnp.where(used, x * share, 0), axis=0)
    a, b = (jnp.where(used, x - mean(x), 0) for x in (values, rest))
    size = jnp.sqrt(jnp.sum(a**2, axis=0) * jnp.sum(b**2, axis=0))
    first, second = np.triu_indices(num_groups, 1)
    in_group = jnp.where(onto.T > 0, of_item, jnp.nan)
    return {
        "mean of subject": of_subject,
        "mean of item": of_item,
        "item-rest correlation": _ratio(jnp.sum(a * b, axis=0), size),
        "sd of subjects": jnp.nanstd(by_group, axis=0, ddof=1),
        "sd of items": jnp.nanstd(in_group, axis=1, ddof=1),
        "correlation": _correlations(by_group)[first, second],
    }


def _ratio(total, count):
    """Quotients; NaN where the count is 0."""
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), jnp.nan)


def _correlations(x):
    """Between columns, over rows that have both."""
    finite = jnp.isfinite(x)
    filled, weight = jnp.where(finite, x, 0), finite.astype(x.dtype)
    count = weight.T @ weight
    mean = _ratio(filled.T @ weight, count)
    product = _ratio(filled.T @ filled, count) - mean * mean.T
    square = _ratio((filled**2).T @ weight, count) - mean**2
    return _ratio(product, jnp.sqrt(jnp.maximum(square * square.T, 0)))
