r"""A network and a latent ability by one measure: responses given the others.

A two-parameter model implies logits of a response given the subject's other responses,
as an Ising model does. With posterior weights W_q of abilities at nodes given all
responses, p(y_j | others) = 1 / sum_q W_q / p_q(y_j), so that with s = 1 where y_j = 0
and s = -1 where y_j = 1

    logit P(y_j = 1 | others) = s log sum_q W_q e^{s eta_jq},

eta_jq = a_j theta_q + d_j. Of new subjects they are compared with the logits of a
network by the mean of log p(y_ij | y_i, others), with errors over subjects.

In a **residual network** they are the offset of an Ising model: weights are then of
what the ability leaves unexplained, p(y) proportional to p_2PL(y) exp(sum omega y y).
Discriminations of a 2PL alone are too large where items depend on each other, which
gives their neighbours weights below 0. Dependent pairs are therefore chosen first, and
their weights and all a_j and d_j estimated together, by maximum pseudo-likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, logsumexp, ndtr

from irtjax.data.table import ResponseTable
from irtjax.models.catalogue import MODELS
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.prediction.held_out import OnNodes
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.ising import Ising, fit_pseudolikelihood, log_chances

if TYPE_CHECKING:
    import pyarrow as pa

#: Largest size of a logit and of a parameter: chances of 1e-11.
FAR = 25.0
#: Right and wrong responses that the shares of independent items have in addition.
PRIOR_RESPONSES = 0.5
#: False discovery rate of dependent pairs, and rounds in which they are chosen. A round
#: takes one pair of an item, as its others may be neighbours of a dependent pair.
LEVEL, ROUNDS = 0.05, 5
#: Relative change of the pseudo-likelihood that ends a search: .01 nats of 5,000 x 30.
STOP = 1e-7
#: Derivatives by items from those by logits.
Pullback = Callable[[np.ndarray], np.ndarray]


class Ability(NamedTuple):
    """A 2PL at nodes of the ability.

    Attributes:
        items: `[2, items]` discriminations a and intercepts d.
        theta: `[nodes]` abilities.
        log_weights: `[nodes]` logarithms of their chances in the population.
        log_likelihood: Marginal.
    """

    items: np.ndarray
    theta: np.ndarray
    log_weights: np.ndarray
    log_likelihood: float = np.nan

    def logits(self, right: np.ndarray) -> np.ndarray:
        """`[subjects, items]` logits of each response given the subject's others.

        >>> ability = Ability(np.array([[1.0], [0.0]]), np.zeros(1), np.zeros(1))
        >>> ability.logits(np.ones((1, 1))).tolist()
        [[0.0]]
        """
        return self.linearised(right)[0]

    def linearised(self, right: np.ndarray) -> tuple[np.ndarray, Pullback]:
        """The logits, and a function that takes derivatives by them to those by items.

        It maps `[subjects, items]` derivatives to those by `items`, `[2, items]`.
        """
        slope, intercept = self.items
        eta = np.clip(np.outer(self.theta, slope) + intercept, -FAR, FAR)
        joint = right @ eta.T - np.logaddexp(0, eta).sum(axis=1) + self.log_weights
        weight = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        up, down = np.exp(eta), np.exp(-eta)
        wrong, correct = weight @ up, weight @ down

        def pullback(by_logit):
            # The posterior without item j at a node is W e^{s eta} / sum W e^{s eta}.
            of_wrong, of_right = (
                (1 - right) * by_logit / wrong,
                right * by_logit / correct,
            )
            signed = (by_logit * (1 - 2 * right)).sum(axis=1)[:, None]
            others = weight * (of_wrong @ up.T - of_right @ down.T - signed)
            by_eta = others.T @ right - others.sum(axis=0)[:, None] * expit(eta)
            by_eta += up * (weight.T @ of_wrong) + down * (weight.T @ of_right)
            return np.stack([self.theta @ by_eta, by_eta.sum(axis=0)])

        return np.where(right > 0, -np.log(correct), np.log(wrong)), pullback


class TwoParameterModel:
    """A 2PL of some of the subjects, by marginal maximum likelihood."""

    def __init__(self, right: np.ndarray) -> None:
        table = ResponseTable.from_arrays(right.astype(np.int8))
        self._shape, self._model = right.shape, OnNodes(table, MODELS["2pl"]())

    @full_precision
    def fit(self, train: np.ndarray) -> Ability:
        """By the subjects in the mask `train`."""
        model = self._model
        fit = model.fit(model.data(np.broadcast_to(train[:, None], self._shape)))
        items, population = fit.parameters[:2]
        assert model.grid is not None
        return Ability(
            np.array([items.discrimination, items.intercept], float),
            np.array(population.mean + population.sd * model.grid.nodes, float),
            np.array(model.grid.log_weights, float),
            float(fit.log_lik),
        )


def fit_residual(right: np.ndarray, ability: Ability) -> tuple[Ability, Ising]:
    """The 2PL with dependent pairs, and the network of what it leaves unexplained.

    Args:
        right: `[subjects, items]` of 0 and 1, every item with both.
        ability: A 2PL of these responses.
    """
    dependent = np.zeros((right.shape[1],) * 2, bool)
    network = fit_pseudolikelihood(right, ability.logits(right))
    for _ in range(ROUNDS):
        new = _most_dependent(network, dependent)
        if not new.any():
            break
        dependent |= new
        start = np.where(dependent, network.weights, 0)
        ability = _fit_dependent(right, ability, start)
        network = fit_pseudolikelihood(right, ability.logits(right))
    return ability, network


def _most_dependent(network: Ising, chosen: np.ndarray) -> np.ndarray:
    """`[items, items]` mask of the significant pairs, the largest of both items."""
    pairs, size = np.triu_indices(len(chosen), 1), np.zeros(chosen.shape)
    assert network.errors is not None
    error = network.errors[pairs]
    z = np.abs(network.weights[pairs]) / np.where(error > 0, error, np.inf)
    size[pairs] = z * (benjamini_hochberg(2 * ndtr(-z)) < LEVEL)
    size = np.where(chosen, 0, size + size.T)
    largest = size.max(axis=0)
    return (size > 0) & (size == largest) & (size == largest[:, None])


def _fit_dependent(right: np.ndarray, ability: Ability, start: np.ndarray) -> Ability:
    """The 2PL with the weights that are not 0, by maximum pseudo-likelihood."""
    size, count = right.shape
    pairs = np.nonzero(np.triu(start))

    def parts(x):
        weights = np.zeros((count, count))
        weights[pairs] = x[2 * count :]
        items = x[: 2 * count].reshape(2, count)
        return ability._replace(items=items), weights + weights.T

    def objective(x):
        part, weights = parts(x)
        eta, pullback = part.linearised(right)
        eta = eta + right @ weights
        rest = right - expit(eta)
        product = right.T @ rest
        by_pairs = (product + product.T)[pairs]
        gradient = np.concatenate([pullback(rest).ravel(), by_pairs])
        return -log_chances(eta, right).sum() / size, -gradient / size

    x = np.concatenate([ability.items.ravel(), start[pairs]])
    bounds = [(-FAR, FAR)] * len(x)
    options = {"ftol": STOP}
    search = minimize(objective, x, jac=True, bounds=bounds, options=options)
    return parts(search.x)[0]


def held_out(
    right: np.ndarray,
    network: Callable[[np.ndarray, Ability], np.ndarray],
    folds: int,
    seed: int,
) -> pa.Table:
    """Compares a network, a 2PL and independent items by subjects left out.

    Args:
        right: `[subjects, items]` of 0 and 1.
        network: From a mask of the training subjects and a 2PL of them to logits of
            each response given the others, `[subjects, items]`.
        folds: Parts of the subjects, each of which is left out once.
        seed: Seed of the parts.

    Returns:
        A row for each model: `model`, `log_score` (mean log chance of a response given
        the subject's others, in nats), `log_score_se` over subjects, `difference` from
        the 2PL and `difference_se`, paired over subjects.

    Raises:
        ValueError: If there are fewer subjects than folds, or an item does not vary
            without one of the folds.
    """
    import pyarrow as pa

    size = len(right)
    if not 2 <= folds <= size:
        raise ValueError(f"{folds} folds need at least 2 and at most {size:,} subjects")
    fold = np.random.default_rng(seed).permutation(np.arange(size) % folds)
    model = TwoParameterModel(right)
    scores = {name: np.zeros(size) for name in ("network", "2pl", "independent")}
    for number in watched(range(folds), "fold"):
        train, test = fold != number, fold == number
        if np.any(np.ptp(right[train], axis=0) == 0):
            raise ValueError(
                f"an item does not vary without fold {number + 1} of {folds}: leave out"
                " items that are nearly always right or wrong (top=10 chooses others)"
            )
        share = right[train].sum(axis=0) + PRIOR_RESPONSES
        share = share / (train.sum() + 2 * PRIOR_RESPONSES)
        ability = model.fit(train)
        logits = network(train, ability), ability.logits(right), logit(share)
        for name, value in zip(scores, logits, strict=True):
            scores[name][test] = log_chances(value, right).mean(axis=1)[test]
    table = {"model": list(scores)}
    for column, base in (("log_score", 0.0), ("difference", scores["2pl"])):
        values = np.stack(list(scores.values())) - base
        table[column] = values.mean(axis=1)
        table[f"{column}_se"] = values.std(axis=1, ddof=1) / np.sqrt(size)
    return pa.table(table)
