"""Replications: draw, fit, compute every standard error; all in one program."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.fitting.bootstrap import bootstrap, percentile_interval
from irtjax.inference import Covariance, Scores, item_covariance, score_on_nodes
from irtjax.inference.information import difficulty
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.catalogue import MODELS
from irtjax.models.model import Model, Population
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics.kernels import after

LEVEL = 0.95
BATCH = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """One design: a model, its priors and the shape of the data."""

    name: str
    model: str
    priors: str | None
    num_subjects: int
    num_items: int
    replications: int
    #: Replications whose items also get bootstrap intervals, and draws in each.
    bootstrapped: int = 0
    draws: int = 200
    #: Whether the requirement on coverage applies, or the row is for information.
    required: bool = True
    kinds: tuple[str, ...] = ("observed", "sandwich")

    def make_model(self) -> Model:
        return MODELS[self.model](self.priors)


class Truth(NamedTuple):
    """What a replication drew."""

    items: Any
    theta: jax.Array


class Replicate(NamedTuple):
    """What a replication found, beside what it drew.

    Attributes:
        truth: Items and abilities drawn.
        items: Estimated items.
        sd: Estimated standard deviation of ability.
        errors: By kind of standard error, by parameter, `[items]`; "sd" is that of
            the log standard deviation of ability.
        ability: By how it was scored, (score, standard error), `[subjects]`.
        difference: Of each subject's ability and the next one's, (estimate, standard
            error with the errors that both share, standard error as if they shared
            none), `[subjects]`.
        status: Status code of the fit.
        num_steps: Its EM iterations.
        definite: Whether every information matrix was positive definite.
    """

    truth: Truth
    items: Any
    sd: jax.Array
    errors: dict[str, dict[str, jax.Array]]
    ability: dict[str, tuple[jax.Array, jax.Array]]
    difference: tuple[jax.Array, jax.Array, jax.Array]
    status: jax.Array
    num_steps: jax.Array
    definite: jax.Array


def draw(case: Case, model: Model, key):
    """Items, abilities and responses of one replication."""
    item_key, ability_key, response_key = jax.random.split(key, 3)
    items = simulate_items(model, case.num_items, item_key)
    theta = simulate_abilities(case.num_subjects, ability_key)
    return Truth(items, theta), simulate(model, items, theta, response_key)


def fit_nodes(case: Case, model: Model, key):
    """Nodes for all replications of a case, chosen from one drawn test."""
    truth, data = draw(case, model, key)
    unit = Population(jnp.zeros(()), jnp.ones(()))
    return jnp.asarray(choose_nodes(model, truth.items, unit, data))


def natural_errors(model: Model, coordinates, covariance: Covariance):
    """Standard errors of natural parameters and difficulty, by the delta method."""

    def natural(row):
        item = model.family.constrain(row)
        return {**item._asdict(), "difficulty": difficulty(item)}

    def error(row, block):
        slopes = jax.jacfwd(natural)(row)
        return {name: jnp.sqrt(jnp.maximum(g @ block @ g, 0)) for name, g in
                slopes.items()}  # fmt: skip

    errors = jax.vmap(error)(coordinates, covariance.items)
    return {**errors, "sd": jnp.sqrt(covariance.scale[1, 1])}


def replicate(case: Case, model: Model, nodes, key) -> Replicate:
    """Draws, fits, and computes every standard error once. Pure."""
    truth, data = draw(case, model, key)
    problem = Problem.create(model, data)
    fit = run(problem, EM(nodes), start_values(model, data), max_steps=500)
    items, population = fit.parameters[:2]
    coordinates = model.unconstrain(items)
    scale = estimation_scale(problem, Start(items, None, population))
    covariances: dict[str, Covariance] = {}
    for kind in case.kinds:
        for done in covariances.values():
            coordinates = after(coordinates, done.items)
        covariances[kind] = item_covariance(
            problem, coordinates, scale, nodes, kind=kind
        )
    bounds = jnp.asarray([-6.0, 6.0])
    score = partial(score_on_nodes, model, data=data, nodes=nodes, bounds=bounds,
                    scoring="eap")  # fmt: skip
    unit = Population(jnp.zeros(()), jnp.ones(()))
    scores = {
        "true items": score(truth.items, unit),
        "items as known": score(items, population),
        "item uncertainty": score(
            items, population, item_covariance=covariances["observed"]
        ),
    }
    return Replicate(
        truth,
        items,
        population.sd,
        {k: natural_errors(model, coordinates, c) for k, c in covariances.items()},
        {name: (s.ability, s.standard_error) for name, s in scores.items()},
        differences(scores["item uncertainty"]),
        fit.status,
        fit.num_steps,
        jnp.all(jnp.stack([c.definite for c in covariances.values()])),
    )


def next_one(values):
    """The values of the next subject, the first one's for the last."""
    return jnp.roll(values, -1, axis=0)


def differences(scores: Scores):
    """What `Replicate.difference` holds."""
    shared = scores.shared
    assert shared is not None
    error = scores.standard_error
    apart = error**2 + next_one(error) ** 2
    together = apart - 2 * jnp.sum(shared * next_one(shared), axis=1)
    gap = scores.ability - next_one(scores.ability)
    return gap, jnp.sqrt(together), jnp.sqrt(apart)


@eqx.filter_jit
def replicate_all(case: Case, model: Model, nodes, keys) -> Replicate:
    """Every replication of a case, in batches, in one program."""
    one = partial(replicate, case, model, nodes)
    return lax.map(one, keys, batch_size=min(BATCH, keys.shape[0]))


def bootstrap_intervals(case: Case, model: Model, nodes, keys, found: Replicate):
    """Percentile intervals of the first replications, `{name: (low, high)}`."""
    low_high: dict[str, tuple[list, list]] = {}
    remake = jax.jit(lambda key: draw(case, model, key)[1])
    for index in range(case.bootstrapped):
        items = jax.tree.map(lambda a: a[index], found.items)  # noqa: B023
        problem = Problem.create(model, remake(keys[index]))
        sample = bootstrap(
            problem,
            EM(nodes),
            Start(items),
            key=jax.random.fold_in(keys[index], 1),
            num_replicates=case.draws,
        ).parameters.items
        values = {**sample._asdict(), "difficulty": difficulty(sample)}
        low, high = percentile_interval(values, LEVEL)
        for name in values:
            lows, highs = low_high.setdefault(name, ([], []))
            lows.append(np.asarray(low[name]))
            highs.append(np.asarray(high[name]))
    return {k: (np.stack(lo), np.stack(hi)) for k, (lo, hi) in low_high.items()}
