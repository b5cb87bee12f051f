"""Exact EM of the factor model of scores, against the marginal likelihood itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import irtjax
from irtjax.estimators.driver import run_jit
from irtjax.estimators.loadings import Slopes
from irtjax.estimators.marginal.normal import NormalFactors
from irtjax.estimators.start import start_values
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.simulate import simulate_abilities

SUBJECTS, ITEMS = 40, 8
CORRELATION = np.array([[1, 0.4], [0.4, 1]])


@functools.cache
def logits(subjects=SUBJECTS, items=ITEMS):
    """Logits of items that each measure one of two factors, what is seen, the truth."""
    rng = np.random.default_rng(0)
    slopes = np.zeros((items, 2))
    slopes[np.arange(items), np.arange(items) % 2] = rng.uniform(0.6, 1.5, items)
    sd, level = rng.uniform(0.5, 1.2, items), rng.normal(size=items)
    theta = rng.normal(size=(subjects, 2)) @ np.linalg.cholesky(CORRELATION).T
    eta = theta @ slopes.T + level
    values = eta + sd * rng.normal(size=eta.shape)
    return values, rng.random(eta.shape) < 0.85, eta, slopes, sd


def problem_of(confirms=False):
    values, seen, *_ = logits()
    data = irtjax.Responses(jnp.asarray(values * seen), jnp.asarray(seen))
    model = factor_model(Factor(item_model="continuous"))
    problem = irtjax.Problem.create(model, data)
    mask = np.eye(2, dtype=bool)[np.arange(ITEMS) % 2] if confirms else None
    start = start_values(model, data, loadings=mask, dtype=float)
    if mask is not None:
        free = problem.free.at[:, :2].set(jnp.asarray(mask))
        problem = irtjax.Problem(model, data, free)
    return problem, start


@pytest.mark.parametrize("confirms", [False, True])
def test_the_optimum_is_that_of_the_marginal_likelihood(confirms):
    problem, start = problem_of(confirms)
    method = NormalFactors(tolerance=jnp.asarray(1e-6))
    fit = run_jit(problem, method, start, max_steps=3000)
    assert fit.status == irtjax.Status.CONVERGED
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.diff(trace).min() > -1e-10
    values, seen, *_ = logits()
    mask = np.asarray(problem.free[:, :2])
    count = int(mask.sum())

    def loss(x):
        """By the normal density of the seen logits of each subject, as a matrix."""
        level, log_sd, turn = x[:ITEMS], x[ITEMS : 2 * ITEMS], x[-1] * confirms
        slopes = jnp.zeros((ITEMS, 2)).at[np.nonzero(mask)].set(x[2 * ITEMS : -1])
        rho = jnp.tanh(turn)
        common = jnp.array([[1.0, 0.0], [0.0, 1.0]]).at[0, 1].set(rho).at[1, 0].set(rho)
        whole = slopes @ common @ slopes.T + jnp.diag(jnp.exp(2 * log_sd))
        # An unseen logit: a variable of its own with variance 1, at its mean.
        both = seen[:, :, None] & seen[:, None, :]
        covariance = jnp.where(both, whole, jnp.eye(ITEMS))
        rest = jnp.where(seen, values - level, 0)
        inner = jnp.linalg.solve(covariance, rest[..., None])[..., 0]
        height = -0.5 * jnp.sum(jnp.linalg.slogdet(covariance)[1])
        height -= 0.5 * (jnp.sum(rest * inner) + seen.sum() * jnp.log(2 * jnp.pi))
        items = problem.model.family.Items(slopes, level, jnp.exp(log_sd))
        height += jnp.sum(jax.vmap(problem.model.log_prior)(items))
        # Correlations have a prior worth two subjects.
        height -= jnp.log(1 - rho**2) + 2 / (1 - rho**2) - 2
        return -height

    derivative = jax.jit(jax.value_and_grad(loss))
    first = np.r_[np.zeros(2 * ITEMS), np.full(count, 0.5), 0.1]
    first[2 * ITEMS : 2 * ITEMS + count] += 0.1 * np.arange(count) % 0.7
    at = lambda x: tuple(np.asarray(y, float) for y in derivative(x))
    found = minimize(at, first, jac=True, method="BFGS", options={"gtol": 1e-7})
    assert float(fit.objective) == pytest.approx(-found.fun, abs=1e-6)
    if confirms:
        rho = np.tanh(found.x[-1])
        assert float(fit.parameters.population.correlation[0, 1]) == pytest.approx(
            rho, abs=1e-4
        )


def test_a_masked_subject_and_one_of_weight_0_are_the_same():
    problem, start = problem_of()
    method = NormalFactors(tolerance=jnp.asarray(1e-6))
    values, seen, *_ = (np.array(x) for x in logits())
    seen[:5] = False
    masked = irtjax.Responses(jnp.asarray(values * seen), jnp.asarray(seen))
    one = run_jit(
        irtjax.Problem.create(problem.model, masked), method, start, max_steps=3000
    )
    weight = jnp.asarray(np.r_[np.zeros(5), np.ones(SUBJECTS - 5)])
    data = irtjax.Responses(
        problem.data.values, problem.data.observed, subject_weight=weight
    )
    other = run_jit(
        irtjax.Problem.create(problem.model, data), method, start, max_steps=3000
    )
    assert float(one.objective) == pytest.approx(float(other.objective), abs=1e-8)
    for x, y in zip(one.parameters.items, other.parameters.items, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)


def test_errors_of_loadings_count_the_residual_variance():
    rng = np.random.default_rng(3)
    slopes, sd = rng.normal(size=(3, 2)), rng.uniform(0.5, 1.5, 3)
    root = rng.normal(size=(3, 4, 4))
    covariance = root @ root.swapaxes(1, 2)
    jacobian = Slopes(slopes, CORRELATION, sd**2).jacobian(4)
    found = jacobian @ covariance @ jacobian.swapaxes(1, 2)

    def loadings(x):
        total = x[:2] @ CORRELATION @ x[:2] + jnp.exp(2 * x[3])
        return x[:2] / jnp.sqrt(total)

    for j in range(3):
        at = jnp.asarray(np.r_[slopes[j], 0.0, np.log(sd[j])])
        move = np.asarray(jax.jacfwd(loadings)(at))
        np.testing.assert_allclose(found[j], move @ covariance[j] @ move.T, rtol=1e-6)


def test_other_methods_and_settings_are_refused_in_one_line():
    scores = 1 / (1 + np.exp(-logits()[0]))
    table = irtjax.ResponseTable.from_arrays(scores)
    for settings, message in (
        ({"method": "mm"}, "is estimated by method='em', not 'mm'"),
        ({"method": "gvem"}, "alone: use method='em'"),
        ({"method": "em", "num_newton": 2}, "num_newton has no effect on a factor mod"),
        ({"link": "probit", "item_model": "continuous"}, "leave link out"),
    ):
        with pytest.raises(ValueError, match=message) as refused:
            irtjax.fit(table, "factor", **settings)
        assert "\n" not in str(refused.value)


@pytest.mark.slow  # The whole road.
def test_every_verb_of_scores(tmp_path):
    values, seen, eta, slopes, sd = logits(250, 30)
    scores = 1 / (1 + np.exp(-values))
    table = irtjax.ResponseTable.from_arrays(np.where(seen, scores, 0), observed=seen)
    fit = irtjax.fit(table, "factor", factors=2)
    assert fit.status is irtjax.Status.CONVERGED and fit.options["method"] == "em"
    total = np.einsum("jk,kl,jl->j", slopes, CORRELATION, slopes) + sd**2
    true, found = slopes / np.sqrt(total)[:, None], fit.factors
    order = np.argmax(np.abs(found.loadings.T @ true), axis=1)
    error = (found.loadings - true[:, order]) / found.loadings_error
    # 60 numbers, whose share below 1.96 has a standard error of .028.
    assert (np.abs(error) < 1.96).mean() > 0.95 - 5 * 0.028
    # Residual standard deviations, with errors of 1 / sqrt(2 x 212) each.
    ratio = np.asarray(fit.parameters.items.dispersion) / sd
    assert abs(ratio.mean() - 1) < 5 * 0.05 / 30**0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    parts = [
        w / (1 + np.exp(-eta - sd * x)) for x, w in zip(nodes, weights, strict=True)
    ]
    score = (sum(parts) / weights.sum()).mean(1)
    places = {name: k for k, name in enumerate(table.subjects.tolist())}
    rows = [places[name] for name in fit.abilities.table["subject"].to_pylist()]
    low, high = (
        fit.abilities.table[f"expected_score_{end}"].to_numpy()
        for end in ("lower", "upper")
    )
    # Five standard errors of a share of 250: .07.
    assert ((low <= score[rows]) & (score[rows] <= high)).mean() > 0.95 - 0.07
    again = irtjax.score(fit, table).table["ability"].to_numpy()
    expected = fit.abilities.table["expected_score"].to_numpy()
    np.testing.assert_allclose(np.sort(again), np.sort(expected), atol=1e-6)
    predicted = irtjax.predict(fit)
    np.testing.assert_allclose(predicted.expected.mean(1), expected, atol=1e-9)
    with pytest.raises(ValueError, match="leave categories out"):
        irtjax.predict(fit, categories=True)
    irtjax.save(fit, tmp_path / "fit")
    assert irtjax.load(tmp_path / "fit").model == fit.model
    given = jax.tree.map(jnp.asarray, fit.parameters)
    theta = simulate_abilities(2000, jax.random.key(0), given.population)
    data = irtjax.simulate(fit.model, given.items, theta, jax.random.key(1))
    # Five standard errors of a mean of 2,000 logits with standard deviation 1.5.
    error = np.asarray(data.values).mean(0) - np.asarray(given.items.intercept)
    assert np.abs(error).max() < 5 * 1.5 / 2000**0.5
