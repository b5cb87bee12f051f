"""Results of a multilevel model in a calibration: groups, variance components."""

from __future__ import annotations

import numpy as np

from irtjax.calibration.calibration import Calibration, Structure
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.models.multilevel.design import Layout


def structure_of(
    table: ResponseTable, estimates: Estimates, layout: Layout | None
) -> Structure | None:
    """Abilities by group and variance components, labelled; None for other models."""
    found = estimates.groups
    if found is None or found.group is None or layout is None:
        return None
    own, count = found.own, len(layout.groups)
    clusters = [f"items of {name}" for name in layout.clusters.tolist()]
    names = np.asarray([*layout.facets.tolist(), "items", *clusters])
    lower, upper = (None, None) if found.bounds is None else found.bounds
    return Structure(
        groups=layout.groups,
        group=found.group,
        ability=found.ability,
        error=found.error,
        specific_covariance=own,
        specific_correlation=_correlation(own) if count > 1 else np.ones((1, 1)),
        correlation_lower=lower,
        correlation_upper=upper,
        raw_correlation=_raw_correlation(table, found.group, count),
        effects=(layout.effects, found.effects),
        draws=estimates.draws,
        general_variance=found.variance,
        subject_effects=(layout.covariates, *found.subject_effects),
        stems=layout.stems,
        possible=found.possible,
        facets=layout.facets,
        standard_deviations=(names, found.standard_deviations),
    )


def structure_with_draws(fit: Calibration) -> tuple[Structure, dict]:
    """The structure of a fit by `nuts`, and its draws by name; refuses other fits."""
    structure = fit.structure
    if structure is None or structure.draws is None:
        raise ValueError(
            "the fit has no draws: fit with method='nuts', and use the fit itself"
            " (saved fits do not keep draws; --save-draws writes them, labelled)"
        )
    return structure, structure.draws.values


def vanishing_groups(estimates: Estimates, layout: Layout | None) -> list[str]:
    """Warnings of groups whose group-specific abilities do not vary."""
    gone = None if estimates.groups is None else estimates.groups.vanishing
    if gone is None or layout is None:
        return []
    return [
        f"not converged: the group-specific abilities of {name} have a standard"
        " deviation of 0: its items measure only the general ability; fit one ability"
        " (model='hierarchical'), or use method='nuts'"
        for name in np.asarray(layout.groups)[gone]
    ]


def _raw_correlation(table: ResponseTable, group: np.ndarray, groups: int):
    """Correlations over subjects of their mean responses to each group."""
    values = np.asarray(table.values, float)
    seen = table.observed if table.trials is None else table.trials
    seen = np.ones(values.shape) if seen is None else np.asarray(seen, float)
    onto = np.eye(groups)[group]
    total, count = (values * (seen > 0)) @ onto, seen @ onto
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    centred = np.nan_to_num(means - np.nanmean(means, axis=0))
    return _correlation(centred.T @ centred)


def _correlation(covariance: np.ndarray) -> np.ndarray:
    """The correlations of a covariance, which may have a zero on its diagonal."""
    sd = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return covariance / sd / sd[:, None]
