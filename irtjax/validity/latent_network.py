r"""A network and a latent ability by one measure: responses given the others.

A two-parameter model implies logits of a response given the subject's other responses,
as an Ising model does. With posterior weights W_q of abilities at nodes given all
responses, p(y_j | others) = 1 / sum_q W_q / p_q(y_j), so that

    logit P(y_j = 1 | others) = log sum_q W_q e^{eta_jq}     where y_j = 0,
                              = -log sum_q W_q e^{-eta_jq}   where y_j = 1,

eta_jq the logits of item j at the nodes. They are the offset of a residual network, of
what the ability leaves unexplained, and of new subjects they are compared with the
logits of a network: mean log p(y_ij | y_i, others), with errors over subjects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit, logsumexp

from irtjax.data.table import ResponseTable
from irtjax.inference.expected import response_table
from irtjax.models.catalogue import MODELS
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.prediction.held_out import OnNodes
from irtjax.validity.ising import log_chances

if TYPE_CHECKING:
    import pyarrow as pa

#: Chances nearer to 0 or 1 are moved here.
NEAREST = 1e-12
#: Right and wrong responses that the shares of independent items have in addition.
PRIOR_RESPONSES = 0.5
#: From a mask of training subjects `[subjects]` and logits of a 2PL of them to those
#: of a network, `[subjects, items]`.
LogitsOf = Callable[[np.ndarray, np.ndarray], np.ndarray]


class TwoParameterModel:
    """Logits of each response given the others, by a 2PL of some of the subjects.

    Attributes:
        log_likelihood: Marginal, of the last fit.
    """

    def __init__(self, right: np.ndarray) -> None:
        table = ResponseTable.from_arrays(right.astype(np.int8))
        self._right, self._model = right, OnNodes(table, MODELS["2pl"]())
        self.log_likelihood = np.nan

    @full_precision
    def logits(self, train: np.ndarray) -> np.ndarray:
        """`[subjects, items]` logits of all subjects by a fit of the mask `train`."""
        model = self._model
        mask = np.broadcast_to(train[:, None], self._right.shape)
        fit = model.fit(model.data(mask))
        self.log_likelihood = float(fit.log_lik)
        items, population = fit.parameters[:2]
        assert model.grid is not None
        theta = population.mean + population.sd * model.grid.nodes
        chances = response_table(model.model.family, items, theta)
        return conditional_logits(
            self._right, np.asarray(chances, float), np.asarray(model.grid.log_weights)
        )


def conditional_logits(
    right: np.ndarray, chances: np.ndarray, log_weights: np.ndarray
) -> np.ndarray:
    """Logits of right responses given the subject's other responses.

    Args:
        right: `[subjects, items]` of 0 and 1.
        chances: `[nodes, items]` of a right response.
        log_weights: `[nodes]` logarithms of the weights of the nodes in the population.

    >>> chances = np.array([[0.2], [0.6]])
    >>> one = conditional_logits(np.ones((1, 1)), chances, np.log([0.5, 0.5]))
    >>> round(float(np.exp(one[0, 0])), 3)  # Odds of .4, the mean chance.
    0.667
    """
    eta = logit(np.clip(chances, NEAREST, 1 - NEAREST))
    joint = right @ eta.T - np.logaddexp(0, eta).sum(axis=1) + log_weights
    posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    return np.where(
        right > 0, -np.log(posterior @ np.exp(-eta)), np.log(posterior @ np.exp(eta))
    )


def held_out(right: np.ndarray, network: LogitsOf, folds: int, seed: int) -> pa.Table:
    """Compares a network, a 2PL and independent items by subjects left out.

    Args:
        right: `[subjects, items]` of 0 and 1.
        network: Logits of each response given the others by some of the subjects.
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
    ability = TwoParameterModel(right)
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
        alone = np.broadcast_to(logit(share), right.shape)
        latent = ability.logits(train)
        logits = network(train, latent), latent, alone
        for name, value in zip(scores, logits, strict=True):
            scores[name][test] = log_chances(value, right).mean(axis=1)[test]
    error = lambda x: float(np.std(x, ddof=1) / np.sqrt(size))
    rows = [
        {
            "model": name,
            "log_score": float(score.mean()),
            "log_score_se": error(score),
            "difference": float((score - scores["2pl"]).mean()),
            "difference_se": error(score - scores["2pl"]),
        }
        for name, score in scores.items()
    ]
    return pa.Table.from_pylist(rows)
