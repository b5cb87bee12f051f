r"""How much each item would add to what is known of a subject.

**Several abilities.** Given the responses so far they are N(theta, C), C^-1 = P. A
response of item j adds w_j a_j a_j' to P, w_j its information about t = a_j'theta. The
effects have closed forms of rank one, with q_j = a_j'C a_j:

    log det(P + w a a') - log det P   =  log(1 + w q)                       D-optimal
    trace C - trace (P + w a a')^-1   =  w a'C C a / (1 + w q)              A-optimal
    c'C c - c'(P + w a a')^-1 c       =  w (c'C a)^2 / (1 + w q)            c-optimal

(Segall 1996; Mulder and van der Linden 2009; Silvey 1980). With one ability all
three order the items as their information w a^2 does.

**Mutual information** of a response and the abilities is the expected decrease of the
entropy of the posterior (Weissman 2007), p_c the probabilities of the categories,

    H(E p) - E H(p),        H(p) = -sum_c p_c log p_c,

over the posterior. **KL** (Chang and Ying 1996) integrates the Kullback-Leibler
information of a response between the estimate and abilities around it,

    int_{|u - theta| < delta} sum_c p_c(theta) log(p_c(theta) / p_c(u)) du,

delta = 3 s / sqrt(n + 1) after n items, s the standard deviation of the population. Of
several abilities the integral is over (u - theta)' Sigma^-1 (u - theta) < delta^2 with
s = 1, Sigma the covariance of the population, which no rotation changes (Wang, Chang
and Boughton 2011 take a cube), and its mean is taken.

Both look at more than one ability, and so differ from information where little is
known: early in a test.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

#: Half the width of KL's interval before the first item, in standard deviations.
KL_REACH = 3.0


def d_optimal(
    weight: Float[Array, " items"], spread: Float[Array, " items"]
) -> Float[Array, " items"]:
    """How much each item adds to the log determinant of the precision.

    Args:
        weight: w_j, information about the product t.
        spread: q_j = a_j'C a_j, the variance of the product.

    >>> float(d_optimal(jnp.array([0.25]), jnp.array([4.0]))[0]) == float(jnp.log(2.0))
    True
    """
    return jnp.log1p(weight * spread)


def a_optimal(
    weight: Float[Array, " items"],
    spread: Float[Array, " items"],
    square: Float[Array, " items"],
) -> Float[Array, " items"]:
    """How much each item reduces the sum of the variances of the abilities.

    Args:
        weight: w_j, information about the product t.
        spread: q_j = a_j'C a_j, the variance of the product.
        square: a_j'C C a_j.

    >>> float(a_optimal(jnp.array([0.25]), jnp.array([4.0]), jnp.array([4.0]))[0])
    0.5
    """
    return weight * square / (1 + weight * spread)


def c_optimal(
    weight: Float[Array, " items"],
    spread: Float[Array, " items"],
    along: Float[Array, " items"],
) -> Float[Array, " items"]:
    """How much each item reduces the variance of c'theta.

    For a function of the abilities c is its gradient (the delta method): for the
    expected score on all items the mean of m'_j a_j, m_j the expected response.

    Args:
        weight: w_j, information about the product t.
        spread: q_j = a_j'C a_j, the variance of the product.
        along: c'C a_j, its covariance with c'theta.

    >>> float(c_optimal(jnp.array([0.25]), jnp.array([4.0]), jnp.array([2.0]))[0])
    0.5
    """
    return weight * along**2 / (1 + weight * spread)


def entropy(probability: Float[Array, "*batch categories"]) -> Float[Array, "*batch"]:
    """Entropy over the last axis, in nats; a probability of 0 adds nothing.

    >>> float(entropy(jnp.array([1.0, 0.0])))
    0.0
    """
    positive = probability > 0
    logs = jnp.log(jnp.where(positive, probability, 1))
    return -jnp.sum(probability * logs, axis=-1)


def mutual_information(
    log_probs: Float[Array, "items categories nodes"], weight: Float[Array, " nodes"]
) -> Float[Array, " items"]:
    """Expected decrease of the entropy of a posterior on nodes by each item.

    Args:
        log_probs: Log-probability of each category of each item at each node.
        weight: The posterior, summing to one.

    >>> at = jnp.log(jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]))
    >>> [round(float(x), 4) for x in mutual_information(at, jnp.array([0.5, 0.5]))]
    [0.6931, 0.0]
    """
    probability = jnp.exp(log_probs)
    # Elementwise, so that one pass serves all tests; 0 times minus infinity is 0.
    parts = jnp.where(probability > 0, probability * log_probs, 0)
    conditional = -jnp.sum(parts, axis=1) @ weight
    return entropy(probability @ weight) - conditional


def interval_weights(
    nodes: Float[Array, " nodes"], ability: Array, reach: Array
) -> Float[Array, " nodes"]:
    """Weights of nodes for integrals of functions that are linear between them.

    The distance h of nodes makes integrals of KL too large by the share
    h^2 / (2 reach^2), the same for all items to that order.

    Args:
        nodes: Equally spaced abilities.
        ability: The centre of the interval.
        reach: Half its width; it is cut off at the outer nodes.
    """
    step = nodes[1] - nodes[0]

    def below(end):
        """Integrals of the hat functions of the nodes up to an ability."""
        s = jnp.clip((jnp.clip(end, nodes[0], nodes[-1]) - nodes) / step, -1, 1)
        return step * (0.5 + s - 0.5 * jnp.sign(s) * s**2)

    return below(ability + reach) - below(ability - reach)


def kullback_leibler(
    log_probs: Float[Array, "items categories nodes"],
    weight: Float[Array, " nodes"],
    here: Float[Array, "items categories"],
) -> Float[Array, " items"]:
    """KL information of each item, integrated over abilities around the estimate.

    Args:
        log_probs: Log-probability of each category of each item at each node.
        weight: Weights of the nodes.
        here: Log-probabilities at the estimate.
    """
    chance = jnp.exp(here)
    # A category that cannot be here adds nothing, whatever it is elsewhere.
    usable = jnp.maximum(log_probs, jnp.finfo(log_probs.dtype).min / 1e3)
    gap = jnp.where(chance > 0, here * jnp.sum(weight) - usable @ weight, 0)
    return jnp.sum(chance * gap, axis=-1)
