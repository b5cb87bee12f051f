"""Ranks the subjects of a calibration and compares two of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax import ranking
from irtjax.calibration.tables import score_interval
from irtjax.data import ResponseTable, read
from irtjax.data.matching import find_names
from irtjax.ranking.accuracy import paired_difference

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration


class GroupNames(Sequence[tuple[str, ...]]):
    """Groups of subjects by name, each made when it is requested.

    Groups overlap: with many subjects all their names together are far more than there
    are subjects.
    """

    def __init__(self, names: pa.Array, groups: tuple[np.ndarray, ...]) -> None:
        """Keeps the names and, for each group, the places of its own among them."""
        self._names, self._groups = names, groups

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return GroupNames(self._names, self._groups[place])
        return tuple(self._names.take(self._groups[place]).to_pylist())


@dataclasses.dataclass(frozen=True, eq=False)
class RankedSubjects:
    """Subjects in the order of their ranks.

    Attributes:
        table: One row per subject with a finite ability, best first: subject, ability,
            ability_se, rank, probability_best, first_group, last_group, expected_score,
            accuracy, both with errors, observed, flags, and intervals with their level
            in the name, such as lower_95, upper_95, rank_lower_95, rank_upper_95
            (accuracies have one at the level of the fit only). Groups are numbered from
            1, the best; a subject is in every group from first to last.
        groups: Names of each group: subjects among whom no two differ significantly.
        num_pairs: Number of pairs tested.
        num_different: How many differ, false discoveries controlled at 1 - level.
        level: Level of all intervals.
    """

    table: pa.Table
    groups: Sequence[tuple[str, ...]]
    num_pairs: int
    num_different: int
    level: float

    def rows(self, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        """Rows `start` to `stop` of the table, names of intervals without the level."""
        ending = level_ending(self.level)
        names = [name.removesuffix(ending) for name in self.table.column_names]
        length = max((self.table.num_rows if stop is None else stop) - start, 0)
        return self.table.rename_columns(names).slice(start, length).to_pylist()


def level_ending(level: float) -> str:
    """The ending of a column's name that gives its level.

    >>> level_ending(0.95), level_ending(0.995)
    ('_95', '_99.5')
    """
    return f"_{100 * level:.10g}"


def rank(
    fit: Calibration,
    *,
    level: float | None = None,
    num_draws: int | None = None,
    seed: int | None = None,
) -> RankedSubjects:
    """Ranks the subjects of a calibration; see `irtjax.ranking.rank` for the formulas.

    Args:
        fit: The calibration.
        level: Level of the intervals; None takes that of the calibration.
        num_draws: Draws behind rank intervals and the probability of being best; None
            for 4,000. By default the intervals of more than 2,000 subjects need no
            draws; see `irtjax.ranking.crowd`.
        seed: Seed of new draws. By default, at the level of the fit, rank intervals
            and P(best) are those of its ability table.

    Returns:
        The ranked subjects.

    Raises:
        ValueError: If the level is not between 0 and 1.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> ranked = rank(irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch"))
    >>> ranked.table.column("subject")[0].as_py()
    'subject 1'
    """
    import jax
    import pyarrow as pa
    from scipy.special import ndtri

    chosen = fit.level if level is None else level
    table = fit.ability_table
    ability, error = _floats(table, "ability"), _floats(table, "ability_se")
    known = np.flatnonzero(np.isfinite(ability) & np.isfinite(error))
    # The scale of ability is estimated too, and no order depends on it.
    own, shared = ranking.without_scale(error, fit.ability_shared, fit.ability_scale)
    intervals = None
    if seed is None and num_draws is None and chosen == fit.level:
        intervals = ranking.RankIntervals(
            *(
                np.asarray(table.column(name))[known]
                for name in ("rank", "rank_lower", "rank_upper", "probability_best")
            )
        )
    result = ranking.rank(
        ability[known],
        own[known],
        key=jax.random.key(seed or 0),
        shared=None if shared is None else shared[known],
        level=chosen,
        num_draws=num_draws,
        intervals=intervals,
    )
    order = np.argsort(-ability[known], kind="stable")
    columns = {name: table.column(name) for name in table.column_names}
    columns = {k: v.take(pa.array(known[order])) for k, v in columns.items()}
    if chosen != fit.level:
        half = ndtri(0.5 + chosen / 2) * error[known][order]
        columns["lower"] = pa.array(ability[known][order] - half)
        columns["upper"] = pa.array(ability[known][order] + half)
        score, spread = (
            _floats(table, name)[known[order]]
            for name in ("expected_score", "expected_score_se")
        )
        top = max(fit.model.family.num_categories - 1, 1)
        bounds = score_interval(score, spread, top=top, level=chosen)
        columns["expected_score_lower"] = pa.array(bounds[0])
        columns["expected_score_upper"] = pa.array(bounds[1])
        # Degrees of freedom are not kept, so accuracies have no other interval.
        del columns["accuracy_lower"], columns["accuracy_upper"]
    # From the same draws as P(best), so that the two agree.
    columns["rank_lower"] = pa.array(result.rank_lower[order])
    columns["rank_upper"] = pa.array(result.rank_upper[order])
    columns["probability_best"] = pa.array(result.probability_best[order])
    columns["first_group"] = pa.array(result.first_group[order] + 1)
    columns["last_group"] = pa.array(result.last_group[order] + 1)
    names = table.column("subject").take(pa.array(known)).combine_chunks()
    groups = GroupNames(names, result.groups)
    head = ("subject", "ability", "ability_se", "lower", "upper", "rank", "rank_lower")
    head += ("rank_upper", "probability_best", "first_group", "last_group")
    rest = tuple(name for name in columns if name not in head)
    ending, ranged = (
        level_ending(chosen),
        (
            *("lower", "upper", "rank_lower", "rank_upper"),
            *("expected_score_lower", "expected_score_upper"),
            *("accuracy_lower", "accuracy_upper"),
        ),
    )
    named = {
        name + ending if name in ranged else name: columns[name] for name in head + rest
    }
    return RankedSubjects(
        pa.table(named),
        groups,
        result.num_pairs,
        result.num_different,
        chosen,
    )


def compare(
    fit: Calibration,
    first: str,
    second: str,
    *,
    data: Any = None,
    level: float | None = None,
) -> ranking.Comparison:
    """Compares two subjects of a calibration.

    Args:
        fit: The calibration.
        first: Name of one subject.
        second: Name of the other.
        data: The responses (a `ResponseTable`, or anything `irtjax.read` takes); adds
            what the two did on the items that both answered, with a sign test and the
            paired difference of accuracies (`ranking.accuracy.paired_difference`). A
            calibration does not keep responses, so these tests need the data.
        level: Level of the interval; None takes that of the calibration.

    Returns:
        The comparison, first less second.

    Raises:
        ValueError: If a name is not among the subjects, or both are the same.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> compare(fit, "subject 1", "subject 2").difference > 0
    True
    """
    places = find_names(fit.subjects, [first, second], "subject")
    if places[0] == places[1]:
        raise ValueError(f"{first!r} is compared with itself: name two subjects")
    ability = _floats(fit.ability_table, "ability")[places]
    error = _floats(fit.ability_table, "ability_se")[places]
    for name, value in zip((first, second), ability, strict=True):
        if not np.isfinite(value):
            raise ValueError(f"{name!r} has no finite ability to compare")
    table = responses = None
    if data is not None:
        table = data if isinstance(data, ResponseTable) else read(data)
        table = table.select(subjects=[first, second])
        responses = table.responses()
    chosen = fit.level if level is None else level
    rows = lambda part: None if part is None else part[places]  # noqa: E731
    result = ranking.compare(
        ability,
        error,
        0,
        1,
        shared=rows(fit.ability_shared),
        scale=rows(fit.ability_scale),
        level=chosen,
        data=responses,
    )
    return result if table is None else _with_accuracies(result, table, chosen)


def _with_accuracies(
    result: ranking.Comparison, table: ResponseTable, level: float
) -> ranking.Comparison:
    """Adds the paired difference of the accuracies of a table's two subjects."""
    exposure = table.observed if table.trials is None else table.trials
    labels = table.item_facets.get("benchmark")
    paired = paired_difference(table.values, exposure, labels, level=level)
    if paired is None:
        return result
    return result._replace(
        accuracy_difference=paired.difference,
        accuracy_se=paired.standard_error,
        accuracy_lower=paired.lower,
        accuracy_upper=paired.upper,
        accuracy_p_value=paired.p_value,
        clusters=paired.clusters,
        by_benchmark=paired.by_benchmark,
    )


def _floats(table: pa.Table, name: str) -> np.ndarray:
    import pyarrow as pa

    values = table.column(name).cast(pa.float64()).combine_chunks()
    return values.to_numpy(zero_copy_only=False)
