r"""How much each item would add to what is known of several abilities.

The abilities given the responses so far are N(theta, C), C^-1 = P. A response of item j
adds w_j a_j a_j' to P, w_j the information of the response about t = a_j'theta, so that
its effects have closed forms of rank one, with q_j = a_j'C a_j:

    log det(P + w a a') - log det P   =  log(1 + w q)                       D-optimal
    trace C - trace (P + w a a')^-1   =  w a'C C a / (1 + w q)              A-optimal
    c'C c - c'(P + w a a')^-1 c       =  w (c'C a)^2 / (1 + w q)            c-optimal

(Segall 1996; Mulder and van der Linden 2009; Silvey 1980). With one ability all
three order the items as their information w a^2 does.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


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
