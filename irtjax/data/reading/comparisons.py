"""Comparisons of two models from files: battles, votes, preferences, counts by pair.

Recognised by their columns are battles of Chatbot Arena in its three styles, judgments
of MT-bench and Arena-Hard, annotations of AlpacaEval, counts by pair, rankings, and any
table with two models and a winner.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.comparison_table import ComparisonTable
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
    """Names of the two models and outcomes of all rows of a file."""

    first: np.ndarray
    second: np.ndarray
    outcomes: np.ndarray
    notes: tuple[str, ...] = ()
    rows: np.ndarray | None = None
    labels: Mapping[str, np.ndarray] = {}


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


def _frames(data: Any) -> Iterable[tuple[pa.Table, str]]:
    """Tables of all files with what to call them."""
    from irtjax.data.files import located

    entries = data if isinstance(data, (list, tuple)) else [data]
    for entry in entries:
        if not isinstance(entry, (str, Path)):
            from irtjax.data.reading.read import to_arrow

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


def _table_of(path: Path) -> pa.Table:
    """One file as an Arrow table."""
    from irtjax.data.reading import tabular

    suffixes = path.suffixes
    if ".parquet" in suffixes:
        import pyarrow.parquet as pq

        return pq.read_table(path)
    if {".json", ".jsonl"} & {*suffixes}:
        return tabular.read_json(path).table
    return tabular.read_plain_csv(path)


def _part(
    frame: pa.Table,
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
    found = _columns(frame, source, names, baseline)
    rows = np.arange(len(found.first)) if found.rows is None else found.rows
    kept = [x for x in LABELS if x in frame.column_names]
    kept = dict.fromkeys(x for x in [*kept, *labels] if x in frame.column_names)
    kept = [x for x in kept if x not in found.labels]
    sound = found.outcomes.sum(axis=1) > 0
    notes = list(found.notes)
    if not sound.all():
        count = int((~sound).sum())
        notes.append(f"{source}: {counted(count, 'row')} without a verdict left out")
    pick = rows[sound]
    # Names are few: a search in them is quicker than a sort of all rows.
    sides = found.first[sound], found.second[sound]
    subjects = np.union1d(*map(np.unique, sides))
    first, second = (np.searchsorted(subjects, side) for side in sides)
    same = np.flatnonzero(first == second)
    if same.size:
        row, name = int(pick[same[0]]), str(subjects[first[same[0]]])
        raise ValueError(
            f"{source}, row {row + 1}: {name!r} is compared with itself; leave such"
            " rows out"
        )
    if not len(first):
        raise ValueError(f"{source}: no row has a verdict")
    return ComparisonTable.of(
        subjects,
        first,
        second,
        found.outcomes[sound],
        features={x: _feature(frame, source, x)[pick] for x in features},
        labels={
            **{x: _texts(frame.column(x))[pick] for x in kept},
            **{name: values[sound] for name, values in found.labels.items()},
        },
        notes=tuple(notes),
    )


def _columns(
    frame: pa.Table, source: str, names: dict[str, str | None], baseline: str
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
        outcome = np.tile([1.0, 0, 0, 0], (frame.num_rows, 1))
        one, other = (_texts(frame.column(x)) for x in won)
        return _Columns(one, other, outcome)
    one, other = names["first"], names["second"]
    if one is None or other is None:
        pair = arena.sides_of(frame.column_names)
        if pair is None:
            have = ", ".join(frame.column_names[:12])
            raise ValueError(
                f"{source}: no two columns of models, such as model_a and model_b; name"
                f" them with first= and second= (columns: {have})"
            )
        one, other = one or pair[0], other or pair[1]
    first, second = (_texts(frame.column(x)) for x in (one, other))
    for name, side in ((one, first), (other, second)):
        empty = np.flatnonzero(side == "")
        if empty.size:
            raise ValueError(f"{source}, row {empty[0] + 1}: {name} is empty")
    if names["winner"] is None:
        if {*COUNTS[:2]} <= fields:
            return _Columns(first, second, _numbers_of(frame, source, COUNTS))
        if {*ONE_HOT[:2]} <= fields:
            return _Columns(first, second, _numbers_of(frame, source, ONE_HOT))
        if {"g1_winner", "g2_winner"} <= fields:
            return _both_orders(frame, source, first, second)
        of_first = next(filter(FIRST_IS_BETTER.fullmatch, frame.column_names), None)
        if of_first is not None:
            outcomes = _outcomes_of_first(frame.column(of_first), source, of_first)
            return _Columns(first, second, outcomes)
    name = names["winner"] or next((x for x in WINNERS if x in fields), None)
    if name is None:
        raise ValueError(
            f"{source}: no column of the outcome, such as winner; name it with winner="
        )
    column = frame.column(name)
    if name == "preference" and names["winner"] is None:
        return _preferences(column, first, second)
    return _Columns(first, second, _outcomes(column, source, name, first, second))


def _texts(column: Any) -> np.ndarray:
    """Values as texts; empty where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_nested(kind):
        return np.array([str(x) for x in column.to_pylist()])
    texts = pc.fill_null(pc.cast(column, pa.string()), "")
    coded = pa.chunked_array(texts).dictionary_encode().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    words = np.array(coded.dictionary.to_pylist() or [""])
    return words[np.asarray(coded.indices)]


def _number(column: Any) -> np.ndarray:
    """Values as numbers; NaN where there is none. None of nested ones and texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    found = pc.cast(column, pa.float64()).to_numpy()
    return np.asarray(found, np.float64)


def _numbers_of(frame: pa.Table, source: str, names: Sequence[str]) -> np.ndarray:
    """Outcomes from columns of numbers, of which those without a column are 0."""
    found = np.zeros((frame.num_rows, 4))
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
        found[:, k] = values
    return found


def _verdict(word: str) -> int | None:
    """The place of a verdict in `outcomes`; -1 where there is none, None unknown."""
    plain = re.sub(r"[\s_\-\[\]]", "", word.lower())
    return -1 if plain in _NONE else _VERDICT.get(plain)


def _outcomes(
    column: Any, source: str, name: str, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Outcomes of words, of the winners' names, or of probabilities."""
    import pyarrow as pa

    if pa.types.is_floating(column.type) or _is_zero_or_one(column):
        chance = _number(column)
        wrong = np.flatnonzero((chance < 0) | (chance > 1))
        if wrong.size:
            raise ValueError(
                f"{source}, row {wrong[0] + 1}: {name} is {chance[wrong[0]]:g}, not the"
                " probability from 0 to 1 that the first is better"
            )
        return _of_chances(chance)
    texts = _texts(column)
    words, places = np.unique(texts, return_inverse=True)
    codes = np.array([-2 if (k := _verdict(w)) is None else k for w in words])[places]
    # A name of a model is no word for a side.
    codes = np.where(texts == first, 0, np.where(texts == second, 1, codes))
    unknown = np.flatnonzero(codes == -2)
    if unknown.size:
        row = int(unknown[0])
        word, one, other = (str(x[row]) for x in (texts, first, second))
        raise ValueError(
            f"{source}, row {row + 1}: {name} is {word!r}, neither {one!r} nor"
            f" {other!r}"
            " nor model_a, model_b, tie, both_bad; correct it, or leave the cell empty"
        )
    return np.where(codes[:, None] == np.arange(4), 1.0, 0.0)


def _outcomes_of_first(column: Any, source: str, name: str) -> np.ndarray:
    """Outcomes of 1 or true where the first is better; no outcome of an empty cell."""
    import pyarrow as pa

    words = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0, "": np.nan}
    if not pa.types.is_floating(column.type) and not pa.types.is_integer(column.type):
        texts = [text.lower() for text in _texts(column).tolist()]
        wrong = next((k for k, x in enumerate(texts) if x not in words), None)
        if wrong is not None:
            raise ValueError(
                f"{source}, row {wrong + 1}: {name} is {texts[wrong]!r}, not true or"
                " false; name the column of the outcome with winner="
            )
        column = pa.chunked_array([[words[text] for text in texts]])
    return _outcomes(column.cast(pa.float64()), source, name, *2 * (np.zeros(0),))


def _is_zero_or_one(column: Any) -> bool:
    """Whether cells state if the first is better, by 0 and 1; 1 and 2 are sides."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(column.type):
        return True
    values = pc.unique(column).drop_null().to_pylist()  # pyright: ignore
    return pa.types.is_integer(column.type) and {0} <= {*values} <= {0, 1}


def _of_rankings(frame: pa.Table, source: str) -> _Columns:
    """Rankings as the comparisons of two that they imply."""
    found = rankings.pairs_of(frame, source)
    outcomes = np.where(found.tie[:, None], np.eye(4)[2], np.eye(4)[0])
    count = len(np.unique(found.ranking))
    note = (
        f"{source}: {counted(count, 'ranking')} read as"
        f" {counted(len(found.first), 'comparison')} of two: use --model plackett_luce,"
        " or --cluster ranking for errors"
    )
    label = {"ranking": np.char.add("", found.ranking.astype(str))}
    return _Columns(found.first, found.second, outcomes, (note,), found.row, label)


def _of_chances(chance: np.ndarray) -> np.ndarray:
    """Outcomes of probabilities that the first is better; none where one is NaN."""
    known = np.where(np.isfinite(chance), chance, 0.0)
    rest = np.where(np.isfinite(chance), 1 - chance, 0.0)
    return np.column_stack([known, rest, 0 * known, 0 * known])


def _preferences(column: Any, first: np.ndarray, second: np.ndarray) -> _Columns:
    """AlpacaEval's preferences, from 1 (the first) to 2; 0 is a draw of old files."""
    values = _number(column)
    values = np.where(values == 0, 1.5, values)
    outcomes = _of_chances(2 - values)
    # A draw is a tie, not half a win, where ties are modelled.
    draw = values == 1.5
    outcomes[draw] = [0.0, 0.0, 1.0, 0.0]
    return _Columns(first, second, outcomes)


def _both_orders(
    frame: pa.Table, source: str, first: np.ndarray, second: np.ndarray
) -> _Columns:
    """MT-bench's judgments of both orders: a win if both agree, else a tie."""
    one, other = (
        _outcomes(frame.column(x), source, x, first, second)
        for x in ("g1_winner", "g2_winner")
    )
    agree = (one == other).all(axis=1)
    judged = (one.sum(axis=1) > 0) & (other.sum(axis=1) > 0)
    outcomes = np.where(agree[:, None], one, [0.0, 0.0, 1.0, 0.0]) * judged[:, None]
    share = float(agree[judged].mean()) if judged.any() else math.nan
    note = f"{source}: both orders agree in {share:.0%} of the pairs; others are ties"
    return _Columns(first, second, outcomes, (note,))


def _arena_hard(frame: pa.Table, source: str, baseline: str) -> _Columns:
    """Arena-Hard's games: the baseline is first in the first game, then second."""
    models, rows, outcomes, flipped = [], [], [], []
    for row, (name, games) in enumerate(
        zip(
            _texts(frame.column("model")),
            frame.column("games").to_pylist(),
            strict=True,
        )
    ):
        for k, game in enumerate(games or []):
            score = str((game or {}).get("score") or "")
            verdict = _verdict(score)
            if verdict is None:
                raise ValueError(
                    f"{source}, row {row + 1}: score is {score!r}, not A>>B, A>B, A=B,"
                    " B>A or B>>A"
                )
            models.append(name)
            rows.append(row)
            flipped.append(k % 2 == 1)
            outcomes.append([float(verdict == x) for x in range(4)])
    names = np.array(models, dtype=str)
    base = np.full(len(names), baseline, dtype=f"<U{max(len(baseline), 1)}")
    swap = np.array(flipped, bool)
    length = max(names.dtype.itemsize, base.dtype.itemsize) // 4
    names, base = names.astype(f"<U{length}"), base.astype(f"<U{length}")
    first, second = np.where(swap, names, base), np.where(swap, base, names)
    shape = np.array(outcomes, float).reshape(-1, 4)
    return _Columns(first, second, shape, rows=np.array(rows, int))


def _feature(frame: pa.Table, source: str, name: str) -> np.ndarray:
    """What the first has more of than the second."""
    if name in frame.column_names:
        return _sizes(frame.column(name), source, name)
    sides: dict[str, dict[str, Callable[[], np.ndarray]]] = {}
    # Fields of records are columns of their own.
    flat = frame.flatten()
    for column, values in zip(flat.column_names, flat.columns, strict=True):
        found = _SIDE.search(column.rsplit(".", 1)[-1])
        if found is None:
            continue
        last = column.rsplit(".", 1)[-1]
        stem = (last[: found.start()] + last[found.end() :]).replace("__", "_")
        side = {"1": "a", "2": "b"}.get(found[1], found[1])
        size = lambda v=values, c=column: _sizes(v, source, c)
        sides.setdefault(stem.strip("_"), {})[side] = size
    pairs = {stem for stem, found in sides.items() if {"a", "b"} <= found.keys()}
    if name not in pairs:
        have = ", ".join(sorted(pairs)) or "no pair of columns"
        raise ValueError(
            f"{source}: no covariate {name!r}: name a column of numbers, or one of"
            f" {have}"
        )
    one, other = sides[name]["a"](), sides[name]["b"]()
    total = one + other
    return np.where(total > 0, (one - other) / np.where(total > 0, total, 1), 0.0)


def _sizes(column: Any, source: str, name: str) -> np.ndarray:
    """Numbers; lengths of texts; sums of the numbers of a record."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    sides = [np.searchsorted(subjects, x.subjects) for x in parts]
    joined = lambda field: np.concatenate([getattr(x, field) for x in parts])
    place = lambda field: np.concatenate(
        [at[getattr(x, field)] for at, x in zip(sides, parts, strict=True)]
    )
    kept = set.intersection(*({*x.labels} for x in parts))
    labels = {n: np.concatenate([x.labels[n] for x in parts]) for n in sorted(kept)}
    if "ranking" in labels:  # Each file has its own numbers of rankings.
        part = np.repeat(np.arange(len(parts)), [len(x.first) for x in parts])
        labels["ranking"] = np.char.add(np.char.mod("%d.", part), labels["ranking"])
    names = parts[0].features
    features = {n: np.concatenate([x.features[n] for x in parts]) for n in names}
    notes = tuple(note for x in parts for note in x.notes)
    return ComparisonTable.of(
        subjects,
        place("first"),
        place("second"),
        joined("outcomes"),
        features=features,
        labels=labels,
        notes=notes,
    )
