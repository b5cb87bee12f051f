"""Families of scores in [0, 1] against scipy, closed forms and random numbers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from irtjax.data.responses import Responses
from irtjax.data.scores import END
from irtjax.inference import item_covariance, score
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import test_information as information_of_all
from irtjax.models import catalogue
from irtjax.models.families.continuous import BetaScores, LogitNormalScores, ScoreItems
from irtjax.models.families.inflated import InflatedBetaScores, InflatedItems
from irtjax.models.families.mixed import MixedScores
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics.kernels import digamma, equal_nodes, gammaln, trigamma
from tests import brute_force
from tests.tables import NODES, case, grid_fit, run_jit, standard_population

slow = pytest.mark.slow
MODELS = {
    "continuous": catalogue.continuous(),
    "beta": catalogue.beta(),
    "inflated_beta": catalogue.inflated_beta(),
    "mixed": catalogue.mixed([True, False, False]),
    "continuous positive": catalogue.continuous(positive=True),
}
SLOPE, INTERCEPT = 1.3, -0.4
#: The slow run has the models whose formulas the others contain.
NAMES = [name if name == "mixed" else pytest.param(name, marks=slow) for name in MODELS]
Y = np.array([1e-6, 0.03, 0.5, 0.81, 1 - 1e-5])


def logit(y):
    return np.log(y) - np.log1p(-y)


def items_of(model, num_items=3):
    return simulate_items(model, num_items, jax.random.key(1), discrimination=(0.4, 2))


@eqx.filter_jit
def of_logits(family, items, theta, z):
    return family.log_prob(z, items, theta) + family.log_base(z, items)


def log_density(family, item, theta, values):
    """Log density of scores from the statistics, h(y) included."""
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], item)
    z = jnp.asarray(values)[:, None]
    theta = jnp.full(len(z), theta)
    return np.asarray(of_logits(family, one, theta, z))[:, 0]


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.7])
def test_densities_are_those_of_scipy(theta):
    eta = SLOPE * theta + INTERCEPT
    normal = ScoreItems(*map(jnp.asarray, (SLOPE, INTERCEPT, 0.7)))
    expected = stats.norm(eta, 0.7).logpdf(logit(Y)) - np.log(Y * (1 - Y))
    found = log_density(LogitNormalScores(), normal, theta, logit(Y))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    mean, precision = special.expit(eta), 4.2
    beta = stats.beta(mean * precision, (1 - mean) * precision)
    item = ScoreItems(*map(jnp.asarray, (SLOPE, INTERCEPT, precision)))
    found = log_density(BetaScores(), item, theta, logit(Y))
    np.testing.assert_allclose(found, beta.logpdf(Y), rtol=1e-9, atol=1e-9)
    cuts = -2.0, 1.5
    ends = InflatedItems(*map(jnp.asarray, (SLOPE, INTERCEPT, precision, *cuts)))
    zero, one = 1 - special.expit(eta - cuts[0]), special.expit(eta - cuts[1])
    values = np.concatenate([[-END, END], logit(Y)])
    expected = [np.log(zero), np.log(one), *(np.log(1 - zero - one) + beta.logpdf(Y))]
    found = log_density(InflatedBetaScores(), ends, theta, values)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    family = MixedScores((False, True))
    found = log_density(family, normal, theta, logit(Y))
    again = log_density(LogitNormalScores(), normal, theta, logit(Y))
    np.testing.assert_allclose(found, again, rtol=1e-14)
    right = normal._replace(dispersion=jnp.asarray(0.0))
    found = log_density(family, right, theta, [0.0, 1.0])
    np.testing.assert_allclose(found, np.log([special.expit(-eta), special.expit(eta)]))


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_random_scores(name):
    model, theta, size = MODELS[name], jnp.asarray(0.4), 40_000
    family, item = model.family, jax.tree.map(lambda x: x[2], items_of(model))
    one = jax.tree.map(lambda x: x[None], item)
    z = jax.jit(family.sample)(jax.random.key(3), one, jnp.full(size, theta))
    y = np.asarray(family.to_scores(z, one))[:, 0]
    assert y.min() >= 0 and y.max() <= 1
    error = y.std() / np.sqrt(size)
    assert abs(y.mean() - family.expected_response(item, theta)) < 4.5 * error

    def log_prob(row, t):
        natural = family.natural(family.constrain(row), t)
        parts = zip(family.statistics(z[:, 0]), natural[1:], strict=True)
        return natural[0] + sum(s * g for s, g in parts)

    row = family.unconstrain(item)
    slopes = jax.jit(jax.jacfwd(log_prob, (0, 1)))
    by_row, up = slopes(row, theta)
    step = 1e-5
    bend = (slopes(row, theta + step)[1] - slopes(row, theta - step)[1]) / (2 * step)

    @jax.jit
    def stated(item, row):
        return (
            family.information_and_skew(item, theta),
            family.coordinate_information(row, theta),
            family.information(item, theta),
        )

    (information, skew), (by_coordinate, by_theta), alone = stated(item, row)
    for sample, expected in (
        (up, 0.0),
        (up**2, information),
        (up**2, alone),
        (up**2, by_theta),
        (-bend, information),
        (up**3 + up * bend, skew),
        *zip((by_row**2).T, by_coordinate, strict=True),
    ):
        sample = np.asarray(sample)
        error = sample.std() / np.sqrt(size)
        # Second derivatives by differences err by rounding over the step, 1e-11.
        assert abs(sample.mean() - float(expected)) < 4.5 * error + 1e-7


def test_information_of_the_logit_normal_is_slope_over_deviation_squared():
    items = ScoreItems(*map(jnp.asarray, ([1.5, 0.8], [0.0, -3.0], [0.5, 2.0])))
    found = information_of_all(MODELS["continuous"], items, jnp.array([-2.0, 1.0]))
    np.testing.assert_allclose(found, 9 + 0.16, rtol=1e-12)


def test_the_mean_score_is_an_integral():
    for sd, theta in ((0.3, 0.0), (1.4, 1.0), (5.0, -1.0)):
        item = ScoreItems(*map(jnp.asarray, (SLOPE, INTERCEPT, sd)))
        eta = SLOPE * theta + INTERCEPT
        density = stats.norm(eta, sd).pdf
        wanted, _ = integrate.quad(
            lambda z, f=density: special.expit(z) * f(z), eta - 9 * sd, eta + 9 * sd
        )
        found = LogitNormalScores().expected_response(item, jnp.asarray(theta))
        assert float(found) == pytest.approx(wanted, abs=2e-7)


@pytest.mark.parametrize("name", NAMES)
def test_statistics_vanish_at_zero_and_tables_are_finite_far_out(name):
    model = MODELS[name]
    family, items = model.family, items_of(model)
    for statistic in family.statistics(jnp.zeros((2, 3))):
        np.testing.assert_array_equal(statistic, np.zeros((2, 3)))
    for dtype in (jnp.float32, jnp.float64):
        part = jax.tree.map(lambda x, d=dtype: x.astype(d), items)
        theta = jnp.asarray([-300.0, -6.0, 0.0, 6.0, 300.0], dtype)
        tables = jax.jit(family.table)(part, theta)
        slopes = jax.jit(jax.jacfwd(lambda t, i=part: family.table(i, t[None])))(
            theta[0]
        )
        for table in (*tables, *slopes):
            assert table.dtype == dtype and bool(jnp.isfinite(table).all())
        over = jax.vmap(family.information_and_skew, in_axes=(0, None))
        told = jax.jit(jax.vmap(over, in_axes=(None, 0)))(part, theta)
        assert all(bool(jnp.isfinite(x).all()) for x in told)


def test_an_item_keeps_its_kind_and_its_order_in_coordinates():
    mixed = MODELS["mixed"]
    items = items_of(mixed)
    assert items.dispersion[0] == 0 and (items.dispersion[1:] > 0).all()
    back = mixed.constrain(mixed.unconstrain(items))
    np.testing.assert_allclose(back.dispersion, items.dispersion, rtol=1e-12)
    free = np.asarray(Problem.create(mixed, Responses(jnp.zeros((2, 3)))).free)
    assert free.tolist() == [[True, True, False], [True] * 3, [True] * 3]
    assert mixed.family.of_items(np.array([2, 0])).binary == (False, True)
    with pytest.raises(ValueError, match="is for 3 items"):
        Problem.create(mixed, Responses(jnp.zeros((2, 4))))
    # A binary item has no prior of a dispersion.
    rows = jax.vmap(mixed.log_prior)(items)
    expected = stats.norm(1, 2).logpdf(items.discrimination[0])
    expected += stats.norm(0, 10).logpdf(items.intercept[0])
    assert float(rows[0]) == pytest.approx(expected)
    ends = MODELS["inflated_beta"]
    rows = jnp.asarray(np.random.default_rng(0).normal(scale=3, size=(50, 5)))
    found = ends.constrain(rows)
    assert (found.lower_cut < found.upper_cut).all()
    np.testing.assert_allclose(ends.unconstrain(found), rows, rtol=1e-6, atol=1e-8)


def test_gamma_functions_and_their_slopes_are_those_of_scipy():
    x = np.geomspace(1e-8, 1e4, 60)
    np.testing.assert_allclose(trigamma(jnp.asarray(x)), special.polygamma(1, x), 1e-12)
    third = jax.vmap(jax.grad(jax.grad(jax.grad(gammaln))))(jnp.asarray(x))
    np.testing.assert_allclose(third, special.polygamma(2, x), 1e-11)
    np.testing.assert_allclose(digamma(jnp.asarray(x)), special.digamma(x), 1e-9)


def complete_fit():
    """Maximum likelihood on 80 subjects and 4 complete logit-normal items."""
    model = catalogue.continuous(None)
    keys = jax.random.split(jax.random.key(4), 3)
    items = simulate_items(model, 4, keys[0], discrimination=(0.8, 1.6))
    data = simulate(model, items, simulate_abilities(80, keys[1]), keys[2])
    from irtjax.estimators.marginal.em import EM
    from irtjax.estimators.start import start_values

    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 241))
    problem = Problem.create(model, data)
    fit = run_jit(problem, EM(nodes, jnp.asarray(1e-6)), start_values(model, data))
    return problem, nodes, fit


@pytest.mark.slow
def test_the_logit_normal_is_one_factor_analysis():
    # z = a theta + d + sigma e has covariance a a' + diag(sigma^2): the marginal
    # likelihood is a Gaussian's, and so are its maximum and its errors.
    problem, nodes, fit = complete_fit()
    z = np.asarray(problem.data.values)
    mean, centred = z.mean(0), z - z.mean(0)
    sample = centred.T @ centred / len(z)

    def log_lik(vector):
        slope, intercept, log_sd = vector.reshape(4, 3).T
        covariance = jnp.outer(slope, slope) + jnp.diag(jnp.exp(2 * log_sd))
        inverse = jnp.linalg.inv(covariance)
        off = mean - intercept
        inner = jnp.trace(inverse @ sample) + off @ inverse @ off
        whole = inner + jnp.linalg.slogdet(covariance)[1] + 4 * np.log(2 * np.pi)
        return -len(z) / 2 * whole

    rows = problem.model.unconstrain(fit.parameters.items)
    # The nodes, a fifth of a posterior's width apart, integrate to rounding.
    assert float(fit.log_lik) == pytest.approx(float(log_lik(rows.ravel())), abs=1e-6)
    start = np.tile([1.0, 0.0, 0.0], 4)
    loss = jax.jit(lambda v: -log_lik(v))
    best = optimize.minimize(loss, start, jac=jax.jit(jax.grad(loss)), tol=1e-10)
    assert float(fit.log_lik) == pytest.approx(-best.fun, abs=1e-6)
    errors = np.sqrt(np.diag(np.linalg.inv(-jax.hessian(log_lik)(rows.ravel()))))
    covariance = item_covariance(problem, rows, standard_population(), nodes)
    assert bool(covariance.definite)
    found = np.sqrt(np.diagonal(covariance.items, axis1=1, axis2=2)).ravel()
    # Twenty polynomials of each posterior hold its scores to rounding.
    np.testing.assert_allclose(found, errors, rtol=1e-5)


def test_scores_of_complete_data_are_regression_scores():
    problem, nodes, fit = complete_fit()
    items = fit.parameters.items
    weight = np.asarray(items.discrimination / items.dispersion**2)
    precision = 1 + weight @ np.asarray(items.discrimination)
    wanted = (np.asarray(problem.data.values) - items.intercept) @ weight / precision
    unit = standard_population()
    for how in ("eap", "map"):
        found = score(
            problem.model, items, unit, problem.data, scoring=how, nodes=nodes
        )
        np.testing.assert_allclose(found.ability, wanted, atol=1e-6)
        np.testing.assert_allclose(found.standard_error, precision**-0.5, rtol=1e-6)
    # The likelihood is symmetric, so that Warm's correction is nothing.
    for how in ("ml", "wle"):
        found = score(
            problem.model, items, unit, problem.data, scoring=how, nodes=nodes
        )
        expected = wanted * precision / (precision - 1)
        np.testing.assert_allclose(found.ability, expected, atol=1e-6)


@slow
@pytest.mark.parametrize("name", ["mixed", "inflated_beta"])
def test_errors_are_those_of_a_brute_force_hessian(name):
    simulated = case(name)
    if name == "mixed":
        model = catalogue.mixed(simulated.model.family.binary, None)
    else:
        model = catalogue.inflated_beta(None)
    fit = grid_fit(name, "em")
    rows = model.unconstrain(fit.parameters.items)
    problem = Problem.create(model, simulated.data)
    covariance = item_covariance(
        problem, rows, standard_population(), jnp.asarray(NODES)
    )
    objective = brute_force.marginal_objective(model, simulated.data, NODES)
    free = np.flatnonzero(np.ravel(problem.free))
    hessian = np.asarray(jax.jit(jax.hessian(objective))(brute_force.pack(rows)))
    inverse = np.linalg.inv(-hessian[np.ix_(free, free)])
    found = np.sqrt(np.ravel(np.diagonal(covariance.items, axis1=1, axis2=2)))[free]
    assert (np.ravel(covariance.items[0])[-1] == 0) == (name == "mixed")
    np.testing.assert_allclose(found, np.sqrt(np.diag(inverse)), rtol=1e-5)


def test_masked_is_dropped():
    simulated = case("mixed")
    data = simulated.data
    seen = data.observed.at[40:, :].set(False).at[:, 4:].set(False)
    small = Responses(jnp.where(seen, data.values, 0)[:40, :4], seen[:40, :4])
    items = simulated.items
    model = dataclasses.replace(
        simulated.model, family=simulated.model.family.of_items(np.arange(4))
    )
    part = jax.tree.map(lambda x: x[:4], items)
    masked = Responses(jnp.where(seen, data.values, 0), seen)
    unit = standard_population()
    nodes = jnp.asarray(NODES)
    one = score(simulated.model, items, unit, masked, nodes=nodes)
    two = score(model, part, unit, small, nodes=nodes)
    np.testing.assert_allclose(one.ability[:40], two.ability, atol=1e-12)
    np.testing.assert_allclose(one.log_marginal[:40], two.log_marginal, atol=1e-12)
    np.testing.assert_allclose(one.ability[40:], 0, atol=1e-12)
