"""From a table of scores to what a family of scores is fitted to, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses
from irtjax.data.scores import Bounds, benchmarks_of, rescale, to_logits
from irtjax.data.table import ResponseTable
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.families.mixed import MixedScores
from irtjax.models.family import Items
from irtjax.models.model import Model


class PreparedScores(NamedTuple):
    """A table made ready for a model of scores.

    Attributes:
        table: The table, rescaled where there were bounds.
        values: `[subjects, items]` what enters ``jit`` in place of the table's values.
        warnings: How many scores were squeezed, and how far.
        options: What to do to other scores of the same items: squeeze and bounds.
    """

    table: ResponseTable
    values: np.ndarray
    warnings: tuple[str, ...]
    options: dict[str, Any]


def binary_items(table: ResponseTable, bounds: Bounds | None = None) -> np.ndarray:
    """Which items are right or wrong: all responses 0 or 1, or counts of trials.

    Those of benchmarks that have bounds are scores, whatever values they took.

    >>> table = ResponseTable.from_arrays([[1, 0.5], [0, 1.0]])
    >>> binary_items(table).tolist()
    [True, False]
    """
    whole = np.all((table.values == 0) | (table.values == 1), axis=0)
    if table.trials is not None:
        whole |= np.any(table.trials > 1, axis=0)
    if isinstance(bounds, Mapping):
        whole &= ~np.isin(table.benchmarks, list(bounds))
    return whole


def prepare(
    table: ResponseTable,
    model: Model,
    *,
    squeeze: float | Mapping[str, float] | None = None,
    bounds: Bounds | None = None,
) -> PreparedScores | None:
    """What a model of scores is fitted to; None for any other model.

    Args:
        table: The responses.
        model: The model.
        squeeze: See `irtjax.data.scores.to_logits`.
        bounds: Lowest and highest possible score, where these are not 0 and 1; or these
            by benchmark.

    Raises:
        ValueError: If there are scores outside the bounds or counts where there must be
            scores, or an option does not suit the model.
    """
    family = model.family
    if not isinstance(family, AbstractScoreFamily):
        for name, value in (("squeeze", squeeze), ("bounds", bounds)):
            if value is not None:
                raise ValueError(
                    f"{name} is for models of scores (--model continuous, beta,"
                    f" inflated_beta or mixed), not for {model.name}"
                )
        return None
    columns = np.ones(table.num_items, bool)
    if isinstance(family, MixedScores):
        if bounds is not None and not isinstance(bounds, Mapping):
            raise ValueError(
                "a mixed model has items without bounds: give them by benchmark,"
                " bounds={'name': (low, high)} (--bounds-of NAME=LOW:HIGH)"
            )
        columns = ~np.asarray(family.binary)
        _check_binary(table, ~columns)
    if bounds is not None:
        table = rescale(table, bounds, columns)
    if table.trials is not None and np.any(table.trials[:, columns] > 1):
        raise ValueError(
            f"counts of trials are not scores of a {model.name} model; use --model"
            " mixed, or read them with trials='mean'"
        )
    ends = family.ends_at
    if ends is not None and squeeze is not None:
        raise ValueError(f"a {model.name} model keeps its ends: leave squeeze out")
    found = to_logits(table, columns, squeeze=squeeze, ends=ends)
    warnings = []
    if found.num_squeezed:
        count, reach = found.num_squeezed, _distances(found.squeeze)
        many = "scores were" if count > 1 else "score was"
        warnings.append(
            f"{count:,} {many} nearer to 0 or 1 than {reach} and put there; an"
            " inflated_beta model keeps the ends"
        )
    kept: Any = bounds
    if isinstance(bounds, Mapping):
        kept = {name: list(ends) for name, ends in bounds.items()}
    elif bounds is not None:
        kept = list(bounds)
    options = {"squeeze": found.squeeze or None, "bounds": kept}
    return PreparedScores(table, found.values, tuple(warnings), options)


def _distances(squeeze: float | dict[str, float]) -> str:
    """How far from the ends scores are, in words, with the n of it."""
    one = lambda n: f"{1 / (2 * n):.3g} (squeeze {n:.6g})"  # noqa: E731
    if not isinstance(squeeze, dict):
        return one(squeeze)
    return ", ".join(f"{one(n)} in {name!r}" for name, n in squeeze.items())


def options_of(
    options: Mapping[str, Any], table: ResponseTable, benchmarks: np.ndarray | None
) -> tuple[ResponseTable, dict[str, Any]]:
    """What to do to other scores as to those of a fit: its labels, and its options.

    Args:
        options: Of the fit, with squeeze and bounds.
        table: Other responses to items of the fit.
        benchmarks: `[items]` labels that these items had there, or None.

    Returns:
        The table with those labels, and the options as `prepare` takes them.
    """
    if benchmarks is not None:
        facets = {**table.item_facets, "benchmark": benchmarks}
        table = dataclasses.replace(table, item_facets=facets)
    known, kept = set(benchmarks_of(table)), {}
    for name in ("squeeze", "bounds"):
        value = options.get(name)
        if isinstance(value, Mapping):
            value = {label: each for label, each in value.items() if label in known}
        kept[name] = value or None
    return table, kept


def check_ends(scores: PreparedScores, model: Model) -> None:
    """Refuses scores that are all at an end, which do not identify a density between.

    Raises:
        ValueError: If no score of the model's scored items is between 0 and 1.
    """
    family, table = model.family, scores.table
    columns = np.ones(table.num_items, bool)
    if isinstance(family, MixedScores):
        columns = ~np.asarray(family.binary)
    inside = (table.values > 0) & (table.values < 1)
    if not inside[:, columns].any():
        raise ValueError(
            f"no score is between 0 and 1, as a {model.name} model needs; use the"
            " model 2pl, or family 2pl of a multilevel one, for responses right or"
            " wrong"
        )


def with_scores(
    data: Responses, scores: PreparedScores | None, dtype: Any
) -> Responses:
    """Responses that hold the logits; as they were for other models."""
    if scores is None:
        return data
    return Responses(
        jnp.asarray(scores.values, dtype),
        data.observed,
        data.trials,
        data.subject_weight,
        data.item_weight,
        data.item_facets,
    )


def log_base_total(model: Model, items: Items, data: Responses) -> float:
    """Sum of h(y) over the observed responses, 0 for models without scores."""
    family = model.family
    if not isinstance(family, AbstractScoreFamily):
        return 0.0
    cells = np.asarray(family.log_base(data.values, items), np.float64)
    seen = True if data.observed is None else np.asarray(data.observed)
    return float(np.sum(cells, where=seen))


def _check_binary(table: ResponseTable, columns: np.ndarray) -> None:
    """Refuses other than right, wrong, or counts within their trials."""
    limit = 1 if table.trials is None else np.maximum(table.trials, 0)
    values = table.values
    wrong = (values < 0) | (values > limit) | (values != np.rint(values))
    wrong &= columns
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"subject {str(table.subjects[row])!r}, item {str(table.items[column])!r}:"
            f" value {values[row, column]:g} is not right or wrong, as this item was"
            " said to be; leave it out or fit again"
        )
