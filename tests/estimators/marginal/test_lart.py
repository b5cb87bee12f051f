"""EM of responses and response lengths: an exact maximum of the joint likelihood."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.marginal.saem import SAEM, burn_in
from irtjax.estimators.start import start_values
from irtjax.inference import length_covariance
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.item_steps import improve_items
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import latency_response, probit_two_parameter
from irtjax.models.lengths import LengthParameters
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_length_items,
    simulate_log_lengths,
)
from irtjax.numerics.kernels import equal_nodes
from tests.tables import NODES, fit_with, marginal_method, run_jit

SUBJECTS, ITEMS, RHO = 200, 8, -0.8


@functools.cache
def drawn(missing: bool = True):
    """Responses and lengths of known subjects, a fifth of each missing by itself."""
    keys = jax.random.split(jax.random.key(7), 6)
    model = latency_response()
    items = simulate_items(model, ITEMS, keys[0], discrimination=(0.6, 1.4))
    theta = simulate_abilities(SUBJECTS, keys[1])
    lengths = LengthParameters(simulate_length_items(ITEMS, keys[2]), jnp.asarray(RHO))
    log_length, _ = simulate_log_lengths(lengths, theta, keys[3])
    data = simulate(model, items, theta, keys[4], missing=0.2 if missing else 0.0)
    known = jax.random.bernoulli(keys[5], 0.8, log_length.shape)
    data = dataclasses.replace(
        data,
        log_length=jnp.where(known, log_length, 0.0) if missing else log_length,
        length_observed=known if missing else None,
    )
    return data, theta, items, lengths


def brute_force_log_lik(vector, data: Responses):
    """The joint likelihood as a double integral over ability and speed."""
    a, d, omega, phi, log_variance = jnp.split(vector[:-1], 5)
    rho = jnp.tanh(vector[-1])
    variance = jnp.exp(log_variance)
    grid = jnp.asarray(equal_nodes(-7.0, 7.0, 57))
    theta, tau = grid[:, None], grid[None, :]
    prior = -0.5 * (theta**2 - 2 * rho * theta * tau + tau**2) / (1 - rho**2)
    prior = prior - 0.5 * jnp.log(1 - rho**2) - jnp.log(2 * jnp.pi)
    prior = prior + 2 * jnp.log(grid[1] - grid[0])
    seen = data.observed if data.observed is not None else data.values >= 0
    known = data.length_observed
    known = data.values >= 0 if known is None else known
    sign = 2.0 * data.values - 1
    predictor = a * grid[:, None] + d
    right = jnp.where(
        seen[:, None, :], jax.scipy.stats.norm.logcdf(sign[:, None] * predictor), 0
    ).sum(-1)
    gap = data.log_length[:, None, :] - (omega - phi * grid[:, None])
    line = -0.5 * gap**2 / variance - 0.5 * jnp.log(2 * jnp.pi * variance)
    line = jnp.where(known[:, None, :], line, 0).sum(-1)
    total = right[:, :, None] + line[:, None, :] + prior
    return jax.scipy.special.logsumexp(total, axis=(1, 2)).sum()


@jax.jit
def _with_derivatives(vector, data: Responses):
    """Value, gradient and Hessian of the double integral, as one program."""

    def both(vector):
        value, gradient = jax.value_and_grad(brute_force_log_lik)(vector, data)
        return gradient, (value, gradient)

    hessian, (value, gradient) = jax.jacfwd(both, has_aux=True)(vector)
    return value, gradient, hessian


def vector_of(fit):
    items, lengths = fit.parameters.items, fit.parameters.lengths
    omega, phi, variance = lengths.items
    parts = [items.discrimination, items.intercept, omega, phi, jnp.log(variance)]
    return jnp.concatenate([*parts, jnp.arctanh(lengths.correlation)[None]])


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_the_estimate_is_a_stationary_point_of_the_double_integral(missing):
    data = drawn(missing)[0]
    fit = fit_with(marginal_method(tolerance=1e-5), latency_response(None), data)
    assert int(fit.status) == Status.CONVERGED
    vector = vector_of(fit)
    value, gradient, hessian = _with_derivatives(vector, data)
    np.testing.assert_allclose(fit.log_lik, value, rtol=1e-9)
    # Stopped within 1e-5 standard errors of complete data; an observed one holds at
    # least a tenth of that information, and gradient / root(information) is an error.
    errors = np.abs(gradient) / np.sqrt(-np.diag(hessian))
    assert errors.max() < 1e-3
    assert (np.linalg.eigvalsh(hessian) < 0).all()
    # Standard errors from Louis' information are those of the Hessian.
    inverse = np.linalg.inv(-np.asarray(hessian))
    model = latency_response(None)
    found = length_covariance(
        Problem.create(model, data),
        model.unconstrain(fit.parameters.items),
        fit.parameters.lengths,
        jnp.asarray(equal_nodes(-9.0, 9.0, 91)),
        num_terms=24,
    )
    assert bool(found.definite)
    ours = np.concatenate(
        [
            *np.moveaxis(np.diagonal(found.items, axis1=1, axis2=2), 1, 0),
            *np.moveaxis(np.diagonal(found.lengths, axis1=1, axis2=2), 1, 0),
            [found.atanh_correlation],
        ]
    )
    np.testing.assert_allclose(ours, np.diag(inverse), rtol=1e-5)


@pytest.mark.slow
def test_the_gradient_of_its_objective_is_that_of_finite_differences():
    # At the start values, far from the optimum, where every derivative is large.
    data, model = drawn()[0], latency_response()
    problem, method = Problem.create(model, data), marginal_method(memory=0)
    start = start_values(model, data)
    state = method.init(problem, start, None)
    flat, unravel = ravel_pytree((state.point.coordinates, state.point.lengths))

    @jax.jit
    def objective(vector):
        coordinates, lengths = unravel(vector)
        point = state.point._replace(coordinates=coordinates, lengths=lengths)
        new = method.step(problem, state._replace(point=point), None)
        return method.progress(problem, new).objective

    # The frame of the priors moves with the items, and is given, not differentiated:
    # at its optimum it adds nothing to a derivative.
    step = 1e-4
    # Six random directions: a wrong coordinate shows in every one.
    directions = jax.random.normal(jax.random.key(0), (6, flat.size))
    moves = step * directions
    numeric = jax.lax.map(
        lambda move: (objective(flat + move) - objective(flat - move)) / (2 * step),
        moves,
    )
    gradient = jax.jit(jax.grad(objective))(flat)
    # Central differences err by the square of the step and by rounding of f over step.
    np.testing.assert_allclose(numeric, directions @ gradient, rtol=1e-4, atol=1e-3)
    assert np.abs(gradient).max() > 10
    # And the M-step climbs it: Fisher's identity from the expected counts.
    part, summary = with_lengths(problem, model.lengths.constrain(state.point.lengths))
    assert summary is not None
    items, carry = model.constrain(state.point.coordinates), state.carry
    counts = expected_counts(
        model, items, carry.nodes, carry.log_weights, part.data, moments=True
    )
    frame = model.prior_frame(state.point.coordinates, carry.frame, item_weight=None)
    update = improve_items(
        model, state.point.coordinates, problem.free, carry.nodes, counts, frame, 1
    )
    own, _ = unravel(gradient)
    np.testing.assert_allclose(update.gradient[:, :2], own[:, :2], rtol=1e-6, atol=1e-6)


@functools.cache
def fitted_by_em():
    return fit_with(marginal_method(), latency_response(), drawn()[0])


@pytest.mark.slow
def test_it_never_falls_and_recovers_the_truth():
    _, theta, items, lengths = drawn()
    fit = fitted_by_em()
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert (np.diff(trace) > -1e-8 * abs(trace[-1])).all()
    found = fit.parameters.lengths
    # The standard error of a correlation near -0.8 at 200 subjects whose abilities
    # and speeds are known would be (1 - rho^2) / sqrt(200) = 0.025; here they are not.
    assert abs(float(found.correlation) - RHO) < 0.15
    # omega: sd of log length about 0.75 over 160 lengths, 0.06; five of them.
    gap = found.items.speed_intercept - lengths.items.speed_intercept
    assert np.abs(gap).max() < 0.3
    # log lambda: sqrt(2 / 160) = 0.11 at least.
    ratio = found.items.residual_variance / lengths.items.residual_variance
    assert np.abs(np.log(ratio)).max() < 0.55
    slope = np.corrcoef(
        found.items.speed_discrimination, lengths.items.speed_discrimination
    )
    assert slope[0, 1] > 0.8


@pytest.mark.parametrize(
    ("sampler", "gain"),
    [
        pytest.param("grid", None, marks=pytest.mark.slow),
        pytest.param("augmented", None, marks=pytest.mark.slow),
        pytest.param("grid", burn_in(20), marks=pytest.mark.slow),
    ],
)
def test_saem_finds_the_same(sampler, gain):
    data = drawn()[0]
    exact = fitted_by_em()
    steps = 600 if sampler == "augmented" else 200
    method = SAEM(jnp.asarray(NODES), num_steps=steps, sampler=sampler, gain=gain)
    problem = Problem.create(latency_response(), data)
    start = start_values(latency_response(), data)
    key = jax.random.key(3)
    fit = run_jit(problem, method, start, key=key, max_steps=method.num_steps)
    rho, truth = (f.parameters.lengths.correlation for f in (fit, exact))
    assert Status(int(fit.status)) is Status.CONVERGED
    assert abs(float(rho - truth)) < 0.02
    assert float(fit.log_lik) == pytest.approx(float(exact.log_lik), rel=5e-4)
    slope, wanted = (f.parameters.lengths.items[1] for f in (fit, exact))
    np.testing.assert_allclose(slope, wanted, atol=0.05)


@pytest.mark.slow
def test_without_lengths_it_is_the_probit_model():
    data = drawn()[0]
    nothing = dataclasses.replace(
        data,
        log_length=jnp.zeros_like(data.log_length),
        length_observed=jnp.zeros_like(data.length_observed),
    )
    fit = fit_with(marginal_method(), latency_response(), nothing)
    plain = fit_with(marginal_method(), probit_two_parameter(), data)
    assert int(fit.status) == Status.CONVERGED
    np.testing.assert_allclose(fit.log_lik, plain.log_lik, rtol=1e-8)
    for ours, theirs in zip(fit.parameters.items, plain.parameters.items, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert bool(jnp.isfinite(fit.parameters.lengths.items.residual_variance).all())


@pytest.mark.slow
def test_weight_two_is_a_copy_and_direction_is_fixed():
    data = drawn()[0]
    weight = jnp.asarray(np.where(np.arange(SUBJECTS) < 50, 2.0, 1.0))
    weighted = dataclasses.replace(data, subject_weight=weight)
    index = np.concatenate([np.arange(SUBJECTS), np.arange(50)])
    copied = jax.tree.map(lambda x: x[index], data)
    model = latency_response()
    ours = fit_with(marginal_method(), model, weighted).parameters
    theirs = fit_with(marginal_method(), model, copied).parameters
    # Both stop within 1e-4 standard errors (below 0.3 here) of complete data.
    for a, b in zip(
        jax.tree.leaves(ours.lengths), jax.tree.leaves(theirs.lengths), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-3)
    # Starting from the mirror image of speed ends in the same place.
    start = start_values(model, data)
    assert start.lengths is not None
    lengths, rho = start.lengths
    turned = LengthParameters(
        lengths._replace(speed_discrimination=-lengths.speed_discrimination), -rho
    )
    method, problem = marginal_method(), Problem.create(model, data)
    again = run_jit(problem, method, start._replace(lengths=turned))
    once = run_jit(problem, method, start)
    np.testing.assert_allclose(
        again.parameters.lengths.correlation, once.parameters.lengths.correlation
    )


def test_what_lengths_cannot_go_with_is_said():
    data = drawn()[0]
    model = latency_response()
    start = start_values(model, data)
    with pytest.raises(ValueError, match="hold no parameters of the response lengths"):
        fit = Start(start.items, start.theta)
        run_jit(Problem.create(model, data), marginal_method(), fit)
    with pytest.raises(ValueError, match="population='normal'"):
        fit_with(marginal_method(population="histogram"), model, data)
    with pytest.raises(ValueError, match="needs them: read them with length="):
        start_values(model, dataclasses.replace(data, log_length=None))


@pytest.mark.slow
def test_single_precision_agrees():
    data = drawn()[0]
    single = jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, data
    )
    model = latency_response()
    start = start_values(model, single, dtype=jnp.float32)
    method = marginal_method(tolerance=1e-2)
    method = dataclasses.replace(method, nodes=method.nodes.astype(jnp.float32))
    fit = run_jit(Problem.create(model, single), method, start)
    double = fit_with(marginal_method(), model, data)
    assert fit.parameters.lengths.correlation.dtype == jnp.float32
    # A hundredth of a complete-data standard error, which is below 1 / sqrt(200).
    np.testing.assert_allclose(
        fit.parameters.lengths.correlation,
        double.parameters.lengths.correlation,
        atol=0.01,
    )
