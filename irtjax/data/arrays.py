"""Small helpers for labelled host arrays: names, missing cells, compact dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

#: Most characters of a name, and of all if each had the length of the longest.
_LONGEST, _CHARACTERS = 1_000_000, 1_000_000_000
#: Most trials of a cell: a float32 holds each count of as many.
_MOST_TRIALS = 2**24


def as_labels(labels: Iterable[Any]) -> np.ndarray:
    """Returns labels as a numpy string array."""
    if not isinstance(labels, np.ndarray):
        labels = list(labels)
        # The longest determines the width of all.
        longest = max((len(x) for x in labels if isinstance(x, str)), default=0)
        if any(isinstance(x, str) and x.endswith("\0") for x in labels):
            name = next(x for x in labels if isinstance(x, str) and x.endswith("\0"))
            raise ValueError(f"the name {name!r:.80} ends with a NUL character: cut it")
        if longest > _LONGEST or longest * len(labels) > _CHARACTERS:
            raise ValueError(
                f"a name has {longest:,} characters, which is too long for one of"
                f" {len(labels):,} names; shorten it"
            )
    names = np.ascontiguousarray(labels, dtype=np.str_).reshape(-1)
    codes = names.view(np.uint32) if names.dtype.itemsize else np.zeros(0, np.uint32)
    if codes.size and codes.max() >= 0xD800 and (codes >> 11 == 0xD800 >> 11).any():
        name = next(
            x for x in names.tolist() if any("\ud800" <= c < "\ue000" for c in x)
        )
        raise ValueError(
            f"the name {name!a:.80} holds half of a surrogate pair, which is no"
            " character: replace it"
        )
    return names


def as_bytes(labels: np.ndarray) -> bytes:
    """Returns the UTF-8 bytes of labels, each after its length: ["ab"] is not "a", "b".

    >>> as_bytes(np.array(["ab"])).hex()
    '02000000000000006162'
    """
    labels = np.ascontiguousarray(labels, np.str_)
    codes = labels.view(np.uint32)
    if codes.size and codes.max() < 128:
        # One byte a character: the rows of a matrix, without what is beyond the end.
        codes = codes.astype(np.uint8).reshape(len(labels), -1)
        length = np.strings.str_len(labels)[:, None]
        rows = np.hstack([length.astype("<u8").view(np.uint8), codes])
        return rows[np.arange(rows.shape[1]) < 8 + length].tobytes()
    names = [label.encode("utf-8") for label in labels.tolist()]
    return b"".join(len(name).to_bytes(8, "little") + name for name in names)


def fill_missing(
    matrix: np.ndarray, mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Puts 0 in missing cells (NaN or masked); returns the mask, None if none is."""
    if matrix.dtype.kind not in "biuf":
        matrix = _as_numbers(matrix)
    if matrix.dtype.kind == "f":
        finite = ~np.isnan(matrix)
        mask = finite if mask is None else finite & mask
        if np.isinf(matrix, where=mask, out=np.zeros_like(mask)).any():
            row, column = np.argwhere(np.isinf(matrix) & mask)[0]
            raise ValueError(
                f"infinite value in row {row + 1}, column {column + 1}: scores must"
                " be finite; leave the cell empty if it is missing"
            )
    if mask is None or mask.all():
        return matrix, None
    if not ((matrix != 0) & ~mask).any():
        return matrix, mask
    return np.where(mask, matrix, 0).astype(matrix.dtype), mask


def _as_numbers(matrix: np.ndarray) -> np.ndarray:
    """Objects and texts as numbers; refuses what is none, with its place."""
    if matrix.dtype.kind not in "OSUT":
        raise ValueError(f"values are of type {matrix.dtype}, not numbers")
    try:
        return matrix.astype(np.float64)
    except (TypeError, ValueError):
        for place, value in np.ndenumerate(matrix):
            try:
                float(value)
            except (TypeError, ValueError):
                row, column = (k + 1 for k in place)
                raise ValueError(
                    f"row {row}, column {column} is {value!r:.80}, which is not a"
                    " number; use NaN where it is missing"
                ) from None
        raise


def checked_trials(trials: Any, values: Any, mask: np.ndarray | None) -> np.ndarray:
    """Trials as whole numbers, 0 in missing cells, behind counts that they can have.

    Args:
        trials: `[subjects, items]` numbers; 0 is missing.
        values: `[subjects, items]` counts; NaN is missing.
        mask: `[subjects, items]` observed cells; None for all.

    Raises:
        ValueError: Shapes differ, or a number cannot be; it names row and column.
    """
    trials, values = np.asarray(trials, np.float64), np.asarray(values, np.float64)
    if trials.shape != values.shape:
        raise ValueError(
            f"trials has shape {trials.shape}, but values has {values.shape}"
        )
    seen = ~np.isnan(values) & (True if mask is None else mask)
    seen &= trials != 0
    whole = (trials > 0) & (trials <= _MOST_TRIALS) & (trials == np.floor(trials))
    # An item of one trial each may have scores.
    count = seen & (trials > 1).any(axis=0)
    for wrong, what in (
        (~whole, f"trials must be whole numbers from 0 to {_MOST_TRIALS:,}"),
        (count & (values < 0), "counts must not be negative"),
        (count & (values != np.floor(values)), "counts must be whole numbers"),
        (count & (values > trials), "a count must not exceed its trials"),
    ):
        if (wrong & seen).any():
            row, column = np.argwhere(wrong & seen)[0]
            raise ValueError(
                f"row {row + 1}, column {column + 1} has"
                f" {values[row, column]:g} of {trials[row, column]:g} trials: {what};"
                " correct the cell, or give it 0 trials if it is missing"
            )
    return np.where(seen, trials, 0).astype(np.int32)


def compact(array: np.ndarray) -> np.ndarray:
    """Returns int8 when every value is an integer of that range, else float64."""
    with np.errstate(invalid="ignore"):
        small = array.astype(np.int8, copy=False)
    fits = small is array or np.array_equal(small, array)
    return np.ascontiguousarray(small if fits else array.astype(np.float64))


def names_of(what: str, labels: Iterable[Any] | None, size: int) -> np.ndarray:
    """Returns names, or numbers from 1 where there are none."""
    if labels is None:
        return as_labels(f"{what} {k}" for k in range(1, size + 1))
    names = as_labels(labels)
    if len(names) != size:
        raise ValueError(f"{len(names)} {what} names for {size} {what}s")
    return names


def check_unique(what: str, labels: np.ndarray) -> None:
    """Refuses names that occur twice."""
    names, counts = np.unique(labels, return_counts=True)
    if len(names) < len(labels):
        raise ValueError(
            f"{what} {str(names[counts.argmax()])!r:.80} occurs {counts.max()} times:"
            f" {what} names must be distinct"
        )


def places_of(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the position of each wanted name among the known ones; -1 for others."""
    place = {name: row for row, name in enumerate(names.tolist())}
    return np.array([place.get(name, -1) for name in wanted.tolist()], np.int64)


def positions(what: str, labels: np.ndarray, wanted: Any) -> np.ndarray:
    """Returns positions of names, of a mask, or all of them for None."""
    if wanted is None:
        return np.arange(len(labels))
    array = np.asarray(wanted)
    if array.dtype == np.bool_:
        if array.shape != labels.shape:
            raise ValueError(f"mask of {array.size} for {len(labels)} {what}s")
        return np.flatnonzero(array)
    if array.dtype.kind in "iu":
        return array
    names = as_labels(array)
    places = places_of(labels, names)
    if (places < 0).any():
        raise ValueError(f"no {what} named {str(names[places.argmin()])!r:.80}")
    return places
