"""Errors of rotated loadings against the spread of rotations of perturbed loadings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.inference.rotation_errors import (
    correlation_covariance,
    rotation_moves,
    turned_covariance,
)
from irtjax.numerics.loadings import align
from irtjax.numerics.rotation import ROTATIONS, rotate

ITEMS, DIMS, NOISE, DRAWS = 15, 3, 0.004, 400


@pytest.mark.parametrize(
    "rotation",
    [
        "oblimin",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("varimax", "promax", "geomin", "bifactor"),
                *("target", "target_orthogonal"),
            )
        ),
    ],
)
def test_errors_are_the_spread_of_rotated_loadings(rotation):
    """Delta method and 400 draws agree within the error of a spread, 1 / sqrt(2 n)."""
    rng = np.random.default_rng(0)
    loadings = 0.1 * rng.normal(size=(ITEMS, DIMS))
    loadings[np.arange(ITEMS), np.arange(ITEMS) % DIMS] += 0.6
    if rotation == "bifactor":
        loadings[:, 0] = 0.5 + 0.1 * rng.normal(size=ITEMS)
    root = NOISE * (np.eye(DIMS) + 0.3 * rng.normal(size=(ITEMS, DIMS, DIMS)))
    covariance = root @ np.swapaxes(root, 1, 2)
    noise = np.einsum("jkl,rjl->rjk", root, rng.normal(size=(DRAWS, ITEMS, DIMS)))
    given = jnp.asarray(loadings)
    target = None
    if ROTATIONS[rotation].needs_target:  # Zeros, and free cells.
        target = np.where(np.arange(ITEMS)[:, None] % DIMS == np.arange(DIMS), 0.5, 0)
        target[8:] = np.nan
    # Near the axes given, so one start finds the same minimum for every draw.
    found = rotate(given, rotation, num_starts=1, target=target)
    moves = rotation_moves(given, rotation, found.transform, 1, target)
    errors = np.diagonal(turned_covariance(loadings, *moves, covariance), 0, 1, 2)
    errors = np.sqrt(errors)
    # The covariance of all loadings has the same errors as its blocks.
    whole = np.zeros((ITEMS, DIMS, ITEMS, DIMS))
    whole[np.arange(ITEMS), :, np.arange(ITEMS)] = covariance
    again = np.diagonal(turned_covariance(loadings, *moves, whole), 0, 1, 2)
    np.testing.assert_allclose(np.sqrt(again), errors, rtol=1e-9)

    def rotated(moved):
        new = rotate(moved, rotation, num_starts=1, target=target)
        aligned = align(found.loadings, new.loadings).loadings
        return aligned, new.transform.T @ new.transform

    drawn = jax.vmap(rotated)(jnp.asarray(loadings + noise))
    spread, of_correlations = (np.asarray(x).std(axis=0) for x in drawn)
    # Five standard errors of a spread: 45 are compared.
    np.testing.assert_allclose(errors, spread, rtol=5 / np.sqrt(2 * DRAWS))
    if ROTATIONS[rotation].oblique:
        pairs = np.triu_indices(DIMS, 1)
        flat = whole.reshape(ITEMS * DIMS, -1)
        size = np.sqrt(np.diagonal(correlation_covariance(*moves, flat)))
        # Drawn factors may change places or signs: sizes in order, 3 are compared.
        np.testing.assert_allclose(
            np.sort(size), np.sort(of_correlations[pairs]), rtol=4 / np.sqrt(2 * DRAWS)
        )
    back = np.linalg.inv(np.asarray(found.transform)).T
    known = np.sqrt(np.einsum("ml,jmn,nl->jl", back, covariance, back))
    # The error of the rotation matters: those of known axes would fail.
    assert np.abs(known / spread - 1).max() > 5 / np.sqrt(2 * DRAWS)


def test_a_flat_criterion_has_no_errors():
    """Quartimax has one value for all rotations of these items."""
    angle = np.arange(4) * np.pi / 4
    given = 0.7 * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    found = rotate(given, "quartimax", num_starts=5)
    assert rotation_moves(given, "quartimax", found.transform) is None
