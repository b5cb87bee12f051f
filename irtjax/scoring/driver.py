"""The pass over the data that scores every subject.

Likelihoods on a grid come from the same matrix products as in EM; MAP, ML and WLE
scores are then polished by a safeguarded Newton iteration, one block of subjects at a
time. The grid makes them global maxima, where a likelihood has several modes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.responses import Responses
from irtjax.likelihood.counts import block_log_likelihood
from irtjax.likelihood.quadrature import REACH, choose_nodes
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import (
    block_size_for,
    equal_nodes,
    normal_log_weights,
    put_block,
    scan_subject_blocks,
    take_block,
)
from irtjax.numerics.programs import stored_jit
from irtjax.scoring.block import Block, ItemError, Task, is_empty
from irtjax.scoring.modes import mode_scores
from irtjax.scoring.posterior import posterior_scores
from irtjax.scoring.result import METHODS, ScoreFlag, Scores
from irtjax.scoring.warm import warm_on_grid, warm_table
from irtjax.uncertainty.covariance import Covariance


def score(
    model: Model,
    items: Items,
    population: Population,
    data: Responses,
    *,
    method: str = "eap",
    nodes: Float[Array, " nodes"] | np.ndarray | None = None,
    bounds: tuple[float, float] = (-6.0, 6.0),
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
) -> Scores:
    """Scores every subject, the items held fixed.

    - "eap": mean and standard deviation of the posterior.
    - "map": mode of the posterior, 1 / sqrt(-l'' + 1 / s^2).
    - "ml": mode of the likelihood, 1 / sqrt(-l'') with l'' at the score (the observed
      information, as in R's mirt; the expected one where l'' is not negative).
    - "wle": root of l'(theta) + J(theta) / (2 I(theta)), with I the test information
      and J = sum_j sum_y P'_jy P''_jy / P_jy, and 1 / sqrt(I). Its bias is of smaller
      order than that of ML, and it is finite for all-right and all-wrong subjects
      (Warm 1989; for the 2PL, the mode of likelihood times sqrt(I)).

    An ML score beyond `bounds` is set to the bound and flagged, its standard error at
    most the distance between the bounds. A subject without responses gets the mean
    and standard deviation of the population, and a flag.

    With `item_covariance` C, the squared standard error grows by g' C g with
    g = d score / d x over all unconstrained item coordinates, and the population's mean
    and log sd where these were estimated: the posterior covariance of theta and
    d l / d x for EAP, d^2 l / (d theta d x) divided by the information for modes (for
    WLE the change of J / (2 I), which is of smaller order, is left out). Part of that
    error is the same for all subjects; see `Scores.shared`.

    Args:
        model: The model.
        items: Item records, `[items]`.
        population: Population of ability; ML and WLE use it for `log_marginal` alone.
        data: Responses; missing cells, trials and item weights are respected.
        method: "eap", "map", "ml" or "wle".
        nodes: Standardised quadrature nodes; None chooses them from the information.
            A histogram population needs the nodes it was estimated on (by default
            equally spaced over +-6).
        bounds: Where ML and WLE look, in units of ability. (MAP looks among the nodes.)
        item_covariance: Sampling covariance of items and population; adds their
            uncertainty.
        evidence_moves: How `data.evidence` moves along each row of the covariance's
            `shared`, where evidence has estimated parameters too.

    Returns:
        The scores. Works on the host; see `score_on_nodes` for the part to jit.

    Raises:
        ValueError: If the method is unknown, the bounds are not in order, a histogram
            population meets other nodes, or "map" meets a histogram.

    >>> from irtjax.models.catalogue import two_parameter
    >>> from irtjax.models.families.logistic import LogisticItems
    >>> items = LogisticItems(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> data = Responses(jnp.array([[0, 0, 1], [1, 1, 1]], jnp.int8))
    >>> score(two_parameter(), items, unit, data, method="ml").flag.tolist()
    [0, 1]
    """
    if nodes is None:
        log_weights = population.log_weights
        if log_weights is None:
            nodes = choose_nodes(model, items, population, data)
        else:
            nodes = equal_nodes(-REACH, REACH, log_weights.shape[0])
    low, high = (float(bound) for bound in bounds)
    if not low < high:
        raise ValueError(f"bounds ({low:g}, {high:g}) are not in increasing order")
    dtype = jnp.asarray(items[0]).dtype
    return _score_jit(
        model,
        items,
        population,
        data,
        jnp.asarray(nodes, dtype),
        jnp.asarray(np.array([low, high], dtype)),
        item_covariance,
        evidence_moves,
        method=method,
    )


def score_on_nodes(
    model: Model,
    items: Items,
    population: Population,
    data: Responses,
    nodes: Float[Array, " nodes"],
    bounds: Float[Array, "2"],
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
    *,
    method: str,
) -> Scores:
    """Scores on given nodes: `score` without its host-side choices. Pure.

    Args:
        model: The model.
        items: Item records, `[items]`.
        population: Population of ability.
        data: Responses.
        nodes: Standardised nodes, in increasing order.
        bounds: Where ML and WLE look.
        item_covariance: See `score`.
        evidence_moves: See `score`.
        method: "eap", "map", "ml" or "wle" (static under jit).

    Returns:
        The scores, in the dtype of the items.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is none of {', '.join(METHODS)}")
    log_weights = _log_weights(population, nodes, method)
    dtype = jnp.asarray(items[0]).dtype
    mean, sd = (jnp.asarray(p, dtype) for p in (population.mean, population.sd))
    item_error, rank = None, 0
    if item_covariance is not None:
        item_error = ItemError.of(item_covariance, evidence_moves, dtype)
        rank = item_covariance.shared.shape[0]
    task = Task(model, items, method, mean, sd, item_error)
    theta = mean + sd * nodes
    tables = model.family.table(items, theta)
    score_block = _block_scorer(task, data, theta, bounds)
    num_subjects, num_items = data.values.shape
    size = block_size_for(num_subjects, num_items, dtype.itemsize)

    def body(carry: Scores, start: Array, is_new: Array) -> Scores:
        log_lik, statistics, exposure = block_log_likelihood(
            model, tables, theta, data, start, size
        )
        joint = log_lik + log_weights
        log_marginal = jax.nn.logsumexp(joint, axis=1)
        evidence = take_block(data.evidence, start, size)
        block = Block(start, statistics, exposure, data.item_weight, evidence)
        found = score_block(block, joint, log_marginal)
        empty = is_empty(block)
        flag = jnp.where(empty, int(ScoreFlag.NO_RESPONSES), found.flag)
        shared = found.shared
        new = Scores(
            jnp.where(empty, mean, found.ability),
            jnp.where(empty, sd, jnp.sqrt(found.variance)),
            log_marginal,
            flag.astype(jnp.int32),
            None if shared is None else jnp.where(empty[:, None], 0, shared),
        )
        return jax.tree.map(lambda old, part: put_block(old, part, start), carry, new)

    zeros = jnp.zeros(num_subjects, dtype)
    init = Scores(
        zeros,
        zeros,
        zeros,
        jnp.zeros(num_subjects, jnp.int32),
        None if item_error is None else jnp.zeros((num_subjects, rank), dtype),
    )
    return scan_subject_blocks(body, init, num_subjects, size)


def _block_scorer(task: Task, data: Responses, theta: Array, bounds: Array):
    """The function that scores a block, given its joint log density on the nodes."""
    if task.method == "eap":
        return lambda block, joint, log_marginal: posterior_scores(
            task, block, theta, jnp.exp(joint - log_marginal[:, None])
        )
    if task.method == "map":
        return lambda block, joint, _: mode_scores(task, block, theta, joint)
    # ML and WLE look between the bounds, with as many points as there are nodes.
    share = jnp.linspace(0, 1, theta.shape[0], dtype=theta.dtype)
    grid = bounds[0] + (bounds[1] - bounds[0]) * share
    on_grid = task.model.family.table(task.items, grid)
    warm = warm_table(task, grid) if task.method == "wle" else None

    def scorer(block: Block, joint: Array, log_marginal: Array):
        size = joint.shape[0]
        log_lik, _, _ = block_log_likelihood(
            task.model, on_grid, grid, data, block.start, size
        )
        if warm is not None:
            log_lik = log_lik + warm_on_grid(block, warm, grid)
        return mode_scores(task, block, grid, log_lik)

    return scorer


_score_jit = stored_jit(score_on_nodes)


def _log_weights(population: Population, nodes: Array, method: str) -> Array:
    log_weights = population.log_weights
    if log_weights is None:
        return normal_log_weights(nodes)
    if log_weights.shape != nodes.shape:
        raise ValueError(
            f"the population is a histogram on {log_weights.shape[0]} nodes, but"
            f" {nodes.shape[0]} nodes were given; pass the nodes it was estimated on"
        )
    if method == "map":
        raise ValueError(
            "method 'map' has no mode to find under a histogram population: use 'eap',"
            " or a Population with log_weights=None"
        )
    return jax.nn.log_softmax(log_weights).astype(nodes.dtype)
