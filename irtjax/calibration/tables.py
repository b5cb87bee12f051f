"""The tables of a calibration: a row for each item, and one for each subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betaincinv, expit, ndtri

from irtjax.calibration.copies import Copies
from irtjax.calibration.flags import Margins
from irtjax.calibration.scale import compares_means
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.inference import LOST
from irtjax.inference.information import difficulty
from irtjax.likelihood.padding import pad_rows, padded_size
from irtjax.likelihood.problem import is_positive, is_rescaled
from irtjax.models.model import Model, response_ends
from irtjax.numerics.programs import stored_jit
from irtjax.ranking import rank_intervals, without_scale
from irtjax.ranking.accuracy import accuracies

if TYPE_CHECKING:
    import pyarrow as pa

#: Benchmarks up to which the ability table has accuracies on each.
MOST_BENCHMARKS = 60
#: Endings of the columns of a score: itself, its error, and its interval.
_ENDS = ("", "_se", "_lower", "_upper")
#: Columns of a subject's own responses, which limit the interval of its score.
OWN = ("accuracy", "observed")
#: Responses away from an end up to which an interval has the exact outer bound.
FEW_AT_END = 2
#: Parameters that begin the item table, of every model.
_FIRST = ("discrimination", "intercept", "difficulty")
_FIRST += ("lower_asymptote", "upper_asymptote")


class CheckedTables(NamedTuple):
    """Margins and flags, of items and of subjects; errors; copies of subjects.

    `separated` is None where it is not defined. `errors` are standard errors by
    parameter, NaN where an estimate does not exist, and the difficulties.
    """

    margins: tuple[Margins, Margins]
    flags: tuple[list[str], list[str]]
    separated: np.ndarray | None
    errors: tuple[dict[str, np.ndarray], Any]
    copies: Copies


@stored_jit
def _item_errors(model: Model, common: bool, by_item, corner, lost_corner):
    """Standard errors of the natural parameters and of the difficulty; difficulties.

    Delta method: the Jacobian of (natural parameters, difficulty) with respect to the
    coordinates, and for a common slope to the population's log sd, where
    d a / d log sd = a. As one program: it is compiled once, not operation by operation.
    """

    def natural(row, log_scale, reported):
        item = model.family.constrain(row)
        if not model.family.has_slope:
            item = item._replace(
                discrimination=reported.discrimination * jnp.exp(log_scale)
            )
        return item._asdict() | {"difficulty": difficulty(item)}

    def error(row, covariance, lost, reported):
        """By name, of one item; NaN where it is not identified."""
        zero = jnp.zeros((), row.dtype)
        slopes = jax.jacfwd(natural, argnums=(0, 1))(row, zero, reported)

        def variance(by_row, by_scale, block, corner, cross):
            border = cross[:, 1] * common
            own = jnp.sum((by_row @ block) * by_row, axis=-1)
            tied = 2 * (by_row @ border) * by_scale
            return own + tied + by_scale**2 * corner[1, 1] * common

        errors = {}
        for name, slope in slopes.items():
            own, missing = (variance(*slope, *parts) for parts in (covariance, lost))
            size = jnp.sqrt(jnp.maximum(own, 0))
            errors[name] = jnp.where(missing > LOST * own, jnp.nan, size)
        return errors

    coordinates, items, (block, cross), (lost, lost_cross) = by_item
    covariance, lost = (block, corner, cross), (lost, lost_corner, lost_cross)
    axes = (0, None, 0)
    over_items = jax.vmap(error, in_axes=(0, axes, axes, 0))
    return over_items(coordinates, covariance, lost, items), difficulty(items)


_difficulty_jit = stored_jit(difficulty)


def item_errors(estimates: Estimates):
    """Standard errors by parameter, NaN if not identified; such items; difficulties."""
    items, covariance = estimates.parameters.items, estimates.covariance
    missing = np.zeros(np.shape(items[0])[0], bool)
    if covariance is None:
        return {}, missing, _difficulty_jit(items)
    problem, (lost, lost_corner, lost_cross) = estimates.problem, covariance.lost
    own = covariance.items, covariance.items_scale
    by_item = estimates.coordinates, items, own, (lost, lost_cross)
    errors, difficulties = _item_errors(
        problem.model,
        is_rescaled(problem),
        pad_rows(by_item, padded_size(missing.size)),
        covariance.scale,
        lost_corner,
    )
    errors = {name: np.asarray(x)[: missing.size] for name, x in errors.items()}
    difficulties = np.asarray(difficulties)[: missing.size]
    if (directions := estimates.directions) is not None:
        from irtjax.estimators.laplace.direction import error_with_directions

        slope_and_error = np.asarray(items.discrimination), errors["discrimination"]
        errors["discrimination"] = error_with_directions(*slope_and_error, directions)
    # A slope at its bound 0 has no error, though it is identified; nor have slopes that
    # a lasso sets to 0.
    slopes = np.asarray(items.discrimination)
    bound = np.zeros_like(slopes, bool)
    if slopes.ndim > 1:
        bound = (slopes == 0).all(axis=1, keepdims=True)
    if is_positive(problem.model):
        bound = bound | (slopes <= 0)
    free = np.asarray(problem.free)[:, : slopes.shape[-1] if slopes.ndim > 1 else 1]
    bound = bound & free.reshape(slopes.shape)
    for name in items._fields:
        unknown = np.isnan(errors[name])
        if name == "discrimination":
            unknown = unknown & ~bound
            errors[name] = np.where(bound, np.nan, errors[name])
        missing |= unknown.reshape(missing.size, -1).any(axis=1)
    return errors, missing, difficulties


def errors_of_parameters(
    model: Model, items: Any, covariance: np.ndarray
) -> dict[str, np.ndarray]:
    """Standard errors by parameter, and of difficulties, from those of coordinates.

    Args:
        model: The model.
        items: Item records, `[items]`.
        covariance: `[items, columns, columns]` of their unconstrained coordinates; not
            finite where one has no error, which then counts as 0.

    Returns:
        Arrays of the parameters' shapes.
    """
    coordinates = model.unconstrain(jax.tree.map(jnp.asarray, items))
    own = jnp.asarray(np.nan_to_num(covariance), coordinates.dtype)
    cross, corner = jnp.zeros((*own.shape[:2], 2)), jnp.zeros((2, 2))
    lost = jnp.zeros_like(own), cross
    by_item = coordinates, items, (own, cross), lost
    size = len(coordinates)
    padded = pad_rows(by_item, padded_size(size))
    errors, _ = _item_errors(model, False, padded, corner, corner)
    return {name: np.asarray(x, float)[:size] for name, x in errors.items()}


def make_item_table(table: ResponseTable, estimates: Estimates, judged: CheckedTables):
    """The fixed columns, the model's other parameters, those of lengths."""
    import pyarrow as pa

    items, family = estimates.parameters.items, estimates.problem.model.family
    size, (errors, difficulties) = table.num_items, judged.errors
    values = {name: np.asarray(getattr(items, name)) for name in items._fields}
    values["difficulty"] = np.asarray(difficulties)
    if "difficulty" in errors:
        defined = np.isfinite(values["difficulty"])
        error = np.where(defined, errors["difficulty"], np.nan)
        errors = errors | {"difficulty": error}
    if "lower_asymptote" not in values:
        values["lower_asymptote"] = np.zeros(size)
        values["upper_asymptote"] = np.ones(size)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist()),
        "benchmark": pa.array(table.benchmarks.tolist()),
    }
    vectors: dict[str, Any] = {}
    # A parameter that an item does not use has no value.
    for name, value in values.items():
        own = family.intercept_name if name == "difficulty" else name
        used = np.asarray(family.in_use(items, own))
        if not used.all() and name != "discrimination":
            values[name] = np.where(used, value, np.nan)
            if name in errors:
                errors = errors | {name: np.where(used, errors[name], np.nan)}
    for name in _FIRST:
        value, error = values[name], errors.get(name)
        if error is None and errors:
            error = np.zeros_like(value)  # A constant of the model.
        if value.ndim > 1:
            vectors |= _columns(name, value, error)
            if name == "discrimination":
                # Of several abilities: the slope in the steepest direction.
                value, error = np.linalg.norm(value, axis=1), None
            else:
                # The mean threshold represents the item.
                value, error = np.nanmean(value, axis=1), None
        columns |= _columns(name, value, error)
    margins = judged.margins[0]
    mean = margins.total / np.maximum(margins.observed, 1)
    columns["accuracy"] = number_column(np.where(margins.observed > 0, mean, np.nan))
    columns["observed"] = pa.array(margins.observed)
    columns["flags"] = pa.array(judged.flags[0])
    columns["separated"] = pa.nulls(size, pa.bool_())
    if judged.separated is not None:
        columns["separated"] = pa.array(judged.separated)
    for name in items._fields:
        value, error = values[name], errors.get(name)
        if value.ndim > 1 and name not in columns:
            vectors |= _columns(name, value, error)
        elif name not in columns:
            columns |= _columns(name, value, error)
    if table.reversed_scores:
        formulas = [table.reversed_scores.get(x) for x in table.items.tolist()]
        columns["reversed_scores"] = pa.array(formulas, pa.string())
    return pa.table({**columns, **vectors})


def _columns(name: str, value: np.ndarray, error: np.ndarray | None) -> dict:
    """A column and that of its error, for each number of a parameter."""
    if value.ndim == 1:
        error_column = number_column(error, len(value))
        return {name: number_column(value), f"{name}_se": error_column}
    columns = {}
    for k, column in enumerate(value.T):
        part = None if error is None else error[:, k]
        columns |= _columns(f"{name}_{k + 1}", column, part)
    return columns


def make_ability_table(
    table: ResponseTable,
    estimates: Estimates,
    judged: CheckedTables,
    shared: np.ndarray | None,
    scale: np.ndarray | None,
    level: float,
    key: jax.Array,
    clusters: np.ndarray | None,
) -> pa.Table:
    """The fixed columns, a row for each subject in the order of the table.

    `clusters` labels items that accuracies count as dependent, `[items]`.
    """
    import pyarrow as pa

    ability, error = estimates.ability, estimates.error
    observed = judged.margins[1].observed
    scores = _score_columns(table, estimates, observed, level, clusters)
    half = float(ndtri(0.5 + level / 2)) * error
    lower, upper = ability - half, ability + half
    if estimates.several:
        # The ability is an expected score, whose interval stays in its bounds.
        lower, upper = (scores[f"expected_score{end}"] for end in _ENDS[2:])
    own, rest = without_scale(error, shared, scale)
    options: dict[str, Any] = {"shared": rest, "pooled": compares_means(estimates)}
    ranking = rank_intervals(ability, own, key=key, level=level, **options)
    columns = {
        "subject": pa.array(table.subjects.tolist()),
        "ability": number_column(ability),
        "ability_se": number_column(error),
        "lower": number_column(lower),
        "upper": number_column(upper),
        "rank": pa.array(np.asarray(ranking.rank, np.int64)),
        "rank_lower": pa.array(np.asarray(ranking.rank_lower, np.int64)),
        "rank_upper": pa.array(np.asarray(ranking.rank_upper, np.int64)),
        "probability_best": number_column(ranking.probability_best),
        **scores,
        "observed": pa.array(judged.margins[1].observed),
        "flags": pa.array(judged.flags[1]),
        **columns_by_benchmark(table, response_ends(estimates.problem.model), level),
    }
    return pa.table(columns)


def of_benchmark(name: str) -> list[str]:
    """Columns of an accuracy on a benchmark: it, its error, and its interval."""
    return [f"accuracy[{name}]{end}" for end in _ENDS]


def columns_by_benchmark(table: ResponseTable, ends: dict[str, Any], level: float):
    """Accuracies on each benchmark, over items; nothing for one or many."""
    names = [name for name in np.unique(table.benchmarks).tolist() if name]
    columns: dict[str, Any] = {}
    if not 2 <= len(names) <= MOST_BENCHMARKS:
        return columns
    for name in names:
        part = table.stored.select(None, np.flatnonzero(table.benchmarks == name))
        accuracy = accuracies(part, **ends, level=level)
        for column, values in zip(of_benchmark(name), accuracy, strict=True):
            columns[column] = number_column(values)
    return columns


def _score_columns(
    table: ResponseTable,
    estimates: Estimates,
    observed: np.ndarray,
    level: float,
    clusters: np.ndarray | None,
):
    """Expected scores on all items, and accuracies, each with error and interval."""
    score, error = (np.asarray(x, np.float64) for x in estimates.expected)
    options: dict[str, Any] = {**response_ends(estimates.problem.model)}
    options["level"] = level
    accuracy = accuracies(table.stored, clusters, **options)
    options |= {"own": (accuracy.accuracy, observed), "num_items": table.num_items}
    bounds = score_interval(score, error, **options)
    expected = score, error, *bounds
    return {
        name + end: number_column(values)
        for name, estimate in (("expected_score", expected), ("accuracy", accuracy))
        for end, values in zip(_ENDS, estimate, strict=True)
    }


def score_interval(
    score: np.ndarray,
    error: np.ndarray,
    *,
    low: float = 0.0,
    top: float = 1.0,
    level: float = 0.95,
    own: tuple[np.ndarray, np.ndarray] | None = None,
    num_items: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of an expected score, normal on the logit scale: it stays in bounds.

    Where the error exceeds the distance from an end, that scale magnifies it without
    limit. So no bound is farther out than both of these: the one-sided Chebyshev bound
    of Cantelli, which holds for any distribution with this mean and error, and the
    bound of Clopper and Pearson from the subject's `own` mean and number of responses,
    which is conservative for responses in [low, top]. Of a subject with responses to
    all of `num_items` the interval reaches that of Clopper and Pearson: an expected
    score that its own responses exclude is the model's error. With two right (wrong)
    responses or fewer it has that one's outer bound: of subjects with hardly a right
    response, fewer than a normal population has, intervals by the model cover 44 %.

    >>> low, high = score_interval(np.array([0.9, 0.0]), np.array([0.05, 1e-9]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3), float(high[1]) < 1e-8
    (0.752, 0.964, True)
    """
    size = top - low
    share, spread = np.clip((score - low) / size, 0, 1), error / size
    inside = share * (1 - share) > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        half = float(ndtri(0.5 + level / 2)) * spread / (share * (1 - share))
        middle = np.log(share) - np.log1p(-share)
        lower = np.where(inside, expit(middle - half), 0.0)
        upper = np.where(inside, expit(middle + half), 1.0)
    far = ((1 + level) / (1 - level)) ** 0.5 * spread
    lowest, highest = np.maximum(share - far, 0), np.minimum(share + far, 1)
    if own is not None:
        exact = _clopper_pearson((own[0] - low) / size, own[1], level)
        lowest, highest = np.minimum(lowest, exact[0]), np.maximum(highest, exact[1])
        if num_items is not None:
            whole = own[1] >= num_items
            lower = np.where(whole, np.minimum(lower, exact[1]), lower)
            upper = np.where(whole, np.maximum(upper, exact[0]), upper)
            # So near an end the prior, not the responses, gives the distance from it.
            right = (own[0] - low) / size * own[1]
            at_bottom, at_top = right <= FEW_AT_END, own[1] - right <= FEW_AT_END
            lower = np.where(whole & at_bottom, np.minimum(lower, exact[0]), lower)
            upper = np.where(whole & at_top, np.maximum(upper, exact[1]), upper)
    lower, upper = np.maximum(lower, lowest), np.minimum(upper, highest)
    return low + size * lower, low + size * upper


def ability_interval(
    fit: Any, ability, error, level: float, **options: Any
) -> tuple[Any, Any]:
    """Bounds of abilities; where these are expected scores, those of `score_interval`.

    `options` are `own` and `num_items` of that.
    """
    if fit.abilities_are_scores:
        options |= response_ends(fit.model)
        return score_interval(ability, error, level=level, **options)
    half = ndtri(0.5 + level / 2) * error
    return ability - half, ability + half


def interval_columns(fit: Any, table: pa.Table, level: float) -> dict[str, Any]:
    """Columns of intervals of abilities and expected scores, of their errors."""
    import pyarrow as pa

    names = "ability", "ability_se", "expected_score", "expected_score_se"
    ability, error, *score = floats(table, *names)
    mean, count = floats(table, *OWN)
    ends = response_ends(fit.model)
    options = {"own": (mean, count), "num_items": len(fit.item_names)}
    bounds = score_interval(*score, level=level, **ends, **options)
    own = ability_interval(fit, ability, error, level, **options)
    names = "lower", "upper", "expected_score_lower", "expected_score_upper"
    return dict(zip(names, map(pa.array, (*own, *bounds)), strict=True))


def _clopper_pearson(share, count, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact interval of a binomial chance; from 0 to 1 without responses."""
    right, tail = share * count, (1 - level) / 2
    wrong = count - right
    low = np.where(right > 0, betaincinv(np.maximum(right, 1e-9), wrong + 1, tail), 0)
    high = betaincinv(right + 1, np.maximum(wrong, 1e-9), 1 - tail)
    return low, np.where(wrong > 0, high, 1)


def floats(table: pa.Table, *names: str) -> list[np.ndarray]:
    """Columns as numbers, NaN where they are null."""
    columns = (table.column(name).to_numpy() for name in names)
    return [np.asarray(column, np.float64) for column in columns]


def with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """A table with columns of numbers or text added at its end."""
    import pyarrow as pa

    for name, values in columns.items():
        is_text = np.asarray(values).dtype.kind == "U"
        column = pa.array(values) if is_text else number_column(values, table.num_rows)
        table = table.append_column(name, column)
    return table


def number_column(values: Any, size: int = 0) -> pa.Array:
    """A float column in which numbers that are not finite, or not known, are null."""
    import pyarrow as pa

    if values is None:
        return pa.nulls(size, pa.float64())
    array = np.asarray(values, np.float64)
    return pa.array(array, mask=~np.isfinite(array))
