r"""Elementary symmetric functions, and probabilities given a sum of responses.

With eps_j = exp(-b_j), gamma_r is the sum over sets of r items of the products of their
eps, by one recursion over items in logarithms: gamma_r += eps_j gamma_{r-1}. Given the
sum r, item j is right with probability

    pi_rj = eps_j gamma_{r-1}^{(j)} / gamma_r = u_rj (1 - pi_{r-1,j}),
    u_rj = eps_j gamma_{r-1} / gamma_r,

which is stable upwards where u_rj <= 1 and downwards, from pi_Jj = 1, where u_rj >= 1;
u rises with r, so that every pi is reached by a stable side. For two items

    P(both | r) = (eps_k pi_rj - eps_j pi_rk) / (eps_k - eps_j),

and the values of items of equal eps follow from sum_{k != j} P(j and k | r) = (r - 1)
pi_rj. So second derivatives of sum_r n_r log gamma_r cost one matrix product.
"""

from __future__ import annotations

import numpy as np

#: Relative difference of two eps up to which they count as equal: the cancellation
#: leaves errors of 1e-10 in the second derivatives.
EQUAL = 1e-6


def log_symmetric(difficulty: np.ndarray) -> np.ndarray:
    """`[items + 1]` logarithms of gamma_0, ..., gamma_J.

    >>> log_symmetric(np.log([1.0, 0.5, 0.25])).round(6).tolist() == np.log(
    ...     [1, 7, 14, 8]).round(6).tolist()
    True
    """
    out = np.full(len(difficulty) + 1, -np.inf)
    out[0] = 0.0
    for k, value in enumerate(difficulty):
        out[1 : k + 2] = np.logaddexp(out[1 : k + 2], out[: k + 1] - value)
    return out


def chances_given_sum(
    difficulty: np.ndarray, log_gamma: np.ndarray, sums: np.ndarray
) -> np.ndarray:
    """`[sums, items]` pi, of sums from 1 to J - 1 in rising order."""
    count = len(difficulty)
    # Logarithms of u, by sums 1 to J.
    steps = log_gamma[:-1] - log_gamma[1:]
    up, down = np.zeros(count), np.ones(count)
    below, above = {}, {}
    wanted = set(sums.tolist())
    for r in range(1, int(sums.max()) + 1):
        # Where u > 1 the value is not used: it is kept within [0, 1].
        u = np.exp(np.minimum(steps[r - 1] - difficulty, 0.0))
        up = u * (1 - up)
        if r in wanted:
            below[r] = up
    for r in range(count - 1, int(sums.min()) - 1, -1):
        u = np.exp(np.minimum(difficulty - steps[r], 0.0))
        down = 1 - u * down
        if r in wanted:
            above[r] = down
    out = np.empty((len(sums), count))
    for place, r in enumerate(sums.tolist()):
        stable_below = steps[r - 1] <= difficulty
        out[place] = np.where(stable_below, below[r], above[r])
    return out


def second_derivatives(
    difficulty: np.ndarray, chances: np.ndarray, sums: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """`[items, items]` sum over sums of counts times the covariance of the responses.

    That is the second derivative of sum_r n_r log gamma_r in the difficulties.
    """
    total = counts @ chances
    eps = np.exp(-(difficulty - difficulty.mean()))
    gap = eps[None, :] - eps[:, None]
    scale = np.maximum(eps[None, :], eps[:, None])
    equal = np.abs(gap) <= EQUAL * scale
    safe = np.where(equal, 1.0, gap)
    joint = (eps[None, :] * total[:, None] - eps[:, None] * total[None, :]) / safe
    joint = np.where(equal, 0.0, joint)
    np.fill_diagonal(equal, False)
    others = equal.sum(axis=1)
    left = (counts * (sums - 1)) @ chances - joint.sum(axis=1)
    share = np.where(others > 0, left / np.maximum(others, 1), 0.0)
    joint = np.where(equal, (share[:, None] + share[None, :]) / 2, joint)
    np.fill_diagonal(joint, total)
    return joint - (chances * counts[:, None]).T @ chances
