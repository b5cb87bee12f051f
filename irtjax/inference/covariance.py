"""Standard errors of item parameters from the marginal likelihood.

Louis' form of the observed information (Oakes' identity gives the same matrix) is

    I = E[-d2 log p(y, theta)] - sum_i Cov_i[d log p(y_i, theta)],

expectations over each subject's posterior. The first term is block diagonal. In the
second, each item's gradient is a smooth function of ability, so on the polynomials that
are orthonormal under a subject's posterior it has few coefficients:

    Cov_i = sum_{m >= 1} c_im c_im',   c_im = E_i[phi_m(theta) d log p(y_i, theta)].

Hence I = D - C'C with D block diagonal, exact once the terms suffice; `inversion` has
its inverse, and the directions that the data do not identify.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax.data.responses import AbstractResponses
from irtjax.data.sparse_responses import by_cell
from irtjax.inference.gradients import (
    Setting,
    Whitening,
    complete_information,
    frame_rows_of,
    make_setting,
    sum_blocks,
)
from irtjax.inference.inversion import (
    PASSES,
    RANK,
    blocks_at,
    dense_information,
    diagonal_blocks,
    first_vectors,
    invert_by_leading,
    invert_by_woodbury,
    invert_dense,
    invert_sparse,
    leading_rows,
    multiply,
    positive_blocks,
    stored_rows,
    whitened,
)
from irtjax.likelihood.problem import Problem, is_rescaled
from irtjax.models.model import Population, check_one_ability
from irtjax.numerics.kernels import inverse_cholesky, symmetric_eigen_2x2
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched

#: Largest number of parameters, or of subjects times terms, inverted densely.
DENSE_LIMIT = 3000
#: Operations up to which gradients' covariance is summed over the nodes: a second.
EXACT_LIMIT = 3e10
#: Terms of sparse responses without asymptotes: more change errors of a 2PL by 1e-6
#: with ten to a subject.
SPARSE_TERMS = 5
#: Share of observed cells up to which C'C is summed over these alone: of 2,000 x 1,000
#: responses it takes a third of the time at .02, as long at .05.
FEW_CELLS = 0.03
#: Share of a variance that directions without identification may contribute.
LOST = 0.01
KINDS = ("observed", "cross_product", "sandwich")


class Covariance(NamedTuple):
    """Sampling covariance of item coordinates and of the population's (mean, log sd).

    The covariance of two different items' coordinates is that of `shared`,
    sum_r shared_rj shared_rk', and likewise with the population: leading eigenvectors,
    at most RANK + 2. Rows of what is fixed are zero. If the information was not
    positive definite (`definite`), errors are usable for the parameters that
    `identified` names. `lost` has the contributions to `items`, `scale` and
    `items_scale` of directions without identification, which these leave out.
    `negative` counts the eigenvalues of the information that are negative beyond
    rounding: no maximum. With many parameters it is a lower bound. Where the sd is
    reported as a common discrimination (1PL), abilities are divided by it (`rescaled`).
    """

    items: Float[Array, "items columns columns"]
    scale: Float[Array, "2 2"]
    items_scale: Float[Array, "items columns 2"]
    definite: Array
    shared: Float[Array, "rank items columns"]
    shared_scale: Float[Array, "rank 2"]
    rescaled: Array
    lost: tuple[Array, Array, Array]
    negative: Array

    @property
    def identified(self) -> Bool[np.ndarray, "items columns"]:
        """Coordinates whose standard error is that of the inverse Hessian to `LOST`."""
        own = np.diagonal(self.items, axis1=1, axis2=2)
        return np.diagonal(self.lost[0], axis1=1, axis2=2) <= LOST * own

    @classmethod
    def of_independent(cls, items: Float[Array, "items columns columns"]) -> Covariance:
        """Items whose errors are independent, the population as known."""
        num_items, columns, _ = items.shape
        # Made on the host, where no shape has a program of its own.
        zeros = lambda *shape: np.zeros(shape, items.dtype)
        scale = zeros(2, 2), zeros(num_items, columns, 2)
        shared = zeros(0, num_items, columns), zeros(0, 2)
        lost = zeros(*items.shape), *scale
        flags = np.True_, *shared, np.False_, lost, np.int32(0)
        return cls(items, *jax.device_put((*scale, *flags)))


def _counts(data: AbstractResponses) -> tuple[int, int]:
    """Numbers of subjects and of items that have a weight: padding has none."""
    shape = data.num_subjects, data.num_items
    sizes = zip(shape, (data.subject_weight, data.item_weight), strict=True)
    seen = [n if w is None else int(np.sum(np.asarray(w) > 0)) for n, w in sizes]
    return seen[0], seen[1]


def default_terms(data: AbstractResponses) -> int:
    """Terms with a negligible error: posteriors narrow as responses are added.

    Counted by the lower quartile of responses of a subject. Of 249 real items 5 terms
    change the standard errors by at most 1e-5, compared with 20; of 101 simulated ones
    by 1e-6. With 12 responses each of 60 items 8 terms change those of a 2PL by at most
    4e-4, with 25 by 2e-5; 20 terms, at two and a half times the cost, by 2e-6.
    """
    used = np.ones(data.num_items) if data.item_weight is None else data.item_weight
    used = np.asarray(used) > 0
    each = data.answered(used, trials=False)
    if data.subject_weight is not None:
        each = each[np.asarray(data.subject_weight) > 0]
    count = float(np.quantile(each, 0.25))
    return 20 if count <= 10 else 8 if count <= 100 else 5 if count <= 600 else 2


class _Whitened(NamedTuple):
    """The complete-data information, whitened.

    `excess` was added to make its blocks positive definite; `flat` are the variances in
    directions without information.
    """

    whitening: Whitening
    excess: Array
    flat: Array
    num_negative: Array
    frame_rows: Array


def _whiten(setting: Setting) -> _Whitened:
    blocks, scale = complete_information(setting)
    blocks, excess, flat, negative = positive_blocks(blocks)
    whitening = Whitening(inverse_cholesky(blocks), inverse_cholesky(scale))
    rows = frame_rows_of(setting, whitening)
    return _Whitened(whitening, excess, flat, negative, rows)


@stored_jit
def _covariance(problem, coordinates, population, nodes, kind, terms, how):
    """`item_covariance` in one program, at given nodes."""
    setting = make_setting(problem, coordinates, population, nodes)
    num_items, columns = problem.free.shape
    white = _whiten(setting)
    whitening, excess, _, _, frame_rows = white
    if how == "dense":
        estimated = _estimated(setting)
        prior = _prior_information(setting, whitening, estimated)
        rest = terms, kind, prior, frame_rows, excess
        inverse, spectrum = invert_dense(setting, whitening, *rest)
        white = white._replace(flat=0 * white.flat, num_negative=0)
        common = problem.model.family.common_columns
        if common:
            inverse = _with_common(inverse, whitening, common)
        cross = inverse[:-2, -2:].reshape(num_items, columns, 2)
        parts = inverse[blocks_at(num_items, columns)], inverse[-2:, -2:], cross
        # 1 is the part of the item alone. Other kinds have no such floor.
        floor = 1.0 if kind == "observed" and not common else 0.0
        size = inverse.shape[0]
        most = size if common else RANK
        rows = leading_rows(lambda v: inverse @ v, size, inverse.dtype, floor, most)
    else:
        invert = invert_by_woodbury if how == "woodbury" else invert_sparse
        shared, rest, spectrum = invert(setting, whitening, terms, frame_rows)
        parts, rows, spectrum = _of_rows(
            setting, whitening, kind, shared, rest, spectrum
        )
    return _unwhitened(setting, white, parts, rows, spectrum)


@stored_jit
def whitening_of(problem, coordinates, population, nodes) -> Whitening:
    """The inverse Cholesky factors of the blocks of D, of data with their counts."""
    return _whiten(make_setting(problem, coordinates, population, nodes)).whitening


@stored_jit
def complete_blocks(problem, coordinates, population, nodes) -> Array:
    """The items' blocks of D, of data with their counts."""
    return complete_information(make_setting(problem, coordinates, population, nodes))[
        0
    ]


def covariance_of_sums(problem, coordinates, population, nodes) -> Covariance:
    """`item_covariance` of data that have expected counts and C'C already."""
    return _covariance(
        problem, coordinates, population, nodes, "observed", None, "dense"
    )


@stored_jit
def _begin(problem, coordinates, population, nodes, terms):
    """What the passes of `_by_passes` share, and the vectors of the first."""
    setting = make_setting(problem, coordinates, population, nodes)
    white = _whiten(setting)
    stored = stored_rows(setting, white.whitening, terms)
    return white, stored, first_vectors(setting)


@stored_jit
def _pass(problem, coordinates, population, nodes, terms, white, stored, vectors):
    """`inversion.multiply` as a program."""
    setting = make_setting(problem, coordinates, population, nodes)
    rest = white.whitening, terms, white.frame_rows, stored, vectors
    return multiply(setting, *rest)


@stored_jit
def _end(problem, coordinates, population, nodes, kind, white, vectors, *products):
    """The covariance from the last pass."""
    setting = make_setting(problem, coordinates, population, nodes)
    shared, rest, spectrum = invert_by_leading(setting, vectors, *products)
    parts, rows, spectrum = _of_rows(
        setting, white.whitening, kind, shared, rest, spectrum
    )
    return _unwhitened(setting, white, parts, rows, spectrum)


@stored_jit
def _orthonormalised(image):
    """An orthonormal basis of what vectors span."""
    return jnp.linalg.qr(image)[0]


def _by_passes(kind: str, terms: int | None, *of: Any) -> Covariance:
    """`item_covariance` by leading eigenvectors, each pass a program of its own.

    So whoever watches sees the share done: a pass over 2,211 x 12,032 responses takes
    seconds.
    """
    white, stored, vectors = _begin(*of, terms)
    image = blocks = None
    for _ in watched(range(PASSES), "pass"):
        if image is not None:
            vectors = _orthonormalised(image)
        image, blocks = _pass(*of, terms, white, stored, vectors)
        jax.block_until_ready(image)
    return _end(*of, kind, white, vectors, image, blocks)


def _estimated(setting: Setting) -> Array:
    """Which of the population's mean and log sd are estimated."""
    return jnp.any(setting.scale_gradients != 0, axis=1)


def _of_rows(setting, whitening, kind: str, rows, remainder, spectrum):
    """Blocks of (1 - C'C)^-1 = 1 + U'U + R, and its shared rows."""
    num_items, columns = setting.problem.free.shape
    if kind == "sandwich":
        *parts, rows = _sandwich_blocks(setting, whitening, rows, remainder)
        return parts, rows, spectrum
    items, corner, cross = diagonal_blocks(rows, num_items, columns)
    items = items + remainder + jnp.eye(columns, dtype=items.dtype)
    parts = items, corner + jnp.eye(2, dtype=items.dtype), cross
    if len(rows) > RANK:
        product = lambda v, factor=rows: factor.T @ (factor @ v)
        rows = leading_rows(product, rows.shape[1], rows.dtype)
    return parts, rows, spectrum


def _unwhitened(setting, white: _Whitened, parts, rows, spectrum) -> Covariance:
    """The covariance of the coordinates from that of the whitened ones."""
    problem, whitening = setting.problem, white.whitening
    num_items, columns = problem.free.shape
    estimated = _estimated(setting)
    rows = _complete_scale(rows, parts[1])
    shared, shared_scale = whitening.unwhiten(rows)
    free = problem.free

    def estimated_part(items, corner, cross):
        return (
            jnp.where(free[:, :, None] & free[:, None, :], items, 0),
            jnp.where(estimated[:, None] & estimated[None, :], corner, 0),
            jnp.where(free[:, :, None] & estimated, cross, 0),
        )

    lost_blocks = diagonal_blocks(spectrum.lost, num_items, columns)
    lost_items, *lost_scale = whitening.covariance(*lost_blocks)
    alone = jnp.any(white.flat != 0, axis=(1, 2))
    return Covariance(
        *estimated_part(*whitening.covariance(*parts)),
        spectrum.definite & ~jnp.any(alone),
        jnp.where(free, shared, 0),
        jnp.where(estimated, shared_scale, 0),
        jnp.asarray(is_rescaled(problem)),
        estimated_part(lost_items + white.flat, *lost_scale),
        jnp.maximum(spectrum.negative, white.num_negative),
    )


def _with_common(inverse: Array, whitening: Whitening, common) -> Array:
    """The whitened covariance given that common columns are equal for all items.

    The covariance S of free parameters under B x = 0 is S - S B'(B S B')^-1 B S.
    """
    num_items, columns, _ = whitening.items.shape
    index = np.arange(num_items)
    rows = jnp.zeros((len(common), num_items, num_items, columns), inverse.dtype)
    for k, column in enumerate(common):
        # A coordinate from the whitened ones of its item.
        rows = rows.at[k, index, index].set(whitening.items[:, :, column])
    apart = (rows - rows[:, :1])[:, 1:].reshape(-1, num_items * columns)
    apart = jnp.pad(apart, ((0, 0), (0, 2)))
    image = inverse @ apart.T
    return inverse - image @ jnp.linalg.solve(apart @ image, image.T)


def _complete_scale(rows: Array, corner: Array) -> Array:
    """The rows, and two more for the rest of the population's covariance."""
    values, vectors = symmetric_eigen_2x2(corner - rows[:, -2:].T @ rows[:, -2:])
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))
    zeros = jnp.zeros((2, rows.shape[1] - 2), rows.dtype)
    return jnp.concatenate([rows, jnp.concatenate([zeros, root.T], axis=1)])


def _sandwich_blocks(setting, whitening, rows, remainder):
    """Blocks and shared rows of M = A^-1 B A^-1 with A^-1 = 1 + U'U + R.

    Folded over subjects. The rows are Nystrom's, M ~ M O (O' M O)^-1 O' M, with O the
    span of the leading rows of U, where errors of location and scale lie.
    """
    num_items, columns = setting.problem.free.shape
    sketch = jnp.linalg.qr(rows.T)[0][:, :RANK]

    def body(carry, gradients, start):
        gradient = gradients[0]
        items = gradient[:, :-2].reshape(-1, num_items, columns)
        extra = jnp.einsum("bja,jac->bjc", items, remainder)
        applied = gradient + (gradient @ rows.T) @ rows
        applied = applied.at[:, :-2].add(extra.reshape(gradient.shape[0], -1))
        blocks = diagonal_blocks(applied, num_items, columns)
        parts = (*blocks, applied.T @ (applied @ sketch))
        return jax.tree.map(jnp.add, carry, parts)

    dtype = setting.nodes.dtype
    shapes = (num_items, columns, columns), (2, 2), (num_items, columns, 2)
    init = tuple(jnp.zeros(shape, dtype) for shape in (*shapes, sketch.shape))
    *blocks, image = sum_blocks(setting, whitening, 0, body, init)
    values, vectors = jnp.linalg.eigh(sketch.T @ image)
    usable = values > 1e3 * jnp.finfo(dtype).eps * jnp.max(values)
    root = jnp.where(usable, jax.lax.rsqrt(jnp.where(usable, values, 1)), 0)
    return *blocks, root[:, None] * (vectors.T @ image.T)


def _prior_information(setting: Setting, whitening, estimated) -> Array:
    """Whitened prior curvature, with 1 for what is fixed (its gradients are 0)."""
    model, free = setting.problem.model, setting.problem.free
    log_prior = lambda row, weight: model.log_prior_in(row, setting.frame, weight)
    curvature = -jax.vmap(jax.hessian(log_prior))(
        setting.coordinates, model.prior_weight
    )
    free_pairs = free[:, :, None] & free[:, None, :]
    fixed = jnp.eye(free_pairs.shape[1], dtype=curvature.dtype) * ~free[:, :, None]
    blocks = jnp.where(free_pairs, curvature, fixed)
    result = whitened(blocks, whitening, free.size + 2)
    log_prior = lambda log_sd: model.log_common_slope_prior(jnp.exp(log_sd))
    own = -jax.grad(jax.grad(log_prior))(jnp.log(setting.population.sd))
    own = own * whitening.scale[1, 1] ** 2
    corner = jnp.where(estimated, jnp.stack([jnp.zeros_like(own), own]), 1)
    return result.at[[-2, -1], [-2, -1]].set(corner)


def check_kind(problem: Problem, kind: str) -> None:
    """Refuses a kind of error that these data cannot give, before any work is done.

    A cross-product has a rank of at most the number of subjects. Where all parameters
    are inverted at once, a dense matrix limits their number.
    """
    if kind not in KINDS:
        raise ValueError(f"standard errors {kind!r} are none of {', '.join(KINDS)}")
    model, whole, dense = problem.model, problem.free.size + 2, {}
    if model.has_lengths:
        dense["model with response lengths"] = whole - 1 + 3 * problem.data.num_items
    if model.family.common:
        dense[f"{model.name} model"] = whole
    for name, total in dense.items():
        if kind != "observed" or total > DENSE_LIMIT:
            raise ValueError(
                f"a {name} has standard_errors='observed', from all its parameters at"
                f" once (here {total}, at most {DENSE_LIMIT}); use"
                " standard_errors='none' and the bootstrap"
            )
    if kind != "cross_product":
        return
    size, num_subjects = int(jnp.sum(problem.free)), _counts(problem.data)[0]
    if whole > DENSE_LIMIT:
        raise ValueError(
            f"cross-product errors need all {size} parameters at once, at most"
            f" {DENSE_LIMIT}; use standard_errors='observed' or 'sandwich'"
        )
    if num_subjects <= size:
        raise ValueError(
            f"cross-product errors need more subjects ({num_subjects}) than"
            f" parameters ({size}); use standard_errors='observed'"
        )


def _by_cells(problem: Problem) -> Problem | None:
    """The problem with its observed cells alone if C'C of these is quicker."""
    data = problem.data
    if data.is_divided or data.evidence is not None:
        return None
    if data.share_observed > FEW_CELLS:
        return None
    return eqx.tree_at(lambda x: x.data, problem, by_cell(data))


def _inversion(
    problem: Problem, kind: str, num_nodes: int, num_terms: int | None, how: str | None
) -> tuple[Problem, str, int | None]:
    """The problem as its information is inverted, how, and terms; None sums nodes."""
    data, columns = problem.data, problem.free.shape[1]
    num_subjects, num_items = _counts(data)
    size = num_items * columns + 2
    family, few = problem.model.family, not data.has_blocks
    terms = default_terms(data) if num_terms is None else num_terms
    asymptotes = getattr(family, "asymptotes", 0)
    if num_terms is None and asymptotes and (few or num_items <= 600 or terms >= 8):
        # Items with asymptotes: with 8 terms an error was 3 % too small.
        terms = max(terms, 20)
    if few:
        if how == "dense" and kind == "observed":
            return problem, how, terms
        return problem, "leading", terms if asymptotes else min(terms, SPARSE_TERMS)
    rows = num_subjects * terms
    if kind == "cross_product" or family.common:
        how = "dense"
    if how in (None, "dense") and size <= DENSE_LIMIT:
        work = 2.0 * num_subjects * num_nodes * size**2
        if num_terms is None and work <= EXACT_LIMIT:
            return problem, "dense", None
        by_cells = _by_cells(problem) if kind == "observed" and size <= rows else None
        if by_cells is not None:
            return by_cells, "dense", terms
    if how is None:
        how = "woodbury" if rows <= DENSE_LIMIT else "leading"
        how = "dense" if size <= min(rows, DENSE_LIMIT) else how
    return problem, how, terms


@stored_jit
def _information(problem, coordinates, population, nodes, terms):
    """`information_matrix` in one program."""
    setting = make_setting(problem, coordinates, population, nodes)
    white = _whiten(setting)
    matrix, _ = dense_information(setting, white.whitening, terms, white.excess)
    matrix = (matrix - white.frame_rows.T @ white.frame_rows)[:-2, :-2]
    root = jnp.linalg.inv(white.whitening.items)
    num_items, columns = problem.free.shape
    matrix = matrix.reshape(num_items, columns, num_items, columns)
    whole = jnp.einsum("jab,jbkc,kdc->jakd", root, matrix, root)
    return whole.reshape(num_items * columns, -1)


@full_precision
def information_matrix(
    problem: Problem,
    coordinates: Float[Array, "items columns"],
    population: Population,
    nodes: Float[Array, " nodes"],
) -> Float[Array, "coordinates coordinates"]:
    """The observed information of all coordinates, the population fixed.

    Rows are those of the flattened coordinates; see `item_covariance` for arguments.
    That of a fixed coordinate is that of the identity.
    """
    of = problem, coordinates, population, nodes
    terms = _inversion(problem, "observed", nodes.size, None, "dense")[2]
    return _information(*of, terms)


@full_precision
def item_covariance(
    problem: Problem,
    coordinates: Float[Array, "items columns"],
    population: Population,
    nodes: Float[Array, " nodes"],
    *,
    kind: str = "observed",
    num_terms: int | None = None,
    how: str | None = None,
) -> Covariance:
    """Sampling covariance of each item's coordinates, from the marginal likelihood.

    Args:
        problem: The problem that was fitted.
        coordinates: Unconstrained item coordinates at the estimate.
        population: Population at the estimate, on the scale of the coordinates.
        nodes: Standardised quadrature nodes.
        kind: "observed" (information with priors; Louis 1982, Oakes 1999),
            "cross_product" (of subjects' gradients; Berndt et al. 1974) or "sandwich"
            (robust to a misspecified model; White 1982).
        num_terms: Polynomial terms of each subject's posterior. None sums over the
            nodes where that takes about a second ("dense"), else `default_terms`.
        how: "dense", "woodbury" (both exact) or "leading"; chosen by size when None.
            Sparse responses have "leading", approximate, unless told "dense".

    Returns:
        The covariance. Check `identified` before using it.

    Raises:
        ValueError: See `check_kind`; and of models with several abilities.
    """
    check_one_ability(problem.model, "item_covariance")
    check_kind(problem, kind)
    problem, how, terms = _inversion(problem, kind, nodes.size, num_terms, how)
    of = problem, coordinates, population, nodes
    if how == "leading" and problem.data.has_blocks:
        return _by_passes(kind, terms, *of)
    return _covariance(*of, kind, terms, how)
