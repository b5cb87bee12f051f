r"""Several responses of one subject to one item.

A model that samples its answers responds differently each time, and its chances on an
item differ from the expected p(theta) by more than ability explains. With rho the
correlation of two responses of a subject to an item, given ability, the chances are
Beta(p (1 - rho) / rho, (1 - p) (1 - rho) / rho), and counts of right responses
are beta-binomial. One at a time, after k right ones of n,

    P(right | theta, k, n) = (p + k r) / (1 + n r),        r = rho / (1 - rho),

(a Polya urn). With rho = 0 responses are independent; near 1 each repeats the first.
The Fisher information of the next response, given those before, is that of the first
one times

    p (1 - p) / ((p + k r) (1 - p + (n - k) r)),

so that R responses count for at least R / (1 + (R - 1) rho), the number of independent
ones that a sum of theirs is worth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class Repeats(NamedTuple):
    """The responses so far to each item; what a test with repeats stores.

    Attributes:
        times: Responses to each item.
        right: Right ones among them.
        most: Responses to each item, at most.
        odds: r, the correlation of responses over 1 minus it.
    """

    times: Int[Array, " items"]
    right: Int[Array, " items"]
    most: Int[Array, " items"]
    odds: Float[Array, ""]

    @classmethod
    def none(cls, design: Any, num_items: int, dtype: Any) -> Repeats:
        """No responses yet."""
        zeros = jnp.zeros(num_items, jnp.int32)
        icc = design.icc.astype(dtype)
        most = jnp.full(num_items, design.repeats, jnp.int32)
        return cls(zeros, zeros, most, icc / (1 - icc))

    def added(self, item: Array, response: Array) -> Repeats:
        """With one more response."""
        right = self.right.at[item].add(response.astype(jnp.int32))
        return self._replace(times=self.times.at[item].add(1), right=right)

    @property
    def left(self) -> Bool[Array, " items"]:
        """Whether each item may be given once more."""
        return self.times < self.most

    def counts(self, response: Array | int) -> Int[Array, " items"]:
        """Responses to each item that were equal to this one."""
        return jnp.where(jnp.asarray(response) > 0, self.right, self.times - self.right)


def next_log_prob(log_prob: Array, count: Array, times: Array, odds: Array) -> Array:
    """Log-probability of a response that was seen `count` times among `times`.

    Args:
        log_prob: Log-probability of the first response to an item.
        count: Earlier responses to it that were equal.
        times: All earlier responses to it.
        odds: r, the correlation over 1 minus it.

    >>> half, third = jnp.log(0.5), jnp.array(0.5)
    >>> round(float(jnp.exp(next_log_prob(half, jnp.array(1), jnp.array(1), third))), 4)
    0.6667
    """
    excess = count.astype(log_prob.dtype) * odds
    # Without such a response nothing is added, of which a logarithm has no slope.
    seen = excess > 0
    total = jnp.logaddexp(log_prob, jnp.log(jnp.where(seen, excess, 1)))
    numerator = jnp.where(seen, total, log_prob)
    return numerator - jnp.log1p(times.astype(log_prob.dtype) * odds)


def logit_slope(chance: Array, memory: Repeats) -> Array:
    """Derivative of the log-likelihood of the responses so far in the logit of p.

    Args:
        chance: `[items, nodes]` p, of a first right response.
        memory: The responses so far.

    Returns:
        `[items, nodes]`, (1 - p) sum_{i < k} p / (p + i r) less
        p sum_{i < n - k} (1 - p) / (1 - p + i r).

    >>> memory = Repeats(*(jnp.array([x]) for x in (3, 2, 3)), jnp.array(0.0))
    >>> round(float(logit_slope(jnp.array([[0.25]]), memory)[0, 0]), 6)  # k - n p
    1.25
    """
    right = memory.right[:, None]
    wrong = memory.times[:, None] - right

    def add(i, total):
        added = i * memory.odds
        up = (1 - chance) * _part(chance, added)
        down = chance * _part(1 - chance, added)
        return total + jnp.where(i < right, up, 0) - jnp.where(i < wrong, down, 0)

    most = jnp.max(jnp.maximum(right, wrong))
    return lax.fori_loop(0, most, add, jnp.zeros_like(chance))


def _part(chance, added):
    """Share of `chance` in `chance + added`; 1 where both are 0."""
    whole = chance + added
    return jnp.where(whole > 0, chance / jnp.where(whole > 0, whole, 1), 1)


def next_information(chance: Array, memory: Repeats) -> Array:
    """Information of the next response to each item over that of the first one.

    Args:
        chance: `[items]` p, of a first right response.
        memory: The responses so far.
    """
    dtype = chance.dtype
    right = memory.right.astype(dtype) * memory.odds
    wrong = (memory.times - memory.right).astype(dtype) * memory.odds
    return _share(chance, right, wrong)


def _share(chance, right, wrong):
    """Shrinkage p (1 - p) / ((p + r) (1 - p + w)); 1 where it is 0 / 0."""
    below = (chance + right) * (1 - chance + wrong)
    positive = below > 0
    return jnp.where(positive, chance * (1 - chance) / jnp.where(positive, below, 1), 1)


def expected_shares(chance: Array, repeats: int, icc: Array) -> Array:
    """Information of the first, second, ... response over that of the first.

    Args:
        chance: `[...]` p, of a first right response.
        repeats: R, the number of responses.
        icc: rho.

    Returns:
        `[..., R]` means over the responses before; their sum is the information of R
        responses, of which R / (1 + (R - 1) rho) is a lower bound.

    >>> shares = expected_shares(jnp.array(0.5), 3, jnp.array(0.0))
    >>> shares.tolist()
    [1.0, 1.0, 1.0]
    """
    odds = jnp.asarray(icc, chance.dtype) / (1 - jnp.asarray(icc, chance.dtype))
    shares, law = [], [jnp.ones_like(chance)]  # P(k right) of n responses
    for n in range(repeats):
        parts = [_share(chance, k * odds, (n - k) * odds) for k in range(n + 1)]
        shares.append(sum(x * share for x, share in zip(law, parts, strict=True)))
        up = [x * (chance + k * odds) / (1 + n * odds) for k, x in enumerate(law)]
        down = [x - y for x, y in zip(law, up, strict=True)]
        zero = jnp.zeros_like(chance)
        law = [x + y for x, y in zip([*down, zero], [zero, *up], strict=True)]
    return jnp.stack(shares, axis=-1)


def before_each(
    items: Array, responses: Array, given: Array
) -> tuple[Int[Array, " num_items"], Int[Array, " num_items"]]:
    """Of each response of a test: equal ones before it to that item, and all of them.

    >>> items, responses = jnp.array([4, 4, 2, 4]), jnp.array([1, 0, 1, 1])
    >>> [x.tolist() for x in before_each(items, responses, jnp.ones(4, bool))]
    [[0, 0, 0, 1], [0, 1, 0, 2]]
    """
    size = items.shape[0]
    earlier = jnp.tril(jnp.ones((size, size), bool), -1)
    same = (items[:, None] == items) & earlier & given
    equal = same & (responses[:, None] == responses)
    return jnp.sum(equal, axis=1), jnp.sum(same, axis=1)


class TrialCounts(NamedTuple):
    """Recorded responses as numbers of right ones, of some trials each.

    Attributes:
        right: `[subjects, items]`.
        trials: `[subjects, items]`.
    """

    right: Int[Array, "subjects items"]
    trials: Int[Array, "subjects items"]

    def most(self, subject: Array, repeats: int) -> Int[Array, " items"]:
        """Responses that each item can have."""
        return jnp.minimum(self.trials[subject], repeats).astype(jnp.int32)

    def drawn(self, subject: Array, item: Array, key: Array, memory: Any) -> Array:
        """One of the responses that are left, in random order."""
        right, trials = self.right[subject, item], self.trials[subject, item]
        if isinstance(memory, Repeats):
            right, trials = right - memory.right[item], trials - memory.times[item]
        place = jax.random.randint(key, (), 0, jnp.maximum(trials, 1))
        return (place < right).astype(jnp.int32)


def best_sum(
    information: Float[Array, " items"],
    shares: Float[Array, "items repeats"],
    size: int,
) -> Array:
    """Most information of a test of `size` responses, several to an item."""
    every = (information[:, None] * shares).reshape(-1)
    return jnp.sum(lax.top_k(every, min(size, every.shape[0]))[0])
