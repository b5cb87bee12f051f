"""Kernels against scipy and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from irtjax.numerics.kernels import (
    after,
    block_size_for,
    equal_nodes,
    inverse_cholesky,
    log_add,
    log_sigmoid,
    normal_log_weights,
    positive_definite_solve,
    put_block,
    scan_subject_blocks,
    small_symmetric_eigen,
    softplus,
    symmetric_eigen_2x2,
    take_block,
)

few = settings(max_examples=25, deadline=None)


@few
@given(
    rows=st.integers(1, 5000),
    columns=st.integers(1, 10**6),
    size=st.sampled_from([4, 8]),
)
def test_blocks_are_balanced_and_cover_the_rows(rows, columns, size):
    block = block_size_for(rows, columns, size)
    assert 1 <= block <= rows
    num_blocks = -(-rows // block)
    # The last block lacks less than one row per block of being full.
    assert num_blocks * block - rows < num_blocks


@few
@given(rows=st.integers(1, 40), block=st.integers(1, 40))
def test_a_scan_sees_every_row_once(rows, block):
    block = min(rows, block)
    values = jnp.arange(1.0, rows + 1)

    def body(carry, start, is_new):
        total, copy = carry
        part = take_block(values, start, block)
        return total + jnp.sum(part * is_new), put_block(copy, part, start)

    init = (jnp.zeros(()), jnp.zeros(rows))
    total, copy = scan_subject_blocks(body, init, rows, block)
    assert float(total) == rows * (rows + 1) / 2
    np.testing.assert_array_equal(copy, values)


def test_take_block_of_none_is_none():
    assert take_block(None, jnp.zeros((), int), 3) is None


@few
@given(size=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_a_positive_definite_system_is_solved_exactly(size, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, size, size))
    matrix = root @ root.swapaxes(1, 2) + 0.1 * np.eye(size)
    vector = rng.normal(size=(5, size))
    solution, pivots = positive_definite_solve(jnp.asarray(matrix), jnp.asarray(vector))
    np.testing.assert_allclose(
        solution,
        np.linalg.solve(matrix, vector[..., None])[..., 0],
        rtol=1e-8,
        atol=1e-9,
    )
    np.testing.assert_allclose(
        np.prod(pivots, axis=1), np.linalg.det(matrix), rtol=1e-8
    )


@few
@given(size=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_an_indefinite_system_still_gives_a_direction_of_ascent(size, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size, size))
    matrix = jnp.asarray(matrix + matrix.T)
    vector = jnp.asarray(rng.normal(size=size))
    solution, pivots = positive_definite_solve(matrix, vector)
    assert bool((pivots > 0).all())
    assert float(solution @ vector) > 0


def test_a_matrix_of_zeros_is_survived():
    solution, _ = positive_definite_solve(jnp.zeros((2, 2)), jnp.zeros(2))
    np.testing.assert_array_equal(solution, 0)


def test_normal_weights_sum_to_one_and_keep_the_moments():
    nodes = equal_nodes(-6.0, 6.0, 61)
    weights = np.exp(normal_log_weights(jnp.asarray(nodes)))
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    # The mass beyond +-6, 2e-9, is what the rule leaves out.
    assert weights @ nodes**2 == pytest.approx(1, abs=1e-7)
    assert weights @ nodes**4 == pytest.approx(3, abs=1e-5)
    expected = stats.norm.pdf(nodes) * 0.2
    np.testing.assert_allclose(weights, expected, rtol=1e-8)


@pytest.mark.parametrize("spacing", [1.0, 1.5, 2.0])
def test_the_documented_error_of_the_trapezoid_rule(spacing):
    # The worst placement of the nodes about a normal integrand of sd 1; the formula
    # is the first term of a rapidly converging series.
    worst = 0.0
    for shift in np.linspace(0, spacing, 21):
        nodes = np.arange(-20, 21) * spacing + shift
        worst = max(worst, abs(spacing * stats.norm.pdf(nodes).sum() - 1))
    assert worst == pytest.approx(2 * np.exp(-2 * (np.pi / spacing) ** 2), rel=1e-3)


def test_the_kernels_keep_single_precision():
    weights = normal_log_weights(jnp.linspace(-6, 6, 61, dtype=jnp.float32))
    solution, _ = positive_definite_solve(
        jnp.eye(2, dtype=jnp.float32)[None], jnp.ones((1, 2), jnp.float32)
    )
    assert weights.dtype == solution.dtype == jax.numpy.float32


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_small_inverse_factors_agree_with_lapack(size):
    root = np.random.default_rng(size).normal(size=(4, size, size))
    matrix = root @ root.transpose(0, 2, 1) + np.eye(size)
    found = inverse_cholesky(jnp.asarray(matrix))
    wanted = np.linalg.inv(np.linalg.cholesky(matrix))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_the_inverse_factor_of_an_indefinite_matrix_is_not_a_number():
    matrix = jnp.array([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]])
    found = np.isfinite(inverse_cholesky(matrix)).all(axis=(1, 2))
    assert found.tolist() == [False, True]


@few
@given(st.tuples(*(st.floats(-5, 5),) * 3))
def test_two_by_two_eigenvectors_rebuild_the_matrix(entries):
    a, b, c = entries
    matrix = np.array([[a, b], [b, c]])
    values, vectors = symmetric_eigen_2x2(jnp.asarray(matrix))
    rebuilt = vectors @ jnp.diag(values) @ vectors.T
    np.testing.assert_allclose(rebuilt, matrix, atol=1e-13 * 10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-13)


def test_log_sums_and_their_derivatives_are_the_formulas():
    x = np.array([-800.0, -35.0, -2.0, 0.0, 0.3, 35.0, 800.0])
    at, chance = jnp.asarray(x), special.expit(x)
    wanted = (
        np.logaddexp(x, 0),
        chance,
        chance * special.expit(-x),
        chance * special.expit(-x) * (1 - 2 * chance),
    )
    for function in (softplus, lambda x: log_add(x, jnp.zeros_like(x))):
        for values in wanted:
            found = jax.vmap(function)(at)
            np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-15)
            function = jax.grad(function)
    # Either argument moves the sum by its share, and both by the same move it whole.
    by_second = jax.vmap(jax.grad(log_add, 1))(at, jnp.ones(7))
    np.testing.assert_allclose(by_second, special.expit(1 - x), rtol=1e-12)
    np.testing.assert_allclose(log_sigmoid(at), -np.logaddexp(0, -x), rtol=1e-15)


def test_a_value_after_another_is_unchanged():
    value = jnp.arange(3.0)
    np.testing.assert_array_equal(after(value, jnp.array([jnp.nan])), value)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_small_eigenvectors_agree_with_lapack(size):
    root = np.random.default_rng(size).normal(size=(20, size, size))
    matrix = jnp.asarray(root + root.transpose(0, 2, 1))
    values, vectors = jax.vmap(small_symmetric_eigen)(matrix)
    wanted = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(np.sort(values), wanted, rtol=1e-10, atol=1e-12)
    rebuilt = jnp.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    np.testing.assert_allclose(rebuilt, matrix, atol=1e-12)
