"""Abilities from comparisons of two subjects each: arenas, judges, preferences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import expit

from irtjax._types import Status
from irtjax.calibration.abilities import Abilities
from irtjax.comparisons import checks
from irtjax.comparisons.arena import Arena
from irtjax.comparisons.bootstrap import bootstrap_covariance
from irtjax.comparisons.errors import (
    VerdictScores,
    by_clusters,
    inverse_information,
    number_of,
    sandwich,
)
from irtjax.comparisons.families import PairFamily, expectations
from irtjax.comparisons.mixed_tables import Values, mixed_values
from irtjax.comparisons.newton import PairFit, PairParameters
from irtjax.comparisons.plackett_luce import fit_rankings, rankings_of
from irtjax.comparisons.presets import pair_weights
from irtjax.comparisons.problem import (
    BY_PRIOR,
    PRIOR,
    PairProblem,
    counting,
    pair_problem,
    rule_of,
)
from irtjax.comparisons.settings import RANKINGS, PairSettings
from irtjax.comparisons.style import style_table
from irtjax.data.comparison_table import ComparisonTable
from irtjax.data.wording import counted
from irtjax.numerics.seeds import seed_of

#: Effects of one standard deviation above which a covariate separates wins from losses.
FARTHEST = 10.0
#: Clusters below which errors by cluster are too small.
FEW_CLUSTERS = 20


def fit_comparisons(
    table: ComparisonTable,
    model: str = "bradley_terry",
    *,
    ties: str = "half",
    cluster: str | Sequence[str] = (),
    covariates: Sequence[str] = (),
    **settings: Any,
) -> Arena:
    """Fits abilities to comparisons by maximum likelihood; see `comparisons.families`.

    Args:
        table: The comparisons.
        model: "bradley_terry" (log odds), "thurstone" (probits), or "plackett_luce" of
            rankings, whose pairs have the label "ranking" (`read_comparisons`).
        ties: "half" a win, "drop", "davidson" or "rao_kupper".
        cluster: One or two labels of the table, such as prompt and judge, whose
            comparisons are not independent of each other; errors count them.
        covariates: Features of the table that the difference depends on as well; an
            effect is that of one standard deviation. What a model causes itself, such
            as the length of its answers, may be part of its ability: compare the two.
        **settings: The settings below, of `comparisons.PairSettings`.

    Keyword Args:
        both_bad: Whether verdicts that both are bad are a "tie", left out ("drop"), or
            an "outcome" of their own, which is likelier between weak models; this
            requires a model of ties.
        order: Whether being the first has an effect.
        category: A label, such as the topic of the prompt, by which abilities differ:
            `tables["categories"]`, shrunk by their estimated standard deviation.
            Abilities are means over categories, each with the same weight.
        judge: A label of judges who differ in reliability, the slope of the difference:
            `tables["judges"]`; 1 is the geometric mean.
        tie_rates: Whether each model has a rate of ties of its own:
            `tables["tie_rates"]`; requires a model of ties.
        bootstrap: Number of replicates that errors are estimated from, with clusters
            (of one kind) or comparisons weighted at random (`comparisons.bootstrap`);
            0 for the sandwich. Not for category, judge, tie_rates and "outcome".
        key: A whole number or a JAX key, for the weights.
        preset: "arena_rank" for the weights and the penalty of published arenas, which
            are not maximum likelihood (`comparisons.presets`); ties are halves.
        level: Level of the intervals.

    Returns:
        The abilities with their errors. With category, judge or tie_rates the
        log-likelihood is marginal over these effects (`comparisons.mixed`).

    Raises:
        ValueError: If a name is unknown, no comparison counts, or options do not go
            together.

    >>> rows = [[3, 1, 0, 0], [4, 2, 0, 0], [3, 2, 0, 0]]
    >>> table = ComparisonTable.of(["a", "b", "c"], [0, 0, 1], [1, 2, 2], rows)
    >>> fit = fit_comparisons(table)
    >>> fit.abilities.estimates.round(2).tolist()
    [0.55, -0.19, -0.36]
    """
    options = {"model": model, "ties": ties, "cluster": cluster}
    chosen = PairSettings.of({**options, "covariates": covariates, **settings})
    task = _Task.of(table, chosen)
    warnings = task.pairs.existence()
    precision = 1 / PRIOR**2 if warnings else 0.0
    unit, total, style = "comparison", float(task.pairs.outcomes.sum()), None
    with jax.enable_x64(True):
        if chosen.model == RANKINGS:
            (values, total), unit = _ranked(task, precision), "ranking"
        elif chosen.mixed:
            values = mixed_values(task.problem, chosen, task.codes)
        else:
            values, style = _plain(task, precision, warnings)
        shares, against = _shares(chosen.family, values)
    warnings += [*task.few_clusters(), *checks.findings(table)]
    if not values.converged:
        warnings.append("the estimates did not converge")
    if chosen.arena is not None:
        warnings.append(chosen.arena.reason)
    count = table.num_subjects
    return Arena(
        Abilities(
            table.subjects,
            values.ability,
            values.covariance[:count, :count],
            shares,
            task.votes(),
            chosen.level,
            f"{counted(count, 'model')} · {counted(round(total), unit)}",
            "model",
        ),
        values.effects,
        values.log_likelihood,
        values.num_parameters,
        total,
        Status.CONVERGED if values.converged else Status.MAX_STEPS,
        chosen.document(task.problem.sizes),
        tuple(warnings),
        table.notes,
        task.merged.data_hash(),
        _pairs(task.merged, against),
        style,
        values.tables,
    )


class _Task(NamedTuple):
    """What is fitted.

    Attributes:
        settings: How.
        merged: The comparisons added up by pair.
        pairs: What counts of these, without features.
        problem: What is maximised: `pairs`, or rows with features and labels.
        rows: The comparisons that count, with the labels of clusters.
        codes: `[rows]` clusters, of each kind.
    """

    settings: PairSettings
    merged: ComparisonTable
    pairs: PairProblem
    problem: PairProblem
    rows: ComparisonTable
    codes: list[np.ndarray]

    @classmethod
    def of(cls, table: ComparisonTable, settings: PairSettings) -> _Task:
        """The task of a table.

        Raises:
            ValueError: If the table has no such names, or no comparison counts.
        """
        settings.check(table.labels, table.features)
        merged = table.merged()
        alone = dataclasses.replace(
            settings, covariates=(), order=False, cluster=(), category=None, judge=None
        )
        problem = pairs = pair_problem(merged, alone)
        rows = table
        if not settings.by_pair:
            problem = pair_problem(table, settings)
            rows = problem.table
        elif settings.clusters:
            rows = counting(table, rule_of(settings))
        codes = [rows.labels.coded(name) for name in settings.clusters]
        if settings.bootstrap or settings.model == RANKINGS:
            # Random weights are those of clusters in the order of their names.
            codes = [label.sorted() for label in codes]
        return cls(settings, merged, pairs, problem, rows, [x.code for x in codes])

    def votes(self) -> np.ndarray:
        """Number of comparisons of each subject."""
        size, table = self.pairs.outcomes.sum(axis=1), self.pairs.table
        first, second = (
            np.bincount(side, size, table.num_subjects)
            for side in (table.first, table.second)
        )
        return first + second

    def few_clusters(self) -> list[str]:
        """Warnings of few clusters."""
        texts = []
        for name, codes in zip(self.settings.clusters, self.codes, strict=True):
            count = number_of(codes)
            if count < FEW_CLUSTERS:
                texts.append(
                    f"{counted(count, 'cluster')} of {name} are few: errors by cluster"
                    f" are too small below about {FEW_CLUSTERS}"
                )
        return texts


def _ranked(task: _Task, precision: float) -> tuple[Values, float]:
    """Estimates from rankings, and their number."""
    rankings = rankings_of(task.problem.table)
    codes = [x[rankings.row] for x in task.codes]
    ability, covariance, value, converged = fit_rankings(rankings, precision, codes)
    tie, count = np.zeros(0), len(ability)
    values = Values(ability, tie, covariance, {}, value, count - 1, converged)
    return values, float(len(rankings.order))


def _plain(task: _Task, precision: float, warnings: list[str]) -> tuple[Values, Any]:
    """Estimates without random effects, and the table of style; adds warnings."""
    problem = task.problem
    fit, without = _estimates(task, precision)
    effect = np.asarray(fit.parameters.effect)
    if effect.size and not (bool(fit.converged) and np.max(abs(effect)) < FARTHEST):
        # They separate wins from losses.
        warnings.append(
            f"comparisons do not determine the effects of {', '.join(problem.names)}:"
            f" {BY_PRIOR}"
        )
        precision = 1 / PRIOR**2
        fit, without = _estimates(task, precision)
    if task.settings.bootstrap:
        covariance = bootstrap_covariance(
            problem,
            fit,
            problem.prior(precision),
            task.codes,
            replicates=task.settings.bootstrap,
            seed=seed_of(task.settings.key),
        )
    else:
        covariance = _covariance(task, fit)
    style = None
    if without is not None:
        style = style_table(problem, fit, without, task.codes)
    return _values(problem, fit, covariance), style


def _estimates(task: _Task, precision: float) -> tuple[PairFit, PairFit | None]:
    """The estimates, and those without covariates if there are any."""
    problem, covariates = task.problem, len(task.problem.sizes)
    outcomes = problem.outcomes
    if not covariates or problem.preset is not None:
        return problem.maximum(outcomes, precision), None
    plain = problem.without(covariates) if task.settings.order else task.pairs
    without = plain.maximum(plain.outcomes, precision)
    ability, effect, shape = without.parameters
    # Close to the estimates, so that the search is short.
    effect = np.concatenate([np.zeros(covariates), effect])
    start = PairParameters(ability, effect, shape)  # pyright: ignore
    return problem.maximum(outcomes, precision, start), without


def _values(problem: PairProblem, fit: PairFit, covariance: np.ndarray) -> Values:
    """What an arena is made of, from estimates and their covariance."""
    count, shapes = problem.table.num_subjects, problem.family.num_shapes
    shape = np.asarray(fit.parameters.shape)
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))[count:]
    estimates = np.concatenate([fit.parameters.effect, shape])
    names = [*problem.names, *["tie"] * shapes]
    # All models have the same rate of ties.
    of_tie = np.full(count * shapes, len(covariance) - 1)
    places = np.concatenate([np.arange(count), of_tie])
    return Values(
        np.asarray(fit.parameters.ability),
        np.repeat(shape, count),
        covariance[np.ix_(places, places)],
        {
            name: (float(value), float(error))
            for name, value, error in zip(names, estimates, errors, strict=True)
        },
        float(fit.log_likelihood),
        count - 1 + len(estimates),
        bool(fit.converged),
    )


def _covariance(task: _Task, fit: PairFit) -> np.ndarray:
    """Covariance of all parameters: by clusters if there are any."""
    problem, settings = task.problem, task.settings
    if settings.by_pair and settings.clusters:
        rows, rule = task.rows, rule_of(settings)
        sides = rows.first, rows.second
        scores = VerdictScores(problem.family, fit, sides, rows.verdicts, rule)
        return by_clusters(fit, sides, scores, task.codes)
    weight = None
    if problem.preset is not None:
        weight = pair_weights(problem.preset, problem.table, problem.outcomes)
    elif not settings.clusters:
        return inverse_information(fit)
    pairs = problem.table.first, problem.table.second, problem.features
    return sandwich(problem.family, fit, pairs, problem.outcomes, task.codes, weight)


def _pairs(table: ComparisonTable, against: np.ndarray) -> Any:
    """What came of each pair, with the expected share of the first."""
    import pyarrow as pa

    names = pa.array(table.subjects.tolist(), pa.string())
    columns = ("wins_a", "wins_b", "ties", "both_bad")
    return pa.table(
        {
            "model_a": names.take(pa.array(table.first)),
            "model_b": names.take(pa.array(table.second)),
            **dict(zip(columns, table.outcomes.T, strict=True)),
            "expected_share_a": against[table.first, table.second],
        }
    )


def _shares(family: PairFamily, values: Values):
    """Expected shares against the average of the others, their errors, and by pair."""
    ability, count = values.ability, len(values.ability)
    gaps = ability[:, None] - ability[None, :]
    tie = values.tie.reshape(-1, count)
    shape = np.moveaxis(tie[:, :, None] + tie[:, None, :], 0, 2) / 2
    against, *slopes = _shares_of(family, gaps, shape)
    outside = (1 - np.eye(count)) / (count - 1)
    slope = slopes[0] * outside
    gradient = [np.diag(slope.sum(axis=1)) - slope]
    for by_shape in slopes[1:]:
        half = by_shape * outside / 2
        gradient.append(np.diag(half.sum(axis=1)) + half)
    along = np.concatenate(gradient, axis=1)
    variance = np.sum((along @ values.covariance) * along, axis=1)
    mean = np.sum(against * outside, axis=1)
    return (mean, np.sqrt(np.maximum(variance, 0))), against


def _shares_of(family: PairFamily, gaps: np.ndarray, shapes: np.ndarray):
    """Expected shares at all differences, with derivatives in these and the shapes."""
    if family.link == "bradley_terry" and not family.num_shapes:
        share = expit(gaps)
        return share, share * (1 - share)
    local = np.concatenate([gaps[:, :, None], shapes], axis=2)
    _, share, slope = expectations(family, local.reshape(-1, local.shape[2]))
    return [np.asarray(x).reshape(gaps.shape) for x in (share, *slope.T)]
