r"""Iterative filtering of items by the signs of their correlations, with its null.

Items of one ability correlate positively. Items with the largest share of negative
tetrachoric correlations are left out, round by round, and the share of negative
correlations falls. It also falls without any bad item: of few subjects, signs of weak
correlations are chance, and leaving out those with most of them selects on this chance.
So each round is compared with tables simulated from a model of one ability that fits
the responses, and with signs in subjects that did not choose the items.

The sign of a tetrachoric correlation is that of :math:`ad - bc` of its two by two
table, with 0.5 added to each cell where one is empty. All rounds use one product of the
responses.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from irtjax._types import RandomKey
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.fitting.fit import fit as fit_table
from irtjax.numerics.memory import require_memory
from irtjax.numerics.seeds import seed_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Simulated tables, and the central share of them that is the band.
TABLES, BAND = 20, 0.95


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Filtered(HasTable):
    """Rounds of a filter of items.

    Attributes:
        table: A row for each round, 0 before any: `round`, `items`, `negative` (share
            of the pairs with a negative correlation), `null`, `null_lower`,
            `null_upper` (mean and band of simulated tables), and `other_half` (share in
            the other half of subjects of items that one half chose).
        items: A row for each item that was left out until `stop`: `item`, `benchmark`,
            `round`.
        stop: First round whose share is within the band, or None.
        sentence: The result in words.
    """

    title = "Filtered items"

    table: pa.Table
    items: pa.Table
    stop: int | None
    sentence: str


def filter_items(
    data: ResponseTable | Any,
    *,
    rounds: int = 9,
    drop: int | None = None,
    tables: int = TABLES,
    key: RandomKey = 0,
) -> Filtered:
    """Leaves out items with many negative correlations, beside what chance would do.

    `irtjax.audit` is the tool to find bad items: it controls errors for each. This
    shows what a filter by signs does, and where it ends.

    Args:
        data: Right and wrong responses: a `ResponseTable`, or what `irtjax.read` takes.
        rounds: Rounds.
        drop: Items to leave out in a round; None for 5 % of them.
        tables: Simulated tables of the null; 0 for none.
        key: Seed of simulated tables and of the halves.

    Returns:
        Rounds with their nulls, and the items left out before the shares are those of
        one ability.

    Raises:
        ValueError: Responses are not right or wrong, or too few items are left.

    >>> import irtjax
    >>> result = filter_items(irtjax.make_demo().table, rounds=1, tables=0)
    >>> result.table["round"].to_pylist()
    [0, 1]
    """
    import pyarrow as pa

    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    if data.kind != "binary" or data.trials is not None:
        raise ValueError("filtering needs right and wrong responses, one a cell")
    mean = data.item_accuracy()
    table = data.select(items=(mean > 0) & (mean < 1))
    count = table.num_items
    drop = max(round(0.05 * count), 1) if drop is None else drop
    if rounds < 1 or drop < 1 or count - rounds * drop < 3:
        raise ValueError(
            f"{rounds} rounds of {drop} leave fewer than 3 of {count:,} items that"
            " some and not all solve: give fewer"
        )
    require_memory(13.0 * count**2, f"signs of pairs of {count:,} items", "use fewer")
    right = np.asarray(table.values, np.float32)
    seen = None if table.observed is None else np.asarray(table.observed, np.float32)
    rng = np.random.default_rng(seed_of(key))
    shares, chosen = _shares(right, seen, rounds, drop)
    half = rng.permutation(len(right)) < len(right) // 2
    cut = lambda rows: (right[rows], None if seen is None else seen[rows])
    judged = _signs(*cut(~half))
    own, there = cut(half)
    other = _shares(own, there, rounds, drop, judged)[0]
    band = np.full((3, rounds + 1), np.nan)
    if tables:
        chance = simulated_chances(table, rng, tables)
        null = np.array(
            [
                _shares((rng.random(p.shape) < p) * _one(seen), seen, rounds, drop)[0]
                for p in chance
            ]
        )
        edges = np.quantile(null, [(1 - BAND) / 2, (1 + BAND) / 2], axis=0)
        band = np.stack([null.mean(axis=0), *edges])
    within = np.flatnonzero(shares <= band[2])
    stop = int(within[0]) if len(within) else None
    last = rounds if stop is None else stop
    places = np.concatenate(chosen[:last]) if last else np.zeros(0, int)
    return Filtered(
        pa.table(
            {
                "round": np.arange(rounds + 1),
                "items": count - drop * np.arange(rounds + 1),
                "negative": shares,
                **dict(zip(("null", "null_lower", "null_upper"), band, strict=True)),
                "other_half": other,
            }
        ),
        pa.table(
            {
                "item": pa.array(table.items[places].astype(str).tolist(), pa.string()),
                "benchmark": pa.array(
                    np.asarray(table.benchmarks)[places].astype(str).tolist(),
                    pa.string(),
                ),
                "round": np.repeat(np.arange(last) + 1, drop),
            }
        ),
        stop,
        _sentence(shares, band, stop, tables),
    )


def _one(seen: np.ndarray | None) -> np.ndarray | float:
    return 1.0 if seen is None else seen


def _signs(right: np.ndarray, seen: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs correlate negatively, and which correlate at all, `[items, items]`.

    The products of single precision are exact up to 16 million subjects.
    """
    right = np.asarray(right, np.float32)
    joint = right.T @ right
    if seen is None:
        total = np.float32(len(right))
        first = np.broadcast_to(np.diag(joint)[:, None], joint.shape)
    else:
        total, first = seen.T @ seen, right.T @ seen
    second = first.T
    neither = total - first - second + joint
    least = np.minimum(np.minimum(joint, neither), np.minimum(first, second) - joint)
    half = np.where(least < 0.5, np.float32(0.5), np.float32(0))
    product = (joint + half) * (neither + half)
    product = product - (first - joint + half) * (second - joint + half)
    varied = (first > 0) & (first < total) & (second > 0) & (second < total)
    np.fill_diagonal(varied, False)
    return (product < 0) & varied, varied


def _shares(
    right,
    seen,
    rounds: int,
    drop: int,
    judged: tuple[np.ndarray, np.ndarray] | None = None,
):
    """Shares of negative pairs by round, in `judged` signs, and items left out.

    Args:
        right: `[subjects, items]` right responses, 0 where missing.
        seen: Which are there; None for all.
        rounds: Rounds.
        drop: Items of a round.
        judged: Signs and pairs of which shares are stated; None for those that choose.
    """
    negative, pairs = _signs(right, seen)
    judged = judged or (negative, pairs)
    alive = np.ones(len(negative), bool)
    counts, of = negative.sum(axis=1), pairs.sum(axis=1)
    shares, chosen = [_share(*judged, alive)], []
    for _ in range(rounds):
        rank = np.where(alive, counts / np.maximum(of, 1), -1)
        worst = np.argsort(-rank, kind="stable")[:drop]
        alive[worst] = False
        counts = counts - negative[:, worst].sum(axis=1)
        of = of - pairs[:, worst].sum(axis=1)
        chosen.append(worst)
        shares.append(_share(*judged, alive))
    return np.asarray(shares), chosen


def _share(negative: np.ndarray, pairs: np.ndarray, alive: np.ndarray) -> float:
    """Share of negative pairs among items."""
    row = alive.astype(np.float32)
    return float(row @ (negative @ row)) / max(float(row @ (pairs @ row)), 1.0)


def simulated_chances(table: ResponseTable, rng: np.random.Generator, tables: int):
    """Chances of right responses of one ability, of a new draw of abilities each."""
    # Slopes above 0: negative ones would describe a reversed item, which is bad.
    fit = fit_table(table, "2pl", method="em", positive=True, standard_errors="none")
    items = fit.parameters.items
    slope, intercept = (
        np.asarray(x, float) for x in (items.discrimination, items.intercept)
    )
    for _ in range(tables):
        ability = rng.normal(size=(table.num_subjects, 1))
        yield expit(slope * ability + intercept)


def _sentence(shares, band, stop: int | None, tables: int) -> str:
    """The result in words."""
    start = f"{100 * shares[0]:.2f} % of the correlations are negative"
    if not tables:
        return f"{start}, {100 * shares[-1]:.2f} % after the last round."
    null = f"one ability alone would give {100 * band[1][0]:.2f} to "
    null += f"{100 * band[2][0]:.2f} %"
    if stop == 0:
        return f"{start}; {null}: no item has to go."
    if stop is None:
        return f"{start}; {null}. After the last round there are still more."
    return (
        f"{start}; {null}. From round {stop} on the rest is as consistent as one"
        " ability would be."
    )
