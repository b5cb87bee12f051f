"""Errors of location and scale, against simulation."""

import numpy as np
import pytest

from irtjax.inference.scale_error import (
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


@pytest.mark.parametrize("noise", [0.3, 1.2, 5.0])
def test_the_squared_error_is_that_of_simulated_abilities(noise):
    """Abilities of a population, seen on a scale whose location errs."""
    rng, count, error = np.random.default_rng(1), 400_000, 0.6
    mean, sd = 0.4, 1.3
    theta = mean + sd * rng.normal(size=count)
    # Responses are about abilities on the scale of the calibration, and scored there.
    seen = theta + error * rng.normal(size=count) + noise * rng.normal(size=count)
    share = sd**2 / (sd**2 + noise**2)
    score = mean + share * (seen - mean)
    near = np.abs(score - mean - share) < 0.05 * share
    scale = np.diag([error**2, 0.0])
    known = (mean, sd)
    found = with_scale_error(scale, score[near], share * noise**2, known)
    actual = (theta[near] - score[near]) ** 2
    assert np.mean(actual) == pytest.approx(
        np.mean(found), abs=5 * actual.std() / np.sqrt(near.sum())
    )


def test_the_squared_error_is_never_below_that_on_the_scale():
    rng = np.random.default_rng(2)
    root, ability = rng.normal(size=(2, 2)), rng.normal(size=200) * 3
    variance = rng.uniform(0, 2, 200)
    found = np.asarray(with_scale_error(root @ root.T, ability, variance, (0.0, 1.2)))
    seen = variance < 1.2**2
    assert (found[seen] > variance[seen]).all()
    # Where the responses say nothing the scale does not matter.
    np.testing.assert_allclose(found[~seen], variance[~seen], rtol=1e-12)
    known = with_scale_error(root @ root.T, ability, 1.2**2, (0.0, 1.2))
    np.testing.assert_allclose(known, 1.2**2, rtol=1e-12)
    # The population adds information: without it errors are larger at its mean.
    alone = with_scale_error(root @ root.T, 0 * ability, variance)
    within = with_scale_error(root @ root.T, 0 * ability, variance, (0.0, 1.2))
    assert (np.asarray(within) < np.asarray(alone)).all()
