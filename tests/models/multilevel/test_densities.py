"""Densities of multilevel models beside numpyro's own words, for all responses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import comb

from irtjax.data.responses import Responses
from irtjax.data.scores import END
from irtjax.models.families.continuous import BetaScores, LogitNormalScores
from irtjax.models.families.graded import SpacedGraded
from irtjax.models.families.inflated import InflatedBetaScores
from irtjax.models.families.logistic import Binary
from irtjax.models.families.mixed import MixedScores
from irtjax.models.multilevel.model import MultilevelModel
from tests.models.multilevel.test_model import assert_same_density

SUBJECTS, GROUPS, STEMS, CATEGORIES = 5, 3, 4, 4
RNG = np.random.default_rng(8)
NOBODY = np.zeros((SUBJECTS, 0))


def learned_rows(columns, design, component, tilted=None):
    """Coordinates of items around the effects of a design, in numpyro's words.

    Args:
        columns: Coordinates of an item.
        design: `[stems, effects]`.
        component: Component of each effect; -1 for a standard deviation of 5.
        tilted: Group of each stem, where groups have slopes of their own.
    """
    effects = numpyro.sample("effects", dist.Normal().expand([len(component), columns]))
    sd = [jnp.full(columns, 5.0)] * len(component)
    if max(component) >= 0:
        size = [max(component) + 1, columns]
        levels = numpyro.sample("levels", dist.HalfNormal(2.0).expand(size))
        sd = [levels[k] if k >= 0 else sd[e] for e, k in enumerate(component)]
    mean = sum(
        np.outer(design[:, e], np.ones(columns)) * sd[e] * effects[e]
        for e in range(len(component))
    )
    scales = jnp.full(columns, 2.0).at[0].set(0.5)
    residual = numpyro.sample("residual", dist.HalfNormal(scales))
    tied = numpyro.sample("tied", dist.LKJCholesky(columns, 2.0))
    covariance = jnp.outer(residual, residual) * (tied @ tied.T)
    if tilted is None:
        prior = dist.MultivariateNormal(mean, covariance)
        return numpyro.sample("items", prior.to_event(1))
    tilt = numpyro.sample("tilt", dist.Normal(0, 2).expand([GROUPS]))
    # (e_0, e_1 - k e_0, ...) ~ N(0, Omega0), so e is a linear map of it.
    rows = []
    for j, group in enumerate(tilted):
        shear = jnp.eye(columns).at[1, 0].set(tilt[group] - tilt.mean())
        prior = dist.MultivariateNormal(mean[j], shear @ covariance @ shear.T)
        rows.append(numpyro.sample(f"item {j}", prior))
    return jnp.stack(rows)


def abilities(groups):
    """General and own abilities, summed."""
    if groups == 1:
        return numpyro.sample("theta", dist.Normal().expand([SUBJECTS, 1]).to_event(2))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([groups]))
    factor = numpyro.sample("factor", dist.LKJCholesky(groups, 2.0))
    sigma = jnp.outer(scale, scale) * (factor @ factor.T) + 1
    joint = dist.MultivariateNormal(jnp.zeros(groups), sigma)
    return numpyro.sample("theta", joint.expand([SUBJECTS]).to_event(1))


def names(position):
    """The parts of a position by the names above."""
    parts = {
        "effects": position.effects,
        "levels": position.log_component_sd,
        "residual": position.log_residual_sd,
        "tied": position.residual_correlation,
        "scale": position.log_scale,
        "factor": position.correlation,
        "theta": position.ability,
        # A normal of its own standard deviation, where ours is in units of it.
        "tilt": 2 * position.tilt,
        "shift": position.group_effects,
        "items": position.items,
    }
    return {name: part for name, part in parts.items() if part.size}


def score_data(items):
    seen = RNG.random((SUBJECTS, items)) < 0.8
    values = np.where(seen, RNG.normal(size=seen.shape), 0)
    return Responses(jnp.asarray(values), jnp.asarray(seen))


def observe(distribution, data):
    with numpyro.handlers.mask(mask=data.observed):
        numpyro.sample("y", distribution, obs=data.values)


def normal_scores(data, rows, theta):
    mean = jnp.exp(rows[:, 0]) * theta + rows[:, 1]
    observe(dist.Normal(mean, jnp.exp(rows[:, 2])), data)


def ratings(data, rows, theta):
    spacing = jnp.exp(rows[:, 2:])
    cuts = jnp.concatenate([jnp.zeros((len(rows), 1)), jnp.cumsum(spacing, 1)], 1)
    cuts = cuts - cuts.mean(axis=1, keepdims=True)
    predictor = jnp.exp(rows[:, 0]) * theta + rows[:, 1]
    observe(dist.OrderedLogistic(predictor, cuts[None]), data)


def test_scores_of_one_ability():
    data = score_data(STEMS)
    design = np.column_stack([np.ones(STEMS), RNG.normal(size=STEMS)])
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.zeros(STEMS, int),
        jnp.arange(STEMS),
        jnp.asarray(design),
        jnp.asarray([-1, -1]),
        jnp.asarray(NOBODY),
        num_stems=STEMS,
    )

    def written():
        theta = abilities(1)
        normal_scores(data, learned_rows(3, design, [-1, -1]), theta)

    assert_same_density(model, data, written, names)


@pytest.mark.parametrize(
    "kind", ["scores", pytest.param("ratings", marks=pytest.mark.slow)]
)
def test_groups_with_items_of_their_own(kind):
    group = np.repeat(np.arange(GROUPS), STEMS)
    thing = np.tile(np.arange(STEMS), GROUPS)
    items = len(group)
    design = np.column_stack([np.ones(items), np.eye(GROUPS)[group]])
    design = np.column_stack([design, np.eye(STEMS)[thing]])
    component = [-1] + [0] * GROUPS + [1] * STEMS
    data = score_data(items)
    family, columns, respond = LogitNormalScores(slopes="positive"), 3, normal_scores
    if kind == "ratings":
        values = np.where(data.observed, RNG.integers(CATEGORIES, size=(1, items)), 0)
        data = Responses(jnp.asarray(values), data.observed)
        family, columns, respond = SpacedGraded(CATEGORIES), CATEGORIES, ratings
    model = MultilevelModel(
        family,
        jnp.asarray(group),
        jnp.arange(items),
        jnp.asarray(design),
        jnp.asarray(component),
        jnp.asarray(NOBODY),
        num_groups=GROUPS,
        num_stems=items,
        num_components=2,
        has_group_scales=True,
    )

    def written():
        theta = abilities(GROUPS)
        rows = learned_rows(columns, design, component, tilted=group)
        respond(data, rows, theta[:, group])

    def named(position):
        parts = names(position)
        rows = {f"item {j}": row for j, row in enumerate(parts.pop("items"))}
        return parts | rows

    # Their tilts are 2 times ours, and so is their measure.
    assert_same_density(model, data, written, named, offset=-GROUPS * np.log(2))


def test_metrics_that_share_items():
    group = np.repeat(np.arange(GROUPS), STEMS)
    stem = np.tile(np.arange(STEMS), GROUPS)
    data = score_data(len(group))
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.ones((STEMS, 1)),
        jnp.asarray([-1]),
        jnp.asarray(NOBODY),
        num_groups=GROUPS,
        num_stems=STEMS,
        has_group_effects=True,
        has_group_scales=True,
    )

    def written():
        theta = abilities(GROUPS)
        rows = learned_rows(3, np.ones((STEMS, 1)), [-1])
        shift = numpyro.sample("shift", dist.Normal(0, 3).expand([GROUPS, 3]))
        normal_scores(data, rows[stem] + shift[group], theta[:, group])

    assert_same_density(model, data, written, names)


#: Columns that are right or wrong where the others are scores.
IS_BINARY = np.array([True, False, True, False])


def trial_data():
    """Counts of up to five trials, none in cells that are missing."""
    trials = RNG.integers(0, 6, size=(SUBJECTS, STEMS))
    values = RNG.binomial(trials, 0.6)
    return Responses(
        jnp.asarray(values), jnp.asarray(trials > 0), trials=jnp.asarray(trials)
    )


def ended_data():
    """Logits, a third of them codes of the ends."""
    data = score_data(STEMS)
    kind = RNG.integers(0, 6, size=data.values.shape)
    values = np.where(kind == 0, -END, np.where(kind == 1, END, data.values))
    return Responses(jnp.asarray(np.where(data.observed, values, 0)), data.observed)


def mixed_data():
    """Right or wrong in some columns, logits in the others."""
    data = score_data(STEMS)
    values = np.where(IS_BINARY, data.values > 0, data.values)
    return Responses(jnp.asarray(np.where(data.observed, values, 0)), data.observed)


def counts(data, rows, theta):
    logits = jnp.exp(rows[:, 0]) * theta + rows[:, 1]
    observe(dist.Binomial(data.trials, logits=logits), data)


def beta_of(rows, theta):
    mean = jax.nn.sigmoid(jnp.exp(rows[:, 0]) * theta + rows[:, 1])
    precision = jnp.exp(rows[:, 2])
    return dist.Beta(mean * precision, (1 - mean) * precision)


def betas(data, rows, theta):
    scores = Responses(jax.nn.sigmoid(data.values), data.observed)
    observe(beta_of(rows, theta), scores)


def betas_with_ends(data, rows, theta):
    predictor = jnp.exp(rows[:, 0]) * theta + rows[:, 1]
    cuts = jnp.stack([rows[:, 3], rows[:, 3] + jnp.exp(rows[:, 4])], axis=-1)
    place = jnp.where(data.values <= -END, 0, jnp.where(data.values >= END, 2, 1))
    with numpyro.handlers.mask(mask=data.observed):
        numpyro.sample("place", dist.OrderedLogistic(predictor, cuts), obs=place)
    inside = Responses(
        jax.nn.sigmoid(jnp.where(place == 1, data.values, 0)),
        data.observed & (place == 1),
    )
    observe(beta_of(rows, theta), inside)


def both_kinds(data, rows, theta):
    predictor = jnp.exp(rows[:, 0]) * theta + rows[:, 1]
    with numpyro.handlers.mask(mask=data.observed & IS_BINARY):
        right = jnp.where(IS_BINARY, data.values, 0)
        numpyro.sample("right", dist.Bernoulli(logits=predictor), obs=right)
    with numpyro.handlers.mask(mask=data.observed & ~IS_BINARY):
        normal = dist.Normal(predictor, jnp.exp(rows[:, 2]))
        numpyro.sample("score", normal, obs=data.values)


def log_slope(data):
    """Log of dy / dz of the scores strictly between the ends."""
    inside = data.observed & (np.abs(data.values) < END)
    slope = jax.nn.log_sigmoid(data.values) + jax.nn.log_sigmoid(-data.values)
    return float(jnp.sum(jnp.where(inside, slope, 0)))


def log_ways(data):
    """Log binomial coefficients of the counts."""
    return np.log(comb(np.asarray(data.trials), np.asarray(data.values))).sum()


POSITIVE = {"slopes": "positive"}
#: Of each kind of response: the family, data, what numpyro sees of them, and by how
#: much its measure of a response differs: scores are ours as logits, counts as draws.
KINDS = {
    "counts": (Binary(**POSITIVE), trial_data(), counts, log_ways),
    "beta": (BetaScores(**POSITIVE), score_data(STEMS), betas, lambda d: -log_slope(d)),
    "ends": (
        InflatedBetaScores(0.01, **POSITIVE),
        ended_data(),
        betas_with_ends,
        lambda d: -log_slope(d),
    ),
    "mixed": (
        MixedScores(tuple(IS_BINARY.tolist()), **POSITIVE),
        mixed_data(),
        both_kinds,
        lambda _: 0.0,
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_other_kinds_of_responses(kind):
    family, data, respond, measure = KINDS[kind]
    columns = family.num_columns
    model = MultilevelModel(
        family,
        jnp.zeros(STEMS, int),
        jnp.arange(STEMS),
        jnp.ones((STEMS, 1)),
        jnp.asarray([-1]),
        jnp.asarray(NOBODY),
        num_stems=STEMS,
    )

    def written():
        theta = abilities(1)
        respond(data, learned_rows(columns, np.ones((STEMS, 1)), [-1]), theta)

    assert_same_density(model, data, written, names, offset=measure(data))
