"""The pass over the data that scores every subject.

Likelihoods on a grid come from the same matrix products as in EM; MAP, ML and WLE
scores are then polished by a safeguarded Newton iteration, one block of subjects at a
time. The grid makes them global maxima, where a likelihood has several modes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax.data.responses import AbstractResponses
from irtjax.inference.block import (
    BlockScores,
    Scorer,
    SubjectBlock,
    is_empty,
    scan_in_stretches,
    scan_scores,
)
from irtjax.inference.covariance import Covariance
from irtjax.inference.item_error import added_variance, mean_sensitivity
from irtjax.inference.modes import mode_scores, warm_on_grid, warm_table
from irtjax.inference.result import METHODS, ScoreFlag, Scores
from irtjax.likelihood.quadrature import REACH, choose_nodes
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit


@full_precision
def score(
    model: Model,
    items: Items,
    population: Population,
    data: AbstractResponses,
    *,
    scoring: str = "eap",
    nodes: Float[Array, " nodes"] | np.ndarray | None = None,
    bounds: tuple[float, float] = (-6.0, 6.0),
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
) -> Scores:
    """Scores every subject, with the items fixed.

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
        scoring: "eap", "map", "ml" or "wle".
        nodes: Standardised quadrature nodes; None chooses them from the information. A
            histogram population needs its own (by default equally spaced over +-6).
        bounds: Where ML and WLE look, in units of ability. (MAP looks among the nodes.)
        item_covariance: Covariance of items and population; adds their uncertainty.
        evidence_moves: How `data.evidence` moves along each row of the covariance's
            `shared`, where evidence has estimated parameters too.

    Returns:
        The scores. Works on the host; see `score_on_nodes` for the part to jit.

    Raises:
        ValueError: If the scoring is unknown, the bounds are not in order, a histogram
            population meets other nodes, or "map" meets a histogram.

    >>> import irtjax
    >>> model, unit = irtjax.MODELS["2pl"](), Population(jnp.zeros(()), jnp.ones(()))
    >>> items = model.constrain(jnp.array([[1.0, 0.0]] * 3))
    >>> data = irtjax.Responses(jnp.array([[0, 0, 1], [1, 1, 1]], jnp.int8))
    >>> score(model, items, unit, data, scoring="ml").flag.tolist()
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
    at_nodes, ends = jnp.asarray(nodes, dtype), np.array([low, high], dtype)
    ends = jax.device_put(ends)
    program = lambda *part: _score_jit(
        model,
        items,
        population,
        data,
        at_nodes,
        ends,
        item_covariance,
        evidence_moves,
        part,
        scoring=scoring,
    )

    empty = lambda: _prior_scores(population, data.num_subjects, dtype, item_covariance)
    return scan_in_stretches(program, empty, data, dtype)


def score_on_nodes(
    model: Model,
    items: Items,
    population: Population,
    data: AbstractResponses,
    nodes: Float[Array, " nodes"],
    bounds: Float[Array, "2"],
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
    part: tuple[()] | tuple[Scores, Int[Array, "2"]] = (),
    *,
    scoring: str,
) -> Scores:
    """Scores on given nodes: `score` without its host-side choices. Pure.

    The arguments are those of `score`: `nodes` are standardised and in increasing
    order, `bounds` are where ML and WLE look, and `scoring` is static under jit. A
    `part` has scores of others, into which those of some blocks of subjects are put,
    and the first of these blocks and the one after the last; see `scan_in_stretches`.
    """
    if scoring not in METHODS:
        raise ValueError(f"scoring {scoring!r} is not one of {', '.join(METHODS)}")
    log_weights = population.log_weights_at(nodes)
    if scoring == "map" and population.log_weights is not None:
        raise ValueError(
            "scoring 'map' is not defined for a histogram population: use 'eap', or a"
            " Population with log_weights=None"
        )
    scorer = Scorer.of(
        model, items, population, item_covariance, evidence_moves, scoring
    )
    mean, sd = scorer.mean, scorer.sd
    theta = mean + sd * nodes

    def make(scorer: Scorer, places: Array | None):
        del places
        score_block = _block_scorer(scorer, theta, bounds)

        def scores(block: SubjectBlock, log_lik: Array) -> Scores:
            joint = log_lik + log_weights
            log_marginal = jax.nn.logsumexp(joint, axis=1)
            scored = score_block(block, joint, log_marginal)
            empty = is_empty(block)
            flag = jnp.where(empty, int(ScoreFlag.NO_RESPONSES), scored.flag)
            return Scores(
                jnp.where(empty, mean, scored.ability),
                jnp.where(empty, sd, jnp.sqrt(scored.variance)),
                log_marginal,
                flag.astype(jnp.int32),
                jax.tree.map(lambda x: jnp.where(empty[:, None], 0, x), scored.shared),
            )

        return scores

    init = _prior_scores(population, data.num_subjects, mean.dtype, item_covariance)
    into, between = part or (None, None)
    return scan_scores(scorer, data, theta, make, init, into, between)


def _prior_scores(
    population: Population, num_subjects: int, dtype, item_covariance: Covariance | None
) -> Scores:
    """Scores of subjects without a response: those of the population."""
    mean, sd = (jnp.asarray(x, dtype) for x in population[:2])
    zeros, shared = jnp.zeros(num_subjects, dtype), None
    if item_covariance is not None:
        rank = item_covariance.shared.shape[0]
        shared = jnp.zeros((num_subjects, rank), dtype)
    flag = jnp.full(num_subjects, int(ScoreFlag.NO_RESPONSES), jnp.int32)
    return Scores(zeros + mean, zeros + sd, zeros, flag, shared)


def _block_scorer(scorer: Scorer, theta: Array, bounds: Array):
    """The function that scores a block, given its joint log density on the nodes."""
    if scorer.scoring == "eap":
        return lambda block, joint, log_marginal: _eap_scores(
            scorer, block, theta, jnp.exp(joint - log_marginal[:, None])
        )
    if scorer.scoring == "map":
        return lambda block, joint, _: mode_scores(scorer, block, theta, joint)
    # ML and WLE look between the bounds, with as many points as there are nodes.
    share = jnp.linspace(0, 1, theta.shape[0], dtype=theta.dtype)
    grid = bounds[0] + (bounds[1] - bounds[0]) * share
    on_grid = scorer.model.family.table(scorer.items, grid)
    warm = warm_table(scorer, grid) if scorer.scoring == "wle" else None

    def of_block(block: SubjectBlock, joint: Array, log_marginal: Array):
        log_lik = block.log_likelihood(on_grid, grid)
        if warm is not None:
            log_lik = log_lik + warm_on_grid(block, warm, grid)
        return mode_scores(scorer, block, grid, log_lik)

    return of_block


def _eap_scores(
    scorer: Scorer, block: SubjectBlock, theta: Array, posterior: Array
) -> BlockScores:
    """EAP scores and their variances."""
    ability = posterior @ theta
    centred = theta - ability[:, None]
    variance = jnp.sum(posterior * centred**2, axis=1)
    # A posterior narrower than the nodes has no variance on them; its width is then
    # that of the nodes, not zero.
    variance = jnp.maximum(variance, (theta[1] - theta[0]) ** 2 / 12)
    shared = None
    if scorer.item_error is not None:
        moves = mean_sensitivity(scorer, block, theta, posterior * centred)
        added, shared = added_variance(scorer, block, ability, moves)
        variance = variance + added
    return BlockScores(ability, variance, jnp.zeros(ability.shape, jnp.int32), shared)


_score_jit = stored_jit(score_on_nodes)
