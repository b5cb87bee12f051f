"""The labelled response table on the host: who answered what, and how it was read."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from irtjax.data import arrays, item_texts
from irtjax.data.frames import HasTable
from irtjax.data.sparse_table import MATRIX_BYTES, SparseCells, is_sparse
from irtjax.data.stored_cells import AbstractStoredCells, DenseCells
from irtjax.data.wording import NOUNS, counted
from irtjax.numerics.memory import available_memory

#: Whole numbers below this are ordered categories by default, larger ones scores.
MOST_LEVELS = 21
#: Subjects below which slopes are 1 by default. Between equal subjects (100 items, 100
#: data sets) the test of a pair at 5 % was significant in 90, 29 and 20 % of the pairs
#: of 2, 3 and 5 subjects by the 2PL, in 4, 3 and 2 % by Rasch's model.
FEW_SUBJECTS = 8
#: Subjects below which mean responses are compared where slopes are free and items are
#: integrated out (`irtjax.calibration.scale`).
LEAST_INTEGRATED = 4

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data.answers import Answers
    from irtjax.data.item_texts import ItemText, SourceId
    from irtjax.data.responses import Responses
    from irtjax.data.runs import RunErrors
    from irtjax.data.sparse_responses import SparseResponses


class _Values:
    """The field ``values``: dense, also of a table that has observed cells alone."""

    def __get__(self, table: Any, owner: Any = None) -> np.ndarray:
        if table is None:
            raise AttributeError("values has no default")
        stored = vars(table)["values"]
        return stored.dense[0] if isinstance(stored, SparseCells) else stored

    def __set__(self, table: Any, value: np.ndarray | SparseCells) -> None:
        vars(table)["values"] = value


class _Observed:
    """The field ``observed``, with the mask of such a table."""

    def __get__(self, table: Any, owner: Any = None) -> np.ndarray | None:
        if table is None:
            return None  # The default.
        stored = vars(table)["values"]
        if isinstance(stored, SparseCells):
            return stored.dense[1]
        return vars(table)["observed"]

    def __set__(self, table: Any, value: np.ndarray | None) -> None:
        vars(table)["observed"] = value


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ResponseTable(HasTable):
    """Responses of named subjects to named items, with metadata; numpy only.

    Missing cells hold 0 in ``values`` and ``False`` in ``observed``. Build one with
    `irtjax.read` or `ResponseTable.from_arrays`.

    Large tables of which few cells are observed have these cells alone (`sparse`). The
    two arrays are then made when they are first used, or refused where the memory does
    not suffice; `seen` has the observed responses without them.

    Attributes:
        subjects: `[subjects]` names.
        items: `[items]` names.
        values: `[subjects, items]`, int8 if every value is an integer in [-128, 127],
            else float64; the number right where there are ``trials``.
        observed: `[subjects, items]` mask, or None when nothing is missing.
        trials: `[subjects, items]` trials behind each count, or None.
        item_facets: names `[items]` by facet, such as "benchmark".
        subject_facets: names `[subjects]` by facet.
        metric: the metric that the values measure, where known.
        lengths: `[subjects, items]` response lengths in tokens, NaN where unknown.
        notes: what reading did, in plain language.
        sources: where the data came from.
        item_texts: prompt, expected answer and most frequent wrong answer by item, cut
            to 2,000 characters, where the data had them.
        item_ids: ids of items in the harness that logged them; see `sample_ids`.
        item_contents: hashes of the content of items, where logs have them.
        reversed_scores: by item, the formula of scores of which lower is better, such
            as "1 - wer"; None of a table that was not read.
        answers: what each subject answered, where the data had it.
        nouns: what one subject and one benchmark are called, such as "model", "task".
        runs: errors of mean scores by what the responses of one run share, where
            repeated runs show it (`reading.run_errors`); None elsewhere.

    >>> table = ResponseTable.from_arrays([[1, 0], [1, np.nan]], items=["x", "y"])
    >>> table.kind, table.num_observed, table.item_accuracy().tolist()
    ('binary', 3, [1.0, 0.0])
    """

    subjects: np.ndarray
    items: np.ndarray
    values: _Values = _Values()
    observed: _Observed = _Observed()
    trials: np.ndarray | None = None
    item_facets: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    subject_facets: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    metric: str | None = None
    lengths: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    item_texts: Mapping[str, ItemText] = dataclasses.field(default_factory=dict)
    item_ids: Mapping[str, tuple[SourceId, ...]] = dataclasses.field(
        default_factory=dict
    )
    item_contents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reversed_scores: Mapping[str, str] | None = None
    answers: Answers | None = None
    nouns: tuple[str, str] = NOUNS
    runs: RunErrors | None = None

    def __post_init__(self) -> None:
        """Checks shapes and names, since labels and arrays are joined by position."""
        rows, columns = len(self.subjects), len(self.items)
        for name in ("values", "observed", "trials", "lengths"):
            array = vars(self)[name]
            if array is not None and array.shape != (rows, columns):
                raise ValueError(
                    f"{name} has shape {array.shape}, but there are"
                    f" {counted(rows, 'subject')}"
                    f" and {counted(columns, 'item')}"
                )
        if self.answers is not None and self.answers.shape != (rows, columns):
            vars(self)["answers"] = None  # Those of a table of another size.
        if self.runs is not None and len(self.runs.common) != rows:
            vars(self)["runs"] = None
        arrays.check_unique("subject", self.subjects)
        arrays.check_unique("item", self.items)
        self._clear_missing()
        for facets, size in ((self.item_facets, columns), (self.subject_facets, rows)):
            for name, labels in facets.items():
                if len(labels) != size:
                    message = f"facet {name!r} has {len(labels)} labels, not {size}"
                    raise ValueError(message)

    def _clear_missing(self) -> None:
        """Puts 0 in missing cells, which are those of NaN too; the dtype as stated."""
        stored = vars(self)
        if isinstance(stored["values"], SparseCells):
            return
        observed = stored["observed"]
        observed = None if observed is None else np.asarray(observed, bool)
        values, observed = arrays.fill_missing(stored["values"], observed)
        stored |= {"values": arrays.compact(values), "observed": observed}
        if observed is not None and self.trials is not None:
            stored["trials"] = arrays.fill_missing(self.trials, observed)[0]

    def _heading(self) -> str:
        """The sizes of the table, in a line."""
        return (
            f"{counted(self.num_subjects, 'subject')} ·"
            f" {counted(self.num_items, 'item')} ·"
            f" {counted(self.num_observed, f'{self.kind} response')}"
        )

    def _shown(self) -> pa.Table:
        """The subjects: the arrays of a sparse table are not made."""
        import pyarrow as pa

        columns = {
            "subject": pa.array(self.subjects.tolist(), pa.string()),
            "observed": pa.array(self.num_answered(1)),
            "accuracy": pa.array(self.subject_accuracy()),
        }
        return pa.table(columns)

    @property
    def num_subjects(self) -> int:
        """Number of rows."""
        return len(self.subjects)

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return len(self.items)

    @property
    def sparse(self) -> SparseCells | None:
        """The observed cells of a table that has these alone; None of a dense one."""
        stored = vars(self)["values"]
        return stored if isinstance(stored, SparseCells) else None

    @property
    def stored(self) -> AbstractStoredCells:
        """The responses as they are stored, with sums that do not depend on how."""
        if self.sparse is not None:
            return self.sparse
        return DenseCells(self.values, self.observed, self.trials)

    @property
    def cells(self) -> SparseCells:
        """The observed cells of any table."""
        if self.sparse is not None:
            return self.sparse
        observed = True if self.observed is None else self.observed
        place = np.flatnonzero(np.broadcast_to(observed, self.values.shape))
        return SparseCells.of_places(place, self.seen, self.values.shape)

    @property
    def size(self) -> int:
        """Number of cells, observed or not."""
        return self.num_subjects * self.num_items

    @property
    def seen(self) -> np.ndarray:
        """The observed responses, in the order of subjects, then of items."""
        if self.sparse is not None:
            return self.sparse.value
        return (
            self.values.ravel() if self.observed is None else self.values[self.observed]
        )

    def replace(self, **changes: Any) -> ResponseTable:
        """As `dataclasses.replace`, which would make a sparse table dense.

        >>> table = ResponseTable.from_arrays([[1, 0]])
        >>> table.replace(metric="exact match").metric
        'exact match'
        """
        return ResponseTable(**{**vars(self), **changes})

    @property
    def num_observed(self) -> int:
        """Number of cells that are not missing."""
        if self.sparse is not None:
            return len(self.sparse.value)
        if self.observed is None:
            return self.values.size
        return int(np.count_nonzero(self.observed))

    @property
    def benchmarks(self) -> np.ndarray:
        """Benchmark of each item, `[items]`; empty strings where it is not known."""
        if "benchmark" in self.item_facets:
            return self.item_facets["benchmark"]
        return np.full(self.num_items, "", dtype=np.str_)

    @property
    def run_error(self) -> np.ndarray | None:
        """Errors `[subjects]` of mean scores by runs; None where none is in `runs`."""
        return self.runs and self.runs.of_scores(self.stored, self.benchmarks)

    @property
    def kind(self) -> Literal["binary", "ordinal", "counts", "continuous"]:
        """Type of the values, which determines the models that suit them.

        "counts" has trials per cell, "binary" only 0 and 1, "ordinal" only integers;
        anything else is "continuous".
        """
        if self.trials is not None:
            return "counts"
        # Missing cells hold 0, so they do not disturb the test of small whole numbers.
        values = self.values if self.sparse is None else self.sparse.value
        if values.dtype != np.int8:
            seen = self.seen
            return "ordinal" if np.all(seen == np.rint(seen)) else "continuous"
        low, high = values.min(initial=0), values.max(initial=0)
        return "binary" if low >= 0 and high <= 1 else "ordinal"

    @property
    def binary_cells(self) -> SparseCells | None:
        """The observed cells of a sparse table if all are 0 or 1, else None."""
        return self.sparse if self.kind == "binary" else None

    def takes_cells(self, share: float) -> bool:
        """Whether a method that can takes the observed cells, not the matrix.

        It does for right or wrong responses of which at most `share` are observed, so
        that cells are the quicker way, and where the matrix does not fit into the
        memory.

        >>> ResponseTable.from_arrays([[1, 0]]).takes_cells(1.0)
        False
        """
        if self.binary_cells is None:
            return False
        few = self.num_observed <= share * self.size
        return few or MATRIX_BYTES * self.size > available_memory()

    def num_answered(self, axis: int) -> np.ndarray:
        """Observed responses of each item (axis 0) or subject (axis 1), int64.

        >>> ResponseTable.from_arrays([[1, 0], [1, np.nan]]).num_answered(1).tolist()
        [2, 1]
        """
        if self.trials is not None:
            return DenseCells(self.trials, self.trials > 0).count(axis)
        return self.stored.count(axis)

    def item_accuracy(self) -> np.ndarray:
        """Mean response per item over the observed cells, `[items]`; NaN if none."""
        return self._mean(axis=0)

    def subject_accuracy(self) -> np.ndarray:
        """Mean response per subject over observed cells, `[subjects]`; NaN if none."""
        return self._mean(axis=1)

    def _mean(self, axis: int) -> np.ndarray:
        """Means over an axis, of all trials; NaN without responses."""
        total, count = self.stored.sum(axis), self.stored.count(axis)
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def select(
        self,
        subjects: Sequence[str] | np.ndarray | None = None,
        items: Sequence[str] | np.ndarray | None = None,
    ) -> ResponseTable:
        """Returns the table of some subjects and items, in the order given.

        Args:
            subjects: names, positions, or a boolean mask `[subjects]`; None keeps all.
            items: names, positions, or a boolean mask `[items]`; None keeps all.

        Raises:
            ValueError: a name is not in the table.

        >>> table = ResponseTable.from_arrays([[1, 0], [1, 1]], items=["x", "y"])
        >>> table.select(items=["y"]).values.tolist()
        [[0], [1]]
        """
        rows = arrays.positions("subject", self.subjects, subjects)
        columns = arrays.positions("item", self.items, items)

        def cut(array: Any) -> Any:
            if array is None:
                return None
            out = array if subjects is None else array[rows]
            return out if items is None else np.ascontiguousarray(out[:, columns])

        cells, observed = self._chosen(rows, columns, cut)
        names = self.items[columns]
        reversals = self.reversed_scores
        about = self.item_texts, self.item_ids, self.item_contents, reversals
        chosen = names.tolist() if any(about) else []
        # Names of a part are distinct as those of the whole are: sorting 500,000 of
        # them again takes a tenth of a second.
        whole = (subjects, rows), (items, columns)
        distinct = all(x is None or _are_distinct(places) for x, places in whole)
        make = self._part if distinct else self.replace
        return make(
            subjects=self.subjects[rows],
            items=names,
            values=cells,
            observed=observed,
            trials=cut(self.trials),
            lengths=cut(self.lengths),
            item_facets={k: v[columns] for k, v in self.item_facets.items()},
            subject_facets={k: v[rows] for k, v in self.subject_facets.items()},
            item_texts=item_texts.chosen(self.item_texts, chosen),
            item_ids=item_texts.chosen(self.item_ids, chosen),
            item_contents=item_texts.chosen(self.item_contents, chosen),
            reversed_scores=reversals and item_texts.chosen(reversals, chosen),
            runs=self.runs and self.runs.select(rows),
            answers=self.answers
            and self.answers.select(
                None if subjects is None else rows, None if items is None else columns
            ),
        )

    def _part(self, **changes: Any) -> ResponseTable:
        """As `replace`, of fields that need no check."""
        part = object.__new__(ResponseTable)
        vars(part).update({**vars(self), **changes})
        return part

    def _chosen(self, rows, columns, cut) -> tuple[Any, np.ndarray | None]:
        """Values and mask of some subjects and items, by `cut` of a matrix."""
        if self.sparse is not None:
            part = self.sparse.select(rows, columns)
            if is_sparse(len(part.value), *part.shape):
                return part, None
            values, observed = part.dense
        else:
            values = arrays.compact(cut(self.values))
            observed = None if self.observed is None else cut(self.observed)
        return values, None if observed is None or observed.all() else observed

    def sample_ids(self, harness: str) -> dict[str, list[Any]]:
        """Returns the ids of the items in a harness, by task, to evaluate only these.

        Args:
            harness: "lm-eval", whose ``--samples`` takes this mapping as JSON, or
                "inspect", where ``sample_id`` of `inspect_ai.eval` takes a task's list.

        Raises:
            ValueError: An item is of no log of the harness, or logs differ in its id.

        >>> from irtjax.data.item_texts import SourceId
        >>> table = ResponseTable.from_arrays([[1, 0]], items=["a/3", "a/12"])
        >>> ids = {f"a/{k}": (SourceId("lm-eval", "a", f"{k}"),) for k in (3, 12)}
        >>> table = dataclasses.replace(table, item_ids=ids)
        >>> table.select(items=["a/12"]).sample_ids("lm-eval")
        {'a': [12]}
        """
        return item_texts.sample_ids(self.items.tolist(), self.item_ids, harness)

    def responses(
        self, dtype: Any = None, *, length_offset: float | None = None
    ) -> Responses:
        """Returns the arrays that enter ``jit``.

        Args:
            dtype: floating dtype for continuous values, by default that of JAX.
                Integer values stay int8, four times smaller than a float.
            length_offset: also return log(offset + length) of the responses.

        Returns:
            `Responses` with facets as integer codes in sorted order of their names.

        Raises:
            ValueError: there are no lengths, or one has no logarithm with this offset.
        """
        import jax
        import jax.numpy as jnp

        from irtjax.data.responses import Responses

        codes = {
            name: jax.device_put(
                np.unique(labels, return_inverse=True)[1].astype(np.int32)
            )
            for name, labels in self.item_facets.items()
        }
        log_length = seen = None
        if length_offset is not None:
            log_length, seen = self._log_lengths(length_offset)
            log_length = jnp.asarray(log_length, dtype)
        parts = (self.observed, self.trials, seen)
        observed, trials, seen = jax.tree.map(jnp.array, parts)
        # `asarray` without a dtype would compile a program for each shape.
        as_is = self.values.dtype == np.int8
        return Responses(
            jax.device_put(self.values) if as_is else jnp.asarray(self.values, dtype),
            observed=observed,
            trials=trials,
            item_facets=codes,
            log_length=log_length,
            length_observed=seen,
        )

    def sparse_responses(self) -> SparseResponses:
        """The arrays of the observed cells alone, of a table without trials."""
        from irtjax.data.sparse_responses import SparseResponses

        return SparseResponses.of_cells(self.cells)

    @property
    def has_lengths(self) -> bool:
        """Whether there are response lengths."""
        return self.lengths is not None

    @property
    def length_cells(self) -> np.ndarray:
        """Response lengths `[subjects, items]`, NaN where there is none."""
        if not self.has_lengths:
            return np.full((self.num_subjects, self.num_items), np.nan)
        return np.asarray(self.lengths)

    def _log_lengths(self, offset: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Logarithms, 0 where missing, and the mask of those known (None for all)."""
        if not self.has_lengths:
            raise ValueError("there are no response lengths: read them with length=")
        lengths = self.length_cells
        seen = ~np.isnan(lengths)
        shifted = np.where(seen, lengths, 1.0) + offset
        if (shifted <= 0).any():
            row, column = np.argwhere(shifted <= 0)[0]
            raise ValueError(
                f"the length {lengths[row, column]:g} of subject"
                f" {str(self.subjects[row])!r}, item {str(self.items[column])!r} has no"
                f" logarithm with the offset {offset:g}; use a larger offset"
            )
        logs = np.where(seen, np.log(shifted), 0.0)
        return logs, None if seen.all() else seen

    def data_hash(self) -> str:
        """SHA-256 of names, values, mask and trials; the same after saving and loading.

        >>> a = ResponseTable.from_arrays([[1, 0]])
        >>> a.data_hash() == ResponseTable.from_arrays([[1.0, 0.0]]).data_hash()
        True
        """
        digest = hashlib.sha256()
        for labels in (self.subjects, self.items):
            digest.update(arrays.as_bytes(labels) + b"|")
        if self._is_hashed_by_cell():
            cells = self.cells
            digest.update(b"sparse" + str(cells.value.dtype).encode())
            for array, dtype in ((cells.start, "<i8"), (cells.column, "<i4")):
                digest.update(np.ascontiguousarray(array, dtype).data)
            digest.update(np.ascontiguousarray(cells.value).data)
            return digest.hexdigest()
        values = np.ascontiguousarray(self.values)
        digest.update(str(values.dtype).encode())
        digest.update(values.data)
        if self.observed is not None:
            digest.update(b"observed" + np.packbits(self.observed).tobytes())
        if self.trials is not None:
            digest.update(b"trials" + self.trials.astype("<i4").tobytes())
        return digest.hexdigest()

    def _is_hashed_by_cell(self) -> bool:
        """A sparse table has one hash, however it is stored."""
        shape = self.num_subjects, self.num_items
        return self.trials is None and is_sparse(self.num_observed, *shape)

    def save(self, path: str | Path) -> Path:
        """Writes the table, whole or not at all, to ``.json`` or ``.parquet``.

        Returns:
            The path, which `load` and `irtjax.read` read without loss.

        Raises:
            ValueError: the ending is another, or the path cannot be written.
        """
        from irtjax.data.table_files import write_fields

        return write_fields(vars(self), Path(path))

    @staticmethod
    def load(path: str | Path) -> ResponseTable:
        """Reads a table that `save` wrote.

        Raises:
            ValueError: there is no such file, or it is not a saved table.
        """
        from irtjax.data.table_files import read_fields

        return read_fields(Path(path), ResponseTable)

    @staticmethod
    def from_arrays(
        values: Any,
        *,
        subjects: Iterable[Any] | None = None,
        items: Iterable[Any] | None = None,
        observed: Any = None,
        trials: Any = None,
        benchmark: Iterable[Any] | None = None,
        metric: str | None = None,
        lengths: Any = None,
        notes: Iterable[str] = (),
        sources: Iterable[str] = (),
    ) -> ResponseTable:
        """Builds a table from a matrix; NaN, or False in ``observed``, is missing.

        Args:
            values: `[subjects, items]` numbers or booleans.
            subjects: names; None numbers them from 1.
            items: names; None numbers them from 1.
            observed: `[subjects, items]` mask.
            trials: `[subjects, items]` trials per cell, 0 where missing; ``values``
                are then counts.
            benchmark: benchmark of each item.
            metric: name of the metric.
            lengths: `[subjects, items]` response lengths.
            notes: plain-language notes.
            sources: where the data came from.

        Raises:
            ValueError: shapes disagree, names repeat, a value is infinite, trials are
                no whole numbers from 0 on, or a count exceeds its trials.

        >>> ResponseTable.from_arrays([[0.2, 0.5]], subjects=["m"]).kind
        'continuous'
        """
        matrix = np.asarray(values)
        if matrix.ndim != 2:
            raise ValueError(
                f"values must be a matrix of subjects by items, not {matrix.ndim}-d"
            )
        mask = None if observed is None else np.asarray(observed, dtype=bool)
        if trials is not None:
            trials = arrays.checked_trials(trials, matrix, mask)
            mask = trials > 0
        matrix, mask = arrays.fill_missing(matrix, mask)
        facets = {} if benchmark is None else {"benchmark": arrays.as_labels(benchmark)}
        return ResponseTable(
            subjects=arrays.names_of("subject", subjects, matrix.shape[0]),
            items=arrays.names_of("item", items, matrix.shape[1]),
            values=arrays.compact(matrix),
            observed=mask,
            trials=trials,
            item_facets=facets,
            metric=metric,
            lengths=None if lengths is None else np.asarray(lengths, dtype=np.float64),
            notes=tuple(notes),
            sources=tuple(sources),
        )

    @staticmethod
    def from_cells(
        cells: SparseCells,
        *,
        subjects: Iterable[Any],
        items: Iterable[Any],
        benchmark: Iterable[Any] | None = None,
        metric: str | None = None,
        notes: Iterable[str] = (),
    ) -> ResponseTable:
        """Builds a table of observed cells; the other arguments as for `from_arrays`.

        >>> from irtjax.data.sparse_table import SparseCells
        >>> cells = SparseCells.of([0, 1], [1, 0], [1, 0], (2, 2))
        >>> table = ResponseTable.from_cells(cells, subjects="ab", items="xy")
        >>> table.num_observed, table.values.tolist()
        (2, [[0, 1], [0, 0]])
        """
        facets = {} if benchmark is None else {"benchmark": arrays.as_labels(benchmark)}
        return ResponseTable(
            subjects=arrays.names_of("subject", subjects, cells.shape[0]),
            items=arrays.names_of("item", items, cells.shape[1]),
            values=cells,
            item_facets=facets,
            metric=metric,
            notes=tuple(notes),
        )


def _are_distinct(places: np.ndarray) -> bool:
    """Whether no position occurs twice; negative ones are not looked at."""
    return bool(places.size == 0 or places.min() >= 0 and np.bincount(places).max() < 2)
