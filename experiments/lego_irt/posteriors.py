"""Whether posteriors are right: calibration by simulation, and coverage.

Multilevel models of three kinds are simulated, sampled by the no-U-turn sampler and
compared with what the data were drawn from. The coordinates are those of `irtjax.fit`
but for what it chooses by the data before it begins: the order of items' columns and
the spread that centring counts on are the same for all data sets here, and abilities
have no rough direction.
All replicates of one model go through one compiled program.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from experiments.lego_irt.prior_draws import simulate_multilevel, simulate_position
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.laplace.estimates import summary_of_laplace
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem, start_multilevel
from irtjax.estimators.posterior.methods import NUTS, frame_log_density, position_of
from irtjax.estimators.posterior.nuts import Chain, Keep, advance, begin
from irtjax.estimators.posterior.sampling_frame import Centring, SamplingFrame
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.density import log_prior, total_log_likelihood
from irtjax.models.multilevel.model import (
    Hyperpriors,
    MultilevelModel,
    Position,
    general_ability,
)
from irtjax.numerics.bijections import correlation_coordinates

#: Priors under which simulated responses are neither all alike nor all certain.
TIGHT = Hyperpriors(
    scale=0.7, effect=0.5, component=0.5, residual=0.5, group_effect=0.5, tilt=0.5
)
#: The models of the paper.
KINDS = ("LEGO-CM", "LEGO-MM", "LEGO-MB")


def structured_model(
    kind: str,
    subjects: int = 8,
    items: int = 24,
    groups: int = 3,
    hyperpriors: Hyperpriors = TIGHT,
    centred: bool | None = None,
    metric_effects: bool = True,
) -> MultilevelModel:
    """One of the paper's models at any size.

    LEGO-CM: scores, one ability. LEGO-MM: scores of `items / groups` stems by every
    metric, with effects of the metrics. LEGO-MB: right or wrong, items with effects of
    their benchmark; abilities not centred unless told otherwise, as `irtjax.fit` has
    them where a subject answers few items.
    """
    several = kind != "LEGO-CM"
    groups = groups if several else 1
    stems = items // groups if kind == "LEGO-MM" else items
    group, stem = np.arange(items) % groups, np.arange(items)
    if kind == "LEGO-MM":
        group, stem = np.divmod(np.arange(items), stems)
    design, component = np.ones((stems, 1)), [-1]
    if kind == "LEGO-MB":
        design = np.column_stack([design, np.eye(groups)[group]])
        component += [0] * groups
    scores = LogitNormalScores(slopes="positive")
    return MultilevelModel(
        Binary(slopes="positive") if kind == "LEGO-MB" else scores,
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.asarray(design),
        jnp.asarray(component),
        jnp.zeros((subjects, 0)),
        hyperpriors=hyperpriors,
        num_groups=groups,
        num_stems=stems,
        num_components=int(kind == "LEGO-MB"),
        has_group_effects=kind == "LEGO-MM" and metric_effects,
        has_group_scales=several and (kind == "LEGO-MB" or metric_effects),
        centred=kind != "LEGO-MB" if centred is None else centred,
    )


def correlation(covariance: jax.Array) -> jax.Array:
    """The correlation matrix of a covariance."""
    sd = jnp.sqrt(jnp.diagonal(covariance))
    return covariance / sd[:, None] / sd


def quantities(
    model: MultilevelModel, position: Position, general: jax.Array, data: Responses
) -> dict[str, jax.Array]:
    """What is compared: abilities, hyperparameters, one item, densities."""
    theta = model.abilities(position)
    kept = {
        "general ability": general[:3],
        "ability, first group": theta[:3, 0],
        "ability, last group": theta[:3, -1],
        "mean coordinates of items": jnp.mean(model.coordinates(position), axis=0),
        "mean effects": jnp.mean(model.item_means(position), axis=0),
        "log residual sd": position.log_residual_sd,
        "residual correlations": jnp.tanh(position.residual_correlation),
        "coordinates of an item": model.coordinates(position)[0],
        "log likelihood": total_log_likelihood(model, position, data)[None],
        "log prior": log_prior(model, position)[None],
    }
    if model.num_groups > 1:
        pairs = jnp.tril_indices(model.num_groups, -1)
        kept["log scales"] = position.log_scale
        kept["correlations"] = correlation(model.specific_covariance(position))[pairs]
    if model.has_group_effects:
        kept["group effects"] = position.group_effects.ravel()
    if model.num_components:
        kept["log component sd"] = position.log_component_sd.ravel()
    if model.has_tilts:
        kept["tilts"] = model.tilts(position)
    return kept


def keep_quantities(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> dict[str, jax.Array]:
    """`quantities` of a draw; general abilities without the part that is left open."""
    frame, responses = data
    model, position = frame.model, frame.position(coordinates)
    general = general_ability(model.specific_covariance(position))
    mean = model.subject_design @ position.subject_effects
    psi = mean + (model.abilities(position) - mean[:, None]) @ general.weights
    kept = quantities(model, position, psi, responses)
    return kept | {"left open": general.variance}


class Replicate(NamedTuple):
    """A data set and what was drawn of its posterior.

    Attributes:
        truth: Each quantity, `[...]`.
        draws: Each quantity, `[chains, draws, ...]`.
        num_divergent: Transitions that diverged.
        num_leapfrog: Leapfrog steps after warm-up.
    """

    truth: dict[str, jax.Array]
    draws: dict[str, jax.Array]
    num_divergent: jax.Array
    num_leapfrog: jax.Array


def first_position(model: MultilevelModel, key: jax.Array) -> Position:
    """A start that knows nothing of the data: within 0.5 of the origin, scales of 1/3.

    Also nothing of the truth: a sampler that has not forgotten its start then shows it.
    """
    zeros = model.zeros()
    flat, unravel = jax.flatten_util.ravel_pytree(zeros)
    noise = unravel(jax.random.uniform(key, flat.shape, minval=-0.5, maxval=0.5))
    return noise._replace(
        log_scale=noise.log_scale - 1,
        log_component_sd=noise.log_component_sd - 1,
        log_residual_sd=noise.log_residual_sd - 1,
    )


def sample_posterior(
    model: MultilevelModel, data: Responses, method: NUTS, key: jax.Array, keep: Keep
) -> Chain:
    """Chains of a posterior to their end, inside one program."""
    start = start_multilevel(model, data)
    frame = SamplingFrame(model, Centring.create(model, *start, data))
    start_key, chain_key, noise_key = jax.random.split(key, 3)
    starts = jax.vmap(lambda key: frame.coordinates(first_position(model, key)))(
        jax.random.split(start_key, method.num_chains)
    )
    given = (frame, data)
    density = frame_log_density
    chains = begin(density, starts, given, key=chain_key, method=method, keep=keep)
    each = advance(
        chains, density, given, method=method, num_steps=method.num_steps, keep=keep
    ).each
    variance = each.values.pop("left open")
    mean = each.values["general ability"]
    noise = jax.random.normal(noise_key, mean.shape, mean.dtype)
    each.values["general ability"] = mean + jnp.sqrt(variance)[..., None] * noise
    return each


def replicate(model: MultilevelModel, method: NUTS, key: jax.Array) -> Replicate:
    """One data set with parameters from the prior, and draws of its posterior."""
    keys = jax.random.split(key, 3)
    drawn = simulate_position(model, keys[0])
    data = simulate_multilevel(model, drawn.position, keys[1])
    each = sample_posterior(model, data, method, keys[2], keep_quantities)
    truth = quantities(model, drawn.position, drawn.general, data)
    return Replicate(
        truth,
        each.values,
        jnp.sum(each.statistics.divergent),
        jnp.sum(each.statistics.num_leapfrog),
    )


@eqx.filter_jit
def replicates(model: MultilevelModel, method: NUTS, keys: jax.Array) -> Replicate:
    """`replicate` for each key, one after the other.

    In lockstep all replicates wait for the longest trajectory: 20 of them together took
    1.1 times as long on a CPU as one after the other.
    """
    return jax.lax.map(partial(replicate, model, method), keys)


#: Offsets of intercepts by group where hyperparameters are fixed.
TRUE_OFFSETS = (-0.5, 0.0, 0.5)


class Truth(NamedTuple):
    """Hyperparameters that are fixed.

    Attributes:
        scales: Of each group's own part of ability, s.
        correlations: Of these parts, by pairs: 2 and 1, 3 and 1, 3 and 2.
        spreads: Standard deviations of log discriminations, intercepts and log
            dispersions.
    """

    scales: tuple[float, float, float]
    correlations: tuple[float, float, float]
    spreads: tuple[float, float, float]


#: Of items whose priors are learned, which leaves Sigma to its own prior.
PLAIN = Truth((0.6, 0.4, 0.5), (0.3, 0.3, 0.3), (0.4, 0.8, 0.3))
#: Where the prior of discriminations is given, and with it the units of abilities: the
#: data tell Sigma.
GIVEN_PRIOR = Truth((1.5, 1.2, 1.4), (0.4, -0.3, 0.2), (0.3, 0.8, 0.3))
LEVEL = 0.9
TAILS = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])


def true_hyperparameters(model: MultilevelModel, truth: Truth = PLAIN) -> Position:
    """The hyperparameters that every data set of the study of coverage has."""
    groups, columns = model.num_groups, model.num_columns
    lower = jnp.zeros((groups, groups)).at[jnp.tril_indices(groups, -1)]
    lower = lower.set(jnp.asarray(truth.correlations))
    own = lower + lower.T + jnp.eye(groups)
    offsets = jnp.zeros((groups, columns)).at[:, 1].set(jnp.asarray(TRUE_OFFSETS))
    hyper = model.zeros()._replace(
        log_scale=jnp.log(jnp.asarray(truth.scales)),
        correlation=correlation_coordinates(jnp.linalg.cholesky(own)),
        log_residual_sd=jnp.log(jnp.asarray(truth.spreads[:columns])),
    )
    if model.has_group_effects:
        return hyper._replace(group_effects=offsets)
    if not model.num_components:
        return hyper
    # Effects of benchmarks have a standard deviation of 1 here: they are as written.
    return hyper._replace(effects=hyper.effects.at[1:].set(offsets))


def covered_quantities(
    model: MultilevelModel, position: Position, general: jax.Array
) -> dict[str, jax.Array]:
    """What intervals are taken of."""
    own = model.specific_covariance(position)
    pairs = jnp.tril_indices(model.num_groups, -1)
    # The mean of the items of each group, as their prior has it.
    first = jnp.argmax(model.group == jnp.arange(model.num_groups)[:, None], axis=1)
    means = model.item_means(position)[model.stem[first]]
    if model.has_group_effects:
        means = means + position.group_effects
    return {
        "general ability": general,
        "ability by group": model.abilities(position),
        "residual abilities": model.abilities(position) - general[:, None],
        "log scales": position.log_scale,
        "correlations of residual abilities": correlation(own)[pairs],
        # What the data tell of Sigma: the units of abilities are the prior's.
        "correlations by group": correlation(1 + own)[pairs],
        "mean intercepts by group": means[:, 1],
        "mean log discriminations by group": means[:, 0],
        "log residual sd": position.log_residual_sd,
    }


def keep_covered(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> dict[str, jax.Array]:
    """`covered_quantities` of a draw, general abilities as `keep_quantities` has."""
    frame, _ = data
    model, position = frame.model, frame.position(coordinates)
    general = general_ability(model.specific_covariance(position))
    psi = model.abilities(position) @ general.weights
    kept = covered_quantities(model, position, psi)
    # What is left open of psi is so of these, and is added to psi alone.
    del kept["residual abilities"]
    return kept | {"left open": general.variance}


class Intervals(NamedTuple):
    """One data set, its truth, and intervals by the sampler.

    Attributes:
        values: `[subjects, items]` the responses.
        truth: Each quantity.
        bounds: Each quantity, lower and upper bounds `[2, ...]`.
        num_divergent: Transitions that diverged.
    """

    values: jax.Array
    truth: dict[str, jax.Array]
    bounds: dict[str, jax.Array]
    num_divergent: jax.Array


def intervals(
    model: MultilevelModel, method: NUTS, fixed: bool, key: jax.Array
) -> Intervals:
    """Simulates one data set and computes its intervals of coverage `LEVEL`.

    Args:
        model: The model.
        method: The sampler.
        fixed: Whether hyperparameters are the true ones above; drawn from their prior
            when not.
        key: Random key.
    """
    keys = jax.random.split(key, 3)
    given = true_hyperparameters(model) if fixed else None
    drawn = simulate_position(model, keys[0], given)
    data = simulate_multilevel(model, drawn.position, keys[1])
    each = sample_posterior(model, data, method, keys[2], keep_covered)
    bounds = jax.tree.map(
        lambda v: jnp.quantile(v.reshape(-1, *v.shape[2:]), TAILS, axis=0), each.values
    )
    truth = covered_quantities(model, drawn.position, drawn.general)
    return Intervals(data.values, truth, bounds, jnp.sum(each.statistics.divergent))


@eqx.filter_jit
def many_intervals(
    model: MultilevelModel, method: NUTS, keys: jax.Array, fixed: bool
) -> Intervals:
    """`intervals` for each key, one after the other."""
    return jax.lax.map(partial(intervals, model, method, fixed), keys)


run_jit = eqx.filter_jit(run)


@eqx.filter_jit
def draw_data(
    model: MultilevelModel, key: jax.Array, truth: Truth | None = PLAIN
) -> tuple[dict[str, jax.Array], Any]:
    """`covered_quantities` of one data set with the true hyperparameters, and it.

    Without a `truth` hyperparameters are drawn from their priors.
    """
    keys = jax.random.split(key)
    given = None if truth is None else true_hyperparameters(model, truth)
    drawn = simulate_position(model, keys[0], given)
    data = simulate_multilevel(model, drawn.position, keys[1])
    return covered_quantities(model, drawn.position, drawn.general), data.values


class FastFit(NamedTuple):
    """What `laplace` says of one data set.

    Attributes:
        status: How it ended.
        estimates: `covered_quantities`.
        bounds: Of abilities, lower and upper bounds `[2, ...]`.
    """

    status: Status
    estimates: dict[str, jax.Array]
    bounds: dict[str, np.ndarray]


def fast_fit(model: MultilevelModel, values: jax.Array, order: int = 5) -> FastFit:
    """Estimates and intervals of coverage `LEVEL` by `laplace`."""
    problem = MultilevelProblem.create(model, Responses(values))
    method = Laplace(order=order)
    fit = run_jit(problem, method, None, max_steps=Laplace.runs.max_steps)
    found = summary_of_laplace(problem, method, fit.state)
    reach = np.asarray(jax.scipy.stats.norm.ppf(TAILS))
    bounds = {
        "general ability": found.general + reach[:, None] * found.general_error,
        "ability by group": found.ability + reach[:, None, None] * found.error,
    }
    components = fit.state.components
    # A start for the sampler has spreads of some size; the estimates may have none.
    position = position_of(model, problem, fit.state)._replace(
        log_scale=components.log_scale, log_residual_sd=components.log_residual_sd
    )
    estimates = covered_quantities(model, position, jnp.asarray(found.general))
    return FastFit(Status(int(fit.status)), estimates, bounds)
