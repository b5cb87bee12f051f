"""Uncertainty of the covariance of abilities, against densities written out."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.test_util import check_grads
from scipy import stats

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.laplace import covariance_draws
from irtjax.estimators.laplace.components import log_prior
from irtjax.estimators.laplace.covariance_draws import (
    CovarianceCoordinates,
    CovarianceEvidence,
    draw_covariance,
    evidence_of,
    log_evidence,
    subjects_of,
)
from irtjax.estimators.laplace.errors import errors_of
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem, start_components
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.covariance_mixture import (
    Possible,
    Subjects,
    abilities_given,
    information_of_responses,
)
from irtjax.models.multilevel.model import MultilevelModel
from irtjax.models.priors import LogNormal
from irtjax.numerics.bijections import (
    correlation_cholesky,
    correlation_coordinates,
    lkj_height,
    lkj_log_density,
)
from tests.estimators.laplace.test_laplace import benchmarks as plain_benchmarks

RNG = np.random.default_rng(5)
run_jit = eqx.filter_jit(run)
information_jit = jax.jit(covariance_draws._information)


def benchmarks(subjects: int, items: int, groups: int, slopes="positive", **more):
    """The model of `test_laplace` with slopes of any kind."""
    model = plain_benchmarks(subjects, items, groups, **more)
    return dataclasses.replace(model, family=Binary(slopes=slopes))


def some_evidence(groups: int, subjects: int, pull: float = 3.0) -> CovarianceEvidence:
    pointed = RNG.normal(size=(subjects, groups)) + RNG.normal(size=(subjects, 1))
    curvature = pull * (np.eye(groups) - 1 / groups)
    return CovarianceEvidence(
        jnp.asarray(pointed.T @ pointed),
        jnp.asarray(0.1 * np.eye(groups) + 0.02),
        jnp.asarray(subjects - 1.0),
        (jnp.asarray(curvature @ RNG.normal(size=groups)), jnp.asarray(curvature)),
    )


def fitted(model: MultilevelModel, seed: int):
    rng = np.random.default_rng(seed)
    subjects, groups = model.subject_design.shape[0], model.num_groups
    own = np.outer(*[(0.6, 0.4, 0.5)[:groups]] * 2) * (0.3 + 0.7 * np.eye(groups))
    theta = rng.multivariate_normal(np.zeros(groups), 1 + own, subjects)
    columns = len(model.group)
    slope = np.exp(0.4 * rng.normal(size=columns)) if model.family.has_slope else 1.0
    eta = slope * theta[:, np.asarray(model.group)] + rng.normal(size=columns)
    right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    problem = MultilevelProblem.create(model, Responses(jnp.asarray(right, jnp.int8)))
    method = Laplace(order=3, tolerance=1e-3)
    fit = run_jit(problem, method, None, max_steps=300)
    assert Status(int(fit.status)) is Status.CONVERGED
    return problem, method, fit.state


def test_the_density_is_that_of_normal_subjects_and_the_priors():
    model, evidence = benchmarks(20, 12, 3), some_evidence(3, 20)
    assert model.hyperpriors.concentration == 2.0
    pairs = np.tril_indices(3, -1)

    def correlations(coordinates):
        root = correlation_cholesky(coordinates, 3)
        return root @ root.T

    # Outside of jit each of these is dozens of programs.
    whole = jax.jit(correlations)
    jacobian = jax.jit(jax.jacobian(lambda at: correlations(at)[pairs]))
    density = jax.jit(lambda coordinates: log_evidence(model, coordinates, evidence))

    def by_hand(coordinates: CovarianceCoordinates) -> float:
        sd = np.exp(coordinates.log_scale)
        unit = np.exp(np.asarray(coordinates.log_unit))
        correlation = np.asarray(whole(coordinates.correlation))
        covariance = (1 + correlation * np.outer(sd, sd)) / np.outer(unit, unit)
        covariance = covariance + np.asarray(evidence.error)
        # The sum of squares of so many normal subjects.
        total = -evidence.num_subjects / 2 * np.linalg.slogdet(covariance)[1]
        total -= np.trace(np.linalg.solve(covariance, evidence.scatter)) / 2
        total += np.sum(stats.halfnorm.logpdf(sd) + np.log(sd))
        # LKJ with concentration 2, and the Jacobian of correlations by coordinates.
        total += np.linalg.slogdet(correlation)[1]
        total += np.linalg.slogdet(jacobian(coordinates.correlation))[1]
        taken = -np.log(unit)
        slope, curvature = evidence.pull
        return float(total - slope @ taken - taken @ curvature @ taken / 2)

    def at(seed):
        rng = np.random.default_rng(seed)
        parts = (rng.normal(size=n) for n in (3, 3, 0, 3))
        return CovarianceCoordinates(*(jnp.asarray(0.5 * part) for part in parts))

    for seed in range(4):
        wanted = by_hand(at(seed)) - by_hand(at(9))
        found = density(at(seed)) - density(at(9))
        assert float(found) == pytest.approx(wanted, abs=1e-9)
    # Its derivatives are written by hand.
    flat, unravel = ravel_pytree(at(0))
    of_flat = jax.jit(lambda x: density(unravel(x)))
    check_grads(of_flat, (flat,), 1, modes=["rev"], rtol=1e-5)


def test_information_is_the_expected_curvature():
    model, evidence = benchmarks(20, 12, 3), some_evidence(3, 20)
    parts = (0.3 * RNG.normal(size=n) for n in (3, 3, 0, 3))
    at = CovarianceCoordinates(*(jnp.asarray(part) for part in parts))
    seen = jax.jit(covariance_draws._seen)(model, at, evidence)
    expected = evidence._replace(scatter=evidence.num_subjects * seen)
    flat, unravel = ravel_pytree(at)
    slope = jax.jit(jax.grad(lambda x: log_evidence(model, unravel(x), expected)))
    curvature = [(slope(flat - 1e-4 * e) - slope(flat + 1e-4 * e)) for e in np.eye(9)]
    found = information_jit(model, at, evidence)
    np.testing.assert_allclose(found, np.stack(curvature) / 2e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["unit", "tau"])
def test_draws_of_one_number_are_those_of_its_density(kind):
    """The unit of one group's abilities, or tau of the Rasch model, by a grid."""
    slopes = "positive" if kind == "unit" else "unit"
    model = benchmarks(12, 12, 1, slopes)
    components = start_components(model, jnp.zeros((12, model.num_columns)))
    evidence = some_evidence(1, 12, 0.0)
    start = covariance_draws._coordinates_of(model, components)
    assert [part.size for part in start] == [
        0,
        0,
        int(kind == "tau"),
        int(kind != "tau"),
    ]
    found = covariance_draws._draw_jit(model, start, evidence, jax.random.key(1))
    own, variance, unit, accepted = (np.asarray(part) for part in found)
    assert own.shape == (512, 1, 1)
    drawn = 0.5 * np.log(variance) if kind == "tau" else np.log(unit[:, 0])
    grid = np.linspace(-3, 3, 2001)
    name = "log_general_sd" if kind == "tau" else "log_unit"
    at = jax.vmap(
        lambda x: log_evidence(model, start._replace(**{name: x[None]}), evidence)
    )
    height = np.asarray(at(jnp.asarray(grid)))
    share = np.exp(height - height.max())
    share /= share.sum()
    mean = share @ grid
    sd = np.sqrt(share @ (grid - mean) ** 2)
    # Nearly independent draws: four of their standard errors.
    assert abs(drawn.mean() - mean) < 4 * sd / len(drawn) ** 0.5
    assert abs(drawn.std() / sd - 1) < 4 / (2 * len(drawn)) ** 0.5
    assert accepted > 0.8


@pytest.fixture(scope="module")
def three_groups():
    """Ninety answers of thirty subjects to three benchmarks, and the fit to them."""
    return fitted(benchmarks(30, 90, 3), 3)


@pytest.mark.slow
def test_a_fit_is_the_mode_of_the_density(three_groups):
    """EM on all responses ends where the covariance's own density has no slope."""
    problem, _, state = three_groups
    subjects = subjects_of(problem, state)
    evidence = evidence_of(problem, state, subjects)
    start = covariance_draws._coordinates_of(problem.model, state.components)
    flat, unravel = ravel_pytree(start)

    def height(x):
        # Of the prior of correlations a fit takes what no order of groups changes.
        coordinates, of_prior = unravel(x), (3, problem.model.hyperpriors.concentration)
        density = lkj_log_density(coordinates.correlation, *of_prior)
        same = lkj_height(coordinates.correlation, *of_prior)
        return log_evidence(problem.model, coordinates, evidence) - density + same

    slope = jax.jit(jax.grad(height))(flat)
    information = information_jit(problem.model, start, evidence)
    # In standard errors. What is expected of abilities' squares is of first order in
    # the step from their mode to their mean, which is not 0.
    step = np.linalg.solve(information, slope)
    assert np.abs(step / np.sqrt(np.diag(np.linalg.inv(information)))).max() < 0.1
    # Given that covariance and unit, abilities are those of the fit.
    own = np.asarray(problem.model.specific_covariance(start))
    same = Possible(own[None], np.ones(1), np.ones((1, 3)), np.zeros((1, 3)))
    found = abilities_given(same, subjects)[0]
    np.testing.assert_allclose(found, state.ability, atol=1e-3)


def test_the_prior_of_a_covariance_does_not_depend_on_the_order_of_groups():
    """What a fit maximises: by the density of coordinates, groups had an order."""
    model = benchmarks(12, 12, 4)
    rng = np.random.default_rng(5)
    factor = np.asarray(correlation_cholesky(jnp.asarray(rng.normal(size=6)), 4))
    start = start_components(model, jnp.zeros((12, model.num_columns)))

    @jax.jit
    def height(scale, root):
        place = correlation_coordinates(root)
        return log_prior(model, start._replace(log_scale=scale, correlation=place))

    heights = []
    for order in (np.arange(4), np.roll(np.arange(4), -1)):
        root = np.linalg.cholesky((factor @ factor.T)[np.ix_(order, order)])
        heights.append(float(height(np.linspace(-0.5, 0.5, 4)[order], root)))
    assert heights[1] == pytest.approx(heights[0], abs=1e-9)


@pytest.mark.slow
def test_a_fit_does_not_depend_on_the_order_of_groups():
    """Priors of correlations matter with so few subjects, and four groups."""
    subjects, items, groups = 12, 60, 4
    rng = np.random.default_rng(5)
    model = benchmarks(subjects, items, groups)
    theta = rng.normal(size=(subjects, 1)) + rng.normal(size=(subjects, groups)) / 2
    slope = np.exp(0.4 * rng.normal(size=items))
    eta = slope * theta[:, np.asarray(model.group)] + rng.normal(size=items)
    right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    data = Responses(jnp.asarray(right, jnp.int8))
    order = np.roll(np.arange(groups), -1)
    columns = np.concatenate([[0], 1 + np.argsort(order)])
    other = dataclasses.replace(
        model, group=jnp.asarray(order)[model.group], design=model.design[:, columns]
    )
    found = []
    for one in (model, other):
        problem = MultilevelProblem.create(one, data)
        fit = run_jit(problem, Laplace(order=3, tolerance=1e-3), None, max_steps=300)
        assert Status(int(fit.status)) is Status.CONVERGED
        at = fit.state.components
        found.append((fit.state.ability, one.specific_covariance(at)))
    # The density of coordinates, maximised, moves them by 0.03 in place of 0.0001.
    np.testing.assert_allclose(found[1][0][:, order], found[0][0], atol=3e-3)
    np.testing.assert_allclose(
        found[1][1][np.ix_(order, order)], found[0][1], atol=3e-3
    )


def test_abilities_given_a_draw_are_conditional_normals():
    prior_covariance = np.array([[1.3, 1.0], [1.0, 1.5]])
    information = np.array([[[3.0, 0.1], [0.1, 2.0]], [[9.0, 0.0], [0.0, 0.4]]])
    covariance = np.linalg.inv(information + np.linalg.inv(prior_covariance))
    mean = np.array([[0.0, 0.0], [0.4, 0.4]])
    gap = np.array([[0.5, -0.2], [0.3, 0.6]])
    own, unit = np.array([[0.8, -0.1], [-0.1, 0.2]]), np.array([1.2, 0.7])
    origin = np.array([0.3, -0.2])
    subjects = Subjects(mean, gap, covariance, prior_covariance)
    possible = Possible(own[None], np.array([1.1]), unit[None], origin[None])
    found = abilities_given(possible, subjects)[0]
    for i in range(2):
        _, told = information_of_responses(covariance[i], prior_covariance)
        np.testing.assert_allclose(told, information[i], atol=1e-9)
        # Abilities pointed at, with errors, in the units of the draw.
        error = np.linalg.inv(told)
        pointed = (error @ np.linalg.solve(covariance[i], gap[i])) * unit + origin
        error = error * np.outer(unit, unit)
        prior = own + 1.1
        wanted = prior @ np.linalg.solve(prior + error, pointed)
        np.testing.assert_allclose(found[i], wanted + unit * mean[i], rtol=1e-6)


@pytest.mark.slow
def test_errors_count_what_is_not_known_of_the_covariance(three_groups):
    problem, method, state = three_groups
    errors = errors_of(problem, method, state)
    again = errors_of(problem, method, state)
    np.testing.assert_array_equal(errors.covariance, again.covariance)
    more = np.diagonal(errors.covariance) - np.diagonal(errors.given)
    assert more.min() >= 0 and more.max() > 0.01
    assert np.linalg.eigvalsh(errors.given).min() > -1e-6
    assert errors.possible is not None and errors.accepted > 0.6
    # With the covariance and units as they are known, nothing is left along the units.
    deviation = np.asarray(state.ability - state.ability.mean(axis=0))[:, 1]
    along = np.zeros(90)
    along[30:60] = deviation
    assert abs(along @ errors.given @ along) < 1e-6 * (deviation @ deviation)


def test_one_ability_whose_unit_is_given_has_no_draws():
    model = benchmarks(12, 12, 1, priors={"discrimination": LogNormal(0.0, 0.5)})
    components = start_components(model, jnp.zeros((12, 2)))
    found, _ = draw_covariance(model, components, some_evidence(1, 12))
    assert found is None


@pytest.mark.slow
def test_a_density_without_bounds_leaves_the_draws_at_the_fit():
    """A covariance that diverges: all draws are finite."""
    model = benchmarks(12, 12, 2)
    components = start_components(model, jnp.zeros((12, 2)))
    evidence = some_evidence(2, 12)
    evidence = evidence._replace(scatter=evidence.scatter * jnp.nan)
    start = covariance_draws._coordinates_of(model, components)
    own, variance, unit, accepted = covariance_draws._draw_jit(
        model, start, evidence, jax.random.key(0)
    )
    # By which `irtjax.fit` knows to say so.
    assert float(accepted) == 0
    assert np.isfinite(own).all() and (np.asarray(unit) == 1).all()
    assert (np.asarray(variance) == 1).all()
