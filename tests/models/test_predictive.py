"""Response curves with the errors of items integrated out, against draws of items."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.models.catalogue import rating_scale
from irtjax.models.predictive import (
    expected_with_errors,
    normal_rule,
    own_errors,
    with_errors,
)
from irtjax.models.simulate import simulate_items
from tests.scoring_cases import ALL

THETA = np.array([-1.5, 0.0, 0.7, 2.0])
DRAWS = 20_000


def covariance_of(columns: int, size: int) -> np.ndarray:
    """Covariances with correlations, standard deviations of about 0.5."""
    rng = np.random.default_rng(columns)
    roots = 0.5 * np.eye(columns) + 0.15 * rng.normal(size=(size, columns, columns))
    return roots @ np.swapaxes(roots, 1, 2)


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 70])
def test_nodes_have_the_moments_of_a_standard_normal(columns):
    nodes, weights = normal_rule(columns)
    assert weights.min() > 0 and weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights @ nodes, 0, atol=1e-12)
    np.testing.assert_allclose(nodes.T * weights @ nodes, np.eye(columns), atol=1e-12)


@pytest.mark.parametrize(
    "name", [pytest.param("2pl", marks=pytest.mark.slow), "graded"]
)
def test_curves_are_means_over_draws_of_items(name):
    model = ALL[name]
    items = simulate_items(model, 2, jax.random.key(1))
    rows = model.unconstrain(items)
    covariance = covariance_of(rows.shape[1], 2)
    flat, known = with_errors(model, items, covariance)
    chances = jax.jit(jax.vmap(flat.family.category_log_probs, in_axes=(None, 0)))
    moments = np.asarray(expected_with_errors(flat.family, known, jnp.asarray(THETA)))
    rng = np.random.default_rng(0)
    plain = jax.jit(
        lambda rows: jax.vmap(model.family.category_log_probs, in_axes=(0, None))(
            model.constrain(rows), 0.7
        )
    )
    for j in range(2):
        noise = rng.multivariate_normal(np.zeros(rows.shape[1]), covariance[j], DRAWS)
        drawn = np.exp(np.asarray(plain(rows[j] + jnp.asarray(noise))))
        # Thresholds out of order have no probabilities.
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        assert len(drawn) > DRAWS / 2
        one = jax.tree.map(lambda x, j=j: x[j], known)
        found = np.exp(np.asarray(chances(one, jnp.asarray(THETA))))
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-9)
        # Five errors of a mean of draws, and the error of the rule.
        error = 5 * drawn.std(0) / np.sqrt(len(drawn)) + 0.004
        assert (np.abs(found[2] - drawn.mean(0)) < error).all()
        scores = drawn @ np.arange(drawn.shape[1])
        error = 5 * scores.std() / np.sqrt(len(drawn)) + 0.008
        assert abs(moments[0, 2, j] - scores.mean()) < error
        # The fourth moment is at most that of a variable on 0 ... top.
        error = 5 * scores.var() * np.sqrt(2 / len(drawn)) + 0.01
        assert abs(moments[1, 2, j] - scores.var()) < error


def test_errors_of_none_keep_a_curve_and_those_without_end_leave_no_information():
    model = ALL["2pl"]
    items = simulate_items(model, 3, jax.random.key(2))
    covariance = covariance_of(2, 3)
    covariance[0], covariance[2, 0, 0] = 0, np.nan
    flat, known = with_errors(model, items, covariance, 0.3)
    at = lambda family: jax.jit(jax.vmap(family.information, in_axes=(0, None)))
    theta = jnp.array(0.4)
    found = np.asarray(at(flat.family)(known, theta))
    want = np.asarray(at(model.family)(items, theta))
    assert found[0] == pytest.approx(want[0], rel=1e-9)
    assert 0 < found[1] < want[1] and found[2] == 0


def test_errors_of_parameters_that_all_items_share_are_left_out():
    model = rating_scale(4)
    items = simulate_items(model, 2, jax.random.key(2))
    columns = model.family.num_columns
    _, known = with_errors(model, items, np.full((2, columns, columns), 0.3))
    common = list(model.family.common_columns)
    assert common and (np.asarray(known.root)[:, common] == 0).all()
    free = [k for k in range(columns) if k not in common]
    assert free and (np.abs(np.asarray(known.root)[:, free]).sum(-1) > 0).all()


def test_an_item_is_lost_with_its_slope_or_its_intercepts_alone():
    model = ALL["3pl"]
    covariance = covariance_of(3, 4)
    for item, column in enumerate((2, 1, 0)):
        covariance[item, column] = covariance[item, :, column] = np.nan
    blocks, identified = own_errors(model, covariance)
    assert identified.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(blocks[0, :2, :2], covariance[0, :2, :2])
    assert not blocks[0, 2].any() and not blocks[1:3].any()
    np.testing.assert_array_equal(blocks[3], covariance[3])
    # One threshold of several, as of a category that nobody chose.
    graded = ALL["graded"]
    columns = graded.family.num_columns
    wide = np.tile(np.eye(columns), (1, 1, 1))
    wide[0, -1] = wide[0, :, -1] = np.nan
    assert own_errors(graded, wide)[1].tolist() == [True]


def test_a_covariance_of_another_shape_is_refused():
    model = ALL["2pl"]
    items = simulate_items(model, 2, jax.random.key(3))
    with pytest.raises(ValueError, match=r"give \(2, 2, 2\) for a 2pl model"):
        with_errors(model, items, np.zeros((3, 2, 2)))
