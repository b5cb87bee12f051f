"""Factor loadings: standardised, their structure, and the alignment of solutions."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

#: Variance of the error of the latent response, by link.
LINK_VARIANCE = {"logit": math.pi**2 / 3, "probit": 1.0}
#: Dimensions up to which all permutations are tried.
_ENUMERATED = 6


def standardised_loadings(
    slopes: Float[Array, "items dims"],
    covariance: Float[Array, "dims dims"],
    link: str = "logit",
) -> Float[Array, "items dims"]:
    """Loadings of the standardised latent response on standardised factors.

    l_jk = a_jk sd_k / sqrt(a_j' Sigma a_j + v) with v = pi^2 / 3 for the logit link and
    1 for probit (Takane and de Leeuw 1987). With Sigma = I they can be rotated.

    Args:
        slopes: a, slopes of the items.
        covariance: Sigma, of the abilities.
        link: "logit" or "probit".

    Returns:
        The standardised loadings.

    Raises:
        ValueError: If the link is neither.

    Example:
        >>> import jax.numpy as jnp
        >>> standardised_loadings(jnp.array([[1.702]]), jnp.eye(1)).round(4).tolist()
        [[0.684...]]
    """
    if link not in LINK_VARIANCE:
        raise ValueError(f"link {link!r} is not one of {', '.join(LINK_VARIANCE)}")
    explained = jnp.einsum("jk,kl,jl->j", slopes, covariance, slopes)
    sd = jnp.sqrt(jnp.diagonal(covariance))
    return slopes * sd / jnp.sqrt(explained + LINK_VARIANCE[link])[:, None]


def structure_matrix(
    pattern: Float[Array, "items dims"], correlations: Float[Array, "dims dims"]
) -> Float[Array, "items dims"]:
    """Correlations of items with factors, S = L Phi, from standardised loadings.

    Example:
        >>> import jax.numpy as jnp
        >>> phi = jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> structure_matrix(jnp.array([[0.8, 0.0]]), phi).round(2).tolist()
        [[0.80, 0.40]]
    """
    return pattern @ correlations


def communality(
    pattern: Float[Array, "items dims"], correlations: Float[Array, "dims dims"]
) -> Float[Array, " items"]:
    """Share of variance that the factors explain: diag(L Phi L'), below 1.

    Example:
        >>> import jax.numpy as jnp
        >>> communality(jnp.array([[0.8, 0.1]]), jnp.eye(2)).round(2).tolist()
        [0.65]
    """
    return jnp.sum(pattern * structure_matrix(pattern, correlations), 1)


def congruence(
    first: Float[Array, "items dims"], second: Float[Array, "items others"]
) -> Float[Array, "dims others"]:
    """Tucker's congruence of columns, a'b / sqrt(a'a b'b); 0 for a column of zeros.

    Example:
        >>> import jax.numpy as jnp
        >>> congruence(jnp.array([[3.0], [4.0]]), jnp.array([[1.0], [0.0]])).tolist()
        [[0.6]]
    """
    length = jnp.sum(first**2, 0)[:, None] * jnp.sum(second**2, 0)
    return first.T @ second / jnp.sqrt(jnp.where(length > 0, length, 1))


class Alignment(NamedTuple):
    """Loadings whose columns correspond to those of a reference.

    Attributes:
        loadings: The loadings given, times the transform.
        transform: R, a signed permutation or (Procrustes) an orthogonal matrix.
            Correlations of factors become R' Phi R, abilities theta R.
        congruence: Tucker's congruence of each column with the reference.
    """

    loadings: Float[Array, "items dims"]
    transform: Float[Array, "dims dims"]
    congruence: Float[Array, " dims"]


@partial(jax.jit, static_argnames="method")
def align(
    reference: Float[Array, "items dims"],
    loadings: Float[Array, "items dims"],
    method: str = "columns",
) -> Alignment:
    """Matches the columns of loadings to those of a reference.

    `jax.vmap` aligns replicates: `vmap(align, (None, 0))(reference, replicates)`.

    Args:
        reference: Loadings that fix order and signs.
        loadings: Loadings to align.
        method: "columns" permutes columns for the largest sum of |Tucker's congruence|
            (Hungarian algorithm; up to six columns all permutations) and then changes
            signs. "procrustes" takes the orthogonal R that minimises
            |loadings R - reference| (Schoenemann 1966).

    Returns:
        The aligned loadings and how they were changed.

    Raises:
        ValueError: If the shapes differ or the method is neither.

    Example:
        >>> import jax.numpy as jnp
        >>> reference = jnp.array([[0.8, 0.0], [0.7, 0.1], [0.0, 0.6]])
        >>> align(reference, -reference[:, ::-1]).transform.tolist()
        [[0.0, -1.0], [-1.0, 0.0]]
    """
    if reference.shape != loadings.shape or loadings.ndim != 2:
        raise ValueError(
            f"the reference has shape {reference.shape}, loadings {loadings.shape};"
            " give both the same items and number of factors"
        )
    if method == "procrustes":
        left, _, right = jnp.linalg.svd(loadings.T @ reference)
        change = left @ right
    elif method == "columns":
        match = congruence(reference, loadings)
        order = _assignment(jnp.abs(match))
        rows = np.arange(order.shape[0])
        signs = jnp.where(match[rows, order] < 0, -1, 1).astype(loadings.dtype)
        change = jnp.eye(rows.size, dtype=loadings.dtype)[:, order] * signs
    else:
        raise ValueError(f"method {method!r} is not one of columns, procrustes")
    aligned = loadings @ change
    return Alignment(aligned, change, jnp.diagonal(congruence(reference, aligned)))


def _assignment(score: Array) -> Array:
    """For each row a column of its own, such that the sum of scores is largest."""
    dims = score.shape[0]
    if dims <= _ENUMERATED:
        every = np.array(list(permutations(range(dims))))
        total = jnp.sum(score[np.arange(dims), every], 1)
        return jnp.asarray(every)[jnp.argmax(total)]
    shape = jax.ShapeDtypeStruct((dims,), jnp.int32)
    return jax.pure_callback(_hungarian, shape, score, vmap_method="expand_dims")


def _hungarian(score: Any) -> np.ndarray:
    """`_assignment` on the host, of scores `[..., rows, columns]`."""
    score = np.nan_to_num(np.asarray(score))
    flat = score.reshape(-1, *score.shape[-2:])
    from scipy.optimize import linear_sum_assignment  # A quarter of a second.

    columns = [linear_sum_assignment(one, maximize=True)[1] for one in flat]
    return np.array(columns, np.int32).reshape(score.shape[:-1])
