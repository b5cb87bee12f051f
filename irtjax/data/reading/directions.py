"""Metrics of which lower is better: found, asked for, and reversed.

A table holds scores of which higher is better. Scores of an error are reversed: x
becomes 1 - x where all are in [0, 1], the sum of the lowest and the highest less x
where all are whole numbers, and -x else. The log states the direction, or an option, or
the name of the metric.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

from irtjax.data.reading.choose import rows_by_code
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Records
from irtjax.data.reversal import formula, with_formulas
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing

#: "ask" where a name may be that of an error; "" where it says nothing.
Way: TypeAlias = Literal["lower", "higher", "ask", ""]

#: The pattern of all names.
_ALL = "*"
#: Names of which lower is better, alone and at the beginning or end of longer ones.
_ERRORS = frozenset(
    "perplexity ppl brier brier_score wer cer ter word_error_rate char_error_rate"
    " character_error_rate equal_error_rate mae mse rmse nrmse mape smape wape msle"
    " rmsle medae absolute_error squared_error relative_error percentage_error nll"
    " negative_log_likelihood log_loss logloss cross_entropy bits_per_byte"
    " bits_per_char bits_per_character bits_per_token bpb bpc mer wil time_to"
    " edit_distance levenshtein_distance hamming_distance hamming_loss hinge_loss"
    " pinball_loss zero_one_loss chamfer_distance hausdorff_distance"
    " wasserstein_distance ece calibration_error crps latency runtime elapsed"
    " elapsed_time response_time inference_time wall_time execution_time ttft"
    " hallucination_rate toxicity toxic_frac error_rate error_count num_errors"
    " failure_rate kl_divergence js_divergence false_positive_rate false_negative_rate"
    " fid lpips unsafe_rate violation_rate".split()
)
#: The same, of names that are these words and no others.
_ALONE = frozenset(
    "error errors loss losses distance cost duration hallucination hallucinations"
    " toxic mistakes failures regret divergence harmfulness violations".split()
)
#: Last words of names that may be those of errors.
_MAYBE = (
    *_ALONE,
    *(
        "dist err penalty deviation rank refusal refusals refused asr"
        " time seconds tokens price bias harm harmful unsafe stereotype misses defects"
        " failed failure drop jailbreak jailbreaks levenshtein hamming"
    ).split(),
)
#: Names that end as those of good measures do, and may be those of errors.
_ASKED = ("attack_success", "jailbreak_success")
#: Words that turn an error into its opposite, or into something else.
_OPPOSITE = frozenset(
    "neg negative minus no non not without free after skill improvement reduction win"
    " wins inverse reciprocal complement recovery recovered corrected detection"
    " detected handling avoidance robustness resistance".split()
)
#: Last words of measures of which higher is better.
_GOOD = frozenset(
    "accuracy acc f1 auc auroc auprc precision recall match exact em bleu rouge r2"
    " correlation pearson spearman kappa ndcg map mrr success pass passed"
    " similarity sim".split()
)
#: Names that state nothing, next to which that of the benchmark counts.
_GENERAL = frozenset(
    "score scores value values y response resp result metric mean average avg".split()
)
#: Words around the name of a metric: averages, units, parts of the data.
_AROUND = frozenset(
    "mean avg average median total sum max min p50 p90 p95 p99 test val valid"
    " validation eval train dev normalized norm normalised score scores value values"
    " metric ms s sec secs percent pct raw usd us std micro macro overall final rate"
    " ratio count num number fraction frac of".split()
)
#: Reversed scores, such as "1 - wer" or "-latency".
_FORMULA = re.compile(r"\s*([\d.]+\s+)?[-\u2212]\s*\S|\s*(1|one)[-_ ]")


def way_of(name: str) -> Way:
    """What the name of a metric states about its direction.

    >>> [way_of(x) for x in ("BrierScore", "val_loss", "WER (%)", "neg_log_loss")]
    ['lower', 'lower', 'lower', 'higher']
    >>> [way_of(x) for x in ("io_error", "dist", "no_error", "win/loss", "accuracy")]
    ['ask', 'ask', '', '', '']
    """
    if _FORMULA.match(name):
        return ""
    words = _words(name)
    core = [word for word in words if word not in _AROUND] or words
    whole, shorter = "_".join(words), "_".join(core)
    if shorter in _ASKED:
        return "ask"
    if not words or words[-1] in _GOOD or core[-1] in _GOOD:
        return ""
    if not {whole, shorter}.isdisjoint(_ERRORS) or shorter in _ALONE:
        return "lower"
    ends = {"_".join(part) for k in range(1, 5) for part in (words[-k:], core[-k:])}
    starts = {"_".join(words[:k]) for k in range(1, 5)}
    is_error = not _ERRORS.isdisjoint(ends | starts)
    if not _OPPOSITE.isdisjoint(words):
        negated = words[0] in ("neg", "negative", "minus", "inverse")
        return "higher" if negated and (is_error or words[-1] in _ALONE) else ""
    if is_error:
        return "lower"
    inner = any(f"_{x}_" in f"_{whole}_" for x in _ERRORS)
    return "ask" if inner or not ends.isdisjoint(_MAYBE) else ""


def _words(name: str) -> list[str]:
    """Words of a name in lower case: of snake_case, camelCase and others."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())


def is_general(name: str) -> bool:
    """Whether a name of a metric states nothing, such as "score".

    >>> is_general("mean_score"), is_general("acc")
    (True, False)
    """
    return _GENERAL.issuperset(_words(name))


class ScoreDirections:
    """The directions that options state, and the names that they were compared with."""

    def __init__(self, options: ReadOptions) -> None:
        several = lambda x: [x] if isinstance(x, str) else list(x or ())
        #: By option its names, and whether they say that lower is better.
        self._asked = {
            "lower_is_better": (several(options.lower_is_better), True),
            "higher_is_better": (several(options.higher_is_better), False),
        }
        self._offered: dict[str, None] = {}
        self._used: set[tuple[str, str]] = set()

    @property
    def named(self) -> bool:
        """Whether options name any."""
        return any(names for names, _ in self._asked.values())

    @property
    def all_higher(self) -> bool:
        """Whether scores are read as they are."""
        return (
            self._asked["higher_is_better"][0] == [_ALL]
            and not (self._asked["lower_is_better"][0])
        )

    def is_lower(
        self, names: Sequence[str], stated: bool | None, way: Way, source: str
    ) -> bool:
        """Whether lower is better.

        Args:
            names: The name of the metric, and others by which options may name it.
            stated: What the log states; None where it does not.
            way: What the name states.
            source: What begins a message.

        Raises:
            ValueError: Nothing states it, and the name may be that of an error.
        """
        self._offered |= dict.fromkeys(filter(None, names))
        for option, (patterns, answer) in self._asked.items():
            for pattern in patterns:
                if any(x == pattern or fnmatch.fnmatchcase(x, pattern) for x in names):
                    self._used.add((option, pattern))
                    return answer
        if way == "ask" and stated is None or (way == "lower" and stated is False):
            what = "the log states that higher is better, against the name of"
            if stated is None:
                what = "a lower score may be the better one of"
            raise ValueError(
                f"{source}: {what} {names[0]!r:.80}: add lower_is_better={names[0]!r}"
                f" or higher_is_better={names[0]!r}"
            )
        return way == "lower" if stated is None else stated

    def check(self) -> None:
        """Refuses names of options that are those of nothing."""
        for option, (patterns, _) in self._asked.items():
            for pattern in patterns:
                if pattern != _ALL and (option, pattern) not in self._used:
                    raise ValueError(
                        f"{option}={pattern!r} names no metric, benchmark or item;"
                        f" there are: {listing(list(self._offered)) or 'no names'}"
                    )


def of_records(
    records: Records, directions: ScoreDirections
) -> tuple[Records, dict[str, str]]:
    """Records of one metric a benchmark with errors reversed, and formulas by item."""
    rows_of: dict[str, list[np.ndarray]] = {}
    columns = records.benchmark, records.metric
    for rows in _groups(records):
        benchmark, metric = ("" if x is None else x.text(rows[0]) for x in columns)
        name = metric or records.measure
        if is_general(name) and way_of(benchmark) and _has_scores(records, rows):
            name = benchmark
        keys = (benchmark, metric), (benchmark, ""), ("", metric)
        statements = (records.directions.get(key) for key in keys)
        stated = next((x for x in statements if x is not None), None)
        names = list(dict.fromkeys([name, metric, records.measure, benchmark]))
        if not directions.is_lower(names, stated, way_of(name), records.source):
            rows = rows[_of_items(records, rows)]
        if rows.size:
            shown = benchmark if is_general(name) and benchmark else name
            rows_of.setdefault(shown or "score", []).append(rows)
    if not rows_of:
        return records, {}
    response, notes = records.response.copy(), [*records.notes]
    formulas: dict[str, str] = {}
    for name, parts in rows_of.items():
        rows = np.concatenate(parts)
        c = _origin(response[rows])
        response[rows] = c - response[rows]
        text = formula(c, name)
        items = records.item.labels[np.unique(records.item.codes[rows])]
        formulas |= dict.fromkeys(items.tolist(), text)
        notes.append(_note(text, name, len(items), len(records.item.compact().labels)))
    return dataclasses.replace(records, response=response, notes=notes), formulas


def _groups(records: Records) -> Iterator[np.ndarray]:
    """Rows of each metric of each benchmark."""
    groups = [x for x in (records.benchmark, records.metric) if x is not None]
    if not any(len(column.labels) > 1 for column in groups):
        yield np.arange(len(records))
        return
    code = np.zeros(len(records), np.int64)
    for column in groups:
        code = code * len(column.labels) + column.codes
    for _, rows in rows_by_code(code):
        yield rows


def of_tables(
    tables: Sequence[ResponseTable], directions: ScoreDirections
) -> list[ResponseTable]:
    """Matrices with errors reversed: all responses to an item that is named as one.

    Tables whose directions are known stay as they are.
    """
    new = [table for table in tables if table.reversed_scores is None]
    columns: dict[str, list[tuple[int, np.ndarray]]] = {}
    for number, table in enumerate(new):
        for name, places in _errors_of(table, directions).items():
            columns.setdefault(name, []).append((number, places))
    formulas: list[dict[str, str]] = [{} for _ in new]
    notes: list[list[str]] = [[] for _ in new]
    for name, parts in columns.items():
        seen = [new[k].select(items=places).seen for k, places in parts]
        text = formula(_origin(np.concatenate(seen)), name)
        for k, places in parts:
            items = new[k].items[places].tolist()
            formulas[k] |= dict.fromkeys(items, text)
            notes[k].append(_note(text, name, len(items), new[k].num_items))
    made = iter(
        with_formulas(
            table.replace(notes=(*table.notes, *own), reversed_scores={}), by_item
        )
        for table, by_item, own in zip(new, formulas, notes, strict=True)
    )
    return [next(made) if x.reversed_scores is None else x for x in tables]


def _errors_of(
    table: ResponseTable, directions: ScoreDirections
) -> dict[str, np.ndarray]:
    """Columns of the items of which lower is better, by the name that shows it."""
    source = table.sources[0] if table.sources else "the table"
    metric, benchmarks = table.metric or "", table.benchmarks.tolist()
    if metric:
        names = [metric, *dict.fromkeys(benchmarks)]
        lower = directions.is_lower(names, None, way_of(metric), source)
        return {metric: np.arange(table.num_items)} if lower else {}
    errors: dict[str, np.ndarray] = {}
    if directions.all_higher:
        return errors
    if table.kind == "binary" and not directions.named:
        return errors
    for place, (name, benchmark) in enumerate(
        zip(table.items.tolist(), benchmarks, strict=True)
    ):
        way = way_of(name)
        if way:
            scores = table.select(items=np.array([place])).seen
            # Items can have any name: right or wrong responses to them are no errors.
            whole = np.array_equal(scores, np.rint(scores))
            if np.isin(scores, (0, 1)).all() or (whole and not _is_sure(name)):
                way = ""
        if directions.is_lower([name, benchmark], None, way, source):
            errors[name] = np.array([place])
    return errors


def _is_sure(name: str) -> bool:
    """Whether a name is that of an error, and not one word such as "loss"."""
    return way_of(name) == "lower" and _ALONE.isdisjoint(_words(name))


def _has_scores(records: Records, rows: np.ndarray) -> bool:
    """Whether some responses are neither right nor wrong."""
    scores = records.response[rows]
    return not np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all()


def _of_items(records: Records, rows: np.ndarray) -> np.ndarray:
    """The mask of rows of items of which the log states that lower is better."""
    if not records.lower_items:
        return np.zeros(len(rows), bool)
    is_lower = [x in records.lower_items for x in records.item.labels.tolist()]
    return np.asarray(is_lower, bool)[records.item.codes[rows]]


def _origin(scores: np.ndarray) -> float:
    """The c of reversed scores c - x that keeps them readable."""
    observed = scores[~np.isnan(scores)]
    low, high = observed.min(initial=1.0), observed.max(initial=0.0)
    if low < 0:
        return 0.0
    if high <= 1:
        return 1.0
    whole = np.array_equal(observed, np.rint(observed))
    return float(observed.min() + high) if whole else 0.0


def _note(text: str, name: str, items: int, total: int) -> str:
    """The note on reversed scores."""
    some = f" of {counted(items, 'item')}" if items < total else ""
    return (
        f"lower {name} is better: scores{some} are {text}"
        f" (higher_is_better={name!r} keeps them)"
    )
