"""lm-evaluation-harness: an adaptive test in rounds of its task subsets.

`lm_eval --samples FILE` evaluates the documents that a JSON file lists by task. Each
round writes such a file with the next items, and reads the sample logs of that run.
Everything is in one folder, so that a test resumes at any time: `harness.json` has the
settings, `adaptive.json` the test, `round-K/samples.json` the documents of a round and
`round-K/logs` is where the harness writes its logs.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from irtjax.data import wording
from irtjax.data.decode import Record, decode
from irtjax.data.files import read_bytes
from irtjax.data.item_texts import Contents, other_contents
from irtjax.data.reversal import aligned
from irtjax.data.wording import are, counted, listing, were
from irtjax.data.writing import atomic_path
from irtjax.harness.bank import open_fit

if TYPE_CHECKING:
    from irtjax.adaptive import AdaptiveTest
    from irtjax.calibration.calibration import Calibration
    from irtjax.data.reading.options import Choices
    from irtjax.harness.estimate import Estimate

FORMAT, VERSION = "irtjax.harness.lm_eval", 1
SETTINGS, TEST = "harness.json", "adaptive.json"
#: Items of a round by default: each run of the harness loads the model.
ROUND_SIZE = 10
#: Notes of the reader on a round that is complete by itself.
_NO_CONCERN = re.compile(r" cells \(|other files? in")
#: Number of a document, and what follows where several have it.
_DOCUMENT = re.compile(r"(\d+)(~[0-9a-f]+(?:\.\d+)?)?")


class _Settings(Record):
    """What `harness.json` has."""

    format: str
    version: int
    round_size: int
    #: A list is of BENCHMARK=NAME, as typed.
    metric: str | list[str] | dict[str, str] | None = None
    filter: str | list[str] | dict[str, str] | None = None


class _Totals(Record):
    """Of a results file of the harness, what the table shows."""

    versions: dict[str, Any] = {}
    n_shot: dict[str, Any] = msgspec.field(name="n-shot", default_factory=dict)
    higher_is_better: dict[str, dict[str, bool | None]] = {}


@dataclasses.dataclass
class _Logs:
    """The sample logs of one round.

    Attributes:
        model: Name of the model.
        responses: Response by item, None where the harness has no score.
        metrics: Metric and filter of each task.
        notes: Choices made in reading.
        contents: Hash of the document by item.
    """

    model: str
    responses: dict[str, float | None]
    metrics: dict[str, tuple[str, str]]
    notes: tuple[str, ...]
    contents: Contents


class Rounds:
    """An adaptive test whose items lm-evaluation-harness gives, a round at a time.

    Build it with `begin` or `resume`; `step` reads what has been evaluated and writes
    the next round.

    Attributes:
        test: The `irtjax.AdaptiveTest`.
        folder: The folder of the test.
        number: Number of the round that waits for its logs; the last one at the end.
        model: Name of the model that is evaluated; None before its first logs.
        settings: What `harness.json` has.
        notes: Choices made in reading, and what was left out.
    """

    def __init__(
        self, fit: Calibration, folder: Path, settings: _Settings, test: AdaptiveTest
    ) -> None:
        """Takes its parts; see `begin` and `resume`."""
        self.fit, self.folder, self.test = fit, folder, test
        self.settings = settings
        self._place, left = documents(fit)
        self.number, self.model = 0, None
        self._left_out = ()
        if left:
            self._left_out = (
                f"{counted(left, 'item')} without a document number {are(left)} not"
                " given",
            )
        self.notes: tuple[str, ...] = self._left_out
        self._metrics: dict[str, tuple[str, str]] = {}

    @classmethod
    def begin(
        cls,
        fit: Calibration | str | Path,
        folder: str | Path,
        *,
        round_size: int = ROUND_SIZE,
        metric: str | Choices | Mapping[str, str] | None = None,
        filter: str | Choices | Mapping[str, str] | None = None,
        **rules: Any,
    ) -> Rounds:
        """Begins a test in a folder.

        Args:
            fit: A folder that `irtjax fit` wrote, or a calibration, of logs of
                lm-evaluation-harness: items are named TASK/NUMBER.
            folder: Where the test is stored; it is made.
            round_size: Items of a round. Small rounds need fewer items and more runs.
            metric: As for `irtjax.read`: that which the fit was made of.
            filter: As for `irtjax.read`.
            **rules: Those of `irtjax.AdaptiveTest`.

        Raises:
            ValueError: If the folder has a test, items are named otherwise, or a rule
                is wrong.
        """
        from irtjax.adaptive import AdaptiveTest

        calibration, folder = open_fit(fit), Path(folder)
        if round_size < 1:
            raise ValueError(f"round_size {round_size} is not at least 1")
        if rules.get("repeats", 1) > 1:
            raise ValueError("repeats: a document is evaluated once; leave it out")
        if (folder / SETTINGS).exists():
            raise ValueError(f"{folder} has a test already: resume it")
        items = list(documents(calibration)[0])
        test = AdaptiveTest(calibration, items=items, **rules)
        settings = _Settings(
            format=FORMAT,
            version=VERSION,
            round_size=round_size,
            metric=_as_stored(metric),
            filter=_as_stored(filter),
        )
        rounds = cls(calibration, folder, settings, test)
        rounds._make(folder)
        test.save(folder / TEST)
        _write(folder / SETTINGS, msgspec.to_builtins(settings))
        return rounds

    @classmethod
    def resume(cls, fit: Calibration | str | Path, folder: str | Path) -> Rounds:
        """Resumes the test of a folder.

        Raises:
            ValueError: If there is none, it is damaged, or it is of another fit.
        """
        from irtjax.adaptive import AdaptiveTest

        calibration, folder = open_fit(fit), Path(folder)
        path = folder / SETTINGS
        settings = decode(read_bytes(path), _Settings, str(path))
        if settings.format != FORMAT or settings.version > VERSION:
            raise ValueError(
                f"{path}: it is no test of this irtjax (form {settings.format!r}"
                f" {settings.version}): upgrade irtjax, or choose another folder"
            )
        return cls(
            calibration, folder, settings, AdaptiveTest.load(folder / TEST, calibration)
        )

    @property
    def over(self) -> bool:
        """Whether the test has ended."""
        return self.test.over

    def step(self) -> bool:
        """Reads the logs of the round that waits, and writes the next one.

        Returns:
            Whether anything was read or written: False while the logs are missing.

        Raises:
            ValueError: If logs cannot be read, are of another model than before, or
                have a response that does not suit the fit. Nothing changes then.
        """
        before = self._progress()
        logged = self._take()
        chosen = self.test.next_items(self.settings.round_size)
        self.number = logged + 1 if chosen else logged
        # Items that wait are chosen again: their file stays, if nothing was lost.
        new = bool(chosen) and set(self._listed(self.number)) != set(chosen)
        if new:
            folder = self.folder / f"round-{self.number}"
            self._make(folder)
            _write(folder / "samples.json", samples_of(chosen, self._place))
        changed = new or before != self._progress()
        if changed:
            self.test.save(self.folder / TEST)
        return changed

    def _progress(self) -> tuple[Any, ...]:
        """What changes in a test."""
        return self.test.num_given, self.test.skipped, self.test.handed_out

    def _take(self) -> int:
        """Records the responses to items that wait; the last round with logs, or 0."""
        names = (
            path.name.removeprefix("round-") for path in self.folder.glob("round-*")
        )
        scores: dict[str, float | None] = {}
        model, logged, notes, metrics = None, 0, [*self._left_out], {}
        for number in sorted(int(name) for name in names if name.isdigit()):
            folder = self._logs_of(number)
            if not any(folder.rglob("samples_*.json*")):
                continue
            logs = read_logs(
                folder, self.settings.metric, self.settings.filter, self.fit
            )
            if model not in (None, logs.model):
                raise ValueError(
                    f"{folder} has logs of model {logs.model!r}, those before are of"
                    f" {model!r}: give each model a folder of its own"
                )
            model, logged = logs.model, number
            asked = {x: y for x, y in logs.contents.items() if x in self._place}
            self._refuse_others(folder, asked)
            # The later round counts where an item is in two.
            scores |= logs.responses
            metrics |= logs.metrics
            notes += logs.notes
        handed_out = {*self.test.handed_out, *self.test.responses, *self.test.skipped}
        extra = len(scores.keys() - handed_out)
        if extra:
            notes.append(
                f"{counted(extra, 'document')} {were(extra)} not asked for and"
                f" {are(extra)} ignored"
            )
        for item in self.test.handed_out:
            value = scores.get(item, np.nan)
            if value is None:
                self.test.skip(item)
            elif not np.isnan(value):
                self.test.record(item, value)
        self.model, self._metrics = model, metrics
        self.notes = tuple(dict.fromkeys(notes))
        return logged

    def _refuse_others(self, folder: Path, contents: Contents) -> None:
        """Refuses documents that are others than those of these numbers in the fit."""
        differing = other_contents(contents, self.fit.item_contents)
        if differing:
            raise ValueError(
                f"{folder}: {counted(len(differing), 'document')}"
                f" {are(len(differing))} others than"
                " those of the"
                f" same numbers in the fit, such as {differing[0]!r}: the data set of"
                " the task has changed; evaluate its version of then, or fit logs of"
                " its version of now"
            )

    def _logs_of(self, number: int) -> Path:
        """The folder for the logs of a round."""
        return self.folder / f"round-{number}" / "logs"

    def _listed(self, number: int) -> list[str]:
        """Items of the file of a round; none if there is no file."""
        path = self.folder / f"round-{number}" / "samples.json"
        if not path.exists():
            return []
        by_task = decode(read_bytes(path), dict[str, list[int]], str(path))
        item_of = {place: item for item, place in self._place.items()}
        pairs = [(task, k) for task, numbers in by_task.items() for k in numbers]
        return [item_of[pair] for pair in pairs if pair in item_of]

    def _make(self, folder: Path) -> None:
        """Makes a folder; a ValueError where that is not possible."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot make {folder}: {error.strerror}") from None

    @property
    def logs(self) -> Path:
        """Where the harness writes the logs of the round that waits."""
        return self._logs_of(self.number)

    def arguments(self) -> list[str]:
        """Arguments of the harness for the round that waits; none at the end.

        They name the tasks too: the harness evaluates the whole of a task that the
        file of samples does not list.
        """
        if not self.test.handed_out:
            return []
        tasks = sorted({self._place[x][0] for x in self.test.handed_out})
        samples = self.logs.with_name("samples.json")
        return [
            *("--tasks", ",".join(tasks), "--samples", str(samples)),
            *("--output_path", str(self.logs), "--log_samples"),
        ]

    def command(self, program: str = "lm_eval --model MODEL") -> str:
        """The command that evaluates the round that waits; "" at the end."""
        words = self.arguments()
        return f"{program} {shlex.join(words)}" if words else ""

    def estimate(self, level: float | None = None) -> Estimate:
        """Ability and expected scores from the responses so far."""
        from irtjax.harness.estimate import estimate

        return estimate(self.fit, self.test.responses, level=level)

    def table(self, level: float | None = None) -> str:
        """The estimates as Markdown, in the form of the harness's own table.

        A row for each task: the expected score on all its documents in the fit, with
        its standard error; then the ability, and of a test with select="score" the
        score on all documents, which does not rely on the fit.
        """
        estimate = self.estimate(level)
        totals = self._totals()
        rows = []
        scores = estimate.benchmarks or {"all": estimate.score}
        for task, number in sorted(scores.items()):
            metric, kind = self._metrics.get(task, ("", ""))
            better = totals.higher_is_better.get(task, {}).get(metric)
            sign = "" if better is None else "↑" if better else "↓"
            found_of = (totals.versions, totals.n_shot)
            version, shots = (_short(x.get(task, "")) for x in found_of)
            value, error = f"{number.value:.4f}", f"{number.standard_error:.4f}"
            rows.append([task, version, kind, shots, metric, sign, value, "±", error])
        ability = estimate.ability
        value, error = f"{ability.value:.4f}", f"{ability.standard_error:.4f}"
        rows.append(["irtjax", "", "", "", "ability", "", value, "±", error])
        if self.drawn:
            score = self.test.score(estimate.level)
            value, error = f"{score.score:.4f}", f"{score.standard_error:.4f}"
            rows.append(["irtjax", "", "", "", "score", "", value, "±", error])
        return markdown(rows)

    @property
    def drawn(self) -> bool:
        """Whether documents are drawn for the score on all of them."""
        return self.test.rules["select"] == "score" and self.test.num_given > 1

    def _totals(self) -> _Totals:
        """What the results files of all rounds have."""
        whole = _Totals()
        for path in sorted(self.folder.glob("round-*/logs/**/results_*.json")):
            totals = decode(read_bytes(path), _Totals, str(path))
            whole.versions |= totals.versions
            whole.n_shot |= totals.n_shot
            whole.higher_is_better |= totals.higher_is_better
        return whole


def documents(fit: Calibration) -> tuple[dict[str, tuple[str, int]], int]:
    """Task and document number of each item of a fit, and how many items have none.

    A number that stands for several documents (`TASK/NUMBER~HASH`) names none of them.

    Raises:
        ValueError: If no item is named TASK/NUMBER.
    """
    names = fit.item_names.tolist()
    labels = [""] * len(names) if fit.benchmarks is None else fit.benchmarks
    places: dict[str, tuple[str, int]] = {}
    shared: set[tuple[str, int]] = set()
    for name, label in zip(names, map(str, labels), strict=True):
        task = label or name.rpartition("/")[0]
        inner = name.removeprefix(f"{task}/")
        match = _DOCUMENT.fullmatch(inner)
        if not task or inner == name or match is None:
            continue
        place = task, int(match[1])
        if match[2]:
            shared.add(place)
        else:
            places[name] = place
    places = {name: place for name, place in places.items() if place not in shared}
    if not places:
        raise ValueError(
            "no item of the fit is a document of lm-evaluation-harness, named"
            f" TASK/NUMBER (the first is {names[0]!r}): fit its sample logs"
        )
    return places, len(names) - len(places)


def samples_of(
    items: Sequence[str], place: Mapping[str, tuple[str, int]]
) -> dict[str, list[int]]:
    """Document numbers by task, sorted: in another order harnesses mix them up.

    Up to 0.4.13 the harness names documents by their place in the list, but evaluates
    them in the order of the data set.

    >>> samples_of(["a/3", "a/1"], {"a/3": ("a", 3), "a/1": ("a", 1)})
    {'a': [1, 3]}
    """
    by_task: dict[str, list[int]] = defaultdict(list)
    for item in items:
        task, number = place[item]
        by_task[task].append(number)
    return {task: sorted(numbers) for task, numbers in sorted(by_task.items())}


def read_logs(folder: Path, metric: Any, filter: Any, fit: Any = None) -> _Logs:
    """Reads the sample logs of one model, errors reversed as they are in a fit.

    Raises:
        ValueError: If they cannot be read, or are of several models.
    """
    from irtjax.data.reading.choose import choose
    from irtjax.data.reading.options import Choices, ReadOptions
    from irtjax.data.reading.read import gather

    metric, filter = (
        Choices(x) if isinstance(x, list) else x for x in (metric, filter)
    )
    # Numbers, not contents: the file of samples had numbers.
    options = ReadOptions(
        format="lm_eval",
        join="id",
        metric=metric,
        filter=filter,
        higher_is_better=None if fit is None else "*",
    )
    gathered = gather(folder, options)
    table = gathered.table(options)
    if fit is not None:
        table = aligned(table, fit.reversed_scores, fit.item_names.tolist())
    if table.num_subjects > 1:
        raise ValueError(
            f"{folder} has logs of several models ({listing(table.subjects.tolist())}):"
            " give each model a folder of its own"
        )
    assert gathered.records is not None
    records, _ = choose(dataclasses.replace(gathered.records), options)
    names = []
    for column in (records.benchmark, records.metric, records.filter):
        labels = [""] if column is None else column.labels.tolist()
        codes = [0] * len(records) if column is None else column.codes.tolist()
        names.append([labels[code] for code in codes])
    metrics = {task: (name, kind) for task, name, kind in zip(*names, strict=True)}
    seen = table.observed
    responses = {
        item: float(table.values[0, k]) if seen is None or seen[0, k] else None
        for k, item in enumerate(table.items.tolist())
    }
    # Only choices: what else is in the folder, and what is missing, is no concern.
    notes = tuple(x for x in table.notes if not _NO_CONCERN.search(x))
    contents = gathered.records.item_contents
    return _Logs(str(table.subjects[0]), responses, metrics, notes, contents)


def _short(value: Any) -> str:
    """A version or number as the harness prints it: 3 for 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_stored(names: Any) -> Any:
    """Names of metrics or filters as JSON has them."""
    if names is None or isinstance(names, str):
        return names
    return dict(names) if isinstance(names, Mapping) else list(names)


_HEADER = ["Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"]
#: Columns of numbers, which are aligned to the right.
_RIGHT = (1, 3, 6, 8)
#: An escaped underscore between letters or digits.
_UNDERSCORE = re.compile(r"(?<=[^\W_])\\_(?=[^\W_])")
_LEAST = 3  # Hyphens below a heading.


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table as lm-evaluation-harness prints it.

    >>> print(markdown([["arc", "1", "none", "0", "acc", "", "0.5000", "±", "0.1000"]]))
    |Tasks|Version|Filter|n-shot|Metric|   |Value |   |Stderr|
    |-----|------:|------|-----:|------|---|-----:|---|-----:|
    |arc  |      1|none  |     0|acc   |   |0.5000|±  |0.1000|
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    columns = zip(_HEADER, *cells, strict=True)
    widths = [max(_LEAST, *map(len, column)) for column in columns]
    lines = ["|".join(_centred(x, w) for x, w in zip(_HEADER, widths, strict=True))]
    rules = [
        "-" * (w - 1) + ":" if k in _RIGHT else "-" * w for k, w in enumerate(widths)
    ]
    lines.append("|".join(rules))
    for row in cells:
        aligned = [
            x.rjust(w) if k in _RIGHT else x.ljust(w)
            for k, (x, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("|".join(aligned))
    return "\n".join(f"|{line}|" for line in lines)


def _cell(text: str) -> str:
    r"""A text as a cell, in which nothing is markup; underscores in words never are.

    >>> _cell("acc_norm"), _cell("a|b"), _cell("_x_")
    ('acc_norm', 'a\\|b', '\\_x\\_')
    """
    return _UNDERSCORE.sub("_", wording.markdown(str(text)))


def _centred(text: str, width: int) -> str:
    """A heading in the middle of its column, a space that is left over behind it."""
    left = (width - len(text)) // 2
    return " " * left + text.ljust(width - left)


def _write(path: Path, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
