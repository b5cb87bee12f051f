"""Errors of location and scale, against simulation."""

import numpy as np
import pytest

from irtjax.scoring.scale_error import (
    scale_covariance,
    scale_variance,
    with_scale_error,
)


def test_the_covariance_of_location_and_scale_is_found_from_shared_errors():
    rng = np.random.default_rng(0)
    ability, root = rng.normal(size=30), rng.normal(size=(2, 5))
    shared = np.column_stack([np.ones(30), ability]) @ root
    found = scale_covariance(ability, shared)
    np.testing.assert_allclose(found, root @ root.T, atol=1e-12)
    want = np.sum(shared**2, axis=1)
    np.testing.assert_allclose(scale_variance(found, ability), want, atol=1e-12)
    assert scale_covariance(ability, None) is None
    # An ability that is not finite, and a single subject, are no obstacle.
    again = scale_covariance(
        np.append(ability, np.nan), np.vstack([shared, shared[:1]])
    )
    np.testing.assert_allclose(again, found, atol=1e-12)
    assert np.isfinite(scale_covariance(ability[:1], shared[:1])).all()


def test_the_squared_error_is_that_of_simulated_abilities():
    """Abilities of a population, seen on a scale whose location errs."""
    rng, count, error = np.random.default_rng(1), 400_000, 0.3
    mean, sd, noise = 0.4, 1.3, 0.5
    theta = mean + sd * rng.normal(size=count)
    seen = theta + error * rng.normal(size=count)
    # A posterior given the scale is N(score, noise^2) around the ability on it.
    score = seen + noise * rng.normal(size=count)
    near = np.abs(score - 1.5) < 0.05
    # On the scale of the calibration the population has this variance.
    wide = sd**2 + error**2
    share = wide / (wide + noise**2)
    posterior = mean + share * (score[near] - mean), share * noise**2
    found = with_scale_error(
        np.diag([error**2, 0.0]), posterior[0], posterior[1], (mean, sd)
    )
    actual = (theta[near] - posterior[0]) ** 2
    assert np.mean(actual) == pytest.approx(
        np.mean(found), abs=5 * actual.std() / np.sqrt(near.sum())
    )
