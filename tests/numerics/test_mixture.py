"""Gaussian mixtures against densities by scipy, planted groups, degenerate points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from irtjax.numerics.mixture import MixtureComponents, choose_mixture, gaussian_mixture

MOST = 4
mixture = functools.partial(gaussian_mixture, most=MOST)


@functools.cache
def points() -> np.ndarray:
    """Three groups of normal points in a plane."""
    rng = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0]], [60, 40, 20], axis=0)
    return centres + rng.normal(size=centres.shape) * [1.0, 0.5]


def log_joint(x: np.ndarray, found: MixtureComponents) -> np.ndarray:
    """log pi + log density of each used component, by scipy."""
    weights, means, covariances = (np.asarray(part) for part in found)
    columns = [
        np.log(weight) + multivariate_normal.logpdf(x, mean, covariance)
        for weight, mean, covariance in zip(weights, means, covariances, strict=True)
        if weight > 0
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("count", [1, 3])
def test_likelihood_bic_and_entropy_are_those_of_the_parameters(count):
    x = points()
    found = mixture(jnp.asarray(x), count)
    joint = log_joint(x, found.components)
    total = np.asarray(logsumexp(joint, axis=1))
    assert joint.shape[1] == count == int(found.num_components)
    assert float(found.log_likelihood) == pytest.approx(total.sum(), abs=1e-8)
    free = count - 1 + count * 2 + count * 3
    bic = -2 * total.sum() + free * np.log(len(x))
    assert float(found.bic) == pytest.approx(bic, abs=1e-8)
    chance = np.exp(joint - total[:, None])
    used = np.asarray(found.components.weights) > 0
    np.testing.assert_allclose(found.responsibilities[:, used], chance, atol=1e-10)
    entropy = -np.sum(chance * np.log(np.maximum(chance, 1e-300))) / len(x)
    assert float(found.entropy) == pytest.approx(entropy, abs=1e-10)
    assert bool(found.converged) and not bool(found.emptied)


def test_the_fit_has_the_bic_of_scikit_learns():
    """Recorded: GaussianMixture(3, n_init=20, tol=1e-10) of scikit-learn 1.9.1.

    Its ridge was that of here. EM stops here where a step gains 1e-7 per point.
    """
    found = mixture(jnp.asarray(points()), 3)
    assert float(found.bic) == pytest.approx(815.0029677910202, abs=1e-3)


def test_bic_equals_that_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.mixture")
    x = points()
    found = mixture(jnp.asarray(x), 3)
    used = np.asarray(found.components.weights) > 0
    weights, means, covariances = (np.asarray(part)[used] for part in found.components)
    other = sklearn.GaussianMixture(3)
    other.weights_, other.means_, other.covariances_ = weights, means, covariances
    other.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(covariances))
    assert float(found.bic) == pytest.approx(other.bic(x), abs=1e-8)


def test_the_estimate_is_a_fixed_point_of_em_written_out():
    x = points()
    found = mixture(jnp.asarray(x), 3)
    joint = log_joint(x, found.components)
    share = np.exp(joint - np.asarray(logsumexp(joint, axis=1))[:, None])
    used = np.asarray(found.components.weights) > 0
    size = share.sum(axis=0)
    # EM stops where a step gains 1e-7 per point; parameters move by its root.
    np.testing.assert_allclose(found.components.weights[used], size / len(x), atol=1e-3)
    means = share.T @ x / size[:, None]
    np.testing.assert_allclose(found.components.means[used], means, atol=1e-2)
    ridge = 1e-6 * x.var(axis=0).mean()
    for k in range(3):
        apart = x - means[k]
        covariance = (share[:, k, None] * apart).T @ apart / size[k]
        got = np.asarray(found.components.covariances)[used][k]
        np.testing.assert_allclose(got, covariance + ridge * np.eye(2), atol=1e-2)


@pytest.mark.slow
def test_planted_groups_are_found_and_padding_changes_nothing():
    x = points()
    chosen, bic = choose_mixture(jnp.asarray(x), most=MOST)
    assert int(chosen.num_components) == 3 == 1 + int(np.argmin(bic))
    label = np.argmax(chosen.responsibilities, axis=1)
    planted = np.repeat([0, 1, 2], [60, 40, 20])
    pairs = set(zip(planted.tolist(), label.tolist(), strict=True))
    right = sum(max(np.bincount(label[planted == k])) for k in range(3))
    # Centres are 4 and 5 standard deviations apart: 2 % are nearer to another one.
    assert right >= 0.95 * len(x) and len(pairs) <= 5
    padded = np.concatenate([x, np.full((9, 2), 50.0)])
    weights = jnp.asarray(np.arange(len(padded)) < len(x), float)
    again = mixture(jnp.asarray(padded), 3, weights)
    once = mixture(jnp.asarray(x), 3)
    assert float(again.log_likelihood) == pytest.approx(
        float(once.log_likelihood), abs=1e-3
    )
    # A point of weight 2 is two points.
    double = jnp.where(jnp.arange(len(x)) < 30, 2.0, 1.0)
    weighted = mixture(jnp.asarray(x), 1, double)
    twice = np.concatenate([x, x[:30]])
    assert float(weighted.log_likelihood) == pytest.approx(
        float(mixture(jnp.asarray(twice), 1).log_likelihood), abs=1e-7
    )


@pytest.mark.parametrize(
    ("x", "weights"),
    [
        (np.zeros((12, 2)), None),  # All the same.
        (np.repeat(np.eye(3)[:, :2], 4, axis=0), None),  # Copies of three points.
        (np.outer(np.arange(12.0), [1.0, 2.0]), None),  # On a line.
        (np.arange(24.0).reshape(12, 2) % 7, np.arange(12) < 2),  # Two points only.
    ],
)
def test_degenerate_points_are_flagged_and_never_nan(x, weights):
    weights = jnp.ones(len(x)) if weights is None else jnp.asarray(weights, float)
    for count in (1, MOST):
        found = mixture(jnp.asarray(x), count, weights)
        for leaf in jax.tree.leaves(found):
            assert np.isfinite(np.asarray(leaf, float)).all()
    assert bool(found.emptied)
    chosen, bic = choose_mixture(jnp.asarray(x), weights, most=MOST)
    assert not np.isnan(np.asarray(bic)).any()
    # One component needs three points, as any does.
    assert bool(chosen.emptied) == (float(weights.sum()) < 3)
