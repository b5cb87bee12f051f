"""The tables of a calibration: a row for each item, and one for each subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, ndtri

from irtjax.calibration import flags
from irtjax.likelihood.problem import is_rescaled
from irtjax.numerics.programs import stored_jit
from irtjax.ranking import rank_intervals, without_scale
from irtjax.ranking.accuracy import accuracies
from irtjax.scoring.information import difficulty
from irtjax.uncertainty import LOST, Covariance

if TYPE_CHECKING:
    import pyarrow as pa


@stored_jit
def _item_errors(problem, coordinates, covariance: Covariance, items):
    """Standard errors of the natural parameters and of the difficulty; difficulties.

    Delta method: the Jacobian of (natural parameters, difficulty) with respect to the
    coordinates, and for a common slope to the population's log sd, where
    d a / d log sd = a. As one program: it is compiled once, not operation by operation.
    """
    model = problem.model
    common = is_rescaled(problem)

    def natural(row, log_scale, reported):
        item = model.family.constrain(row)
        if not model.family.has_slope:
            item = item._replace(
                discrimination=reported.discrimination * jnp.exp(log_scale)
            )
        parts = {name: getattr(item, name) for name in item._fields}
        parts["difficulty"] = difficulty(item)
        return parts

    def error(row, known, lost, reported):
        zero = jnp.zeros((), row.dtype)
        slopes = jax.jacfwd(natural, argnums=(0, 1))(row, zero, reported)

        def variance(by_row, by_scale, block, corner, cross):
            border = cross[:, 1] * common
            own = jnp.sum((by_row @ block) * by_row, axis=-1)
            tied = 2 * (by_row @ border) * by_scale
            return own + tied + by_scale**2 * corner[1, 1] * common

        def of(slope):
            own, missing = (variance(*slope, *parts) for parts in (known, lost))
            error = jnp.sqrt(jnp.maximum(own, 0))
            return jnp.where(missing > LOST * own, jnp.nan, error)

        return {name: of(slopes[name]) for name in slopes}

    known = covariance.items, covariance.scale, covariance.items_scale
    axes = (0, None, 0)
    over_items = jax.vmap(error, in_axes=(0, axes, axes, 0))
    return over_items(coordinates, known, covariance.lost, items), difficulty(items)


def item_errors(problem, estimates, coordinates, covariance: Covariance | None):
    """Standard errors by parameter, which items lack one, and difficulties.

    An error is NaN where the parameter is not identified. Without a covariance there
    are no errors.
    """
    items = estimates.items
    missing = np.zeros(np.shape(items[0])[0], bool)
    if covariance is None:
        return {}, missing, _difficulty_jit(items)
    errors, difficulties = _item_errors(problem, coordinates, covariance, items)
    errors = {name: np.asarray(error) for name, error in errors.items()}
    for name in items._fields:
        missing |= np.isnan(errors[name]).reshape(missing.size, -1).any(axis=1)
    return errors, missing, difficulties


_difficulty_jit = stored_jit(difficulty)


def make_item_table(
    table, problem, estimates, errors, difficulties, found, item_flags, separated
):
    """The fixed columns; a parameter that is a constant of the model has error 0.

    `errors` and `difficulties` are those of `item_errors`; `separated` is
    `[items]` booleans, or None where separation is not defined.
    """
    import pyarrow as pa

    items = estimates.items
    errors = dict(errors)
    values = {name: np.asarray(getattr(items, name)) for name in items._fields}
    values["difficulty"] = np.asarray(difficulties)
    if "difficulty" in errors:
        defined = np.isfinite(values["difficulty"])
        errors["difficulty"] = np.where(defined, errors["difficulty"], np.nan)
    if "lower_asymptote" not in values:
        values["lower_asymptote"] = np.zeros(table.num_items)
        values["upper_asymptote"] = np.ones(table.num_items)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist()),
        "benchmark": pa.array(table.benchmarks.tolist()),
    }
    vectors: dict[str, Any] = {}
    for name in (
        "discrimination",
        "intercept",
        "difficulty",
        "lower_asymptote",
        "upper_asymptote",
    ):
        value, error = values[name], errors.get(name)
        if error is None and errors:
            error = np.zeros_like(value)
        if value.ndim == 1:
            columns[name] = number_column(value)
            columns[f"{name}_se"] = number_column(error, len(value))
        else:
            # The mean threshold stands for the item; each one follows further on.
            columns[name] = number_column(value.mean(axis=1))
            columns[f"{name}_se"] = number_column(None, len(value))
            vectors |= _columns_of(name, value, error)
    columns["accuracy"] = number_column(_mean(found))
    columns["observed"] = pa.array(found.observed)
    columns["flags"] = pa.array(item_flags)
    columns["separated"] = (
        pa.nulls(table.num_items, pa.bool_())
        if separated is None
        else pa.array(separated)
    )
    for name in items._fields:
        if values[name].ndim > 1 and name not in columns:
            vectors |= _columns_of(name, values[name], errors.get(name))
        elif name not in columns:
            # A parameter that an item does not use has no value.
            used = np.broadcast_to(
                problem.model.family.in_use(items, name), table.num_items
            )
            columns[name] = number_column(np.where(used, values[name], np.nan))
            error = errors.get(name)
            if error is not None:
                error = np.where(used, error, np.nan)
            columns[f"{name}_se"] = number_column(error, table.num_items)
    return pa.table({**columns, **vectors})


def _columns_of(name: str, value: np.ndarray, error: np.ndarray | None) -> dict:
    """A column for each number of a parameter that is several, and for its error."""
    found: dict[str, Any] = {}
    for k in range(value.shape[1]):
        found[f"{name}_{k + 1}"] = number_column(value[:, k])
        part = None if error is None else error[:, k]
        found[f"{name}_{k + 1}_se"] = number_column(part, len(value))
    return found


def make_ability_table(
    table,
    ability,
    error,
    shared,
    scale,
    found,
    subject_flags,
    level,
    key,
    speeds,
    expected,
    top,
):
    """The fixed columns, a row for each subject in the order of the table."""
    import pyarrow as pa

    half = float(ndtri(0.5 + level / 2)) * error
    own, rest = without_scale(error, shared, scale)
    ranking = rank_intervals(ability, own, key=key, shared=rest, level=level)
    columns = {
        "subject": pa.array(table.subjects.tolist()),
        "ability": number_column(ability),
        "ability_se": number_column(error),
        "lower": number_column(ability - half),
        "upper": number_column(ability + half),
        "rank": pa.array(np.asarray(ranking.rank, np.int64)),
        "rank_lower": pa.array(np.asarray(ranking.rank_lower, np.int64)),
        "rank_upper": pa.array(np.asarray(ranking.rank_upper, np.int64)),
        "probability_best": number_column(ranking.probability_best),
        **_score_columns(table, expected, top, level),
        "observed": pa.array(found.observed),
        "flags": pa.array(subject_flags),
        **{name: number_column(values) for name, values in speeds.items()},
    }
    return pa.table(columns)


def _score_columns(table, expected, top: int, level: float) -> dict[str, pa.Array]:
    """Expected scores on all items, and accuracies, each with error and interval."""
    score, error = (np.asarray(x, np.float64) for x in expected)
    exposure = table.observed if table.trials is None else table.trials
    benchmarks = table.item_facets.get("benchmark")
    columns = {
        "expected_score": (
            *(score, error),
            *score_interval(score, error, top=top, level=level),
        ),
        "accuracy": accuracies(
            table.values, exposure, benchmarks, top=top, level=level
        ),
    }
    return {
        name + end: number_column(values)
        for name, found in columns.items()
        for end, values in zip(("", "_se", "_lower", "_upper"), found, strict=True)
    }


def score_interval(
    score: np.ndarray, error: np.ndarray, *, top: float = 1.0, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of an expected score, normal on the logit scale: it stays in bounds.

    >>> low, high = score_interval(np.array([0.9]), np.array([0.05]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.752, 0.964)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = score / top
        half = float(ndtri(0.5 + level / 2)) * error / top / (share * (1 - share))
        middle = np.log(share) - np.log1p(-share)
    return top * expit(middle - half), top * expit(middle + half)


def _mean(found: flags.Margins) -> np.ndarray:
    return np.where(
        found.observed > 0, found.total / np.maximum(found.observed, 1), np.nan
    )


def number_column(values: np.ndarray | None, size: int = 0) -> pa.Array:
    """A float column in which what is not finite, or not known, is null."""
    import pyarrow as pa

    if values is None:
        return pa.nulls(size, pa.float64())
    array = np.asarray(values, np.float64)
    return pa.array(array, mask=~np.isfinite(array))
