r"""The fewest comparisons whose removal changes the first place.

Leaving out comparisons with the sum of scores s changes the abilities by about -H^+ s,
with H the information (Broderick, Giordano and Meager 2020; Huang et al. 2025). For
each rival of the first, comparisons are ordered by what they add to the difference of
the two. The shortest beginning of that order is sought that, left out, puts the rival
ahead. Each candidate is verified by a new fit, at which the order is refined.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from irtjax.comparisons.mixed import MixedFit, outcome_slopes
from irtjax.comparisons.mixed_tables import MixedRows
from irtjax.comparisons.problem import pair_problem
from irtjax.comparisons.settings import PairSettings
from irtjax.data.comparison_table import OUTCOMES, ComparisonTable
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted

#: Times that the order is refined, and rivals that are tried.
ROUNDS, RIVALS = 4, 5
#: Standard errors below which two abilities are equal: estimates converge to 1e-7.
EQUAL = 1e-5


@dataclasses.dataclass(frozen=True, repr=False)
class Influence(HasTable):
    """What the first place depends on.

    Attributes:
        first: The best subject, by estimate.
        rival: Who is first without the comparisons.
        count: Number of comparisons, or of clusters, that are left out.
        total: Number of all.
        unit: What is left out: "comparison" or the cluster's name.
        removed: A row for each of them: `comparison` (the row of the table), with
            `model_a`, `model_b` and `outcome`; or the cluster's name and its number of
            `comparisons`.
    """

    title = "Comparisons left out"

    first: str
    rival: str
    count: int
    total: int
    unit: str
    removed: Any

    @property
    def table(self) -> Any:
        """What is left out, as `removed` has it."""
        return self.removed

    @property
    def sentence(self) -> str:
        """What the first place depends on, in words."""
        if not self.count:
            return f"{self.first} stays first without any {self.unit} that was tried."
        return (
            f"Without {self.count:,} of {counted(self.total, self.unit)}"
            f" ({100 * self.count / self.total:.2g} %), {self.rival} is first"
            f" instead of {self.first}."
        )


def influence(
    table: ComparisonTable, *, cluster: str | None = None, **options: Any
) -> Influence:
    """The fewest comparisons, or clusters, whose removal changes the first place.

    An upper bound: fewer may do, of an order that is not tried. Standard deviations of
    categories, judges and rates of ties stay at their estimates.

    Args:
        table: The comparisons.
        cluster: A label, such as prompt or judge, whose comparisons are left out
            together; by default each comparison is alone.
        options: Model, ties, both_bad, covariates, order, category, judge and tie_rates
            of `fit_comparisons`.

    Returns:
        What to leave out; count 0 if nothing changes the first place.

    Raises:
        ValueError: If a name is unknown, the model is of rankings, or has a preset.

    >>> rows = np.repeat(np.eye(4)[[0, 1]], [11, 9], axis=0)
    >>> table = ComparisonTable.of("ab", np.zeros(20, int), np.ones(20, int), rows)
    >>> print(influence(table).sentence)
    Without 3 of 20 comparisons (15 %), b is first instead of a.
    """
    settings = PairSettings.of({**options, "cluster": cluster or ()})
    settings.check_pairs()
    plain = pair_problem(table, settings)
    rows = MixedRows.of(plain, settings)
    units = _Units.of(rows, cluster)
    names, contrasts = plain.table.subjects, rows.contrasts()
    start = rows.fit()
    ability = contrasts @ start.vector
    first = int(ability.argmax())
    best: np.ndarray | None = None
    for rival in np.argsort(-ability, kind="stable")[1 : RIVALS + 1]:
        gap = contrasts[first] - contrasts[rival]
        best = _shortest(rows, units, start, gap, best)
    removed = np.zeros(0, int) if best is None else best
    ability = contrasts @ rows.fit(units.without(removed), start).vector
    return Influence(
        str(names[first]),
        str(names[int(ability.argmax())]) if removed.size else "",
        len(removed),
        units.number,
        cluster or "comparison",
        units.rows(plain.table, removed, cluster),
    )


@dataclasses.dataclass(frozen=True)
class _Units:
    """What is left out together: `code[cells]` of each cell of `outcomes`."""

    outcomes: np.ndarray
    cell: np.ndarray
    amount: np.ndarray
    code: np.ndarray
    names: np.ndarray | None

    @classmethod
    def of(cls, rows: MixedRows, cluster: str | None) -> _Units:
        """Single comparisons (rows, if these are shares), or clusters."""
        outcomes = rows.outcomes
        cell = np.flatnonzero(outcomes)
        amount = outcomes.reshape(-1)[cell]
        if cluster is not None:
            code, names = rows.plain.table.labels.coded(cluster).sorted()
            return cls(outcomes, cell, amount, code[cell // 4], names)
        if (amount == np.rint(amount)).all():
            cell = np.repeat(cell, amount.astype(int))
            return cls(outcomes, cell, np.ones(len(cell)), np.arange(len(cell)), None)
        return cls(outcomes, cell, amount, cell // 4, None)

    @property
    def number(self) -> int:
        """Number of units."""
        return int(self.code.max()) + 1

    def sums(self, cells: np.ndarray) -> np.ndarray:
        """Sums over the units of a number of each cell of `outcomes`."""
        values = cells.reshape(-1)[self.cell] * self.amount
        return np.bincount(self.code, values, self.number)

    def without(self, removed: np.ndarray) -> np.ndarray:
        """`outcomes` without some units."""
        out = np.isin(self.code, removed)
        gone = np.bincount(self.cell[out], self.amount[out], self.outcomes.size)
        return self.outcomes - gone.reshape(self.outcomes.shape)

    def rows(self, table: ComparisonTable, removed: np.ndarray, cluster: str | None):
        """A table of the units."""
        import pyarrow as pa

        if self.names is not None and cluster is not None:
            size = np.bincount(self.code, self.amount, self.number)[removed]
            columns = {cluster: self.names[removed].tolist(), "comparisons": size}
            return pa.table(columns)
        at = [np.flatnonzero(self.code == unit)[0] for unit in removed]
        cell = self.cell[np.array(at, int)]
        row = cell // 4
        return pa.table(
            {
                "comparison": row,
                "model_a": table.subjects[table.first[row]].tolist(),
                "model_b": table.subjects[table.second[row]].tolist(),
                "outcome": [OUTCOMES[k] for k in cell % 4],
            }
        )


def _effects(rows: MixedRows, units: _Units, fit: MixedFit, gap) -> np.ndarray:
    """What each unit adds to a contrast of the parameters, to first order."""
    problem, place = rows.problem, rows.place
    with jax.enable_x64(True):
        slope = outcome_slopes(problem, fit.vector)
    along = fit.covariance @ gap
    moves = np.column_stack([x @ along for x in problem.designs.values()])
    return units.sums(np.einsum("roa,ra->ro", slope, moves)[place])


def _shortest(rows: MixedRows, units: _Units, start, gap, best) -> np.ndarray | None:
    """The fewest units without which a contrast is below 0, if fewer than `best`."""
    margin = EQUAL * np.sqrt(gap @ start.covariance @ gap)

    def ahead(removed):
        refit = rows.fit(units.without(removed), fit)
        return refit if gap @ refit.vector < -margin else None

    fit = start
    for _ in range(ROUNDS):
        effect = _effects(rows, units, fit, gap)
        order = np.argsort(-effect, kind="stable")[: int(np.sum(effect > 0))]
        limit = len(order) if best is None else min(len(best) - 1, len(order))
        # Where effects add up to the difference, or just below the best so far.
        sums = np.cumsum(effect[order])
        guess = int(np.searchsorted(sums, gap @ start.vector)) + 1
        low, high, swapped = 0, min(guess if best is None else limit, limit), None
        while 0 < high and (swapped := ahead(order[:high])) is None and high < limit:
            low, high = high, min(2 * high, limit)
        if swapped is None:
            return best
        fit = swapped
        while high - low > 1:
            middle = (low + high) // 2
            swapped = ahead(order[:middle])
            low, high = (middle, high) if swapped is None else (low, middle)
            fit = fit if swapped is None else swapped
        best = order[:high]
    return best
