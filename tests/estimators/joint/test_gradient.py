"""The gradient method against dense autodiff, MM, and its own promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import loop_of, run
from irtjax.estimators.joint.gradient import (
    Context,
    Gradient,
    JointPoint,
    Reference,
    folded_terms,
    loss_and_gradient,
)
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.joint.objective import joint_derivatives, joint_information
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import (
    four_parameter,
    probit_two_parameter,
    rasch,
    three_parameter,
    two_parameter,
)
from irtjax.models.families.graded import Graded, GradedItems
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Model
from irtjax.models.priors import Normal

# Compilation takes minutes: one model stands for all by default.


MODELS = {
    "2pl": two_parameter(),
    "positive": two_parameter(positive=True),
    "3pl": three_parameter(),
    "4pl": four_parameter(),
    "probit": probit_two_parameter(),
    "rasch": rasch(),
    "graded": Model("graded", Graded(3), {"discrimination": Normal(1.0, 2.0)}),
}


def simulated(name="2pl", num_subjects=90, num_items=40, missing=True):
    model = MODELS[name]
    keys = jax.random.split(jax.random.key(0), 5)
    theta = jax.random.normal(keys[0], (num_subjects,))
    slope = jax.random.uniform(keys[1], (num_items,), minval=0.5, maxval=1.5)
    intercept = 0.7 * jax.random.normal(keys[2], (num_items,))
    if name == "graded":
        items = GradedItems(slope, jnp.stack([intercept + 0.7, intercept - 0.7], 1))
    else:
        slope = jnp.ones_like(slope) if name == "rasch" else slope
        items = LogisticItems(slope, intercept, 0 * slope, 0 * slope + 1)
    values = model.family.sample(keys[3], items, theta)
    observed = None
    if missing:
        observed = jax.random.bernoulli(keys[4], 0.8, values.shape)
        values = jnp.where(observed, values, 0)
    return model, Responses(values, observed)


@eqx.filter_jit
def _run(problem, method, start, max_steps, **rest):
    return run(problem, method, start, max_steps=max_steps, **rest)


def fitted(model, data, method=None, max_steps=500, **rest):
    # The default tolerance as an array, so that other ones recompile nothing.
    method = Gradient(tolerance=jnp.asarray(1e-3)) if method is None else method
    start = start_values(model, data)
    return _run(Problem.create(model, data), method, start, max_steps, **rest)


def dense_log_lik(model, data, coordinates, theta):
    cells = model.family.log_prob(
        data.values.astype(theta.dtype),
        model.constrain(coordinates),
        theta,
        data.exposure,
    )
    weight = 1.0 if data.subject_weight is None else data.subject_weight[:, None]
    item_weight = 1.0 if data.item_weight is None else data.item_weight
    return jnp.sum(cells * weight * item_weight)


@pytest.mark.parametrize(
    "name",
    [
        name if name == "2pl" else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)
def test_every_family_reaches_a_stationary_point(name):
    model, data = simulated(name)
    fit = fitted(model, data)
    assert fit.status == Status.CONVERGED
    assert float(fit.residual) <= 1e-3
    state = fit.state
    best = jax.tree.map(jnp.divide, state.best, state.reference.scale)

    def objective(coordinates, theta, shift, log_scale):
        scale = jnp.exp(log_scale) if model.family.has_slope else 1.0
        folded = model.fold(coordinates, shift, jnp.asarray(scale))
        ability = (theta - shift) / scale
        items = model.constrain(folded)
        prior = jnp.sum(jax.vmap(model.log_prior)(items))
        prior += jnp.sum(-0.5 * ability**2 - 0.5 * np.log(2 * np.pi))
        return dense_log_lik(model, data, coordinates, theta) + prior

    with_slopes = jax.jit(jax.value_and_grad(objective, argnums=(0, 1, 2, 3)))
    value, gradients = with_slopes(*best)
    np.testing.assert_allclose(value, fit.objective, rtol=1e-10)
    information = jax.jit(joint_information)(model, data, best.coordinates, best.theta)
    # In standard errors; the curvature in use was renewed up to 10 steps ago, and
    # priors only add to it: a factor of 2 covers both.
    by_items = gradients[0] / jnp.sqrt(information.coordinates)
    by_theta = gradients[1] / jnp.sqrt(information.theta)
    assert float(jnp.max(jnp.abs(by_theta))) <= 2e-3
    if name in ("2pl", "probit", "rasch", "graded"):
        # Elsewhere the prior, not the data, may hold a coordinate.
        assert float(jnp.max(jnp.abs(by_items))) <= 2e-3
    assert np.isfinite(
        np.concatenate([np.ravel(x) for x in fit.parameters.items])
    ).all()
    theta = fit.parameters.theta
    assert float(jnp.mean(theta)) == pytest.approx(0, abs=1e-10)
    if model.family.has_slope:
        assert float(jnp.std(theta)) == pytest.approx(1, abs=1e-10)
        assert float(jnp.sum(fit.parameters.items.discrimination)) > 0
    rebuilt = model.family.log_prob(
        data.values.astype(theta.dtype), fit.parameters.items, theta, data.exposure
    )
    np.testing.assert_allclose(jnp.sum(rebuilt), fit.log_lik, rtol=1e-6)


@pytest.mark.parametrize("penalty", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_same_optimum_as_mm(penalty):
    model, data = simulated()
    method = Gradient(penalty=penalty, tolerance=jnp.asarray(1e-6))
    by_gradient = fitted(model, data, method)
    by_mm = fitted(model, data, MM(penalty=penalty, tolerance=1e-9), 2000)
    assert by_gradient.status == by_mm.status == Status.CONVERGED
    np.testing.assert_allclose(by_gradient.objective, by_mm.objective, rtol=1e-10)
    # Gradients below 1e-6 standard errors (standard errors are below 1 here).
    close = dict(atol=1e-4, rtol=0)
    np.testing.assert_allclose(
        by_gradient.parameters.theta, by_mm.parameters.theta, **close
    )
    for a, b in zip(by_gradient.parameters.items, by_mm.parameters.items, strict=True):
        np.testing.assert_allclose(a, b, **close)


@pytest.mark.parametrize(
    "name", ["3pl", pytest.param("graded", marks=pytest.mark.slow)]
)
def test_blocked_derivatives_equal_dense_autodiff(name, monkeypatch):
    # Blocks of 256 rows, the third overlapping the second.
    monkeypatch.setattr("irtjax.numerics.kernels.BLOCK_BYTES", 1000)
    model, data = simulated(name, num_subjects=600, num_items=7)
    rng = np.random.default_rng(0)
    data = Responses(
        data.values,
        data.observed,
        subject_weight=jnp.asarray(rng.uniform(0, 2, 600)),
        item_weight=jnp.asarray(rng.uniform(0, 2, 7)),
    )
    start = start_values(model, data)
    coordinates, theta = model.unconstrain(start.items), start.theta
    seen = jax.jit(joint_derivatives)(model, data, coordinates, theta)
    total = jnp.sum(seen.log_lik * data.subject_weight)
    dense = lambda c, t: dense_log_lik(model, data, c, t)
    with_slopes = jax.jit(jax.value_and_grad(dense, argnums=(0, 1)))
    value, expected = with_slopes(coordinates, theta)
    np.testing.assert_allclose(total, value, rtol=1e-12)
    np.testing.assert_allclose(seen.coordinates, expected[0], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(seen.theta, expected[1], rtol=1e-9, atol=1e-10)


def test_information_of_the_2pl_has_its_closed_form(monkeypatch):
    monkeypatch.setattr("irtjax.numerics.kernels.BLOCK_BYTES", 1000)
    model, data = simulated(num_subjects=600, num_items=7)
    start = start_values(model, data)
    known = joint_information(
        model, data, model.unconstrain(start.items), jnp.asarray(start.theta)
    )
    theta, slope = np.asarray(start.theta), np.asarray(start.items.discrimination)
    chance = 1 / (1 + np.exp(-np.outer(theta, slope) - start.items.intercept))
    variance = np.asarray(data.observed) * chance * (1 - chance)
    np.testing.assert_allclose(known.theta, variance @ slope**2, rtol=1e-9)
    expected = np.stack([theta**2 @ variance, variance.sum(0)], axis=1)
    np.testing.assert_allclose(known.coordinates, expected, rtol=1e-9)


def test_adam_reaches_the_same_optimum():
    model, data = simulated()
    quasi = fitted(model, data)
    schedule = optax.cosine_decay_schedule(0.5, 400)
    adam = fitted(model, data, Gradient(optimiser=optax.adam(schedule)))
    assert adam.status == Status.CONVERGED
    # Both within 1e-3 standard errors per gradient, times a few hundred parameters.
    assert float(adam.objective) == pytest.approx(float(quasi.objective), abs=1e-3)


@pytest.mark.slow
def test_mini_batches_come_near_the_optimum_and_repeat_when_resumed():
    model, data = simulated()
    best = fitted(model, data)
    schedule = optax.cosine_decay_schedule(0.3, 600)
    method = Gradient(optimiser=optax.adam(schedule), batch_size=30)
    key = jax.random.key(1)
    start, problem = start_values(model, data), Problem.create(model, data)
    whole = _run(problem, method, start, 600, key=key)
    # Three steps an epoch: the objective is renewed at every third, not between.
    trace = np.asarray(whole.trace)
    renewed = 1 + np.flatnonzero(np.diff(trace))
    assert renewed.size > 50 and np.all(renewed % 3 == 2)
    distance = float(best.objective - whole.objective)
    gained = float(best.objective) - trace[0]
    assert 0 <= distance + 1e-6 < 0.02 * gained
    part = _run(problem, method, start, 600, key=key, stop_after=100)
    rest = _run(problem, method, start, 600, key=key, resume=loop_of(part))
    np.testing.assert_array_equal(rest.parameters.theta, whole.parameters.theta)


@pytest.mark.slow
def test_resumed_lbfgs_equals_an_unbroken_one():
    model, data = simulated("3pl")
    start, problem = start_values(model, data), Problem.create(model, data)
    whole = _run(problem, Gradient(), start, 100)
    part = _run(problem, Gradient(), start, 100, stop_after=9)
    rest = _run(problem, Gradient(), start, 100, resume=loop_of(part))
    assert int(rest.num_steps) == int(whole.num_steps) > 9
    # Two compiled programs: the last bit of a sum may differ.
    np.testing.assert_allclose(rest.trace, whole.trace, rtol=1e-14)


@pytest.mark.slow
def test_anchored_coordinates_do_not_move():
    model, data = simulated("3pl")
    start = start_values(model, data)
    free = Problem.create(model, data).free.at[:6].set(False)
    problem = Problem(model, data, free, anchored=True)
    for method in (Gradient(), Gradient(optimiser=optax.adamw(0.1))):
        fit = _run(problem, method, start, 100)
        for given, kept in zip(start.items, fit.parameters.items, strict=True):
            np.testing.assert_allclose(kept[:6], given[:6], rtol=1e-12)
        assert np.all(fit.parameters.items.intercept[6:] != start.items.intercept[6:])


@pytest.mark.slow
def test_single_precision_ends_near_the_same_estimates():
    model, data = simulated(num_subjects=150)
    double = fitted(model, data)
    start = start_values(model, data, dtype=jnp.float32)
    fit = _run(Problem.create(model, data), Gradient(), start, 200)
    assert fit.parameters.theta.dtype == jnp.float32
    assert fit.status in (Status.CONVERGED, Status.STALLED)
    assert float(fit.residual) < 0.05
    # 0.05 standard errors, which are about 0.4 for an ability on 32 items.
    np.testing.assert_allclose(fit.parameters.theta, double.parameters.theta, atol=0.02)


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (two_parameter(None), Gradient(), "penalty=0"),
        (two_parameter(), Gradient(batch_size=8), "key="),
        (two_parameter(), Gradient(penalty=-1.0), "negative"),
    ],
)
def test_bad_requests_are_refused(model, method, message):
    _, data = simulated()
    with pytest.raises(ValueError, match=message):
        fitted(model, data, method)


def test_mini_batches_refuse_the_line_search():
    model, data = simulated()
    with pytest.raises(ValueError, match="first-order"):
        fitted(model, data, Gradient(batch_size=8), key=jax.random.key(0))


def test_single_precision_sees_the_small_gain_of_many_priors():
    """Two sums of 50,000 priors differ by rounding that is larger than the gain."""
    model, size = MODELS["2pl"], 50_000
    data = Responses(jnp.zeros((size, 2), jnp.int8), jnp.zeros((size, 2), bool))
    theta, move = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    zero, moved = jnp.zeros((), jnp.float32), theta + np.float32(1e-4) * move
    point = JointPoint(jnp.zeros((2, 2), jnp.float32), jnp.asarray(theta), zero, zero)
    problem = Problem.create(model, data)
    reference = Reference(
        jax.tree.map(jnp.ones_like, point),
        0 * point.theta,
        folded_terms(problem, point),
    )
    context = Context(problem, 1.0, reference)
    point = point._replace(theta=jnp.asarray(moved))
    found, _ = jax.jit(loss_and_gradient)(point, context)
    before, after = (np.square(x.astype(float)).sum() / 2 for x in (theta, moved))
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(after - before, abs=2e-4)
