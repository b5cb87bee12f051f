"""Marginal estimation of factor models against quadrature and optimisers of scipy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

import irtjax
from irtjax.estimators.driver import Run, run_jit
from irtjax.estimators.marginal import around
from irtjax.estimators.marginal.around import EMAround
from irtjax.estimators.marginal.correlations import PRIOR_SUBJECTS, best_correlation
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.gaussian import GVEM
from irtjax.estimators.marginal.quadratic_em import FactorPoint
from irtjax.estimators.marginal.refinement import choose_grid
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.fitting.bootstrap import refit
from irtjax.inference.vector_scores import score_factors
from irtjax.likelihood.cubature import Points, grid_nodes, points_for
from irtjax.likelihood.problem import Parameters, Problem, Start, correlates
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from irtjax.numerics import progress
from irtjax.numerics.progress import watching

SUBJECTS, ITEMS, DIMS = 60, 8, 2
MASK = np.eye(DIMS, dtype=bool)[np.arange(ITEMS) % DIMS]
MASK[0] = True


@functools.cache
def problem_of(confirmatory: bool = False) -> Problem:
    """Few responses, a tenth of them missing, to items of two correlated factors."""
    rng = np.random.default_rng(8)
    theta = rng.normal(size=(SUBJECTS, DIMS)) @ np.array([[1, 0.4], [0, 0.9]])
    slopes = MASK * rng.uniform(1.0, 2.0, MASK.shape)
    right = rng.random((SUBJECTS, ITEMS)) < expit(theta @ slopes.T + 0.3)
    seen = rng.random(right.shape) < 0.9
    seen[3] = False  # A subject without responses.
    data = irtjax.Responses(jnp.asarray(right & seen, jnp.int8), jnp.asarray(seen))
    problem = Problem.create(factor_model(Factor(DIMS)), data)
    if not confirmatory:
        return problem
    free = problem.free.at[:, :DIMS].set(MASK)
    return dataclasses.replace(problem, free=free)


@functools.cache
def start_of(confirmatory: bool = False) -> Start:
    problem = problem_of()
    mask = MASK if confirmatory else None
    return start_values(problem.model, problem.data, loadings=mask)


@functools.cache
def solved(confirmatory: bool = False, **settings):
    """The solution of `GVEM`; both kinds of model share its programs."""
    problem, start = problem_of(confirmatory), start_of(confirmatory)
    method = GVEM(tolerance=1e-5, **settings)
    return method.solve(problem, start, Run(Clock(), max_steps=500))


def quadrature(problem: Problem, slopes, intercept, correlation, count=49):
    """Log-likelihood of each subject, and posteriors at nodes, in plain NumPy."""
    line = np.linspace(-6, 6, count)
    standard = np.stack(np.meshgrid(line, line), -1).reshape(-1, DIMS)
    theta = standard @ np.linalg.cholesky(np.asarray(correlation)).T
    weights = -0.5 * np.sum(standard**2, axis=1)
    weights = weights - logsumexp(weights)
    eta = theta @ np.asarray(slopes).T + np.asarray(intercept)
    data = problem.data
    values, seen = (np.asarray(x, float) for x in (data.values, data.observed))
    joint = values @ eta.T - seen @ np.logaddexp(0, eta).T + weights
    found = logsumexp(joint, axis=1)
    return found, np.exp(joint - found[:, None]), theta, eta


def log_posterior(problem: Problem, slopes, intercept, correlation) -> float:
    """The objective of every method here, by quadrature."""
    total = quadrature(problem, slopes, intercept, correlation)[0].sum()
    inner = np.trace(np.linalg.inv(correlation)) - DIMS
    total -= PRIOR_SUBJECTS / 2 * (np.linalg.slogdet(correlation)[1] + inner)
    for x, sd in ((np.asarray(slopes), 1.0), (np.asarray(intercept), 3.0)):
        total += np.sum(-0.5 * (x / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi))
    return total


def at(fit):
    items, population = fit.parameters.items, fit.parameters.population
    return items.discrimination, items.intercept, population.correlation


def test_the_bound_rises_and_stays_below_the_likelihood():
    problem, start = problem_of(True), start_of(True)
    fit = run_jit(problem, GVEM(tolerance=1e-5), start, max_steps=500)
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert int(fit.status) == irtjax.Status.CONVERGED
    assert np.all(np.diff(trace) >= -1e-10)
    exact = quadrature(problem, *at(fit))[0]
    assert np.all(np.asarray(fit.subject_log_lik) <= exact + 1e-9)
    # The bound is not far away: it loses .05 for each response to items of two factors.
    assert exact.sum() - float(fit.log_lik) < 0.05 * SUBJECTS * ITEMS
    # A subject without responses has the population as its posterior.
    assert float(fit.subject_log_lik[3]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("confirmatory", [False, True])
def test_the_log_likelihood_is_that_of_quadrature(confirmatory):
    problem, found = problem_of(confirmatory), solved(confirmatory)
    exact = quadrature(problem, *at(found.fit))[0]
    assert float(found.fit.log_lik) == pytest.approx(exact.sum(), rel=1e-4)
    np.testing.assert_allclose(found.fit.subject_log_lik, exact, atol=5e-3)
    assert found.record["log_likelihood_error"] == 0


@pytest.mark.parametrize(
    "confirmatory", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_both_methods_end_at_the_maximum_of_the_log_posterior(confirmatory):
    problem, gvem = problem_of(confirmatory), solved(confirmatory).fit
    found = EM(jnp.asarray(grid_nodes(0.4, DIMS)), 1e-5)
    start = Start(gvem.parameters.items, None, gvem.parameters.population)
    grid = run_jit(problem, found, start, max_steps=500)
    assert int(grid.status) == int(gvem.status) == irtjax.Status.CONVERGED
    height = log_posterior(problem, *at(grid))
    assert float(grid.objective) == pytest.approx(height, abs=1e-4)
    # Nine nodes for each ability, around each posterior.
    assert log_posterior(problem, *at(gvem)) == pytest.approx(height, abs=1e-3)

    mask = MASK if confirmatory else np.ones_like(MASK)
    data = problem.data
    values, seen = (np.asarray(x, float) for x in (data.values, data.observed))

    def loss(x):
        """Minus the log posterior and its gradient in slopes and intercepts."""
        slopes = np.zeros(mask.shape)
        slopes[mask] = x[: mask.sum()]
        intercept = x[mask.sum() : mask.sum() + ITEMS]
        slope, rho = np.asarray(slopes), np.tanh(x[-1]) if confirmatory else 0.0
        matrix = np.array([[1, rho], [rho, 1]])
        value = log_posterior(problem, slopes, intercept, matrix)
        _, share, theta, eta = quadrature(problem, slopes, intercept, matrix)
        rest = share.T @ values - (share.T @ seen) * expit(eta)
        by_slope = rest.T @ theta - slope
        by_intercept = rest.sum(axis=0) - intercept / 9
        # d log N(theta; 0, R) / d rho, in the mean of the second moments.
        second = np.einsum("nt,tk,tl->kl", share, theta, theta)
        inverse = np.linalg.inv(matrix)
        second = second + PRIOR_SUBJECTS * np.eye(DIMS)
        along = inverse @ (second - (SUBJECTS + PRIOR_SUBJECTS) * matrix) @ inverse
        last = along[0, 1] * (1 - rho**2) if confirmatory else 0.0
        return -value, -np.concatenate([by_slope[mask], by_intercept, [last]])

    slopes, intercept, correlation = (np.asarray(x) for x in at(grid))
    first = np.concatenate([slopes[mask], intercept, [np.arctanh(correlation[0, 1])]])
    first = first + 0.2 * np.random.default_rng(0).normal(size=first.size)
    best = minimize(loss, first, jac=True, options={"gtol": 1e-6})
    assert -best.fun == pytest.approx(height, abs=1e-4)


def test_an_item_without_responses_changes_nothing():
    problem, start = problem_of(True), start_of(True)
    data = problem.data
    assert data.observed is not None
    unseen = data.observed.at[:, 5].set(False)
    lacking = irtjax.Responses(data.values * unseen, unseen)
    weighted = dataclasses.replace(
        data, item_weight=jnp.ones(ITEMS).at[5].set(0.0), subject_weight=None
    )
    sweep = jax.jit(lambda data: _swept(problem, start, data))
    one, two = sweep(lacking), sweep(weighted)
    others = np.arange(ITEMS) != 5
    for x, y in zip(one[:2], two[:2], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)
    np.testing.assert_allclose(one[2][others], two[2][others], atol=1e-12)
    assert np.all(one[2][5] == 0)


def _swept(problem, start, data, method=None):
    method = GVEM() if method is None else method
    problem = dataclasses.replace(problem, data=data)
    state = method.init(problem, start, None)
    seen = method.sweep(problem, state.point, state.carry)
    return seen.log_lik, seen.second, seen.items.gradient


def test_weights_of_subjects_count_copies():
    problem, start = problem_of(True), start_of(True)
    rows = np.r_[np.arange(SUBJECTS), np.arange(20)]
    data = problem.data
    assert data.observed is not None
    copied = irtjax.Responses(data.values[rows], data.observed[rows])
    weight = jnp.ones(SUBJECTS).at[:20].set(2.0)
    weighted = dataclasses.replace(data, subject_weight=weight)
    sweep = jax.jit(lambda data: _swept(problem, start, data))
    one, two = sweep(copied), sweep(weighted)
    np.testing.assert_allclose(one[1], two[1], rtol=1e-12)
    np.testing.assert_allclose(one[2], two[2], rtol=1e-10, atol=1e-10)


def test_correlations_are_the_best_ones():
    assert bool(correlates(problem_of(True))) and not bool(correlates(problem_of()))
    rng = np.random.default_rng(2)
    second = np.cov(rng.normal(size=(3, 50)) + rng.normal(size=50))
    found = jnp.eye(3)
    for _ in range(5):
        found = best_correlation(found, jnp.asarray(second))
    found = np.asarray(found)
    np.testing.assert_allclose(np.diag(found), 1)
    # At the best one the derivative in every correlation is 0.
    inverse = np.linalg.inv(found)
    rest = inverse @ second @ inverse - inverse
    assert np.abs(rest[np.tril_indices(3, -1)]).max() < 1e-6


@pytest.mark.slow  # Programs of two shapes.
def test_counts_are_sums_of_responses():
    problem, start = problem_of(True), start_of(True)
    rng = np.random.default_rng(9)
    seen = np.asarray(problem.data.observed)
    first, second = (seen & (rng.random(seen.shape) < 0.6) for _ in range(2))
    counts = irtjax.Responses(
        jnp.asarray(first.astype(int) + second), None, jnp.asarray(2 * seen)
    )
    twice = irtjax.Responses(
        jnp.asarray(np.hstack([first, second]), jnp.int8), jnp.hstack([seen, seen])
    )
    copied = dataclasses.replace(problem, free=jnp.vstack([problem.free] * 2))
    doubled = start._replace(
        items=jax.tree.map(lambda x: jnp.concatenate([x, x]), start.items)
    )
    around = EMAround(points=points_for(DIMS, 0, jax.random.key(0)))
    for method in (GVEM(), around):
        sweep = jax.jit(functools.partial(_swept, method=method))
        one, two = sweep(problem, start, counts), sweep(copied, doubled, twice)
        np.testing.assert_allclose(one[0], two[0], atol=1e-9)
        np.testing.assert_allclose(one[1], two[1], atol=1e-9)
        each = two[2][:ITEMS] + two[2][ITEMS:]
        np.testing.assert_allclose(one[2], each, atol=1e-8)
    on_grid = EM(jnp.asarray(grid_nodes(0.7, DIMS)))

    @jax.jit
    def image(problem, start, data):
        problem = dataclasses.replace(problem, data=data)
        return on_grid.image(problem, on_grid.init(problem, start, None))

    one, two = image(problem, start, counts), image(copied, doubled, twice)
    np.testing.assert_allclose(one.log_lik, two.log_lik, atol=1e-9)
    np.testing.assert_allclose(one.point.correlation, two.point.correlation, atol=1e-9)


@pytest.mark.slow  # A program under vmap.
def test_fits_are_mapped_over_weights():
    problem, start = problem_of(True), start_of(True)

    def objective(weight):
        data = dataclasses.replace(problem.data, subject_weight=weight)
        weighted = dataclasses.replace(problem, data=data)
        return irtjax.run(weighted, GVEM(), start, max_steps=200).objective

    draws = np.random.default_rng(0).multinomial(SUBJECTS, [1 / SUBJECTS] * SUBJECTS, 3)
    weights = jnp.asarray(draws, float)
    mapped = jax.jit(jax.vmap(objective))(weights)
    alone = jax.jit(objective)
    np.testing.assert_allclose(mapped, [alone(w) for w in weights], rtol=1e-9)


def test_points_integrate():
    square = lambda x: np.sum(np.asarray(x) ** 2, axis=-1)
    for dims, bound in ((2, 1e-6), (3, 1e-5), (4, 0.05)):
        points = points_for(dims, 4000, jax.random.key(1))
        z, log_ratio = (
            np.asarray(x)[0] for x in points.of_subjects(jnp.arange(1), float)
        )
        weight = np.exp(log_ratio - square(z) / 2 - dims / 2 * np.log(2 * np.pi))
        # Of a normal density: 1, and the mean of the square. Draws: three of their
        # standard errors, about 1 / sqrt(4000) of each part.
        assert weight.sum() == pytest.approx(1, abs=bound)
        assert weight @ square(z) == pytest.approx(dims, abs=4 * dims * bound)


def test_a_posterior_too_narrow_for_a_grid_is_refused_with_the_nodes_needed():
    problem = problem_of()
    slopes = jnp.zeros((ITEMS, DIMS)).at[:, 0].set(60.0)
    zero = jnp.zeros(ITEMS)
    found = Parameters(
        LogisticItems(slopes, zero, zero, zero + 1),
        Population(jnp.zeros(DIMS), jnp.ones(DIMS)),
    )
    with pytest.raises(ValueError, match=r"needs [\d,]+ nodes, above 30,000: use"):
        choose_grid(problem, found)


def test_a_watcher_sees_the_last_pass_and_changes_no_likelihood(monkeypatch):
    monkeypatch.setattr(around, "BLOCK_BYTES", 2**16)  # 20 subjects a block.
    monkeypatch.setattr(progress, "STRETCH", 0.0)
    problem, start = problem_of(), start_of()
    population = Population(jnp.zeros(DIMS), jnp.ones(DIMS))
    scores = score_factors(problem.model, start.items, population, problem.data)
    items = start.items
    stacked = jnp.concatenate([items.intercept[:, None], items.discrimination], 1)
    point = FactorPoint(stacked, jnp.eye(DIMS))
    points, shares = Points(DIMS, 10, key=jax.random.key(2)), []
    method = EMAround(points=points)
    found = lambda: method.watched_likelihoods(problem, point, scores)
    alone = found()
    with watching(lambda share, name: shares.append(share)):
        seen = found()
    assert shares == [0.0, 1 / 3, 2 / 3, None] and float(seen.variance) > 0
    for a, b in zip(alone, seen, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow  # Programs of four factors.
def test_draws_of_four_factors():
    rng = np.random.default_rng(4)
    group = np.arange(16) % 4
    root = np.linalg.cholesky(0.5 + 0.5 * np.eye(4))
    theta = rng.normal(size=(400, 4)) @ root.T
    right = rng.random((400, 16)) < expit(1.6 * theta[:, group])
    data = irtjax.Responses(jnp.asarray(right, jnp.int8))
    problem = Problem.create(factor_model(Factor(4)), data)
    mask = np.eye(4, dtype=bool)[group]
    problem = dataclasses.replace(problem, free=problem.free.at[:, :4].set(mask))
    start = start_values(problem.model, data, loadings=mask)
    run = Run(Clock(), jax.random.key(5), 500)
    found = GVEM(num_samples=200).solve(problem, start, run)
    assert int(found.fit.status) == irtjax.Status.CONVERGED
    error = found.record["log_likelihood_error"]
    other = GVEM(num_samples=200).solve(
        problem, start, run._replace(key=jax.random.key(6))
    )
    # Two runs differ by their draws: 5 of their errors. Maxima on different draws add
    # some of the same size.
    gap = abs(float(found.fit.log_lik) - float(other.fit.log_lik))
    assert 0 < error < 2 and gap < 5 * 2**0.5 * error
    correlation = np.asarray(found.fit.parameters.population.correlation)
    # 400 subjects with 4 items a factor: a standard error of about .09.
    low = correlation[np.tril_indices(4, -1)]
    assert np.abs(low - 0.5).max() < 4 * 0.09 and abs(low.mean() - 0.5) < 0.15


@pytest.mark.slow  # A program of its own.
def test_the_grid_of_one_ability_is_that_of_em():
    rng = np.random.default_rng(1)
    right = rng.random((80, 6)) < expit(1.2 * rng.normal(size=(80, 1)))
    data = irtjax.Responses(jnp.asarray(right, jnp.int8))
    nodes = jnp.linspace(-5.5, 5.5, 89)
    plain = irtjax.Model("2pl", irtjax.MODELS["2pl"]().family)
    start = irtjax.start_values(plain, data)
    em = run_jit(Problem.create(plain, data), EM(nodes, 1e-9), start, max_steps=500)
    family = dataclasses.replace(plain.family, dims=1)
    slopes = start.items.discrimination[:, None]
    several = Start(start.items._replace(discrimination=slopes))
    method = EM(nodes[:, None], 1e-9)
    problem = Problem.create(irtjax.Model("factor", family), data)
    grid = run_jit(problem, method, several, max_steps=500)
    assert float(grid.objective) == pytest.approx(float(em.objective), abs=1e-10)
    found = grid.parameters.items.discrimination[:, 0]
    # Near a maximum a slope moves by the root of what the objective moves.
    np.testing.assert_allclose(found, em.parameters.items.discrimination, atol=1e-5)


@pytest.mark.slow
def test_a_start_with_correlated_factors_is_the_same_model():
    """Where a rotation changes nothing, the correlations of a start go into slopes."""
    problem, found = problem_of(), solved().fit
    root = np.linalg.cholesky(np.array([[1, 0.6], [0.6, 1]]))
    items, population = found.parameters.items, found.parameters.population
    oblique = items._replace(discrimination=items.discrimination @ np.linalg.inv(root))
    start = Start(oblique, None, population._replace(correlation=root @ root.T))
    again = GVEM(tolerance=1e-6).solve(problem, start, Run(Clock(), max_steps=500)).fit
    np.testing.assert_allclose(again.parameters.population.correlation, np.eye(DIMS))
    # Of the random draws behind both log-likelihoods the seeds are the same.
    assert float(again.log_lik) == pytest.approx(float(found.log_lik), abs=0.05)


def test_too_many_nodes_are_refused_before_anything_is_fitted():
    method = EM(jnp.linspace(-6, 6, 2001))
    with pytest.raises(ValueError, match="2001 nodes for each of 2 abilities are 4,0"):
        method.solve(problem_of(), start_of(), Run(Clock()))


def test_functions_of_one_ability_name_those_of_several():
    problem, start = problem_of(), start_of()
    nodes, weight = jnp.linspace(-6, 6, 21), jnp.ones((1, SUBJECTS))
    with pytest.raises(
        ValueError, match=r"of shape \(21,\), and .* need \[nodes, 2\]:"
    ):
        refit(problem, EM(nodes), start, weight)
    coordinates = problem.model.unconstrain(start.items)
    population = Population(jnp.zeros(DIMS), jnp.ones(DIMS))
    with pytest.raises(ValueError, match="item_covariance needs one ability"):
        irtjax.item_covariance(problem, coordinates, population, nodes)
