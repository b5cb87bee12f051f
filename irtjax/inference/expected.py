r"""Expected scores: the mean over items of the expected response, with its error.

The expected score of subject i on the J items of a fit is

    S_i = (1 / J) sum_j E[y | theta_i, x_j],                                        (1)

x_j the coordinates of item j. The items are fixed: S_i is a property of the subject on
*these* items, answered or not, and not of a population of items. What is reported is
its posterior mean over the ability, given the items,

    m_i(x) = E[S(theta; x) | y_i, x],                                               (2)

by quadrature, and the variance

    V_i = Var[S | y_i, x] + g' C g,   g = d m_i / d x,                              (3)

C the covariance of the estimated items and population. The gradient has two parts: how
the item response functions move, and how the posterior of the ability moves,

    g_j = E[dS / dx_j | y_i] + Cov[S, d log p(y_ij | theta, x_j) / dx_j | y_i].     (4)

The two parts cancel where a change of the items is undone by a change of the ability
(location and scale), so V_i has little of the error that all abilities share.

Equation (3) is linear in the items' errors. With 18 responses to each item 90 % of the
95 % intervals of a 2PL cover S_i, and 95 % of a Rasch model: discriminations estimated
from so few responses are too far apart. There use laplace (`mean_responses`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irtjax.data.responses import AbstractResponses
from irtjax.inference.block import (
    Scorer,
    SubjectBlock,
    scan_in_stretches,
    scan_scores,
    table_of,
)
from irtjax.inference.covariance import Covariance
from irtjax.inference.item_error import (
    added_variance,
    coordinate_slopes,
    mean_sensitivity,
)
from irtjax.likelihood.counts import log_likelihood_at_nodes
from irtjax.models.family import AbstractResponseFamily, Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import weigh_rows
from irtjax.numerics.programs import stored_jit


class ExpectedScores(NamedTuple):
    """Posterior means of S_i and their standard errors, each `[subjects]`."""

    score: Float[Array, " subjects"]
    standard_error: Float[Array, " subjects"]


def response_table(
    family: AbstractResponseFamily, items: Items, theta: Float[Array, " nodes"]
) -> Float[Array, "nodes items"]:
    """Expected response to every item at every ability."""
    return table_of(family.expected_response, items, theta)


response_table_jit = stored_jit(response_table)


@stored_jit
def expected_scores(
    model: Model,
    items: Items,
    population: Population,
    data: AbstractResponses,
    nodes: Float[Array, " nodes"],
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
    into: ExpectedScores | None = None,
    between: Int[Array, "2"] | None = None,
) -> ExpectedScores:
    """Mean over the items of each subject's expected response, with its error. Pure.

    Args:
        model: The model.
        items: Item records, `[items]`.
        population: Population of ability.
        data: The responses of the subjects.
        nodes: Standardised nodes, as for `score`.
        item_covariance: Covariance of items and population; None takes them as known.
        evidence_moves: As for `score`.
        into: Scores of other blocks of subjects, and
        between: the first block to put into them and the one after the last.

    Returns:
        Scores on the scale of one response (0 to 1, or 0 to the highest category).

    >>> import irtjax
    >>> model, unit = irtjax.MODELS["2pl"](), Population(jnp.zeros(()), jnp.ones(()))
    >>> items = model.constrain(jnp.array([[1.0, 0.0]] * 2))
    >>> data = irtjax.Responses(jnp.array([[0, 0], [1, 0]], jnp.int8))
    >>> found = expected_scores(model, items, unit, data, jnp.linspace(-6, 6, 61))
    >>> bool(found.score[0] < 0.5), round(float(found.score[1]), 4)
    (True, 0.5)
    """
    scorer = Scorer.of(model, items, population, item_covariance, evidence_moves, "eap")
    log_weights = population.log_weights_at(nodes)
    theta = scorer.mean + scorer.sd * nodes

    responses = lambda items: response_table(model.family, items, theta)
    share = weigh_rows(jnp.ones(data.num_items, theta.dtype), data.item_weight)
    share = share / jnp.sum(share)
    at_nodes = responses(items) @ share
    # A posterior narrower than the nodes has no variance on them: see EAP scores.
    least = jnp.square(jnp.asarray(jnp.gradient(at_nodes))) / 12
    # dS / dx_j at every node, the first part of (4).
    direct = [slopes * share for slopes in coordinate_slopes(scorer, responses)]

    def scores(block: SubjectBlock, log_lik: Array) -> ExpectedScores:
        posterior = jax.nn.softmax(log_lik + log_weights, axis=1)
        score = posterior @ at_nodes
        centred = at_nodes - score[:, None]
        variance = jnp.sum(posterior * centred**2, axis=1)
        variance = jnp.maximum(variance, posterior @ least)
        if scorer.item_error is not None:
            moves = mean_sensitivity(scorer, block, theta, posterior * centred)
            pairs = zip(direct, moves.items, strict=True)
            moves = moves._replace(items=tuple(posterior @ d + m for d, m in pairs))
            # A score has no unit that moves with the population: as at its mean.
            at = jnp.broadcast_to(scorer.mean, score.shape)
            variance = variance + added_variance(scorer, block, at, moves)[0]
        return ExpectedScores(score, jnp.sqrt(variance))

    if not data.has_blocks:
        return _sparse_expected(
            scorer, data, theta, log_weights, at_nodes, least, direct
        )
    zeros = jnp.zeros(data.num_subjects, scorer.mean.dtype)
    init, make = ExpectedScores(zeros, zeros), lambda *_: scores
    return scan_scores(scorer, data, theta, make, init, into, between)


def watched_expected_scores(
    model: Model,
    items: Items,
    population: Population,
    data: AbstractResponses,
    nodes: Float[Array, " nodes"],
    item_covariance: Covariance | None = None,
    evidence_moves: Float[Array, "subjects 2 rank"] | None = None,
) -> ExpectedScores:
    """`expected_scores` of the same arguments, in calls that show the share done."""
    dtype = jnp.asarray(items[0]).dtype
    zeros = lambda: jnp.zeros(data.num_subjects, dtype)
    return scan_in_stretches(
        lambda *part: expected_scores(
            model,
            items,
            population,
            data,
            nodes,
            item_covariance,
            evidence_moves,
            *part,
        ),
        lambda: ExpectedScores(zeros(), zeros()),
        data,
        dtype,
    )


def _sparse_expected(
    scorer: Scorer,
    data: AbstractResponses,
    theta: Array,
    log_weights: Array,
    at_nodes: Array,
    least: Array,
    direct: list[Array],
) -> ExpectedScores:
    """`expected_scores` of sparse responses.

    The gradient (4) is P D + M, P the posterior, D the first part at the nodes and M
    the second part, which is 0 where a subject did not answer. With S the errors of
    single items, g' S g is that of P D, a form of P alone, and the rest over the items
    answered.
    """
    tables = scorer.model.family.table(scorer.items, theta)
    log_lik = log_likelihood_at_nodes(scorer.model, tables, data)
    posterior = jax.nn.softmax(log_lik + log_weights, axis=1)
    score = posterior @ at_nodes
    lean = posterior * (at_nodes - score[:, None])
    variance = jnp.sum(posterior * (at_nodes - score[:, None]) ** 2, axis=1)
    variance = jnp.maximum(variance, posterior @ least)
    error = scorer.item_error
    if error is None:
        return ExpectedScores(score, jnp.sqrt(variance))

    def own_variance(first, second, items):
        total = jnp.zeros(first[0].shape[0], theta.dtype)
        for i, by_row in enumerate(first):
            for k, by_column in enumerate(second):
                total = total + (by_row * by_column) @ items[:, i, k]
        return total

    def make(own: Scorer, places: Any):
        """What the items that a subject answered add, beyond those of P D."""
        return lambda block, log_lik: answered(own, places, block, log_lik)

    def answered(own: Scorer, places: Array, block: SubjectBlock, log_lik: Array):
        each = jax.nn.softmax(log_lik + log_weights, axis=1)
        own_lean = each * (at_nodes - each @ at_nodes)
        moves = mean_sensitivity(own, block, theta, own_lean).items
        smooth = [each @ table[:, places] for table in direct]
        slopes = [x + y for x, y in zip(smooth, moves, strict=True)]
        errors = own.item_error
        assert errors is not None
        added = own_variance(slopes, slopes, errors.items)
        added = added - own_variance(smooth, smooth, errors.items)
        pairs = zip(moves, errors.columns, strict=True)
        return added, sum((move @ part for move, part in pairs), start=0.0)

    rank = error.population.shape[1]
    zeros = jnp.zeros_like(score)
    init = zeros, jnp.zeros((score.shape[0], rank), theta.dtype)
    rest, shared = scan_scores(scorer, data, theta, make, init)
    form = sum(
        (by_row * error.items[:, i, k]) @ by_column.T
        for i, by_row in enumerate(direct)
        for k, by_column in enumerate(direct)
    )
    total = jnp.sum((posterior @ form) * posterior, axis=1) + rest
    pairs = zip(direct, error.columns, strict=True)
    shared = shared + posterior @ sum(table @ part for table, part in pairs)
    standard = (theta - scorer.mean) / scorer.sd
    by_scale = jnp.stack([standard / scorer.sd, standard**2 - 1], axis=1)
    shared = shared + (lean @ by_scale) @ error.population
    variance = variance + jnp.maximum(total, 0) + jnp.sum(shared**2, axis=1)
    return ExpectedScores(score, jnp.sqrt(variance))
