"""Errors of marginal factor models, against Hessians of marginal posteriors."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
from irtjax.calibration.tables import item_errors
from irtjax.estimators.item_estimates import item_estimates
from irtjax.estimators.loadings import rotated
from irtjax.estimators.marginal.normal import NormalFactors
from irtjax.estimators.timing import Clock
from irtjax.inference import marginal_covariance as marginal
from irtjax.inference.marginal_covariance import marginal_covariance, normal_rule
from irtjax.inference.rotation_errors import (
    correlation_covariance,
    rotation_moves,
    turned_covariance,
)
from irtjax.inference.vector_scores import score_factors
from irtjax.likelihood.cubature import points_for
from irtjax.likelihood.problem import Parameters
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.graded import CLOSEST, PartialCredit
from irtjax.models.model import Population
from irtjax.numerics.rotation import rotate

SUBJECTS, ITEMS, RHO = 120, 8, 0.4
SLOW = pytest.mark.slow
#: Subjects that the prior of correlations is worth.
PRIOR = 2.0


@functools.cache
def case(responses, confirms):
    """A problem of responses to items of two factors, seen in 9 of 10 cells."""
    rng = np.random.default_rng(1)
    slopes = rng.normal(0.9, 0.4, (ITEMS, 2))
    if confirms:
        slopes = slopes * np.eye(2)[np.arange(ITEMS) % 2]
    intercept = 0.7 * rng.normal(size=ITEMS)
    root = np.linalg.cholesky([[1, RHO * confirms], [RHO * confirms, 1]])
    eta = rng.normal(size=(SUBJECTS, 2)) @ root.T @ slopes.T + intercept
    values = eta + 0.8 * rng.normal(size=eta.shape)
    if responses == "binary":
        values = (rng.random(eta.shape) < expit(eta)).astype(float)
    if responses == "probit":
        values = (eta + 1.7 * rng.normal(size=eta.shape) > 0).astype(float)
    ordered = responses in ("graded", "partial_credit")
    if ordered:
        values = np.searchsorted([-1.0, 1.0], values).astype(float)
    seen = rng.random(eta.shape) < 0.9
    data = irtjax.Responses(jnp.asarray(values * seen), jnp.asarray(seen))
    plan = (
        Factor(item_model=responses)
        if responses != "probit"
        else Factor(link=responses)
    )
    model = factor_model(plan, 3 if ordered else 2)
    problem = irtjax.Problem.create(model, data)
    if confirms:
        mask = jnp.asarray(np.eye(2, dtype=bool)[np.arange(ITEMS) % 2])
        free = problem.free.at[:, :2].set(mask)
        problem = irtjax.Problem(model, data, free)
    columns = [slopes, intercept[:, None] + ([1.0, -1.0] if ordered else 0.0)]
    if responses == "continuous":
        columns.append(np.full((ITEMS, 1), np.log(0.8)))
    return problem, np.r_[np.concatenate(columns, axis=1).ravel(), RHO * confirms]


def items_of(problem, x):
    """Item records and the correlation of a vector of all parameters."""
    rows = x[:-1].reshape(ITEMS, -1)
    items = problem.model.family.constrain
    return jax.vmap(items)(rows), x[-1]


def log_chances(problem, eta, intercept):
    """Logarithms of the probabilities of the categories, `[nodes, items]` each."""
    if intercept.ndim == 1:
        both, family = eta + intercept, problem.model.family
        if family.link == "probit":
            return jax.scipy.stats.norm.logcdf(-both), jax.scipy.stats.norm.logcdf(both)
        return -jax.nn.softplus(both), -jax.nn.softplus(-both)
    first, second = (eta + intercept[:, h] for h in range(2))
    if isinstance(problem.model.family, PartialCredit):
        terms = jnp.stack([0 * first, first, first + second])
        return jax.nn.log_softmax(terms, axis=0)
    gap = jnp.log1p(-jnp.exp(intercept[:, 1] - intercept[:, 0]))
    above, below = -jax.nn.softplus(-first), -jax.nn.softplus(second)
    # sigma(x) - sigma(z) = sigma(x) sigma(-z) (1 - e^(z - x))
    return -jax.nn.softplus(first), above + below + gap, -jax.nn.softplus(-second)


def minus_log_posterior(problem, x):
    """By a product rule of 31 x 31 nodes, or by the normal density."""
    items, rho = items_of(problem, x)
    data, slopes = problem.data, items.discrimination
    values, seen = data.values, data.observed
    common = jnp.eye(2).at[0, 1].set(rho).at[1, 0].set(rho)
    if problem.model.family.num_categories:
        nodes, weights = np.polynomial.hermite_e.hermegauss(31)
        pairs = jnp.asarray(np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2))
        log_weights = jnp.asarray(np.log(np.outer(weights, weights).ravel()))
        eta = pairs @ jnp.linalg.cholesky(common).T @ slopes.T
        both = 0.0
        for y, log_chance in enumerate(log_chances(problem, eta, items.intercept)):
            here = ((values == y) & seen).astype(float)
            both = both + here @ log_chance.T
        height = jnp.sum(jax.nn.logsumexp(both + log_weights, axis=1))
    else:
        whole = slopes @ common @ slopes.T + jnp.diag(items.dispersion**2)
        both = seen[:, :, None] & seen[:, None, :]
        covariance = jnp.where(both, whole, jnp.eye(ITEMS))
        rest = jnp.where(seen, values - items.intercept, 0)
        inner = jnp.linalg.solve(covariance, rest[..., None])[..., 0]
        height = -0.5 * jnp.sum(jnp.linalg.slogdet(covariance)[1])
        height -= 0.5 * jnp.sum(rest * inner)
    height += jnp.sum(jax.vmap(problem.model.log_prior)(items))
    height -= PRIOR / 2 * (jnp.log(1 - rho**2) + 2 / (1 - rho**2))
    return -height


@functools.cache
def derivatives(responses, confirms):
    problem, _ = case(responses, confirms)
    function = functools.partial(minus_log_posterior, problem)
    return jax.jit(jax.value_and_grad(function)), jax.jit(jax.hessian(function))


def found_at(problem, x):
    """Covariances of the package at a point."""
    items, rho = items_of(problem, jnp.asarray(x))
    common = jnp.eye(2).at[0, 1].set(rho).at[1, 0].set(rho)
    population = Population(jnp.zeros(2), jnp.ones(2), None, common)
    modes = score_factors(problem.model, items, population, problem.data)
    rule = normal_rule(2)
    if problem.model.family.num_categories:
        rule = points_for(2, 0, jax.random.key(0))
    posteriors = modes.ability, modes.covariance
    return marginal_covariance(problem, items, population, posteriors, rule, PRIOR)


@functools.cache
def optimum(responses, confirms):
    problem, x = case(responses, confirms)
    gradient, hessian = derivatives(responses, confirms)
    free = np.r_[np.asarray(problem.free).ravel(), confirms]

    def at(part):
        whole = x.copy()
        whole[free] = part
        value, slope = gradient(whole)
        if not np.isfinite(value):  # A correlation above 1.
            return 1e9, np.zeros(free.sum())
        return float(value), np.asarray(slope, float)[free]

    found = minimize(at, x[free], jac=True, method="BFGS", options={"gtol": 1e-6})
    best = x.copy()
    best[free] = found.x
    return problem, best, free, np.asarray(hessian(best))


#: Responses, and the largest error. Of scores the formula is exact. Of binary responses
#: it leaves out terms of fourth order in a posterior of standard deviation .7, which
#: are .7^8 / 4! = .0024 of the information for slopes of 1. The factor by which a
#: variance exceeds that of known abilities, up to ten, multiplies it.
KINDS = [pytest.param("continuous", 1e-5, marks=SLOW), ("binary", 0.012)]
KINDS_OF_TESTS = [
    *KINDS,
    pytest.param("probit", 0.012, marks=SLOW),
    pytest.param("graded", 0.012, marks=SLOW),
    pytest.param("partial_credit", 0.012, marks=SLOW),
]


@pytest.mark.parametrize(("responses", "error"), KINDS_OF_TESTS)
def test_a_confirmatory_model_has_the_errors_of_its_hessian(responses, error):
    problem, best, free, hessian = optimum(responses, True)
    found = found_at(problem, best)
    wanted = np.zeros_like(hessian)
    wanted[np.ix_(free, free)] = np.linalg.inv(hessian[np.ix_(free, free)])
    ratio = np.sqrt(np.diagonal(found.whole)[free] / np.diagonal(wanted)[free])
    np.testing.assert_allclose(ratio, 1, atol=error)
    assert found.is_identified.all()
    np.testing.assert_array_equal(found.correlations, found.whole[-1:, -1:])
    # Information between items matters: from its own block an error is too small.
    size = problem.free.shape[1]
    alone = []
    for j, mine in enumerate(np.asarray(problem.free)):
        rows = j * size + np.flatnonzero(mine)
        inverse = np.linalg.inv(hessian[np.ix_(rows, rows)])
        alone.append(np.diagonal(inverse) / np.diagonal(wanted)[rows])
    assert np.min(alone) < 0.95


@pytest.mark.parametrize(("responses", "error"), KINDS_OF_TESTS)
def test_an_exploratory_model_has_the_errors_of_what_no_rotation_changes(
    responses, error
):
    problem, best, free, hessian = optimum(responses, False)
    found = found_at(problem, best)
    # Another generalised inverse: that of a model with one slope fixed.
    kept = free.copy()
    kept[0] = False
    other = np.zeros((len(best) - 1, len(best) - 1))
    inside = np.flatnonzero(kept[:-1])
    other[np.ix_(inside, inside)] = np.linalg.inv(hessian[np.ix_(inside, inside)])
    rows = best[:-1].reshape(ITEMS, -1)
    slopes, columns = rows[:, :2], rows.shape[1]
    given = jnp.asarray(slopes / np.sqrt(1 + (slopes**2).sum(1, keepdims=True)))
    transform = rotate(given, "oblimin", num_starts=10).transform
    turn, by_loading = rotation_moves(given, "oblimin", transform, 10)

    def loadings(a):
        return a / jnp.sqrt(1 + jnp.sum(a**2))

    jacobian = np.zeros((ITEMS, 2, columns))
    jacobian[:, :, :2] = jax.vmap(jax.jacfwd(loadings))(jnp.asarray(slopes))
    by_slope = np.einsum("kljm,jmp->kljp", by_loading, jacobian)
    shape = ITEMS, columns, ITEMS, columns

    def invariants(covariance):
        turned = turned_covariance(slopes, turn, by_slope, covariance.reshape(shape))
        blocks = covariance.reshape(shape)[np.arange(ITEMS), :, np.arange(ITEMS)]
        along = slopes / np.linalg.norm(slopes, axis=1)[:, None]
        length = np.einsum("jp,jpq,jq->j", along, blocks[:, :2, :2], along)
        # The correlation that oblimin finds, from the covariance of all loadings.
        half = (jacobian @ covariance.reshape(ITEMS, columns, -1)).reshape(
            2 * ITEMS, ITEMS, columns
        )
        given = np.einsum("fmp,mlp->fml", half, jacobian).reshape(2 * ITEMS, -1)
        rho = correlation_covariance(turn, by_loading, given)
        assert 0 < rho[0, 0] < 1
        found = [length[:, None], np.diagonal(turned, axis1=1, axis2=2)]
        return np.r_[np.concatenate(found, axis=1).ravel(), rho.ravel()]

    ratio = np.sqrt(invariants(found.whole) / invariants(other))
    np.testing.assert_allclose(ratio, 1, atol=error)


@pytest.mark.parametrize(
    "responses",
    [pytest.param(x, marks=SLOW) for x in ("continuous", "graded", "partial_credit")],
)
def test_many_parameters_have_blocks_and_the_error_of_the_sample(
    monkeypatch, responses
):
    """Information between items is that of the frame, of which few items have less.

    For 4 items of a factor the variances are within 1 / 4 of those of the whole.
    """
    problem, x = case(responses, True)
    whole = found_at(problem, x)
    monkeypatch.setattr(marginal, "MOST_PARAMETERS", 3)
    blocks = found_at(problem, x)
    assert blocks.whole is None
    free = np.asarray(problem.free)
    one, two = (np.diagonal(f.items, axis1=1, axis2=2)[free] for f in (blocks, whole))
    np.testing.assert_allclose(one / two, 1, atol=1 / 4)
    # Without the sample's part intercepts are the errors of known abilities.
    monkeypatch.setattr(marginal, "_frame", lambda *_: 0.0)
    alone = found_at(problem, x).items
    if responses == "continuous":
        assert (alone[:, 2, 2] / whole.items[:, 2, 2]).min() < 0.7
    else:  # A sample moves both intercepts of an item alike.
        gap, added = (f.items[:, 2:, 2:] - alone[:, 2:, 2:] for f in (whole, blocks))
        assert np.all(gap.mean(axis=0) > 0)
        np.testing.assert_allclose(added, added[:, :1, :1] + 0 * added, rtol=1e-9)


@pytest.mark.slow  # Programs of two models.
def test_intercepts_around_an_empty_category_are_one():
    """Graded items of which nobody has the middle category are items with one cut."""
    problem, x = case("graded", True)
    data = problem.data
    ends = irtjax.Responses(2.0 * (data.values > 0), data.observed)
    right = irtjax.Responses(1.0 * (data.values > 0), data.observed)
    priors = {"discrimination": problem.model.priors["discrimination"]}
    rows = x[:-1].reshape(ITEMS, 4).copy()
    rows[:, 3] = rows[:, 2] - CLOSEST
    graded = irtjax.Model("factor", problem.model.family, priors)
    binary = irtjax.Model("factor", factor_model(Factor()).family, priors)
    one = found_at(irtjax.Problem(graded, ends, problem.free), np.r_[rows.ravel(), RHO])
    free = problem.free[:, :3]
    x = np.r_[rows[:, :3].ravel(), RHO]
    two = found_at(irtjax.Problem(binary, right, free), x)
    for first, second in (([0, 1, 2], [0, 1, 2]), ([0, 1, 3], [0, 1, 2])):
        # Other information is at most a hundredth of that about the difference.
        np.testing.assert_allclose(
            one.items[:, first][:, :, first], two.items[:, second], rtol=0.01, atol=1e-4
        )


@pytest.mark.slow
def test_independent_halves_have_the_errors_of_one_ability():
    """Given the correlation, items of two factors are two tests of one ability."""
    rng = np.random.default_rng(0)
    half, subjects = 6, 300
    which = np.arange(2 * half) % 2
    slopes = rng.uniform(0.8, 1.8, 2 * half)[:, None] * np.eye(2)[which]
    intercept = rng.normal(size=2 * half)
    eta = rng.normal(size=(subjects, 2)) @ slopes.T + intercept
    right = jnp.asarray(rng.random(eta.shape) < expit(eta)).astype(jnp.int8)
    # Priors of one ability are stated up to its scale, those of several are not.
    model = irtjax.Model("factor", factor_model(Factor()).family, {})
    problem = irtjax.Problem.create(model, irtjax.Responses(right))
    free = problem.free.at[:, :2].set(jnp.asarray(np.eye(2, dtype=bool)[which]))
    problem = irtjax.Problem(model, problem.data, free)
    rows = jnp.asarray(np.column_stack([slopes, intercept]))
    items = jax.vmap(model.family.constrain)(rows)
    population = Population(jnp.zeros(2), jnp.ones(2), None, jnp.eye(2))
    modes = score_factors(model, items, population, problem.data)
    points = points_for(2, 0, jax.random.key(0))
    posteriors = modes.ability, modes.covariance
    whole = marginal_covariance(problem, items, population, posteriors, points).whole
    cross = whole[:-1, -1:]
    known = np.diagonal(whole[:-1, :-1] - cross @ cross.T / whole[-1, -1])
    known = np.sqrt(known).reshape(-1, 3)
    one = irtjax.Model("2pl", irtjax.MODELS["2pl"]().family, {})
    for k in range(2):
        mine = which == k
        part = irtjax.Problem.create(one, irtjax.Responses(right[:, mine]))
        given = rows[mine][:, np.array([k, 2])], Population(0.0, 1.0)
        found = irtjax.item_covariance(part, *given, jnp.linspace(-6, 6, 61))
        error = np.sqrt(np.diagonal(found.items, axis1=1, axis2=2))
        np.testing.assert_allclose(known[mine][:, [k, 2]], error, rtol=KINDS[1][1])


def solved(problem, x, method):
    """A solution at given items, as a method returns it."""
    items, rho = items_of(problem, jnp.asarray(x))
    common = jnp.eye(2).at[0, 1].set(rho).at[1, 0].set(rho)
    population = Population(jnp.zeros(2), jnp.ones(2), None, common)
    theta = None if method.marginal else jnp.zeros((SUBJECTS, 2))
    fit = types.SimpleNamespace(
        parameters=Parameters(items, population, theta),
        subject_log_lik=np.zeros(SUBJECTS),
        status=0,
        num_steps=1,
        trace=np.zeros(1),
        residual=0.0,
    )
    solution = types.SimpleNamespace(fit=fit, method=method, warnings=())
    return item_estimates(problem, solution, clock=Clock())


@pytest.mark.slow
@pytest.mark.parametrize(
    "confirms", [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_items_that_are_not_identified_have_no_error_and_a_warning(confirms):
    """The first item has no response, and no prior: not 0 but no error.

    In the exploratory model it is its intercept alone that has no prior.
    """
    problem, x, *_ = optimum("continuous", confirms)
    seen = problem.data.observed.at[:, 0].set(False)
    data = irtjax.Responses(problem.data.values * seen, seen)
    priors = {} if confirms else dict(problem.model.priors)
    priors.pop("intercept", None)
    model = irtjax.Model("factor", problem.model.family, priors)
    found = solved(irtjax.Problem(model, data, problem.free), x, NormalFactors())
    assert "of 1 item are not identified" in found.warnings[0]
    free = np.asarray(problem.free)[:, :2]
    turned = () if confirms else (rotated(found, "varimax", 5),)
    for estimates in (found, *turned):
        errors, missing, _ = item_errors(estimates)
        np.testing.assert_array_equal(missing, np.arange(ITEMS) == 0)
        assert np.isnan(errors["intercept"][0]) and np.isnan(errors["difficulty"][0])
        assert (errors["intercept"][1:] > 0).all()
        size = estimates.factors.loadings_error
        assert np.isnan(size[0][free[0]]).all() == confirms
        assert (size[1:][free[1:]] > 0).all() and (size[~free] == 0).all()


@pytest.mark.slow
def test_errors_of_positive_slopes_are_those_of_free_ones():
    """Tables and coordinates: natural and logarithmic; no error at the bound."""
    problem, x = case("binary", True)
    x = np.abs(x)
    free = solved(problem, x, irtjax.MM())
    model = factor_model(Factor(positive=True))
    model = irtjax.Model("factor", model.family, problem.model.priors)
    bounded = irtjax.Problem(model, problem.data, problem.free.at[0].set(True))
    rows = np.reshape(x[:-1], (ITEMS, 3)).copy()
    rows[:, :2] = np.log(np.where(rows[:, :2] > 0, rows[:, :2], 1e-320))
    rows[:, :2][np.asarray(problem.free)[:, :2] == 0] = -np.inf
    found = solved(bounded, np.r_[rows.ravel(), x[-1]], irtjax.MM())
    (one, first, _), (two, missing, _) = item_errors(free), item_errors(found)
    # Eight items: one has no error by either.
    np.testing.assert_array_equal(missing, first)
    assert missing.sum() == 1
    assert np.isnan(two["discrimination"][0, 1])
    assert np.isnan(found.factors.loadings_error[0, 1])
    kept = np.asarray(problem.free)
    for name in ("discrimination", "intercept", "difficulty"):
        both = one[name], two[name]
        if name == "discrimination":
            both = tuple(part[kept[:, :2]] for part in both)
        np.testing.assert_allclose(*both, rtol=1e-6)
    logs = np.diagonal(found.covariance.items, axis1=1, axis2=2)[:, :2][kept[:, :2]]
    natural = np.diagonal(free.covariance.items, axis1=1, axis2=2)[:, :2][kept[:, :2]]
    slopes = np.asarray(free.parameters.items.discrimination)[kept[:, :2]]
    np.testing.assert_allclose(logs, natural / slopes**2, rtol=1e-6)
    known = np.array(free.covariance.identified)
    known[0, 1] = False
    np.testing.assert_array_equal(found.covariance.identified, known)


@pytest.mark.parametrize("settings", [{"penalty": 1e6}, {"temperature": 1e3}])
def test_priors_count_as_the_method_weighs_them(settings):
    """Both make the prior of intercepts, N(0, 3^2), a million times as strong."""
    problem, x = case("binary", True)
    errors, _, _ = item_errors(solved(problem, x, irtjax.MM(**settings)))
    # 120 responses add 30 at most to a precision of 1e6 / 9, and abilities take a part.
    np.testing.assert_allclose(errors["intercept"], 3e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["sandwich", "cross_product", "obsrved"])
def test_other_kinds_of_errors_are_refused_in_one_line(kind):
    table = irtjax.ResponseTable.from_arrays(np.eye(9, 8, dtype=np.int8))
    with pytest.raises(ValueError, match="use 'observed' or 'none'") as refused:
        irtjax.fit(table, "factor", "mm", standard_errors=kind)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_correlations_of_many_items_have_the_errors_of_a_sample(monkeypatch):
    """Errors of items matter by the scales of the factors, which are estimated.

    For given scales the error would be smaller by 1 / sqrt(1 + rho^2), 7 %.
    """
    problem, best, *_ = optimum("continuous", True)
    whole = found_at(problem, best).correlations
    monkeypatch.setattr(marginal, "MOST_PARAMETERS", 3)
    found = found_at(problem, best)
    assert found.whole is None
    np.testing.assert_allclose(np.sqrt(found.correlations / whole), 1, atol=0.03)


@pytest.mark.slow
def test_correlations_have_errors_where_they_are_estimated():
    problem, best, free, hessian = optimum("continuous", True)
    found = solved(problem, best, NormalFactors()).factors
    wanted = np.linalg.inv(hessian[np.ix_(free, free)])[-1, -1] ** 0.5
    np.testing.assert_allclose(found.correlation_error[0, 1], wanted, rtol=1e-5)
    np.testing.assert_array_equal(found.correlation_error, found.correlation_error.T)
    np.testing.assert_array_equal(np.diagonal(found.correlation_error), 0)
    assert solved(problem, best, irtjax.MM()).factors.correlation_error is None
    problem, best, *_ = optimum("continuous", False)
    free = solved(problem, best, NormalFactors())
    assert free.factors.correlation_error is None  # They are 0 by definition.
    assert rotated(free, "varimax", 5).factors.correlation_error is None
    turned = rotated(free, "oblimin", 5).factors.correlation_error
    # A correlation of 120 subjects that are known would have 1 / sqrt(120).
    assert turned[0, 1] == turned[1, 0] > 0.09
    # Independent items would have too small an error: without their covariance, none.
    blocks = free.factors.item_errors._replace(whole=None)
    alone = dataclasses.replace(
        free, factors=dataclasses.replace(free.factors, item_errors=blocks)
    )
    assert rotated(alone, "oblimin", 5).factors.correlation_error is None
