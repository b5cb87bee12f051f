"""What a fit is requested, by name: its model, its method, and data that suit them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data.scores import Bounds
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import AbstractEstimator
from irtjax.models.catalogue import MODELS, Priors
from irtjax.models.families.bounded import binary_items
from irtjax.models.model import Model

#: Responses other than 0 and 1 that count as mistakes: one, or this share of all.
MOST_ODD, MOST_ODD_SHARE = 1, 0.001
#: A program of 30 categories takes more than a minute to compile.
MOST_CATEGORIES = 100


def make_model(
    model: Model | str,
    table: ResponseTable,
    priors: Priors = "weak",
    *,
    positive: bool = False,
    ends: float | None = None,
    bounds: Bounds | None = None,
) -> Model:
    """A model by name, with the categories or kinds of items that the data have."""
    if ends is not None and model != "inflated_beta":
        raise ValueError("ends is for the model 'inflated_beta'")
    if not isinstance(model, str):
        return model
    make = MODELS.get(model)
    if make is None or isinstance(make, type):
        raise ValueError(f"no model {model!r}; there are {', '.join(MODELS)}")
    parameters = inspect.signature(make).parameters
    arguments: dict[str, Any] = {
        "priors": priors,
        "positive": positive,
        "ends": ends or 0.0,
    }
    codes: tuple[int, ...] = ()
    if "num_categories" in parameters:
        if table.kind not in ("binary", "ordinal"):
            raise ValueError(
                f"a {model} model needs integer responses, not {table.kind}"
            )
        only = np.unique(table.seen)
        if len(only) == 1 and only[0] not in (0, 1):
            raise ValueError(
                f"every response is {only[0]:g}, so nothing can be estimated; check"
                " which column or metric has the responses"
            )
        codes = category_codes(table)
        count = arguments["num_categories"] = len(codes)
        if count > MOST_CATEGORIES:
            raise ValueError(
                f"the responses have {count:,} categories, of at most"
                f" {MOST_CATEGORIES} for {model!r}; take them as scores, with"
                f" model='continuous' and bounds=({codes[0]}, {codes[-1]})"
            )
    if "binary" in parameters:
        arguments["binary"] = _binary_items(table, bounds)
    made = make(**{name: arguments[name] for name in parameters if name in arguments})
    return with_codes(made, codes)


def with_codes(model: Model, codes: tuple[int, ...]) -> Model:
    """A model of ordered categories whose responses are these numbers."""
    if codes == tuple(range(len(codes))):
        return model
    return dataclasses.replace(model, family=model.family.with_codes(codes))


def category_codes(table: ResponseTable) -> tuple[int, ...]:
    """The ordered categories: the numbers that occur, at least two of them.

    >>> category_codes(ResponseTable.from_arrays([[1, 2], [5, np.nan]]))
    (1, 2, 5)
    """
    codes = [int(code) for code in np.unique(table.seen).tolist()]
    if len(codes) < 2:
        low = codes[0] if codes else 0
        codes = [0, 1] if low in (0, 1) else [low, low + 1]
    return tuple(codes)


def nearly_binary(table: ResponseTable) -> bool:
    """Whether all responses but a few are 0 or 1: the few are mistakes."""
    if table.kind == "binary" or not table.size:
        return True
    values = table.seen
    odd = int(np.count_nonzero((values != 0) & (values != 1)))
    return odd <= max(MOST_ODD, MOST_ODD_SHARE * table.num_observed)


def _binary_items(table: ResponseTable, bounds: Bounds | None) -> np.ndarray:
    """Which items are right or wrong; refused where all or none are."""
    binary = binary_items(table, bounds)
    if binary.all() or not binary.any():
        kind, cure = ("right or wrong", "2pl") if binary.any() else ("scores", "beta")
        raise ValueError(
            f"every item has {kind} only; a mixed model has both kinds: use"
            f" model={cure!r}"
        )
    return binary


def make_method(
    method: AbstractEstimator | str, fields: Mapping[str, Any], model: Any, count: int
) -> AbstractEstimator:
    """A method by name, with the settings that suit the model and those given.

    `fields` are fields of its class, and `count` the number of subjects. A method
    object is returned as it is.
    """
    if not isinstance(method, str):
        return method
    suited = method_class(method)().suited(model, count)
    own = {field.name for field in dataclasses.fields(suited)}
    if set(fields) - own:
        raise ValueError(
            f"{min(set(fields) - own)} has no effect on a {model.name} model by method"
            f" {method!r}: leave it out"
        )
    return dataclasses.replace(suited, **fields) if fields else suited


def weighted_priors(model: Model, method: AbstractEstimator) -> Model:
    """The model without priors where the method gives them no weight: `penalty` 0.

    Estimates are the same. Flags and errors are those of no priors.
    """
    penalty = getattr(method, "penalty", None)
    unweighted = penalty is not None and np.ndim(penalty) == 0 and float(penalty) == 0
    return dataclasses.replace(model, priors={}) if unweighted else model


def check_data(table: ResponseTable, model: Model, level: float) -> None:
    """Refuses data that no model, or not this one, can be fitted to: place and cure."""
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    where = f"{table.sources[0]}: " if table.sources else ""
    for count, what in ((table.num_subjects, "subject"), (table.num_items, "item")):
        if count < 2:
            raise ValueError(
                f"{where}{counted(count, what)}: a fit compares at least"
                f" two; add files, or score new subjects with a saved fit"
            )
    if table.num_observed == 0:
        raise ValueError(f"{where}every response is missing: nothing can be fitted")
    if model.family.num_categories == 0:
        return
    codes = model.family.category_codes
    low, top = codes[0], codes[-1]
    if table.binary_cells is not None and low == 0:
        return
    values = table.values
    if table.trials is not None and len(codes) > 2:
        raise ValueError(f"{where}counts of trials need a binary model")
    limit = top if table.trials is None else table.trials
    # A look at the extremes first: masks of large tables cost memory.
    whole = values.dtype == np.int8 or bool(np.all(values == np.rint(values)))
    inside = table.trials is None and values.min() >= low and values.max() <= top
    if not (whole and inside):
        bad = (values < low) | (values > limit)
        if not whole:
            bad |= values != np.rint(values)
        if table.observed is not None:
            bad &= table.observed
        if not bad.any():
            return
        row, column = np.argwhere(bad)[0]
        wanted, cure = f"an integer from {low} to {top}", "recode it to start at 0"
        if top == 1:
            between = 0 < values[row, column] < 1
            other = "'continuous' for scores in [0, 1]"
            other = other if between else "'graded' for ordered categories"
            wanted, cure = "0 or 1", f"choose a 0/1 metric, or model={other}"
        raise ValueError(
            f"{where}subject {str(table.subjects[row])!r}, item"
            f" {str(table.items[column])!r}:"
            f" value {values[row, column]:g} is not {wanted}, as a {model.name} model"
            f" needs; {cure}"
        )
