r"""Standard errors of rotated loadings, with the error of the rotation itself.

Rotated loadings are L = A U(A): the transform minimises a criterion of the loadings, so
it moves with them. At the minimum over local coordinates t of T the gradient g(t, A) is
0, hence (implicit function theorem; Jennrich 1973, Psychometrika 38, 593-604)

    dt = -H^-1 (dg/dA) dA,   H = dg/dt,   dL_j = dA_j U + A_j dU.

With items independent of each other and C_j the covariance of A_j, G_j = dU/dA_j,

    var L_jl = (U'C_j U)_ll + A_j V_ll A_j' + 2 A_j (G_j C_j U)_ll,
    V = sum_j G_j C_j G_j'.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.numerics.programs import stored_jit
from irtjax.numerics.rotation import ROTATIONS, Rotation, placed_transform, rotate

#: Smallest curvature at which a direction of T is identified, as a share of the largest
#: one and of the criterion.
_FLAT = 1e-7


def rotated_loading_errors(
    loadings: Float[Array, "items dims"],
    covariance: Float[Array, "items dims dims"],
    rotation: str,
    transform: Float[Array, "dims dims"],
    num_starts: int = 100,
) -> np.ndarray | None:
    """Standard errors of rotated loadings, for which the rotation is estimated too.

    Args:
        loadings: Standardised loadings A before the rotation.
        covariance: Of each item's loadings.
        rotation: Name of the rotation in `ROTATIONS`, one without a target.
        transform: T as `rotate` found it.
        num_starts: Starts of that rotation; promax repeats its varimax.

    Returns:
        `[items, dims]`; None where the loadings do not determine the rotation (its
        criterion is flat in a direction).

    Example:
        >>> simple = jnp.kron(jnp.eye(2), jnp.full((4, 1), 0.7))
        >>> given = jnp.broadcast_to(0.05**2 * jnp.eye(2), (8, 2, 2))
        >>> found = rotate(simple, "oblimin", num_starts=2)
        >>> errors = rotated_loading_errors(simple, given, "oblimin", found.transform)
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
    variance, is_flat = _variances(loadings, covariance, first, entry=entry)
    if is_flat:
        return None
    return np.sqrt(np.maximum(np.asarray(variance, np.float64), 0))


@stored_jit
def _variances(loadings, covariance, first, *, entry: Rotation):
    """Variances of the loadings, and whether the criterion is flat in a direction."""
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
        return entry.criterion(scaled @ inverse)

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
    slope = jax.jacrev(inverse_of)(loadings)  # [k, l, items, m]
    weighted = jnp.einsum("kljm,jmn->kljn", slope, covariance)
    common = jnp.einsum("kljn,pljn->lkp", weighted, slope)
    along = jnp.einsum("kljn,nl,jk->jl", weighted, turn, loadings)
    own = jnp.einsum("ml,jmn,nl->jl", turn, covariance, turn)
    shared = jnp.einsum("jk,lkp,jp->jl", loadings, common, loadings)
    return own + shared + 2 * along, curvature[0] <= floor
