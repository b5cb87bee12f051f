"""The result of a fit on the host: parameters, tables, warnings, provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax._types import Status
from irtjax.calibration import lengths
from irtjax.calibration.factors import Factors
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import ItemText
from irtjax.data.wording import counted
from irtjax.estimators.posterior.nuts import Draws
from irtjax.likelihood.problem import Parameters
from irtjax.likelihood.quadrature import Resolution
from irtjax.models.model import Model
from irtjax.models.multilevel.covariance_mixture import Possible

if TYPE_CHECKING:
    import pyarrow as pa


class Structure(NamedTuple):
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
        stems: `[items]` the thing that each item measures, where groups share items.
        possible: Draws of Sigma, tau^2 and the scales, which errors are averaged over;
            None with one group.
        facets: Names of the facets of items with an estimated standard deviation.
        standard_deviations: Names of the variance components (facets, items within
            them, items of each benchmark if estimated), and `[names, columns]` values.
    """

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
    stems: np.ndarray | None = None
    possible: Possible | None = None
    facets: np.ndarray | None = None
    standard_deviations: tuple[np.ndarray, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Calibration(HasTable):
    """A fitted model with its labels: what `irtjax.fit` returns and `load` restores.

    Everything that has an axis of subjects follows `subject_names`, the order of the
    data: `abilities`, `ability_shared`, `parameters.theta`, the abilities and draws of
    `structure`. `irtjax.rank` sorts subjects by ability, as the saved tables do.

    Attributes:
        model: The model.
        parameters: Estimates: item records, population, and joint abilities if any.
        subject_names: `[subjects]` names.
        item_names: `[items]` names.
        benchmarks: `[items]` benchmark names, or None.
        status: How the iteration ended.
        num_steps: Steps taken.
        trace: `[num_steps]` objective after each step.
        residual: Distance from a stationary point.
        log_likelihood: In nats, without priors.
        log_prior: Log prior density at the estimates.
        num_parameters: Estimated parameters of items and population, and abilities of
            joint methods; the effective number of a multilevel model.
        num_observed: Observed responses.
        aic: -2 log-likelihood + 2 parameters. Of shares, whose likelihood is a
            quasi-likelihood, it compares fits of the same worth only.
        bic: -2 log-likelihood + parameters * log(subjects).
        items: Items, their parameters with standard errors, and flags.
        abilities: Subjects, abilities with intervals, ranks, and flags.
        warnings: Reasons to doubt the numbers, each a sentence.
        notes: How the data were read, and a sampler's verdict where it is good.
        options: The options of the fit.
        versions: Versions of the packages that made it.
        data_hash: Hash of the data.
        timings: Seconds by phase; "compile" apart from the rest.
        resolution: Distances of the quadrature nodes compared with the posteriors.
        level: Level of the intervals.
        item_covariance: `[items, columns, columns]`, of unconstrained coordinates.
        ability_shared: `[subjects, rank]` loadings of shared errors of abilities (see
            `scoring.Scores`), or None.
        ability_scale: `[subjects]` the part of `ability_shared` that stretches all
            abilities alike (`ranking.scale_loadings`), which tests of equal abilities
            leave out; or None.
        correlation_error: Standard error of the correlation of ability and speed.
        structure: Abilities by group and related results, for multilevel models.
        factors: Loadings and abilities, for factor models.
        item_texts: Prompt, expected answer and most frequent wrong answer by item,
            where the data had them (`ResponseTable.item_texts`).
        item_contents: Hashes of the content of items, where the data had them.
    """

    columns = ("rank", "subject", "expected_score", "expected_score_lower")
    columns += ("expected_score_upper", "ability", "ability_se", "probability_best")

    model: Model
    parameters: Parameters
    subject_names: np.ndarray
    item_names: np.ndarray
    benchmarks: np.ndarray | None
    status: Status
    num_steps: int
    trace: np.ndarray
    residual: float
    log_likelihood: float
    log_prior: float
    num_parameters: int
    num_observed: int
    aic: float
    bic: float
    items: ItemTable
    abilities: AbilityTable
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    data_hash: str
    timings: dict[str, float]
    resolution: Resolution | None
    level: float
    item_covariance: np.ndarray | None = None
    ability_shared: np.ndarray | None = None
    ability_scale: np.ndarray | None = None
    correlation_error: float | None = None
    structure: Structure | None = None
    factors: Factors | None = None
    item_texts: Mapping[str, ItemText] = dataclasses.field(default_factory=dict)
    item_contents: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def reversed_scores(self) -> dict[str, str]:
        """By item, the formula of scores of which lower is better, as "1 - wer"."""
        if "reversed_scores" not in self.items.table.column_names:
            return {}
        names, formulas = (
            self.items.table.column(x).to_pylist() for x in ("item", "reversed_scores")
        )
        pairs = zip(names, formulas, strict=True)
        return {name: formula for name, formula in pairs if formula}

    @property
    def correlation_interval(self) -> tuple[float, float] | None:
        """Bounds of the correlation of ability and speed at `level`, by Fisher's z."""
        if self.parameters.lengths is None or self.correlation_error is None:
            return None
        rho = float(self.parameters.lengths.correlation)
        bounds = lengths.correlation_interval(rho, self.correlation_error, self.level)
        return float(bounds[0]), float(bounds[1])

    def summary(self) -> str:
        """Returns the model and its fit in ten lines; `print(fit)` is the leaderboard.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
        >>> print(fit.summary().splitlines()[0])
        rasch by laplace on 4 subjects and 4 items (16 responses): converged
        """
        most = 4  # Subjects; of the warnings one is shown.
        method = self.options.get("method", "its method")
        lines = [
            f"{self.model.name} by {method} on"
            f" {counted(len(self.subject_names), 'subject')} and"
            f" {counted(len(self.item_names), 'item')}"
            f" ({counted(self.num_observed, 'response')}):"
            f" {self.status.explain()}",
        ]
        if self.options.get("worth"):
            value = f"{self.log_likelihood:,.2f}"
            lines.append(f"quasi-log-likelihood {value} (no AIC or BIC)")
        else:
            lines.append(
                f"log-likelihood {self.log_likelihood:,.2f}, AIC {self.aic:,.1f}, BIC"
                f" {self.bic:,.1f}"
            )
        names = ("subject", "rank", "ability", "ability_se", "expected_score")
        # Of equal ranks the order of `irtjax.rank`.
        best_first = [("rank", "ascending"), ("ability", "descending")]
        table = self.abilities.table.select(names).sort_by(best_first)
        for row in table.slice(0, most).to_pylist():
            ability, error, score = (
                "–" if row[name] is None else f"{row[name]:.2f}" for name in names[2:]
            )
            lines.append(
                f"{row['rank']:>4}  {row['subject']}: ability {ability} ± {error}"
                f" (standard error), expected score {score}"
            )
        if table.num_rows > most:
            lines.append(f"      and {counted(table.num_rows - most, 'more subject')}")
        if self.warnings:
            more = len(self.warnings) - 1
            more = f" (+ {more} more)" if more else ""
            lines.append(f"warning: {self.warnings[0]}{more}")
        lines.append("see .abilities, .items, .warnings; irtjax.rank(fit)")
        return "\n".join(lines)

    @property
    def table(self) -> pa.Table:
        """The table of abilities: `abilities.table`."""
        return self.abilities.table

    def _ranked(self) -> HasTable:
        """The ranking, whose module needs this one; abilities if none is finite."""
        both = (self.table.column(name) for name in ("ability", "ability_se"))
        values = np.array([x.to_pylist() for x in both], float)
        if not np.isfinite(values).all(axis=0).any():
            return self.abilities
        return import_module("irtjax.calibration.rank").rank(self)

    def _text(self) -> str:
        """The short leaderboard."""
        return self._ranked()._text()

    def _heading(self) -> str:
        return self._ranked()._heading()

    def _shown(self) -> pa.Table:
        return self._ranked()._shown()
