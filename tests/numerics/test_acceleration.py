"""Anderson acceleration on maps whose fixed point is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.numerics.acceleration import accelerate, empty_memory, forget


def _iterate(function, point, depth, steps):
    memory = empty_memory(point.size, depth, point.dtype)
    weight = jnp.ones_like(point)
    for _ in range(steps):
        point, memory = accelerate(memory, point, function(point), weight)
    return point, memory


def _linear(size, seed=0):
    """A contraction x -> M x + c with eigenvalues up to 0.95, and its fixed point."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix = basis @ np.diag(np.linspace(0.2, 0.95, size)) @ basis.T
    shift = rng.normal(size=size)
    solution = np.linalg.solve(np.eye(size) - matrix, shift)
    return lambda x: jnp.asarray(matrix) @ x + jnp.asarray(shift), solution


def test_the_first_proposal_is_the_image():
    function, _ = _linear(3)
    start = jnp.zeros(3)
    memory = empty_memory(3, 4, start.dtype)
    proposal, memory = accelerate(memory, start, function(start), jnp.ones(3))
    np.testing.assert_array_equal(proposal, function(start))
    assert int(memory.num_seen) == 1


@pytest.mark.parametrize("size", [2, 4])
def test_a_linear_map_is_solved_in_as_many_steps_as_dimensions(size):
    # It is then equivalent to GMRES (Walker and Ni 2011): exact after size + 1 images;
    # the map itself would shrink the error by 0.95 a step.
    function, solution = _linear(size)
    point, _ = _iterate(function, jnp.zeros(size), depth=size, steps=size + 2)
    np.testing.assert_allclose(point, solution, rtol=1e-6, atol=1e-6)


def test_it_goes_on_when_the_memory_is_full():
    function, solution = _linear(6, seed=1)
    point, memory = _iterate(function, jnp.zeros(6), depth=3, steps=30)
    plain = jnp.zeros(6)
    for _ in range(30):
        plain = function(plain)
    # The map alone still has 0.95^30 = 0.2 of its error.
    error = np.abs(np.asarray(point) - solution).max()
    assert error < 1e-3 * np.abs(np.asarray(plain) - solution).max()
    assert int(memory.num_seen) == 30


def test_at_a_fixed_point_it_stays():
    function, solution = _linear(3)
    point, _ = _iterate(function, jnp.asarray(solution), depth=3, steps=5)
    np.testing.assert_allclose(point, solution, atol=1e-12)


def test_weights_of_zero_leave_coordinates_out_of_the_mix():
    # The third coordinate is wild, but does not count: the others are solved alike.
    function, solution = _linear(2)

    def wild(x):
        return jnp.append(function(x[:2]), jnp.sin(100 * x[2]))

    point, memory = jnp.zeros(3), empty_memory(3, 3, jnp.result_type(float))
    for _ in range(5):
        point, memory = accelerate(
            memory, point, wild(point), jnp.asarray([1.0, 1.0, 0.0])
        )
    np.testing.assert_allclose(point[:2], solution, rtol=1e-6)


def test_forgetting():
    function, _ = _linear(3)
    _, memory = _iterate(function, jnp.zeros(3), depth=3, steps=3)
    kept = forget(memory, jnp.asarray(False))
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(memory), strict=True):
        np.testing.assert_array_equal(a, b)
    empty = forget(memory, jnp.asarray(True))
    assert int(empty.num_seen) == 0 and not np.asarray(empty.points).any()
    proposal, _ = accelerate(empty, jnp.ones(3), 2 * jnp.ones(3), jnp.ones(3))
    np.testing.assert_array_equal(proposal, 2)
