"""Multilevel models: the same density as models written in numpyro's own words."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy
from scipy import stats

from irtjax.data.responses import Responses
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.density import (
    log_density,
    log_likelihood,
    log_prior,
    total_log_likelihood,
)
from irtjax.models.multilevel.model import MultilevelModel, Position, general_ability
from irtjax.models.priors import Beta, HalfNormal, LogNormal, Normal
from irtjax.numerics.bijections import (
    correlation_cholesky,
    correlation_coordinates,
    lkj_log_density,
)

SUBJECTS, ITEMS, GROUPS = 5, 8, 3
#: Scales of the half-normals of items' deviations: log discriminations first.
RESIDUAL = jnp.array([0.5, 2.0])
RNG = np.random.default_rng(2)


def binary_data(items=ITEMS) -> Responses:
    seen = RNG.random((SUBJECTS, items)) < 0.8
    right = (RNG.random((SUBJECTS, items)) < 0.6) & seen
    return Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen))


def random_position(model, seed):
    return _random_position(model, jax.random.key(seed))


@eqx.filter_jit
def _random_position(model, key):
    keys = jax.random.split(key, len(Position._fields))
    return jax.tree.map(
        lambda zero, key: 0.7 * jax.random.normal(key, zero.shape, zero.dtype),
        model.zeros(),
        type(model.zeros())(*keys),
    )


def assert_same_density(model, data, written, names, seeds=(1, 2), offset=0.0):
    """Asserts that two log densities are equal, constants and all but `offset`."""

    @jax.jit
    def both(position):
        values = {name: part for name, part in names(position).items()}
        energy = potential_energy(written, (), {}, values)
        return log_density(model, position, data), -energy

    for seed in seeds:
        ours, theirs = both(random_position(model, seed))
        np.testing.assert_allclose(ours, theirs - offset, rtol=1e-6)


@pytest.mark.slow
def test_cholesky_factors_of_correlations():
    coordinates = jnp.asarray(RNG.normal(size=6))
    factor = correlation_cholesky(coordinates, 4)
    np.testing.assert_allclose(jnp.diagonal(factor @ factor.T), 1, atol=1e-12)
    np.testing.assert_allclose(correlation_coordinates(factor), coordinates, rtol=1e-9)
    transform = dist.transforms.CorrCholeskyTransform()
    np.testing.assert_allclose(factor, transform(coordinates), atol=1e-12)

    @functools.partial(jax.jit, static_argnums=0)  # It is a setting of a model.
    def both(concentration):
        wanted = dist.LKJCholesky(4, concentration).log_prob(factor)
        wanted += transform.log_abs_det_jacobian(coordinates, factor)
        return lkj_log_density(coordinates, 4, concentration), wanted

    for concentration in (1.0, 2.5):
        found, wanted = both(concentration)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("centred", "spread"),
    [pytest.param(True, False, marks=pytest.mark.slow), (False, True)],
)
def test_benchmarks_levels_and_covariates(centred, spread):
    data = binary_data()
    group = jnp.asarray([0, 0, 0, 1, 1, 1, 2, 2])
    domain = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    design = np.column_stack(
        [np.ones(ITEMS), np.eye(3)[group], np.eye(4)[domain], RNG.normal(size=ITEMS)]
    )
    covariate = jnp.asarray(RNG.normal(size=(SUBJECTS, 2)))
    model = MultilevelModel(
        Binary(slopes="positive"),
        group,
        jnp.arange(ITEMS),
        jnp.asarray(design),
        jnp.asarray([-1, 0, 0, 0, 1, 1, 1, 1, -1]),
        covariate,
        num_groups=GROUPS,
        num_stems=ITEMS,
        num_components=2,
        has_group_scales=True,
        centred=centred,
        cluster=group if spread else None,
        num_clusters=GROUPS if spread else 0,
    )

    def written():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([GROUPS]))
        factor = numpyro.sample("factor", dist.LKJCholesky(GROUPS, 2.0))
        gamma = numpyro.sample("gamma", dist.Normal(0, 2).expand([2]))
        root = scale[:, None] * factor
        sigma = root @ root.T + 1
        mean = (covariate @ gamma)[:, None] * jnp.ones(GROUPS)
        with numpyro.plate("subjects", SUBJECTS):
            if centred:
                theta = numpyro.sample("theta", dist.MultivariateNormal(mean, sigma))
            else:
                z = numpyro.sample("theta", dist.Normal().expand([GROUPS]).to_event(1))
                theta = mean + z @ jnp.linalg.cholesky(sigma).T
        tau = numpyro.sample("tau", dist.HalfNormal(2.0).expand([2, 2]))
        residual = numpyro.sample("residual", dist.HalfNormal(RESIDUAL))
        z = numpyro.sample("effects", dist.Normal().expand([9, 2]))
        benchmark, area = tau[0] * z[1:4], tau[1] * z[4:8]
        mean = 5 * z[0] + benchmark[group] + area[domain] + 5 * design[:, 8:] * z[8]
        tied = numpyro.sample("tied", dist.LKJCholesky(2, 2.0))
        tilt = 2 * numpyro.sample("tilt", dist.Normal().expand([GROUPS]))
        root = jnp.broadcast_to(residual[:, None] * tied, (ITEMS, 2, 2))
        if spread:
            wider = numpyro.sample("wider", dist.Normal().expand([GROUPS, 2])) / 2
            root = root * jnp.exp(wider - wider.mean(axis=0))[group, :, None]
        slope = root[:, 1, 0] + (tilt - tilt.mean())[group] * root[:, 0, 0]
        root = root.at[:, 1, 0].set(slope)
        x = numpyro.sample("items", dist.MultivariateNormal(mean, scale_tril=root))
        eta = jnp.exp(x[:, 0]) * theta[:, group] + x[:, 1]
        with numpyro.handlers.mask(mask=data.observed):
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data.values)

    names = lambda p: {
        "scale": p.log_scale,
        "factor": p.correlation,
        "gamma": p.subject_effects,
        "theta": p.ability,
        "tau": p.log_component_sd,
        "residual": p.log_residual_sd,
        "tied": p.residual_correlation,
        "effects": p.effects,
        "tilt": p.tilt,
        "items": p.items,
        **({"wider": p.log_relative_sd} if spread else {}),
    }
    assert_same_density(model, data, written, names)


@pytest.mark.slow
def test_fixed_priors_of_a_four_parameter_model():
    data = binary_data()
    model = MultilevelModel(
        Binary(slopes="positive", asymptotes=2),
        jnp.zeros(ITEMS, int),
        jnp.arange(ITEMS),
        jnp.ones((ITEMS, 1)),
        jnp.asarray([-1]),
        jnp.zeros((SUBJECTS, 0)),
        {
            "discrimination": LogNormal(0.1, 0.6),
            "intercept": Normal(-0.2, 1.5),
            "lower_asymptote": Beta(2.0, 8.0),
            "upper_asymptote": Beta(10.0, 1.5),
        },
        num_stems=ITEMS,
    )

    def density(position):
        """The priors of natural values, by scipy, with Jacobians by autodiff."""
        total = 0.0
        natural = lambda x: jnp.stack(list(model.family.constrain(x)))
        jacobian = jax.jit(jax.jacobian(natural))
        for row in position.items:
            item = model.family.constrain(row)
            total += np.linalg.slogdet(np.asarray(jacobian(row)))[1]
            total += stats.lognorm.logpdf(item.discrimination, 0.6, scale=np.exp(0.1))
            total += stats.norm.logpdf(item.intercept, -0.2, 1.5)
            total += stats.beta.logpdf(item.lower_asymptote, 2, 8)
            total += stats.beta.logpdf(item.upper_asymptote, 10, 1.5)
        return total + stats.norm.logpdf(position.ability).sum()

    position = random_position(model, 4)
    assert float(log_prior(model, position)) == pytest.approx(density(position))
    items = model.items(position)
    eta = items.discrimination * position.ability + items.intercept
    gap = items.upper_asymptote - items.lower_asymptote
    right = items.lower_asymptote + gap * jax.nn.sigmoid(eta)
    wanted = jnp.where(data.values == 1, jnp.log(right), jnp.log1p(-right))
    wanted = jnp.where(data.observed, wanted, 0)
    np.testing.assert_allclose(log_likelihood(model, position, data), wanted, rtol=1e-9)


def test_metrics_share_the_items_of_a_stem():
    stems, data = 4, binary_data(ITEMS)
    group, stem = jnp.asarray([0, 0, 0, 0, 1, 1, 1, 1]), jnp.asarray([0, 1, 2, 3] * 2)
    model = MultilevelModel(
        Binary(slopes="positive"),
        group,
        stem,
        jnp.ones((stems, 1)),
        jnp.asarray([-1]),
        jnp.zeros((SUBJECTS, 0)),
        {"discrimination": LogNormal(0.0, 0.5), "intercept": Normal(0.0, 1.0)},
        num_groups=2,
        num_stems=stems,
        has_group_effects=True,
        centred=False,
    )

    def written():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        root = scale[:, None] * factor
        z = numpyro.sample("z", dist.Normal().expand([SUBJECTS, 2]))
        theta = z @ jnp.linalg.cholesky(root @ root.T + 1).T
        shift = numpyro.sample("shift", dist.Normal(0, 3).expand([2, 2]))
        a = numpyro.sample("a", dist.LogNormal(0, 0.5).expand([stems]))
        d = numpyro.sample("d", dist.Normal(0, 1).expand([stems]))
        slope = a[stem] * jnp.exp(shift[group, 0])
        eta = slope * theta[:, group] + d[stem] + shift[group, 1]
        with numpyro.handlers.mask(mask=data.observed):
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data.values)

    names = lambda p: {
        "scale": p.log_scale,
        "factor": p.correlation,
        "z": p.ability,
        "shift": p.group_effects,
        "a": p.items[:, 0],
        "d": p.items[:, 1],
    }
    assert_same_density(model, data, written, names)


@pytest.mark.parametrize("groups", [1, GROUPS])
def test_slopes_of_one_leave_the_spread_of_ability_to_be_learned(groups):
    data, group = binary_data(), jnp.arange(ITEMS) % groups
    model = MultilevelModel(
        Binary(slopes="unit"),
        group,
        jnp.arange(ITEMS),
        jnp.ones((ITEMS, 1)),
        jnp.asarray([-1]),
        jnp.zeros((SUBJECTS, 0)),
        num_groups=groups,
        num_stems=ITEMS,
    )

    def written():
        tau = numpyro.sample("tau", dist.HalfNormal(5.0))
        sigma = tau**2 * jnp.ones((groups, groups))
        if groups > 1:
            scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([groups]))
            factor = numpyro.sample("factor", dist.LKJCholesky(groups, 2.0))
            root = scale[:, None] * factor
            sigma = sigma + root @ root.T
        with numpyro.plate("subjects", SUBJECTS):
            theta = numpyro.sample(
                "theta", dist.MultivariateNormal(jnp.zeros(groups), sigma)
            )
        mean = 5 * numpyro.sample("mean", dist.Normal())
        omega = numpyro.sample("omega", dist.HalfNormal(2.0))
        d = numpyro.sample("d", dist.Normal(mean, omega).expand([ITEMS]))
        with numpyro.handlers.mask(mask=data.observed):
            eta = theta[:, group] + d
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data.values)

    names = lambda p: {
        "tau": p.log_general_sd[0],
        "theta": p.ability,
        "mean": p.effects[0, 0],
        "omega": p.log_residual_sd[0],
        "d": p.items[:, 0],
        **({"scale": p.log_scale, "factor": p.correlation} if groups > 1 else {}),
    }
    assert_same_density(model, data, written, names)
    own = model.specific_covariance(random_position(model, 1))
    wide, narrow = (general_ability(own, v) for v in (4.0, 1.0))
    joint = np.asarray(own) + 4.0
    weights = 4.0 * np.linalg.solve(joint, np.ones(groups))
    np.testing.assert_allclose(wide.weights, weights, rtol=1e-9)
    assert float(wide.variance) >= float(narrow.variance)


def scores(groups, missing, dtype=jnp.float64, centre=0.0):
    """A model of normal logits with some data, and a position."""
    group = np.arange(ITEMS) % groups
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.asarray(group),
        jnp.arange(ITEMS),
        jnp.ones((ITEMS, 1), dtype),
        jnp.asarray([-1]),
        jnp.zeros((SUBJECTS, 0), dtype),
        {
            "discrimination": LogNormal(0.0, 0.5),
            "intercept": Normal(0.0, 2.0),
            "dispersion": HalfNormal(1.0),
        },
        num_groups=groups,
        num_stems=ITEMS,
    )
    seen = RNG.random((SUBJECTS, ITEMS)) < 0.8 if missing else None
    values = centre + RNG.normal(size=(SUBJECTS, ITEMS))
    if seen is not None:
        values = np.where(seen, values, 0)
    data = Responses(
        jnp.asarray(values, dtype), None if seen is None else jnp.asarray(seen)
    )
    position = random_position(model, 3)
    return model, data, jax.tree.map(lambda part: part.astype(dtype), position)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("missing", [False, True])
def test_normal_scores_by_moments_are_those_of_cells(groups, missing):
    model, data, position = scores(groups, missing)

    def by_cell(position):
        """Normal densities of the logits that are there, by JAX' own."""
        items, theta = model.items(position), position.ability[:, model.group]
        mean = items.discrimination * theta + items.intercept
        cell = jax.scipy.stats.norm.logpdf(data.values, mean, items.dispersion)
        seen = 1.0 if data.observed is None else data.observed
        return jnp.sum(cell * seen) + log_prior(model, position)

    @jax.jit
    def both(position):
        own = lambda position: log_density(model, position, data)
        return [jax.value_and_grad(f)(position) for f in (own, by_cell)]

    ours, theirs = both(position)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_normal_scores_by_moments_in_single_precision():
    model, data, position = scores(1, True, jnp.float32, centre=8.0)
    shift = jnp.array([0.0, 8.0, 0.0], jnp.float32)
    position = position._replace(items=position.items + shift)
    value = total_log_likelihood(model, position, data)
    assert value.dtype == jnp.float32
    wide = jax.tree.map(lambda x: x.astype(jnp.float64), (position, data.values))
    exact = total_log_likelihood(model, wide[0], Responses(wide[1], data.observed))
    # Sums of squares near 64 a cell, rounded some ten times, over 2 sigma^2.
    spread = float(jnp.min(jnp.exp(position.items[:, 2]))) ** 2
    allowed = 10 * np.finfo(np.float32).eps * 64 * SUBJECTS * ITEMS / (2 * spread)
    assert abs(float(value) - float(exact)) < allowed


def test_the_general_part_is_the_conditional_of_the_joint_normal():
    root = RNG.normal(size=(GROUPS, GROUPS))
    own = root @ root.T
    found = general_ability(jnp.asarray(own))
    # Joint covariance of (psi, theta), conditioned by its precision matrix.
    joint = np.block(
        [[np.ones((1, 1)), np.ones((1, GROUPS))], [np.ones((GROUPS, 1)), own + 1]]
    )
    precision = np.linalg.inv(joint + 1e-12 * np.eye(GROUPS + 1))
    np.testing.assert_allclose(found.variance, 1 / precision[0, 0], rtol=1e-5)
    np.testing.assert_allclose(
        found.weights, -precision[0, 1:] / precision[0, 0], rtol=1e-5
    )
    # The marginal is what integrating psi and zeta by draws gives.
    draws = RNG.normal(size=(200_000, 1)) + RNG.normal(size=(200_000, GROUPS)) @ root.T
    error = np.sqrt(
        (np.diag(own + 1)[:, None] * np.diag(own + 1) + (own + 1) ** 2) / 200_000
    )
    assert (np.abs(np.cov(draws.T) - own - 1) < 5 * error).all()


def test_half_normal_prior():
    values = np.array([0.0, 0.3, 2.0])
    np.testing.assert_allclose(
        HalfNormal(1.5).log_density(jnp.asarray(values)),
        stats.halfnorm.logpdf(values, scale=1.5),
    )
