"""Abilities averaged over draws of their covariance, in NumPy.

A draw is Sigma, tau and the scales of the groups' abilities (`covariance_draws`). The
likelihood of a subject's abilities is a normal density in units of the fit; another
draw has another prior and other units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

#: Least share of the prior variance of abilities by which responses reduce it.
LEAST_INFORMATION = 1e-3


class Possible(NamedTuple):
    """Draws of the covariance of abilities: Sigma, tau^2 and u.

    u is in units of the fit; `origin` is location 0 of the fit, 0 where errors
    include it.
    """

    own: Float[np.ndarray, "draws groups groups"]
    variance: Float[np.ndarray, " draws"]
    unit: Float[np.ndarray, "draws groups"]
    origin: Float[np.ndarray, "draws groups"]


class Subjects(NamedTuple):
    """Posterior of the abilities of each subject.

    Prior means (from covariates), posterior means less these, covariances, and
    tau^2 1 1' + Sigma.
    """

    mean: Float[np.ndarray, "subjects groups"]
    gap: Float[np.ndarray, "subjects groups"]
    covariance: Float[np.ndarray, "subjects groups groups"]
    prior_covariance: Float[np.ndarray, "groups groups"]


def information_of_responses(
    covariance: np.ndarray, prior_covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Precisions of abilities given responses, and these less the prior's."""
    whiten = np.linalg.inv(np.linalg.cholesky(prior_covariance))
    roots, vectors = np.linalg.eigh(whiten @ covariance @ whiten.T)
    roots = np.clip(roots, 1e-8, 1 - LEAST_INFORMATION)[..., None, :]
    turn = whiten.T @ vectors
    transposed = np.swapaxes(turn, -1, -2)
    return (turn / roots) @ transposed, (turn * (1 / roots - 1)) @ transposed


def abilities_given(possible: Possible, subjects: Subjects) -> np.ndarray:
    """Means of abilities given each draw, `[draws, subjects, groups]`."""
    precision, information = information_of_responses(
        subjects.covariance, subjects.prior_covariance
    )
    toward = (precision @ subjects.gap[:, :, None])[:, :, 0]
    prior = np.linalg.inv(possible.own + possible.variance[:, None, None])
    means = np.empty((len(prior), *toward.shape))
    for k, unit in enumerate(possible.unit):
        scaled = information / unit / unit[:, None]
        right = toward / unit + scaled @ possible.origin[k]
        gap = np.linalg.solve(scaled + prior[k], right[:, :, None])[:, :, 0]
        means[k] = subjects.mean * unit + gap
    return means


def general_weights(own: np.ndarray, variance: np.ndarray | float):
    """`general_ability` of many Sigma: weights `[..., groups]`, variances."""
    covariance = own + np.asarray(variance)[..., None, None]
    ones = np.ones((*covariance.shape[:-1], 1))
    weights = (
        np.asarray(variance)[..., None] * np.linalg.solve(covariance, ones)[..., 0]
    )
    return weights, variance * np.maximum(1 - weights.sum(axis=-1), 0)
