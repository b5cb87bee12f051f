r"""Masks of responses to predict from others: which are seen, and which are new.

Subjects and items are old or new. Responses of old subjects to old items are training
responses. A share of the others, the exposure, is training too; the rest is predicted:

| scheme | new | predicted |
|---|---|---|
| `entry` | nothing | a random part of all responses |
| `rows` | random subjects | unexposed ones of theirs |
| `rows_shifted` | subjects above a cut | unexposed ones of theirs |
| `columns` | random items | unexposed ones of theirs |
| `columns_shifted` | items of some benchmarks | unexposed ones of theirs |
| `block` ("L") | random subjects and items | those of new subjects to new items |
| `temporal` | subjects, items from a date on | unexposed ones of theirs |
| `groups` | items of each benchmark in turn | unexposed ones of theirs |
| `new_items` | items, without exposure | all of theirs |

Draws belong to the names of subjects and items, not to their places: the mask of a
table with its rows in another order is the mask in that order.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from irtjax._types import RandomKey
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.numerics.seeds import seed_of

#: Usual share of training responses, subjects or items, and of exposed responses.
SHARE, EXPOSURE = 0.8, 0.3
#: Usual number of folds.
FOLDS = 5


class Split(NamedTuple):
    """Which responses train, and which are predicted.

    Attributes:
        train: `[subjects, items]` mask of training responses.
        test: `[subjects, items]` mask of responses to predict.
        new_subjects: `[subjects]` subjects of which only exposed responses train.
        new_items: `[items]` items of which only exposed responses train.
        dropped: New subjects and items without an exposed response, whose responses are
            not predicted.
    """

    train: np.ndarray
    test: np.ndarray
    new_subjects: np.ndarray
    new_items: np.ndarray
    dropped: int = 0


def observed_cells(table: ResponseTable) -> np.ndarray:
    """`[subjects, items]` mask of the responses of a table."""
    if table.trials is not None:
        return np.asarray(table.trials > 0)
    if table.observed is None:
        return np.ones((table.num_subjects, table.num_items), bool)
    return np.asarray(table.observed)


def entry(table: ResponseTable, share: float = SHARE, *, key: RandomKey = 0) -> Split:
    """A share of all responses trains, drawn at random; the others are predicted.

    Args:
        table: The responses.
        share: Chance of a response to be one of training, between 0 and 1.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If the share is not between 0 and 1, or nothing is predicted.

    >>> split = entry(ResponseTable.from_arrays(np.eye(20)), key=1)
    >>> bool((split.train ^ split.test).all()), round(float(split.train.mean()), 1)
    (True, 0.8)
    """
    _check_share("share", share)
    none = _none(table.num_subjects), _none(table.num_items)
    split = _split(table, ~none[0], none[1], (share, share), key)
    return split._replace(new_subjects=none[0])


def rows(
    table: ResponseTable,
    share: float = SHARE,
    exposure: float = EXPOSURE,
    *,
    group: str | None = None,
    key: RandomKey = 0,
) -> Split:
    """A share of the subjects is old, drawn at random; the others are new.

    Args:
        table: The responses.
        share: Share of old subjects; with 0, and the exposure x, it is `entry` of x.
        exposure: Chance of a response of a new subject to be one of training.
        group: A facet of subjects, such as their family, whose subjects are drawn
            together: relatives of an old subject are no new ones.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If a share is not between 0 and 1, there is no such facet, or
            nothing is predicted.

    >>> table = ResponseTable.from_arrays(np.eye(10))
    >>> split = rows(table)
    >>> split.new_subjects.sum(), bool(split.train[~split.new_subjects].all())
    (np.int64(2), True)
    """
    names = table.subjects if group is None else _facet(table, "subject", group)
    new = _drawn(names, share, key)
    return _split(table, new, _none(table.num_items), (exposure, exposure), key)


def columns(
    table: ResponseTable,
    share: float = SHARE,
    exposure: float = EXPOSURE,
    *,
    key: RandomKey = 0,
) -> Split:
    """A share of the items is old, drawn at random; the others are new. As `rows`.

    >>> split = columns(ResponseTable.from_arrays(np.eye(10)))
    >>> split.new_items.sum(), bool(split.train[:, ~split.new_items].all())
    (np.int64(2), True)
    """
    new = _drawn(table.items, share, key)
    return _split(table, _none(table.num_subjects), new, (exposure, exposure), key)


def rows_shifted(
    table: ResponseTable,
    by: str = "accuracy",
    share: float = SHARE,
    exposure: float = EXPOSURE,
    *,
    reverse: bool = False,
    key: RandomKey = 0,
) -> Split:
    """The subjects above a quantile are new, such as the strongest or the largest.

    Args:
        table: The responses.
        by: "accuracy", or a facet of subjects with numbers.
        share: Share of the subjects below the cut, which are old.
        exposure: Chance of a response of a new subject to be one of training.
        reverse: Whether the subjects below 1 - share are the new ones.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If a share is not between 0 and 1, the facet is missing or has no
            numbers, or nothing is predicted.

    >>> table = ResponseTable.from_arrays(np.tri(10))
    >>> np.flatnonzero(rows_shifted(table).new_subjects).tolist()
    [8, 9]
    """
    _check_share("share", share)
    level = table.subject_accuracy()
    if by != "accuracy":
        level = _numbers(by, _facet(table, "subject", by))
    level = -level if reverse else level
    new = level > np.nanquantile(level, share)
    return _split(table, new, _none(table.num_items), (exposure, exposure), key)


def columns_shifted(
    table: ResponseTable,
    held_out: Sequence[str],
    by: str = "benchmark",
    exposure: float = EXPOSURE,
    *,
    key: RandomKey = 0,
) -> Split:
    """The items of some groups are new, such as those of a benchmark.

    Args:
        table: The responses.
        held_out: Labels of the groups.
        by: The facet of items, or of subjects, whose labels these are.
        exposure: Chance of a response to a new item, or of a new subject, to be one of
            training.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If the facet or a label is missing, all are held out, or nothing is
            predicted.

    >>> facets = {"benchmark": np.repeat(["a", "b"], 5)}
    >>> table = ResponseTable.from_arrays(np.eye(10)).replace(item_facets=facets)
    >>> columns_shifted(table, ["b"]).new_items.sum()
    np.int64(5)
    """
    of_items = by in table.item_facets
    labels = _facet(table, "item" if of_items else "subject", by)
    unknown = sorted({str(x) for x in held_out} - {str(x) for x in labels})
    if unknown:
        raise ValueError(f"no {by} is named {unknown[0]!r}: see the column {by}")
    new = np.isin(labels.astype(str), [str(x) for x in held_out])
    if new.all():
        raise ValueError(f"all groups of {by} are held out: leave some to train on")
    none = _none(table.num_subjects), _none(table.num_items)
    subjects, items = (none[0], new) if of_items else (new, none[1])
    return _split(table, subjects, items, (exposure, exposure), key)


def block(
    table: ResponseTable,
    share: tuple[float, float] = (SHARE, SHARE),
    exposure: tuple[float, float] = (EXPOSURE, EXPOSURE),
    *,
    group: str | None = None,
    key: RandomKey = 0,
) -> Split:
    """New subjects and new items: their responses to one another are predicted ("L").

    Args:
        table: The responses.
        share: Shares of old subjects and of old items.
        exposure: Chances of responses of new subjects to old items, and of old subjects
            to new items, to be ones of training.
        group: A facet of subjects which are drawn together, as for `rows`.
        key: A whole number or a JAX key.

    Raises:
        ValueError: As `rows`.

    >>> split = block(ResponseTable.from_arrays(np.eye(20)))
    >>> split.test.sum(), bool((split.train & split.test).any())
    (np.int64(16), False)
    """
    names = table.subjects if group is None else _facet(table, "subject", group)
    subjects = _drawn(names, share[0], key)
    items = _drawn(table.items, share[1], key)
    return _split(table, subjects, items, exposure, key, corner=True)


def groups(
    table: ResponseTable,
    by: str = "benchmark",
    exposure: float = EXPOSURE,
    *,
    folds: int = FOLDS,
    key: RandomKey = 0,
) -> list[Split]:
    """The items of each group in turn are new; of many groups a fold of them.

    Args:
        table: The responses.
        by: A facet of items, such as their benchmark, or of subjects, such as their
            family.
        exposure: As for `columns_shifted`.
        folds: Number of splits at most.
        key: A whole number or a JAX key.

    Raises:
        ValueError: As `columns_shifted`.

    >>> facets = {"benchmark": np.repeat(["a", "b"], 5)}
    >>> table = ResponseTable.from_arrays(np.eye(10)).replace(item_facets=facets)
    >>> [split.new_items.sum() for split in groups(table)]
    [np.int64(5), np.int64(5)]
    """
    what = "item" if by in table.item_facets else "subject"
    if by == "benchmark" and what == "subject":
        what = "item"
    names = np.unique(_facet(table, what, by).astype(str))
    if len(names) < 2:
        raise ValueError(f"{by} has one group, {str(names[0])!r}: name another column")
    order = np.random.default_rng([seed_of(key), len(names)]).permutation(len(names))
    parts = np.array_split(names[order], min(folds, len(names)))
    return [
        columns_shifted(table, part.tolist(), by, exposure, key=key) for part in parts
    ]


def cross_folds(
    table: ResponseTable,
    scheme: str = "entry",
    folds: int | np.ndarray = FOLDS,
    exposure: float = EXPOSURE,
    *,
    key: RandomKey = 0,
) -> list[Split]:
    """Splits of which each predicts one fold, for cross-validation.

    Args:
        table: The responses.
        scheme: What is divided: "entry" (responses), "rows" (subjects) or "columns"
            (items), of which a share of the responses trains.
        folds: Number of folds, or `[subjects, items]` the fold of each response.
        exposure: Share of the responses of new subjects or items that trains.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If there is no such scheme, or a fold has no response to predict.

    >>> parts = cross_folds(ResponseTable.from_arrays(np.eye(10)))
    >>> int(sum(part.test for part in parts).sum())
    100
    """
    none = _none(table.num_subjects), _none(table.num_items)
    shape = table.num_subjects, table.num_items
    if not isinstance(folds, int):
        numbers = np.asarray(folds)
        if scheme != "entry" or numbers.shape != shape:
            raise ValueError(
                f"folds of responses have shape {shape}, of the scheme 'entry', and"
                f" these have {numbers.shape}"
            )
        return [_fold(table, numbers == k) for k in np.unique(numbers)]
    most = {"entry": table.num_observed, "rows": shape[0], "columns": shape[1]}
    if scheme not in most:
        raise ValueError(f"no scheme {scheme!r} of folds; there are {', '.join(most)}")
    if not 2 <= folds <= most[scheme]:
        raise ValueError(f"folds {folds}: give 2 to {most[scheme]}")
    if scheme == "entry":
        numbers = np.floor(folds * _uniform(table, key))
        return [_fold(table, numbers == k) for k in range(folds)]
    names = table.subjects if scheme == "rows" else table.items
    number = _numbers_of_folds(names, folds, key)
    shares = exposure, exposure
    if scheme == "rows":
        return [_split(table, number == k, none[1], shares, key) for k in range(folds)]
    return [_split(table, none[0], number == k, shares, key) for k in range(folds)]


def _fold(table: ResponseTable, out: np.ndarray) -> Split:
    """The split that predicts some responses, where others are of their row, column."""
    seen = observed_cells(table)
    train, test = seen & ~out, seen & out
    test &= train.any(1, keepdims=True) & train.any(0)
    if not test.any():
        raise ValueError("a fold has no response to predict: choose fewer folds")
    none = _none(table.num_subjects), _none(table.num_items)
    return Split(train, test, none[0], none[1])


def _numbers_of_folds(names: np.ndarray, folds: int, key: RandomKey) -> np.ndarray:
    """`[names]` the number of the fold of each, which belongs to the name."""
    rng = np.random.default_rng([seed_of(key), len(names)])
    return (rng.permutation(len(names)) % folds)[np.argsort(np.argsort(names))]


def new_items(
    table: ResponseTable, *, folds: int = FOLDS, key: RandomKey = 0
) -> list[Split]:
    """Each fold of the items in turn is new, without any response to them.

    Only what is known of items in addition, such as features, predicts these.

    >>> parts = new_items(ResponseTable.from_arrays(np.eye(10)), folds=2)
    >>> bool(parts[0].train[:, parts[0].new_items].any()), len(parts)
    (False, 2)
    """
    if not 2 <= folds <= table.num_items:
        raise ValueError(
            f"folds {folds}: give 2 to {table.num_items}, the number of items"
        )
    seen, none = observed_cells(table), _none(table.num_subjects)
    fold = _numbers_of_folds(table.items, folds, key)
    return [
        Split(seen & (fold != k), seen & (fold == k), none, fold == k)
        for k in range(folds)
    ]


def temporal(
    table: ResponseTable,
    cutoff: str | None = None,
    subject_date: str | None = "date",
    item_date: str | None = None,
    exposure: float = EXPOSURE,
    *,
    key: RandomKey = 0,
) -> Split:
    """Subjects, items or both are new from a date on.

    Args:
        table: The responses.
        cutoff: The first date that is new, as 2024-05-13; None for that from which on
            the last fifth of the subjects are, or of the items.
        subject_date: Facet of subjects with dates, or None.
        item_date: Facet of items with dates, or None.
        exposure: Chance of a response of a new subject to an old item, or of an old
            subject to a new item, to be one of training.
        key: A whole number or a JAX key.

    Raises:
        ValueError: If a facet is missing or a date is none, nothing or everything is
            new, or nothing is predicted.

    >>> facets = {"date": np.array(["2024-01-01", "2024-06-01", "2024-07-01"])}
    >>> table = ResponseTable.from_arrays(np.ones((3, 9)))
    >>> table = table.replace(subject_facets=facets)
    >>> temporal(table, "2024-06-30").new_subjects.tolist()
    [False, False, True]
    """
    of_subjects = _dates(table, "subject", subject_date)
    of_items = _dates(table, "item", item_date)
    dates = of_items if of_subjects is None else of_subjects
    if dates is None:
        raise ValueError("a temporal split requires dates of subjects or items")
    if cutoff is None:
        first = np.sort(dates)[int(SHARE * len(dates))]
    else:
        first = np.datetime64(_date("cutoff", cutoff))
    new = []
    for x, size in ((of_subjects, table.num_subjects), (of_items, table.num_items)):
        later = _none(size) if x is None else x >= first
        if later.all():
            raise ValueError(
                f"all dates are {first} or later: choose a later cutoff, up to"
                f" {np.max(dates)}"
            )
        new.append(later)
    if not (new[0].any() or new[1].any()):
        raise ValueError(f"nothing is from {first} or later: choose an earlier cutoff")
    return _split(table, new[0], new[1], (exposure, exposure), key)


def _split(
    table: ResponseTable,
    new_subjects: np.ndarray,
    new_items: np.ndarray,
    exposure: tuple[float, float],
    key: RandomKey,
    *,
    corner: bool = False,
) -> Split:
    """Training and predicted responses; with `corner` new ones of both alone."""
    for share in exposure:
        _check_share("exposure", share)
    seen = observed_cells(table)
    draws = _uniform(table, key)
    row, column = new_subjects[:, None], new_items[None, :]
    train = seen & ~row & ~column
    for part, share, axis in (
        (row & ~column, exposure[0], 1),
        (~row & column, exposure[1], 0),
    ):
        train |= _exposed(seen & part, draws, share, axis)
    # Items of `entry` may have no training response either.
    alone = seen.any(0) & ~train.any(0) & ~new_items
    train |= _exposed(seen & alone, draws, 0.0, 0)
    test = seen & ~train
    if corner:
        test &= row & column
    lacking_rows, lacking_columns = ~train.any(1), ~train.any(0)
    unknown = lacking_rows[:, None] | lacking_columns
    dropped = (test & unknown).any(1) & lacking_rows
    dropped = int(dropped.sum() + ((test & unknown).any(0) & lacking_columns).sum())
    test &= ~unknown
    if not test.any():
        raise ValueError(
            f"no response of {counted(int(seen.sum()), 'response')} is left to predict:"
            " choose a smaller share or exposure, or give more responses"
        )
    return Split(train, test, new_subjects, new_items, dropped)


def _exposed(cells: np.ndarray, draws: np.ndarray, share: float, axis: int):
    """A share of cells, at least one of each row (axis 1) or column (axis 0) of them.

    Where a row has one cell alone it is exposed: it has nothing to predict.
    """
    lowest = np.where(cells, draws, np.inf)
    least = lowest.min(axis=axis, keepdims=True)
    return cells & ((draws < share) | (lowest == least))


def _uniform(table: ResponseTable, key: RandomKey) -> np.ndarray:
    """`[subjects, items]` uniform draws that belong to the names."""
    draws = np.random.default_rng(seed_of(key)).random(
        (table.num_subjects, table.num_items)
    )
    ranks = [np.argsort(np.argsort(x)) for x in (table.subjects, table.items)]
    return draws[np.ix_(*ranks)]


def _drawn(labels: np.ndarray, share: float, key: RandomKey) -> np.ndarray:
    """Which of the labels are new: all but a share of the distinct ones."""
    if share:
        _check_share("share", share)
    names = np.unique(labels)
    # Other draws than those of cells, which begin with the same seed.
    order = np.random.default_rng([seed_of(key), len(names)]).permutation(len(names))
    old = names[order[: round(share * len(names))]]
    return ~np.isin(labels, old)


def _none(size: int) -> np.ndarray:
    """No subject or item."""
    return np.zeros(size, bool)


def _check_share(name: str, share: float) -> None:
    """Refuses shares outside (0, 1)."""
    if not 0 < share < 1:
        raise ValueError(f"{name} {share:g} is not between 0 and 1, such as 0.3")


def _facet(table: ResponseTable, what: str, name: str) -> np.ndarray:
    """A facet of subjects or items by its name."""
    facets = table.subject_facets if what == "subject" else table.item_facets
    if name not in facets:
        others = ", ".join(sorted(facets)) or "none"
        raise ValueError(f"{what}s have no column {name!r}; there is {others}")
    return np.asarray(facets[name])


def _numbers(name: str, labels: np.ndarray) -> np.ndarray:
    """A facet as numbers."""
    try:
        return labels.astype(float)
    except ValueError:
        bad = next(str(x) for x in labels if not _is_number(str(x)))
        raise ValueError(f"{name} of {bad!r} is no number: give numbers") from None


def _is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _dates(table: ResponseTable, what: str, name: str | None) -> np.ndarray | None:
    """A facet of dates; None without a name."""
    if name is None:
        return None
    return np.array([_date(name, x) for x in _facet(table, what, name)], "M8[D]")


def _date(name: str, text: str) -> datetime.date:
    """A date, of which only the day counts."""
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        raise ValueError(
            f"{name} {str(text)!r} is no date: write it as 2024-05-13"
        ) from None
