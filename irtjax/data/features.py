"""Features of subjects or items: numbers, dates and labels as blocks of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.side_files import read_side_file
from irtjax.data.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of the principal components that many numbers are reduced to.
MOST_COLUMNS = 256
#: Share of a column's values that are numbers, or dates, from which all have to be.
MOSTLY = 0.5
#: Landmarks of the similarity, and the smallest eigenvalue relative to the largest.
LANDMARKS, SMALLEST = 200, 1e-4


class Features(NamedTuple):
    """Features of subjects or items in the order of their names.

    Attributes:
        names: Those of the responses, then others that the table has.
        numbers: `[names, columns]`, dates as days, and the names of the columns.
        labels: `[names]` texts by column.
    """

    names: np.ndarray
    numbers: np.ndarray
    columns: tuple[str, ...]
    labels: dict[str, np.ndarray]


class FeatureBlock(NamedTuple):
    """Columns whose effects have one variance.

    Attributes:
        name: Of the block: "numbers", "similarity" or a column of labels.
        levels: Names of the effects; none of principal components and similarities.
        values: `[names, levels]`.
    """

    name: str
    levels: tuple[str, ...]
    values: np.ndarray


def read_features(
    source: Any,
    names: np.ndarray,
    what: str,
    columns: Sequence[str] | None = None,
    *,
    option: str = "",
) -> Features:
    """Reads features of the subjects or items with these names.

    Args:
        source: A CSV or Parquet file, a data frame or an Arrow table with a column of
            names (`what`, or the first that has all names; without names the first);
            rows of other names are new subjects or items. Or columns by name, one of
            which may have the names, a matrix, or an .npy file, with a row for each
            name in the order of `names`.
        names: Subjects or items of the responses.
        what: "subject" or "item".
        columns: The columns to use; None for all.
        option: For messages; by default "--item-features" or "--subject-features".

    Raises:
        ValueError: Names without a row, or with two; values that are missing, or no
            number or date where the others are.

    >>> features = read_features({"size": [1, 2], "date": ["2026-01-02", "2026-01-04"]},
    ...                          np.array(["a", "b"]), "item")
    >>> features.columns, features.numbers[1].tolist()
    (('size', 'date'), [2.0, 739620.0])
    """
    place = option or f"--{what}-features"
    if isinstance(source, str | Path):
        path = Path(source)
        place = f"{place} {path}"
        if path.suffix == ".npy":
            source = _read_array(path, place)
        else:
            source = read_side_file(path, place)
    if isinstance(source, np.ndarray):
        source = _matrix(source, names, what, place)
    if isinstance(source, Mapping) and what not in source:
        content = {str(k): list(v) for k, v in source.items()}
        for name, values in content.items():
            if len(values) != len(names):
                raise ValueError(
                    f"{place}: {name!r} has {len(values):,} values, not one for each of"
                    f" the {counted(len(names), what)}"
                )
        return _features(names, content, columns, place)
    keys, content = _columns(source, names, what, place)
    row = {key: k for k, key in enumerate(keys)}
    if len(row) < len(keys):
        twice = next(key for k, key in enumerate(keys) if row[key] != k)
        raise ValueError(f"{place} has two rows for {what} {twice!r}: leave one out")
    old = [str(name) for name in names]
    lacking = [name for name in old if name not in row]
    if lacking:
        raise ValueError(
            f"{place} has no row for {what} {lacking[0]!r} ({len(lacking):,} of"
            f" {len(old):,} are missing): give each its features, or leave out its"
            " responses"
        )
    every = [*old, *(key for key in keys if key not in set(old))]
    order = [row[name] for name in every]
    content = {name: [x[k] for k in order] for name, x in content.items()}
    return _features(np.asarray(every), content, columns, place)


def _read_array(path: Path, place: str) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{place}: cannot read it: {error}") from None


def _matrix(
    array: np.ndarray, names: np.ndarray, what: str, place: str
) -> dict[str, np.ndarray]:
    if array.ndim != 2 or len(array) != len(names) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{place}: an array of shape {array.shape} and type {array.dtype}, not of"
            f" numbers with a row for each of the {counted(len(names), what)} in the"
            " order of the responses"
        )
    return {f"feature {k + 1}": x for k, x in enumerate(np.asarray(array, float).T)}


def _columns(
    source: Any, names: np.ndarray, what: str, place: str
) -> tuple[list[str], dict[str, list[Any]]]:
    """Names of the rows and the other columns of a table."""
    import pyarrow as pa

    if not isinstance(source, pa.Table):
        try:
            source = pa.table(source)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{place}: no table of features: {error}") from None
    table: pa.Table = source
    texts = {
        name: [str(x) for x in table[name].to_pylist()] for name in table.column_names
    }
    wanted = set(map(str, names))
    # Half the names, so that a table of half of them is understood and refused.
    matches = {x: len(wanted.intersection(values)) for x, values in texts.items()}
    key = what if what in texts else max(matches, key=matches.__getitem__, default=what)
    if not len(names):
        key = what if what in texts else next(iter(texts), what)
    elif what not in texts and not matches.get(key):
        raise ValueError(
            f"{place} has no column with names such as {str(names[0])!r}; it has"
            f" {', '.join(table.column_names)}"
        )
    others = [name for name in table.column_names if name != key]
    return texts[key], {name: table[name].to_pylist() for name in others}


def _features(
    names: np.ndarray,
    content: dict[str, list[Any]],
    columns: Sequence[str] | None,
    place: str,
) -> Features:
    """Columns as numbers, days or labels."""
    for name in columns or ():
        if name not in content:
            raise ValueError(
                f"{place} has no column {name!r}; it has {', '.join(content)}"
            )
    numbers: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    for name in columns or content:
        values = content[name]
        empty = next(
            (k for k, x in enumerate(values) if x is None or str(x) == ""), None
        )
        if empty is not None:
            raise ValueError(
                f"{place}: column {name!r}, {str(names[empty])!r}: no value; give one,"
                " or leave the column out"
            )
        array = numbers_or_days(values, names, f"{place}: column {name!r}")
        if array is None:
            labels[name] = np.asarray([str(x) for x in values])
        else:
            numbers[name] = array
    if not numbers and not labels:
        raise ValueError(f"{place} has no column of features")
    matrix = np.stack([*numbers.values()], axis=1) if numbers else np.zeros((0, 0))
    return Features(names, matrix.reshape(len(names), -1), tuple(numbers), labels)


def numbers_or_days(
    values: Sequence[Any], names: np.ndarray, place: str
) -> np.ndarray | None:
    """Values as numbers or days, None of labels; a column of most is one of all."""
    for parse, kind in ((_number, "number"), (_day, "date such as 2026-01-31")):
        parsed = [parse(x) for x in values]
        bad = [k for k, x in enumerate(parsed) if x is None]
        if not bad:
            return np.asarray(parsed, float)
        if len(bad) < MOSTLY * len(values):
            raise ValueError(
                f"{place}, {str(names[bad[0]])!r}: {str(values[bad[0]])!r} is not a"
                f" {kind}, as {counted(len(values) - len(bad), 'other value')} are"
            )
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _day(value: Any) -> float | None:
    if isinstance(value, date):
        return float(value.toordinal())
    try:
        return float(date.fromisoformat(str(value)[:10]).toordinal())
    except ValueError:
        return None


def blocks_of(features: Features, answered: np.ndarray) -> tuple[FeatureBlock, ...]:
    """Blocks of columns: numbers, their similarities, and labels by column.

    Numbers are standardised over those with answers. With two or more numbers, effects
    may also be any smooth function of them: the similarity of two rows is
    exp(-2 d^2 / m^2) for their distance d and the median distance m (half of it is the
    width), in the coordinates of Nystroem's approximation from some rows.

    Args:
        features: Of subjects or items.
        answered: `[names]` which have responses.
    """
    blocks = []
    numbers = features.numbers
    if numbers.shape[1]:
        own = numbers[answered]
        sd = own.std(axis=0)
        varied = sd > 1e-9 * np.maximum(np.abs(own).max(axis=0), 1e-300)
        scaled = (numbers - own.mean(axis=0))[:, varied] / sd[varied]
        names = tuple(np.asarray(features.columns)[varied].tolist())
        if scaled.shape[1] > MOST_COLUMNS:
            axes = np.linalg.svd(scaled[answered], full_matrices=False)[2]
            scaled, names = scaled @ axes[:MOST_COLUMNS].T, ()
        if scaled.shape[1]:
            blocks.append(FeatureBlock("numbers", names, scaled))
        if scaled.shape[1] > 1:
            similarity = _similarity(scaled, np.flatnonzero(answered))
            blocks.append(FeatureBlock("similarity", (), similarity))
    for name, texts in features.labels.items():
        levels, code = np.unique(texts, return_inverse=True)
        if 1 < len(levels) < len(texts):
            levels = tuple(levels.tolist())
            blocks.append(FeatureBlock(name, levels, np.eye(len(levels))[code]))
    return tuple(blocks)


def _similarity(scaled: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """Coordinates `[names, landmarks]` whose products are the similarities."""
    places = np.linspace(0, len(answered) - 1, min(LANDMARKS, len(answered)))
    landmarks = scaled[answered[places.astype(int)]]
    square = lambda x, y: np.maximum(
        np.sum(x**2, axis=1)[:, None] + np.sum(y**2, axis=1) - 2 * x @ y.T, 0
    )
    among = square(landmarks, landmarks)
    median = float(np.median(among[np.triu_indices(len(among), 1)]))
    kernel = lambda distances: np.exp(-2 * distances / max(median, 1e-12))
    values, vectors = np.linalg.eigh(kernel(among))
    large = values > SMALLEST * values[-1]
    roots = vectors[:, large] / np.sqrt(values[large])
    return kernel(square(scaled, landmarks)) @ roots
