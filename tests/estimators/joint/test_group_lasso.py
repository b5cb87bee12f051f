"""Group lasso of discriminations: exact updates, optimum, zeros, error rate."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2

import irtjax
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.group_lasso import GroupLasso
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import Binary
from irtjax.models.priors import Normal

SUBJECTS, ITEMS, NULL, DIMS = 200, 60, 24, 2
PRIORS = {"discrimination": Normal(0.0, 1.0), "intercept": Normal(0.0, 3.0)}


def drawn_updates(dims, ratio, items=40):
    """Curvatures with eigenvalues up to a ratio, targets, and a lasso."""
    rng = np.random.default_rng(dims)
    axes = np.linalg.qr(rng.normal(size=(items, dims, dims)))[0]
    sizes = 3 * np.exp(rng.uniform(0, np.log(ratio), (items, dims)))
    curvature = np.einsum("jkl,jl,jml->jkm", axes, sizes, axes)
    theta = rng.normal(size=(50, dims)) @ (0.7 * rng.normal(size=(dims, dims)) + 0.5)
    pull = 6 * np.abs(rng.normal(size=items))
    pull[0] = 0
    lasso = GroupLasso.of(jnp.asarray(pull), jnp.asarray(theta), None)
    return lasso, curvature, 10 * rng.normal(size=(items, dims))


@pytest.mark.parametrize(
    ("dims", "ratio"), [(1, 1e3), (2, 1.0), (2, 1e6), (3, 1e3), (9, 1e6)]
)
def test_an_update_satisfies_the_conditions_of_its_maximum(dims, ratio):
    lasso, curvature, target = drawn_updates(dims, ratio)
    free = jnp.ones(target.shape, bool)
    found = jax.jit(lasso.maximum)(jnp.asarray(curvature), jnp.asarray(target), free)
    found, pull = np.asarray(found), np.asarray(lasso.pull)
    common = np.asarray(lasso.covariance)
    length = np.sqrt(np.sum(found @ common * found, axis=1))
    inside = length > 0
    assert 0 < (~inside).sum() < len(pull) / 2 or dims > 2
    rest = target - np.einsum("jkl,jl->jk", curvature, found)
    pulled = pull[:, None] * (found @ common) / np.where(inside, length, 1)[:, None]
    # Sums of terms up to the largest curvature: 1e-15 of them, times the ratio.
    np.testing.assert_allclose(rest[inside], pulled[inside], atol=1e-15 * ratio + 1e-12)
    score = np.sum(target * np.linalg.solve(common, target.T).T, axis=1)
    np.testing.assert_array_equal(inside, score > pull**2)
    if dims == 1:
        soft = np.sign(target) * np.maximum(
            np.abs(target) - pull[:, None] * common[0, 0] ** 0.5, 0
        )
        np.testing.assert_allclose(found, soft / curvature[:, 0], rtol=1e-12)


def test_an_update_is_the_maximum_of_a_general_optimiser():
    """With fixed slopes, which play no part."""
    lasso, curvature, target = drawn_updates(3, 10.0, 6)
    free = np.ones(target.shape, bool)
    free[1, 0] = free[2, 1:] = False
    both = free[:, :, None] & free[:, None, :]
    curvature = np.where(both, curvature, np.eye(3))
    found = np.asarray(lasso.maximum(*map(jnp.asarray, (curvature, target, free))))
    common = np.asarray(lasso.covariance)

    def loss(x, j):
        whole = np.zeros(3)
        whole[free[j]] = x
        size = np.sqrt(whole @ common @ whole)
        curved = whole @ curvature[j] @ whole / 2
        return curved - target[j] @ whole + lasso.pull[j] * size

    for j in range(6):
        given = found[j][free[j]]
        best = minimize(
            loss,
            given + 0.3,
            args=(j,),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
        )
        assert loss(given, j) <= best.fun + 1e-9
        assert (found[j][~free[j]] == 0).all()


@functools.cache
def drawn():
    """Responses of which 24 items do not depend on two abilities, and penalties."""
    rng = np.random.default_rng(2)
    slopes = rng.choice([-1, 1], (ITEMS, DIMS)) * rng.uniform(0.5, 1.5, (ITEMS, DIMS))
    slopes[:NULL] = 0
    theta = rng.normal(size=(SUBJECTS, DIMS))
    chance = expit(theta @ slopes.T + 0.5 * rng.normal(size=ITEMS))
    values = (rng.random(chance.shape) < chance).astype(np.int8)
    share = values.mean(axis=0)
    # A test at level 0.05 for an item that does not discriminate.
    pull = np.sqrt(chi2.ppf(0.95, DIMS) * SUBJECTS * share * (1 - share))
    return values, pull


@functools.cache
def solved(rate=0.9):
    values, pull = drawn()
    seen = np.random.default_rng(0).random(values.shape) < rate
    data = irtjax.Responses(jnp.asarray(values * seen), jnp.asarray(seen))
    model = irtjax.Model("factor", factor_model(Factor()).family, PRIORS)
    method = MM(tolerance=jnp.asarray(1e-8), lasso=jnp.asarray(pull))
    start = start_values(model, data, dtype=float)
    problem = Problem.create(model, data)
    return run_jit(problem, method, start, max_steps=3000), values, seen, pull


@pytest.mark.slow
def test_the_optimum_is_that_of_a_general_optimiser():
    fit, values, seen, pull = solved()
    assert fit.status == irtjax.Status.CONVERGED
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.diff(trace).min() > -1e-9
    best = fit.state.best
    rows = np.asarray(best.stacked)
    zero = (rows[:, 1:] == 0).all(axis=1)
    # Of 24 at a level of 5 %, 6 or more have a chance of 0.1 %.
    assert zero[:NULL].sum() >= NULL - 5 and not zero[NULL:].any()
    kept = np.flatnonzero(~zero)

    @jax.jit
    @jax.value_and_grad
    def loss(x):
        rows_, theta = x[: 3 * ITEMS].reshape(-1, 3), x[3 * ITEMS :].reshape(-1, DIMS)
        d, a = rows_[:, 0], rows_[:, 1:] * ~zero[:, None]
        eta = theta @ a.T + d
        height = jnp.sum(seen * (values * eta - jax.nn.softplus(eta)))
        height -= jnp.sum(d**2) / 18 + jnp.sum(a**2) / 2 + jnp.sum(theta**2) / 2
        spread = (theta[:, None] @ a[kept].T)[:, 0].std(axis=0)
        return -height + jnp.sum(pull[kept] * spread)

    at = np.r_[rows.ravel(), np.asarray(best.theta).ravel()]
    value, gradient = loss(at)
    assert np.abs(gradient).max() < 1e-5
    moved = at + 0.02 * np.random.default_rng(1).normal(size=at.size)
    options = {"maxiter": 5000, "maxfun": 9000, "ftol": 1e-15, "gtol": 1e-8}
    found = minimize(
        lambda x: tuple(np.asarray(y, float) for y in loss(x)),
        moved,
        jac=True,
        method="L-BFGS-B",
        options=options,
    )
    assert value == pytest.approx(found.fun, abs=1e-5)
    # At 0 the length of the score, in abilities of covariance I, is at most lambda.
    theta = np.asarray(best.theta)
    chance = expit(theta @ rows[:, 1:].T + rows[:, 0])
    score = (theta.T @ (seen * (values - chance)))[:, zero]
    common = np.cov(theta.T, bias=True)
    size = np.sum(score * np.linalg.solve(common, score), axis=0) ** 0.5
    assert (size <= pull[zero]).all()


@pytest.mark.slow
def test_one_ability_of_two_is_the_lasso_of_one():
    """The second ability has no slope: both models are the same."""
    rng = np.random.default_rng(3)
    slope = np.where(np.arange(30) % 3, 1.2, 0.0)
    chance = expit(rng.normal(size=(90, 1)) * slope + rng.normal(size=30))
    data = irtjax.Responses(jnp.asarray(rng.random(chance.shape) < chance, jnp.int8))
    method = MM(tolerance=jnp.asarray(1e-8), lasso=jnp.asarray(7.0))
    one = irtjax.Model("2pl", Binary(slopes="positive"), PRIORS)
    start = start_values(one, data)
    first = run_jit(Problem.create(one, data), method, start, max_steps=3000)
    two = irtjax.Model("factor", factor_model(Factor()).family, PRIORS)
    problem = Problem.create(two, data)
    problem = Problem(two, data, problem.free.at[:, 1].set(False))
    with_zeros = lambda x: jnp.stack([x, jnp.zeros_like(x)], axis=1)
    items = start.items._replace(discrimination=with_zeros(start.items.discrimination))
    start = Start(items, with_zeros(start.theta))
    second = run_jit(problem, method, start, max_steps=3000)
    assert first.status == second.status == irtjax.Status.CONVERGED
    a, other = first.state.best.stacked, second.state.best.stacked
    assert 0 < (np.asarray(a)[:, 1] == 0).sum() < 30
    np.testing.assert_allclose(a, other[:, :2], atol=1e-6)
    np.testing.assert_array_equal(a[:, 1] == 0, other[:, 1] == 0)
    # The priors N(0, 1) of the second abilities and slopes, at 0.
    constant = (90 + 30) * np.log(2 * np.pi) / 2
    assert float(second.objective) == pytest.approx(
        float(first.objective) - constant, abs=1e-7
    )


@pytest.mark.slow
def test_a_fit_has_items_at_zero_without_errors():
    values, pull = drawn()
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "factor", "mm", lasso=pull)
    slope = fit.items.table["discrimination"].to_numpy()
    zero = slope == 0
    assert zero[:NULL].sum() >= NULL - 5 and not zero[NULL:].any()
    assert (fit.factors.loadings[zero] == 0).all()
    assert np.isnan(fit.factors.loadings_error[zero]).all()
    assert np.isfinite(fit.factors.loadings_error[~zero]).all()
    error = fit.items.table["intercept_se"].to_numpy(zero_copy_only=False)
    assert (error > 0).all()
    of_slopes = fit.items.table["discrimination_se"]
    assert of_slopes.is_null().to_numpy(zero_copy_only=False)[zero].all()
    assert not any("not identified" in x for x in fit.warnings)
    assert fit.options["lasso"] == pull.tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"lasso": 3.0, "positive": True},
            "any sign: leave out positive",
        ),
        ({"lasso": np.ones(5)}, r"shape \(5,\): give a number, or one for each of 60"),
        ({"lasso": -1.0}, "below 0"),
    ],
)
def test_what_has_no_group_lasso_is_refused(settings, message):
    table = irtjax.ResponseTable.from_arrays(drawn()[0])
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.fit(table, "factor", "mm", **settings)
    assert "\n" not in str(refused.value)
