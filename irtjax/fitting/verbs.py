"""Verbs on a fit that also take responses, of which they make the default fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irtjax import ranking
from irtjax._types import RandomKey
from irtjax.calibration import compare as of_fit
from irtjax.calibration.abilities import Abilities
from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable, read
from irtjax.fitting.fit import fit as make_fit

if TYPE_CHECKING:
    from irtjax.calibration.rank import RankedSubjects


def rank(
    fit: Calibration | Any,
    *,
    level: float | None = None,
    num_draws: int | None = None,
    key: RandomKey | None = None,
    simultaneous: bool = False,
) -> RankedSubjects:
    """Ranks the subjects of a fit; see `irtjax.ranking.rank` for the formulas.

    Args:
        fit: A fit, of responses or of comparisons; `irtjax.Abilities`; or responses
            (a `ResponseTable`, or anything that `irtjax.read` takes), of which
            `irtjax.fit` makes one.
        level: Level of the intervals; None takes that of the fit.
        num_draws: Draws behind rank intervals and P(best); None as for
            `irtjax.ranking.rank`.
        key: A whole number or a JAX key, for new draws. By default, at the level of the
            fit, rank intervals and P(best) are those of its abilities.
        simultaneous: Whether all ranks lie in their intervals together with the chance
            `level`, and the chance that any pair of equal abilities counts as different
            is 1 - `level` at most; otherwise the false discovery rate is.

    Returns:
        The ranked subjects.

    Raises:
        ValueError: If the level is not between 0 and 1, or the responses cannot be
            read.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> ranked = rank(irtjax.ResponseTable.from_arrays(data))
    >>> ranked.table.column("subject")[0].as_py()
    'subject 1'
    """
    options: dict[str, Any] = {"level": level, "num_draws": num_draws, "key": key}
    options["simultaneous"] = simultaneous
    if isinstance(abilities := getattr(fit, "abilities", fit), Abilities):
        return abilities.rank(**options)
    fitted, _ = _fitted(fit)
    return fitted.rank(**options)


def compare(
    fit: Calibration | Any,
    first: str,
    second: str,
    *,
    data: Any = None,
    level: float | None = None,
) -> ranking.Comparison:
    """Compares two subjects of a fit, first less second.

    Args:
        fit: A fit or `irtjax.Abilities`; or responses, as for `rank`, which are then
            also the `data`.
        first: Name of one subject.
        second: Name of the other.
        data: The responses of a fit (a `ResponseTable`, or anything that `irtjax.read`
            takes): adds a sign test on the items that both answered and the paired
            difference of accuracies (`ranking.accuracy`).
        level: Level of the interval; None takes that of the fit.

    Returns:
        The comparison.

    Raises:
        ValueError: If a name is not among the subjects, both are the same, or the
            responses cannot be read.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> compare(table, "subject 1", "subject 2").accuracy_difference
    0.5
    """
    if isinstance(abilities := getattr(fit, "abilities", fit), Abilities):
        return abilities.compare(first, second, level=level)
    fitted, table = _fitted(fit)
    data = table if data is None else data
    return of_fit.compare(fitted, first, second, data=data, level=level)


def _fitted(fit: Calibration | Any) -> tuple[Calibration, ResponseTable | None]:
    """A fit as it is; of responses their fit and the table."""
    if isinstance(fit, Calibration):
        return fit, None
    table = fit if isinstance(fit, ResponseTable) else read(fit)
    return make_fit(table), table
