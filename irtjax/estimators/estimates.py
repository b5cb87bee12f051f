"""Estimates and errors of a structured fit, from the fast route or from draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irtjax.models.multilevel.covariance_mixture import Possible


class Summary(NamedTuple):
    """Means and errors of one fit, by whatever method.

    Attributes:
        general: `[subjects]` general abilities.
        general_error: `[subjects]` their standard errors.
        shared: `[subjects, any]` loadings of what those errors share.
        ability: `[subjects, groups]`.
        error: `[subjects, groups]`.
        coordinates: `[items, columns]`.
        covariance: `[items, columns, columns]`.
        own: `[groups, groups]` Sigma.
        bounds: Lower and upper bounds of its correlations, or None.
        effects: `[effects, columns]`, those of the groups last.
        subject_effects: `[2, covariates]` gamma and their standard errors.
        variance: tau^2, of the general ability.
        possible: Draws of Sigma, tau^2 and units; None with one group.
        spreads: `[components + 1 + clusters, columns]` standard deviations of the
            effects of each level, of items around these, and of each benchmark's items;
            NaN where nothing is learned of one.
        accepted: Share of proposals accepted in drawing `possible`, by the fast route.
        scale: `[subjects]` part of the shared error that stretches all general
            abilities alike (`ranking.scale_loadings`); 0 where there is none.
        expected: `[subjects]` expected scores, means of expected responses over all
            items, and their standard errors.
    """

    general: np.ndarray
    general_error: np.ndarray
    shared: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    coordinates: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray] | None
    effects: np.ndarray
    subject_effects: np.ndarray
    variance: float
    possible: Possible | None
    spreads: np.ndarray
    accepted: float = 1.0
    scale: np.ndarray | float = 0.0
    expected: tuple[np.ndarray, np.ndarray] | None = None
