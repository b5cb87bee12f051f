"""Abilities averaged over draws of their covariance; plain sums, no programs.

A draw is Sigma, tau and the scales of the groups' abilities (`spread_draws`). What
the responses contribute to a subject's abilities is a normal density in units of the
fit; given another draw it has another prior and other units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: What responses point at is less certain than the variance of abilities by this share
#: of it at least.
LEAST_TOLD = 1e-3


class Possible(NamedTuple):
    """Draws of the covariance of abilities.

    Attributes:
        own: `[draws, groups, groups]` Sigma.
        variance: `[draws]` tau^2.
        unit: `[draws, groups]` u, in units of the fit.
        origin: `[draws, groups]` where 0 of the fit lies; 0 where errors count it.
    """

    own: np.ndarray
    variance: np.ndarray
    unit: np.ndarray
    origin: np.ndarray


class Subjects(NamedTuple):
    """Posterior of the abilities of each subject.

    Attributes:
        mean: `[subjects, groups]` of them given no responses, from covariates.
        gap: `[subjects, groups]` of their means from these.
        covariance: `[subjects, groups, groups]` of each.
        spread: `[groups, groups]` tau^2 1 1' + Sigma.
    """

    mean: np.ndarray
    gap: np.ndarray
    covariance: np.ndarray
    spread: np.ndarray


def told_by_responses(
    covariance: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Precisions of abilities `[..., groups, groups]`, and what is not of the prior.

    Args:
        covariance: `[..., groups, groups]` of abilities given responses.
        spread: `[groups, groups]` of abilities without.
    """
    whiten = np.linalg.inv(np.linalg.cholesky(spread))
    roots, vectors = np.linalg.eigh(whiten @ covariance @ whiten.T)
    roots = np.clip(roots, 1e-8, 1 - LEAST_TOLD)[..., None, :]
    turn = whiten.T @ vectors
    transposed = np.swapaxes(turn, -1, -2)
    return (turn / roots) @ transposed, (turn * (1 / roots - 1)) @ transposed


def abilities_given(possible: Possible, subjects: Subjects) -> np.ndarray:
    """Means of abilities given each draw, `[draws, subjects, groups]`."""
    precision, told = told_by_responses(subjects.covariance, subjects.spread)
    toward = (precision @ subjects.gap[:, :, None])[:, :, 0]
    prior = np.linalg.inv(possible.own + possible.variance[:, None, None])
    means = np.empty((len(prior), *toward.shape))
    for k, (unit, origin) in enumerate(
        zip(possible.unit, possible.origin, strict=True)
    ):
        scaled = told / unit / unit[:, None]
        right = toward / unit + scaled @ origin
        gap = np.linalg.solve(scaled + prior[k], right[:, :, None])[:, :, 0]
        means[k] = subjects.mean * unit + gap
    return means


def general_weights(own: np.ndarray, variance: np.ndarray | float):
    """`general_ability` of many Sigma: weights `[..., groups]`, variances."""
    spread = own + np.asarray(variance)[..., None, None]
    ones = np.ones((*spread.shape[:-1], 1))
    weights = np.asarray(variance)[..., None] * np.linalg.solve(spread, ones)[..., 0]
    return weights, variance * np.maximum(1 - weights.sum(axis=-1), 0)
