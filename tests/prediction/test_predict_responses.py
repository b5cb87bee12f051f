"""Predicted responses against integrals over a dense grid of item coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_expit

import irtjax
from irtjax.estimators.laplace.expected_scores import mean_responses
from irtjax.estimators.laplace.items import Following
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.specification import MultiBenchmark
from irtjax.prediction.responses import predict_responses


def problem_of(values, seen, benchmark):
    table = irtjax.ResponseTable.from_arrays(values, observed=seen, benchmark=benchmark)
    layout = MultiBenchmark().lay_out(table, Binary(slopes="positive"))
    return MultilevelProblem.create(layout.model, table.responses(float))


def prior_on_grid(problem, state, item: int, most: float, points: int):
    """A grid of an item's two coordinates, and their prior log density on it."""
    model, components = problem.model, state.components
    prior = np.asarray(model.design @ components.effects)[item]
    root = model.residual_factor(*residual_part(components))[model.factor_row[item]]
    axis = np.linspace(-most, most, points)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    covariance = np.asarray(root @ root.T)
    return grid, stats.multivariate_normal(prior, covariance).logpdf(grid)


def residual_part(components):
    at = components
    return at.log_residual_sd, at.residual_correlation, at.tilt, at.log_relative_sd


def by_grid(problem, state, item: int, shift=0.0) -> np.ndarray:
    """Means of an item's responses over a grid of its two coordinates.

    Abilities are those of the state, shifted.
    """
    model = problem.model
    grid, log_mass = prior_on_grid(problem, state, item, 9, 361)
    items = jax.vmap(model.family.constrain)(jnp.asarray(grid))
    slope, intercept = np.asarray(items.discrimination), np.asarray(items.intercept)
    theta = np.asarray(state.ability)[:, int(model.group[item])] + shift
    logit = slope[:, None] * theta + intercept[:, None]
    y = np.asarray(problem.data.values)[:, item]
    seen = np.asarray(problem.data.observed)[:, item]
    terms = np.where(y > 0, log_expit(logit), log_expit(-logit))
    log_mass = log_mass + terms @ seen
    mass = np.exp(log_mass - log_mass.max())
    return mass @ expit(logit) / mass.sum()


@pytest.mark.slow
def test_means_are_those_over_a_grid():
    rng = np.random.default_rng(4)
    values = (rng.random((6, 8)) < 0.6).astype(np.int8)
    seen = rng.random((6, 8)) < 0.7
    seen[:, 7] = False  # Nothing is known of it but its prior.
    values = values * seen
    # Twice the same responses in one benchmark: one stands for both.
    values[:, 2], seen[:, 2] = values[:, 0], seen[:, 0]
    problem = problem_of(values, seen, ["x", "y"] * 4)
    assert problem.distinct.weight.max() == 2
    state = eqx.filter_jit(Laplace(order=2).init)(problem, None, None)
    exact = np.stack([by_grid(problem, state, item) for item in range(8)], axis=1)
    few = np.asarray(predict_responses(problem, state))
    assert few.shape == values.shape
    # The integrand is analytic, so the error falls by a constant factor per node: from
    # thousandths at 5 nodes to rounding's order at many.
    assert np.abs(few - exact).max() < 0.01
    many = np.asarray(predict_responses(problem, state, order=41))
    assert np.abs(many - exact).max() < 1e-6
    with pytest.raises(ValueError, match="order 0 is not"):
        predict_responses(problem, state, order=0)
    with pytest.raises(ValueError, match="need a random key"):
        predict_responses(problem, state, num_draws=3)
    # Abilities that are off by t times a direction, t standard normal.
    direction = np.tile(np.linspace(-0.8, 0.8, 6), 2)
    wide = eqx.tree_at(
        lambda s: s.ability_covariance,
        state,
        jnp.asarray(np.outer(direction, direction)),
    )
    options = {"order": 9, "num_draws": 400, "key": jax.random.key(1)}
    drawn = np.asarray(predict_responses(problem, wide, **options))[:, 0]
    points, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()
    at = np.stack([by_grid(problem, state, 0, t * direction[:6]) for t in points])
    mean = weights @ at
    error = np.sqrt(weights @ (at - mean) ** 2 / 400)
    # Five standard errors of 400 draws, and a thousandth for nine nodes (as above).
    assert np.all(np.abs(drawn - mean) < 5 * error + 1e-3)
    assert np.abs(mean - exact[:, 0]).max() > 0.01


def moments_by_grid(problem, state, item: int, theta: np.ndarray):
    """Mean and second moments of an item's chances given abilities, over a grid."""
    grid, log_mass = prior_on_grid(problem, state, item, 6, 121)
    logit = np.exp(grid[:, :1]) * theta + grid[:, 1:]
    y = np.asarray(problem.data.values)[:, item]
    seen = np.asarray(problem.data.observed)[:, item]
    log_mass = log_mass + np.where(y > 0, log_expit(logit), log_expit(-logit)) @ seen
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    mean = mass @ expit(logit)
    return mean, mass @ expit(logit) ** 2 - mean**2


@pytest.mark.slow
def test_errors_of_mean_responses_are_those_of_draws():
    # Abilities by small draws around their means (so that the delta method is exact),
    # items integrated by a grid given each of them.
    rng = np.random.default_rng(5)
    values = (rng.random((5, 6)) < 0.6).astype(np.int8)
    seen = rng.random((5, 6)) < 0.8
    values = values * seen
    values[:, 2], seen[:, 2] = values[:, 0], seen[:, 0]
    problem = problem_of(values, seen, ["x", "y"] * 3)
    # By derivatives: items follow the abilities themselves.
    assert not problem.expected
    state = eqx.filter_jit(Laplace(order=2).init)(problem, None, None)
    root = rng.normal(size=(10, 10)) * 0.02
    state = eqx.tree_at(
        lambda s: s.ability_covariance, state, jnp.asarray(root @ root.T)
    )
    effects = state.components.effects
    size = effects.size
    slope = rng.normal(size=(size, 10)) * 0.5
    rest = rng.normal(size=(size, size)) * 0.02
    factor = problem.model.residual_factor(*residual_part(state.components))
    omega = jnp.linalg.inv(factor @ factor.transpose(0, 2, 1))
    follow = Following(
        omega, jnp.asarray(slope.T), jnp.asarray(slope), jnp.asarray(rest @ rest.T)
    )
    given = mean_responses(problem, state, order=21)
    found = mean_responses(problem, state, root @ root.T, follow, order=21)
    group = np.asarray(problem.model.group)
    centre = np.asarray(state.ability)

    def moments(move, more):
        # Abilities are laid out group by group, effects column by column.
        ability = centre + move.reshape(2, 5).T
        moved = effects + more.reshape(effects.T.shape).T
        at = eqx.tree_at(lambda s: s.components.effects, state, moved)
        parts = [
            moments_by_grid(problem, at, j, ability[:, group[j]]) for j in range(6)
        ]
        return np.mean([m for m, _ in parts], axis=0), sum(v for _, v in parts) / 36

    def gradient(moves, more):
        columns = [
            (moments(a, b)[0] - moments(-a, -b)[0]) / 2e-4
            for a, b in zip(1e-4 * moves, 1e-4 * more, strict=True)
        ]
        return np.stack(columns, axis=1)

    mean, inner = moments(np.zeros(10), np.zeros(size))
    np.testing.assert_allclose(found.mean, mean, atol=1e-3)
    by_ability = gradient(np.eye(10), np.zeros((10, size)))
    by_effect = gradient(np.zeros((size, 10)), np.eye(size))
    product = lambda a, x: np.einsum("ik,kl,il->i", a, x @ x.T, a)
    alone, after = (
        product(by_ability, root),
        product(by_ability + by_effect @ slope, root),
    )
    after += product(by_effect, rest)
    variance = lambda at: np.asarray(at.standard_error) ** 2
    np.testing.assert_allclose(variance(given), inner + alone, rtol=1e-3)
    np.testing.assert_allclose(variance(found), inner + after, rtol=1e-3)
    # All parts are seen.
    assert (alone > 0.001 * inner).all() and (inner > 0).all()
    assert (abs(after - alone) > 0.001 * inner).any()
