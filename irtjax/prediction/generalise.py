"""How well models predict responses that they have not seen: by kind of newness.

A random part of all responses, new subjects, new items, both, later ones, other groups
(`irtjax.prediction.splits`) are predicted from the others by models and by means, which
a model has to beat. Intervals count subjects and items (`irtjax.prediction.accuracy`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax._types import RandomKey
from irtjax.data.coding import coded
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.numerics.seeds import seed_of
from irtjax.prediction import splits
from irtjax.prediction.accuracy import (
    SCORES,
    Accuracy,
    BootstrapDraws,
    PredictedCells,
    accuracy,
    reliability_curve,
)
from irtjax.prediction.held_out import (
    BaselineChances,
    ByFunction,
    baselines,
    predictor,
)
from irtjax.prediction.splits import Split
from irtjax.prediction.stacking import cells_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Splits of a table: one, or one for each fold.
Scheme = Callable[..., Split | list[Split]]
#: Schemes by name.
SCHEMES: dict[str, Scheme] = {
    "entry": splits.entry,
    "rows": splits.rows,
    "rows_shifted": splits.rows_shifted,
    "columns": splits.columns,
    "L": splits.block,
    "group": splits.groups,
    "temporal": splits.temporal,
    "items": splits.new_items,
}
#: Names of the two ways to predict, and of baselines.
JOINT, STAGED, BASELINE = "joint", "staged", "baseline"
#: The baseline that gains are over.
REFERENCE = "additive"
#: What each scheme predicts, for sentences.
PREDICTED = {
    "entry": "held-out responses",
    "rows": "new subjects",
    "rows_shifted": "stronger subjects",
    "columns": "new items",
    "L": "new subjects on new items",
    "group": "new groups",
    "temporal": "later responses",
    "items": "items without any response",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Generalisation(HasTable):
    """How well models and baselines predict unseen responses.

    Attributes:
        table: A row for each scheme and model or baseline: `scheme`, `model`, `stages`
            ("joint", "staged" or "baseline"), `auc`, `auc_subjects` and `auc_items`
            (within subjects, within items), `log_score` (nats), `brier`, each with
            `_lower` and `_upper`; `calibration` error; `gain` in area over the additive
            baseline, with `gain_lower` and `gain_upper`; numbers of `trained` and
            `predicted` responses, and of `dropped` subjects and items.
        curves: Reliability curves: `scheme`, `model`, `stages`, mean `chance`, share
            `right` and number of `responses` in up to ten groups.
        level: Level of the intervals.
        sentences: The result of each scheme.
        warnings: Reasons to doubt it.
    """

    title = "Predictions of unseen responses"
    columns = ("scheme", "model", "stages", "auc", "auc_lower", "auc_upper")
    columns += ("auc_subjects", "auc_items", "log_score", "gain")

    table: pa.Table
    curves: pa.Table
    level: float
    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@full_precision
def generalise(
    data: ResponseTable | Any,
    schemes: Sequence[str] | Mapping[str, Scheme] = ("entry", "rows", "columns", "L"),
    models: Sequence[str] | Mapping[str, Any] = ("2pl",),
    *,
    repeats: int = 1,
    level: float = 0.95,
    key: RandomKey = 0,
    progress: Callable[[str], None] | None = None,
) -> Generalisation:
    """Measures how well models predict responses of each kind of newness.

    In two stages ("staged") a model is fitted to old subjects and items alone. New
    subjects are then scored, and new items calibrated, with these fixed, as with a
    saved fit. "joint" is one fit to all training responses.

    Args:
        data: A `ResponseTable` of right and wrong responses, or counts of right ones;
            or what `irtjax.read` takes.
        schemes: Names: "entry" (a random part), "rows" (new subjects), "rows_shifted"
            (the strongest fifth), "columns" (new items), "L" (new subjects on new
            items), "group" (each benchmark in turn), "temporal" (dates of subjects in a
            column `date`) and "items" (folds of items without any response, for models
            that are functions, such as `cold_start.feature_chances` makes). Or a
            mapping from names to functions of a table and `key` that return a `Split`
            or a list, such as `partial(splits.rows, group="family")` of
            `irtjax.prediction.splits`.
        models: Names such as "2pl" or "factor:4". Or a mapping from labels to names,
            models, mappings of settings of `irtjax.fit` with `model`, or functions from
            a table of training responses to chances `[subjects, items]`.
        repeats: Random splits of each scheme.
        level: Level of the intervals.
        key: Seed of splits and draws.
        progress: Called with what is being done.

    Returns:
        The scores of models and of baselines: the mean of all, of a subject, of an
        item, and additive effects of both.

    Raises:
        ValueError: If responses are not right or wrong, a scheme or a model is unknown,
            or a scheme leaves nothing to predict.

    >>> table = ResponseTable.from_arrays(np.tri(20))
    >>> half = lambda part: np.full(part.values.shape, 0.5)
    >>> result = generalise(table, ["entry"], {"half": half})
    >>> result.table.num_rows, result.table["stages"][0].as_py()
    (5, 'joint')
    """
    import pyarrow as pa

    table = checked_table(data, level)
    if repeats < 1:
        raise ValueError(f"repeats {repeats}: give 1 or more random splits")
    makers = _makers(schemes)
    right, count = cells_of(table)
    draws = BootstrapDraws.of(table.num_subjects, table.num_items, key)
    report = progress or (lambda text: None)
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    warnings: list[str] = []
    seed = seed_of(key)
    predictors = {
        label: predictor(table, *of) for label, of in labelled(models).items()
    }
    for scheme, make in watched(list(makers.items()), "scheme"):
        parts: list[Split] = []
        for number in range(repeats):
            made = make(table, key=seed + number)
            parts += [made] if isinstance(made, Split) else made
        study = _Study(scheme, parts, right, count, draws, level)
        for label, model in _able(predictors, scheme, parts).items():
            report(f"{scheme}, {label}")
            study.add(label, JOINT, [model.joint(x.train).chance for x in parts])
            has_new = any(x.new_subjects.any() or x.new_items.any() for x in parts)
            if has_new and not isinstance(model, ByFunction):
                study.add(label, STAGED, [model.staged(x) for x in parts])
        report(f"{scheme}, baselines")
        of_parts = [baselines(right, count, x.train) for x in parts]
        for name in BaselineChances._fields:
            study.add(name, BASELINE, [getattr(x, name) for x in of_parts])
        rows += study.rows()
        curves += study.curves
        warnings += study.warnings
    return Generalisation(
        pa.Table.from_pylist(rows),
        pa.Table.from_pylist(curves),
        level,
        tuple(_sentence(rows, scheme, level) for scheme in makers),
        tuple(dict.fromkeys(warnings)),
    )


def checked_table(data: Any, level: float) -> ResponseTable:
    """A table of right and wrong responses, or counts of right ones.

    Raises:
        ValueError: If it is of others, or the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, such as 0.95, not {level}")
    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    data = coded(data)
    if data.kind not in ("binary", "counts"):
        raise ValueError(
            f"predictions are of right and wrong responses, and these are {data.kind}:"
            " choose a 0/1 metric"
        )
    return data


def labelled(
    models: Sequence[str] | Mapping[str, Any],
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The model and the settings of each label; see `generalise`."""
    if isinstance(models, str):
        models = [models]
    if not isinstance(models, Mapping):
        models = {name: name for name in models}
    if not models:
        raise ValueError("no model is named: give one, such as 2pl")
    parts: dict[str, tuple[Any, dict[str, Any]]] = {}
    for label, model in models.items():
        settings: dict[str, Any] = {}
        if isinstance(model, Mapping):
            settings = dict(model)
            if "model" not in settings:
                raise ValueError(f"settings of {label!r} have no model: give one")
            model = settings.pop("model")
        parts[label] = model, settings
    return parts


def _makers(schemes: Sequence[str] | Mapping[str, Scheme]) -> dict[str, Scheme]:
    """The functions of schemes."""
    if isinstance(schemes, Mapping):
        return dict(schemes)
    if isinstance(schemes, str):
        schemes = [schemes]
    for name in schemes:
        if name not in SCHEMES:
            raise ValueError(f"no scheme {name!r}; there are {', '.join(SCHEMES)}")
    if not schemes:
        raise ValueError(f"no scheme is named: give some of {', '.join(SCHEMES)}")
    return {name: SCHEMES[name] for name in schemes}


def _able(
    predictors: dict[str, Any], scheme: str, parts: list[Split]
) -> dict[str, Any]:
    """The models that predict a scheme: functions alone where items have no response.

    Raises:
        ValueError: If there are none.
    """
    if all((x.train.any(0) | ~x.new_items).all() for x in parts):
        return predictors
    able = {k: x for k, x in predictors.items() if isinstance(x, ByFunction)}
    if not able:
        raise ValueError(
            f"scheme {scheme!r} leaves items without any response, which need features"
            " of items (--item-features FILE)"
        )
    return able


class _Predictions(NamedTuple):
    """A model or baseline with its scores; `model` and `stages` name it."""

    model: str
    stages: str
    accuracy: Accuracy


class _Study:
    """The predictions of one scheme by models and baselines.

    Attributes:
        curves: Rows of the reliability curves.
        warnings: Predictions that are missing.
    """

    def __init__(
        self,
        scheme: str,
        parts: list[Split],
        right: np.ndarray,
        count: np.ndarray,
        draws: BootstrapDraws,
        level: float,
    ) -> None:
        self.scheme, self.parts, self.draws, self.level = scheme, parts, draws, level
        self.train = int(np.mean([(count * x.train).sum() for x in parts]))
        places = [np.nonzero(x.test) for x in parts]
        row, column = (np.concatenate(x) for x in zip(*places, strict=True))
        split = np.repeat(np.arange(len(parts)), [len(x[0]) for x in places])
        at = row, column
        self.cells = PredictedCells(row, column, right[at], count[at], split)
        self.predicted: list[_Predictions] = []
        self.curves: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    def add(self, model: str, stages: str, chances: list[np.ndarray | None]) -> None:
        """Adds the chances of each split `[subjects, items]`; None where none are."""
        of_tests = [
            x[part.test] if x is not None else None
            for x, part in zip(chances, self.parts, strict=True)
        ]
        if any(x is None for x in of_tests):
            self.warnings.append(f"{model} predicts {self.scheme} by a joint fit alone")
            return
        chance = np.concatenate([x for x in of_tests if x is not None])
        lacking = ~np.isfinite(chance)
        if lacking.any():
            self.warnings.append(
                f"{model} ({stages}) has no prediction of"
                f" {counted(int(lacking.sum()), 'response')} of {self.scheme}: their"
                " mean response is used"
            )
            mean = self.cells.right.sum() / self.cells.responses.sum()
            chance = np.where(lacking, mean, chance)
        scores = accuracy(self.cells, chance, self.draws)
        self.predicted.append(_Predictions(model, stages, scores))
        curve = reliability_curve(self.cells, chance)
        names = {"scheme": self.scheme, "model": model, "stages": stages}
        columns = zip(*(x.tolist() for x in curve.values()), strict=True)
        self.curves += [names | dict(zip(curve, row, strict=True)) for row in columns]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        tail = 50 * (1 - self.level)
        ends = lambda x: np.percentile(x, [tail, 100 - tail]).tolist()
        base = next(x.accuracy for x in self.predicted if x.model == REFERENCE)
        rows = []
        for model, stages, scores in self.predicted:
            row: dict[str, Any] = {"scheme": self.scheme, "model": model}
            row["stages"] = stages
            for name in SCORES:
                row[name] = scores.value[name]
                row[f"{name}_lower"], row[f"{name}_upper"] = ends(scores.draws[name])
            row["calibration"] = scores.value["calibration"]
            row["gain"] = scores.value["auc"] - base.value["auc"]
            gains = scores.draws["auc"] - base.draws["auc"]
            row["gain_lower"], row["gain_upper"] = ends(gains)
            row["trained"] = self.train
            row["predicted"] = int(self.cells.responses.sum() / len(self.parts))
            row["dropped"] = sum(x.dropped for x in self.parts)
            rows.append(row)
        return rows


def _sentence(rows: list[dict[str, Any]], scheme: str, level: float) -> str:
    """The best model of a scheme against the additive baseline, in words."""
    of_scheme = [x for x in rows if x["scheme"] == scheme]
    best = max(
        (x for x in of_scheme if x["stages"] != BASELINE), key=lambda x: x["log_score"]
    )
    base = next(x for x in of_scheme if x["model"] == REFERENCE)
    what = PREDICTED.get(scheme, scheme)
    return (
        f"{what[:1].upper()}{what[1:]}: area under the curve {best['auc']:.3f} by"
        f" {best['model']} ({best['stages']}) and {base['auc']:.3f} by additive effects"
        f" (difference {best['gain']:.3f}, {100 * level:g} % interval"
        f" {best['gain_lower']:.3f} to {best['gain_upper']:.3f})."
    )
