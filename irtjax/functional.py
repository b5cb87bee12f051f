"""Likelihoods, information, bounds and simulation as pure functions of arrays.

For research scripts: every function takes arrays and records and returns arrays, has
no state and reads no labels. `jax.jit`, `jax.vmap`, `jax.grad` and their compositions
apply, in the precision of the items and abilities. A `Model` is a PyTree: pass it to a
jitted function or close over it. The methods of `irtjax.fit` use the same code.

Shapes and arguments that the functions share:

- `model`: a `Model`, such as `irtjax.models.catalogue.two_parameter()`.
- `items`: the family's item record, arrays `[items]` (`[items, thresholds]` for some
  parameters of ordered families). `model.constrain` maps coordinates to it.
- `theta`: `[subjects]` abilities, on the scale of the items; `[subjects, dims]` for a
  model of several abilities, such as `factor_model(irtjax.Factor(factors=3))`.
- `values`: `[subjects, items]` responses: 0 or 1, categories 0, 1, ..., numbers right
  of `trials`, or logits of scores in [0, 1].
- `observed`: `[subjects, items]` mask, or None when nothing is missing. The values of
  missing cells are ignored, NaN included.
- `trials`: `[subjects, items]` number of trials of each count, or None.
- `subject_weight`, `item_weight`: `[subjects]` and `[items]` numbers of copies, or None
  for 1 each. Weights express bootstrap replicates: `vmap` over them.
- `lengths`, `log_length`, `length_observed`: of a model with response lengths (`lart`)
  their `LengthParameters`, the logarithms `[subjects, items]`, and the mask of these.

Log-likelihoods are in nats, up to the term h(y) of the family (such as a binomial
coefficient), which depends on the responses alone. Every function raises ValueError if
the shapes of its arguments do not match, or a model has response lengths that were not
given.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from irtjax._types import RandomKey, Scalar, check_keywords
from irtjax.data.responses import Responses
from irtjax.estimators.joint.bound import factors_of, surrogate
from irtjax.estimators.joint.cells import cells_of
from irtjax.estimators.joint.objective import joint_log_likelihood, log_penalty
from irtjax.estimators.joint.segments import (
    CellBounds,
    ObservedCells,
    cell_bounds,
    observed_cells,
)
from irtjax.estimators.marginal.draws import draw_places, node_weights
from irtjax.inference.information import information_matrices, item_information
from irtjax.likelihood import counts
from irtjax.likelihood.item_steps import improve_items
from irtjax.likelihood.problem import Problem
from irtjax.models import simulate as simulation
from irtjax.models.family import Items
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Model, Population, check_one_ability
from irtjax.numerics.kernels import normal_log_weights, weigh_rows
from irtjax.numerics.precision import full_precision
from irtjax.numerics.random_keys import as_key

__all__ = [
    "AbilityCounts",
    "CellBounds",
    "FisherInformation",
    "ItemPrior",
    "LengthOptions",
    "ObservedCells",
    "ResponseOptions",
    "ability_counts",
    "cell_bounds",
    "draw_abilities",
    "expected_counts",
    "fisher_information",
    "item_prior",
    "item_step",
    "log_density",
    "log_likelihood",
    "mm_surrogate",
    "observed_cells",
    "simulate",
]


class ResponseOptions(TypedDict, total=False):
    """What responses may have in addition to their values.

    Attributes:
        trials: `[subjects, items]` number of trials of each count.
        subject_weight: `[subjects]` number of copies of each subject.
        item_weight: `[items]` number of copies of each item.
    """

    trials: Int[Array, "subjects items"] | None
    subject_weight: Float[Array, " subjects"] | None
    item_weight: Float[Array, " items"] | None


class LengthOptions(ResponseOptions, total=False):
    """`ResponseOptions`, and response lengths, which a model with lengths needs.

    Attributes:
        lengths: Parameters of the response lengths.
        log_length: `[subjects, items]` logarithms of the lengths.
        length_observed: `[subjects, items]` mask of the observed lengths.
    """

    lengths: LengthParameters | None
    log_length: Float[Array, "subjects items"] | None
    length_observed: Bool[Array, "subjects items"] | None


class FisherInformation(NamedTuple):
    """Fisher information about ability, in units of 1 / ability^2.

    Of several abilities each number is a matrix `[dims, dims]`.

    Attributes:
        items: Of each item; 0 where it is missing.
        test: Of all observed items together.
    """

    items: Float[Array, "nodes items *square"]
    test: Float[Array, "nodes *square"]


@full_precision
def log_likelihood(
    model: Model,
    items: Items,
    theta: Float[Array, "subjects *dims"],
    values: Num[Array, "subjects items"],
    observed: Bool[Array, "subjects items"] | None = None,
    **options: Unpack[LengthOptions],
) -> Scalar:
    """Log-likelihood of responses given items and abilities.

    sum_ij w_i v_j m_ij (log p(y_ij | theta_i, item_j) - h(y_ij)), with the mask m and
    the weights w and v, in nats. Computed block by block over subjects, derivatives
    too, so that no array of floats of the size of the data exists. With response
    lengths plus sum_i w_i log p(T_i | theta_i), the speed integrated out. The module
    describes the arguments.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> theta, values = jnp.zeros(2), jnp.array([[1, 0, 1], [1, 1, 1]])
    >>> round(float(jax.jit(log_likelihood)(model, items, theta, values)), 3)
    -4.159
    >>> jax.grad(log_likelihood, argnums=2)(model, items, theta, values).tolist()
    [0.5, 1.5]
    >>> many = jax.jit(jax.vmap(log_likelihood, in_axes=(None, None, 0, None)))
    >>> many(model, items, jnp.array([[0.0] * 2, [1.0] * 2]), values).round(3).tolist()
    [-4.159, -2.88]
    """
    _check_abilities(model, theta)
    check_keywords("log_likelihood", options, LengthOptions)
    data = _with_lengths(model, _data(items, theta, values, observed, options), options)
    return jnp.sum(_log_lik(model, data, items, theta, options.get("lengths")))


@full_precision
def log_density(
    model: Model,
    coordinates: Float[Array, "items columns"],
    theta: Float[Array, "subjects *dims"],
    values: Num[Array, "subjects items"],
    observed: Bool[Array, "subjects items"] | None = None,
    *,
    population: Population | None = None,
    jacobian: bool = True,
    **options: Unpack[LengthOptions],
) -> Scalar:
    """Log posterior density of item coordinates and abilities, up to a constant.

    The sum of

    - `log_likelihood` of the responses at `model.constrain(coordinates)` and theta;
    - log N(theta_i; mean, sd^2) of each ability, times w_i;
    - log prior of each item's natural parameters, times v_j: those of `model.priors`
      that name a parameter of the family. A parameter without a prior has a flat one;
    - with `jacobian`, log |d natural / d coordinate| of each item's coordinates.

    Mean and sd of the population are given; their own prior (the prior of the common
    slope of a 1PL) is not included. All coordinates are unbounded. The density is -inf
    where a point has no probabilities: intercepts of `graded` out of order. Without
    priors on the discriminations the posterior is improper.

    With response lengths their likelihood is added, and the log prior of their residual
    variances, a density of these as they are, without a Jacobian.

    Args:
        model: The model; see the module for this and the others.
        coordinates: Unconstrained coordinates of the items, `model.unconstrain(items)`.
        theta: Abilities.
        values: Responses.
        observed: Mask of the observed cells.
        population: Normal population of ability; None for N(0, 1).
        jacobian: Whether the density is one of the coordinates, as a sampler needs, or
            of the natural parameters: its mode is the joint MAP of `MM` and `Gradient`.
            Static under jit.
        **options: Those of `LengthOptions`.

    Returns:
        A scalar, in nats.

    Raises:
        ValueError: If response lengths lack, the population is a histogram, or
            `jacobian` is set where some items lack a parameter (`mixed`): the density
            of the coordinates would be improper.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter(positive=True)
    >>> at, theta = jnp.zeros((3, 2)), jnp.zeros(2)
    >>> values = jnp.array([[1, 0, 1], [1, 1, 1]])
    >>> round(float(jax.jit(log_density)(model, at, theta, values)), 3)
    -14.806
    >>> jax.grad(log_density, argnums=1)(model, at, theta, values).tolist()
    [[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    >>> many = jax.jit(jax.vmap(log_density, in_axes=(None, None, 0, None)))
    >>> many(model, at, jnp.array([[0.0, 0.0], [1.0, 1.0]]), values).round(3).tolist()
    [-14.806, -14.527]
    """
    check_keywords("log_density", options, LengthOptions)
    if population is not None and population.log_weights is not None:
        raise ValueError(
            "the population is a histogram; give one with a mean and an sd alone"
        )
    if jacobian and model.family.offsets() is not None:
        raise ValueError(
            f"some items of model {model.name!r} lack a parameter, whose coordinate a"
            " sampler must not move; use jacobian=False for a mode"
        )
    _check_abilities(model, theta)
    items = model.constrain(coordinates)
    data = _with_lengths(model, _data(items, theta, values, observed, options), options)
    lengths = options.get("lengths")
    log_lik = _log_lik(model, data, items, theta, lengths)
    free = jnp.ones(coordinates.shape, bool)
    problem = Problem(model, data, free, prior=population)
    total = jnp.sum(log_lik) + log_penalty(problem, items, theta)
    total = total + model.length_model.log_prior(lengths, data.item_weight)
    if jacobian:
        total = total + jnp.sum(jax.vmap(model.family.log_slopes)(coordinates))
    finite = jnp.all(jnp.isfinite(coordinates)) & jnp.all(jnp.isfinite(theta))
    return jnp.where(jnp.isnan(total) & finite, -jnp.inf, total)


class ItemPrior(NamedTuple):
    """Log prior of all items, and the location and scale of ability that maximise it.

    Attributes:
        log_density: Sum over items and parameters, in nats.
        location: Shift m of ability; 0 of several abilities.
        log_scale: Logarithm of the factor s of ability; likewise.
    """

    log_density: Scalar
    location: Float[Array, "*dims"]
    log_scale: Float[Array, "*dims"]


def item_prior(
    model: Model, items: Items, *, item_weight: Float[Array, " items"] | None = None
) -> ItemPrior:
    """Log prior of items up to a location and scale of ability, as EM includes it.

    sum_j v_j log p(a_j s, d_j + a_j m), maximised over m and s: item priors do not
    determine where ability has mean 0 and variance 1. A marginal fit maximises the sum
    of the log marginal likelihoods of `expected_counts` plus this. The prior of a
    common slope (1PL) is not included, nor that of response lengths. Of several
    abilities it is the log prior of the items as they are. The module describes the
    arguments.

    >>> from irtjax.models.catalogue import two_parameter
    >>> from irtjax.models.families.logistic import LogisticItems
    >>> items = LogisticItems(*(jnp.full(3, x) for x in (2.0, 0.0, 0.0, 1.0)))
    >>> prior = jax.jit(item_prior)(two_parameter(), items)
    >>> round(float(jnp.exp(prior.log_scale)), 3)  # Slopes have their mode at 1.
    0.5
    >>> flat = lambda a: items._replace(discrimination=jnp.full(3, a))
    >>> scale = lambda a: item_prior(two_parameter(), flat(a)).log_scale
    >>> jnp.exp(jax.jit(jax.vmap(scale))(jnp.array([2.0, 4.0]))).round(3).tolist()
    [0.5, 0.25]
    >>> round(float(jax.jit(jax.grad(scale))(2.0)), 3)  # Of -log(a).
    -0.5
    """
    coordinates = model.unconstrain(items)
    dtype, shape = coordinates.dtype, model.family.ability_shape
    if shape:
        total = jnp.sum(weigh_rows(jax.vmap(model.log_prior)(items), item_weight))
        return ItemPrior(total, jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
    frame = jnp.zeros(2, dtype)
    frame = model.prior_frame(coordinates, frame, 30, item_weight)
    total = model.total_log_prior(coordinates, frame, item_weight)
    return ItemPrior(total, frame[0], frame[1])


@full_precision
def fisher_information(
    model: Model,
    items: Items,
    theta: Float[Array, "nodes *dims"],
    observed: Bool[Array, "nodes items"] | None = None,
    *,
    item_weight: Float[Array, " items"] | None = None,
) -> FisherInformation:
    """Fisher information about ability, of each item and of the test.

    I_j(theta) = sum_y p(y) (d log p(y) / d theta)^2, and sum_j v_j m_j I_j(theta) of
    the test (PSN-IRT, eq. 4, is its closed form for the 4PL). Of several abilities they
    are matrices, with the products of derivatives in place of squares. Of a model with
    response lengths it is the information of the responses alone.

    Args:
        model: The model; see the module for this and the others.
        items: Item records.
        theta: Abilities at which information is computed.
        observed: Mask of the items of each ability.
        item_weight: Number of copies of each item, for the information of the test.

    Returns:
        Information by item and of the test; 1 / sqrt(test) is the standard error of a
        maximum likelihood score, the inverse of a matrix its covariance.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (2.0, 0.0, 0.0, 1.0)))
    >>> parts = jax.jit(fisher_information)(model, items, jnp.array([0.0, 1.0]))
    >>> parts.items.shape, parts.test.round(3).tolist()
    ((2, 3), [3.0, 1.26])
    >>> test = lambda t: fisher_information(model, items, t[None]).test[0]
    >>> jax.jit(jax.vmap(jax.grad(test)))(jnp.array([0.0, 1.0])).round(2).tolist()
    [0.0, -1.92]

    Of three abilities:

    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> model = factor_model(Factor(factors=3))
    >>> items = model.constrain(jnp.array([[2.0, 0, 0, 0], [0, 2.0, 1.0, 0]]))
    >>> parts = jax.jit(fisher_information)(model, items, jnp.zeros((5, 3)))
    >>> parts.items.shape, parts.test[0].tolist()
    ((5, 2, 3, 3), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 0.25]])
    """
    _check_abilities(model, theta)
    shape = (theta.shape[0], jnp.shape(items[0])[0])
    _check_shapes(shape, observed=observed)
    _check_shapes(shape[1:], item_weight=item_weight)
    if model.several:
        by_item = information_matrices(model, items, theta)
    else:
        by_item = item_information(model, items, theta)
    if observed is not None:
        seen = observed.reshape(shape + (1,) * (by_item.ndim - 2))
        by_item = jnp.where(seen, by_item, 0)
    if item_weight is None:
        return FisherInformation(by_item, jnp.sum(by_item, axis=1))
    weight = item_weight.astype(by_item.dtype)
    return FisherInformation(by_item, jnp.einsum("qj...,j->q...", by_item, weight))


@full_precision
def mm_surrogate(
    model: Model,
    items: Items,
    theta: Float[Array, "subjects *dims"],
    anchor: tuple[Items, Float[Array, "subjects *dims"]],
    values: Num[Array, "subjects items"],
    observed: Bool[Array, "subjects items"] | None = None,
    *,
    temperature: Array | float = 1.0,
    curvature: str = "uniform",
    **options: Unpack[ResponseOptions],
) -> Scalar:
    """A lower bound of the log-likelihood, quadratic in the predictors.

    With eta = a theta + d at the point, eta' at the anchor, n trials (1 for a single
    response), the slope r of log p in eta / s at the anchor (y - n sigma(eta' / s) of
    logistic models) and the largest curvature L (`estimators.joint.cells`), the sum
    over observed cells of

        w v (log p(y | eta') + (r / s) (eta - eta') - L n (eta - eta')^2 / (2 s^2)).

    Of several intercepts d is the mean, and their distances are those of the anchor.
    With curvature "cell", tanh(x / 2) / (2 x) with x = eta' / s is in place of L, for
    logistic models (Jaakkola and Jordan 2000).

    It is nowhere above the log-likelihood, and equal to it, gradient included, at the
    anchor (the surrogate of the cBMM paper). Quadratic in the items given abilities and
    in the abilities given items: `MM` maximises it exactly in turn.

    Args:
        model: A model that `MM` fits; see the module for this and the others.
        items: Item records, discriminations `[items]` or `[items, dims]`.
        theta: Abilities, `[subjects]` or `[subjects, dims]`.
        anchor: The items and abilities at which the bound is tight.
        values: Responses, binary or numbers right.
        observed: Mask of the observed cells.
        temperature: s, for P = F(eta / s).
        curvature: "uniform", L of all cells, or "cell".
        **options: Those of `ResponseOptions`.

    Returns:
        A scalar, in nats.

    Raises:
        ValueError: If the family has no bounded curvature that is known.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> theta, values = jnp.zeros(2), jnp.array([[1, 0, 1], [1, 1, 1]])
    >>> bound = lambda t: mm_surrogate(model, items, t, (items, theta), values)
    >>> round(float(jax.jit(bound)(theta)), 3)
    -4.159
    >>> jax.grad(bound)(theta).tolist()
    [0.5, 1.5]
    >>> far = jax.jit(jax.vmap(bound))(jnp.array([[0.0, 0.0], [1.0, 1.0]]))
    >>> far.round(3).tolist()  # The log-likelihoods are -4.159 and -2.88.
    [-4.159, -2.909]
    """
    check_keywords("mm_surrogate", options, ResponseOptions)
    cells = cells_of(model, curvature)
    data = _data(items, theta, values, observed, options)
    for name, array, wanted in (
        ("discriminations", items.discrimination, anchor[0].discrimination),
        ("abilities", theta, anchor[1]),
    ):
        if jnp.shape(array) != jnp.shape(wanted):
            raise ValueError(
                f"{name} have shape {jnp.shape(array)} at the point and"
                f" {jnp.shape(wanted)} at the anchor"
            )
    point, tight = factors_of(cells, items, theta), factors_of(cells, *anchor)
    bound = surrogate(data, point, tight, temperature, cells)
    return jnp.sum(weigh_rows(bound, data.subject_weight))


@full_precision
def expected_counts(
    model: Model,
    items: Items,
    nodes: Float[Array, "nodes *dims"],
    values: Num[Array, "subjects items"],
    observed: Bool[Array, "subjects items"] | None = None,
    *,
    log_weights: Float[Array, " nodes"] | None = None,
    **options: Unpack[LengthOptions],
) -> counts.Counts:
    """The E-step: posteriors of ability at nodes, summed to expected counts.

    With W_iq the posterior probability of node q given subject i's responses, the
    counts are sum_i w_i W_iq s_k(y_ij) of each statistic of the family and
    sum_i w_i W_iq m_ij of the base term (Bock and Aitkin 1981). `log_marginal` holds
    log sum_q exp(log_weights_q + log p(y_i | node_q)): its sum is the marginal
    log-likelihood that `EM` maximises. Response lengths are part of the posteriors and
    of `log_marginal`.

    Args:
        model: The model; see the module for this and the others.
        items: Item records.
        nodes: Abilities, equally spaced unless `log_weights` are given; of several
            abilities a square grid `[nodes, dims]`.
        values: Responses.
        observed: Mask of the observed cells.
        log_weights: Logarithms of weights that sum to 1; None for those of N(0, 1), or
            of uncorrelated abilities of variance 1.
        **options: Those of `LengthOptions`; items count in the posteriors as often
            as they have copies.

    Returns:
        Counts by node and item, with mean and variance of each subject's posterior; of
        several abilities the covariance `[subjects, dims, dims]`.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model, nodes = two_parameter(), jnp.linspace(-6, 6, 61)
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> values = jnp.array([[1, 0, 1], [1, 1, 1]])
    >>> totals = jax.jit(expected_counts)(model, items, nodes, values)
    >>> totals.statistics[0].shape, round(float(totals.nodes.sum()), 3)
    ((61, 3), 2.0)
    >>> totals.mean.round(2).tolist()
    [0.3, 0.9]
    >>> count = lambda w: expected_counts(
    ...     model, items, nodes, values, subject_weight=w
    ... ).nodes.sum()
    >>> jax.jit(jax.vmap(count))(jnp.array([[1.0, 1.0], [3.0, 0.0]])).round(3).tolist()
    [2.0, 3.0]
    >>> jax.jit(jax.grad(count))(jnp.ones(2)).round(3).tolist()
    [1.0, 1.0]
    """
    check_keywords("expected_counts", options, LengthOptions)
    data, constant = _data_at(model, items, nodes, values, observed, options)
    log_weights = _log_weights(nodes, log_weights)
    totals = counts.expected_counts(
        model, items, nodes, log_weights, data, moments=True
    )
    return totals._replace(log_marginal=totals.log_marginal + constant)


@full_precision
def draw_abilities(
    model: Model,
    items: Items,
    nodes: Float[Array, "nodes *dims"],
    values: Num[Array, "subjects items"],
    key: RandomKey,
    observed: Bool[Array, "subjects items"] | None = None,
    *,
    log_weights: Float[Array, " nodes"] | None = None,
    **options: Unpack[LengthOptions],
) -> Float[Array, "subjects *dims"]:
    """One draw of each subject's ability from its posterior at quadrature nodes.

    The draw is node q with the probability W_iq of `expected_counts`: the distribution
    function over the nodes is inverted. A subject with weight w has one draw. `SAEM`
    draws so, too (Delyon, Lavielle and Moulines 1999, the simulation step).

    Args:
        model: The model; see the module for this and the others.
        items: Item records.
        nodes: Abilities as for `expected_counts`.
        values: Responses.
        key: A whole number or a JAX key; `vmap` over split keys gives more draws.
        observed: Mask of the observed cells.
        log_weights: Logarithms of weights that sum to 1; None for those of N(0, 1), or
            of uncorrelated abilities of variance 1.
        **options: Those of `LengthOptions`.

    Returns:
        Abilities, each one of the nodes.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model, nodes = two_parameter(), jnp.linspace(-6, 6, 61)
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> values = jnp.array([[1, 0, 1], [1, 1, 1]])
    >>> draw = lambda key: draw_abilities(model, items, nodes, values, key)
    >>> draws = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 4000))
    >>> draws.shape, draws.mean(axis=0).round(1).tolist()
    ((4000, 2), [0.3, 0.9])
    """
    check_keywords("draw_abilities", options, LengthOptions)
    data, _ = _data_at(model, items, nodes, values, observed, options)
    log_weights = _log_weights(nodes, log_weights)
    return nodes[draw_places(model, items, nodes, log_weights, data, as_key(key))]


class AbilityCounts(NamedTuple):
    """Counts at nodes, as `expected_counts` has them, of abilities that are given.

    Attributes:
        base: Exposure at each node, of each item.
        statistics: Sums of each statistic s_k of the family, k >= 1.
        nodes: Number of subjects at each node.
    """

    base: Float[Array, "nodes items"]
    statistics: tuple[Float[Array, "nodes items"], ...]
    nodes: Float[Array, " nodes"]


@full_precision
def ability_counts(
    model: Model,
    theta: Float[Array, " subjects"],
    nodes: Float[Array, " nodes"],
    values: Num[Array, "subjects items"],
    observed: Bool[Array, "subjects items"] | None = None,
    **options: Unpack[ResponseOptions],
) -> AbilityCounts:
    """The complete-data statistics: responses counted at the node of each ability.

    With u_iq = 1 where theta_i is node q, else 0, sum_i w_i u_iq s_k(y_ij) of each
    statistic of the family and sum_i w_i u_iq m_ij of the base term. An ability between
    nodes is shared among the three nearest ones by Lagrange's weights, which keep its
    mean and variance. Averages of these counts over draws of abilities estimate
    `expected_counts`; all fields are floats, so that `jax.tree.map` averages them.

    Args:
        model: A model with one ability; see the module for this and the others.
        theta: Abilities, drawn by `draw_abilities` or by a sampler of your own.
        nodes: Equally spaced abilities.
        values: Responses.
        observed: Mask of the observed cells.
        **options: Those of `ResponseOptions`. Weights of items do not enter counts:
            `item_step` takes them.

    Returns:
        Counts for `item_step`.

    Raises:
        ValueError: If the model has several abilities.

    >>> from irtjax.models.catalogue import two_parameter
    >>> nodes, values = jnp.array([-1.0, 0.0, 1.0]), jnp.array([[1, 0], [1, 1]])
    >>> at = lambda theta: ability_counts(two_parameter(), theta, nodes, values)
    >>> jax.jit(at)(jnp.array([0.0, 1.0])).statistics[0].tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    >>> at(jnp.array([0.0, 0.5])).nodes.tolist()  # Mean .5, variance 0.
    [-0.125, 1.75, 0.375]
    """
    check_keywords("ability_counts", options, ResponseOptions)
    check_one_ability(model, "ability_counts")
    _check_abilities(model, theta)
    items = (jnp.zeros(jnp.shape(values)[1]),)
    data = _data(items, theta, values, observed, options)
    share = node_weights(theta[:, None], nodes)
    statistics, _, base = data.column_products(share, model.family.statistics)
    return AbilityCounts(
        base.T,
        tuple(sums.T for sums in statistics),
        jnp.sum(weigh_rows(share, data.subject_weight), axis=0),
    )


@full_precision
def item_step(
    model: Model,
    items: Items,
    nodes: Float[Array, "nodes *dims"],
    totals: counts.Counts | AbilityCounts,
    *,
    num_newton: int = 1,
    item_weight: Float[Array, " items"] | None = None,
) -> Items:
    """The M-step: items after safeguarded Newton steps on the counts at nodes.

    Raises, for each item, sum_q sum_k R_kqj g_k(node_q, item_j), where R_k are the
    counts of statistic k and g_k is its factor in the log-likelihood, plus the log
    prior of the item as in `item_prior`. No step lowers it. The abilities' population
    is that of the nodes and their weights, and is not estimated. Repeated after
    `expected_counts` this is EM without acceleration, and after averages of
    `ability_counts` it is SAEM.

    Args:
        model: The model; see the module for this and the others.
        items: Item records to begin with.
        nodes: Abilities at which responses were counted.
        totals: Result of `expected_counts`, or (averages of) `ability_counts`.
        num_newton: Number of Newton steps. Static under jit.
        item_weight: Number of copies of each item, for common parameters and priors.

    Returns:
        Item records.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model, nodes = two_parameter(), jnp.linspace(-6, 6, 61)
    >>> first = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> values = jnp.array([[1, 0, 1], [1, 1, 1], [0, 0, 1], [1, 0, 0]])
    >>> def em_step(items, _):
    ...     totals = expected_counts(model, items, nodes, values)
    ...     return item_step(model, items, nodes, totals), totals.log_marginal.sum()
    >>> items, log_lik = jax.lax.scan(em_step, first, length=20)
    >>> log_lik[jnp.array([0, 1, 19])].round(2).tolist()
    [-8.47, -6.72, -6.69]
    """
    _check_abilities(model, nodes, "nodes")
    coordinates = model.unconstrain(items)
    _check_shapes(coordinates.shape[:1], item_weight=item_weight)
    frame = jnp.zeros(2, coordinates.dtype)
    frame = model.prior_frame(coordinates, frame, 30, item_weight)
    update = improve_items(
        model,
        coordinates,
        model.family.free_columns(coordinates.shape[0]),
        nodes,
        totals,
        frame,
        num_newton,
        item_weight,
    )
    return model.constrain(update.coordinates)


@full_precision
def simulate(
    model: Model,
    items: Items,
    theta: Float[Array, "subjects *dims"],
    key: RandomKey,
    observed: Bool[Array, "subjects items"] | None = None,
    *,
    trials: int | None = None,
) -> Num[Array, "subjects items"]:
    """Random responses y_ij ~ p(y | theta_i, item_j), independent given abilities.

    Lengths of responses are not drawn (`models.simulate.simulate_log_lengths`).

    Categories and counts have no derivative. Logits of scores of the logit-normal
    family do: a theta + d + sd * noise (LEGO-IRT), with the noise fixed by the key.

    Args:
        model: The model; see the module for this and the others.
        items: Item records.
        theta: Abilities.
        key: A whole number or a JAX key; `vmap` over split keys gives independent data
            sets.
        observed: Mask of the cells to draw.
        trials: Trials of each count, at most 127, or None. Static under jit.

    Returns:
        `[subjects, items]` int8, or floats (logits) for models of scores; 0 where
        missing.

    Raises:
        ValueError: If `trials` is out of range, or the model has other than two
            categories.

    >>> from irtjax.models.catalogue import continuous
    >>> model, key = continuous(), jax.random.key(0)
    >>> items = model.family.Items(jnp.full(3, 2.0), jnp.zeros(3), jnp.ones(3))
    >>> jax.jit(simulate)(model, items, jnp.zeros(2), key).shape
    (2, 3)
    >>> jax.grad(lambda t: simulate(model, items, t, key).sum())(jnp.zeros(2)).tolist()
    [6.0, 6.0]
    >>> draw = lambda key: simulate(model, items, jnp.zeros(2), key)
    >>> jax.jit(jax.vmap(draw))(jax.random.split(key, 4)).shape
    (4, 2, 3)
    """
    _check_abilities(model, theta)
    _check_shapes((theta.shape[0], jnp.shape(items[0])[0]), observed=observed)
    options = {"observed": observed, "trials": trials}
    return simulation.simulate(model, items, theta, key, **options).values


def _data(items, theta, values, observed, options) -> Responses:
    """The record that the methods take, with 0 in missing cells."""
    trials, subject_weight, item_weight = (
        options.get(name) for name in ("trials", "subject_weight", "item_weight")
    )
    num_subjects = jnp.shape(values)[0] if theta is None else jnp.shape(theta)[0]
    shape = (num_subjects, jnp.shape(items[0])[0])
    _check_shapes(shape, values=values, observed=observed, trials=trials)
    _check_shapes(shape[:1], subject_weight=subject_weight)
    _check_shapes(shape[1:], item_weight=item_weight)
    if observed is not None:
        values = jnp.where(observed, values, 0)
        trials = None if trials is None else jnp.where(observed, trials, 0)
    return Responses(
        values,
        observed,
        trials,
        subject_weight=subject_weight,
        item_weight=item_weight,
    )


def _data_at(
    model, items, nodes, values, observed, options
) -> tuple[Responses, Array | float]:
    """The record with the evidence of lengths about ability, and their constant."""
    _check_abilities(model, nodes, "nodes")
    data = _with_lengths(model, _data(items, None, values, observed, options), options)
    lengths = options.get("lengths")
    if lengths is None:
        return data, 0.0
    summary = model.lengths.summary(lengths, data)
    evidence, constant = model.lengths.evidence(lengths, summary)
    return dataclasses.replace(data, evidence=evidence), constant


def _log_weights(nodes: Array, log_weights: Array | None) -> Array:
    """Log weights of nodes, of N(0, 1) where there are none."""
    _check_shapes(nodes.shape[:1], log_weights=log_weights)
    return normal_log_weights(nodes) if log_weights is None else log_weights


def _with_lengths(model, data, options) -> Responses:
    """The record with response lengths, which models with lengths need."""
    lengths, log_length, length_observed = (
        options.get(name) for name in ("lengths", "log_length", "length_observed")
    )
    provided = lengths is not None, log_length is not None
    if not model.has_lengths:
        if any(provided) or length_observed is not None:
            raise ValueError(
                f"model {model.name!r} has no response lengths: leave lengths and"
                " log_length out"
            )
        return data
    if not all(provided):
        raise ValueError(
            f"model {model.name!r} has response lengths: give lengths and log_length,"
            " or take dataclasses.replace(model, lengths=None) for the responses alone"
        )
    shape = data.values.shape
    _check_shapes(shape, log_length=log_length, length_observed=length_observed)
    if length_observed is not None:
        log_length = jnp.where(length_observed, log_length, 0)
    return dataclasses.replace(
        data, log_length=log_length, length_observed=length_observed
    )


def _log_lik(model, data, items, theta, lengths) -> Float[Array, " subjects"]:
    """Log-likelihood of each subject times its weight, with that of its lengths."""
    log_lik = joint_log_likelihood(model, data, items, theta)
    log_lik = log_lik + model.length_model.log_ability(lengths, data, theta)
    return weigh_rows(log_lik, data.subject_weight)


def _check_abilities(model: Model, theta: Array, name: str = "theta") -> None:
    """Refuses abilities of another number than the model has."""
    wanted, shape = model.family.ability_shape, jnp.shape(theta)
    if shape[1:] != wanted or not shape:
        dims = sum(wanted)
        many = f"{dims} abilities: give [{name}, {dims}]" if dims else "one ability"
        raise ValueError(
            f"{name} has shape {shape}, and the model {model.name!r} has {many}"
        )


def _check_shapes(shape: tuple[int, ...], **arrays: Array | None) -> None:
    """Refuses arrays of another shape, by name."""
    for name, array in arrays.items():
        if array is not None and jnp.shape(array) != shape:
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}; items and abilities need {shape}"
            )
