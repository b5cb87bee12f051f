"""Rotation of factor loadings to simple structure.

Loadings A `[items, dims]` of uncorrelated factors fit as well as any rotation of them:

    orthogonal  L = A T,       T'T = I                              (Jennrich 2001),
    oblique     L = A T'^-1,   Phi = T'T with unit diagonal         (Jennrich 2002),

so that L Phi L' = A A'. `rotate` minimises a criterion f(L) over T by gradient
projection (Bernaards and Jennrich 2005): a step along the projected gradient and back
to the manifold of T, halved until f falls. The first step tried has the length of
Barzilai and Borwein (1988). `jax.grad` gives the gradients of criteria.

References: Jennrich (2001), Psychometrika 66, 289-306; Jennrich (2002), Psychometrika
67, 7-19; Bernaards and Jennrich (2005), Educational and Psychological Measurement 65,
676-696.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray, Scalar
from irtjax.numerics.loadings import structure_matrix
from irtjax.numerics.programs import stored_jit

#: Trial points of a start; 200 x 8 loadings without a structure took up to 520.
_MOST_TRIALS = 2000
#: Starts whose values differ by less than this share of a typical value are equal.
_SAME_VALUE = 1e-5
#: Loadings of the starts that run together. With `_SAMPLED` items x 8 these are more
#: than 1,000 starts; of more, only as many as have room, since memory is in proportion.
_MOST_LOADINGS = 2**24
#: Items above which random starts are made on a sample of so many of them: with 12,032
#: items x 8 the rotation took a quarter of the time of a whole fit.
_SAMPLED = 1500


def varimax(loadings: Float[Array, "items dims"]) -> Scalar:
    """Kaiser (1958): -1/4 sum_jk (l_jk^2 - mean_j l_jk^2)^2."""
    square = loadings**2
    return -jnp.sum((square - jnp.mean(square, 0)) ** 2) / 4


def quartimax(loadings: Float[Array, "items dims"]) -> Scalar:
    """Neuhaus and Wrigley (1954): -1/4 sum_jk l_jk^4."""
    return -jnp.sum(loadings**4) / 4


def oblimin(loadings: Float[Array, "items dims"], gamma: float = 0.0) -> Scalar:
    """Jennrich and Sampson (1966): 1/4 sum_(k != m) sum_j l_jk^2 (l_jm^2 - gamma c_m).

    c_m is the mean over items of l_jm^2; gamma = 0 is quartimin.
    """
    square = loadings**2
    other = square - gamma * jnp.mean(square, 0)
    cross = square * (jnp.sum(other, 1, keepdims=True) - other)
    return jnp.sum(cross) / 4


def geomin(loadings: Float[Array, "items dims"], epsilon: float = 0.01) -> Scalar:
    """Yates (1987), Browne (2001): sum_j prod_k (l_jk^2 + epsilon)^(1 / dims)."""
    return jnp.sum(jnp.exp(jnp.mean(jnp.log(loadings**2 + epsilon), 1)))


def bifactor(loadings: Float[Array, "items dims"]) -> Scalar:
    """Jennrich and Bentler (2011): quartimin of all columns but the first (general)."""
    return oblimin(loadings[:, 1:])


def target_distance(
    loadings: Float[Array, "items dims"],
    target: Float[Array, "items dims"],
    specified: Bool[Array, "items dims"],
) -> Scalar:
    """Browne (1972): sum of (l_jk - h_jk)^2 over the specified cells of a target h."""
    return jnp.sum(jnp.where(specified, loadings - target, 0) ** 2)


class Rotation(NamedTuple):
    """A kind of rotation: an entry of `ROTATIONS`, or one of your own for `rotate`.

    Attributes:
        criterion: Function of loadings (and of target and mask) that is minimised.
        oblique: Whether factors may correlate.
        normalise: Whether the default is Kaiser's normalisation.
        general: Number of leading columns that keep their place (general factors).
        needs_target: Whether `rotate` requires a target.
        power: Promax's power; None for other rotations.
    """

    criterion: Callable[..., Scalar]
    oblique: bool
    normalise: bool = False
    general: int = 0
    needs_target: bool = False
    power: float | None = None


#: Every rotation by name. Kaiser's normalisation is the default where R's `varimax` and
#: `promax` have it.
ROTATIONS: dict[str, Rotation] = {
    "varimax": Rotation(varimax, oblique=False, normalise=True),
    "quartimax": Rotation(quartimax, oblique=False),
    "bifactor": Rotation(bifactor, oblique=False, general=1),
    "geomin_orthogonal": Rotation(geomin, oblique=False),
    "target_orthogonal": Rotation(target_distance, oblique=False, needs_target=True),
    "oblimin": Rotation(oblimin, oblique=True),
    "promax": Rotation(varimax, oblique=True, normalise=True, power=4.0),
    "geomin": Rotation(geomin, oblique=True),
    "target": Rotation(target_distance, oblique=True, needs_target=True),
}


class Rotated(NamedTuple):
    """Rotated loadings.

    Columns are in order of the variance they explain (the sum of squares of the
    structure matrix) and have positive sums. General factors and columns with a target
    keep their place; a column with a target other than 0 keeps its sign.

    Attributes:
        loadings: Pattern L.
        transform: T. Abilities of the rotated factors are theta T.
        correlations: Phi, of the rotated factors.
        value: Criterion at the best start (of the normalised loadings, if they are).
        share_at_best: Share of starts that reached the best value, to 1e-5 of a typical
            value. A small share means many local minima: use more starts.
        converged: Whether the projected gradient of the best start is 0, to 1e-8 (in
            float32 1e-5) of a typical gradient.
    """

    loadings: Float[Array, "items dims"]
    transform: Float[Array, "dims dims"]
    correlations: Float[Array, "dims dims"]
    value: Scalar
    share_at_best: Scalar
    converged: Bool[Array, ""]


def rotate(
    loadings: Float[Array, "items dims"],
    rotation: str | Rotation = "oblimin",
    *,
    num_starts: int = 100,
    key: KeyArray | None = None,
    target: Float[Array, "items dims"] | None = None,
    normalise: bool | None = None,
) -> Rotated:
    """Rotates loadings of uncorrelated factors to simple structure.

    One start is the identity; the others are uniform random orthogonal matrices. The
    best is returned. With more than 1,500 items the starts rotate as many items drawn
    at random (to a target, of those with a specified cell), and all items are rotated
    from the nearest orthogonal matrix to the best result, and from the identity. Under
    `jax.vmap` and `jax.jit` values are not checked for NaN.

    Promax (Hendrickson and White 1964) rotates to varimax L, then takes, with
    Q = |L|^(m-1) L elementwise and m = 4,

        U = (L'L)^-1 L'Q,   U <- U sqrt(diag((U'U)^-1)),   L U,   Phi = (U'U)^-1.

    Args:
        loadings: Standardised loadings (`standardised_loadings`).
        rotation: A name in `ROTATIONS`, or a `Rotation` with a criterion of your own.
        num_starts: Number of starts, the identity included.
        key: Random key of the starts; by default `jax.random.key(0)`.
        target: Loadings to approach, NaN where free. Only for rotations to a target.
        normalise: Whether rows have unit length while the criterion is minimised
            (Kaiser); by default for varimax and promax alone.

    Returns:
        The rotated loadings, T, Phi and how the starts ended.

    Raises:
        ValueError: If the rotation is unknown, the loadings are not a finite matrix of
            full column rank (orthogonal rotations take any rank), a bifactor rotation
            has one group factor, a target is missing, unused, not of the shape of the
            loadings or specifies too few cells (of a factor, if oblique), or
            `num_starts` is below 1.

    Example:
        >>> import jax.numpy as jnp
        >>> turn = jnp.array([[0.8, 0.6], [-0.6, 0.8]])
        >>> simple = jnp.array([[0.7, 0.0], [0.8, 0.0], [0.0, 0.6], [0.0, 0.5]])
        >>> rotated = rotate(simple @ turn, "oblimin", num_starts=5)
        >>> jnp.abs(rotated.loadings - simple).max() < 1e-3
        Array(True, dtype=bool)
    """
    entry = ROTATIONS.get(rotation) if isinstance(rotation, str) else rotation
    if entry is None:
        raise ValueError(f"rotation {rotation!r} is not one of {', '.join(ROTATIONS)}")
    _check_loadings(loadings, entry)
    loadings = jnp.asarray(loadings, jnp.result_type(loadings, jnp.float32))
    if num_starts < 1:
        raise ValueError(f"num_starts is {num_starts}; give 1 or more")
    cells = target_cells(loadings, target, entry)
    free = jnp.all(~cells[1] | (cells[0] == 0), 0) if cells else True
    key = jax.random.key(0) if key is None else key
    turn = lambda loadings, cells, num_starts: _rotate(
        loadings,
        # Keys have no place in a stored program; their numbers have.
        jax.random.key_data(key),
        str(jax.random.key_impl(key)),
        cells,
        jnp.broadcast_to(free, loadings.shape[1:]),
        entry=entry,
        num_starts=num_starts,
        normalise=entry.normalise if normalise is None else normalise,
    )
    if num_starts == 1 or loadings.shape[0] <= _SAMPLED:
        return turn(loadings, cells, num_starts)
    # Items without a specified cell do not enter the distance from a target.
    used = np.flatnonzero(cells[1].any(1)) if cells else np.arange(loadings.shape[0])
    drawn = np.random.default_rng(0).permutation(used)[:_SAMPLED]
    some = turn(loadings[drawn], tuple(x[drawn] for x in cells), num_starts)
    left, _, right = jnp.linalg.svd(some.transform)
    nearest = left @ right
    ends = [
        turn(loadings @ axes, cells, 1)
        for axes in (nearest, jnp.eye(loadings.shape[1], dtype=loadings.dtype))
    ]
    first = ends[0]._replace(transform=nearest @ ends[0].transform)
    best = jax.tree.map(
        lambda x, y: jnp.where(ends[1].value < first.value, y, x), first, ends[1]
    )
    return best._replace(share_at_best=some.share_at_best)


def _check_loadings(loadings: Array, entry: Rotation) -> None:
    """Refuses loadings that cannot be rotated; values only where they are known."""
    shape = np.shape(loadings)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"loadings of shape {shape}; give a matrix [items, dims]")
    dims = shape[1]
    if entry.general and dims == entry.general + 1:
        raise ValueError(f"one group factor is not rotated; fit {dims + 1} factors")
    if isinstance(loadings, Tracer):
        return
    values = np.asarray(loadings)
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values).all(1)).sum())
        who, them = f"{count:,} items have", "them"
        if count == 1:
            who, them = "1 item has", "it"
        raise ValueError(f"{who} loadings that are not finite; drop {them}")
    rank = int(np.linalg.matrix_rank(values))
    if entry.oblique and rank < dims:
        raise ValueError(
            f"loadings of {dims} factors have rank {rank}, which leaves correlations of"
            f" factors undefined; fit {max(rank, 1)} factor{'s' * (rank > 1)} or rotate"
            " orthogonally"
        )


def target_cells(loadings, target, entry: Rotation) -> tuple[Array, ...]:
    """Target with 0 for free cells, and the mask of those specified; or nothing."""
    if target is None and not entry.needs_target:
        return ()
    if target is None:
        raise ValueError("this rotation needs a target: pass target=, NaN where free")
    if not entry.needs_target:
        raise ValueError(
            "target is only for rotations to a target; pass rotation='target'"
        )
    if np.shape(target) != loadings.shape:
        raise ValueError(
            f"target has shape {np.shape(target)}, loadings {loadings.shape}; give the"
            " target a row for each item and a column for each factor"
        )
    if not isinstance(target, Tracer):
        check_target(np.asarray(target), entry)
    target = jnp.asarray(target, loadings.dtype)
    return jnp.where(jnp.isnan(target), 0, target), ~jnp.isnan(target)


def check_target(target: np.ndarray, entry: Rotation, names=None) -> None:
    """Refuses a target with too few cells to determine a rotation (Browne 2001).

    Orthogonal rotations of K factors have K (K - 1) / 2 degrees of freedom. In oblique
    ones each factor has K - 1, and needs as many cells of its own.
    """
    dims, cells = target.shape[1], (~np.isnan(target)).sum(axis=0)
    needed = max(dims * (dims - 1) // (1 if entry.oblique else 2), 1)
    if cells.sum() < needed:
        raise ValueError(
            f"the target specifies {cells.sum()} cells, too few for {dims} factors;"
            f" give {needed} or more"
        )
    if entry.oblique and cells.min() < dims - 1:
        column = int(np.argmin(cells))
        name = f"factor {column + 1}" if names is None else names[column]
        raise ValueError(
            f"the target specifies {cells[column]} cells of {name}; give {dims - 1} or"
            " more of each factor, or rotate orthogonally"
        )


@stored_jit
def _rotate(
    loadings,
    key_data,
    key_kind: str,
    cells,
    free,
    *,
    entry: Rotation,
    num_starts: int,
    normalise: bool,
) -> Rotated:
    """`rotate` after its checks; columns in `free` may change their sign."""
    key = jax.random.wrap_key_data(key_data, impl=key_kind)
    dims = loadings.shape[1]
    length = jnp.sqrt(jnp.sum(loadings**2, 1, keepdims=True))
    scaled = loadings / jnp.where(length > 0, length, 1) if normalise else loadings
    # At least two: a random start gives a typical gradient where the first is optimal.
    normal = jax.random.normal(key, (max(num_starts, 2), dims, dims), loadings.dtype)
    normal = normal.at[0].set(np.eye(dims, dtype=normal.dtype))
    starts = jax.vmap(_orthonormalise)(normal)
    oblique = entry.oblique and entry.power is None
    problem = _Problem(scaled, cells, entry.criterion, oblique)
    room = max(1, _MOST_LOADINGS // loadings.size)
    few = partial(lax.map, batch_size=room)
    many = jax.vmap if len(starts) <= room else lambda each: partial(few, each)
    first = many(problem.evaluate)(starts)
    scale, typical = jnp.mean(first.size), jnp.mean(jnp.abs(first.value))
    first = jax.tree.map(lambda x: x[:num_starts], first)
    ends = many(lambda point: _descend(problem, point, scale))(first)
    value = jnp.where(jnp.isfinite(ends.value), ends.value, jnp.inf)
    best = jnp.argmin(value)
    rounding = jnp.finfo(scaled.dtype).eps * jnp.sum(scaled**4)
    same = value[best] + _SAME_VALUE * typical + rounding
    transform = placed_transform(loadings, ends.transform[best], entry)
    pattern, correlations = _pattern(loadings, transform, entry.oblique)
    change = _canonical(pattern, correlations, free, dims if cells else entry.general)
    return Rotated(
        pattern @ change,
        transform @ change,
        change.T @ correlations @ change,
        ends.value[best],
        jnp.mean(value <= same, dtype=value.dtype),
        ends.size[best] <= _tolerance(scale),
    )


class _Point(NamedTuple):
    """A transform T, the criterion there and its projected gradient with its norm."""

    transform: Array
    value: Array
    gradient: Array
    size: Array


class _Problem(NamedTuple):
    """A criterion over the transforms of given loadings."""

    loadings: Array
    cells: tuple[Array, ...]
    criterion: Callable[..., Scalar]
    oblique: bool

    def evaluate(self, transform: Array) -> _Point:
        """Bernaards and Jennrich (2005), equations of GPForth and GPFoblq."""
        if self.oblique:
            inverse = transform @ _inverse(transform.T @ transform)
            pattern = self.loadings @ inverse
            value, slope = jax.value_and_grad(self.criterion)(pattern, *self.cells)
            gradient = -inverse @ (slope.T @ pattern)
            normal = transform * jnp.sum(transform * gradient, 0)
        else:
            pattern = self.loadings @ transform
            value, slope = jax.value_and_grad(self.criterion)(pattern, *self.cells)
            gradient = self.loadings.T @ slope
            inner = transform.T @ gradient
            normal = transform @ (inner + inner.T) / 2
        gradient = gradient - normal
        return _Point(transform, value, gradient, jnp.sqrt(jnp.sum(gradient**2)))

    def project(self, matrix: Array) -> Array:
        """A transform near a matrix: unit columns, orthogonal unless oblique."""
        if self.oblique:
            return matrix / jnp.sqrt(jnp.sum(matrix**2, 0))
        return _orthonormalise(matrix)


def _tolerance(scale: Array) -> Array:
    """Size of a gradient that counts as 0, for a criterion of this scale."""
    return max(1e-8, 100 * float(jnp.finfo(scale.dtype).eps)) * scale


def _descend(problem: _Problem, point: _Point, scale: Array) -> _Point:
    """Gradient projection from one start."""
    eps, tiny = (getattr(jnp.finfo(scale.dtype), name) for name in ("eps", "tiny"))
    step = 1 / jnp.maximum(point.size, tiny)

    def unfinished(state):
        point, step, count = state
        moves = step * point.size > eps
        return (point.size > _tolerance(scale)) & moves & (count < _MOST_TRIALS)

    def body(state):
        point, step, count = state
        trial = problem.project(point.transform - step * point.gradient)
        new = problem.evaluate(trial)
        # Close to the optimum f falls by less than its rounding.
        rounding = 10 * eps * jnp.abs(point.value)
        falls = new.value <= point.value - 0.1 * step * point.size**2 + rounding
        moved, turned = new.transform - point.transform, new.gradient - point.gradient
        product = jnp.maximum(jnp.abs(jnp.sum(moved * turned)), tiny)
        # The two steps of Barzilai and Borwein in turn: in slow starts half the trials
        # of the longer one alone.
        short = product / jnp.maximum(jnp.sum(turned**2), tiny)
        longer = jnp.where(count % 2, short, jnp.sum(moved**2) / product)
        longer = jnp.clip(longer, step / 100, step * 100)
        keep = lambda new, old: jnp.where(falls, new, old)
        point = jax.tree.map(keep, new, point)
        return point, keep(longer, step / 2), count + 1

    init = point, step, jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, body, init)[0]


def _orthonormalise(matrix: Array) -> Array:
    """Q of matrix = Q R with a positive diagonal of R, by modified Gram-Schmidt."""

    # Written out, as are other small solves: batches of LAPACK calls are slower and can
    # block each other (see `inverse_cholesky`).
    def body(k, matrix):
        column = matrix[:, k] / jnp.sqrt(jnp.sum(matrix[:, k] ** 2))
        overlap = jnp.where(jnp.arange(dims) > k, column @ matrix, 0)
        return (matrix - column[:, None] * overlap).at[:, k].set(column)

    dims = matrix.shape[1]
    return lax.fori_loop(0, dims, body, matrix)


def _inverse(matrix: Array) -> Array:
    """Inverse of a small positive definite matrix, by Gauss-Jordan elimination."""

    def body(k, matrix):
        unit = (jnp.arange(dims) == k).astype(matrix.dtype)
        column = matrix[:, k] - unit
        return matrix - column[:, None] * (matrix[k] + unit) / matrix[k, k]

    # A unit diagonal keeps the pivots near 1, where their updates do not cancel.
    dims, scale = matrix.shape[0], 1 / jnp.sqrt(jnp.diagonal(matrix))
    scale = scale[:, None] * scale
    return scale * lax.fori_loop(0, dims, body, scale * matrix)


def _promax(loadings: Array, transform: Array, power: float) -> Array:
    """T of promax from that of varimax; the formula is in `rotate`."""
    varied = loadings @ transform
    goal = jnp.abs(varied) ** (power - 1) * varied
    towards = _inverse(varied.T @ varied) @ (varied.T @ goal)
    towards = towards * jnp.sqrt(jnp.diagonal(_inverse(towards.T @ towards)))
    return transform @ towards @ _inverse(towards.T @ towards)


def placed_transform(loadings: Array, transform: Array, entry: Rotation) -> Array:
    """T of a rotation from that which minimises its criterion: promax goes on."""
    if entry.power is None:
        return transform
    return _promax(loadings, transform, entry.power)


def _pattern(loadings: Array, transform: Array, oblique: bool) -> tuple[Array, Array]:
    """L and Phi of a transform."""
    if not oblique:
        return loadings @ transform, jnp.eye(transform.shape[0], dtype=loadings.dtype)
    correlations = transform.T @ transform
    return loadings @ (transform @ _inverse(correlations)), correlations


def _canonical(pattern, correlations, free, num_placed: int) -> Array:
    """Signed permutation to the order and signs of `Rotated`."""
    explained = jnp.sum(structure_matrix(pattern, correlations) ** 2, 0)
    placed = np.arange(explained.size) < num_placed
    order = jnp.argsort(jnp.where(placed, -jnp.inf, -explained), stable=True)
    signs = jnp.where(free & (jnp.sum(pattern, 0) < 0), -1, 1).astype(pattern.dtype)
    return (jnp.eye(explained.size, dtype=pattern.dtype) * signs)[:, order]
