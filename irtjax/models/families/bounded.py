"""From a table of scores to what a family of scores is fitted to, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax.data.arrays import places_of
from irtjax.data.responses import Responses
from irtjax.data.scores import (
    Bounds,
    as_shares,
    benchmarks_of,
    rescale,
    to_logits,
    to_shares,
    within_bounds,
)
from irtjax.data.table import ResponseTable
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.families.mixed import MixedScores
from irtjax.models.families.shares import ShareScores
from irtjax.models.family import Items
from irtjax.models.model import Model

#: Share of scores at an end of their range from which `share` suits them.
MANY_ENDS = 0.02
#: What a fit keeps of its scores, for other scores of the same items.
OPTIONS = ("squeeze", "bounds", "worth")


class PreparedScores(NamedTuple):
    """A table prepared for a model of scores, rescaled where there were bounds."""

    table: ResponseTable
    values: np.ndarray  # [subjects, items] enter `jit` in place of the table's values
    warnings: tuple[str, ...]
    options: dict[str, Any]  # `OPTIONS`, for other scores of the same items
    trials: np.ndarray | None = None  # [subjects, items] what each score is worth


def binary_items(table: ResponseTable, bounds: Bounds | None = None) -> np.ndarray:
    """Which items are right or wrong: all responses 0 or 1, or counts of trials.

    Those that have bounds are scores, whatever values they took.
    """
    whole = np.all((table.values == 0) | (table.values == 1), axis=0)
    if bounds is not None and not isinstance(bounds, Mapping):
        whole[:] = False
    if table.trials is not None:
        whole |= np.any(table.trials > 1, axis=0)
    if isinstance(bounds, Mapping):
        whole &= ~np.isin(table.benchmarks, list(bounds))
    return whole


def at_the_ends(table: ResponseTable, bounds: Bounds | None = None) -> float:
    """Share of the scores that are at an end of their range, 0 where there are none.

    Items that are right or wrong have no scores (`binary_items`).
    """
    right = binary_items(table, bounds)
    if bounds is not None:
        table = rescale(table, bounds)
    if table.trials is not None or right.all():
        return 0.0
    seen = np.broadcast_to(~right, table.values.shape)
    if table.observed is not None:
        seen = seen & table.observed
    ends = (table.values == 0) | (table.values == 1)
    return float(np.count_nonzero(ends & seen) / max(np.count_nonzero(seen), 1))


def prepare(
    table: ResponseTable,
    model: Model,
    *,
    squeeze: float | Mapping[str, float] | None = None,
    bounds: Bounds | None = None,
    worth: float | Mapping[str, float] | None = None,
) -> PreparedScores | None:
    """What a model of scores is fitted to; None for any other model.

    `squeeze` is that of `irtjax.data.scores.to_logits`, `worth` that of `to_shares`.
    `bounds` are the lowest and the highest possible score, where these are not 0 and 1,
    or these by benchmark.
    """
    family = model.family
    if not isinstance(family, AbstractScoreFamily):
        for name, value in (("squeeze", squeeze), ("bounds", bounds)):
            if value is not None:
                raise ValueError(
                    f"{name} is for models of scores (continuous, beta,"
                    f" inflated_beta, share or mixed), not for {model.name}"
                )
        return None
    columns = _scored(model, table)
    if isinstance(family, MixedScores):
        if bounds is not None and not isinstance(bounds, Mapping):
            raise ValueError(
                "a mixed model has items without bounds: give them by benchmark,"
                " bounds={'name': (low, high)} (--bounds-of NAME=LOW:HIGH)"
            )
        _check_binary(table, ~columns)
    if isinstance(family, ShareScores):
        table = as_shares(table)
    if bounds is not None:
        table = rescale(table, bounds, columns)
    if table.trials is not None and np.any(table.trials[:, columns] > 1):
        raise ValueError(
            f"counts of trials are not scores of a {model.name} model; use"
            " model='mixed', or read them with trials='mean'"
        )
    if isinstance(family, ShareScores):
        if squeeze is not None:
            raise ValueError("a share model uses scores as they are: leave squeeze out")
        shares = to_shares(table, worth)
        options = {"worth": shares.worth, "bounds": _recorded(bounds)}
        note = (
            "scores count as shares of independent right responses; by their"
            " dispersion a score is worth"
            f" {_by_name(shares.worth, '{:.3g} responses'.format)}"
        )
        table = table.replace(notes=(*table.notes, note))
        return PreparedScores(table, shares.values, (), options, shares.trials)
    ends = family.ends_at
    if ends is not None and squeeze is not None:
        raise ValueError(f"a {model.name} model keeps its ends: leave squeeze out")
    logits = to_logits(table, columns, squeeze=squeeze, ends=ends)
    warnings = []
    if logits.num_squeezed:
        count, reach = logits.num_squeezed, _distances(logits.squeeze)
        many, was = ("scores", "were") if count > 1 else ("score", "was")
        warnings.append(
            f"{count:,} {many} {was} within {reach} of 0 or 1 and {was} moved to that"
            " distance; an inflated_beta model keeps the ends"
        )
    options = {"squeeze": logits.squeeze or None, "bounds": _recorded(bounds)}
    return PreparedScores(table, logits.values, tuple(warnings), options)


def _recorded(bounds: Bounds | None) -> Any:
    """Bounds as a fit keeps them."""
    if isinstance(bounds, Mapping):
        return {name: list(ends) for name, ends in bounds.items()}
    return bounds and list(bounds)


def _scored(model: Model, table: ResponseTable) -> np.ndarray:
    """Which items have scores rather than right and wrong responses."""
    if isinstance(model.family, MixedScores):
        return ~np.asarray(model.family.binary)
    return np.ones(table.num_items, bool)


def _distances(squeeze: float | dict[str, float]) -> str:
    """How far from the ends scores are, in words, with the n of it."""
    return _by_name(squeeze, lambda n: f"{1 / (2 * n):.3g} (squeeze {n:.6g})")


def _by_name(value: float | dict[str, float], text: Callable[[float], str]) -> str:
    """One number in words, or one for each benchmark."""
    if not isinstance(value, dict):
        return text(value)
    return ", ".join(f"{text(n)} in {name!r}" for name, n in value.items())


def options_of(
    options: Mapping[str, Any], table: ResponseTable, benchmarks: np.ndarray | None
) -> tuple[ResponseTable, dict[str, Any]]:
    """Another table with the `benchmarks` `[items]` of a fit, and the fit's options.

    These are `OPTIONS` for the table, as `prepare` takes them.
    """
    if benchmarks is not None:
        facets = {**table.item_facets, "benchmark": benchmarks}
        table = table.replace(item_facets=facets)
    names, settings = set(benchmarks_of(table)), {}
    for name in OPTIONS:
        value = options.get(name)
        if isinstance(value, Mapping):
            value = {label: each for label, each in value.items() if label in names}
        settings[name] = value or None
    return table, settings


def in_unit_range(
    options: Mapping[str, Any], table: ResponseTable, items, benchmarks
) -> np.ndarray:
    """Values of a table, from 0 to 1 where the fit had bounds of its scores.

    `items` and `benchmarks` `[items]` are those of the fit; other items have the
    benchmarks of the table.
    """
    bounds, labels = options.get("bounds"), table.benchmarks
    if not bounds:
        return table.values
    if benchmarks is not None:
        places = places_of(np.asarray(items), table.items)
        labels = np.where(places >= 0, benchmarks[places], labels)
    return within_bounds(table.values, bounds, labels)


def worth_of(options: Mapping[str, Any], benchmarks: np.ndarray | None, count: int):
    """Right or wrong responses that a score is worth, `[items]`; 1 but for shares."""
    worth = options.get("worth") or 1.0
    if not isinstance(worth, Mapping):
        return np.full(count, float(worth))
    assert benchmarks is not None
    return np.array([float(worth[name]) for name in benchmarks.tolist()])


def check_ends(scores: PreparedScores, model: Model) -> None:
    """Refuses scores that are all at an end: they identify no density between.

    Shares have none.
    """
    if scores.trials is not None:
        return
    table = scores.table
    inside = (table.values > 0) & (table.values < 1)
    if not inside[:, _scored(model, table)].any():
        raise ValueError(
            f"no score is between 0 and 1, as a {model.name} model needs; use the"
            " model 2pl, or family 2pl of a multilevel one, for responses right or"
            " wrong"
        )


def with_scores(data: Responses, scores: PreparedScores | None, dtype) -> Responses:
    """Responses that hold the logits; as they were for other models."""
    if scores is None:
        return data
    values = jnp.asarray(scores.values, dtype)
    if scores.trials is None:
        return dataclasses.replace(data, values=values)
    trials = jnp.asarray(scores.trials, dtype)
    return dataclasses.replace(data, values=values, trials=trials)


def arrays_of(
    table: ResponseTable, model: Model, data: Mapping[str, Any], dtype, *, offset=None
) -> tuple[ResponseTable, Responses, tuple[str, ...], dict[str, Any]]:
    """Table and arrays with scores on the logit scale, warnings and the record.

    `data` has `squeeze` and `bounds`, and `offset` is added to response lengths.
    """
    scores = prepare(table, model, squeeze=data["squeeze"], bounds=data["bounds"])
    warnings, record = (), {}
    if scores is not None:
        check_ends(scores, model)
        table, warnings, record = scores.table, scores.warnings, scores.options
    responses = table.responses(dtype, length_offset=offset)
    return table, with_scores(responses, scores, dtype), warnings, record


def log_base_total(model: Model, items: Items, data: Responses) -> float:
    """Sum of h(y) over the observed responses, 0 for models without scores."""
    family = model.family
    if not isinstance(family, AbstractScoreFamily):
        return 0.0
    if data.is_divided:
        # No process has all rows of the matrix.
        return float(np.sum(np.asarray(_log_bases(family, items, data), np.float64)))
    cells = np.asarray(family.log_base(data.values, items), np.float64)
    seen = True if data.observed is None else np.asarray(data.observed)
    return float(np.sum(cells, where=seen))


@eqx.filter_jit
def _log_bases(family: Any, items: Items, data: Responses) -> Array:
    """Sums of h(y) over the observed responses of each subject."""

    def of_rows(part: Responses, rows: None) -> tuple[None, Array]:
        del rows
        seen = True if part.observed is None else part.observed
        return None, jnp.sum(family.log_base(part.values, items), axis=1, where=seen)

    return data.fold(of_rows)[1]


def _check_binary(table: ResponseTable, columns: np.ndarray) -> None:
    """Refuses other than right, wrong, or counts within their trials."""
    limit = 1 if table.trials is None else np.maximum(table.trials, 0)
    values = table.values
    wrong = columns & ((values < 0) | (values > limit) | (values != np.rint(values)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"subject {str(table.subjects[row])!r}, item {str(table.items[column])!r}:"
            f" value {values[row, column]:g} is not right or wrong, as this item's"
            " responses were in the fit; leave it out or fit again"
        )
