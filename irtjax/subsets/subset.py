"""A chosen subset with its predictor: what `irtjax.shrink` returns, on disk too."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data import ResponseTable, read
from irtjax.data.arrays import as_labels
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import (
    SAMPLE_FILES,
    SourceId,
    ids_from_lists,
    sample_files,
)
from irtjax.data.matching import arrange
from irtjax.data.result_text import with_level
from irtjax.data.reversal import aligned
from irtjax.data.scores import as_shares
from irtjax.data.wording import are, counted
from irtjax.data.writing import full_path, together, write_text
from irtjax.models.families.shares import ShareScores
from irtjax.models.model import Model, response_ends
from irtjax.storage.encoding import UndefinedClassError, decode, encode
from irtjax.storage.plain import plain
from irtjax.subsets.predictor import Calibrator, NodeCurves, Whole, curves_at, predict
from irtjax.subsets.rules import points

FORMAT = "irtjax.subset"
VERSION = 1
#: Of the files of samples, what is on a harness's command line.
TAKEN_FILES = ("lm_eval_samples.json", "inspect_samples.txt")
#: Written where rules were compared.
_RULES = "rules.csv"
#: Arrays of a document on the nodes, and on the items.
_ON_NODES = ("nodes", "log_weight", "whole_mean", "whole_variance")
_ON_ITEMS = ("weights", "target")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PredictedScores(HasTable):
    """Full scores predicted from a subset.

    Attributes:
        table: One row per subject: subject, expected_score (predicted, on all items)
            with its interval, subset_mean (weighted mean of the responses), ability,
            ability_se, observed (items of the subset that were answered).
        notes: What was matched and what was left out.
        level: Level of the intervals.
    """

    title = "Scores on all items, predicted from a subset"
    columns = (
        "subject",
        "expected_score",
        "expected_score_lower",
        "expected_score_upper",
        "subset_mean",
        "observed",
    )

    table: pa.Table
    notes: tuple[str, ...]
    level: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Shrunken(HasTable):
    """A small benchmark that stands for a large one.

    Attributes:
        items: `[size]` names in order of choice.
        weights: `[size]` weights of the plain weighted mean, summing to one.
        benchmarks: `[size]` benchmark names, or None.
        target: `[size]` what each item counts in the full score.
        num_items: Number of items of the whole.
        rule: The rule by which the items were chosen.
        model: Model of the responses.
        parameters: Item records, `[size]`.
        nodes, log_weight: `[nodes]` abilities and log weights of the population.
        whole_mean, whole_variance: `[nodes]` expected full score, and its variance.
        calibrator: Errors estimated from held-out subjects.
        level: Level of the intervals.
        standard_error, score_error: Expected errors of an ability and of the full
            score, by the model: root mean squares over the abilities weighed.
        held_out: Errors on subjects that neither choice nor fit had seen: num_subjects,
            mean_absolute_error, root_mean_square_error, mean_absolute_error_of_irt
            (before the correction), mean_absolute_error_of_mean (of the weighted mean),
            kendall, spearman. Empty without folds.
        warnings: What the numbers must be read with.
        reason: One line on why "auto" took the rule; empty where the rule was given.
        rules: The rules that "auto" measured by cross-validation, the best first: rule,
            mean_absolute_error, standard_error, excess (over the smallest error),
            excess_se and taken. Errors in `held_out` are not too small for that: each
            subject is predicted by the rule that the other folds take.
        item_ids: Ids of the items in the harness that logged them; see `sample_files`.
        item_contents: Hashes of the content of the items, where the data had them.
        reversed_scores: By item, the formula of scores of which lower is better.
        worth: `[size]` right or wrong responses that a score on an item is worth; None
            but for scores.
        ends: `[2, size]` lowest and highest score of each item. Full scores are means
            of shares of that range. None but for scores.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> small = irtjax.shrink(table, 10, folds=0)
    >>> len(small.items), round(float(small.weights.sum()), 6)
    (10, 1.0)
    """

    title = "A small benchmark"

    items: np.ndarray
    weights: np.ndarray
    benchmarks: np.ndarray | None
    target: np.ndarray
    num_items: int
    rule: str
    model: Model
    parameters: Any
    nodes: np.ndarray
    log_weight: np.ndarray
    whole_mean: np.ndarray
    whole_variance: np.ndarray
    calibrator: Calibrator
    level: float
    standard_error: float
    score_error: float
    held_out: dict[str, float]
    warnings: tuple[str, ...] = ()
    reason: str = ""
    rules: tuple[dict[str, Any], ...] = ()
    item_ids: Mapping[str, tuple[SourceId, ...]] = dataclasses.field(
        default_factory=dict
    )
    item_contents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reversed_scores: Mapping[str, str] = dataclasses.field(default_factory=dict)
    worth: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of chosen items."""
        return len(self.items)

    @property
    def item_names(self) -> np.ndarray:
        """Names of the chosen items, under the name that a calibration has."""
        return self.items

    @functools.cached_property
    def curves(self) -> NodeCurves:
        """Curves of the chosen items on the nodes."""
        worth = np.ones(self.size) if self.worth is None else self.worth
        nodes = self.nodes, self.log_weight
        return curves_at(self.model, self.parameters, *nodes, worth)

    @property
    def table(self) -> pa.Table:
        """One row per chosen item: item, benchmark, weight, order of choice."""
        names = self.benchmarks
        benchmarks = [None] * self.size if names is None else names.tolist()
        return pa.table(
            {
                "item": pa.array(self.items.tolist(), pa.string()),
                "benchmark": pa.array(benchmarks, pa.string()),
                "weight": self.weights,
                "order": np.arange(1, self.size + 1),
            }
        )

    def sentence(self, folder: str | Path | None = None) -> str:
        """How near the full score a score on these items is, in one sentence.

        The error is the mean absolute error of scores of subjects that were left out of
        choice and fit, as a share of the range of scores.

        Args:
            folder: Where the subset was saved: names the file for the harness too.

        >>> import irtjax
        >>> table = irtjax.make_demo().table
        >>> small = irtjax.shrink(table, 10, rule="random", model="rasch", folds=2)
        >>> small.sentence().startswith("10 items give the full score to ±.")
        True
        """
        text = f"{self.size:,} of {counted(self.num_items, 'item')}"
        text += " (error not measured)"
        if self.error is not None:
            text = f"{counted(self.size, 'item')} give the full score to"
            text += f" ±{points(self.error)} on average"
        names = [] if folder is None else self.harness_files()
        files = [str(Path(folder or ".", name)) for name in names]
        return text + f": {', '.join(files)}" * bool(files)

    @property
    def sentences(self) -> list[str]:
        """How near the full score a score on these items is, and why these items."""
        first = self.sentence() + "."
        if self.reason:
            return [first, f"{self.reason[0].upper()}{self.reason[1:]}."]
        chosen = "at random" if self.rule == "random" else f"by {self.rule}"
        return [first, f"Items are chosen {chosen}."]

    @property
    def error(self) -> float | None:
        """Mean absolute error of full scores of subjects left out of choice and fit.

        By the rule taken; None without folds.
        """
        taken = [row for row in self.rules if row["taken"]] or [self.held_out]
        return taken[0].get("mean_absolute_error")

    def harness_files(self) -> tuple[str, ...]:
        """The file that each harness takes, by name; none where ids are unsure."""
        with contextlib.suppress(ValueError):
            files = self.sample_files()
            return tuple(name for name in TAKEN_FILES if name in files)
        return ()

    def predict(self, data: Any) -> PredictedScores:
        """Predicts the full scores of subjects from their responses to the subset.

        What was observed counts as it is; what was not is expected over the posterior
        of ability. Correction and intervals were estimated from held-out subjects.

        Args:
            data: A `ResponseTable`, or anything that `irtjax.read` takes. Items match
                by name; those outside the subset are left out with a note.

        Raises:
            ValueError: If no item is of the subset, one has another content than the
                item of that name in the subset, or a response is not one of the
                model's.
        """
        table = data if isinstance(data, ResponseTable) else read(data)
        values, observed, notes = self._arrange(table)
        mass = float(self.target.sum()) if self.size == self.num_items else 1.0
        whole = Whole(self.whole_mean, self.whole_variance, mass)
        parts: Any = dict(target=self.target, weight=self.weights, whole=whole)
        prediction = predict(self.model, self.curves, values, observed, **parts)
        low, high = self.calibrator.interval(prediction)
        columns: dict[str, Any] = {
            "subject": pa.array(table.subjects.tolist(), pa.string()),
            "expected_score": self.calibrator.score(prediction),
            "expected_score_lower": low,
            "expected_score_upper": high,
            "subset_mean": pa.array(prediction.mean, mask=np.isnan(prediction.mean)),
            "ability": prediction.ability,
            "ability_se": prediction.ability_se,
            "observed": observed.sum(1),
        }
        scores = with_level(pa.table(columns), self.level)
        return PredictedScores(scores, notes, self.level)

    def _arrange(self, table: ResponseTable):
        """Responses in the order of the subset, 0 where there are none."""
        table = aligned(table, self.reversed_scores, self.items.tolist())
        table = as_shares(table)
        ends = response_ends(self.model)
        values, observed, places = arrange(
            table,
            self.items,
            "the subset",
            ends["top"],
            self.item_contents,
            self.ends,
            lowest=ends["low"],
        )
        matched = places >= 0
        notes = []
        if matched.sum() < self.size:
            notes.append(
                f"{matched.sum():,} of the {counted(self.size, 'item')} of the subset"
                f" {are(matched.sum())} there"
            )
        if not matched.all():
            notes.append(
                f"{counted((~matched).sum(), 'item')} {are((~matched).sum())} not in"
                " the subset and left out"
            )
        return values, observed, tuple(notes)

    def save(self, folder: str | Path) -> Path:
        """Writes `subset.csv` and, for later predictions, `subset.json` to a folder.

        Where rules were compared, `rules.csv` has their errors. Returns the folder.

        Args:
            folder: Folder, made if there is none; files of these names are replaced.

        Raises:
            ValueError: If it cannot be made or written.
        """
        from irtjax.storage import write_table

        folder = full_path(folder)
        # Rules of an earlier subset in this folder are not of this one.
        with together(folder, stale=[_RULES, *SAMPLE_FILES]) as place:
            for name, content in self.contents().items():
                if callable(content):
                    content(place / name)
                else:
                    write_table(content, place / name)
        return folder

    def contents(self) -> dict[str, pa.Table | Callable[[Path], Any]]:
        """What `save` writes, by file name: tables, and a function of a path."""
        text = json.dumps(self._content(), allow_nan=False)
        document = lambda path: path.write_text(text, encoding="utf-8")
        files = {"subset.csv": self.table, "subset.json": document}
        with contextlib.suppress(ValueError):
            for name, content in self.sample_files().items():
                files[name] = functools.partial(write_text, content)
        if self.rules:
            files[_RULES] = pa.Table.from_pylist(list(self.rules))
        return files

    def sample_files(self) -> dict[str, str]:
        """Files with which a harness evaluates only these items, by name.

        `lm_eval_samples.json` for ``lm_eval --samples``; `inspect_samples.json`, and
        `inspect_samples.txt` with a command for each task. Empty where no harness
        logged the items.

        Raises:
            ValueError: If logs differ in the id of an item, or it is unknown.
        """
        return sample_files(self.items.tolist(), self.item_ids)

    def _content(self) -> dict[str, Any]:
        """What is saved, as a document."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["model"] = encode(self.model)
        content["parameters"] = self.parameters._asdict()
        content["calibrator"] = self.calibrator._asdict()
        return {"format": FORMAT, "version": VERSION, **plain(content)}


def load_subset(path: str | Path) -> Shrunken:
    """Reads a subset that `Shrunken.save` wrote.

    Args:
        path: The folder, or the file `subset.json` in it.

    Raises:
        ValueError: If there is none, or the file is not one.
    """
    path = Path(os.path.expanduser(path))
    path = path / "subset.json" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"no such file: {path}; name what `irtjax shrink` wrote")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise ValueError(f"it has no mark {FORMAT}")
        if content["version"] > VERSION:
            raise ValueError("a newer irtjax wrote it; upgrade")
        return _from_content(content)
    except UndefinedClassError as error:
        raise ValueError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a saved subset: {error}") from None


def _from_content(content: dict[str, Any]) -> Shrunken:
    """The subset of a document, every number of it checked."""
    model = decode(content["model"])
    record = model.family.Items
    fields = content["parameters"]
    parameters = record(*(np.array(fields[k], float) for k in record._fields))
    scores = isinstance(model.family, ShareScores)
    on_items = (*_ON_ITEMS, "worth") if scores else _ON_ITEMS
    arrays = {k: np.array(content[k], float) for k in (*on_items, *_ON_NODES)}
    items = as_labels(content["items"])
    for name, values in {**arrays, **parameters._asdict()}.items():
        length = len(arrays["nodes"] if name in _ON_NODES else items)
        if len(values) != length or not np.isfinite(values).all():
            raise ValueError(f"its {name} are not {length} numbers")
    ends = np.array(content["ends"], float) if scores else None
    if ends is not None and not (
        ends.shape == (2, len(items)) and np.all(ends[0] < ends[1])
    ):
        raise ValueError("its ends are not a lower and a higher score for each item")
    if scores and not np.all(arrays["worth"] > 0):
        raise ValueError("its worth is not above 0")
    scalars = "level", "standard_error", "score_error"
    numbers: Any = {k: float(content[k]) for k in scalars}
    if not np.isfinite([*numbers.values()]).all() or not 0 < numbers["level"] < 1:
        raise ValueError(f"its level or its errors are not numbers: {numbers}")
    count = int(content["num_items"])
    if not 1 <= len(items) <= count or len(set(items.tolist())) < len(items):
        raise ValueError(f"its {len(items)} items are not some of {count}, each once")
    fields = content["calibrator"]
    correction = tuple(float(x) for x in fields["correction"])
    if len(correction) not in (0, 5):
        raise ValueError(f"its correction has {len(correction)} numbers")
    parts = float(fields["misfit"]), float(fields["multiplier"])
    if not np.isfinite([*parts, *correction]).all():
        raise ValueError("its calibrator is not of numbers")
    names = content["benchmarks"]
    if names is not None and len(names) != len(items):
        raise ValueError(f"its benchmarks are not {len(items)}")
    return Shrunken(
        items=items,
        benchmarks=None if names is None else as_labels(names),
        num_items=count,
        rule=str(content["rule"]),
        model=model,
        parameters=parameters,
        calibrator=Calibrator(*parts, correction),
        held_out=dict(content["held_out"]),
        warnings=tuple(content["warnings"]),
        reason=str(content.get("reason", "")),
        rules=tuple(dict(row) for row in content.get("rules", ())),
        item_ids=ids_from_lists(content.get("item_ids", {})),
        **{
            name: {str(k): str(v) for k, v in content.get(name, {}).items()}
            for name in ("item_contents", "reversed_scores")
        },
        ends=ends,
        **arrays,
        **numbers,
    )
