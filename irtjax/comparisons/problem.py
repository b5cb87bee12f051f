"""The comparisons that count, with their features, and whether estimates exist."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.newton import PairFit, PairParameters
from irtjax.comparisons.presets import Preset, pair_weights
from irtjax.comparisons.rows import PairRows, maximum
from irtjax.comparisons.settings import PairSettings
from irtjax.data.comparison_table import OUTCOMES, ComparisonTable

#: Standard deviation of the prior of abilities that comparisons do not determine.
PRIOR = 2.0
BY_PRIOR = f"a normal prior with a standard deviation of {PRIOR:g} does"
#: Names that a warning lists.
MOST_NAMED = 5


@dataclasses.dataclass(frozen=True, eq=False)
class PairProblem:
    """What a fit of comparisons maximises.

    Attributes:
        family: The model.
        table: The comparisons that count.
        outcomes: `[rows, 3]` their numbers of wins, losses and ties.
        features: `[rows, features]` standardised covariates, then the order.
        names: Their names.
        sizes: Standard deviation of each covariate.
        preset: Settings of a published arena, or None.
    """

    family: PairFamily
    table: ComparisonTable
    outcomes: np.ndarray
    features: np.ndarray
    names: list[str]
    sizes: dict[str, float]
    preset: Preset | None = None

    @functools.cached_property
    def rows(self) -> PairRows:
        """The rows in the order of their pairs."""
        table = self.table
        return PairRows.of(
            (table.first, table.second), self.features, table.num_subjects
        )

    @functools.cached_property
    def pairs(self) -> PairRows:
        """The rows added up by pair, without features."""
        return self.without(self.features.shape[1]).rows

    def without(self, number: int) -> PairProblem:
        """The problem without the first features."""
        return dataclasses.replace(
            self, features=self.features[:, number:], names=self.names[number:]
        )

    def existence(self, outcomes: np.ndarray | None = None) -> list[str]:
        """Why abilities are not finite, if they are not; by other outcomes if given.

        Ford's condition (1957): in the graph of wins each subject reaches each other.
        A tie is an edge both ways, unless ties are left out.
        """
        rows = self.pairs
        sums = rows.outcomes(self.outcomes if outcomes is None else outcomes)
        return _existence(self.table.subjects, rows, sums)

    def prior(self, precision: float) -> np.ndarray:
        """Precisions of the priors of all parameters; ties have none."""
        count = self.table.num_subjects
        sizes = [count, self.features.shape[1], self.family.num_shapes]
        return np.repeat([precision, precision, 0.0], sizes)

    def maximum(
        self,
        outcomes: np.ndarray,
        precision: float = 0.0,
        start: PairParameters | None = None,
    ) -> PairFit:
        """Estimates from numbers of outcomes of the rows.

        Args:
            outcomes: `[rows, 3]`.
            precision: Of the normal prior of abilities and effects.
            start: Where to start; None for equal abilities.
        """
        count, effects = self.table.num_subjects, self.features.shape[1]
        prior = self.prior(precision)
        if self.preset is not None:
            penalty = self.preset.penalty * float(outcomes.sum())
            prior[count : count + effects] += penalty
            weight = pair_weights(self.preset, self.table, outcomes)
            outcomes = outcomes * weight[:, None]
        if start is None:
            shape: Any = np.full(self.family.num_shapes, -0.5)
            zeros: Any = np.zeros(count), np.zeros(effects)
            start = PairParameters(zeros[0], zeros[1], shape)
        rows = self.rows
        with jax.enable_x64(True):
            return maximum(self.family, rows, rows.outcomes(outcomes), start, prior)


def rule_of(settings: PairSettings) -> np.ndarray:
    """What each verdict counts as, `[4, 3]`: a win, a loss, a tie, or not at all."""
    rule = np.eye(len(OUTCOMES))[:, :3]
    rule[3, 2] = float(settings.both_bad != "drop")
    if settings.ties == "drop":
        rule[:, 2] = 0.0
    return rule


def counting(table: ComparisonTable, rule: np.ndarray) -> ComparisonTable:
    """The rows that count.

    Raises:
        ValueError: If none does.
    """
    counts = np.asarray(rule.any(axis=1))
    if counts.all():
        return table
    if table.verdicts.ndim == 1:
        rows = np.flatnonzero(counts[table.verdicts])
    else:
        rows = np.flatnonzero(table.verdicts[:, counts].any(axis=1))
    if not rows.size:
        raise ValueError("every comparison is a tie or bad, and these are left out")
    return table if len(rows) == len(table.first) else table.select(rows)


def pair_problem(
    table: ComparisonTable, settings: PairSettings | None = None, **options: Any
) -> PairProblem:
    """The comparisons that count, with their features; see `fit_comparisons`.

    Args:
        table: The comparisons.
        settings: The settings, or None for those of `options`.
        options: Model, ties, both_bad, covariates, order and preset.

    >>> table = ComparisonTable.of("ab", [0, 0], [1, 1], [[1, 0, 0, 0], [0, 0, 1, 0]])
    >>> pair_problem(table, ties="drop").outcomes.tolist()
    [[1.0, 0.0, 0.0]]
    """
    settings = PairSettings.of(options) if settings is None else settings
    settings.check(table.labels, table.features)
    rule = rule_of(settings)
    table = counting(table, rule)
    single = table.verdicts.ndim == 1
    outcomes = rule.T[:, table.verdicts].T if single else table.verdicts @ rule
    features, names, sizes = _features(table, outcomes, settings)
    family, preset = settings.family, settings.arena
    return PairProblem(family, table, outcomes, features, names, sizes, preset)


def _features(table: ComparisonTable, outcomes: np.ndarray, settings: PairSettings):
    """Standardised covariates `[rows, features]`, their names and their sizes."""
    if not settings.covariates and not settings.order:
        return np.zeros((len(outcomes), 0)), [], {}
    weight = outcomes.sum(axis=1)
    columns, sizes = [], {}
    for name in settings.covariates:
        values = np.asarray(table.features[name], float)
        if settings.arena is not None:
            values = values - np.average(values, weights=weight)
        # Around 0: a comparison with no difference has no effect.
        size = math.sqrt(float(np.average(values**2, weights=weight)))
        if not size:
            raise ValueError(f"the covariate {name!r} is 0 in all comparisons")
        columns.append(values / size)
        sizes[name] = size
    names = list(settings.covariates)
    if settings.order:
        names.append("order")
        columns.append(np.ones(len(weight)))
    return np.column_stack(columns), names, sizes


def _existence(names: np.ndarray, rows: PairRows, outcomes: np.ndarray) -> list[str]:
    """Sets of subjects who never lost to the others, as a warning."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count = len(names)
    win, loss, tie = (outcomes[:, k] > 0 for k in range(3))
    forward, backward = win | tie, loss | tie
    winner = np.concatenate([rows.first[forward], rows.second[backward]])
    loser = np.concatenate([rows.second[forward], rows.first[backward]])
    graph = csr_array((np.ones(len(winner)), (winner, loser)), (count, count))
    number, part = connected_components(graph, directed=True, connection="strong")
    if number == 1:
        return []
    pieces, piece = connected_components(graph, directed=True, connection="weak")
    part = part if pieces == 1 else piece
    apart = np.flatnonzero(part != np.bincount(part).argmax())
    wins, losses = (np.bincount(x, minlength=count) for x in (winner, loser))
    reasons = {
        "never lost": [k for k in apart if not losses[k] and wins[k]],
        "never won": [k for k in apart if not wins[k] and losses[k]],
    }
    if pieces > 1:
        reasons = {"were never compared with the others": list(apart)}
    texts = []
    for reason, places in reasons.items():
        if places:
            listed = ", ".join(str(names[k]) for k in places[:MOST_NAMED])
            others = len(places) - MOST_NAMED
            listed += f" and {others} more" if others > 0 else ""
            texts.append(f"{reason}: {listed}")
    text = "; ".join(texts) or "some models only won against all others"
    return [f"comparisons do not determine all abilities ({text}): {BY_PRIOR}"]
