"""Start values from the data: proportions, or a spectral decomposition.

Random starts cost most of the iterations of any estimator, and some of them end in
poorer optima; moments of the data take a few passes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logit, ndtri
from jaxtyping import Array

from irtjax.data.responses import AbstractResponses, Responses
from irtjax.likelihood.problem import Start
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.families.logistic import Binary
from irtjax.models.lengths import LengthItems, LengthParameters
from irtjax.models.model import Model, Population, response_ends, unit_responses
from irtjax.numerics.kernels import weigh_rows
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit


def _standardise(theta: Array, weight: Array | None) -> Array:
    """Abilities with weighted mean 0 and standard deviation 1."""
    weight = jnp.ones_like(theta) if weight is None else weight.astype(theta.dtype)
    total = jnp.sum(weight)
    mean = jnp.sum(weight * theta) / total
    sd = jnp.sqrt(jnp.sum(weight * (theta - mean) ** 2) / total)
    return (theta - mean) / jnp.maximum(sd, 1e-6)


#: Ways to begin.
STARTS = ("proportions", "spectral", "low_rank")
#: Probabilities of the low-rank start are kept this far from 0 and 1 (the paper's;
#: on its three data sets slopes begin nearer to the estimates than with 1e-3 or 1e-2).
TRUNCATION = 1e-9
#: Steps of the subspace iteration, and vectors in addition to those wanted.
NUM_ITERATIONS, OVERSAMPLED = 10, 6
#: Logits per unit of a response, at chances of one half; other links have fewer units.
LOGITS, LOGISTIC_VARIANCE = 4.0, math.pi**2 / 3
#: Largest slope and intercept of a start.
LARGEST_SLOPE, LARGEST_INTERCEPT = 4.0, 6.0


@full_precision
def start_values(
    model: Model,
    data: AbstractResponses,
    *,
    how: str = "proportions",
    dtype=None,
    truncation: float = TRUNCATION,
    loadings: np.ndarray | None = None,
) -> Start:
    """Start values for any method.

    Abilities begin at standardised scores: the mean deviation from the item means
    ("proportions"), or the leading left singular vector of the centred responses
    ("spectral"). Slopes come from the correlation r of each item with that score,
    a = 1.702 r / sqrt(1 - r^2) for a logistic item, and intercepts from the mean of
    each statistic. "low_rank" is `low_rank_start`. With several abilities both are the
    leading singular vectors.

    Args:
        model: The model.
        data: Responses.
        how: "proportions", "spectral" or, for binary models of one ability, "low_rank".
        dtype: Floating type; that of default JAX arrays when None.
        truncation: For "low_rank", epsilon.
        loadings: With several abilities, which discriminations to estimate, a mask
            `[items, dims]`, the others being 0; None for all.

    Returns:
        Items and abilities. All values are finite, for items without variation too.

    Raises:
        ValueError: If `how` is none of the three or does not suit the model, or
            loadings do not.

    >>> import jax
    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> model = factor_model(Factor(factors=2))
    >>> data = Responses(jnp.asarray(np.eye(6, 9), jnp.int8))
    >>> start = jax.jit(start_values)(model, data)
    >>> start.items.discrimination.shape, start.theta.shape
    ((9, 2), (6, 2))
    """
    if how not in STARTS:
        raise ValueError(f"start {how!r} is none of {', '.join(STARTS)}")
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    if model.several:
        _check_several(model, data, how, loadings)
        return _vector_start(model, data, loadings, dtype)
    if loadings is not None:
        raise ValueError(
            f"loadings are for several abilities, and a {model.name} model has one"
        )
    if data.is_streamed:
        if how != "proportions":
            raise ValueError(f"start {how!r} needs all responses: use 'proportions'")
        # The host makes the passes.
        return _start_values.function(model, data, how, dtype, truncation)
    return _start_values(model, data, how, dtype, truncation)


def _check_several(
    model: Model, data: AbstractResponses, how: str, loadings: np.ndarray | None
) -> None:
    """Refuses start values that several abilities do not have."""
    wanted = data.num_items, *model.family.ability_shape
    if how == "low_rank":
        raise ValueError(
            f"start 'low_rank' is for one ability, and a {model.name} model has"
            f" {wanted[1]}: use 'proportions'"
        )
    if loadings is not None and np.shape(loadings) != wanted:
        raise ValueError(
            f"loadings have shape {np.shape(loadings)}: give a mask of items x"
            f" abilities, {wanted}"
        )


@stored_jit
def _start_values(model: Model, data, how: str, dtype, truncation) -> Start:
    """`start_values` as one program: its many small operations cost more singly."""
    if how == "low_rank":
        return low_rank_start(model, data, dtype=dtype, truncation=truncation)
    weight = data.subject_weight
    ones = jnp.ones((data.num_subjects, 1), dtype)
    products = data.column_products(ones, model.family.statistics)
    statistics, values, exposure = products
    seen = jnp.maximum(exposure, 1e-6)
    item_mean = values / seen
    scores = isinstance(model.family, AbstractScoreFamily)
    if scores:
        data, item_mean = _standard_scores(model, data, seen)
    each = weigh_rows(jnp.ones_like(item_mean), data.item_weight)
    deviation = data.row_products(each, -item_mean * each)
    seen_by = jnp.sum(each)
    if not data.is_complete:
        seen_by = data.row_products(jnp.zeros_like(each), each)[:, 0]
    score = _standardise(deviation[:, 0] / (seen_by + 1), weight)
    if how == "spectral":
        score = _leading_vector(model, data, item_mean, score)
    vectors = jnp.stack([jnp.ones_like(score), score, score**2], 1)
    _, with_values, with_exposure = data.column_products(vectors)
    total, first, second = jnp.moveaxis(with_exposure, 1, 0)
    total = jnp.maximum(total, 1e-6)
    covariance = with_values[:, 1] / total - item_mean[:, 0] * first / total
    score_variance = second / total - (first / total) ** 2
    if scores:
        variance = jnp.ones_like(covariance)
        usual = [jnp.sum(s) / jnp.sum(seen) for s in statistics]
    else:
        ends = response_ends(model)
        top = ends["top"] - ends["low"]
        usual = unit_responses(model, item_mean)
        share = jnp.clip(usual[:, 0], 0.02, 0.98)
        variance = top**2 * share * (1 - share)
        usual = [usual] * len(statistics)
    correlation = covariance / jnp.sqrt(jnp.maximum(variance * score_variance, 1e-12))
    correlation = jnp.clip(correlation, -0.6, 0.85)
    slope = 1.702 * correlation / jnp.sqrt(1 - correlation**2)
    pairs = zip(statistics, usual, strict=True)
    means = tuple((s + 0.2 * mean) / (seen + 0.2) for s, mean in pairs)
    items = model.family.start(tuple(m[:, 0] for m in means), slope)
    population = Population(jnp.zeros((), dtype), jnp.ones((), dtype))
    lengths = model.length_model.start(data, score)
    return Start(items, score, population, lengths)


def _standard_scores(
    model: Model, data: Responses, seen: Array
) -> tuple[Responses, Array]:
    """Logits in units of each item's standard deviation, and their item means."""
    family = model.family
    assert isinstance(family, AbstractScoreFamily)
    tame = family.tame(data.values.astype(seen.dtype))
    ones = jnp.ones((data.num_subjects, 1), seen.dtype)

    def means(values):
        part = dataclasses.replace(data, values=values)
        return part.column_products(ones)[1] / seen

    mean = means(tame)
    sd = jnp.sqrt(jnp.maximum(means(tame**2) - mean**2, 1e-4))
    return dataclasses.replace(data, values=tame / sd[:, 0]), mean / sd


def _leading_vector(model, data, item_mean, score, num_iterations: int = 8):
    """Leading left singular vector of the responses centred by item, by power steps."""

    def iterate(_, left):
        _, values, exposure = data.column_products(left[:, None])
        right = values - item_mean * exposure
        right = right / jnp.maximum(jnp.linalg.norm(right), 1e-12)
        left = data.row_products(right, -item_mean * right)[:, 0]
        return _standardise(left, data.subject_weight)

    leading = lax.fori_loop(0, num_iterations, iterate, score)
    return jnp.where(jnp.sum(leading * score) < 0, -leading, leading)


def low_rank_start(
    model: Model, data: Responses, *, dtype=None, truncation: float = TRUNCATION
) -> Start:
    """Non-iterative start values by singular values (LaRT, Algorithm 2).

    The responses R are cut to their K largest singular values, K the number above
    1.01 sqrt(max(N, J)) and at least 2 (Zhang, Chen and Li 2020); the result, kept
    within [epsilon, 1 - epsilon], is mapped by the inverse link to M. Intercepts are
    column means of M; the first singular triple of the rest gives abilities
    sqrt(N) u and slopes s v / sqrt(N). The logarithms of lengths are treated the same
    way without a link. Signs are set so that slopes sum to more than 0, where speed
    counts negatively: log T = omega - phi tau + noise.

    Missing cells count as 0 and R is divided by the share observed; in M they count
    as the column's mean. Dense: for data of which a decomposition can be afforded.
    `truncation` is epsilon, at least the precision of the type. The paper takes 1e-9,
    which puts probit entries at +-6.

    Raises:
        ValueError: If the model is not binary with free slopes, or epsilon is not
            between 0 and 1/2.
    """
    family = model.family
    if not isinstance(family, Binary) or not family.has_slope:
        raise ValueError(
            f"start 'low_rank' is for binary models with item discriminations, not"
            f" {model.name}; use 'spectral'"
        )
    if not 0 < truncation < 0.5:
        raise ValueError(f"epsilon {truncation} of the start is not between 0 and 1/2")
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    values, seen = data.values.astype(dtype), jnp.ones(data.values.shape, dtype)
    if data.exposure is not None:
        exposure = data.exposure.astype(dtype)
        seen = (exposure > 0).astype(dtype)
        values = jnp.where(exposure > 0, values / jnp.maximum(exposure, 1), 0)
    share = jnp.mean(seen)
    left, singular, right = jnp.linalg.svd(values, full_matrices=False)
    leading = singular >= 1.01 * jnp.sqrt(max(values.shape) * share)
    leading = leading | (jnp.arange(singular.shape[0]) < 2)
    smooth = (left * jnp.where(leading, singular, 0)) @ right / share
    truncation = max(truncation, float(jnp.finfo(dtype).eps))
    smooth = jnp.clip(smooth, truncation, 1 - truncation)
    inverse = ndtri if family.link == "probit" else logit
    intercept, slope, theta = _first_factor(inverse(smooth), seen)
    # Steep items of a truncated matrix have no other information.
    items = family.start((jnp.full(values.shape[1], 0.5, dtype),), slope)
    lowest = 0.05 if family.slopes == "positive" else -LARGEST_SLOPE
    items = items._replace(
        discrimination=jnp.clip(slope, lowest, LARGEST_SLOPE),
        intercept=jnp.clip(intercept, -LARGEST_INTERCEPT, LARGEST_INTERCEPT),
    )
    population = Population(jnp.zeros((), dtype), jnp.ones((), dtype))
    part = model.lengths
    lengths = None if part is None else _low_rank_lengths(data, theta, dtype)
    return Start(items, theta, population, lengths)


def _first_factor(matrix: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Column means, loadings and standardised scores of the first singular triple."""
    count = jnp.maximum(jnp.sum(seen, axis=0), 1)
    mean = jnp.sum(matrix * seen, axis=0) / count
    left, singular, right = jnp.linalg.svd((matrix - mean) * seen, full_matrices=False)
    root = jnp.sqrt(jnp.asarray(matrix.shape[0], matrix.dtype))
    slope, score = singular[0] * right[0] / root, left[:, 0] * root
    sign = jnp.where(jnp.sum(slope) < 0, -1, 1).astype(matrix.dtype)
    return mean, sign * slope, sign * score


def _low_rank_lengths(data: Responses, theta: Array, dtype) -> LengthParameters:
    """Steps 4 to 7 of LaRT's Algorithm 2 for the lengths."""
    if data.log_length is None:
        raise ValueError("the model has lengths, but the responses hold none")
    logs = data.log_length.astype(dtype)
    seen = jnp.ones_like(logs)
    if data.length_observed is not None:
        seen = data.length_observed.astype(dtype)
    intercept, loading, score = _first_factor(logs * seen, seen)
    # The length falls with speed.
    tau = -score
    residual = (logs - intercept + loading * tau[:, None]) * seen
    count = jnp.maximum(jnp.sum(seen, axis=0), 1)
    variance = jnp.maximum(jnp.sum(residual**2, axis=0) / count, 1e-3)
    rho = jnp.clip(jnp.mean(theta * tau), -0.95, 0.95)
    return LengthParameters(LengthItems(intercept, loading, variance), rho)


def _category_means(
    model: Model, data: AbstractResponses, mean: Array
) -> tuple[Array, ...]:
    """Means of the statistics of each item, from which intercepts start."""
    count = model.family.num_categories
    if count == 2:
        return (mean,)
    ones = jnp.ones((data.num_subjects, 1), mean.dtype)
    statistics, _, exposure = data.column_products(ones, model.family.statistics)
    return tuple((s[:, 0] + 1 / count) / (exposure[:, 0] + 1) for s in statistics)


def _item_standardised(model: Model, data: Any, dtype):
    """Scores in units of each item's standard deviation, their means and these.

    Scores are stored as a matrix.
    """
    ones = jnp.ones((data.num_subjects, 1), dtype)
    totals, _, exposure = data.column_products(ones, model.family.statistics)
    total, square = totals
    count = jnp.maximum(exposure[:, 0], 1)
    mean = total[:, 0] / count
    sd = jnp.sqrt(jnp.maximum(square[:, 0] / count - mean**2, 1e-4))
    values = (data.values.astype(dtype) - mean) / sd
    if data.exposure is not None:
        values = jnp.where(data.exposure > 0, values, 0)
    return dataclasses.replace(data, values=values), mean, sd


def _low_and_size(model: Model) -> tuple[int, int]:
    """The lowest response, and the distance of the highest one from it."""
    ends = response_ends(model)
    return ends["low"], ends["top"] - ends["low"]


@stored_jit
def _leading_factors(
    model: Model, data: AbstractResponses, dims: int, dtype
) -> tuple[Array, Array, Array]:
    """Scores `[subjects, dims]`, slopes `[items, dims]` and proportions right.

    Subspace iteration on the responses less the items' means, block by block: with
    N the subjects and U S V' the leading part, scores are sqrt(N) U and slopes
    4 V S / sqrt(N), the factor of linear responses on the logit scale. Responses are
    from 0 to 1.
    """
    ones, (low, size) = jnp.ones((data.num_subjects, 1), dtype), _low_and_size(model)
    _, values, exposure = data.column_products(ones)
    mean = ((values - low * exposure) / size + 0.5) / (exposure + 1)

    def right(left):
        _, values, exposure = data.column_products(left)
        return (values - low * exposure) / size - mean * exposure

    def iterate(_, vectors):
        left = data.row_products(vectors / size, -(mean + low / size) * vectors)
        return jnp.linalg.qr(right(jnp.linalg.qr(left)[0]))[0]

    width = min(dims + OVERSAMPLED, data.num_items, data.num_subjects)
    first = jax.random.normal(jax.random.key(0), (data.num_items, width), dtype)
    vectors = lax.fori_loop(0, NUM_ITERATIONS, iterate, jnp.linalg.qr(first)[0])
    product = data.row_products(vectors / size, -(mean + low / size) * vectors)
    left, singular, turned = jnp.linalg.svd(product, full_matrices=False)
    root = jnp.asarray(data.num_subjects, dtype) ** 0.5
    # Of responses that are missing at random a share of each product is missing.
    size = data.num_subjects * data.num_items
    share = jnp.maximum(jnp.sum(exposure) / size, 1e-6)
    unit = 1.0  # Scores are standardised.
    if model.family.num_categories:
        unit = LOGITS * (model.family.link_variance / LOGISTIC_VARIANCE) ** 0.5
    slopes = unit * (vectors @ turned.T)[:, :dims] * singular[:dims] / root / share
    return (
        left[:, :dims] * root,
        jnp.clip(slopes, -LARGEST_SLOPE, LARGEST_SLOPE),
        mean[:, 0],
    )


def _vector_start(
    model: Model, data: AbstractResponses, mask: np.ndarray | None, dtype
) -> Start:
    """Start values for models with several abilities; see `start_values`."""
    family = model.family
    (dims,) = family.ability_shape
    centre, spread = None, None
    if not family.num_categories:
        data, centre, spread = _item_standardised(model, data, dtype)
    scores, slopes, mean = _leading_factors(model, data, dims, dtype)
    positive = family.parameters[0].bijection.kind == "positive"
    if mask is not None or positive:
        wanted = np.ones((data.num_items, dims), bool) if mask is None else mask
        if mask is None:
            from irtjax.numerics.rotation import rotate

            # Varimax comes nearest to one factor for each item.
            slopes = rotate(slopes, "varimax", num_starts=1).loadings
            slopes = jnp.asarray(slopes, dtype)
        else:
            slopes = jnp.full((data.num_items, dims), 0.5, dtype)
        slopes = jnp.where(wanted, jnp.maximum(slopes, 0.1), 0.0)
        share = slopes / jnp.maximum(jnp.sum(slopes, axis=0), 1e-6)
        low, size = _low_and_size(model)
        shift = mean[:, None] + low / size
        scores = data.row_products(share / size, -shift * share)
        deviation = scores - jnp.mean(scores, axis=0)
        sd = jnp.sqrt(jnp.mean(deviation**2, axis=0))
        scores = deviation / jnp.maximum(sd, 1e-6)
    size = jnp.sqrt(jnp.sum(slopes**2, axis=1))
    if spread is None:
        items = family.start(_category_means(model, data, mean), size)
    else:
        # At least a fifth of the variance is residual at the start.
        slopes = slopes * jnp.minimum(1, 0.9 / jnp.maximum(size, 1e-6))[:, None]
        rest = jnp.sqrt(1 - jnp.sum(slopes**2, axis=1))
        items = family.Items(slopes, centre, spread * rest)
        slopes = slopes * spread[:, None]
    items = items._replace(discrimination=slopes)
    population = Population(jnp.zeros(dims, dtype), jnp.ones(dims, dtype))
    return Start(items, scores, population)
