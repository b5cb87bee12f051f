"""Bounds over observed cells by segment sums are the dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax import functional as fn
from irtjax.data.responses import Responses
from irtjax.estimators.joint.bound import BilinearParameters, sweep
from irtjax.estimators.joint.cells import cells_of
from irtjax.models import catalogue
from irtjax.models.factors import Factor

SUBJECTS, ITEMS, SHARE = 40, 23, 0.3

#: One program in place of one for each operation.
cell_bounds = jax.jit(fn.cell_bounds, static_argnames="curvature")
log_likelihood = jax.jit(fn.log_likelihood)
slopes_of = jax.jit(jax.grad(fn.log_likelihood, argnums=(1, 2)))


def case(dims: int, link: str = "logit", dtype=float):
    """A model, a point, and cells in no order; one subject has no response."""
    rng = np.random.default_rng(dims)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    seen = rng.random((SUBJECTS, ITEMS)) < SHARE
    seen[3], seen[:, 5] = False, False
    values = (rng.integers(0, 2, seen.shape) * seen).astype(np.int8)
    rows, columns = rng.permutation(np.argwhere(seen)).T
    if dims:
        model = catalogue.factor_model(Factor(factors=dims))
        slope, theta = draw(ITEMS, dims), draw(SUBJECTS, dims)
    else:
        name = "two_parameter" if link == "logit" else "probit_two_parameter"
        model = getattr(catalogue, name)()
        slope, theta = draw(ITEMS), draw(SUBJECTS)
    zero = jnp.zeros(ITEMS, dtype)
    items = model.family.Items(slope, draw(ITEMS), zero, zero + 1)
    cells = jnp.asarray(rows), jnp.asarray(columns), jnp.asarray(values[rows, columns])
    return model, items, theta, cells, (jnp.asarray(values), jnp.asarray(seen))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("dims", "link", "curvature"),
    [(0, "logit", "uniform"), (0, "probit", "uniform"), (3, "logit", "cell")],
)
def test_bounds_are_the_dense_ones(dims, link, curvature, weighted):
    model, items, theta, cells, dense = case(dims, link)
    rng = np.random.default_rng(9)
    weight = lambda n: jnp.asarray(rng.integers(0, 3, n), float) if weighted else None
    of_subjects, of_items = weight(SUBJECTS), weight(ITEMS)
    found = cell_bounds(
        model,
        items,
        theta,
        fn.observed_cells(*cells),
        temperature=0.7,
        curvature=curvature,
        subject_weight=of_subjects,
        item_weight=of_items,
    )
    data = Responses(*dense, subject_weight=of_subjects, item_weight=of_items)
    point = BilinearParameters(
        items.discrimination.reshape(ITEMS, -1),
        items.intercept,
        theta.reshape(SUBJECTS, -1),
    )
    dense_bounds = jax.jit(lambda *x: sweep(*x, 0.7, cells_of(model, curvature)))
    wanted = dense_bounds(data, point)
    for x, y in zip(
        found, (wanted.log_lik, *wanted.subjects, *wanted.items), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_log_likelihood():
    model, items, theta, cells, dense = case(2)
    found = cell_bounds(model, items, theta, fn.observed_cells(*cells))
    slopes = slopes_of(model, items, theta, *dense)
    by_item = jnp.concatenate(
        [slopes[0].intercept[:, None], slopes[0].discrimination], axis=1
    )
    np.testing.assert_allclose(found.item_gradient, by_item, atol=1e-12)
    np.testing.assert_allclose(found.subject_gradient, slopes[1], atol=1e-12)
    total = log_likelihood(model, items, theta, *dense)
    np.testing.assert_allclose(found.log_likelihood.sum(), total, rtol=1e-13)


def test_cells_may_be_traced_and_have_weights():
    """Other cells, and a weight of 0 or 2, in one vmap; a weight is that many cells."""
    model, items, theta, cells, _ = case(2)
    rng = np.random.default_rng(3)
    drawn = jnp.asarray(rng.integers(0, len(cells[0]), (4, len(cells[0]))))

    def bounds(rows, columns, values, weight):
        several = fn.observed_cells(rows, columns, values)
        return fn.cell_bounds(model, items, theta, several, cell_weight=weight)

    some = [cell[drawn] for cell in cells]
    resampled = jax.jit(jax.vmap(bounds))(*some, jnp.ones(drawn.shape))
    counts = jax.vmap(lambda x: jnp.bincount(x, length=len(cells[0])))(drawn) * 1.0
    weighted = jax.jit(jax.vmap(bounds, (None, None, None, 0)))(*cells, counts)
    for x, y in zip(resampled, weighted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_steps_never_lower_the_likelihood():
    model, items, theta, cells, _ = case(0)
    several = fn.observed_cells(*cells)

    def step(point, by_item):
        bounds = fn.cell_bounds(model, *point, several)
        solve = lambda gradient, curvature: jnp.linalg.solve(
            curvature + 1e-9 * jnp.eye(curvature.shape[-1]), gradient[..., None]
        )[..., 0]
        moved = solve(bounds.item_gradient, bounds.item_curvature)
        new = items._replace(
            intercept=point[0].intercept + moved[:, 0],
            discrimination=point[0].discrimination + moved[:, 1],
        )
        subjects = solve(bounds.subject_gradient, bounds.subject_curvature)
        shifted = point[1] + subjects[:, 0]
        point = (
            jax.tree.map(lambda x, y: jnp.where(by_item, x, y), new, point[0]),
            jnp.where(by_item, point[1], shifted),
        )
        return point, bounds.log_likelihood.sum()

    _, height = jax.lax.scan(step, (items, theta), jnp.arange(40) % 2 == 0)
    assert np.diff(height).min() > -1e-10
    assert height[-1] > height[0] + 10


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision_is_that_of_the_items(dtype):
    model, items, theta, cells, _ = case(2, dtype=dtype)
    found = cell_bounds(model, items, theta, fn.observed_cells(*cells))
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    # A subject and an item without a response have no information.
    assert np.all(found.subject_curvature[3] == 0) and found.log_likelihood[3] == 0
    assert np.all(found.item_curvature[5] == 0)


def test_what_is_refused():
    model, items, theta, cells, _ = case(2)
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(3,\), \(3,\), not one"):
        fn.observed_cells(cells[0][:2], cells[1][:3], cells[2][:3])
    several = fn.observed_cells(*cells)
    with pytest.raises(ValueError, match=r"item_weight has shape \(2,\), not \(23,\)"):
        fn.cell_bounds(model, items, theta, several, item_weight=jnp.ones(2))
    with pytest.raises(ValueError, match="2 dimensions and abilities 1"):
        fn.cell_bounds(model, items, theta[:, 0], several)
    graded = catalogue.graded(3)
    record = graded.family.Items(jnp.ones(ITEMS), jnp.zeros((ITEMS, 2)))
    with pytest.raises(ValueError, match="right and wrong responses, not 'graded'"):
        fn.cell_bounds(graded, record, theta[:, 0], several)
