"""What subsets are chosen from: data, model and options, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable, read
from irtjax.data.arrays import positions
from irtjax.data.coding import coding_of, recoded
from irtjax.data.reversal import aligned, bounds_of_values
from irtjax.data.scores import as_shares, check_range, item_ends, rescale
from irtjax.data.table import FEW_SUBJECTS
from irtjax.data.wording import are, counted
from irtjax.fitting.defaults import AUTO, choose, is_integrated
from irtjax.fitting.resolve import check_data, make_model
from irtjax.models.catalogue import known_model, share
from irtjax.models.families.shares import ShareScores
from irtjax.models.model import Model, check_one_ability
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


def make_pool(data, model, stratify, average, aim, abilities, avoid=None, bounds=None):
    """The items to choose from, their responses, and warnings."""
    table = data if isinstance(data, ResponseTable) else read(data)
    if table.trials is not None:
        # Full scores are means of shares, and a fit of counts is of single trials.
        table = as_shares(table)
        if isinstance(model, Calibration) and model.model.family.num_categories:
            model = AUTO
    if isinstance(model, Calibration):
        if bounds is not None:
            raise ValueError("bounds are those of the fit: leave bounds out")
        bounds = model.options.get("bounds")
        table = aligned(table, model.reversed_scores, model.item_names.tolist())
    else:
        bounds = bounds_of_values(table, bounds)
    warnings: tuple[str, ...] = ()
    if bounds is None:
        table = recoded(table, coding_of(table))
    if bounds is None and isinstance(model, str) and model == AUTO:
        # Ratings in many categories are scores here where they are in a fit.
        usual = choose(table)
        bounds = usual.bounds
        warnings = () if bounds is None else (usual.reason,)
    # Full scores and success vectors are matrices, gaps filled.
    size = f"{table.num_subjects:,} subjects by {table.num_items:,} items"
    cure = "select fewer subjects or items"
    require_memory(CELL_BYTES * table.size, f"a subset from {size}", cure)
    scored = table.kind == "continuous" or bounds is not None
    chosen, method, weights = _model_of(table, model, scored)
    check_one_ability(chosen, "shrink")
    scores = isinstance(chosen.family, ShareScores)
    if not (chosen.family.num_categories or scores) or chosen.has_lengths:
        raise ValueError(
            f"shrink does not accept the model {chosen.name}: use one of right, wrong"
            " or ordered responses, or share for scores, without lengths"
        )
    ends = None
    if bounds is not None:
        if not scores:
            what = f"use the model share, not {chosen.name}"
            raise ValueError(f"bounds are for scores: {what}")
        ends = item_ends(bounds, table.benchmarks)
        table = rescale(table, bounds)
    elif table.kind == "continuous":
        check_range(table, (0.0, 1.0), np.ones(table.num_items, bool))
    check_data(table, chosen, 0.5)
    stratum = np.zeros(table.num_items, int)
    if stratify == AUTO:
        stratify = "benchmark" if "benchmark" in table.item_facets else None
    if stratify is not None:
        stratum = _codes(table, stratify)
    target = np.full(table.num_items, 1 / table.num_items)
    if average == "benchmarks":
        codes = _codes(table, "benchmark")
        count = np.bincount(codes)
        target = 1 / (len(count) * count[codes])
    where = None if abilities is None else np.asarray(abilities, float).reshape(-1)
    if where is not None and (where.size == 0 or not np.isfinite(where).all()):
        raise ValueError("abilities must be finite numbers, one or more")
    # Held-out subjects are predicted as new ones will be, by the same form.
    form = "normal" if weights is None else "histogram"
    if table.observed is not None and not table.observed.any(1).all():
        some = table.observed.sum(1) > 0
        table = table.select(subjects=some)
        warnings += (
            f"{counted((~some).sum(), 'subject')} without responses"
            f" {are((~some).sum())} left out",
        )
    method = "laplace" if method == "laplace" else "em"
    last = suspicious_items(table) if avoid is None else None
    if avoid:
        last = np.zeros(table.num_items, bool)
        last[positions("item", table.items, list(avoid))] = True
    given = target, stratum, aim, where, form, method, last, ends
    pool = Pool(table, chosen, *given)
    return pool, warnings


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
    by_name = known_model(model)
    if hasattr(by_name, "multilevel") or hasattr(by_name, "factorial"):
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


def check_choice(rule: str, aim: str, average: str, level: float) -> None:
    """Refuses an unknown rule, aim or mean, and a level that is none."""
    for name, value, choices in (
        ("rule", rule, (AUTO, *RULES)),
        ("aim", aim, AIMS),
        ("average", average, ("items", "benchmarks")),
    ):
        if value not in choices:
            raise ValueError(f"{name} {value!r} is not one of {', '.join(choices)}")
    if not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")


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
