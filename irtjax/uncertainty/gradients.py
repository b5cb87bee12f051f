"""Subjects' scores on orthonormal polynomials of their posteriors, block by block."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.data.responses import Responses
from irtjax.likelihood.counts import (
    block_log_likelihood,
    expected_counts,
    expected_derivatives,
)
from irtjax.likelihood.problem import Problem
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    scan_subject_blocks,
    symmetric_eigen_2x2,
    take_block,
)


class Setting(NamedTuple):
    """Everything fixed while scores are formed block by block."""

    model: Model
    data: Responses
    tables: tuple[Array, ...]
    slopes: tuple[tuple[Array, ...], ...]
    nodes: Array
    log_weights: Array
    standard: Array
    scale_scores: Array
    free: Array
    frame: Array


def _coordinate_tables(model: Model, coordinates, nodes) -> tuple:
    """D g_k / d column at every node and item: [k][column] of `[nodes, items]`."""
    family = model.family
    columns = family.num_columns
    unit = jnp.eye(columns, dtype=coordinates.dtype)

    def along(column):
        def cell(row, node):
            natural = lambda r: family.natural(family.constrain(r), node)  # noqa: E731
            return jax.jvp(natural, (row,), (unit[column],))[1]

        over_items = jax.vmap(cell, in_axes=(0, None))
        return jax.vmap(over_items, in_axes=(None, 0))(coordinates, nodes)

    per_column = [along(column) for column in range(columns)]
    return tuple(zip(*per_column, strict=True))


def make_setting(
    problem: Problem, coordinates, population: Population, nodes, log_weights
) -> Setting:
    """Tables and derivatives at the nodes; see `item_covariance` for the arguments."""
    model = problem.model
    theta = population.mean + population.sd * nodes
    items = model.constrain(coordinates)
    frame = jnp.zeros(2, nodes.dtype)
    if not problem.anchored:
        frame = model.prior_frame(coordinates, frame, num_newton=30)
    # Complete-data scores of the population's mean and log sd, where estimated.
    sd = population.sd
    estimated = jnp.asarray(
        [problem.anchored, problem.anchored or not model.family.has_slope], nodes.dtype
    )
    scale_scores = jnp.stack([nodes / sd, nodes**2 - 1]) * estimated[:, None]
    return Setting(
        model,
        problem.data,
        model.family.table(items, theta),
        _coordinate_tables(model, coordinates, theta),
        theta,
        log_weights,
        nodes,
        scale_scores,
        problem.free,
        frame,
    )


def _orthonormal(posterior, nodes, num_terms: int) -> list[Array]:
    """Polynomials orthonormal under each row of weights, degrees 0 to `num_terms`.

    The Stieltjes three-term recurrence, for all subjects at once; `[block, nodes]`
    each. A posterior on fewer nodes than terms leaves the higher ones at zero.
    """
    mean = posterior @ nodes
    centred = nodes[None, :] - mean[:, None]
    spread = jnp.sqrt(jnp.sum(posterior * centred**2, axis=1, keepdims=True))
    tiny = jnp.sqrt(jnp.finfo(nodes.dtype).eps)
    argument = centred / jnp.maximum(spread, tiny)
    previous, current = jnp.zeros_like(argument), jnp.ones_like(argument)
    basis, beta = [current], jnp.zeros_like(spread)
    for _ in range(num_terms):
        alpha = jnp.sum(posterior * argument * current**2, axis=1, keepdims=True)
        following = (argument - alpha) * current - beta * previous
        beta = jnp.sqrt(jnp.sum(posterior * following**2, axis=1, keepdims=True))
        following = jnp.where(beta > tiny, following / jnp.maximum(beta, tiny), 0)
        previous, current = current, following
        basis.append(current)
    return basis


class AbilityBlock(NamedTuple):
    """A block of subjects on the polynomials of their posteriors.

    Attributes:
        posterior: `[block, nodes]`.
        basis: The polynomials, each `[block, nodes]`.
        scores: `[terms + 1, block, items * columns + 2]` coefficients c_im; term 0 is
            the subject's marginal score, the last two columns are the population's
            mean and log sd.
    """

    posterior: Array
    basis: list[Array]
    scores: Array


def ability_block(
    setting: Setting, start: Array, size: int, num_terms: int
) -> AbilityBlock:
    """Posteriors and score coefficients of a block of subjects."""
    model, data = setting.model, setting.data
    log_lik, statistics, exposure = block_log_likelihood(
        model, setting.tables, setting.nodes, data, start, size
    )
    posterior = jax.nn.softmax(log_lik + setting.log_weights, axis=1)
    every = _orthonormal(posterior, setting.standard, num_terms)
    terms = []
    for basis in every:
        moments = posterior * basis
        base, *rest = setting.slopes
        columns = []
        for column, table in enumerate(base):
            total = moments @ table
            if exposure is not None:
                total = total * exposure
            for statistic, slopes in zip(statistics, rest, strict=True):
                total = total + statistic * (moments @ slopes[column])
            columns.append(total)
        items = jnp.stack(columns, -1) * setting.free
        scale = moments @ setting.scale_scores.T
        terms.append(jnp.concatenate([items.reshape(size, -1), scale], axis=1))
    return AbilityBlock(posterior, every, jnp.stack(terms))


def _block_scores(setting: Setting, start, size: int, num_terms: int):
    """Coefficients c_im of a block of subjects, and the subjects' weights `[block]`."""
    scores = ability_block(setting, start, size, num_terms).scores
    weight = jnp.ones(size, scores.dtype)
    if setting.data.subject_weight is not None:
        weight = take_block(setting.data.subject_weight, start, size)
        weight = weight.astype(scores.dtype)
    return scores, weight


class Whitening(NamedTuple):
    """Inverse Cholesky factors F^-1 of the blocks of D: items, then the population."""

    items: Float[Array, "items columns columns"]
    scale: Float[Array, "2 2"]

    def rows(self, scores: Array) -> Array:
        """Each row c of `[..., parameters]` as (F^-1 c)."""
        columns = self.items.shape[1]
        items = scores[..., :-2].reshape(*scores.shape[:-1], -1, columns)
        white = jnp.einsum("jab,...jb->...ja", self.items, items)
        scale = scores[..., -2:] @ self.scale.T
        return jnp.concatenate([white.reshape(scores[..., :-2].shape), scale], -1)

    def covariance(self, blocks: Array, scale: Array, cross: Array):
        """Blocks of F'^-1 B F^-1 from the blocks of B."""
        items = jnp.einsum("jba,jbc,jcd->jad", self.items, blocks, self.items)
        both = jnp.einsum("jba,jbc,cd->jad", self.items, cross, self.scale)
        return items, self.scale.T @ scale @ self.scale, both

    def unwhiten(self, rows: Array):
        """Rows U as U F^-1: `[rank, items, columns]`, and those of the population."""
        num_items, columns, _ = self.items.shape
        items = rows[:, :-2].reshape(-1, num_items, columns)
        return jnp.einsum("rjb,jba->rja", items, self.items), rows[:, -2:] @ self.scale


def complete_information(setting: Setting, problem, coordinates, population):
    """D: blocks `[items, columns, columns]` and `[2, 2]` of the population."""
    model = setting.model
    items = model.constrain(coordinates)
    counts = expected_counts(
        model, items, setting.nodes, setting.log_weights, problem.data
    )
    derivatives = expected_derivatives(
        model, coordinates, setting.nodes, counts, setting.frame
    )
    both = problem.free[:, :, None] & problem.free[:, None, :]
    identity = jnp.eye(both.shape[1], dtype=setting.nodes.dtype)
    blocks = jnp.where(both, derivatives.curvature, identity)
    at, standard, sd = counts.nodes, setting.standard, population.sd
    total, first, second = jnp.sum(at), at @ standard, at @ standard**2
    shifted = float(problem.anchored)
    scaled = float(problem.anchored or not model.family.has_slope)
    cross = shifted * 2 * first / sd
    log_prior = lambda log_sd: model.log_common_slope_prior(jnp.exp(log_sd))  # noqa: E731
    prior = jax.grad(jax.grad(log_prior))(jnp.log(sd))
    corner = shifted * total / sd**2 + (1 - shifted)
    last = scaled * (2 * second - prior) + (1 - scaled)
    return blocks, jnp.stack([jnp.stack([corner, cross]), jnp.stack([cross, last])])


def frame_rows_of(setting: Setting, problem, coordinates, whitening):
    """Two rows of C for the frame of the priors, which is estimated too.

    Eliminating a frame v from the joint information leaves I_xx - I_xv I_vv^-1 I_vx.
    """
    model, frame = setting.model, setting.frame
    size = setting.free.size + 2
    nothing = jnp.zeros((2, size), setting.nodes.dtype)
    if not model.priors or problem.anchored:
        return nothing
    movable = jnp.asarray([1.0, float(model.family.has_slope)], frame.dtype)

    def row_terms(row):
        by_frame = jax.grad(model.log_prior_in, argnums=1)
        cross = -jax.jacfwd(by_frame, argnums=0)(row, frame)
        return cross, -jax.jacfwd(by_frame, argnums=1)(row, frame)

    cross, own = jax.vmap(row_terms)(coordinates)
    cross = cross * movable[:, None] * setting.free[:, None, :]
    own = jnp.sum(own, axis=0) * movable * movable[:, None] + jnp.diag(1 - movable)
    rows = jnp.moveaxis(cross, 1, 0).reshape(2, -1)
    # Priors on some parameters only leave a direction of the frame flat: no row.
    values, vectors = symmetric_eigen_2x2(own)
    steep = values > 1e4 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    root = jnp.sqrt(jnp.where(steep, values, 1))
    rows = jnp.where(steep, 1 / root, 0)[:, None] * (vectors.T @ rows)
    return whitening.rows(nothing.at[:, :-2].set(rows))


def fold_blocks(setting, whitening, num_terms: int, body, init):
    """Folds `body(carry, rows)` over blocks, rows `[terms + 1, block, parameters]`."""
    num_subjects = setting.data.num_subjects
    bytes_each = (
        (num_terms + 1) * (setting.free.size + 2) * setting.nodes.dtype.itemsize
    )
    size = min(num_subjects, max(16, BLOCK_BYTES // bytes_each))
    size = -(-num_subjects // -(-num_subjects // size))

    def step(carry, start, is_new):
        scores, weight = _block_scores(setting, start, size, num_terms)
        root = jnp.where(is_new, jnp.sqrt(weight), 0)
        return body(carry, whitening.rows(scores) * root[None, :, None], start)

    return scan_subject_blocks(step, init, num_subjects, size)


def fold_nodes(setting, whitening, body, init):
    """Folds `body(carry, rows)` over blocks of subjects and over nodes.

    The rows `[block, parameters]` of node k are sqrt(w p_k) (s_k - E[s]), p the
    subject's posterior and w its weight. The sum of their outer products over k is the
    covariance of its score on the nodes, with nothing left out.
    """
    model, data = setting.model, setting.data
    num_subjects, count = data.num_subjects, setting.nodes.size
    bytes_each = 4 * (setting.free.size + 2) * setting.nodes.dtype.itemsize
    size = min(num_subjects, max(16, BLOCK_BYTES // bytes_each))
    size = -(-num_subjects // -(-num_subjects // size))

    def step(carry, start, is_new):
        mean = ability_block(setting, start, size, 0)
        _, statistics, exposure = block_log_likelihood(
            model, setting.tables, setting.nodes, data, start, size
        )
        weight = jnp.where(is_new, _block_scores(setting, start, size, 0)[1], 0)
        base, *rest = setting.slopes

        def at_node(carry, k):
            columns = []
            for column, table in enumerate(base):
                total = jnp.broadcast_to(table[k], (size, table.shape[1]))
                if exposure is not None:
                    total = total * exposure
                for statistic, slopes in zip(statistics, rest, strict=True):
                    total = total + statistic * slopes[column][k]
                columns.append(total)
            items = (jnp.stack(columns, -1) * setting.free).reshape(size, -1)
            scale = jnp.broadcast_to(setting.scale_scores[:, k], (size, 2))
            gap = jnp.concatenate([items, scale], axis=1) - mean.scores[0]
            root = jnp.sqrt(weight * mean.posterior[:, k])
            return body(carry, whitening.rows(gap * root[:, None])), None

        return lax.scan(at_node, carry, jnp.arange(count))[0]

    return scan_subject_blocks(step, init, num_subjects, size)
