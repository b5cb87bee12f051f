"""The joint penalised log-likelihood of items and abilities, for every method on it.

    F = sum_ij w_i v_j log p(y_ij) + penalty (sum_i w_i log N(theta_i; 0, I)
                                              + sum_j v_j log prior(item_j))

over the observed cells; subject weights w and item weights v are numbers of copies.
Everything is computed block by block over subjects, so neither a float copy of the
data nor a subjects x items array of floats exists.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax._types import Scalar
from irtjax.data.blocks import Block
from irtjax.data.responses import AbstractResponses, Responses
from irtjax.estimators.joint.separation import separable_items, separable_subjects
from irtjax.likelihood.problem import Parameters, Problem, is_positive, report_scale
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import (
    block_size_for,
    positive_definite_solve,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)

_HALF_LOG_TWO_PI = 0.9189385332046727


class JointDerivatives(NamedTuple):
    """Each subject's log-likelihood without subject weights; the weighted gradient."""

    log_lik: Float[Array, " subjects"]
    coordinates: Float[Array, "items columns"]
    theta: Float[Array, " subjects"]


def block_weight(data: Responses, start: Array, is_new: Array, dtype) -> Array:
    """Weight of each subject of a block, 0 for those of an earlier block."""
    weight = is_new.astype(dtype)
    rows = take_block(data.subject_weight, start, is_new.shape[0])
    return weight if rows is None else weight * rows.astype(dtype)


def by_subject(data: Responses, dtype, block: Callable, *arrays) -> Array:
    """`block(size, start, *arrays)` of every block of subjects, one by one."""
    size = block_size_for(data.num_subjects, data.num_items, dtype.itemsize)
    # Derivatives compute a block again: kept, they would be as large as the data.
    again = jax.checkpoint(partial(block, size))

    def body(total, start, is_new):
        del is_new
        return put_block(total, again(start, *arrays), start)

    init = jnp.zeros(data.num_subjects, dtype)
    return scan_subject_blocks(body, init, data.num_subjects, size)


class Information(NamedTuple):
    """Expected (Fisher) information of each coordinate, the others fixed."""

    coordinates: Float[Array, "items columns"]
    theta: Float[Array, " subjects"]


class Divergence(NamedTuple):
    """Where plain joint maximum likelihood has no finite estimate; see `diverging`."""

    subjects: Bool[Array, " subjects"]
    items: Bool[Array, " items"]


def joint_log_likelihood(
    model: Model, data: Responses, items: Items, theta: Float[Array, " subjects"]
) -> Float[Array, " subjects"]:
    """Log-likelihood of each subject at given abilities, block by block.

    With item weights, without subject weights. Differentiable any number of times, in
    both modes; `joint_derivatives` has value and gradient in one pass.
    """
    dtype = jnp.result_type(items[0], theta)

    def block(size, start, items, theta):
        part = take_block(theta, start, size)
        return _block_log_lik(model, data, items, part, start, dtype)

    return by_subject(data, dtype, block, items, theta)


def _block_log_lik(model: Model, data: Responses, items, theta, start, dtype) -> Array:
    """Log-likelihood of each subject of a block with abilities `theta`."""
    size = theta.shape[0]
    values = take_block(data.values, start, size).astype(dtype)
    exposure = take_block(data.exposure, start, size)
    cells = model.family.log_prob(values, items, theta, exposure)
    if data.item_weight is not None:
        cells = cells * data.item_weight.astype(dtype)
    return jnp.sum(cells, axis=1)


def joint_derivatives(
    model: Model,
    data: Responses,
    coordinates: Float[Array, "items columns"],
    theta: Float[Array, " subjects"],
) -> JointDerivatives:
    """Log-likelihood and its gradient, one reverse pass per block of subjects."""
    dtype = coordinates.dtype
    size = block_size_for(data.num_subjects, data.num_items, dtype.itemsize)

    def block_sum(coordinates, theta, start, weight):
        items = model.constrain(coordinates)
        log_lik = _block_log_lik(model, data, items, theta, start, dtype)
        return jnp.sum(log_lik * weight), log_lik

    differentiate = jax.grad(block_sum, argnums=(0, 1), has_aux=True)

    def body(carry: JointDerivatives, start, is_new):
        weight = block_weight(data, start, is_new, dtype)
        part = take_block(theta, start, size)
        (by_items, by_theta), log_lik = differentiate(coordinates, part, start, weight)
        # Rows seen in an earlier block have weight 0 here: keep what they had.
        old = take_block(carry.theta, start, size)
        return JointDerivatives(
            put_block(carry.log_lik, log_lik, start),
            carry.coordinates + by_items,
            put_block(carry.theta, jnp.where(is_new, by_theta, old), start),
        )

    zeros = jnp.zeros_like(theta)
    init = JointDerivatives(zeros, jnp.zeros_like(coordinates), zeros)
    return scan_subject_blocks(body, init, data.num_subjects, size)


def joint_information(
    model: Model,
    data: Responses,
    coordinates: Float[Array, "items columns"],
    theta: Float[Array, " subjects"],
) -> Information:
    """Fisher information of every coordinate and ability, weighted as the objective.

    I(x) = sum over cells of exposure * sum_y p(y) (d log p(y) / dx)^2. Its inverse
    root is an approximate standard error, the unit in which a gradient is small.
    """
    family, dtype = model.family, coordinates.dtype
    num_subjects, num_items = data.values.shape
    # Categories times columns intermediate tables exist at once: smaller blocks.
    tables = max(family.num_categories, 2) * (family.num_columns + 1)
    size = min(block_size_for(num_subjects, num_items * tables, dtype.itemsize), 256)
    cell = family.coordinate_information
    over_items = jax.vmap(cell, in_axes=(0, None))
    over_cells = jax.vmap(over_items, in_axes=(None, 0))

    def body(carry: Information, start, is_new):
        by_row, by_theta = over_cells(coordinates, take_block(theta, start, size))
        exposure = take_block(data.exposure, start, size)
        if exposure is not None:
            by_row = by_row * exposure.astype(dtype)[:, :, None]
            by_theta = by_theta * exposure.astype(dtype)
        weight = block_weight(data, start, jnp.ones_like(is_new), dtype)
        item_weight = weigh_rows(jnp.ones(num_items, dtype), data.item_weight)
        at_items = jnp.einsum("ijc,i->jc", by_row, weight * is_new.astype(dtype))
        return Information(
            carry.coordinates + at_items * item_weight[:, None],
            put_block(carry.theta, weight * (by_theta @ item_weight), start),
        )

    init = Information(jnp.zeros_like(coordinates), jnp.zeros_like(theta))
    return scan_subject_blocks(body, init, num_subjects, size)


def log_normal_ability(
    theta: Float[Array, "subjects ..."],
    mean: Array | float = 0.0,
    sd: Array | float = 1.0,
) -> Array:
    """Log density of N(mean, sd^2) of each subject, summed over dimensions."""
    standard = (theta - mean) / sd
    density = -0.5 * standard**2 - _HALF_LOG_TWO_PI - jnp.log(sd)
    return jnp.sum(density.reshape(theta.shape[0], -1), axis=1)


def ability_prior(problem: Problem) -> tuple[Array | float, Array | float]:
    """Mean and standard deviation of the abilities' prior; see `Problem.prior`."""
    if problem.prior is None:
        return 0.0, 1.0
    return problem.prior.mean, problem.prior.sd


def log_penalty(problem: Problem, items, theta) -> Scalar:
    """Log priors of abilities and items, before they are multiplied by the penalty."""
    return jnp.sum(penalty_terms(problem, items, theta))


def penalty_terms(problem: Problem, items, theta) -> Float[Array, " rows"]:
    """The log priors of `log_penalty`: of every subject, then of every item.

    In single precision the difference of two sums of many has an error as large as the
    gain of a step. The sum of the differences has not.
    """
    model, data = problem.model, problem.data
    abilities = log_normal_ability(theta, *ability_prior(problem))
    abilities = weigh_rows(abilities, data.subject_weight)
    priors = weigh_rows(jax.vmap(model.log_prior)(items), data.item_weight)
    return jnp.concatenate([abilities, priors])


def check_penalty(model: Model, penalty: float, anchored: bool) -> None:
    """Refuses a penalty that leaves the scale of ability without a maximum.

    Smaller abilities with steeper free slopes would raise the objective without end.
    """
    if penalty < 0:
        raise ValueError(f"penalty {penalty} is negative; use 0 for none, 1 for MAP")
    no_scale = model.family.has_slope and "discrimination" not in model.priors
    if penalty > 0 and no_scale and not anchored:
        raise ValueError(
            "abilities are penalised but discriminations have no prior, so their"
            " common scale has no maximum: give the model a prior named"
            " 'discrimination', or use penalty=0 for plain maximum likelihood"
        )


def weighted_moments(
    theta: Float[Array, "subjects ..."], weight: Array | None
) -> tuple[Array, Array]:
    """Mean and standard deviation over the sample; 1 where all are equal."""
    total = len(theta) if weight is None else jnp.sum(weight.astype(theta.dtype))
    mean = jnp.sum(weigh_rows(theta, weight), axis=0) / total
    sd = jnp.sqrt(jnp.sum(weigh_rows((theta - mean) ** 2, weight), axis=0) / total)
    return mean, jnp.where(sd > 1e-6 * (1 + jnp.abs(mean)), sd, 1)


def best_fold(
    objective, num_dims: int, dtype, num_newton: int = 3
) -> tuple[Array, Array]:
    """Shift and log scale of ability, `[dims]` each, that raise an objective most.

    Abilities (theta - shift) / scale with slopes a * scale and intercepts d + a shift
    do not change the likelihood, so only the penalty identifies them: a first-order
    method is slow there, a few Newton steps are not. Zeros if they do not help.
    """
    split = lambda move: objective(move[:num_dims], move[num_dims:])

    def newton(_, move: Array) -> Array:
        curvature, gradient = -jax.hessian(split)(move), jax.grad(split)(move)
        step, _ = positive_definite_solve(curvature, gradient)
        return move + jnp.clip(step, -0.5, 0.5)

    start = jnp.zeros(2 * num_dims, dtype)
    first = split(start)
    move = lax.fori_loop(0, num_newton, newton, start)
    move = jnp.where(split(move) > first, move, 0)
    return move[:num_dims], move[num_dims:]


def diverging(
    model: Model,
    data: AbstractResponses,
    items,
    theta: Float[Array, "subjects ..."],
    free: Bool[Array, "items columns"] | None = None,
) -> Divergence:
    """Which subjects and items have no finite maximum likelihood estimate.

    For binary models without asymptotes. Each block is judged given the other.

    With one ability the answer is exact: an item has no finite estimate exactly when
    its responses do not vary or one ability separates right from wrong, and a subject
    when every informative response moves theta the same way.

    With K abilities a subject has none if a direction u has (2 y_ij - 1) a_j'u >= 0
    for all observed responses and > 0 for one, and an item if a (d, a) does so with
    d + a'theta_i. `separable` finds these directions by Newton steps. The answer is a
    certificate in double precision for rows with finite estimates, and for rows whose
    responses a direction separates with margins above 0. The others are an
    approximation: a row counts as diverging if its logits still grow after 40 steps
    (16 in single precision). Rows and columns without an informative response, and
    items without variation, diverge.

    Args:
        model: The model.
        data: Responses.
        items: The items, with `discrimination` `[items]` or `[items, K]`.
        theta: Abilities `[subjects]` or `[subjects, K]`.
        free: With K abilities, which coordinates of items are estimated
            (`Problem.free`); None for all.

    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> model = factor_model(Factor(2))
    >>> data = Responses(jnp.array([[1, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 1]]))
    >>> slope = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> fields = {"discrimination": slope, "intercept": jnp.zeros(3)}
    >>> items = model.family.complete(fields)
    >>> theta = jnp.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    >>> found = diverging(model, data, items, theta)
    >>> found.subjects.tolist(), found.items.tolist()
    ([False, True, True, True], [True, True, True])
    """
    if theta.ndim > 1:
        return _diverging_in_several(model, data, items, theta, free)
    slope = items.discrimination
    infinite = jnp.full((data.num_items, 4), jnp.inf, slope.dtype)

    def one_way(block: Block) -> Array:
        """Subjects without a finite ability."""
        (right, wrong), steep = _sides(block), block.columns(slope)
        upward = (right & (steep > 0)) | (wrong & (steep < 0))
        downward = (wrong & (steep > 0)) | (right & (steep < 0))
        return ~(jnp.any(upward, axis=1) & jnp.any(downward, axis=1))

    def ends(block: Block) -> Array:
        """Lowest and highest abilities of right and wrong responses to an item."""
        ability = block.columns(theta)
        ends = [
            jnp.min(jnp.where(mask, side, jnp.inf), axis=1)
            for mask in _sides(block)
            for side in (ability, -ability)
        ]
        return jnp.stack(ends, axis=1)

    every = jnp.ones(data.num_subjects, bool)
    subjects = data.map_subjects(one_way, every, slope.dtype)
    return _diverging(model, subjects, data.map_items(ends, infinite, slope.dtype).T)


def _sides(block: Block) -> tuple[Array, Array]:
    """Which cells have right responses, and which have wrong ones."""
    n = 1 if block.exposure is None else block.exposure.astype(block.values.dtype)
    return block.values > 0, block.values < n


def _diverging_in_several(model: Model, data, items, theta, free) -> Divergence:
    """`diverging` with several abilities."""
    slope = items.discrimination
    if free is None:
        free = jnp.ones(slope.shape, bool)
    free = free[:, : slope.shape[1]]
    positive = is_positive(model)
    subjects = separable_subjects(data, slope)
    return Divergence(subjects, separable_items(data, theta, free, positive))


def _diverging(model: Model, subjects: Array, extremes: Array) -> Divergence:
    """`diverging` from the ends of right and wrong responses to each item."""
    right_low, right_high = extremes[0], -extremes[1]
    wrong_low, wrong_high = extremes[2], -extremes[3]
    # An extreme of no cell is infinite, which makes these true without variation too.
    separated = right_low >= wrong_high
    constant = jnp.isinf(right_low) | jnp.isinf(wrong_low)
    if not model.family.has_slope:
        return Divergence(subjects, constant)
    if model.family.parameters[0].bijection.kind == "identity":
        separated = separated | (wrong_low >= right_high)
    return Divergence(subjects, separated | constant)


class Scale(NamedTuple):
    """The change of ability scale that identifies a result.

    Abilities become (theta - shift) / scale, with a negative scale to reverse them;
    `population` is their sample mean and standard deviation afterwards.
    """

    shift: Array
    scale: Array
    population: Population


def identify(problem: Problem, theta: Array, slope: Array) -> Scale:
    """Mean 0, variance 1 and a positive sum of slopes, where nothing fixed sets them.

    With unit slopes the standard deviation is kept; with fixed item coordinates other
    than slopes of 0 neither mean nor standard deviation is free: the population
    determines them. Abilities are
    `[subjects]` or `[subjects, dims]`, and slopes `[items]` or `[items, dims]`.
    """
    family = problem.model.family
    mean, sd = weighted_moments(theta, problem.data.subject_weight)
    if problem.anchored:
        return Scale(jnp.zeros_like(mean), jnp.ones_like(sd), Population(mean, sd))
    movable = is_movable(problem, slope)
    shift = jnp.where(movable, mean, 0)
    scale = jnp.where(family.has_slope & movable, sd, 1)
    population = Population(mean - shift, sd / scale)
    if family.has_slope and family.parameters[0].bijection.kind == "identity":
        turn = movable & (jnp.sum(slope, axis=0) < 0)
        scale = jnp.where(turn, -scale, scale)
    return Scale(shift, scale, population)


class FactorScale(NamedTuple):
    """Factors on a scale of their own; `shift` is the mean that abilities had."""

    discrimination: Float[Array, "items dims"]
    theta: Float[Array, "subjects dims"]
    shift: Float[Array, " dims"]
    population: Population


def is_movable(problem: Problem, slope: Array) -> Array:
    """Whether location and scale of ability are free: what is fixed is a slope of 0."""
    free, family = jnp.asarray(problem.free), problem.model.family
    if family.has_slope:
        columns = jnp.array(family.slope_columns)
        still = slope.reshape(len(free), -1) == 0
        free = free.at[:, columns].set(free[:, columns] | still)
    return jnp.all(free)


def identify_factors(
    problem: Problem,
    theta: Float[Array, "subjects dims"],
    slope: Float[Array, "items dims"],
) -> FactorScale:
    """Abilities with mean 0 and variance 1 in the sample, and the slopes that follow.

    Where all slopes are free and of any sign, abilities are uncorrelated too, and their
    axes the principal ones of the slopes: the largest sum of squares first. Else slopes
    of 0 stay, and the sample correlations are those of the population. Slopes of a
    factor have a positive sum where any sign is allowed.
    """
    family, weight = problem.model.family, problem.data.subject_weight
    signed = family.parameters[0].bijection.kind == "identity"
    movable = is_movable(problem, slope)
    rotates = jnp.all(problem.free) & signed
    mean, sd = weighted_moments(theta, weight)
    shift, sd = jnp.where(movable, mean, 0), jnp.where(movable, sd, 1)
    theta = theta - shift
    total = len(theta) if weight is None else jnp.sum(weight.astype(theta.dtype))
    covariance = weigh_rows(theta, weight).T @ theta / total
    root = jnp.linalg.cholesky(covariance)
    whole = jnp.all(jnp.isfinite(root))
    root = jnp.where(rotates & whole, root, jnp.diag(sd))
    scaled = slope @ root
    # The axes of the largest sums of squares come last of eigh.
    _, axes = jnp.linalg.eigh(scaled.T @ scaled)
    axes = jnp.where(rotates, axes[:, ::-1], jnp.eye(len(sd), dtype=theta.dtype))
    scaled = scaled @ axes
    moved = jax.scipy.linalg.solve_triangular(root, theta.T, lower=True).T @ axes
    sign = jnp.where(signed & movable & (jnp.sum(scaled, axis=0) < 0), -1, 1)
    sign = sign.astype(theta.dtype)
    scaled, moved = scaled * sign, moved * sign
    one = jnp.ones_like(sd)
    spread = weigh_rows(moved, weight).T @ moved / total
    size = jnp.sqrt(jnp.diagonal(spread))
    size = jnp.where(size > 0, size, 1)
    correlation = spread / size[:, None] / size
    unit = jnp.eye(len(sd), dtype=theta.dtype)
    correlation = jnp.where(rotates, unit, jnp.where(unit > 0, 1, correlation))
    population = Population(
        mean - shift, jnp.where(movable, one, size), None, correlation
    )
    return FactorScale(scaled, moved, shift, population)


def reported(
    problem: Problem,
    theta: Float[Array, " subjects"],
    coordinates: Float[Array, "items columns"],
) -> Parameters:
    """Items, and standardised, oriented abilities, as `identify` has them."""
    model = problem.model
    slope = model.constrain(coordinates).discrimination
    scale = identify(problem, theta, slope)
    folded = model.fold(coordinates, scale.shift, scale.scale)
    # Fixed coordinates come back as they were given, not through a round trip.
    movable = ~jnp.asarray(problem.anchored) & is_movable(problem, slope)
    items = model.constrain(jnp.where(movable, folded, coordinates))
    theta = (theta - scale.shift) / scale.scale
    return report_scale(problem, Parameters(items, scale.population, theta))
