"""Subjects in the order of their ranks, as a table that prints as a leaderboard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.leaderboard_text import (
    leaderboard_text,
    rank_span,
    tie_ranks,
)
from irtjax.data.frames import HasTable
from irtjax.data.wording import NOUNS

if TYPE_CHECKING:
    import pyarrow as pa


class GroupNames(Sequence[tuple[str, ...]]):
    """Groups of subjects by name, made on request: overlapping groups take memory."""

    def __init__(self, names: pa.Array, groups: tuple[np.ndarray, ...]) -> None:
        self._names, self._groups = names, groups

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return GroupNames(self._names, self._groups[place])
        return tuple(self._names.take(self._groups[place]).to_pylist())


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RankedSubjects(HasTable):
    """Subjects in the order of their ranks.

    Attributes:
        table: One row per subject with a finite ability, best first: subject, ability,
            ability_se, lower, upper, rank, rank_lower, rank_upper, probability_best,
            first_group, last_group, expected_score, accuracy, both with errors and
            intervals (of accuracies at the level of the fit only), observed, flags. A
            subject is in every group from first to last; 1 is the best.
        groups: Names of each group: subjects among whom no two differ significantly.
        num_pairs: Number of pairs tested.
        num_different: How many differ, false discoveries controlled at 1 - level.
        level: Level of all intervals.
        heading: What was ranked, in a line.
        noun: What a subject is called, such as "model".
    """

    columns = ("rank", "subject", "expected_score", "expected_score_lower")
    columns += ("expected_score_upper", "ability", "ability_se", "probability_best")

    table: pa.Table
    groups: Sequence[tuple[str, ...]]
    num_pairs: int
    num_different: int
    level: float
    heading: str = ""
    noun: str = NOUNS[0]

    def _heading(self) -> str:
        return self.heading

    def _shown(self) -> pa.Table:
        """The table with the ranks that ties allow, as the text has them."""
        import pyarrow as pa

        ranks = list(map(rank_span, *(x.tolist() for x in tie_ranks(self))))
        place = self.table.column_names.index("rank")
        return self.table.set_column(place, "rank", pa.array(ranks, pa.string()))

    def _text(self) -> str:
        """The short leaderboard, as `irtjax rank` prints it."""
        return leaderboard_text(self)

    def rows(self, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        """Rows `start` to `stop` of the table."""
        length = max((self.table.num_rows if stop is None else stop) - start, 0)
        return self.table.slice(start, length).to_pylist()
