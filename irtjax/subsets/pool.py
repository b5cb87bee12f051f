"""What subsets are chosen from: data, model and options, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable, read
from irtjax.data.arrays import positions
from irtjax.data.coding import coded
from irtjax.data.reversal import aligned, bounds_of_values
from irtjax.data.scores import Bounds, as_shares, check_range, item_ends, rescale
from irtjax.data.table import FEW_SUBJECTS
from irtjax.data.wording import are, counted
from irtjax.fitting.defaults import AUTO, choose, is_integrated
from irtjax.fitting.resolve import check_data, make_model
from irtjax.models.catalogue import model_class, share
from irtjax.models.factors import Factor
from irtjax.models.families.shares import ShareScores
from irtjax.models.model import Model, check_one_ability
from irtjax.models.multilevel.specification import AbstractMultilevel
from irtjax.numerics.memory import require_memory
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.subsets.crossfit import Pool
from irtjax.subsets.selection import AIMS, RULES
from irtjax.validity.classical import classical

#: Bytes of a cell of the responses: 8,000 x 5,000 took 2.4 GB, 0.4 GB without cells.
CELL_BYTES = 50.0
#: False discovery rate of each defect of items that are not chosen.
FALSE_DISCOVERIES = 0.05
#: Folds of subjects where no number is given.
FOLDS = 5


class SubsetSettings(TypedDict, total=False):
    """What the full score is, and which items are preferred.

    Attributes:
        aim: For "information": "score" or "ability".
        abilities: Where information matters, each as much; None for the population.
        stratify: Facet whose values all get their share of the items, and at least
            one. "auto" is "benchmark" where there are several, None is none.
        average: The full score is the mean over "items" or over "benchmarks".
        avoid: Names of items that are chosen only where no others are left. None for
            those whose key looks wrong or that do not discriminate, by the tests of
            `irtjax.audit` that need no model. Full scores count them.
        bounds: The lowest and the highest possible score, or these by benchmark, where
            they are not 0 and 1. Full scores are means of shares of that range.
    """

    aim: str
    abilities: Sequence[float] | np.ndarray | None
    stratify: str | None
    average: str
    avoid: Sequence[str] | None
    bounds: Bounds | None


def make_pool(
    data: ResponseTable | Any,
    model: Model | str | Calibration,
    *,
    aim: str = "score",
    abilities: Sequence[float] | np.ndarray | None = None,
    stratify: str | None = AUTO,
    average: str = "items",
    avoid: Sequence[str] | None = None,
    bounds: Bounds | None = None,
) -> tuple[Pool, tuple[str, ...]]:
    """The items to choose from, their responses, and warnings; see `SubsetSettings`."""
    _check_one_of("aim", aim, AIMS)
    _check_one_of("average", average, ("items", "benchmarks"))
    table = data if isinstance(data, ResponseTable) else read(data)
    if table.trials is not None:
        # Full scores are means of shares, and a fit of counts is of single trials.
        table = as_shares(table)
        if isinstance(model, Calibration) and model.model.family.num_categories:
            model = AUTO
    table, bounds, warnings = _coded(table, model, bounds)
    # Full scores and success vectors are matrices, gaps filled.
    size = f"{table.num_subjects:,} subjects by {table.num_items:,} items"
    cure = "select fewer subjects or items"
    require_memory(CELL_BYTES * table.size, f"a subset from {size}", cure)
    scored = table.kind == "continuous" or bounds is not None
    chosen, method, weights = _model_of(table, model, scored)
    table, ends = _scaled(table, chosen, bounds)
    check_data(table, chosen, 0.5)
    if stratify == AUTO:
        stratify = "benchmark" if "benchmark" in table.item_facets else None
    stratum = np.zeros(table.num_items, int)
    if stratify is not None:
        stratum = _codes(table, stratify)
    target = np.full(table.num_items, 1 / table.num_items)
    if average == "benchmarks":
        codes = _codes(table, "benchmark")
        count = np.bincount(codes)
        target = 1 / (len(count) * count[codes])
    if abilities is not None:
        abilities = np.asarray(abilities, float).reshape(-1)
        if abilities.size == 0 or not np.isfinite(abilities).all():
            raise ValueError("abilities must be finite numbers, one or more")
    if table.observed is not None and not table.observed.any(1).all():
        some = table.observed.sum(1) > 0
        table = table.select(subjects=some)
        lost = int((~some).sum())
        sentence = f"{counted(lost, 'subject')} without responses {are(lost)} left out"
        warnings = (*warnings, sentence)
    last = suspicious_items(table) if avoid is None else None
    if avoid:
        last = np.zeros(table.num_items, bool)
        last[positions("item", table.items, list(avoid))] = True
    pool = Pool(
        table,
        chosen,
        target,
        stratum,
        aim=aim,
        abilities=abilities,
        # Held-out subjects are predicted as new ones will be, by the same form.
        form="normal" if weights is None else "histogram",
        method="laplace" if method == "laplace" else "em",
        avoid=last,
        ends=ends,
    )
    return pool, warnings


def _coded(
    table: ResponseTable, model: Any, bounds: Bounds | None
) -> tuple[ResponseTable, Bounds | None, tuple[str, ...]]:
    """Responses as the model takes them, bounds of scores, and why these are bounds."""
    if isinstance(model, Calibration):
        if bounds is not None:
            raise ValueError("bounds are those of the fit: leave bounds out")
        bounds = model.options.get("bounds")
        table = aligned(table, model.reversed_scores, model.item_names.tolist())
    else:
        bounds = bounds_of_values(table, bounds)
    if bounds is not None:
        return table, bounds, ()
    table = coded(table)
    if not (isinstance(model, str) and model == AUTO):
        return table, None, ()
    # Ratings in many categories are scores here where they are in a fit.
    usual = choose(table)
    return table, usual.bounds, () if usual.bounds is None else (usual.reason,)


def _scaled(
    table: ResponseTable, model: Model, bounds: Bounds | None
) -> tuple[ResponseTable, np.ndarray | None]:
    """Scores from 0 to 1, with their ends `[2, items]`; refuses other models."""
    check_one_ability(model, "shrink")
    scores = isinstance(model.family, ShareScores)
    if not (model.family.num_categories or scores) or model.has_lengths:
        raise ValueError(
            f"shrink does not accept the model {model.name}: use one of right, wrong"
            " or ordered responses, or share for scores, without lengths"
        )
    if bounds is not None:
        if not scores:
            raise ValueError(
                f"bounds are for scores: use the model share, not {model.name}"
            )
        return rescale(table, bounds), item_ends(bounds, table.benchmarks)
    if table.kind == "continuous":
        check_range(table, (0.0, 1.0), np.ones(table.num_items, bool))
    return table, None


def _model_of(table: ResponseTable, model: Any, scored: bool) -> tuple[Model, str, Any]:
    """The model, the method of the folds, and log weights of a histogram population.

    Scores (`scored`) may all be at an end of their range.
    """
    if isinstance(model, Calibration):
        if model.num_groups > 1:
            raise ValueError(
                "shrink needs one ability, and this fit has one for each group: fit"
                " one of the benchmarks, or all by one ability"
            )
        weights = model.parameters.population.log_weights
        # Other models of `laplace` are fitted in the folds by EM, with their family.
        integrated = is_integrated(model.options["model"])
        return model.model, model.options["method"] if integrated else "em", weights
    if issubclass(model_class(model), AbstractMultilevel | Factor):
        raise ValueError(
            "shrink does not fit multilevel and factor models: give a fit of one"
            " ability"
        )
    if scored and isinstance(model, str) and model == AUTO:
        # Full scores are means, which shares have whatever the form of the scores.
        few = table.num_subjects < FEW_SUBJECTS
        model = share(slopes="unit") if few else "share"
    name, method, *_ = choose(table, model, categories=True)
    made = make_model(name, table, "weak")
    # Other models are fitted by `laplace` by name only.
    named = isinstance(name, str) or isinstance(made.family, ShareScores)
    return made, method if named else "em", None


def suspicious_items(table: ResponseTable) -> np.ndarray:
    """`[items]` whether better subjects do worse, or nearly as the others.

    By the tests of `irtjax.audit` that need no model, at its false discovery rate.
    """
    if table.kind != "binary":
        return np.zeros(table.num_items, bool)
    statistics = classical(table.stored)
    tests = statistics.p_negative, statistics.p_wrong_key, statistics.p_weak
    varied = np.isfinite(statistics.item_rest)
    adjusted = [benjamini_hochberg(np.where(varied, p, np.nan)) for p in tests]
    return np.any(np.nan_to_num(adjusted, nan=1.0) <= FALSE_DISCOVERIES, axis=0)


def _codes(table: ResponseTable, facet: str) -> np.ndarray:
    """Codes `[items]` of the values of a facet."""
    if facet not in table.item_facets:
        facets = ", ".join(sorted(table.item_facets)) or "none"
        raise ValueError(
            f"items have no facet {facet!r} (there: {facets}): name the column when"
            " reading, such as benchmark="
        )
    return np.unique(table.item_facets[facet], return_inverse=True)[1].reshape(-1)


def check_choice(rule: str, level: float) -> None:
    """Refuses an unknown rule, and a level that is none."""
    _check_one_of("rule", rule, (AUTO, *RULES))
    if not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")


def _check_one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(choices)}")


def check_size(size: int, count: int, name: str = "size") -> None:
    """Refuses a number of items that there are not, or that is not whole."""
    if not 1 <= size <= count:
        raise ValueError(
            f"{name} {size} is not between 1 and the {counted(count, 'item')} there are"
        )
    if size != int(size):
        raise ValueError(f"{name} {size} is not a whole number")


def check_folds(folds: int | None, subjects: int) -> int:
    """Returns the number of folds, of at least two subjects each."""
    if folds is None:
        folds = max(2, min(FOLDS, subjects // 2))
    if subjects < 4:
        raise ValueError(
            f"folds {folds}: {subjects} subjects are too few to hold any out; 0 folds"
            " take the model's own errors"
        )
    if not 2 <= folds <= subjects // 2:
        raise ValueError(
            f"folds {folds}: {subjects} subjects allow 2 to {subjects // 2}"
        )
    return folds
