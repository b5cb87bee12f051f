"""MM against independent numpy losses, scipy optimisers and its own guarantees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import drive, loop_of, run
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.joint.objective import diverging, joint_derivatives
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import rasch, three_parameter, two_parameter
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watching
from tests.estimators.joint.joint_cases import SHAPE, responses, simulated

PRIORS = {"discrimination": Normal(1.0, 2.0), "intercept": Normal(0.0, 3.0)}
TEMPERATURES = (0.18, 0.56, 1.8, 5.6)
PATTERNS = ("none", "mcar", "mar", "mnar")


@eqx.filter_jit
def _run(problem, method, start, max_steps, **rest):
    return run(problem, method, start, max_steps=max_steps, **rest)


def fitted(data, model=None, method=None, max_steps=1000, **rest):
    model = two_parameter(PRIORS) if model is None else model
    method = MM(tolerance=1e-8) if method is None else method
    start = start_values(model, data)
    return _run(Problem.create(model, data), method, start, max_steps, **rest)


def reference_loss(flat, values, observed, penalty):
    """Minus the joint objective and its gradient, written in numpy for this test."""
    num_subjects, num_items = values.shape
    slope, intercept = flat[:num_items], flat[num_items : 2 * num_items]
    theta = flat[2 * num_items :]
    mask = np.ones(values.shape) if observed is None else observed.astype(float)
    eta = np.outer(theta, slope) + intercept
    sign = 2.0 * values - 1
    loss = np.sum(mask * np.logaddexp(0, -sign * eta))
    inner = -mask * sign / (1 + np.exp(sign * eta))
    loss += penalty * np.sum(theta**2 / 2)
    loss += penalty * np.sum((slope - 1) ** 2 / 8 + intercept**2 / 18)
    by_slope = inner.T @ theta + penalty * (slope - 1) / 4
    by_intercept = inner.sum(0) + penalty * intercept / 9
    by_theta = inner @ slope + penalty * theta
    return loss, np.concatenate([by_slope, by_intercept, by_theta])


def probabilities(parameters):
    items = parameters.items
    eta = np.outer(parameters.theta, items.discrimination) + np.asarray(items.intercept)
    return 1 / (1 + np.exp(-eta))


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("penalty", "pattern", "positive"),
    [
        (0.0, "none", False),
        slow(0.0, "none", True),
        slow(1.0, "none", False),
        slow(1.0, "none", True),
        (1.0, "mcar", False),
        (1.0, "mcar", True),
    ],
)
def test_same_optimum_as_bounded_lbfgs(penalty, pattern, positive):
    values, observed = simulated(pattern=pattern, shape=(150, 60), sparse=0.3)
    num_items = values.shape[1]
    model = two_parameter(PRIORS, positive=positive)
    method = MM(tolerance=1e-8, penalty=penalty)
    fit = fitted(responses(values, observed), model, method)
    assert fit.status == Status.CONVERGED
    start = np.concatenate([np.ones(num_items), np.zeros(num_items), values.mean(1)])
    bounds = [(0 if positive else None, None)] * num_items
    bounds += [(None, None)] * (start.size - num_items)
    found = minimize(
        reference_loss,
        start,
        (values, observed, penalty),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-7},
    )
    slope, intercept = found.x[:num_items], found.x[num_items : 2 * num_items]
    theta = found.x[2 * num_items :]
    mean, sd = theta.mean(), theta.std()
    parameters = fit.parameters
    # Both stop near the optimum, gradients about 1e-6 of a standard error: 1e-3 is
    # what is asked for and a hundred times what is needed.
    close = dict(atol=1e-3, rtol=0)
    np.testing.assert_allclose(parameters.items.discrimination, slope * sd, **close)
    np.testing.assert_allclose(
        parameters.items.intercept, intercept + slope * mean, **close
    )
    np.testing.assert_allclose(parameters.theta, (theta - mean) / sd, **close)
    expected = 1 / (1 + np.exp(-np.outer(theta, slope) - intercept))
    np.testing.assert_allclose(probabilities(parameters), expected, **close)
    if penalty == 0:
        np.testing.assert_allclose(fit.objective, -found.fun, rtol=1e-9)
    if positive:
        assert np.sum(np.asarray(parameters.items.discrimination) == 0) >= 2


#: Complete data are a program of their own, and so is each setting: by default each
#: value of a setting occurs with one of the others.
FALLS = [
    (pattern, penalty, positive)
    if (penalty > 0) != positive and (pattern != "none" or penalty > 0)
    else slow(pattern, penalty, positive)
    for pattern in PATTERNS
    for positive in (False, True)
    for penalty in (0.0, 1.0)
]


@pytest.mark.parametrize(("pattern", "penalty", "positive"), FALLS)
def test_objective_never_falls(pattern, penalty, positive):
    model = two_parameter(PRIORS, positive=positive)
    # Pure iterations where plain maximum likelihood strains them most.
    memory = 0 if positive and penalty == 0 else 10
    for temperature in TEMPERATURES:
        values, observed = simulated(temperature, pattern)
        method = MM(
            penalty=penalty, temperature=jnp.asarray(temperature), memory=memory
        )
        fit = fitted(responses(values, observed), model, method, max_steps=60)
        trace = np.asarray(fit.trace)[: int(fit.num_steps)]
        # Rounding of a sum of 60 log-likelihoods of at most a few hundred nats.
        assert np.diff(trace).min() > -1e-10, temperature
        assert fit.status in (Status.CONVERGED, Status.MAX_STEPS)
        assert trace[-1] > trace[0] + 1
        assert np.isfinite(probabilities(fit.parameters)).all()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("pattern", ["none", "mcar", slow("mar"), "mnar"])
def test_kkt_conditions_hold_at_convergence(temperature, pattern):
    values, observed = simulated(temperature, pattern, sparse=0.2)
    model = two_parameter(PRIORS, positive=True)
    method = MM(temperature=jnp.asarray(temperature))
    fit = fitted(responses(values, observed), model, method)
    assert fit.status == Status.CONVERGED
    best = fit.state.best
    slope = np.asarray(best.discrimination[:, 0])
    eta = np.outer(best.theta[:, 0], slope) + np.asarray(best.intercept)
    mask = np.ones(values.shape) if observed is None else observed
    residual = mask * (values - 1 / (1 + np.exp(-eta / temperature))) / temperature
    theta = np.asarray(best.theta[:, 0])
    by_slope = residual.T @ theta - (slope - 1) / 4
    by_intercept = residual.sum(0) - np.asarray(best.intercept) / 9
    by_theta = residual @ slope - theta
    # Relative to the size of the terms that must cancel in each gradient.
    size_slope = np.abs(residual).T @ np.abs(theta) + np.abs(slope - 1) / 4
    size_intercept = np.abs(residual).sum(0) + np.abs(best.intercept) / 9
    size_theta = np.abs(residual) @ slope + np.abs(theta)
    assert np.max(np.abs(by_intercept) / size_intercept) <= 1e-4
    assert np.max(np.abs(by_theta) / size_theta) <= 1e-4
    assert slope.min() >= 0
    assert np.max(by_slope / size_slope) <= 1e-4  # minimisation: gradient >= 0
    assert np.max(slope * np.abs(by_slope) / size_slope) <= 1e-4


def test_objective_is_the_shared_joint_objective():
    values, observed = simulated(pattern="mcar")
    data = responses(
        values,
        observed,
        subject_weight=jnp.linspace(0.5, 2, SHAPE[0]),
        item_weight=jnp.linspace(0.2, 1.5, SHAPE[1]),
    )
    fit = fitted(data)
    model, best = fit.model, fit.state.best
    coordinates = jnp.stack([best.discrimination[:, 0], best.intercept], axis=1)
    seen = jax.jit(joint_derivatives)(model, data, coordinates, best.theta[:, 0])
    np.testing.assert_allclose(seen.log_lik, fit.subject_log_lik, rtol=1e-10)
    # The weights act as copies in both blocks: both gradients vanish with the priors.
    slope, theta = np.asarray(coordinates[:, 0]), np.asarray(best.theta[:, 0])
    by_slope = seen.coordinates[:, 0] - data.item_weight * (slope - 1) / 4
    by_theta = seen.theta - data.subject_weight * theta
    # Residual 1e-8 times curvatures of at most N / 4 and J / 4.
    np.testing.assert_allclose(by_slope, 0, atol=1e-5)
    np.testing.assert_allclose(by_theta, 0, atol=1e-5)


def test_weight_two_is_a_copy_and_weight_zero_an_absence():
    values, _ = simulated()
    # As many rows, with weights: one program.
    doubled = np.concatenate([values[10:], values[10:20]])
    weight = np.ones(SHAPE[0])
    weight[:10], weight[10:20] = 0, 2
    weighted, copied = (
        fitted(responses(rows, subject_weight=jnp.asarray(own)))
        for rows, own in ((values, weight), (doubled, np.ones(SHAPE[0])))
    )
    for a, b in zip(weighted.parameters.items, copied.parameters.items, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert weighted.log_lik == pytest.approx(float(copied.log_lik), abs=1e-4)


def test_masked_items_and_subjects_are_as_if_dropped():
    values, _ = simulated(shape=(80, 40))
    observed = np.ones(values.shape, bool)
    observed[-10:] = observed[:, -5:] = False
    method = MM(penalty=0.0, tolerance=1e-8)
    masked = fitted(
        responses(np.where(observed, values, 0).astype(np.int8), observed), None, method
    )
    dropped = fitted(responses(values[:-10, :-5]), None, method)
    assert masked.status == dropped.status == Status.CONVERGED
    np.testing.assert_allclose(
        probabilities(masked.parameters)[:-10, :-5],
        probabilities(dropped.parameters),
        atol=1e-5,
    )
    assert masked.log_lik == pytest.approx(float(dropped.log_lik), abs=1e-6)


@pytest.mark.slow
def test_trials_double_the_likelihood():
    values, observed = simulated(pattern="mcar")
    trials = jnp.asarray(2 * observed.astype(np.int8))
    data = responses(2 * values, observed, trials=trials)
    twice = fitted(data)
    once = fitted(responses(values, observed), None, MM(penalty=0.5, tolerance=1e-8))
    np.testing.assert_allclose(twice.parameters.theta, once.parameters.theta, atol=1e-5)
    assert twice.log_lik == pytest.approx(2 * float(once.log_lik), rel=1e-9)


def test_permuting_subjects_and_items_permutes_the_estimates():
    values, observed = simulated(pattern="mcar")
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(SHAPE[0]), rng.permutation(SHAPE[1])
    plain = fitted(responses(values, observed)).parameters
    mixed = fitted(
        responses(values[rows][:, columns], observed[rows][:, columns])
    ).parameters
    np.testing.assert_allclose(mixed.theta, plain.theta[rows], atol=1e-6)
    for a, b in zip(mixed.items, plain.items, strict=True):
        np.testing.assert_allclose(a, b[columns], atol=1e-6)


def test_blocks_of_subjects_do_not_matter(monkeypatch):
    values, observed = simulated(pattern="mcar", shape=(600, 20))
    data = responses(values, observed)
    start = start_values(two_parameter(PRIORS), data)
    problem = Problem.create(two_parameter(PRIORS), data)
    method = MM(tolerance=1e-8)
    # The same steps. At the optimum rounding decides how many there are.
    compiled = lambda: eqx.filter_jit(lambda p, m, s: run(p, m, s, max_steps=10))
    whole = compiled()(problem, method, start)
    # Three blocks of at least 256 rows, the last one overlapping the one before.
    monkeypatch.setattr("irtjax.numerics.kernels.BLOCK_BYTES", 1000)
    blocks = compiled()(problem, method, start)
    np.testing.assert_allclose(
        blocks.parameters.theta, whole.parameters.theta, rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(blocks.objective, whole.objective, rtol=1e-12)


def test_result_is_standard_oriented_and_of_the_same_likelihood():
    values, _ = simulated()
    data = responses(values)
    model = two_parameter(PRIORS)
    start = start_values(model, data)
    turned = start._replace(
        theta=-start.theta,
        items=start.items._replace(discrimination=-start.items.discrimination),
    )
    method = MM(tolerance=1e-8, penalty=0.0)
    fit = _run(Problem.create(model, data), method, turned, 500)
    theta, items = fit.parameters.theta, fit.parameters.items
    assert float(jnp.mean(theta)) == pytest.approx(0, abs=1e-12)
    assert float(jnp.std(theta)) == pytest.approx(1, abs=1e-12)
    assert float(jnp.sum(items.discrimination)) > 0
    chance = probabilities(fit.parameters)
    log_lik = np.sum(np.log(np.where(values == 1, chance, 1 - chance)))
    assert log_lik == pytest.approx(float(fit.log_lik), rel=1e-12)


def test_temperature_is_only_a_unit_without_priors():
    values, _ = simulated(0.8, shape=(150, 60))
    data = responses(values)
    fits = []
    for temperature in (0.8, 1.0):
        method = MM(1e-8, penalty=0.0, temperature=jnp.asarray(temperature))
        fits.append(fitted(data, None, method))
    assert [int(fit.status) for fit in fits] == [0, 0]
    for a, b in zip(*(fit.parameters.items for fit in fits), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_anchored_coordinates_do_not_move():
    values, _ = simulated(shape=(120, 40))
    data = responses(values)
    model = two_parameter(PRIORS)
    start = start_values(model, data)
    anchored = start.items._replace(
        discrimination=start.items.discrimination.at[:6].set(0.7),
        intercept=start.items.intercept.at[:6].set(jnp.linspace(-1, 1, 6)),
    )
    free = Problem.create(model, data).free.at[:6].set(False).at[6, 0].set(False)
    problem = Problem(model, data, free, anchored=True)
    fit = _run(problem, MM(), start._replace(items=anchored), 500)
    assert fit.status == Status.CONVERGED
    items = fit.parameters.items
    np.testing.assert_array_equal(items.discrimination[:7], anchored.discrimination[:7])
    np.testing.assert_array_equal(items.intercept[:6], anchored.intercept[:6])
    assert np.all(np.asarray(items.intercept[6:] != anchored.intercept[6:]))
    mean = float(jnp.mean(fit.parameters.theta))
    assert float(fit.parameters.population.mean) == pytest.approx(mean, abs=1e-12)
    assert abs(mean) > 1e-3  # not standardised: the anchors set the scale


def test_rasch_keeps_unit_slopes_and_the_spread_of_ability():
    values, _ = simulated()
    for temperature in (1.0, 2.0):
        method = MM(tolerance=1e-8, temperature=jnp.asarray(temperature), penalty=0.0)
        fit = fitted(responses(values), rasch(None), method)
        assert fit.status == Status.CONVERGED
        np.testing.assert_array_equal(fit.parameters.items.discrimination, 1)
        theta = fit.parameters.theta
        assert float(jnp.mean(theta)) == pytest.approx(0, abs=1e-12)
        sd = float(fit.parameters.population.sd)
        assert sd == pytest.approx(float(jnp.std(theta)), rel=1e-12)
        # Score equations of the Rasch model: expected totals equal observed ones.
        chance = probabilities(fit.parameters)
        np.testing.assert_allclose(chance.sum(0), values.sum(0), atol=1e-4)
        np.testing.assert_allclose(chance.sum(1), values.sum(1), atol=1e-4)


@pytest.mark.slow
def test_single_precision_reaches_the_same_estimates():
    values, observed = simulated(pattern="mcar", shape=(150, 100))
    data = responses(values, observed)
    model = two_parameter(PRIORS)
    double = fitted(data).parameters
    start = start_values(model, data, dtype=jnp.float32)
    fit = _run(Problem.create(model, data), MM(), start, 500)
    assert fit.parameters.theta.dtype == jnp.float32
    assert fit.status in (Status.CONVERGED, Status.STALLED)
    assert float(fit.residual) < 1e-3
    # A relative move of 3e-5 per step, slowed by a curvature a few times the bound's.
    np.testing.assert_allclose(fit.parameters.theta, double.theta, atol=5e-3)


def test_single_precision_converges_with_many_subjects_of_few_responses():
    """Two sums of their priors differ by more than a step gains: it ended at 5e-4."""
    rng = np.random.default_rng(0)
    seen = rng.random((3000, 60)) < 0.1
    chance = 1 / (1 + np.exp(-rng.normal(size=(3000, 1)) - rng.normal(size=60)))
    values = jnp.asarray((rng.random(seen.shape) < chance) & seen, jnp.int8)
    data = Responses(values, jnp.asarray(seen))
    model = two_parameter(PRIORS)
    start = start_values(model, data, dtype=jnp.float32)
    fit = _run(Problem.create(model, data), MM(), start, 200)
    assert fit.status == Status.CONVERGED
    assert float(fit.residual) <= 3e-5


def test_resumed_run_equals_an_unbroken_one():
    values, _ = simulated()
    data = responses(values)
    model = two_parameter(PRIORS)
    problem, start = Problem.create(model, data), start_values(model, data)
    method = MM(tolerance=1e-9)
    # An array, so that the two are one program.
    whole = _run(problem, method, start, 50, stop_after=jnp.asarray(50))
    part = _run(problem, method, start, 50, stop_after=jnp.asarray(7))
    assert part.status == Status.RUNNING
    rest = _run(problem, method, start, 50, resume=loop_of(part))
    assert int(rest.num_steps) == int(whole.num_steps) > 7
    for a, b in zip(jax.tree.leaves(rest), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)


def test_relative_change_stops_early():
    values, _ = simulated()
    data = responses(values)
    early = fitted(data, None, MM(stop="relative_change", memory=0))
    late = fitted(data, None, MM(memory=0))
    assert early.status == late.status == Status.CONVERGED
    assert 2 < int(early.num_steps) < int(late.num_steps)
    assert float(early.residual) > 1e-3 > float(late.residual)


def test_a_watcher_sees_the_share_of_a_fit_that_stops_by_the_relative_change():
    data = responses(simulated()[0])
    model = two_parameter(PRIORS)
    method = MM(stop="relative_change", tolerance=1e-9, memory=0)
    given = Problem.create(model, data), method, start_values(model, data), None, 500
    shares = []
    with watching(lambda share, name: shares.append(share)):
        found = drive(*given, Clock())
    assert found.status == Status.CONVERGED and shares[-1] is None
    assert shares[:-1] == sorted(shares[:-1]) and 0.2 < max(shares[:-1]) < 1
    assert all(x is None or x < 1 for x in shares)
    for a, b in zip(
        *map(jax.tree.leaves, (found, drive(*given, Clock()))), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_diverging_names_what_has_no_finite_estimate():
    values, _ = simulated()
    values[3], values[:, 4] = 1, 0
    data = responses(values)
    model = two_parameter(PRIORS)
    fit = fitted(data, model, MM(penalty=0.0), max_steps=100)
    parameters = fit.parameters
    # An item that one ability separates, and its mirror image.
    split = np.asarray(parameters.theta) > np.median(parameters.theta)
    values[:, 5], values[:, 6] = split, ~split
    found = diverging(model, responses(values), parameters.items, parameters.theta)
    assert set(np.flatnonzero(found.items)) == {4, 5, 6}
    signs = np.asarray(parameters.items.discrimination)
    pulls = (2 * values - 1) * np.sign(signs)
    expected = (pulls >= 0).all(1) | (pulls <= 0).all(1)
    np.testing.assert_array_equal(found.subjects, expected)
    positive = two_parameter(PRIORS, positive=True)
    found = diverging(positive, responses(values), parameters.items, parameters.theta)
    assert set(np.flatnonzero(found.items)) == {4, 5}


def test_default_penalty_keeps_constant_rows_and_columns_finite():
    values, _ = simulated()
    values[3], values[4], values[:, 4], values[:, 7] = 1, 0, 0, 1
    values[3, 4], values[4, 7] = 0, 1
    fit = fitted(responses(values), two_parameter())
    assert fit.status == Status.CONVERGED
    assert np.abs(fit.parameters.theta).max() < 6
    assert np.abs(fit.parameters.items.intercept).max() < 10


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (three_parameter(), MM(), "MM fits binary models without asymptotes"),
        (two_parameter(positive=True), MM(), "Normal prior for discrimination"),
        (two_parameter(None), MM(), "penalty=0"),
        (two_parameter(), MM(penalty=-1.0), "negative"),
        (two_parameter(), MM(stop="soon"), "relative_change"),
    ],
)
def test_bad_requests_are_refused_in_one_line(model, method, message):
    values, _ = simulated()
    with pytest.raises(ValueError, match=message) as caught:
        fitted(responses(values), model, method)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_trace_shows_the_rate_of_convergence():
    """Gains shrink by the square of the spectral radius of one MM iteration."""
    data = responses(*simulated(seed=4))
    method, model = MM(memory=0, tolerance=1e-10), two_parameter(PRIORS)
    problem, start = Problem.create(model, data), start_values(model, data)
    fit = _run(problem, method, start, 2000)
    # Near the optimum and not at it: there no change of scale raises the priors, and
    # the map that leaves the scale alone has another derivative.
    near = _run(problem, method, start, 40)
    flat, unravel = ravel_pytree(near.state.best)

    def image(at):
        # With one point seen, the step accepts whatever it is given.
        state = method.init(problem, start, None)._replace(point=unravel(at))
        return ravel_pytree(method.step(problem, state, None).point)[0]

    radius = np.abs(np.linalg.eigvals(jax.jit(jax.jacfwd(image))(flat))).max()
    trace = np.asarray(fit.trace[: int(fit.num_steps)])
    gain = np.diff(trace)
    # Far enough from the start for one direction to dominate, and above rounding.
    at = np.flatnonzero(gain > 1e-9)[-1]
    assert np.sqrt(gain[at] / gain[at - 1]) == pytest.approx(radius, rel=0.01)
