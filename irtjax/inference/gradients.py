"""Subjects' gradients on polynomials of their posteriors, block by block."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.data.responses import AbstractResponses
from irtjax.likelihood.counts import (
    block_log_likelihood,
    expected_counts,
    log_likelihood_at_nodes,
)
from irtjax.likelihood.item_steps import expected_derivatives
from irtjax.likelihood.problem import Problem
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    normal_log_weights,
    scan_subject_blocks,
    symmetric_eigen_2x2,
    take_block,
    weigh_rows,
)
from irtjax.numerics.sparse import Bucket, fold_rows


class Setting(NamedTuple):
    """What is fixed while gradients are formed block by block."""

    problem: Problem
    coordinates: Array
    population: Population
    tables: tuple[Array, ...]
    slopes: tuple[Array, ...]
    nodes: Array
    log_weights: Array
    standard: Array
    scale_gradients: Array
    frame: Array


def _coordinate_tables(family, coordinates, nodes) -> tuple:
    """Derivatives of each g_k in coordinates, `[nodes, items, columns]`."""
    natural = lambda row, node: family.natural(family.constrain(row), node)
    over_items = jax.vmap(jax.jacfwd(natural), in_axes=(0, None))
    return jax.vmap(over_items, in_axes=(None, 0))(coordinates, nodes)


def make_setting(problem: Problem, coordinates, population, nodes) -> Setting:
    """Tables and derivatives at the nodes; see `item_covariance` for the arguments."""
    model, sd = problem.model, population.sd
    theta = population.mean + sd * nodes
    log_weights = population.log_weights
    if log_weights is None:
        log_weights = normal_log_weights(nodes)
    frame = jnp.zeros(2, nodes.dtype)
    if not problem.anchored:
        weight = problem.data.item_weight
        frame = model.prior_frame(coordinates, frame, 30, weight)
    # Complete-data gradients of the population's mean and log sd, where estimated.
    flags = problem.anchored, problem.anchored or not model.family.has_slope
    estimated = jnp.asarray(flags, nodes.dtype)
    return Setting(
        problem,
        coordinates,
        population,
        model.family.table(model.constrain(coordinates), theta),
        _coordinate_tables(model.family, coordinates, theta),
        theta,
        log_weights,
        nodes,
        jnp.stack([nodes / sd, nodes**2 - 1]) * estimated[:, None],
        frame,
    )


def _orthonormal(posterior, nodes, num_terms: int) -> list[Array]:
    """Polynomials orthonormal under each row of weights, by Stieltjes' recurrence."""
    # Beyond the number of nodes they are zero.
    mean = posterior @ nodes
    centred = nodes[None, :] - mean[:, None]
    sd = jnp.sqrt(jnp.sum(posterior * centred**2, axis=1, keepdims=True))
    tiny = jnp.sqrt(jnp.finfo(nodes.dtype).eps)
    argument = centred / jnp.maximum(sd, tiny)
    previous, current = jnp.zeros_like(argument), jnp.ones_like(argument)
    basis, beta = [current], jnp.zeros_like(sd)
    for _ in range(num_terms):
        alpha = jnp.sum(posterior * argument * current**2, axis=1, keepdims=True)
        following = (argument - alpha) * current - beta * previous
        beta = jnp.sqrt(jnp.sum(posterior * following**2, axis=1, keepdims=True))
        following = jnp.where(beta > tiny, following / jnp.maximum(beta, tiny), 0)
        previous, current = current, following
        basis.append(current)
    return basis


class AbilityBlock(NamedTuple):
    """A block of subjects: posteriors, their polynomials, and the coefficients c_im.

    Term 0 of `gradients` is the subject's marginal gradient, the last two parameters
    are the population's. `cells` are statistics and exposure of the responses.
    """

    posterior: Float[Array, "block nodes"]
    basis: list[Float[Array, "block nodes"]]
    gradients: Float[Array, "terms block parameters"]
    cells: list


def _gradients_at(setting: Setting, cells, items, scale) -> Array:
    """Gradients `[block, parameters]`; `items`: table to `[block, items, columns]`."""
    statistics, exposure = cells
    total, *rest = map(items, setting.slopes)
    if exposure is not None:
        total = total * exposure[..., None]
    for statistic, slopes in zip(statistics, rest, strict=True):
        total = total + statistic[..., None] * slopes
    total = (total * setting.problem.free).reshape(len(total), -1)
    return jnp.concatenate([total, scale], axis=1)


def ability_block(setting: Setting, start, size: int, num_terms: int) -> AbilityBlock:
    """Posteriors and gradient coefficients of a block of subjects."""
    problem = setting.problem
    log_lik, *cells = block_log_likelihood(
        problem.model, setting.tables, setting.nodes, problem.data, start, size
    )
    posterior = jax.nn.softmax(log_lik + setting.log_weights, axis=1)
    basis = _orthonormal(posterior, setting.standard, num_terms)

    def at(moments):
        items = lambda table: jnp.tensordot(moments, table, 1)
        scale = moments @ setting.scale_gradients.T
        return _gradients_at(setting, cells, items, scale)

    gradients = jnp.stack([at(posterior * each) for each in basis])
    return AbilityBlock(posterior, basis, gradients, cells)


def block_weights(setting: Setting, start, size: int) -> Array:
    """Weights `[block]` of a block of subjects."""
    weight = setting.problem.data.subject_weight
    if weight is None:
        return jnp.ones(size, setting.nodes.dtype)
    return take_block(weight, start, size).astype(setting.nodes.dtype)


def _block_size(setting: Setting, rows: int) -> int:
    """Subjects of a block with so many rows of gradients each."""
    num_subjects = setting.problem.data.num_subjects
    bytes_each = rows * (setting.problem.free.size + 2) * setting.nodes.dtype.itemsize
    size = min(num_subjects, max(16, BLOCK_BYTES // bytes_each))
    return -(-num_subjects // -(-num_subjects // size))


class Whitening(NamedTuple):
    """Inverse Cholesky factors F^-1 of the blocks of D: items, then the population."""

    items: Float[Array, "items columns columns"]
    scale: Float[Array, "2 2"]

    def rows(self, gradients: Array) -> Array:
        """Each row c of `[..., parameters]` as (F^-1 c)."""
        columns = self.items.shape[1]
        items = gradients[..., :-2].reshape(*gradients.shape[:-1], -1, columns)
        white = jnp.einsum("jab,...jb->...ja", self.items, items)
        scale = gradients[..., -2:] @ self.scale.T
        return jnp.concatenate([white.reshape(gradients[..., :-2].shape), scale], -1)

    def covariance(self, blocks: Array, scale: Array, cross: Array):
        """Blocks of F'^-1 B F^-1 from the blocks of B."""
        items = jnp.einsum("jba,jbc,jcd->jad", self.items, blocks, self.items)
        covariance = jnp.einsum("jba,jbc,cd->jad", self.items, cross, self.scale)
        return items, self.scale.T @ scale @ self.scale, covariance

    def unwhiten(self, rows: Array):
        """Rows U as U F^-1: `[rank, items, columns]`, and those of the population."""
        num_items, columns, _ = self.items.shape
        items = rows[:, :-2].reshape(-1, num_items, columns)
        return jnp.einsum("rjb,jba->rja", items, self.items), rows[:, -2:] @ self.scale


def complete_information(setting: Setting) -> tuple[Array, Array]:
    """D: blocks `[items, columns, columns]` and `[2, 2]` of the population."""
    problem, model, sd = setting.problem, setting.problem.model, setting.population.sd
    items = model.constrain(setting.coordinates)
    nodes, coordinates = setting.nodes, setting.coordinates
    counts = expected_counts(model, items, nodes, setting.log_weights, problem.data)
    derivatives = expected_derivatives(model, coordinates, nodes, counts, setting.frame)
    free_pairs = problem.free[:, :, None] & problem.free[:, None, :]
    identity = jnp.eye(free_pairs.shape[1], dtype=setting.nodes.dtype)
    blocks = jnp.where(free_pairs, derivatives.curvature, identity)
    at, standard = counts.nodes, setting.standard
    total, first, second = jnp.sum(at), at @ standard, at @ standard**2
    shifted = float(problem.anchored)
    scaled = float(problem.anchored or not model.family.has_slope)
    cross = shifted * 2 * first / sd
    log_prior = lambda log_sd: model.log_common_slope_prior(jnp.exp(log_sd))
    prior = jax.grad(jax.grad(log_prior))(jnp.log(sd))
    corner = shifted * total / sd**2 + (1 - shifted)
    last = scaled * (2 * second - prior) + (1 - scaled)
    return blocks, jnp.stack([jnp.stack([corner, cross]), jnp.stack([cross, last])])


def frame_rows_of(setting: Setting, whitening: Whitening) -> Array:
    """Two rows of C for the frame of the priors, which is estimated too.

    Eliminating a frame v from the joint information leaves I_xx - I_xv I_vv^-1 I_vx.
    """
    problem, frame = setting.problem, setting.frame
    model, free = problem.model, problem.free
    zeros = jnp.zeros((2, free.size + 2), setting.nodes.dtype)
    if not model.priors or problem.anchored:
        return zeros
    movable = jnp.asarray([1.0, float(model.family.has_slope)], frame.dtype)
    by_frame = jax.grad(model.log_prior_in, argnums=1)
    second = jax.vmap(jax.jacfwd(by_frame, argnums=(0, 1)), in_axes=(0, None, 0))
    cross, own = (
        -part for part in second(setting.coordinates, frame, model.prior_weight)
    )
    cross = cross * movable[:, None] * free[:, None, :]
    own = jnp.sum(weigh_rows(own, problem.data.item_weight), axis=0)
    own = own * movable * movable[:, None] + jnp.diag(1 - movable)
    rows = jnp.moveaxis(cross, 1, 0).reshape(2, -1)
    # Priors on some parameters only leave a direction of the frame flat: no row.
    values, vectors = symmetric_eigen_2x2(own)
    steep = values > 1e4 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    root = jnp.sqrt(jnp.where(steep, values, 1))
    rows = jnp.where(steep, 1 / root, 0)[:, None] * (vectors.T @ rows)
    return whitening.rows(zeros.at[:, :-2].set(rows))


def sum_blocks(setting, whitening, num_terms: int, body, zeros):
    """`fold_blocks` of all subjects, from zeros, over the devices that have them."""

    def of_some(part: AbstractResponses, _: Any) -> tuple[Any, None]:
        own = with_data(setting, part)
        return fold_blocks(own, whitening, num_terms, body, zeros), None

    return setting.problem.data.fold(of_some)[0]


def with_data(setting: Setting, part: AbstractResponses) -> Setting:
    """The setting with the responses of some of the subjects."""
    problem = eqx.tree_at(lambda x: x.data, setting.problem, part)
    return setting._replace(problem=problem)


def fold_blocks(setting, whitening, num_terms: int, body, init):
    """Folds `body(carry, rows, start)` with rows `[terms + 1, block, parameters]`."""
    size = _block_size(setting, num_terms + 1)

    def step(carry, start, is_new):
        gradients = ability_block(setting, start, size, num_terms).gradients
        root = jnp.where(is_new, jnp.sqrt(block_weights(setting, start, size)), 0)
        return body(carry, whitening.rows(gradients) * root[None, :, None], start)

    return scan_subject_blocks(step, init, setting.problem.data.num_subjects, size)


def sum_nodes(setting, whitening, body, zeros):
    """`_fold_nodes` of all subjects, from zeros, over the devices that have them."""
    of_some = lambda part, _: (
        _fold_nodes(with_data(setting, part), whitening, body, zeros),
        None,
    )
    return setting.problem.data.fold(of_some)[0]


def _fold_nodes(setting, whitening, body, init):
    """Folds `body(carry, rows)` over blocks of subjects and over nodes.

    Rows of node k are sqrt(w p_k) (s_k - E[s]), p the posterior and w the weight of a
    subject: summed over k, their outer products are the covariance of its gradient.
    """
    size = _block_size(setting, 4)

    def step(carry, start, is_new):
        block = ability_block(setting, start, size, 0)
        weight = jnp.where(is_new, block_weights(setting, start, size), 0)

        def at_node(carry, k):
            items = lambda table: jnp.broadcast_to(table[k], (size, *table.shape[1:]))
            scale = jnp.broadcast_to(setting.scale_gradients[:, k], (size, 2))
            gradients = _gradients_at(setting, block.cells, items, scale)
            root = jnp.sqrt(weight * block.posterior[:, k])
            gap = (gradients - block.gradients[0]) * root[:, None]
            return body(carry, whitening.rows(gap)), None

        return lax.scan(at_node, carry, jnp.arange(setting.nodes.size))[0]

    return scan_subject_blocks(step, init, setting.problem.data.num_subjects, size)


def _fold_cells(setting, whitening, num_terms: int, body, init, numbers: int):
    """Folds `body(carry, places, rows, scale)` over chunks of subjects of sparse data.

    A row of C is 0 but at the items that its subject answered, `places`
    `[subjects, width]`: it is formed there alone, `rows`
    `[subjects, terms, width, columns]`, and for the population, `scale`
    `[subjects, terms, 2]`. `numbers` are made for each cell beside the rows. Returns
    the result, and `[terms, 2]` for all subjects without a response.
    """
    data: Any = setting.problem.data
    family, free = setting.problem.model.family, setting.problem.free
    dtype = setting.nodes.dtype
    log_lik = log_likelihood_at_nodes(setting.problem.model, setting.tables, data)
    posterior = jax.nn.softmax(log_lik + setting.log_weights, axis=1)
    weight = data.subject_weight
    root = jnp.ones(data.num_subjects, dtype)
    root = root if weight is None else jnp.sqrt(weight.astype(dtype))
    slopes_of_items = [jnp.moveaxis(slopes, 0, 1) for slopes in setting.slopes]

    def of_scale(moments: Array) -> Array:
        return moments @ setting.scale_gradients.T @ whitening.scale.T

    def chunk(carry, part: Bucket):
        places = part.column
        own = posterior.at[part.row].get(mode="clip")
        each = root.at[part.row].get(mode="fill", fill_value=0)
        basis = jnp.stack(_orthonormal(own, setting.standard, num_terms)[1:], 1)
        moments = own[:, None] * basis * each[:, None, None]
        statistics = part.exposure, *family.statistics(part.value)
        table = sum(
            number.astype(dtype)[..., None, None] * slopes[places]
            for number, slopes in zip(statistics, slopes_of_items, strict=True)
        )
        rows = jnp.einsum("rtq,rwqc->rtwc", moments, table) * free[places][:, None]
        rows = jnp.einsum("rwab,rtwb->rtwa", whitening.items[places], rows)
        return body(carry, places, rows, of_scale(moments))

    tables = free.shape[1] * len(slopes_of_items) * setting.nodes.shape[0]
    result = fold_rows(data.subjects, chunk, init, tables + numbers)
    met = jnp.zeros(data.num_subjects, bool)
    for bucket in data.subjects:
        met = met.at[bucket.row.ravel()].set(True, mode="drop")
    prior = jnp.exp(setting.log_weights - jax.nn.logsumexp(setting.log_weights))[None]
    basis = jnp.stack(_orthonormal(prior, setting.standard, num_terms)[1:], 1)
    alone = of_scale(prior[:, None] * basis)[0]
    return result, jnp.sqrt(jnp.sum(jnp.where(met, 0, root**2))) * alone


def sparse_gram(setting: Setting, whitening: Whitening, num_terms: int) -> Array:
    """C'C of sparse responses: each subject adds to the items it answered."""
    num_items, columns = setting.problem.free.shape
    size = num_items * columns + 2

    def body(gram, places, rows, scale):
        joined = jnp.concatenate([rows.reshape(*rows.shape[:2], -1), scale], axis=2)
        own = (places[..., None] * columns + jnp.arange(columns)).reshape(len(rows), -1)
        last = jnp.broadcast_to(jnp.arange(size - 2, size), (len(rows), 2))
        index = jnp.concatenate([own, last], axis=1)
        added = jnp.einsum("rti,rtj->rij", joined, joined)
        return gram.at[index[:, :, None], index[:, None, :]].add(added)

    init = jnp.zeros((size, size), setting.nodes.dtype)
    data: Any = setting.problem.data
    widths = [bucket.column.shape[-1] for bucket in data.subjects]
    numbers = columns**2 * max(widths, default=1)
    gram, alone = _fold_cells(setting, whitening, num_terms, body, init, numbers)
    return gram.at[-2:, -2:].add(alone.T @ alone)


def sparse_products(
    setting: Setting, whitening: Whitening, num_terms: int, vectors: Array
) -> tuple[Array, Array]:
    """C'C V and the blocks of the items in C'C, of sparse responses."""
    (num_items, columns), rank = setting.problem.free.shape, vectors.shape[1]
    dtype = setting.nodes.dtype
    by_item = vectors[:-2].reshape(num_items, columns, rank)
    by_scale = vectors[-2:]

    def body(carry, places, rows, scale):
        sums, scale_sums, blocks = carry
        product = jnp.einsum("rtwc,rwck->rtk", rows, by_item[places]) + scale @ by_scale
        added = jnp.einsum("rtwc,rtk->rwck", rows, product)
        return (
            sums.at[places].add(added),
            scale_sums + jnp.einsum("rta,rtk->ak", scale, product),
            blocks.at[places].add(jnp.einsum("rtwa,rtwb->rwab", rows, rows)),
        )

    init = (
        jnp.zeros((num_items, columns, rank), dtype),
        jnp.zeros((2, rank), dtype),
        jnp.zeros((num_items, columns, columns), dtype),
    )
    numbers = columns * 2 * rank
    (sums, scale_sums, blocks), alone = _fold_cells(
        setting, whitening, num_terms, body, init, numbers
    )
    scale_sums = scale_sums + alone.T @ (alone @ by_scale)
    return jnp.concatenate([sums.reshape(-1, rank), scale_sums]), blocks
