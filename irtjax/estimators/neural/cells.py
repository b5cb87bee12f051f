"""Log-likelihoods of single cells of binary models, and sums over chosen cells."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from irtjax.data.responses import Responses
from irtjax.likelihood.problem import Problem

#: Cells whose probabilities are computed at a time.
BLOCK = 4_000_000


def seen_cells(data: Responses) -> Bool[Array, "subjects items"]:
    """Which cells were observed."""
    seen = data.observed
    return jnp.ones(data.values.shape, bool) if seen is None else seen


def cell_log_likelihoods(problem: Problem, theta, coordinates, subject, item) -> Array:
    """Weighted log-likelihood of cells, `theta` and `coordinates` cell by cell."""
    model, data = problem.model, problem.data
    base, rest = jax.vmap(model.family.natural)(model.constrain(coordinates), theta)
    values = data.values[subject, item].astype(theta.dtype)
    if data.trials is not None:
        base = base * data.trials[subject, item].astype(theta.dtype)
    log_lik = base + values * rest
    for weight, at in ((data.subject_weight, subject), (data.item_weight, item)):
        if weight is not None:
            log_lik = log_lik * weight[at].astype(theta.dtype)
    return log_lik


def summed(problem: Problem, theta, coordinates, judged: Array) -> tuple[Array, ...]:
    """Log-likelihood, true, predicted and actual ones, and cells of each subject."""
    model, data = problem.model, problem.data
    items = model.constrain(coordinates)
    exposure = judged if data.trials is None else jnp.where(judged, data.trials, 0)

    def one(row):
        theta, values, exposure = row
        base, logit = model.family.table(items, theta[None])
        counts = exposure.astype(theta.dtype)
        values = values.astype(theta.dtype) * (counts > 0)
        terms = base[0] * counts + values * logit[0]
        if data.item_weight is not None:
            terms = terms * data.item_weight.astype(theta.dtype)
        hits, calls = (jnp.where(logit[0] > 0, x, 0) for x in (values, counts))
        return tuple(map(jnp.sum, (terms, hits, calls, values, counts)))

    size = max(1, min(data.num_subjects, BLOCK // max(data.num_items, 1)))
    return lax.map(one, (theta, data.values, exposure), batch_size=size)
