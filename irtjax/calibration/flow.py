"""From ranks by accuracy, or by another fit, to ranks by ability: who moves, and why.

A subject's ability in a model with discriminations a depends on its responses y through
sum_j a_j y_j, its accuracy through sum_j y_j. With p the items' mean responses and
a-bar the mean discrimination, item j therefore moves subject i by

    (a_j / a-bar - 1) (y_ij - p_j) / n_i

on the scale of accuracy, n_i its responses: items that it got right and that
discriminate more than others move it up. This is exact for the order of subjects by a
2PL with complete responses, and a guide elsewhere. Of several abilities the derivative
of the subject's expected score with respect to its response takes the place of a_j.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts import Factors
from irtjax.calibration.tables import floats
from irtjax.data import ResponseTable, read
from irtjax.data.arrays import places_of
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import refuse_other_contents
from irtjax.data.reversal import aligned
from irtjax.data.wording import counted, have
from irtjax.numerics.order import kendall
from irtjax.ranking.ranks import TIED, tied_ranks

if TYPE_CHECKING:
    import pyarrow as pa

#: Items named as the reason of a move.
REASONS = 3
#: Accuracies that differ by less are equal: sums of scores have rounding errors.
ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RankFlow(HasTable):
    """Moves of the subjects that are in the top of both rankings.

    Attributes:
        table: A row for each, by rank: `subject`, `rank_before`, `rank`, `move` (places
            gained), `rank_lower`, `rank_upper`, `beyond` (whether `rank_before` is
            outside that interval), `before` (the accuracy, or the ability in the other
            fit), `ability`, and with responses `item_1` to `item_3`, the items that
            contribute most to the move.
        against: "accuracy" or "another fit".
        top: How many subjects are the top.
        num_subjects: Subjects that have both ranks.
        kendall: Kendall's tau of the two rankings of all of these; None where all are
            tied in one of them.
    """

    title = "Moves between two rankings"
    columns = ("subject", "rank_before", "rank", "move", "rank_lower", "rank_upper")
    columns += ("item_1",)

    table: pa.Table
    against: str
    top: int
    num_subjects: int
    kendall: float | None

    @property
    def sentence(self) -> str:
        """The result in words."""
        rows = self.table.to_pylist()
        moved = [row for row in rows if row["move"]]
        places = f"in the first {self.top:,} by {self.against} and by ability"
        if len(rows) == 1:
            text = f"1 subject is {places}, and {_one(moved)}."
        else:
            have = "has" if len(moved) == 1 else "have"
            text = f"{len(rows):,} subjects are {places}, and {len(moved):,} of them"
            text += f" {have} different ranks."
        beyond = [row for row in moved if row["beyond"]]
        if moved and moved[0]["beyond"] is not None:
            if len(beyond) == 1:
                text += " 1 moves beyond its rank interval"
            else:
                text += f" {len(beyond):,} move beyond their rank interval"
            far = sorted(beyond, key=lambda row: -abs(row["move"]))[:2]
            parts = [
                f"{x['subject']} from {x['rank_before']} to {x['rank']}" for x in far
            ]
            text += f": {', '.join(parts)}." if far else "."
        if self.kendall is None:
            return f"{text} All subjects are tied in one ranking: no Kendall's tau."
        return f"{text} Kendall's tau of all subjects is {self.kendall:.2f}."


def _one(moved: list) -> str:
    """What is stated of the ranks of the only subject."""
    return "it has different ranks" if moved else "it has the same rank in both"


def rank_flow(
    fit: Calibration,
    top: int = 50,
    against: Calibration | str = "accuracy",
    *,
    data: Any = None,
) -> RankFlow:
    """Compares ranks by ability with ranks by accuracy, or by another fit.

    Values that are equal, up to rounding, share a rank. Ranks are among the subjects
    that have both values; rank intervals are those of the fit, where these are all of
    its subjects.

    Args:
        fit: A calibration.
        top: Subjects in the first `top` of both rankings are compared.
        against: "accuracy", or another calibration, of the same subjects by name.
        data: The responses, which a calibration does not keep (a `ResponseTable`, or
            anything `irtjax.read` takes): adds the items that explain each move.

    Returns:
        The moves.

    Raises:
        ValueError: If fewer than two subjects have both ranks, or none is in both tops.

    >>> import irtjax
    >>> values = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(values), "rasch")
    >>> rank_flow(fit).table.column("move").to_pylist()  # Order of sums in any case.
    [0, 0, 0, 0]
    """
    import pyarrow as pa

    if top < 1:
        raise ValueError(f"top {top}: give 1 subject or more")
    names, ability, before, slack, finite = _values(fit, against)
    rank = tied_ranks(ability, _slack(fit)[finite])
    rank_before = tied_ranks(before, slack)
    shown = np.flatnonzero((rank <= top) & (rank_before <= top))
    if not shown.size:
        raise ValueError(f"no subject is in the first {top} of both rankings")
    shown = shown[np.lexsort((rank_before[shown], rank[shown]))]
    move = rank_before - rank
    columns: dict[str, Any] = {
        "subject": names[shown],
        "rank_before": rank_before[shown],
        "rank": rank[shown],
        "move": move[shown],
    }
    nulls = pa.nulls(len(shown))
    low = high = beyond = nulls
    if finite.all():
        low, high = (
            x[finite][shown].astype(int)
            for x in floats(fit.abilities.table, "rank_lower", "rank_upper")
        )
        beyond = (rank_before[shown] < low) | (rank_before[shown] > high)
    columns |= {"rank_lower": low, "rank_upper": high, "beyond": beyond}
    columns |= {"before": before[shown], "ability": ability[shown]}
    if data is not None:
        columns |= _reasons(fit, against, data, names[shown], move[shown])
    tau = kendall(rank_before, rank)
    tau = tau if np.isfinite(tau) else None
    said = "accuracy" if isinstance(against, str) else "another fit"
    return RankFlow(pa.table(columns), said, top, len(ability), tau)


def _slack(fit: Calibration) -> np.ndarray:
    """Differences of abilities that are rounding errors, as in `ranking.rank`."""
    return np.nan_to_num(TIED * floats(fit.abilities.table, "ability_se")[0])


def _values(fit: Calibration, against: Calibration | str):
    """Names, abilities, values before and their slack; which subjects these are."""
    names = np.asarray(fit.subject_names)
    ability, accuracy = floats(fit.abilities.table, "ability", "accuracy")
    if isinstance(against, str):
        if against != "accuracy":
            raise ValueError(f"against {against!r} is neither 'accuracy' nor a fit")
        before, slack = accuracy, np.full(len(names), ROUNDING)
    else:
        other = floats(against.abilities.table, "ability")[0]
        at = places_of(against.subject_names, names)
        before = np.where(at >= 0, other[at], np.nan)
        slack = _slack(against)[at]
    finite = np.isfinite(ability) & np.isfinite(before) & np.isfinite(accuracy)
    if finite.sum() < 2:
        raise ValueError(
            f"{counted(finite.sum(), 'subject')} {have(finite.sum())} both ranks: a"
            " comparison needs two (subjects are matched by name)"
        )
    return names[finite], ability[finite], before[finite], slack[finite], finite


def _weights(fit: Calibration, names: np.ndarray) -> np.ndarray | None:
    """`[subjects or 1, items]` weights of responses, of mean 1; None without any.

    Discriminations, or for several abilities the derivative of each subject's expected
    score with respect to its response to an item, g'C a_j over the residual variance
    of the item: g is the gradient of the expected score, C the posterior covariance.
    """
    if "discrimination" not in fit.items.table.column_names:
        return None
    if fit.factor_names:
        return _sensitivities(fit, names)
    slope = np.nan_to_num(floats(fit.items.table, "discrimination")[0])[None]
    return slope / slope.mean() if slope.mean() > 0 else None


def _sensitivities(fit: Calibration, names: np.ndarray) -> np.ndarray | None:
    """`_weights` of a factor model; None where a subject's have no positive mean."""
    import jax
    import jax.numpy as jnp

    from irtjax.likelihood.products import by_product

    factors = fit.require(Factors)
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    rows = places_of(fit.subject_names, names)
    slopes, mean = np.asarray(items.discrimination, float), factors.mean[rows]
    family, records = by_product(fit.model, items)
    score = lambda product: jax.vmap(family.expected_response)(records, product)
    rise = lambda product: jax.jvp(score, (product,), (jnp.ones_like(product),))[1]
    rises = np.asarray(jax.vmap(rise)(jnp.asarray(mean @ slopes.T)), float)
    along = np.einsum("ikl,il->ik", factors.covariance[rows], rises @ slopes)
    own = along @ slopes.T / np.asarray(family.residual_variance(items), float)
    size = own.mean(axis=1, keepdims=True)
    return own / size if (size > 0).all() else None


def _reasons(fit, against, data, names, move) -> dict[str, list[str | None]]:
    """Columns with the items that contribute most to each move, most first."""
    columns: dict[str, list[str | None]] = {
        f"item_{k + 1}": [None] * len(names) for k in range(REASONS)
    }
    after = _weights(fit, names)
    before = np.ones((1, len(fit.item_names)))
    if not isinstance(against, str):
        other = _weights(against, names)
        places = places_of(against.item_names, fit.item_names)
        if other is None or (places < 0).any():
            return columns
        refuse_other_contents(against.item_contents, fit.item_contents, "the fit")
        before = other[:, places]
    if after is None:
        return columns
    table = data if isinstance(data, ResponseTable) else read(data)
    table = aligned(table, fit.reversed_scores, fit.item_names.tolist())
    refuse_other_contents(table.item_contents, fit.item_contents, "the fit")
    table = table.select(items=fit.item_names)
    mean, weight = np.nan_to_num(table.item_accuracy()), after - before
    weight = np.broadcast_to(weight, (len(names), len(mean)))
    part = table.select(subjects=names)
    for i in np.flatnonzero(move):
        place, share = part.stored.row_of(int(i))
        # Contributions in the direction of the move, largest first.
        own = weight[i, place] * (share - mean[place]) * np.sign(move[i])
        best = np.argsort(-own, kind="stable")[:REASONS]
        for k, j in enumerate(best[own[best] > 0]):
            columns[f"item_{k + 1}"][i] = str(fit.item_names[place[j]])
    return columns
