r"""Standard errors of rotated loadings, with the error of the rotation itself.

Rotated loadings are L = A U(A): the transform minimises a criterion of the loadings, so
it moves with them. At the minimum over local coordinates t of T the gradient g(t, A) is
0, hence (implicit function theorem; Jennrich 1973, Psychometrika 38, 593-604)

    dt = -H^-1 (dg/dA) dA,   H = dg/dt,   dL_j = dA_j U + A_j dU.

With x_j the parameters of an item (its loadings or slopes first), C their covariance
and G_j = dU/dx_j, rows A_j of items turn into A_j U with

    var L_jl = (U'C_jj U)_ll + A_j V_ll A_j' + 2 A_j (sum_k G_k C_kj U)_ll,
    V = sum_jk G_j C_jk G_k',

products of matrices. Where only blocks C_jj are known, items are taken as independent.

Correlations of the factors are Phi = T'T = (U'U)^-1 in an oblique rotation, hence

    dPhi = -Phi (dU'U + U'dU) Phi.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.numerics.programs import stored_jit
from irtjax.numerics.rotation import (
    ROTATIONS,
    Rotation,
    placed_transform,
    rotate,
    target_cells,
)

#: Smallest curvature at which a direction of T is identified, as a share of the largest
#: one and of the criterion.
_FLAT = 1e-7


def rotation_moves(
    loadings: Float[Array, "items dims"],
    rotation: str,
    transform: Float[Array, "dims dims"],
    num_starts: int = 100,
    target: Float[Array, "items dims"] | None = None,
) -> tuple[np.ndarray, np.ndarray] | None:
    """U of rotated loadings A U, and its slopes in A.

    Args:
        loadings: Standardised loadings A before the rotation.
        rotation: Name of the rotation in `ROTATIONS`.
        transform: T as `rotate` found it.
        num_starts: Starts of that rotation; promax repeats its varimax.
        target: The target of a rotation that has one.

    Returns:
        `[dims, dims]` and `[dims, dims, items, dims]`; None where the loadings do not
        determine the rotation (its criterion is flat in a direction).

    Example:
        >>> simple = jnp.kron(jnp.eye(2), jnp.full((4, 1), 0.7))
        >>> transform = rotate(simple, "oblimin", num_starts=2).transform
        >>> moves = rotation_moves(simple, "oblimin", transform)
        >>> given = np.broadcast_to(0.05**2 * np.eye(2), (8, 2, 2))
        >>> found = turned_covariance(np.asarray(simple), *moves, given)
        >>> errors = np.sqrt(np.diagonal(found, axis1=1, axis2=2))
        >>> bool((errors > 0.04).all() and (errors < 0.08).all())
        True
    """
    entry = ROTATIONS[rotation]
    first = transform
    if entry.power is not None:  # Promax starts from varimax, in the order it found.
        first = rotate(loadings, "varimax", num_starts=num_starts).transform
        promax = placed_transform(loadings, first, entry)
        match = np.round(np.linalg.solve(np.asarray(promax), np.asarray(transform)))
        first = first @ jnp.asarray(match, loadings.dtype)
    cells = target_cells(loadings, target, entry)
    turn, slope, is_flat = _moves(loadings, first, cells, entry=entry)
    if is_flat:
        return None
    return np.asarray(turn, np.float64), np.asarray(slope, np.float64)


def turned_covariance(
    rows: Float[np.ndarray, "items dims"],
    turn: Float[np.ndarray, "dims dims"],
    slope: Float[np.ndarray, "dims dims items columns"],
    covariance: np.ndarray,
) -> Float[np.ndarray, "items columns columns"]:
    """Covariance of each item's (A_j U, other parameters); see the module.

    Args:
        rows: A, in the first columns of each item's parameters.
        turn: U.
        slope: dU in all parameters.
        covariance: Of the parameters of each item, `[items, columns, columns]`, or of
            all items, `[items, columns, items, columns]`.
    """
    (num_items, dims), columns = rows.shape, slope.shape[3]
    flat = slope.reshape(dims**2, -1)
    if covariance.ndim == 4:
        weighted = flat @ covariance.reshape(num_items * columns, -1)
        index = np.arange(num_items)
        covariance = covariance[index, :, index]
    else:
        weighted = np.einsum(
            "fjp,jpq->fjq", slope.reshape(dims**2, -1, columns), covariance
        )
        weighted = weighted.reshape(dims**2, -1)
    common = (weighted @ flat.T).reshape(dims, dims, dims, dims)
    whole = np.eye(columns)
    whole[:dims, :dims] = turn
    weighted = weighted.reshape(dims, dims, num_items, columns)
    along = np.einsum("jk,kljp->jlp", rows, weighted) @ whole
    turned = np.swapaxes(whole.T @ covariance @ whole, 1, 2).copy()
    turned[:, :dims] += along
    turned[:, :, :dims] += np.swapaxes(along, 1, 2)
    turned[:, :dims, :dims] += np.einsum("jk,klqr,jq->jlr", rows, common, rows)
    return turned


def correlation_covariance(
    turn: Float[np.ndarray, "dims dims"],
    slope: Float[np.ndarray, "dims dims items dims"],
    covariance: Float[np.ndarray, "all all"],
) -> Float[np.ndarray, "pairs pairs"]:
    """Covariance of the correlations of obliquely rotated factors; see the module.

    Args:
        turn: U.
        slope: dU in all loadings.
        covariance: Of all loadings. Items must not be taken as independent: the sample
            of subjects moves them together.

    Returns:
        Of the correlations in the order of `np.triu_indices`.
    """
    correlation = np.linalg.inv(turn.T @ turn)
    half = np.einsum("ka,kbjm->abjm", turn, slope)
    moved = np.einsum(
        "ak,kljm,lb->abjm", correlation, half + np.swapaxes(half, 0, 1), correlation
    )
    moved = moved[np.triu_indices(len(turn), 1)].reshape(-1, len(covariance))
    return moved @ covariance @ moved.T


@stored_jit
def _moves(loadings, first, cells, *, entry: Rotation):
    """U, its slopes in the loadings, and whether the criterion has a flat direction."""
    dims = loadings.shape[1]
    oblique = entry.oblique and entry.power is None
    rows, columns = np.nonzero(~np.eye(dims, dtype=bool))
    if not oblique:
        rows, columns = rows[rows < columns], columns[rows < columns]
    unit = jnp.eye(dims, dtype=loadings.dtype)

    def transform_at(t):
        """T at local coordinates: on the manifold exactly, `first` at 0."""
        change = jnp.zeros_like(unit).at[rows, columns].set(t)
        if not oblique:
            half = (change - change.T) / 2
            return first @ jnp.linalg.solve(unit - half, unit + half)
        moved = first @ (unit + change)
        return moved / jnp.sqrt(jnp.sum(moved**2, axis=0))

    def value(t, loadings):
        scaled = loadings
        if entry.normalise:
            length = jnp.sum(loadings**2, axis=1, keepdims=True)
            scaled = loadings / jnp.sqrt(jnp.where(length > 0, length, 1))
        transform = transform_at(t)
        inverse = jnp.linalg.inv(transform).T if oblique else transform
        return entry.criterion(scaled @ inverse, *cells)

    zero = jnp.zeros(len(rows), loadings.dtype)
    hessian = jax.hessian(value)(zero, loadings)
    curvature, vectors = jnp.linalg.eigh((hessian + hessian.T) / 2)
    floor = _FLAT * jnp.maximum(curvature[-1], jnp.abs(value(zero, loadings)))
    safe = jnp.maximum(curvature, floor)
    solve = vectors / safe @ vectors.T

    def inverse_of(loadings):
        """U of L = A U, the gradient of the criterion staying 0."""
        t = -solve @ jax.grad(value)(zero, loadings)
        transform = placed_transform(loadings, transform_at(t), entry)
        return jnp.linalg.inv(transform).T if entry.oblique else transform

    turn = inverse_of(loadings)
    return turn, jax.jacrev(inverse_of)(loadings), curvature[0] <= floor
