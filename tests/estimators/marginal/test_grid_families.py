"""EM on a grid for probit, graded and partial credit factor models."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import Bounds, minimize
from scipy.special import expit, logsumexp, ndtr

import irtjax
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.cuts import CLOSEST
from irtjax.estimators.marginal.correlations import PRIOR_SUBJECTS
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.likelihood.cubature import grid_nodes
from irtjax.likelihood.item_steps import bounded_step
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.priors import Normal
from irtjax.models.simulate import simulate_abilities

SUBJECTS, ITEMS, DIMS, RHO = 60, 7, 2, 0.4
MASK = np.eye(DIMS, dtype=bool)[np.arange(ITEMS) % DIMS]
MASK[0] = True
SD = {"discrimination": 1.0, "intercept": 3.0}
PLANS = {
    "probit": Factor(DIMS, link="probit"),
    "graded": Factor(DIMS, item_model="graded"),
    "empty": Factor(DIMS, item_model="graded"),
    "partial_credit": Factor(DIMS, item_model="partial_credit"),
}


def chances(kind, eta, cuts):
    """Probabilities of the categories at products `[..., items]`, in plain NumPy."""
    logits = eta[..., None] + cuts
    if kind == "partial_credit":
        terms = np.cumsum(logits, axis=-1)
        terms = np.concatenate([0 * terms[..., :1], terms], axis=-1)
        return np.exp(terms - logsumexp(terms, axis=-1, keepdims=True))
    above = ndtr(logits) if kind == "probit" else expit(logits)
    one = np.ones_like(above[..., :1])
    above = np.concatenate([one, above, 0 * one], axis=-1)
    return above[..., :-1] - above[..., 1:]


@functools.cache
def drawn(kind, count):
    """Responses to items of two correlated factors, and which cells were observed."""
    rng = np.random.default_rng(8)
    theta = (
        rng.normal(size=(SUBJECTS, DIMS)) @ np.linalg.cholesky([[1, RHO], [RHO, 1]]).T
    )
    slopes = MASK * rng.uniform(1.0, 2.0, MASK.shape)
    cuts = np.linspace(1, -1, count - 1) if count > 2 else np.array([0.3])
    chance = chances(kind, theta @ slopes.T, cuts)
    above = 1 - np.cumsum(chance, axis=-1)[..., :-1]
    values = (rng.random((SUBJECTS, ITEMS, 1)) < above).sum(-1)
    if kind == "empty":  # Nobody has the middle category of the first item.
        values[:, 0] = np.where(values[:, 0] == 1, 2, values[:, 0])
    seen = rng.random(values.shape) < 0.9
    seen[3] = False  # A subject without responses.
    return values * seen, seen


@functools.cache
def problem_of(kind, count):
    values, seen = drawn(kind, count)
    data = irtjax.Responses(jnp.asarray(values, jnp.int8), jnp.asarray(seen))
    problem = Problem.create(factor_model(PLANS[kind], count), data)
    return dataclasses.replace(problem, free=problem.free.at[:, :DIMS].set(MASK))


@functools.cache
def solved(kind, count=3):
    problem = problem_of(kind, count)
    start = start_values(problem.model, problem.data, loadings=MASK)
    method = EM(jnp.asarray(grid_nodes(0.4, DIMS)), 1e-5)
    return run_jit(problem, method, start, max_steps=500)


def log_posterior(kind, count, slopes, cuts, rho, given=None):
    """The objective, by a rule of its own nodes."""
    values, seen = drawn(kind, count) if given is None else given
    line = np.arange(-5.57, 5.5, 0.4)
    standard = np.stack(np.meshgrid(line, line), -1).reshape(-1, DIMS)
    standard = standard[np.sum(standard**2, axis=1) < 5.5**2]
    theta = standard @ np.linalg.cholesky([[1, rho], [rho, 1]]).T
    weights = -0.5 * np.sum(standard**2, axis=1)
    if kind != "partial_credit" and np.any(np.diff(cuts) >= 0):
        return -np.inf  # Intercepts out of order.
    logs = np.log(np.maximum(chances(kind, theta @ slopes.T, cuts), 1e-300))
    joint = (weights - logsumexp(weights))[:, None]
    for y in range(count):
        here = ((values == y) & seen).astype(float)
        joint = joint + logs[..., y] @ here.T
    total = logsumexp(joint, axis=0).sum()
    total -= PRIOR_SUBJECTS / 2 * (np.log(1 - rho**2) + 2 / (1 - rho**2) - DIMS)
    for x, sd in ((slopes, SD["discrimination"]), (cuts, SD["intercept"])):
        total += np.sum(-0.5 * (x / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi))
    return total


@pytest.mark.parametrize(
    "kind",
    [
        "graded",
        "empty",
        pytest.param("probit", marks=pytest.mark.slow),
        pytest.param("partial_credit", marks=pytest.mark.slow),
    ],
)
def test_the_estimate_is_the_maximum_of_the_marginal_posterior(kind):
    count = 2 if kind == "probit" else 3
    fit = solved(kind, count)
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert int(fit.status) == irtjax.Status.CONVERGED
    assert np.diff(trace).min() >= -1e-9
    items, population = fit.parameters.items, fit.parameters.population
    slopes = np.asarray(items.discrimination)
    cuts = np.asarray(items.intercept).reshape(ITEMS, -1)
    rho = float(population.correlation[0, 1])
    assert np.all(slopes[~MASK] == 0)
    height = log_posterior(kind, count, slopes, cuts, rho)
    assert float(fit.objective) == pytest.approx(height, abs=1e-6)

    used = MASK.sum()

    def loss(x):
        free = np.zeros(MASK.shape)
        free[MASK] = x[:used]
        levels = x[used:-1].reshape(ITEMS, -1).copy()
        if kind == "empty":
            levels[0, 1] = levels[0, 0] - CLOSEST
        found = log_posterior(kind, count, free, levels, np.tanh(x[-1]))
        return -found if np.isfinite(found) else 1e6

    first = np.r_[slopes[MASK], cuts.ravel(), np.arctanh(rho)]
    moved = first + 0.05 * np.random.default_rng(0).normal(size=first.size)
    best = minimize(loss, moved, options={"gtol": 1e-4})
    # Gradients of 1e-4 or less, in some 30 numbers with curvatures of 5 or more.
    assert -best.fun == pytest.approx(height, abs=1e-6)
    if kind == "empty":
        assert cuts[0, 0] - cuts[0, 1] == pytest.approx(CLOSEST, rel=1e-6)


@pytest.mark.parametrize(
    "kind", ["partial_credit", pytest.param("graded", marks=pytest.mark.slow)]
)
def test_two_categories_are_the_binary_model(kind):
    found, problem = solved(kind, 2), problem_of(kind, 2)
    model = factor_model(Factor(DIMS))
    binary = Problem(model, problem.data, problem.free)
    # From that estimate: it must be one of the other model.
    slopes, intercept = found.parameters.items
    zero = jnp.zeros(ITEMS)
    items = LogisticItems(slopes, intercept[:, 0], zero, zero + 1)
    start = Start(items, None, found.parameters.population)
    method = EM(jnp.asarray(grid_nodes(0.4, DIMS)), 1e-5)
    other = run_jit(binary, method, start, max_steps=500)
    assert float(found.objective) == pytest.approx(float(other.objective), abs=1e-9)
    one, two = found.parameters.items, other.parameters.items
    np.testing.assert_allclose(one.discrimination, two.discrimination, atol=1e-6)
    np.testing.assert_allclose(one.intercept[:, 0], two.intercept, atol=1e-6)


@pytest.mark.slow  # A program of its own.
def test_non_negative_slopes_meet_the_conditions_of_a_maximum():
    data = problem_of("graded", 3).data
    # A factor that half of the items measure in the other direction: slopes of 0.
    values = np.asarray(data.values).copy()
    values[:, ::4] = 2 - values[:, ::4]
    values = np.where(np.asarray(data.observed), values, 0)
    data = dataclasses.replace(data, values=jnp.asarray(values, jnp.int8))
    model = factor_model(Factor(DIMS, positive=True, item_model="graded"), 3)
    priors = {**model.priors, "discrimination": Normal(0.0, 1.0)}
    problem = Problem.create(dataclasses.replace(model, priors=priors), data)
    start = start_values(problem.model, data)
    method = EM(jnp.asarray(grid_nodes(0.4, DIMS)), 1e-5)
    fit = run_jit(problem, method, start, max_steps=500)
    assert int(fit.status) == irtjax.Status.CONVERGED
    slopes, cuts = (np.asarray(x) for x in fit.parameters.items)
    point = np.hstack([slopes, cuts])
    given = values, np.asarray(data.observed)

    def height(x):
        return log_posterior("graded", 3, x[:, :DIMS], x[:, DIMS:], 0.0, given)

    assert float(fit.objective) == pytest.approx(height(point), abs=1e-6)
    gradient = np.zeros(point.shape)
    for place in np.ndindex(point.shape):
        move = np.zeros(point.shape)
        move[place] = 1e-4
        gradient[place] = (height(point + move) - height(point - move)) / 2e-4
    bound = np.hstack([slopes == 0, np.zeros(cuts.shape, bool)])
    assert 2 < bound.sum() < slopes.size
    # Converged at 1e-5 standard errors, of .2 or more.
    assert np.abs(gradient[~bound]).max() < 1e-4 and gradient[bound].max() < 1e-4


def test_a_newton_step_ends_at_the_maximum_of_its_quadratic():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 5, 5))
    curvature = root @ root.swapaxes(1, 2) + 0.3 * np.eye(5)
    gradient, rows = 3 * rng.normal(size=(6, 5)), np.abs(rng.normal(size=(6, 5)))
    free = np.ones((6, 5), bool)
    free[1, 4] = free[2, 0] = False
    slopes = np.arange(5) < 2
    pairs = free[:, :, None] & free[:, None, :]
    step = bounded_step(
        jnp.where(free, gradient, 0),
        jnp.where(pairs, curvature, np.eye(5)),
        jnp.asarray(rows),
        jnp.asarray(free),
        slopes,
    )
    reached = rows + np.asarray(step)
    for j in range(6):
        low, high = np.where(slopes, 0, -np.inf), np.full(5, np.inf)
        low[~free[j]] = high[~free[j]] = rows[j, ~free[j]]

        def loss(x, j=j):
            move = x - rows[j]
            bend = curvature[j] @ move
            return -gradient[j] @ move + move @ bend / 2, bend - gradient[j]

        options = {"ftol": 1e-15, "gtol": 1e-10}
        best = minimize(
            loss, rows[j], jac=True, bounds=Bounds(low, high), options=options
        )
        np.testing.assert_allclose(reached[j], best.x, atol=1e-5)
        assert np.all(reached[j, ~free[j]] == rows[j, ~free[j]])
    assert (reached[:, slopes] == 0).any()


def test_one_factor_of_partial_credit_is_the_model_of_one_ability():
    plan = Factor(1, item_model="partial_credit")
    assert factor_model(plan, 4).family == irtjax.MODELS["partial_credit"](4).family
    assert factor_model(plan, 4).priors == irtjax.MODELS["partial_credit"](4).priors


@pytest.mark.slow  # Programs of their own.
@pytest.mark.parametrize("name", ["partial_credit", "graded", "probit2pl"])
def test_the_grid_of_one_ability_is_that_of_em(name):
    ordered = name != "probit2pl"
    values, seen = drawn("graded", 3) if ordered else drawn("probit", 2)
    data = irtjax.Responses(jnp.asarray(values, jnp.int8), jnp.asarray(seen))
    family = irtjax.MODELS[name](*([3] * ordered)).family
    plain = irtjax.Model(name, family)
    nodes = jnp.linspace(-5.5, 5.5, 89)
    start = irtjax.start_values(plain, data)
    em = run_jit(Problem.create(plain, data), EM(nodes, 1e-9), start, max_steps=500)
    slopes = start.items.discrimination[:, None]
    several = Start(start.items._replace(discrimination=slopes))
    model = irtjax.Model("factor", dataclasses.replace(family, dims=1))
    method = EM(nodes[:, None], 1e-9)
    grid = run_jit(Problem.create(model, data), method, several, max_steps=500)
    assert float(grid.objective) == pytest.approx(float(em.objective), abs=1e-9)
    found = grid.parameters.items.discrimination[:, 0]
    np.testing.assert_allclose(found, em.parameters.items.discrimination, atol=1e-5)


def table_of(seed, subjects=300, items=15):
    """Graded responses with simple structure, their loadings and the correlation.

    Both are those of the abilities of the sample, of standard deviation 1.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(subjects, 2)) @ np.linalg.cholesky([[1, 0.4], [0.4, 1]]).T
    slopes = np.eye(2)[np.arange(items) % 2] * rng.uniform(1, 2.2, (items, 1))
    cuts = np.sort(rng.normal(size=(items, 3)), axis=1)[:, ::-1] + [0.7, 0, -0.7]
    above = expit((theta @ slopes.T)[..., None] + cuts)
    values = (rng.random((subjects, items, 1)) < above).sum(-1)
    slopes = slopes * theta.std(axis=0)
    true = slopes / np.sqrt((slopes**2).sum(1, keepdims=True) + np.pi**2 / 3)
    return irtjax.ResponseTable.from_arrays(values), true, np.corrcoef(theta.T)[0, 1]


@pytest.mark.slow
def test_short_graded_tests_have_less_bias_than_by_mm():
    found = {"em": [], "mm": []}
    for seed in range(4):
        table, true, correlation = table_of(seed)
        for method, rows in found.items():
            fit = irtjax.fit(table, "factor", method=method, loadings=true > 0)
            assert fit.status is irtjax.Status.CONVERGED
            ratio = (fit.factors.loadings[true > 0] / true[true > 0]).mean()
            rows.append((ratio - 1, fit.factors.correlation[0, 1] - correlation))
    by_em, by_mm = (np.mean(rows, axis=0) for rows in found.values())
    # Means of 60 ratios with errors of about .07, and of 4 correlations of about .04.
    assert abs(by_em[0]) < 3 * 0.01 < by_mm[0]
    assert abs(by_em[1]) < 3 * 0.02 and by_mm[1] < by_em[1]


@pytest.mark.slow
def test_every_verb_of_a_factor_model_of_partial_credit(tmp_path):
    table, *_ = table_of(5, subjects=200, items=12)
    groups = {name: ["ab"[j % 2]] for j, name in enumerate(table.items.tolist())}
    settings = {"loadings": groups, "item_model": "partial_credit"}
    fit = irtjax.fit(table, "factor", **settings)
    assert fit.options["method"] == "em" and "em" in fit.options["choice"]
    joint = irtjax.fit(table, "factor", method="mm", **settings)
    assert fit.status is joint.status is irtjax.Status.CONVERGED
    assert any("method='em' has no such bias" in text for text in joint.warnings)
    ranked = irtjax.rank(fit).table
    ability = dict(
        zip(
            *(fit.abilities.table[x].to_pylist() for x in ("subject", "ability")),
            strict=True,
        )
    )
    assert set(ranked["subject"].to_pylist()) == set(ability)
    scored = irtjax.score(fit, table).table
    again = dict(
        zip(*(scored[x].to_pylist() for x in ("subject", "ability")), strict=True)
    )
    np.testing.assert_allclose(
        [again[s] for s in ability], list(ability.values()), atol=0.02
    )
    predicted = irtjax.predict(fit, categories=True)
    np.testing.assert_allclose(predicted.probabilities.sum(-1), 1)
    mean = predicted.probabilities @ np.arange(4)
    np.testing.assert_allclose(mean, predicted.expected)
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    assert again.model == fit.model
    np.testing.assert_array_equal(again.factors.loadings, fit.factors.loadings)
    given = jax.tree.map(jnp.asarray, fit.parameters)
    problem = Problem.create(fit.model, table.responses(float))
    start = Start(given.items, None, given.population)
    method = EM(jnp.asarray(grid_nodes(0.5, DIMS)))
    found = irtjax.bootstrap(
        problem, method, start, key=jax.random.key(2), num_replicates=3, max_steps=5
    )
    assert found.ability.shape == (3, 200, DIMS) and np.isfinite(found.ability).all()
    theta = simulate_abilities(3000, jax.random.key(0), given.population)
    data = irtjax.simulate(fit.model, given.items, theta, jax.random.key(1))
    chance = chances(
        "partial_credit",
        np.asarray(theta @ given.items.discrimination.T),
        np.asarray(given.items.intercept),
    )
    error = np.asarray(data.values).mean(0) - (chance @ np.arange(4)).mean(0)
    # Five standard errors of a mean of 3,000 responses from 0 to 3.
    assert np.abs(error).max() < 5 * 1.5 / 3000**0.5
