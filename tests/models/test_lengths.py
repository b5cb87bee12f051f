"""Answer lengths against two-dimensional integrals over ability and speed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

import irtjax
from irtjax.data.responses import Responses
from irtjax.likelihood.counts import expected_counts
from irtjax.models.catalogue import latency_response
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.lengths import LengthItems, LengthParameters, Lengths, orient_speed
from irtjax.numerics.kernels import equal_nodes, normal_log_weights

SUBJECTS, ITEMS = 5, 4
#: Wide and fine enough that the trapezoid rule is exact to rounding.
GRID = np.linspace(-9, 9, 181)


def parameters(rho: float = -0.7, phi: float | None = None) -> LengthParameters:
    slopes = np.array([0.3, 0.6, -0.2, 0.5]) if phi is None else np.full(ITEMS, phi)
    items = LengthItems(
        jnp.array([5.0, 6.0, 6.5, 5.5]),
        jnp.asarray(slopes),
        jnp.array([0.2, 0.1, 0.4, 0.3]),
    )
    return LengthParameters(items, jnp.asarray(rho))


def responses(missing: bool) -> Responses:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2, (SUBJECTS, ITEMS)).astype(np.int8)
    log_length = rng.normal(5.8, 0.8, (SUBJECTS, ITEMS))
    if not missing:
        return Responses(jnp.asarray(values), log_length=jnp.asarray(log_length))
    observed = rng.random(values.shape) < 0.7
    known = rng.random(values.shape) < 0.7
    known[1] = False
    return Responses(
        jnp.asarray(values * observed),
        jnp.asarray(observed),
        log_length=jnp.asarray(np.where(known, log_length, 0.0)),
        length_observed=jnp.asarray(known),
    )


ACCURACY = LogisticItems(
    jnp.array([0.8, 1.5, 1.1, 0.6]),
    jnp.array([0.2, -0.5, 0.4, 1.0]),
    jnp.zeros(ITEMS),
    jnp.ones(ITEMS),
)


def log_joint(data: Responses, found: LengthParameters, with_responses=True):
    """Log density of each subject's data, ability and speed, `[subjects, t, s]`."""
    theta, tau = GRID[:, None], GRID[None, :]
    rho = float(found.correlation)
    total = -0.5 * (theta**2 - 2 * rho * theta * tau + tau**2) / (1 - rho**2)
    total = total - np.log(2 * np.pi) - 0.5 * np.log(1 - rho**2)
    total = np.repeat(total[None], SUBJECTS, axis=0)
    seen = np.ones(data.values.shape, bool)
    known = seen if data.length_observed is None else np.asarray(data.length_observed)
    seen = seen if data.observed is None else np.asarray(data.observed)
    omega, phi, variance = (np.asarray(x) for x in found.items)
    for i in range(SUBJECTS):
        for j in range(ITEMS):
            if seen[i, j] and with_responses:
                predictor = float(ACCURACY.discrimination[j]) * theta
                predictor = predictor + float(ACCURACY.intercept[j])
                total[i] += log_ndtr((2 * int(data.values[i, j]) - 1) * predictor)
            if known[i, j]:
                gap = float(data.log_length[i, j]) - omega[j] + phi[j] * tau
                total[i] -= 0.5 * gap**2 / variance[j]
                total[i] -= 0.5 * np.log(2 * np.pi * variance[j])
    return total


def integrate(log_density, function=None):
    step = 2 * np.log(GRID[1] - GRID[0])
    top = logsumexp(log_density, axis=(1, 2))
    if function is None:
        return top + step
    weight = np.exp(log_density - top[:, None, None])
    return (weight * function).sum(axis=(1, 2))


@pytest.mark.parametrize("missing", [False, True])
def test_lengths_say_what_the_double_integral_says(missing):
    data, found, model = responses(missing), parameters(), Lengths()
    summary = model.summary(found, data)
    joint = log_joint(data, found, with_responses=False)
    np.testing.assert_allclose(
        summary.log_density, integrate(joint), rtol=1e-10, atol=1e-12
    )
    mean, variance = model.ability(found, summary)
    theta, tau = GRID[:, None], GRID[None, :]
    brute = integrate(joint, theta)
    np.testing.assert_allclose(mean, brute, atol=1e-10)
    np.testing.assert_allclose(
        variance, integrate(joint, theta**2) - brute**2, atol=1e-10
    )
    # Without responses, the moments of speed follow from those of ability.
    speed = model.speed(found, summary, mean, variance)
    centre = integrate(joint, tau)
    np.testing.assert_allclose(speed.mean, centre, atol=1e-10)
    np.testing.assert_allclose(
        speed.variance, integrate(joint, tau**2) - centre**2, atol=1e-10
    )
    np.testing.assert_allclose(
        speed.covariance, integrate(joint, theta * tau) - brute * centre, atol=1e-10
    )


@pytest.mark.parametrize("missing", [False, True])
def test_the_likelihood_of_both_is_one_dimensional(missing):
    data, found = responses(missing), parameters()
    model = latency_response()
    assert model.lengths is not None
    summary = model.lengths.summary(found, data)
    evidence, constant = model.lengths.evidence(found, summary)
    nodes = jnp.asarray(equal_nodes(-9, 9, 181))
    counts = jax.jit(functools.partial(expected_counts, moments=True))(
        model,
        ACCURACY,
        nodes,
        normal_log_weights(nodes),
        dataclasses.replace(data, evidence=evidence),
    )
    joint = log_joint(data, found)
    np.testing.assert_allclose(
        counts.log_marginal + constant, integrate(joint), rtol=1e-10
    )
    theta, tau = GRID[:, None], GRID[None, :]
    mean = integrate(joint, theta)
    assert counts.mean is not None and counts.variance is not None
    np.testing.assert_allclose(counts.mean, mean, atol=1e-10)
    np.testing.assert_allclose(
        counts.variance, integrate(joint, theta**2) - mean**2, atol=1e-10
    )
    speed = model.lengths.speed(found, summary, counts.mean, counts.variance)
    centre = integrate(joint, tau)
    np.testing.assert_allclose(speed.mean, centre, atol=1e-10)
    np.testing.assert_allclose(
        speed.variance, integrate(joint, tau**2) - centre**2, atol=1e-10
    )
    np.testing.assert_allclose(
        speed.covariance, integrate(joint, theta * tau) - mean * centre, atol=1e-10
    )


def test_limits_of_the_speed_discrimination():
    data, model = responses(False), Lengths()
    for phi, wanted in ((0.0, 1.0), (1e4, 1 - 0.7**2)):
        found = parameters(phi=phi)
        mean, variance = model.ability(found, model.summary(found, data))
        np.testing.assert_allclose(variance, wanted, rtol=1e-6)
        if phi == 0:
            np.testing.assert_allclose(mean, 0, atol=1e-12)


def test_one_maximisation_is_the_regression_on_expected_speed():
    # With the posterior of speed concentrated, the update is least squares.
    rng = np.random.default_rng(1)
    tau = rng.normal(size=400)
    omega, phi, sd = np.array([5.0, 6.0]), np.array([0.4, 0.7]), np.array([0.02, 0.03])
    log_length = omega - phi * tau[:, None] + sd * rng.normal(size=(400, 2))
    data = Responses(jnp.zeros((400, 2), jnp.int8), log_length=jnp.asarray(log_length))
    model = Lengths(prior_weight=0.0)
    found = LengthParameters(
        LengthItems(jnp.asarray(omega), jnp.asarray(phi), jnp.asarray(sd**2)),
        jnp.asarray(0.0),
    )
    summary = model.summary(found, data)
    zero, one = jnp.zeros(400), jnp.ones(400)
    speed = model.speed(found, summary, zero, one)
    update = model.improve(found, data, zero, one, speed)
    known = np.asarray(model.speed(found, summary, zero, one).mean)
    design = np.stack([np.ones(400), -known], axis=1)
    fitted = np.linalg.lstsq(design, log_length, rcond=None)[0]
    items = update.raised.items
    # The posterior variance of speed, about (sd / phi)^2, is what separates the two.
    np.testing.assert_allclose(items.speed_intercept, fitted[0], atol=1e-3)
    np.testing.assert_allclose(items.speed_discrimination, fitted[1], rtol=5e-3)
    folded = update.folded.items
    np.testing.assert_allclose(
        folded.speed_discrimination / items.speed_discrimination,
        known.std(),
        rtol=5e-3,
    )


def test_direction_and_coordinates():
    model, found = Lengths(), parameters(phi=-0.4)
    turned = orient_speed(found)
    assert float(turned.correlation) == 0.7
    assert (turned.items.speed_discrimination > 0).all()
    again = model.constrain(model.unconstrain(turned))
    np.testing.assert_allclose(
        again.items.residual_variance, turned.items.residual_variance, rtol=1e-12
    )
    np.testing.assert_allclose(again.correlation, 0.7, rtol=1e-12)


def test_lengths_of_a_table():
    lengths = [[10.0, np.nan], [0.0, 3.0]]
    table = irtjax.ResponseTable.from_arrays([[1, 0], [0, 1]], lengths=lengths)
    data = table.responses(length_offset=1.0)
    assert data.length_observed is not None and data.log_length is not None
    assert data.length_observed.tolist() == [[True, False], [True, True]]
    np.testing.assert_allclose(
        data.log_length, [[np.log(11.0), 0.0], [0.0, np.log(4.0)]]
    )
    assert table.responses().log_length is None
    with pytest.raises(ValueError, match=r"length 0 of subject .*larger offset"):
        table.responses(length_offset=0.0)
    bare = irtjax.ResponseTable.from_arrays([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="no response lengths.* length=$"):
        bare.responses(length_offset=1.0)
