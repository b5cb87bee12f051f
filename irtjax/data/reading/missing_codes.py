"""Numbers and words that stand for "no score", such as -1, 99 or -999.

A code that can mean nothing else is read as missing, with a note. One that can be a
score, too, is asked for: `missing_values=` names the codes, and "none" states that
there are none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from irtjax.data.arrays import compact
from irtjax.data.formats import mt_bench
from irtjax.data.reading.choose import rows_by_code
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Records
from irtjax.data.reading.tabular import parse_number
from irtjax.data.sparse_table import SparseCells
from irtjax.data.table import MOST_LEVELS, ResponseTable
from irtjax.data.wording import are, counted, listing, percent

#: The word for "every number is a score".
NONE = "none"
#: Distances between a code and the scores, in ranges of the scores, that no score has.
_FAR = 5.0
#: Codes next to each other, such as 97, 98 and 99.
_MOST_CODES = 3
#: Largest score of a short scale, next to which 8 and 9 are usual codes.
_SHORT_SCALE = 7
#: How much more often than -1 both 0 and 1 occur where -1 is no response.
_RARE = 3
#: Number of scores below which a value above the others is not asked for.
_ENOUGH = 20
#: Codes that surveys and programs use: one digit repeated, or 97 to 99; limits of
#: integers.
_SHAPE = re.compile(r"-?(([789])\2*|9+[0-9]|32767|32768|65535|214748364[78])")


class Code(NamedTuple):
    """A value that may stand for no score; `sure` if it can mean nothing else."""

    value: float
    number: int
    sure: bool


class MissingCells(NamedTuple):
    """What scores hold: the mask of codes or None, and what was done."""

    missing: np.ndarray | None
    signs: bool  # Whether the others are -1 for wrong and 1 for right.
    notes: list[str]


class Named(NamedTuple):
    """What the options name as missing, and whether they leave other codes open."""

    numbers: tuple[float, ...]
    words: frozenset[str]
    open: bool


def named(options: ReadOptions) -> Named:
    """The codes that the options name.

    >>> named(ReadOptions(missing_values=["-1,99", "skipped"]))
    Named(numbers=(-1.0, 99.0), words=frozenset({'skipped'}), open=True)
    >>> named(ReadOptions(missing_values="none")).open
    False
    """
    texts = _texts(options)
    numbers: list[float] = []
    words: set[str] = set()
    for text in texts:
        number, valid = parse_number(text)
        if not valid:
            words.add(text)
        elif number is not None:
            numbers.append(number)
    return Named(tuple(numbers), frozenset(words), NONE not in texts)


def _texts(options: ReadOptions) -> list[str]:
    """What the option names, as it is typed."""
    codes = options.missing_values
    several = [codes] if isinstance(codes, str | int | float) else list(codes or ())
    return [part.strip() for x in several for part in str(x).split(",")]


def without_words(
    table: pa.Table, columns: Sequence[str], options: ReadOptions
) -> pa.Table:
    """A table in which the words that stand for no score are empty cells."""
    words = named(options).words
    if not words:
        return table
    for name in columns:
        column = table.column(name)
        kind = column.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = [
                None if x is None or x.strip() in words else x
                for x in column.to_pylist()
            ]
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(texts, pa.string()))
    return table


def of_scores(
    scores: np.ndarray, options: ReadOptions, source: str, where: str = ""
) -> MissingCells:
    """Finds the codes among the scores of one measure, NaN where missing.

    Raises:
        ValueError: A value may be a code or a score; the message begins with
            ``source``, and ``where`` names the benchmark.
    """
    stated = named(options)
    gone, notes = None, []
    if stated.numbers:
        gone = np.isin(scores, stated.numbers)
        if gone.any():
            shown = [f"{x:g}" for x in stated.numbers if (scores == x).any()]
            count = gone.sum()
            notes.append(
                f"{counted(count, 'score')} of {listing(shown)}{where} {are(count)}"
                " missing, as missing_values= states"
            )
            rest = scores[~gone]
        else:
            gone, rest = None, scores
    else:
        rest = scores
    if not stated.open:
        return MissingCells(gone, False, notes)
    values, counts = _distinct(rest)
    codes = find(values, counts)
    others = values[~np.isin(values, [code.value for code in codes])]
    _refuse_unsure(values, counts, codes, stated, source, where)
    if codes:
        usual = np.isin(scores, [code.value for code in codes])
        gone = usual if gone is None else gone | usual
        notes.append(_usual_note(codes, where))
    signs = np.array_equal(others, (-1, 1))
    if signs:
        notes.append(f"responses{where} are -1 and 1: -1 was read as wrong, 1 as right")
    return MissingCells(gone, signs, notes)


def _usual_note(codes: list[Code], where: str) -> str:
    """The note on codes that were found."""
    number = sum(code.number for code in codes)
    shown = listing([f"{code.value:.15g}" for code in sorted(codes)])
    what = f"{shown} is a usual code" if len(codes) == 1 else "these are usual codes"
    them = "it" if len(codes) == 1 else "them"
    return (
        f"{counted(number, 'score')} of {shown}{where} {are(number)} missing: {what}"
        f" for no score (missing_values='none' keeps {them})"
    )


def of_column(
    scores: np.ndarray, names: Sequence[str], options: ReadOptions
) -> MissingCells:
    """The codes that the options name, or those of a judgment that failed.

    Such are in logs of MT-bench and of its relatives, which `names` of columns show.
    """
    if named(options).numbers:
        only = dataclasses.replace(options, missing_values=[*_texts(options), NONE])
        return of_scores(scores, only, "")
    failed = scores == -1
    if not (failed.any() and mt_bench.is_judgments(names) and named(options).open):
        return MissingCells(None, False, [])
    count = failed.sum()
    note = f"{counted(count, 'failed judgment')} (score -1) {are(count)} missing"
    return MissingCells(failed, False, [note])


def of_records(records: Records, options: ReadOptions) -> Records:
    """Records in which codes of each benchmark are missing, with notes."""
    response, notes = records.response, list[str]()
    if not (named(options).numbers or _outside(response)):
        return records  # Before rows are sorted, of which there may be millions.
    groups: list[tuple[str, Any]] = [("", slice(None))]
    if records.benchmark is not None:
        labels = records.benchmark.labels
        groups = [
            (f" of {str(labels[code])!r:.80}" if labels[code] else "", rows)
            for code, rows in rows_by_code(records.benchmark.codes)
        ]
    for where, rows in groups:
        scores = response[rows]
        codes = of_scores(scores, options, records.source, where)
        if codes.missing is None and not codes.signs:
            continue
        if codes.missing is not None:
            scores = np.where(codes.missing, np.nan, scores)
        if codes.signs:
            scores = np.where(scores < 0, 0.0, scores)
        # The records may be those of the caller, who keeps them as they are.
        response = response.copy() if response is records.response else response
        response[rows] = scores
        notes += codes.notes
    if not notes:
        return records
    return dataclasses.replace(
        records, response=response, notes=[*records.notes, *notes]
    )


def of_matrix(
    values: np.ndarray, observed: np.ndarray | None, options: ReadOptions, source: str
) -> tuple[np.ndarray, np.ndarray | None, list[str]]:
    """A matrix and its mask in which codes are missing, and notes."""
    seen = values.ravel() if observed is None else values[observed]
    codes = of_scores(seen, options, source)
    if codes.missing is not None:
        mask = np.ones(values.shape, bool) if observed is None else observed.copy()
        mask[mask] = ~codes.missing
        observed, values = mask, compact(np.where(mask, values, 0))
    if codes.signs:
        values = compact(np.maximum(values, 0))
    return values, observed, codes.notes


def of_table(table: ResponseTable, options: ReadOptions) -> ResponseTable:
    """A table in which the codes that the options name are missing."""
    if not named(options).numbers or table.trials is not None:
        return table
    source = table.sources[0] if table.sources else "the table"
    codes = of_scores(table.seen, options, source)
    cells = table.cells
    row = np.repeat(np.arange(table.num_subjects), np.diff(cells.start))
    keep = slice(None) if codes.missing is None else ~codes.missing
    value = np.maximum(cells.value, 0) if codes.signs else cells.value
    few = SparseCells.of(row[keep], cells.column[keep], value[keep], cells.shape)
    values, observed = (few, None) if table.sparse is not None else few.dense
    notes = (*table.notes, *codes.notes)
    return table.replace(values=values, observed=observed, notes=notes)


def _distinct(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct scores in ascending order, and their counts.

    None for scores in [0, 1], which hold no code.
    """
    if scores.dtype == np.int8:
        counts = np.bincount(scores.view(np.uint8), minlength=256)
        counts = np.concatenate([counts[128:], counts[:128]])
        values = np.flatnonzero(counts)
        return values - 128.0, counts[values]
    if not _outside(scores):
        return np.zeros(0), np.zeros(0, np.int64)
    return np.unique(scores[~np.isnan(scores)], return_counts=True)


def _outside(scores: np.ndarray) -> bool:
    """Whether some scores are not in [0, 1]."""
    return bool(np.nanmin(scores, initial=0) < 0 or np.nanmax(scores, initial=1) > 1)


def find(values: np.ndarray, counts: np.ndarray) -> list[Code]:
    """Codes at the ends of the distinct values, which ascend.

    >>> find(np.array([0.0, 1.0, 99.0]), np.array([5, 6, 2]))
    [Code(value=99.0, number=2, sure=True)]
    >>> find(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.ones(5, int))
    []
    """
    codes: list[Code] = []
    if _is_rare(values, counts):
        return [Code(-1.0, int(counts[0]), True)]
    for at_top in (True, False):
        # The longest run first: 98 next to 99 is no score either.
        for size in range(min(_MOST_CODES, len(values) - 2), 0, -1):
            here = slice(-size, None) if at_top else slice(size)
            rest = slice(-size) if at_top else slice(size, None)
            judge = _above if at_top else _below
            sure = judge(values[here], values[rest])
            enough = sure or not at_top or counts.sum() >= _ENOUGH
            if sure is not None and enough:
                pairs = zip(values[here].tolist(), counts[here].tolist(), strict=True)
                # One of them alone may be surer than all.
                codes += [
                    Code(x, n, sure or bool(judge(np.array([x]), values[rest])))
                    for x, n in pairs
                ]
                values, counts = values[rest], counts[rest]
                break
    return codes


def _is_rare(values: np.ndarray, counts: np.ndarray) -> bool:
    """Whether -1 stands next to 0 and 1 and is too rare to be one of three responses.

    If 0 were no response, more would be missing than wrong, and nearly all the others
    right.
    """
    three = np.array_equal(values, (-1, 0, 1))
    return three and counts.sum() >= _ENOUGH and _RARE * counts[0] < min(counts[1:])


def _above(codes: np.ndarray, scores: np.ndarray) -> bool | None:
    """Whether values above all scores are surely codes; None if they are scores."""
    if not _whole(codes):
        return None
    low, high = float(scores[0]), float(scores[-1])
    gap, span = float(codes[0]) - high, max(high - low, 1.0)
    levels = _whole(scores) and len(scores) <= MOST_LEVELS
    shaped = all(_SHAPE.fullmatch(f"{x:.0f}") for x in codes.tolist())
    far = gap >= _FAR * span
    in_row = levels and high - low == len(scores) - 1 and low in (0, 1)
    if shaped and far:
        if levels:
            return bool(codes[-1] >= 9)
        return bool(high <= 1 and low >= 0 and codes[0] > 100) if codes[0] > 9 else None
    if in_row and high <= _SHORT_SCALE:
        usual = len(scores) > 2 and gap > 1 and codes[-1] in (8, 9)
        return False if far or usual else None
    return None


def _below(codes: np.ndarray, scores: np.ndarray) -> bool | None:
    """Whether values below all scores are surely codes; None if they are scores."""
    low, high = float(scores[0]), float(scores[-1])
    whole = _whole(scores)
    if not _whole(codes) or codes[-1] >= 0 or low < 0:
        return None
    is_symmetric = whole and high == -codes[0] == len(scores) + len(codes) - 1 - high
    shaped = all(
        x in (-1, -2) or x <= -99 or _SHAPE.fullmatch(f"{x:.0f}")
        for x in codes.tolist()
    )
    if is_symmetric or not shaped:
        return None
    if whole and codes[-1] <= -7 and -codes[-1] >= high:
        return True
    if codes[-1] <= -9:
        return bool(-codes[-1] > 2 * max(high, 1.0))
    # A scale from 1 on has no place for -1; on one from 0 on it can be a penalty.
    return bool(whole and low >= 1 and codes.tolist() == [-1])


def _whole(values: np.ndarray) -> bool:
    """Whether all are whole numbers."""
    return np.array_equal(values, np.rint(values))


def _refuse_unsure(
    values: np.ndarray,
    counts: np.ndarray,
    codes: list[Code],
    stated: Named,
    source: str,
    where: str,
) -> None:
    """Asks what values mean that can be a code or a score."""
    sure = [code.value for code in codes if code.sure]
    is_code = np.isin(values, sure)
    before = [f"{x:.15g}" for x in (*stated.numbers, *sure)] + sorted(stated.words)
    option = lambda *added: f"missing_values={','.join([*before, *added])!r}"
    if np.array_equal(values[~is_code], (-1, 0, 1)):
        wrong, none, right = (counts[~is_code] / counts[~is_code].sum()).tolist()
        share = lambda x: percent(round(x, 3))
        cures = [
            f"{option('-1')} if -1 means no response",
            f"{option('0')} if 0 means no response and -1 is wrong",
        ]
        first, second = cures if wrong <= none else cures[::-1]
        raise ValueError(
            f"{source}: responses{where} are -1 ({share(wrong)}), 0 ({share(none)}) and"
            f" 1 ({share(right)}): add {first}, {second}, or {option(NONE)} if they are"
            " three ordered categories"
        )
    unsure = [code for code in codes if not code.sure]
    if unsure:
        others = values[~np.isin(values, [code.value for code in codes])]
        shown = [f"{code.value:.15g}" for code in sorted(unsure)]
        count, total = sum(code.number for code in unsure), int(counts.sum())
        raise ValueError(
            f"{source}: {count:,} of {counted(total, 'score')}{where}"
            f" {are(count)} {' or '.join(shown)}, apart from the others"
            f" ({others[0]:g} to {others[-1]:g}): add {option(*shown)} if that means no"
            f" score, or {option(NONE)} if it is a score"
        )
