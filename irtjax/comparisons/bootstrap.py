r"""Bootstrap of clusters of comparisons by weights.

In each replicate the clusters have the weights of Rubin's Bayesian bootstrap (1981),
independent exponentials: no cluster vanishes, so that replicates have estimates where
the data have. Comparisons are added up by pair with these weights, and

    theta <- theta + H^-1 g_b(theta)

with the gradient g_b of the replicate and the information H of the data is repeated,
for all replicates at once; the few for which this does not converge have Newton's
method. With C clusters the covariance is multiplied by (C + 1) / (C - 1), so that of
linear estimates is the sandwich of `comparisons.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array, csr_array

from irtjax.comparisons.errors import inverse_information
from irtjax.comparisons.families import LINKS, PairFamily
from irtjax.comparisons.newton import PairCounts, PairFit, flat, maximise
from irtjax.comparisons.problem import PairProblem
from irtjax.comparisons.rows import PairRows

#: Steps of all replicates together, and the square of one, in standard errors for each
#: parameter, that is small beside the error of 1,000 replicates (2 %).
MOST_STEPS, TOLERANCE = 10, 1e-4
#: Numbers of an array of replicates that are computed together: few enough for caches.
TOGETHER = 2**21


def bootstrap_covariance(
    problem: PairProblem,
    fit: PairFit,
    precision: np.ndarray,
    clusters: Sequence[np.ndarray] = (),
    *,
    replicates: int,
    seed: int = 0,
) -> np.ndarray:
    """Covariance of all parameters over replicates.

    Args:
        problem: The comparisons.
        fit: Their estimates.
        precision: `[parameters]` of the priors.
        clusters: None, where each comparison is alone, or one code `[rows]`.
        replicates: Their number.
        seed: Of the weights.
    """
    family, rows = problem.family, problem.rows
    sums, shape, number = _units(problem, clusters)
    if number < 2:
        raise ValueError("errors by cluster require two clusters or more")
    generator = np.random.default_rng(seed)
    rounds = -(-replicates * sums.shape[0] // TOGETHER)  # pyright: ignore
    size = -(-replicates // rounds)
    blocks, inverse = [], inverse_information(fit)
    for _ in range(rounds):
        if shape is None:
            draw = generator.standard_exponential((int(number), size), np.float32)
        else:
            draw = generator.standard_gamma(shape[:, None], (len(shape), size))
        outcomes = sums @ draw.astype(np.float32)
        # The mean weight is 1, so that H is that of the data.
        outcomes *= np.float32(sums.sum() if shape is None else shape.sum()) / (
            outcomes.sum(axis=0)
        )
        outcomes = outcomes.reshape(len(rows.pair), -1, size)
        blocks.append(_replicates(family, fit, rows, outcomes, inverse, precision))
    values = np.concatenate(blocks, axis=1)[:, :replicates]
    return np.cov(values) * (number + 1) / (number - 1)


def _units(problem: PairProblem, clusters: Sequence[np.ndarray]):
    """Counts of outcomes by unit, shapes of the units' weights, and their number.

    The first is `[rows x outcomes, units]`. n comparisons alike, each alone, have a sum
    of weights with the gamma distribution of shape n.
    """
    family, rows = problem.family, problem.rows
    at, outcome = np.nonzero(problem.outcomes)
    row, amount = rows.place[at], problem.outcomes[at, outcome]
    outcome = np.where(rows.turned[at] & (outcome < 2), 1 - outcome, outcome)
    unit = clusters[0][at] if clusters else None
    shape, width = None, 3 if family.num_shapes else 2
    if unit is None:
        _, unit = np.unique(3 * row + outcome, return_inverse=True)
        shape, amount = (
            np.bincount(unit, amount),
            amount / np.bincount(unit, amount)[unit],
        )
    assert unit is not None
    size = int(unit.max()) + 1
    targets = [(outcome == k, k, 1.0) for k in range(width)]
    if family.ties == "half":
        targets += [(outcome == 2, k, 0.5) for k in range(2)]
    places = np.concatenate([row[x] * width + k for x, k, _ in targets])
    units = np.concatenate([unit[x] for x, _, _ in targets])
    weights = np.concatenate([amount[x] * part for x, _, part in targets])
    sums = csr_array(
        coo_array((weights, (places, units)), (len(rows.pair) * width, size)),
        dtype=np.float32,
    )
    return sums, shape, size if shape is None else float(shape.sum())


def _replicates(family, fit: PairFit, rows: PairRows, outcomes, inverse, precision):
    """Estimates `[parameters, replicates]` from `[rows, outcomes, replicates]`."""
    start, num = np.asarray(flat(fit.parameters)), len(fit.parameters.ability)
    count, _, replicates = outcomes.shape
    pairs = [side[rows.pair].astype(np.int32) for side in (rows.first, rows.second)]
    signs = np.repeat(np.array([1, -1], np.float32), count)
    index = np.tile(np.arange(count), 2)
    design = csr_array(coo_array((signs, (index, np.concatenate(pairs))), (count, num)))
    features = np.asarray(rows.features, np.float32)
    end = num + features.shape[1]
    # One column for all, before the first step.
    values = start[:, None]
    limit, before = TOLERANCE * len(start), np.full(replicates, 1e-9)
    converged = np.zeros(replicates, bool)
    for _ in range(MOST_STEPS):
        part = values.astype(np.float32)
        gap = design @ part[:num] + features @ part[num:end]
        by_gap, by_shape = map(np.asarray, _slopes(family, gap, part[end:], outcomes))
        gradient = np.concatenate([design.T @ by_gap, features.T @ by_gap, by_shape])
        gradient = gradient - precision[:, None] * values
        move = inverse @ gradient
        values = values + move
        decrement = np.sum(move * gradient, axis=0)
        # What is left shrinks by the ratio of the last two steps each time.
        converged = decrement * np.minimum(decrement / before, 1) < limit
        before = decrement
        if converged.all():
            return values
    slow = np.flatnonzero(~converged)
    wide = np.zeros((count, 3, len(slow)))
    wide[:, : outcomes.shape[1]] = outcomes[:, :, slow]
    sides = (*pairs, wide[:, :, 0], rows.features)
    counts = PairCounts(*map(jnp.asarray, sides))
    exact = _exactly(family, counts, fit.parameters, wide, precision)
    values[:, slow] = np.asarray(exact).T
    return values


@partial(jax.jit, static_argnums=0)
def _slopes(family: PairFamily, gaps, shapes, outcomes):
    """Derivatives in differences `[rows, replicates]`, and in shapes, of all rows."""
    shapes = jnp.broadcast_to(shapes, (len(shapes), outcomes.shape[2]))
    if not family.num_shapes:
        # Written out, this is one pass over the arrays: 20 times as fast. With the
        # logistic G, n_1 G(-d) - n_2 G(d) = n_1 - (n_1 + n_2) G(d).
        if family.link == "bradley_terry":
            total = outcomes[:, 0] + outcomes[:, 1]
            return outcomes[:, 0] - total * jax.nn.sigmoid(gaps), shapes
        link = jax.vmap(jax.vmap(jax.grad(LINKS[family.link])))
        return outcomes[:, 0] * link(gaps) - outcomes[:, 1] * link(-gaps), shapes

    gaps = jnp.broadcast_to(gaps, (len(gaps), outcomes.shape[2]))

    def one(gap, shape, n):
        logs = family.log_chances(gap, shape)
        return jnp.sum(jnp.where(n > 0, n * logs, 0.0))

    slope = jax.vmap(jax.grad(one, (0, 1)), (0, None, 0))
    by_gap, by_shape = jax.vmap(slope, (1, 1, 2), (1, 1))(gaps, shapes, outcomes)
    return by_gap, jnp.sum(by_shape, axis=0).T


@partial(jax.jit, static_argnums=0)
def _exactly(family: PairFamily, rows, start, outcomes, precision):
    """Estimates `[replicates, parameters]` by Newton's method."""

    def one(n):
        pairs = PairCounts(rows.first, rows.second, n, rows.features)
        return flat(maximise(family, pairs, start, precision).parameters)

    return jax.lax.map(one, jnp.moveaxis(outcomes, 2, 0))
