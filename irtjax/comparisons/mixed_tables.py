"""What a mixed model of comparisons has by category, judge and model, with errors.

A table has contrasts of the parameters, whose covariance is exact: of effects that a
prior alone makes identifiable, such as the mean of a category's effects, none depends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from irtjax.comparisons.families import PairFamily, row_slopes
from irtjax.comparisons.mixed import (
    MixedFit,
    MixedProblem,
    clustered,
    fit_mixed,
    mixed_problem,
)
from irtjax.comparisons.problem import PRIOR, PairProblem
from irtjax.comparisons.rows import grouped
from irtjax.comparisons.settings import PairSettings
from irtjax.data.comparison_table import Label

#: Tables of a mixed model, by the name of the file.
TABLES = ("categories", "judges", "tie_rates")


class Values(NamedTuple):
    """What an arena is made of.

    Attributes:
        ability: `[subjects]` with a sum of 0.
        tie: `[subjects]` log nu or log h of each with its like; empty without it.
        covariance: Of `ability` followed by `tie`.
        effects: Estimate and standard error of what else was estimated, by name.
        log_likelihood: At the estimates.
        num_parameters: All that were estimated.
        converged: Whether the estimates converged.
        tables: Further tables by name.
    """

    ability: np.ndarray
    tie: np.ndarray
    covariance: np.ndarray
    effects: dict[str, tuple[float, float]]
    log_likelihood: float
    num_parameters: int
    converged: bool
    tables: dict[str, Any] = {}


class MixedRows(NamedTuple):
    """Comparisons added up to the rows of a problem with random effects.

    Attributes:
        plain: The comparisons that count, and the model without random effects.
        problem: The rows.
        at: `[rows]` a comparison of each row.
        place: `[comparisons]` row of each comparison.
        outcomes: `[comparisons, 4]` numbers of wins, losses, ties and "both bad".
        codes: Categories and judges of the comparisons, by kind.
    """

    plain: PairProblem
    problem: MixedProblem
    at: np.ndarray
    place: np.ndarray
    outcomes: np.ndarray
    codes: dict[str, Label]

    @classmethod
    def of(cls, plain: PairProblem, settings: PairSettings) -> MixedRows:
        """The rows with the random effects of the settings, if any.

        Raises:
            ValueError: If the outcomes or labels do not identify an effect.
        """
        bad, table = settings.both_bad == "outcome", plain.table
        if bad and not plain.family.num_shapes:
            raise ValueError(
                "both_bad='outcome' requires ties='davidson' or 'rao_kupper'"
            )
        if settings.tie_rates and not plain.family.num_shapes:
            raise ValueError("tie_rates requires ties='davidson' or 'rao_kupper'")
        worse, three = table.outcomes[:, 3] * bad, plain.outcomes
        four = np.column_stack([three[:, :2], three[:, 2] - worse, worse])
        if bad and not four[:, 2:].sum(axis=0).all():
            raise ValueError(
                "both_bad='outcome' requires ties and verdicts that both are bad: use"
                " 'tie'"
            )
        count = table.num_subjects
        key = table.first.astype(np.int64) * count + table.second
        codes: dict[str, Label] = {}
        for kind in ("category", "judge"):
            if (name := getattr(settings, kind)) is not None:
                codes[kind] = _several(kind, table.labels.coded(name))
                key = key * len(codes[kind].names) + codes[kind].code
        at, place = grouped(key, plain.features)
        problem = mixed_problem(
            plain.family,
            (table.first[at], table.second[at], count),
            _sums(place, four, len(at)),
            (plain.features[at], plain.names),
            tie_rates=settings.tie_rates,
            bad=bad,
            **{k: (x.code[at], len(x.names)) for k, x in codes.items()},
        )
        return cls(plain, problem, at, place, four, codes)

    def fit(
        self, outcomes: np.ndarray | None = None, start: MixedFit | None = None
    ) -> MixedFit:
        """Estimates; by the prior where comparisons do not determine them.

        Args:
            outcomes: `[comparisons, 4]`; None takes those of the table.
            start: A fit to similar comparisons, as `mixed.fit_mixed` has it.
        """
        problem, three = self.problem, None
        if outcomes is not None:
            sums = _sums(self.place, outcomes, len(self.at))
            problem = problem._replace(outcomes=sums)
            even = outcomes[:, 2:].sum(axis=1)
            three = np.column_stack([outcomes[:, :2], even])
        precision = 1 / PRIOR**2 if self.plain.existence(three) else 0.0
        with jax.enable_x64(True):
            return fit_mixed(problem, precision, start)

    def contrasts(self) -> np.ndarray:
        """Abilities as contrasts of the parameters, `[subjects, parameters]`.

        With categories they are means over these. Reliabilities of judges, whose unit
        is that of all abilities, change no order.
        """
        return _contrasts(self.problem, self.codes)[0]


def mixed_values(
    plain: PairProblem, settings: PairSettings, clusters: Sequence[np.ndarray] = ()
) -> Values:
    """Fits the random effects of the settings; `clusters` are codes of comparisons."""
    rows = MixedRows.of(plain, settings)
    fit = rows.fit()
    if clusters:
        covariance = clustered(rows.problem, fit, rows.place, rows.outcomes, clusters)
        fit = fit._replace(covariance=covariance)
    size = rows.outcomes.sum(axis=1)
    return _values(rows.problem, fit, plain.table, rows.codes, size)


def _several(kind: str, label: Label) -> Label:
    """A label with names in order, of which there are two or more."""
    label = label.sorted()
    if len(label.names) < 2:
        raise ValueError(
            f"the {kind} is {str(label.names[0])!r} in all rows: give a column of two"
            " or more values, or leave it out"
        )
    return label


def _sums(place: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Sums of rows by place, `[size, columns]`."""
    return np.column_stack([np.bincount(place, x, size) for x in values.T])


def _values(
    problem: MixedProblem, fit: MixedFit, table: Any, codes: dict[str, Label], size
) -> Values:
    """Estimates and tables of a fit."""
    count, unit = problem.num_subjects, np.eye(problem.num_parameters)
    errors = np.sqrt(np.diagonal(fit.covariance))
    tables: dict[str, Any] = {}
    linear, by_category = _contrasts(problem, codes)
    rows, judge = linear, None
    if "judge" in problem.blocks:
        judge = unit[problem.blocks["judge"]]
        # The mean of log alpha is that of all abilities.
        rows = rows + np.outer(rows @ fit.vector, judge.mean(axis=0))
    ability = linear @ fit.vector
    if by_category is not None:
        whole = (
            rows[:, None] + by_category - by_category.mean(axis=1)[:, None],
            linear,
        )
        tables["categories"] = _categories(fit, whole, by_category, table, codes, size)
    if judge is not None:
        tables["judges"] = _judges(fit, judge, codes["judge"], size)
    tie = np.zeros((0, problem.num_parameters))
    if problem.family.num_shapes:
        tie = np.repeat(unit[[count + problem.names.index("tie")]], count, axis=0)
        if "tie_rates" in problem.blocks:
            tie = tie + unit[problem.blocks["tie_rates"]]
            names = table.subjects
            tables["tie_rates"] = _tie_rates(problem.family, fit, tie, names)
    every = np.concatenate([rows, tie])
    effects = {
        name: (float(fit.vector[count + k]), float(errors[count + k]))
        for k, name in enumerate(problem.names)
    }
    effects |= {f"{name}_sd": x for name, x in fit.deviations.items()}
    return Values(
        ability,
        tie @ fit.vector,
        every @ fit.covariance @ every.T,
        effects,
        fit.log_likelihood,
        count - 1 + len(effects),
        fit.converged,
        tables,
    )


def _contrasts(
    problem: MixedProblem, codes: dict[str, Label]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Abilities `[subjects, parameters]`, and those by category less their own part."""
    count, unit = problem.num_subjects, np.eye(problem.num_parameters)
    mean = np.eye(count) - 1 / count
    rows = mean @ unit[:count]
    if "category" not in problem.blocks:
        return rows, None
    num = len(codes["category"].names)
    block = unit[problem.blocks["category"]].reshape(count, num, -1)
    by_category = np.einsum("ij,jcp->icp", mean, block)
    return rows + by_category.mean(axis=1), by_category


def _error(fit: MixedFit, rows: np.ndarray) -> np.ndarray:
    """Standard errors of contrasts, the last axis of `rows`."""
    variance = np.sum((rows @ fit.covariance) * rows, axis=-1)
    return np.sqrt(np.maximum(variance, 0))


def _categories(fit: MixedFit, whole, by_category, table, codes, size) -> Any:
    """Abilities by category: best first in each category."""
    import pyarrow as pa

    category, (rows, linear) = codes["category"], whole
    apart = by_category - by_category.mean(axis=1, keepdims=True)
    ability = (linear @ fit.vector)[:, None] + apart @ fit.vector
    count, num = ability.shape
    row = np.concatenate([table.first, table.second]) * num
    votes = np.bincount(row + np.tile(category.code, 2), np.tile(size, 2), count * num)
    # Category by category, best first in each.
    order = np.argsort(-ability, axis=0, kind="stable").T
    places = (order * num + np.arange(num)[:, None]).reshape(-1)
    columns = {
        "category": np.tile(category.names, count).tolist(),
        "subject": np.repeat(table.subjects, num).tolist(),
        "ability": ability.reshape(-1),
        "ability_se": _error(fit, rows).reshape(-1),
        "difference": (apart @ fit.vector).reshape(-1),
        "difference_se": _error(fit, apart).reshape(-1),
        "comparisons": votes,
    }
    return pa.table(columns).take(places)


def _judges(fit: MixedFit, rows: np.ndarray, codes: Label, size: np.ndarray) -> Any:
    """Reliability alpha of each judge, 1 being that of the average; best first."""
    import pyarrow as pa

    apart = rows - rows.mean(axis=0)
    alpha = np.exp(apart @ fit.vector)
    columns = {
        "judge": codes.names.tolist(),
        "reliability": alpha,
        "reliability_se": alpha * _error(fit, apart),
        "comparisons": np.bincount(codes.code, size, len(alpha)),
    }
    return pa.table(columns).take(np.argsort(-alpha, kind="stable"))


def _tie_rates(family: PairFamily, fit: MixedFit, rows: np.ndarray, names) -> Any:
    """Chance of a tie of each model with its like, at equal abilities."""
    import pyarrow as pa

    shape = rows @ fit.vector
    with jax.enable_x64(True):
        logs, slopes = row_slopes(family, np.column_stack([0 * shape, shape]))
    chance, slope = np.exp(np.asarray(logs)[:, 2]), np.asarray(slopes)[:, 2, 1]
    error = _error(fit, rows)
    columns = {
        "subject": np.asarray(names).tolist(),
        "tie_rate": chance,
        "tie_rate_se": chance * np.abs(slope) * error,
        "log_parameter": shape,
        "log_parameter_se": error,
    }
    return pa.table(columns).take(np.argsort(-chance, kind="stable"))
