"""Results of a multilevel model in a calibration: groups, variance components."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from irtjax.calibration.parts.part import Part
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.models.multilevel.covariance_mixture import Possible

if TYPE_CHECKING:
    from irtjax.estimators.posterior.nuts import Draws
    from irtjax.models.multilevel.design import Layout

#: The arrays that a field of several arrays becomes.
_FIELDS = {
    "effects": ("effect_names", "effect_values"),
    "standard_deviations": ("sd_names", "sd_values"),
    "subject_effects": tuple(
        f"subject_effect_{k}" for k in ("names", "values", "errors")
    ),
    "possible": tuple(f"possible_{name}" for name in Possible._fields),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Structure(Part):
    """Results of a multilevel fit other than general abilities and items.

    Attributes:
        groups: `[groups]` names.
        group: `[items]` group of each item.
        ability: `[subjects, groups]` abilities, in the order of
            `Calibration.subject_names`.
        error: `[subjects, groups]` their standard errors.
        specific_covariance: `[groups, groups]` Sigma, of the group-specific abilities.
        specific_correlation: `[groups, groups]` correlations of these.
        correlation_lower: Lower bounds of the correlations; None with one group.
        correlation_upper: Upper bounds.
        raw_correlation: `[groups, groups]` correlations of subjects' mean responses.
        effects: Names and values `[effects, columns]` of effects on items' coordinates.
        draws: Draws of the posterior, for `nuts`.
        general_variance: tau^2, of the general ability; 1 where items have slopes.
        subject_effects: Names, effects and standard errors of the subjects' covariates.
        covariate_means: `[covariates]` means over the subjects of the fit, at which the
            expected ability is 0; None in fits of earlier versions.
        subject_effect_covariance: `[covariates, covariates]` of the effects' errors.
        stems: `[items]` the thing that each item measures, where groups share items.
        possible: Draws of Sigma, tau^2 and the scales, which errors are averaged over;
            None with one group.
        facets: Names of the facets of items with an estimated standard deviation.
        standard_deviations: Names of the variance components (facets, items within
            them, items of each benchmark if estimated), and `[names, columns]` values.
    """

    prefix: ClassVar[str] = "structure."
    absence: ClassVar[str] = (
        "this fit has one ability per subject: fit model='multibenchmark' or"
        " 'multimetric' to have one for each group"
    )
    axes: ClassVar[Mapping[str, str]] = {
        "groups": "groups",
        "group": "items",
        "ability": "subjects groups",
        "error": "subjects groups",
        "specific_covariance": "groups groups",
        "specific_correlation": "groups groups",
        "correlation_lower": "groups groups",
        "correlation_upper": "groups groups",
        "raw_correlation": "groups groups",
        "effect_names": "effects",
        "effect_values": "effects coordinates",
        "general_variance": "",
        "subject_effect_names": "covariates",
        "subject_effect_values": "covariates",
        "subject_effect_errors": "covariates",
        "covariate_means": "covariates",
        "subject_effect_covariance": "covariates covariates",
        "stems": "items",
        "possible_own": "draws groups groups",
        "possible_variance": "draws",
        "possible_unit": "draws groups",
        "possible_origin": "draws groups",
        "facets": "facets",
        "sd_names": "components",
        "sd_values": "components coordinates",
    }

    integrates_items: ClassVar[bool] = True

    groups: np.ndarray
    group: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    specific_covariance: np.ndarray
    specific_correlation: np.ndarray
    correlation_lower: np.ndarray | None
    correlation_upper: np.ndarray | None
    raw_correlation: np.ndarray
    effects: tuple[np.ndarray, np.ndarray]
    draws: Draws | None = None
    general_variance: float = 1.0
    subject_effects: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    covariate_means: np.ndarray | None = None
    subject_effect_covariance: np.ndarray | None = None
    stems: np.ndarray | None = None
    possible: Possible | None = None
    facets: np.ndarray | None = None
    standard_deviations: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(
        cls, table: ResponseTable, estimates: Estimates, layout: Layout | None
    ) -> Self | None:
        """Abilities by group and variance components of a multilevel model."""
        estimated = estimates.groups
        if estimated is None or estimated.group is None or layout is None:
            return None
        own, count = estimated.own, len(layout.groups)
        effects, covariance = estimated.subject_effects
        clusters = [f"items of {name}" for name in layout.clusters.tolist()]
        names = np.asarray([*layout.facets.tolist(), "items", *clusters])
        lower, upper = (None, None) if estimated.bounds is None else estimated.bounds
        return cls(
            groups=layout.groups,
            group=estimated.group,
            ability=estimated.ability,
            error=estimated.error,
            specific_covariance=own,
            specific_correlation=_correlation(own) if count > 1 else np.ones((1, 1)),
            correlation_lower=lower,
            correlation_upper=upper,
            raw_correlation=_raw_correlation(table, estimated.group, count),
            effects=(layout.effects, estimated.effects),
            draws=estimates.draws,
            general_variance=estimated.variance,
            subject_effects=(
                layout.covariates,
                effects,
                np.sqrt(np.diag(covariance)),
            ),
            covariate_means=layout.covariate_means,
            subject_effect_covariance=covariance,
            stems=layout.stems,
            possible=estimated.possible,
            facets=layout.facets,
            standard_deviations=(names, estimated.standard_deviations),
        )

    @property
    def no_rank(self) -> str:
        """Ranks are by one ability of all items, at estimates of these."""
        if len(self.groups) > 1:
            return "the fit has an ability for each group"
        return "the fit consists of draws" if self.draws else ""

    @property
    def group_abilities(self) -> np.ndarray:
        """`ability`, which figures span with the general one."""
        return self.ability

    def with_subjects(
        self, stays: np.ndarray, ability: np.ndarray, error: np.ndarray
    ) -> Self:
        """The results with new subjects, of a fit of one ability."""
        pairs = ((self.ability, ability), (self.error, error))
        joined = (
            np.concatenate([old[stays], new.reshape(-1, 1)]) for old, new in pairs
        )
        ability, error = joined
        return dataclasses.replace(self, ability=ability, error=error)

    def rescaled(self, scale: float, shift: float) -> Self:
        """The results of one ability; effects on items stay on the scale of the fit."""
        return dataclasses.replace(
            self,
            ability=scale * self.ability + shift,
            error=scale * self.error,
            specific_covariance=scale**2 * self.specific_covariance,
            general_variance=scale**2 * self.general_variance,
        )

    def figures(self) -> list[tuple[str, str, str]]:
        """Abilities by group, and their correlations."""
        if len(self.groups) < 2:
            return []
        return [
            ("Abilities by group", "group_abilities.png", "plot_abilities_by_group"),
            ("Correlations of groups", "correlations.png", "plot_correlations"),
        ]

    def arrays(self) -> dict[str, Any]:
        """All but the draws, which no file has."""
        fields = super().arrays()
        fields.pop(f"{self.prefix}draws", None)
        for name, parts in _FIELDS.items():
            values = fields.pop(f"{self.prefix}{name}", None)
            if values is not None:
                names = (f"{self.prefix}{part}" for part in parts)
                fields |= zip(names, values, strict=True)
        return fields

    @classmethod
    def from_own(
        cls, own: dict[str, Any], arrays: Mapping[str, Any], document: Any
    ) -> Self:
        """The results of a file."""
        for name, parts in _FIELDS.items():
            if parts[0] in own:
                values = [own.pop(part) for part in parts]
                own[name] = Possible(*values) if name == "possible" else tuple(values)
        if "general_variance" in own:
            own["general_variance"] = float(own["general_variance"])
        bounds = dict.fromkeys(("correlation_lower", "correlation_upper"))
        return cls(**{**bounds, **own})


def structure_with_draws(fit: Any) -> tuple[Structure, dict]:
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
