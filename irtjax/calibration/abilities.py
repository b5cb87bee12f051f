"""Abilities with their errors, from any source: ranked and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from irtjax import ranking
from irtjax._types import RandomKey
from irtjax.calibration.rank import GroupNames, RankedSubjects
from irtjax.calibration.tables import score_interval
from irtjax.data.frames import HasTable
from irtjax.data.matching import find_two
from irtjax.data.result_text import with_level
from irtjax.data.wording import NOUNS, counted

#: Columns of the error and the interval of an ability, and of an expected score.
_ENDS = ("ability_se", "lower", "upper")
_SCORE_ENDS = tuple(f"expected_score_{end}" for end in ("se", "lower", "upper"))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Abilities(HasTable):
    """Abilities and the covariance of their errors.

    Attributes:
        names: `[subjects]` different names.
        estimates: `[subjects]` abilities.
        covariance: `[subjects, subjects]` of their errors; or `[subjects]` standard
            errors of independent ones.
        expected: `[subjects]` expected scores and their standard errors, if any;
            intervals of shares, from 0 to 1, stay in these bounds.
        observed: `[subjects]` numbers of responses or comparisons, if known.
        level: Level of intervals.
        heading: What was measured, in a line.
        noun: What a subject is called.

    Raises:
        ValueError: If names are equal, a number is not finite, or shapes differ.

    >>> names, estimates = ["a", "b", "c"], np.array([0.0, 0.1, 2.0])
    >>> abilities = Abilities(names, estimates, 0.09 * np.eye(3))
    >>> ranked = abilities.rank()
    >>> [row["subject"] for row in ranked.rows()], ranked.num_different
    (['c', 'b', 'a'], 2)
    >>> round(abilities.compare("c", "a").z, 2)
    4.71
    >>> print(ranked)  # doctest: +ELLIPSIS
    3 subjects
    ...
    """

    names: Sequence[str] | np.ndarray
    estimates: np.ndarray
    covariance: np.ndarray
    expected: tuple[np.ndarray, np.ndarray] | None = None
    observed: np.ndarray | None = None
    level: float = 0.95
    heading: str = ""
    noun: str = NOUNS[0]

    def __post_init__(self) -> None:
        """Refuses what cannot be ranked."""
        names = np.asarray(self.names)
        estimates = np.asarray(self.estimates, np.float64)
        covariance = np.asarray(self.covariance, np.float64)
        if len(np.unique(names)) != len(names):
            raise ValueError("two subjects have the same name; rename one")
        size = len(names)
        if estimates.shape != (size,) or covariance.shape not in (
            (size,),
            (size, size),
        ):
            raise ValueError(
                f"{counted(size, 'name')} with abilities of shape {estimates.shape} and"
                f" errors of shape {covariance.shape}: give [{size}] abilities and"
                f" [{size}] standard errors, or a [{size}, {size}] covariance"
            )
        if not np.isfinite(covariance).all():
            raise ValueError("a standard error or covariance is not finite")
        fields = {"names": names, "estimates": estimates, "covariance": covariance}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def standard_error(self) -> np.ndarray:
        """`[subjects]` standard errors."""
        if self.covariance.ndim == 1:
            return self.covariance
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def table(self) -> Any:
        """The abilities with ranks, best first, as a table."""
        return self.rank().table

    def rank(
        self,
        *,
        level: float | None = None,
        num_draws: int | None = None,
        key: RandomKey | None = None,
        simultaneous: bool = False,
    ) -> RankedSubjects:
        """Ranks with intervals, P(best) and pairs that differ (`ranking.rank`).

        Args:
            level: Level of the intervals and 1 - the false discovery rate.
            num_draws: Draws behind rank intervals and P(best).
            key: A whole number or a JAX key, for the draws.
            simultaneous: Whether ranks and pairs hold all together (`ranking.rank`).
        """
        import pyarrow as pa

        chosen = self.level if level is None else level
        covariance = self.covariance if self.covariance.ndim == 2 else None
        ranked = ranking.rank(
            self.estimates,
            self.standard_error,
            key=key,
            covariance=covariance,
            level=chosen,
            num_draws=num_draws,
            simultaneous=simultaneous,
        )
        order = np.argsort(-self.estimates, kind="stable")
        half = float(ndtri(0.5 + chosen / 2))
        columns = {"subject": self.names, "ability": self.estimates}
        columns |= _with_interval(_ENDS, self.estimates, self.standard_error, half)
        for name in ranking.RankIntervals._fields:
            columns[name] = getattr(ranked, name)
        columns["first_group"] = ranked.first_group + 1
        columns["last_group"] = ranked.last_group + 1
        unknown = np.full((2, len(self.names)), np.nan)
        score, error = unknown if self.expected is None else self.expected
        columns["expected_score"] = score
        columns |= _with_interval(_SCORE_ENDS, score, error, half)
        if self.expected is not None and 0 <= np.min(score) <= np.max(score) <= 1:
            # Within their bounds.
            ends = score_interval(score, error, level=chosen)
            columns["expected_score_lower"], columns["expected_score_upper"] = ends
        if self.observed is not None:
            columns["observed"] = np.asarray(self.observed)
        arrays = {
            name: pa.array(np.asarray(x)[order], from_pandas=True)
            for name, x in columns.items()
        }
        names = pa.array(self.names)
        return RankedSubjects(
            with_level(pa.table(arrays), chosen),
            GroupNames(names, ranked.groups),
            ranked.num_pairs,
            ranked.num_different,
            chosen,
            self.heading,
            self.noun,
        )

    def compare(
        self, first: str, second: str, *, level: float | None = None
    ) -> ranking.Comparison:
        """The first less the second, with the error of the difference."""
        places = find_two(np.asarray(self.names), first, second)
        comparison = ranking.compare(
            self.estimates,
            self.standard_error,
            *(int(place) for place in places),
            covariance=self.covariance if self.covariance.ndim == 2 else None,
            level=self.level if level is None else level,
        )
        return comparison._replace(first=first, second=second)


def _with_interval(names, value, error, half: float) -> dict[str, np.ndarray]:
    """Columns of a standard error and the ends of the interval."""
    columns = error, value - half * error, value + half * error
    return dict(zip(names, columns, strict=True))
