"""Errors of items and scores of subjects, of responses that are read from disk.

Both are sums and maps over blocks of subjects, each with all of its cells in memory:
the functions are those of responses in memory (`covariance`, `scores`, `expected`).

The missing information C'C is a sum over subjects. Where these are more than `ENOUGH`,
or their sum takes more than `MOST_OPERATIONS`, it is that of evenly spaced blocks,
times the ratio of the numbers of subjects: its relative error is about
1 / sqrt(subjects taken).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.responses import Responses
from irtjax.data.stream import BLOCK_CELLS, ResponseStream
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.inference.covariance import (
    DENSE_LIMIT,
    EXACT_LIMIT,
    Covariance,
    complete_blocks,
    covariance_of_sums,
    default_terms,
    whitening_of,
)
from irtjax.inference.expected import (
    ExpectedScores,
    expected_scores,
    response_table_jit,
)
from irtjax.inference.gradients import (
    Whitening,
    make_setting,
    sum_blocks,
    sum_nodes,
)
from irtjax.inference.scores import score_on_nodes
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.streamed_counts import (
    CountsPiece,
    category_table,
    counts_of,
    map_pieces,
    streamed_counts,
)
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import note_share

#: Subjects of a sum of C'C: its error of .2 % changes a standard error by less.
ENOUGH = 200_000
#: Operations of a sum of C'C: about a minute on two cores.
MOST_OPERATIONS = 2e12
#: Subjects up to which what their errors share is returned, 800 bytes each. Errors of
#: items, which are what is shared, are small where more subjects responded.
SHARED = 100_000
#: Responses whose missing information is summed by item, about a minute, and at a time.
MOST_CELLS, CHUNK = 3 * 10**7, 2**14


class ScoresPiece(NamedTuple):
    """Subjects from `first` to before `end` with all of their cells, then padding."""

    first: int
    end: int
    data: Responses


def is_whole(problem: Problem) -> bool:
    """Whether the information of all parameters fits into one matrix."""
    return problem.free.size + 2 <= DENSE_LIMIT


def pieces_of(
    stream: ResponseStream, segment: int, step: int = 1
) -> Iterator[ScoresPiece]:
    """All cells of the subjects of a segment, as many at a time as fill a block.

    With `step`, the first piece and every step-th after it alone.
    """
    num_subjects, num_items = stream.shape
    size = max(1, min(num_subjects, BLOCK_CELLS // num_items))
    place = 0
    for block in stream.blocks(segment=segment):
        for start in range(0, block.num_subjects, size):
            place += 1
            if (place - 1) % step:
                continue
            count = min(size, block.num_subjects - start)
            values = block.rows(slice(start, start + count)).dense(num_items)
            full = np.zeros((size, num_items), np.int8)
            full[:count] = values
            weight = (np.arange(size) < count).astype(np.float64)
            observed = None if stream.is_complete else jnp.asarray(full >= 0)
            codes = stream.codes[np.maximum(full, 0)]
            data = Responses(
                jnp.asarray(codes.astype(np.int8)),
                observed,
                subject_weight=jnp.asarray(weight),
            )
            yield ScoresPiece(block.first + start, block.first + start + count, data)


@stored_jit
def _gram(
    problem: Problem,
    coordinates: Array,
    population: Population,
    nodes: Array,
    whitening: Whitening,
    terms: int | None,
) -> Array:
    """C'C of the subjects of a piece."""
    setting = make_setting(problem, coordinates, population, nodes)
    size = problem.free.size + 2
    zero = jnp.zeros((size, size), nodes.dtype)
    if terms is None:
        add = lambda carry, rows: carry + rows.T @ rows
        return sum_nodes(setting, whitening, add, zero)

    def body(carry, rows, start):
        del start
        later = rows[1:].reshape(-1, size)
        return carry + later.T @ later

    return sum_blocks(setting, whitening, terms, body, zero)


@stored_jit
def _category_slopes(
    model: Model, coordinates: Array, codes: Array, theta: Array
) -> Float[Array, "items categories nodes columns"]:
    """Derivatives of the log-likelihood of each response in an item's coordinates."""
    family = model.family

    def of_categories(row: Array, node: Array) -> Array:
        base, *rest = family.natural(family.constrain(row), node)
        pairs = zip(family.statistics(codes), rest, strict=True)
        parts = [statistic.astype(row.dtype) * own for statistic, own in pairs]
        return base + sum(parts, start=jnp.zeros(codes.shape, row.dtype))

    over_nodes = jax.vmap(jax.jacfwd(of_categories), (None, 0), 1)
    return jax.vmap(over_nodes, (0, None))(coordinates, theta)


def _own_missing(
    stream: ResponseStream,
    table: np.ndarray,
    slopes: np.ndarray,
    log_weights: Any,
    centre: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a pass: counts by category and at nodes, and each item's missing information.

    The last is sum_i Cov_i[s_ij], s_ij the derivatives at the response of subject i to
    item j: second moments follow from the counts, products of means need every cell.
    """
    num_items, count, num_nodes, columns = slopes.shape
    step = max(1, stream.num_observed // MOST_CELLS)

    def sums(piece: CountsPiece) -> tuple[CountsPiece, np.ndarray, np.ndarray | None]:
        products = None if piece.number % step else _mean_products(piece, slopes)
        return piece, piece.category_sums(count), products

    def of_segment(segment: int) -> tuple[np.ndarray, ...]:
        total, at_nodes = np.zeros_like(table), np.zeros(num_nodes, table.dtype)
        own, means = np.zeros_like(table), np.zeros((num_items, columns, columns))
        taken = np.zeros(1, np.int64)
        pieces = map_pieces(sums, stream, segment, table, log_weights, centre)
        for piece, counts, products in pieces:
            total[:, :, piece.window] += counts
            at_nodes[piece.window] += piece.posterior.sum(axis=0)
            if products is not None:
                own[:, :, piece.window] += counts
                means += products
                taken += len(piece.rows)
        return total, at_nodes, own, means, taken

    total, at_nodes, own, means, taken = stream.processes.sum_segments(of_segment)
    second = np.einsum("jcq,jcqa,jcqb->jab", own, slopes, slopes, optimize=True)
    return total, at_nodes, (second - means) * (stream.shape[0] / taken)


def _mean_products(piece: CountsPiece, slopes: np.ndarray) -> np.ndarray:
    """Products of posterior means of derivatives `[items, columns, columns]`, summed.

    Over the responses of a piece: sum_i E_i[s_ij] E_i[s_ij]'.
    """
    num_items, count, _, columns = slopes.shape
    flat = np.ascontiguousarray(slopes[:, :, piece.window]).reshape(
        num_items * count, -1, columns
    )
    products = np.zeros((columns, columns, num_items))
    row, pair = piece.cells.pairs(count)
    for start in range(0, len(pair), CHUNK):
        part = slice(start, start + CHUNK)
        mean = (piece.posterior[row[part], None] @ flat[pair[part]])[:, 0]
        item = pair[part] // count
        for a in range(columns):
            for b in range(a + 1):
                product = mean[:, a] * mean[:, b]
                products[a, b] += np.bincount(item, product, minlength=num_items)
                products[b, a] = products[a, b]
    return np.moveaxis(products, 2, 0)


def _own_covariance(
    problem: Problem,
    coordinates: Array,
    population: Population,
    nodes: Array,
    centre: np.ndarray | None,
) -> Covariance:
    """Covariances of the items' coordinates, each item given the others."""
    data: Any = problem.data
    stream, model = data.source, problem.model
    codes, theta = jnp.asarray(stream.codes), population.mean + population.sd * nodes
    items = model.constrain(coordinates)
    table = np.asarray(category_table(model, items, codes, theta))
    slopes = np.asarray(_category_slopes(model, coordinates, codes, theta))
    log_weights = np.asarray(population.log_weights_at(nodes), table.dtype)
    total, at_nodes, missing = _own_missing(stream, table, slopes, log_weights, centre)
    zeros = jnp.zeros(stream.shape[0], table.dtype)
    counts = counts_of(model, data, total, at_nodes, zeros, zeros.astype(jnp.int32))
    light = dataclasses.replace(problem, data=data.with_sums(counts))
    blocks = np.asarray(complete_blocks(light, coordinates, population, nodes))
    free = np.asarray(problem.free)
    pairs = free[:, :, None] & free[:, None, :]
    information = np.where(pairs, blocks - missing, np.eye(free.shape[1]))
    values, vectors = np.linalg.eigh(information)
    least = np.finfo(table.dtype).eps ** 0.5 * values[:, -1:]
    flat = values <= least
    inverse = lambda weight: (vectors * weight[:, None]) @ np.swapaxes(vectors, 1, 2)
    divisor = np.maximum(np.abs(values), np.maximum(least, 1e-300))
    covariance = Covariance.of_independent(
        jnp.asarray(np.where(pairs, inverse(np.where(flat, 0, 1 / divisor)), 0))
    )
    lost = np.where(pairs, inverse(np.where(flat, 1 / divisor, 0)), 0)
    return covariance._replace(lost=(jnp.asarray(lost), *covariance.lost[1:]))


def streamed_covariance(
    problem: Problem,
    coordinates: Float[Array, "items columns"],
    population: Population,
    nodes: Float[Array, " nodes"],
    centre: np.ndarray | None = None,
) -> Covariance:
    """`item_covariance` of streamed responses, by the observed information.

    Args:
        problem: The problem that was fitted. Where its parameters do not fit into one
            matrix (`is_whole`), errors of an item are those given the other items.
        coordinates: Unconstrained item coordinates at the estimate.
        population: Population at the estimate, on the scale of the coordinates.
        nodes: Standardised quadrature nodes.
        centre: `[subjects]` the node nearest to each posterior, if it is known.
    """
    if not is_whole(problem):
        return _own_covariance(problem, coordinates, population, nodes, centre)
    data: Any = problem.data
    stream: ResponseStream = data.source
    model = problem.model
    counts = streamed_counts(
        model,
        model.constrain(coordinates),
        population.mean + population.sd * nodes,
        population.log_weights_at(nodes),
        data,
        centre=centre,
    )
    of = coordinates, population, nodes
    light = dataclasses.replace(problem, data=data.with_sums(counts))
    whitening = whitening_of(light, *of)
    size, num_subjects = problem.free.size + 2, stream.shape[0]
    terms = None
    work = 2.0 * num_subjects * size**2
    if work * nodes.size > EXACT_LIMIT:
        terms = default_terms(data)
        if getattr(model.family, "asymptotes", 0):
            terms = max(terms, 20)
    step = max(1, num_subjects // ENOUGH, int(work * (terms or 1) / MOST_OPERATIONS))

    def of_segment(segment: int) -> tuple[np.ndarray, ...]:
        gram, taken = jnp.zeros((size, size), nodes.dtype), 0
        for piece in pieces_of(stream, segment, step):
            part = dataclasses.replace(problem, data=piece.data)
            gram = gram + _gram(part, *of, whitening, terms)
            taken += piece.end - piece.first
        return np.array(gram), np.array([taken])

    gram, taken = stream.processes.sum_segments(of_segment)
    whole = jnp.asarray(gram * (num_subjects / taken))
    light = dataclasses.replace(problem, data=data.with_sums(counts, whole))
    return covariance_of_sums(light, *of)


_score_jit = stored_jit(score_on_nodes)


def streamed_scores(
    model: Model,
    items: Items,
    population: Population,
    data: StreamedResponses,
    nodes: Float[Array, " nodes"],
    covariance: Covariance | None,
    centre: np.ndarray | None = None,
) -> dict[str, Any]:
    """EAP abilities and expected scores of all subjects, by one pass.

    By the names of fields of `irtjax.estimators.estimates.Estimates`. What errors of
    abilities share is returned of up to `SHARED` subjects.

    Args:
        model: The model.
        items: Item records, `[items]`.
        population: Population of ability.
        data: The responses.
        nodes: Standardised quadrature nodes.
        covariance: That of the items, whose uncertainty errors include; None, or one
            of independent items, takes them as known.
        centre: `[subjects]` the node nearest to each posterior, if it is known.
    """
    stream = data.source
    if covariance is None or not len(covariance.shared):
        return _scores_at_nodes(model, items, population, stream, nodes, centre)
    num_subjects, processes = stream.shape[0], stream.processes
    columns, shared = np.zeros((4, num_subjects)), None
    if num_subjects <= SHARED:
        shared = np.zeros((num_subjects, len(covariance.shared)))
    bounds = jnp.asarray([-6.0, 6.0], nodes.dtype)
    every = processes.own(num_subjects)
    pieces = (x for k in processes.own_segments for x in pieces_of(stream, k))
    for piece in pieces:
        of = model, items, population, piece.data
        scores = _score_jit(*of, nodes, bounds, covariance, scoring="eap")
        expected = expected_scores(*of, nodes, covariance)
        own = slice(piece.first, piece.end)
        parts = scores.ability, scores.standard_error, *expected
        for column, part in zip(columns, parts, strict=True):
            column[own] = np.asarray(part)[: piece.end - piece.first]
        if shared is not None:
            shared[own] = np.asarray(scores.shared)[: piece.end - piece.first]
        note_share((own.stop - every.start) / (every.stop - every.start), "scores")
    if shared is not None:
        shared = processes.gather_rows(shared)
    columns = processes.gather_rows(columns)
    ability, error, response, response_error = columns
    return _fields(ability, error, response, response_error, shared)


def _fields(ability, error, expected, expected_error, shared) -> dict[str, Any]:
    """Fields of `Estimates`."""
    scores = ExpectedScores(jnp.asarray(expected), jnp.asarray(expected_error))
    return {"ability": ability, "error": error, "shared": shared, "expected": scores}


def _scores_at_nodes(
    model: Model,
    items: Items,
    population: Population,
    stream: ResponseStream,
    nodes: Float[Array, " nodes"],
    centre: np.ndarray | None,
) -> dict[str, Any]:
    """Means and standard deviations of posteriors on the nodes, items as known.

    A pass as those of EM. Posteriors narrower than the nodes have the width of these,
    as in `scores` and `expected`.
    """
    theta = population.mean + population.sd * nodes
    table = np.asarray(category_table(model, items, jnp.asarray(stream.codes), theta))
    log_weights = np.asarray(population.log_weights_at(nodes), table.dtype)
    responses = response_table_jit(model.family, items, theta)
    at_nodes = np.stack([np.asarray(theta), np.asarray(responses).mean(axis=1)], axis=1)
    least = np.gradient(at_nodes, axis=0) ** 2 / 12
    columns = np.zeros((4, stream.shape[0]))

    def moments(piece: CountsPiece) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = piece.posterior @ at_nodes[piece.window]
        square = piece.posterior @ at_nodes[piece.window] ** 2 - own**2
        narrowest = piece.posterior @ least[piece.window]
        return piece.rows, own, np.maximum(square, narrowest)

    for segment in stream.processes.own_segments:
        pieces = map_pieces(moments, stream, segment, table, log_weights, centre)
        for rows, mean, variance in pieces:
            columns[::2, rows], columns[1::2, rows] = mean.T, np.sqrt(variance.T)
    ability, error, response, response_error = stream.processes.gather_rows(columns)
    return _fields(ability, error, response, response_error, None)
