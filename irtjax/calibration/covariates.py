r"""Expected abilities of new subjects, from covariates that a fit has effects of.

In a multilevel fit with `subject_covariates` the abilities are

    theta_i ~ N(gamma'(z_i - m), tau^2),

m the means of the covariates over the subjects of the fit. A new subject has the same
prior. With C the covariance of the errors of gamma its variance is

    tau^2 + (z_i - m)' C (z_i - m).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.features import read_features

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration


class AbilityPrior(NamedTuple):
    """Normal priors of the general abilities of subjects.

    Attributes:
        mean: `[subjects]`.
        variance: `[subjects]`, with that of the effects of covariates.
        by_effects: `[subjects]` part of the variance by the errors of the effects.
    """

    mean: np.ndarray
    variance: np.ndarray
    by_effects: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """`[subjects]` standard deviations."""
        return np.sqrt(self.variance)


def covariate_names(fit: Calibration) -> list[str]:
    """Names of the subjects' covariates of a fit; empty without any."""
    structure = fit.structure
    effects = None if structure is None else structure.subject_effects
    return [] if effects is None else [str(name) for name in effects[0]]


def read_covariates(
    fit: Calibration, subject_table: Any, names: Any = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Names of subjects and their covariates `[subjects, covariates]`.

    Arguments and errors are those of `read_priors`.
    """
    place = "subject_table"
    if isinstance(subject_table, str | Path):
        place = "--subject-table"
    covariates = covariate_names(fit)
    if not covariates:
        raise ValueError(
            f"{place}: the fit has no covariates of subjects: fit a multilevel model"
            " with subject_covariates (--subject-table FILE --subject-covariates NAME)"
        )
    if isinstance(subject_table, Mapping):
        other = [str(x) for x in subject_table if x not in (*covariates, "subject")]
        if other:
            raise ValueError(
                f"{place}: unknown covariate {other[0]!r}; the fit has"
                f" {', '.join(covariates)}"
            )
        if not len(names) and "subject" not in subject_table:
            raise ValueError(f"{place} has no column 'subject' with the names")
    labels = np.asarray(names, dtype=object)
    features = read_features(subject_table, labels, "subject", covariates, option=place)
    for name, values in features.labels.items():
        raise ValueError(
            f"{place}: column {name!r}, {str(features.names[0])!r}: {str(values[0])!r}"
            " is not a number"
        )
    return np.asarray(features.names, str), features.numbers


def priors_of(fit: Calibration, covariates: np.ndarray) -> AbilityPrior:
    """Priors of subjects with covariates `[subjects, covariates]`.

    Raises:
        ValueError: If an earlier version wrote the fit.
    """
    structure = fit.structure
    assert structure is not None and structure.subject_effects is not None
    covariance = structure.subject_effect_covariance
    if structure.covariate_means is None or covariance is None:
        raise ValueError(
            "subject_table: an earlier version wrote the fit, without the means of its"
            " covariates: fit again"
        )
    gap = covariates - structure.covariate_means
    by_effects = np.einsum("ip,pq,iq->i", gap, covariance, gap)
    return AbilityPrior(
        gap @ structure.subject_effects[1],
        structure.general_variance + by_effects,
        by_effects,
    )


def read_priors(
    fit: Calibration, subject_table: Any, names: Any = ()
) -> tuple[np.ndarray, AbilityPrior]:
    """Priors of subjects by their covariates.

    Args:
        fit: A multilevel calibration with `subject_covariates`.
        subject_table: A CSV or Parquet file, a data frame or a mapping, with the
            columns `subject` and the covariates, in the units of the fit; other columns
            of a file are ignored. Or the covariates alone by name, `[subjects]` each in
            the order of `names`.
        names: `[subjects]`, each with a row; without any, all subjects of the table.

    Returns:
        Names and priors of the subjects, those of `names` first.

    Raises:
        ValueError: If the fit has no covariates, one is missing or unknown, a subject
            has no row, or a value is no number.
    """
    subjects, covariates = read_covariates(fit, subject_table, names)
    return subjects, priors_of(fit, covariates)


def evidence_of(prior: AbilityPrior) -> tuple[tuple[float, float], np.ndarray]:
    """A population with evidence of each subject, whose product is its prior.

    The population covers six standard deviations around each mean, as do nodes over it.
    With m and v of a subject and M and S of the population, the evidence
    e_0 theta - e_1 theta^2 / 2 has e_0 = m / v - M / S^2 and e_1 = 1 / v - 1 / S^2.

    Returns:
        Mean and standard deviation of the population, and `[subjects, 2]`.

    >>> prior = AbilityPrior(np.array([0.0, 2.0]), np.ones(2), np.zeros(2))
    >>> population, evidence = evidence_of(prior)
    >>> population[0], evidence.shape
    (1.0, (2, 2))
    """
    mean, variance = prior.mean, prior.variance
    centre = (mean.min() + mean.max()) / 2
    sd = np.sqrt(variance.max()) + (mean.max() - mean.min()) / 12
    evidence = np.stack([mean / variance - centre / sd**2, 1 / variance - sd**-2], 1)
    return (float(centre), float(sd)), evidence
