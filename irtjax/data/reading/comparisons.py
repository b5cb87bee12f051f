"""Comparisons of two models from files: battles, votes, preferences, counts by pair.

Recognised by their columns are battles of Chatbot Arena in its three styles, judgments
of MT-bench and Arena-Hard, annotations of AlpacaEval, counts by pair, rankings, and any
table with two models and a winner.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.comparison_table import OUTCOMES, ComparisonTable, Label, Labels
from irtjax.data.formats import arena, rankings
from irtjax.data.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Suffixes of the files of a folder that are read.
SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".gz", ".zst")
#: Verdicts, in lower case without spaces, hyphens and underscores.
WORDS = {
    0: "modela model1 a 1 left first assistanta agenta player1 a>b a>>b".split(),
    1: "modelb model2 b 2 right second assistantb agentb player2 b>a b>>a".split(),
    2: "tie draw equal same a=b tied bothgood tie(bothgood)".split(),
    3: "bothbad tie(bothbad) neither bad".split(),
}
_VERDICT = {word: k for k, words in WORDS.items() for word in words}
#: Verdicts that a judge did not give.
_NONE = {"", "error", "none", "null", "nan", "n/a"}
#: Places of a tie, of no verdict, and of a word that is unknown.
_TIE, _MISSING, _UNKNOWN = OUTCOMES.index("tie"), -1, -2
#: Columns of the outcome.
WINNERS = ("winner", "winner_model", "preference", "verdict", "outcome", "result")
COUNTS = ("wins_a", "wins_b", "ties", "both_bad")
ONE_HOT = ("winner_model_a", "winner_model_b", "winner_tie")
#: Columns of the time of a vote.
TIMES = ("tstamp", "timestamp", "created_at", "time", "date")
#: Columns that are kept as labels where they occur.
LABELS = (
    *("question_id", "prompt_id", "instruction", "category", "judge", "annotator"),
    *("turn", "evaluation_session_id", "language", "user_id", "rater", "grader"),
    *TIMES,
)
#: Columns of whether the first of the two is better.
FIRST_IS_BETTER = re.compile(
    r"(is_)?(first|a|left|model_a|model_1)_?(is_)?(chosen|better|preferred|wins|won)"
)
#: What the side of a column is told by, as in response_a or sum_assistant_a_tokens.
_SIDE = re.compile(r"(?:(?<=_)|^)(a|b|1|2)(?=_|$)")


class _Columns(NamedTuple):
    """Names of the two models and outcomes of all rows of a file.

    Outcomes are numbers `[rows, 4]`, all 0 without a verdict, or `[rows]` places, -1
    without one.
    """

    first: Label
    second: Label
    outcomes: np.ndarray
    notes: tuple[str, ...] = ()
    rows: np.ndarray | None = None
    labels: dict[str, Label] = {}


def read_comparisons(
    data: Any,
    *,
    first: str | None = None,
    second: str | None = None,
    winner: str | None = None,
    labels: Sequence[str] = (),
    features: Sequence[str] = (),
    baseline: str = "baseline",
) -> ComparisonTable:
    """Reads comparisons of two models each.

    Args:
        data: A path or a list of paths of CSV, Parquet, JSON or JSON lines; a folder
            of them; or a data frame.
        first: Column of the first model; by default one of the usual names.
        second: Column of the second model.
        winner: Column of the outcome: `model_a`, `model_b`, `tie`, `tie (bothbad)` and
            their like, the name of the winner, or the probability that the first wins
            (also 0 and 1, false and true).
        labels: Further columns to keep, such as clusters of errors. Prompts, judges,
            categories and sessions are kept by their usual names.
        features: Covariates of the difference: a column of numbers, or the name that
            two columns have without their side, as `sum_assistant_tokens` of
            `sum_assistant_a_tokens` and `sum_assistant_b_tokens`. Of two columns a and
            b the feature is (a - b) / (a + b); texts count by their length.
        baseline: Name of the model that Arena-Hard's judgments do not name.

    Returns:
        The comparisons of all files.

    Raises:
        ValueError: If there is no file, no comparison is recognised, a column is
            missing, or a verdict is not known; the message names file, row and cure.

    >>> import pyarrow as pa
    >>> battles = {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["tie", "y"]}
    >>> read_comparisons(pa.table(battles))
    3 models · 2 comparisons · 50% ties
    """
    names = {"first": first, "second": second, "winner": winner}
    parts = [
        _part(frame, source, names, labels, features, baseline)
        for frame, source in _frames(data)
    ]
    return _together(parts)


def _frames(data: Any) -> Iterable[tuple[pa.Table | ParquetColumns, str]]:
    """Tables of all files with what to call them."""
    from irtjax.data.files import located

    entries = data if isinstance(data, (list, tuple)) else [data]
    for entry in entries:
        if not isinstance(entry, (str, Path)):
            from irtjax.data.reading.open import to_arrow

            source = f"the {type(entry).__module__.split('.')[0]} frame"
            yield to_arrow(entry, source), source
            continue
        path = located(Path(entry))
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
            if not files:
                raise ValueError(f"{path}: no file of comparisons in this folder")
            for file in files:
                yield _table_of(file), str(file)
        else:
            yield _table_of(path), str(path)


def _table_of(path: Path) -> pa.Table | ParquetColumns:
    """One file as an Arrow table."""
    from irtjax.data.reading import tabular

    suffixes = path.suffixes
    if ".parquet" in suffixes:
        return ParquetColumns(path)
    if {".json", ".jsonl"} & {*suffixes}:
        return tabular.read_json(path).table
    return tabular.read_plain_csv(path)


class ParquetColumns:
    """A Parquet file, of which only the columns that are asked for are read."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._path, self._schema = path, pq.read_schema(path)
        self.column_names: list[str] = self._schema.names
        self.num_rows: int = pq.read_metadata(path).num_rows

    def column(self, name: str) -> pa.ChunkedArray:
        """A column; texts come as codes, without a text for each row."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        is_text = pa.types.is_string(self._schema.field(name).type)
        coded = [name] if is_text else None
        # Of chunks by group of rows there are few, each with its dictionary.
        with pq.ParquetFile(self._path, read_dictionary=coded) as file:
            return file.read(columns=[name])[name]

    def flatten(self) -> pa.Table:
        """All columns, with fields of records as columns of their own."""
        import pyarrow.parquet as pq

        return pq.read_table(self._path).flatten()


def _part(
    frame: pa.Table | ParquetColumns,
    source: str,
    names: dict[str, str | None],
    labels: Sequence[str],
    features: Sequence[str],
    baseline: str,
) -> ComparisonTable:
    """The comparisons of one file."""
    own = ("ranking",) if rankings.is_ranking(frame.column_names) else ()
    for name in (*filter(None, names.values()), *labels):
        if name not in (*frame.column_names, *own):
            near = ", ".join(frame.column_names[:12])
            raise ValueError(f"{source}: there is no column {name!r}; it has {near}")
    columns = _columns(frame, source, names, baseline)
    texts = dict.fromkeys([*(x for x in LABELS if x in frame.column_names), *labels])
    texts = [name for name in texts if name not in columns.labels]
    coded = {name: _coded(frame.column(name)) for name in texts}
    values = {name: _feature(frame, source, name) for name in features}
    if columns.rows is not None:
        coded = {k: Label(x.code[columns.rows], x.names) for k, x in coded.items()}
        values = {name: x[columns.rows] for name, x in values.items()}
    outcomes, notes = columns.outcomes, columns.notes
    subjects, (first, second) = _joined([columns.first, columns.second])
    sound = np.asarray(outcomes >= 0 if outcomes.ndim == 1 else outcomes.any(axis=1))
    same = np.flatnonzero((first == second) & sound)
    if same.size:
        row = int(same[0] if columns.rows is None else columns.rows[same[0]])
        raise ValueError(
            f"{source}, row {row + 1}: {str(subjects[first[same[0]]])!r} is compared"
            " with itself; leave such rows out"
        )
    missing = int(len(sound) - np.count_nonzero(sound))
    if missing == len(sound):
        raise ValueError(f"{source}: no row has a verdict")
    table = ComparisonTable(
        subjects, first, second, outcomes, values, Labels(coded | columns.labels)
    )
    if missing:
        note = f"{source}: {counted(missing, 'row')} without a verdict left out"
        notes = (*notes, note)
        table = table.select(np.flatnonzero(sound))
        sides = np.concatenate([table.first, table.second])
        table = table.among(np.bincount(sides, minlength=table.num_subjects) > 0)
    return dataclasses.replace(table, notes=notes)


def _joined(labels: Sequence[Label]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The sorted names of several labels, and the places there of all their rows."""
    words = [x.words for x in labels]
    names = np.unique(
        np.concatenate([w[x.used()] for w, x in zip(words, labels, strict=True)])
    )
    # Names are few: a search of them is quicker than one of all rows.
    places = [np.searchsorted(names, w).astype(np.int32) for w in words]
    return names, [at[x.code] for at, x in zip(places, labels, strict=True)]


def _columns(
    frame: pa.Table | ParquetColumns,
    source: str,
    names: dict[str, str | None],
    baseline: str,
) -> _Columns:
    """The two models and the outcome of each row, by the kind of the file."""
    fields = {*frame.column_names}
    if {"games", "model"} <= fields and names["first"] is None:
        return _arena_hard(frame, source, baseline)
    is_plain = names["first"] is None and arena.sides_of(frame.column_names) is None
    if is_plain and rankings.is_ranking(frame.column_names):
        return _of_rankings(frame, source)
    won = arena.won_of(frame.column_names)
    if won is not None and names["winner"] is None:
        one, other = (_coded(frame.column(x)) for x in won)
        return _Columns(one, other, np.zeros(frame.num_rows, np.int8))
    one, other = names["first"], names["second"]
    if one is None or other is None:
        pair = arena.sides_of(frame.column_names)
        if pair is None:
            columns = ", ".join(frame.column_names[:12])
            raise ValueError(
                f"{source}: no two columns of models, such as model_a and model_b; name"
                f" them with first= and second= (columns: {columns})"
            )
        one, other = one or pair[0], other or pair[1]
    first, second = (_coded(frame.column(x)) for x in (one, other))
    for name, side in ((one, first), (other, second)):
        empty = np.flatnonzero((side.words == "")[side.code])
        if empty.size:
            raise ValueError(f"{source}, row {empty[0] + 1}: {name} is empty")
    if names["winner"] is None:
        outcomes = _usual_outcomes(frame, source)
        if outcomes is not None:
            return _Columns(first, second, outcomes)
        if {"g1_winner", "g2_winner"} <= fields:
            return _both_orders(frame, source, first, second)
    name = names["winner"] or next((x for x in WINNERS if x in fields), None)
    if name is None:
        raise ValueError(
            f"{source}: no column of the outcome, such as winner; name it with winner="
        )
    column = frame.column(name)
    if name == "preference" and names["winner"] is None:
        return _Columns(first, second, _preferences(column))
    return _Columns(first, second, _outcomes(column, source, name, first, second))


def _usual_outcomes(frame: pa.Table | ParquetColumns, source: str) -> np.ndarray | None:
    """Outcomes by counts, indicators, or whether the first is better, if there."""
    fields = {*frame.column_names}
    if {*COUNTS[:2]} <= fields:
        return _numbers_of(frame, source, COUNTS)
    if {*ONE_HOT[:2]} <= fields:
        return _numbers_of(frame, source, ONE_HOT)
    if {"g1_winner", "g2_winner"} <= fields:
        return None
    name = next(filter(FIRST_IS_BETTER.fullmatch, frame.column_names), None)
    return None if name is None else _outcomes_of_first(frame, source, name)


def _coded(column: Any) -> Label:
    """Values as coded texts; empty where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_nested(kind):
        return Label.of([str(x) for x in column.to_pylist()])
    if not pa.types.is_dictionary(kind):
        texts = pc.fill_null(pc.cast(column, pa.string()), "")
        column = pa.chunked_array(texts).dictionary_encode()
    names, code = _one_dictionary(column)
    if names.null_count or not pa.types.is_string(names.type):
        return _coded(pc.cast(column, pa.string()))
    if column.null_count:
        empty = pc.index(names, "").as_py()
        if empty < 0:
            empty, names = len(names), pa.concat_arrays([names, pa.array([""])])
        code = pc.fill_null(code, empty)
    return Label(np.asarray(code), names)


def _one_dictionary(column: Any) -> tuple[Any, Any]:
    """Dictionary and indices of a coded column, whose chunks may have their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if not chunks:
        return pa.array([], column.type.value_type), pa.array([], pa.int32())
    names = chunks[0].dictionary
    if not all(chunk.dictionary.equals(names) for chunk in chunks[1:]):
        # A search of each row is quicker than one of long dictionaries of all chunks.
        column = pc.cast(column, column.type.value_type).dictionary_encode()
        chunks, names = column.chunks, column.chunk(column.num_chunks - 1).dictionary
    return names, pa.concat_arrays([chunk.indices for chunk in chunks])


def _number(column: Any) -> np.ndarray:
    """Values as numbers; NaN where there is none. None of nested ones and texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(), np.float64)


def _numbers_of(
    frame: pa.Table | ParquetColumns, source: str, names: Sequence[str]
) -> np.ndarray:
    """Outcomes from columns of numbers, of which those without a column are 0."""
    numbers = np.zeros((frame.num_rows, len(OUTCOMES)))
    for k, name in enumerate(names):
        if name not in frame.column_names:
            continue
        # An empty cell is a count of 0.
        values = np.nan_to_num(_number(frame.column(name)), nan=0.0)
        wrong = np.flatnonzero(~(values >= 0))
        if wrong.size:
            value = frame.column(name)[int(wrong[0])].as_py()
            raise ValueError(
                f"{source}, row {wrong[0] + 1}: {name} is {value!r}, not a number of"
                " comparisons; correct it"
            )
        numbers[:, k] = values
    return numbers


def _verdict(word: str) -> int | None:
    """The place of a verdict in `outcomes`; -1 where there is none, None unknown."""
    plain = re.sub(r"[\s_\-\[\]]", "", word.lower())
    return -1 if plain in _NONE else _VERDICT.get(plain)


def _outcomes(
    column: Any, source: str, name: str, first: Label, second: Label
) -> np.ndarray:
    """Outcomes of words, of the winners' names, or of probabilities."""
    import pyarrow as pa

    if pa.types.is_floating(column.type) or _is_zero_or_one(column):
        return _of_numbers(_number(column), source, name)
    texts = _coded(column)
    words = texts.words.tolist()
    kinds = [_UNKNOWN if (k := _verdict(w)) is None else k for w in words]
    codes = np.array(kinds, np.int8)[texts.code]
    # A name of a model is no word for a side.
    for kind, side in ((1, second), (0, first)):
        place = {text: k for k, text in enumerate(side.words.tolist())}
        same = np.array([place.get(word, -1) for word in words])
        if (same >= 0).any():
            codes[same[texts.code] == side.code] = kind
    unknown = np.flatnonzero(codes == _UNKNOWN)
    if unknown.size:
        row = int(unknown[0])
        word, one, other = (x.text(row) for x in (texts, first, second))
        raise ValueError(
            f"{source}, row {row + 1}: {name} is {word!r}, neither {one!r} nor"
            f" {other!r}"
            " nor model_a, model_b, tie, both_bad; correct it, or leave the cell empty"
        )
    return codes


def _of_numbers(chance: np.ndarray, source: str, name: str) -> np.ndarray:
    """Outcomes of probabilities that the first is better; none where one is NaN."""
    wrong = np.flatnonzero((chance < 0) | (chance > 1))
    if wrong.size:
        raise ValueError(
            f"{source}, row {wrong[0] + 1}: {name} is {chance[wrong[0]]:g}, not the"
            " probability from 0 to 1 that the first is better"
        )
    return _of_chances(chance)


def _outcomes_of_first(
    frame: pa.Table | ParquetColumns, source: str, name: str
) -> np.ndarray:
    """Outcomes of 1 or true where the first is better; no outcome of an empty cell."""
    import pyarrow as pa

    column = frame.column(name)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return _of_numbers(_number(column), source, name)
    texts = _coded(column)
    places = {"true": 0, "yes": 0, "false": 1, "no": 1, "": _MISSING}
    kinds = [places.get(word.lower(), _UNKNOWN) for word in texts.words.tolist()]
    codes = np.array(kinds, np.int8)[texts.code]
    unknown = np.flatnonzero(codes == _UNKNOWN)
    if unknown.size:
        row = int(unknown[0])
        raise ValueError(
            f"{source}, row {row + 1}: {name} is {texts.text(row).lower()!r}, not true"
            " or false; name the column of the outcome with winner="
        )
    return codes


def _is_zero_or_one(column: Any) -> bool:
    """Whether cells state if the first is better, by 0 and 1; 1 and 2 are sides."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type):
        return pa.types.is_boolean(column.type)
    values = pc.unique(column).drop_null().to_pylist()  # pyright: ignore
    return {0} <= {*values} <= {0, 1}


def _of_rankings(frame: pa.Table | ParquetColumns, source: str) -> _Columns:
    """Rankings as the comparisons of two that they imply."""
    pairs = rankings.pairs_of(frame, source)
    outcomes = np.where(pairs.tie, _TIE, 0).astype(np.int8)
    number = Label.of(pairs.ranking)
    note = (
        f"{source}: {counted(len(number.names), 'ranking')} read as"
        f" {counted(len(pairs.first), 'comparison')} of two: use --model plackett_luce,"
        " or --cluster ranking for errors"
    )
    label = {"ranking": Label(number.code, number.words.astype(str))}
    first, second = Label.of(pairs.first), Label.of(pairs.second)
    return _Columns(first, second, outcomes, (note,), pairs.row, label)


def _of_chances(chance: np.ndarray) -> np.ndarray:
    """Outcomes of probabilities that the first is better; none where one is NaN."""
    finite = np.isfinite(chance)
    win = np.where(finite, chance, 0.0)
    loss = np.where(finite, 1 - chance, 0.0)
    return np.column_stack([win, loss, 0 * win, 0 * win])


def _preferences(column: Any) -> np.ndarray:
    """AlpacaEval's preferences, from 1 (the first) to 2; 0 is a draw of old files."""
    values = _number(column)
    values = np.where(values == 0, 1.5, values)
    outcomes = _of_chances(2 - values)
    # A draw is a tie, not half a win, where ties are modelled.
    outcomes[values == 1.5] = np.eye(len(OUTCOMES))[_TIE]
    return outcomes


def _both_orders(
    frame: pa.Table | ParquetColumns, source: str, first: Label, second: Label
) -> _Columns:
    """MT-bench's judgments of both orders: a win if both agree, else a tie."""
    one, other = (
        _outcomes(frame.column(x), source, x, first, second)
        for x in ("g1_winner", "g2_winner")
    )
    agree, judged = one == other, (one >= 0) & (other >= 0)
    outcomes = np.where(judged, np.where(agree, one, _TIE), _MISSING).astype(np.int8)
    share = float(agree[judged].mean()) if judged.any() else math.nan
    note = f"{source}: both orders agree in {share:.0%} of the pairs; others are ties"
    return _Columns(first, second, outcomes, (note,))


def _arena_hard(
    frame: pa.Table | ParquetColumns, source: str, baseline: str
) -> _Columns:
    """Arena-Hard's games: the baseline is first in the first game, then second."""
    model = _coded(frame.column("model"))
    rows, outcomes, swapped = [], [], []
    for row, games in enumerate(frame.column("games").to_pylist()):
        for k, game in enumerate(games or []):
            score = str((game or {}).get("score") or "")
            verdict = _verdict(score)
            if verdict is None:
                raise ValueError(
                    f"{source}, row {row + 1}: score is {score!r}, not A>>B, A>B, A=B,"
                    " B>A or B>>A"
                )
            rows.append(row)
            swapped.append(k % 2 == 1)
            outcomes.append(verdict)
    names, row, swap = [*model.words, baseline], np.array(rows, int), np.array(swapped)
    code, base = model.code[row], len(model.names)
    first = Label(np.where(swap, code, base), np.array(names))
    second = Label(np.where(swap, base, code), np.array(names))
    return _Columns(first, second, np.array(outcomes, np.int8), rows=row)


def _feature(frame: pa.Table | ParquetColumns, source: str, name: str) -> np.ndarray:
    """What the first has more of than the second."""
    if name in frame.column_names:
        return _sizes(frame.column(name), source, name)
    sides: dict[str, dict[str, Callable[[], np.ndarray]]] = {}
    # Fields of records are columns of their own.
    flat = frame.flatten()
    for column, values in zip(flat.column_names, flat.columns, strict=True):
        last = column.rsplit(".", 1)[-1]
        match = _SIDE.search(last)
        if match is None:
            continue
        stem = (last[: match.start()] + last[match.end() :]).replace("__", "_")
        side = {"1": "a", "2": "b"}.get(match[1], match[1])
        size = lambda v=values, c=column: _sizes(v, source, c)
        sides.setdefault(stem.strip("_"), {})[side] = size
    pairs = {stem for stem, sizes in sides.items() if {"a", "b"} <= sizes.keys()}
    if name not in pairs:
        names = ", ".join(sorted(pairs)) or "no pair of columns"
        raise ValueError(
            f"{source}: no covariate {name!r}: name a column of numbers, or one of"
            f" {names}"
        )
    one, other = sides[name]["a"](), sides[name]["b"]()
    total = one + other
    return np.where(total > 0, (one - other) / np.where(total > 0, total, 1), 0.0)


def _sizes(column: Any, source: str, name: str) -> np.ndarray:
    """Numbers; lengths of texts; sums of the numbers of a record."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_struct(column.type):
        fields = [column.type.field(k).name for k in range(column.type.num_fields)]
        parts = [_number(pc.struct_field(column, x)) for x in fields]  # pyright: ignore
        return np.nansum(parts, axis=0)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _number(pc.fill_null(pc.utf8_length(column), 0))  # pyright: ignore
    try:
        values = _number(column)
    except pa.ArrowInvalid:
        raise ValueError(f"{source}: column {name} has no numbers") from None
    return np.where(np.isfinite(values), values, 0.0)


def _together(parts: Sequence[ComparisonTable]) -> ComparisonTable:
    """One table of all files."""
    if len(parts) == 1:
        return parts[0]
    subjects = np.unique(np.concatenate([x.subjects for x in parts]))
    places = [np.searchsorted(subjects, x.subjects).astype(np.int32) for x in parts]
    sides = [
        np.concatenate([at[s] for at, s in zip(places, side, strict=True)])
        for side in ([x.first for x in parts], [x.second for x in parts])
    ]
    single = all(x.verdicts.ndim == 1 for x in parts)
    outcomes = [x.verdicts if single else x.outcomes for x in parts]
    common = set.intersection(*({*x.labels} for x in parts))
    labels: dict[str, Label] = {}
    for name in sorted(common):
        columns = [x.labels.coded(name) for x in parts]
        if name == "ranking":  # Each file has its own numbers of rankings.
            columns = [
                Label(x.code, np.char.add(f"{k}.", x.words))
                for k, x in enumerate(columns)
            ]
        names, codes = _joined(columns)
        labels[name] = Label(np.concatenate(codes), names)
    features = {
        name: np.concatenate([x.features[name] for x in parts])
        for name in parts[0].features
    }
    notes = tuple(note for x in parts for note in x.notes)
    return ComparisonTable.of(
        subjects,
        sides[0],
        sides[1],
        np.concatenate(outcomes),
        features=features,
        labels=labels,
        notes=notes,
    )
