"""Recovery metrics against SciPy and dense arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

from irtjax.models.families.logistic import LogisticItems
from irtjax.validity.recovery import (
    aligned_rmse,
    hellinger,
    relative_error,
    selection,
    spearman,
)

#: More than one block of subjects (2,048 rows at most).
SUBJECTS, ITEMS = 2500, 7


def point(seed: int, subjects: int = SUBJECTS, items: int = ITEMS):
    rng = np.random.default_rng(seed)
    a, d = rng.uniform(0.5, 2, items), rng.normal(size=items)
    record = LogisticItems(*map(jnp.asarray, (a, d, 0 * a, 0 * a + 1)))
    return record, jnp.asarray(rng.normal(size=subjects))


def logits(one) -> np.ndarray:
    items, theta = one
    return np.outer(theta, items.discrimination) + np.asarray(items.intercept)


@pytest.mark.parametrize("digits", [1, 8])
def test_spearman_is_scipys_with_and_without_ties(digits):
    rng = np.random.default_rng(digits)
    x = rng.normal(size=40).round(digits)
    y = (x + rng.normal(size=40)).round(digits)
    expected = np.asarray(spearmanr(x, y))[0]
    x, y = jnp.asarray(x), jnp.asarray(y)
    assert float(spearman(x, y)) == pytest.approx(expected, abs=1e-14)
    assert float(spearman(x, -x)) == -1
    assert np.isnan(spearman(x, 0 * x))


def test_errors_over_cells_are_those_of_dense_arrays():
    truth, estimate = point(1), point(2)
    x, y = logits(truth), logits(estimate)
    expected = np.sum((x - y) ** 2) / np.sum(x**2)
    assert float(relative_error(truth, estimate)) == pytest.approx(expected, rel=1e-12)
    p, q = expit(x), expit(y)
    apart = (p**0.5 - q**0.5) ** 2 + ((1 - p) ** 0.5 - (1 - q) ** 0.5) ** 2
    found = float(hellinger(truth, estimate))
    assert found == pytest.approx(apart.mean(), rel=1e-12)
    assert float(relative_error(truth, truth)) == float(hellinger(truth, truth)) == 0


def test_no_array_of_floats_of_the_size_of_the_data():
    truth, estimate = point(1, 40_000, 500), point(2, 40_000, 500)
    for metric in (relative_error, hellinger):
        program = jax.jit(metric).lower(truth, estimate).compile()
        needed = program.memory_analysis()
        assert needed is not None
        assert needed.temp_size_in_bytes < 40_000 * 500 * 8 / 2


def test_metrics_map_over_replicates():
    pairs = [point(seed, 30) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pairs)
    for metric in (relative_error, hellinger, aligned_rmse):
        found = jax.vmap(metric, (None, 0))(pairs[0], stacked)
        for k, one in enumerate(pairs):
            single = metric(pairs[0], one)
            for part, value in zip(
                jax.tree.leaves(found), jax.tree.leaves(single), strict=True
            ):
                assert float(part[k]) == pytest.approx(float(value), rel=1e-12)


def test_errors_of_parameters_do_not_depend_on_the_scale_of_the_truth():
    (items, theta), estimate = point(3, 50), point(4, 50)
    moved = items._replace(
        discrimination=items.discrimination / 3,
        intercept=items.intercept - items.discrimination * 2 / 3,
    )
    plain = aligned_rmse((items, theta), estimate)
    other = aligned_rmse((moved, 3 * theta + 2), estimate)
    np.testing.assert_allclose(plain, other, rtol=1e-12)
    standard = (theta - theta.mean()) / theta.std()
    assert float(plain.ability) == pytest.approx(
        float(jnp.sqrt(jnp.mean((standard - estimate[1]) ** 2)))
    )


def test_selection_of_nothing():
    none, some = jnp.zeros(3, bool), jnp.array([True, False, False])
    assert [float(x) for x in selection(none, some)] == [1, 0]
    assert [float(x) for x in selection(some, none)] == [0, 1]


def test_shapes_are_refused():
    truth, (items, theta) = point(1, 20), point(2, 20)
    with pytest.raises(ValueError, match=r"abilities have shape \(19,\), not \(20,\)"):
        relative_error(truth, (items, theta[1:]))
    with pytest.raises(ValueError, match="intercepts have shape"):
        hellinger(truth, (point(2, 20, 3)[0], theta))
    with pytest.raises(ValueError, match="second have shape"):
        spearman(theta, theta[1:])
