"""Padded data: the same numbers, and one program for many sizes."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.data.responses import Responses
from irtjax.estimators import driver, item_estimates
from irtjax.inference import covariance, expected
from irtjax.likelihood import padding, problem, quadrature

#: Nodes that do not depend on the data.
NODES = jnp.linspace(-6, 6, 61)


def responses(subjects, items, categories=2, missing=0.0, seed=3):
    """A table of graded logits; right or wrong with two categories."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(size=(subjects, 1)) * np.exp(0.3 * rng.normal(size=items))
    logit = logit + rng.normal(0, 1, items) + rng.logistic(size=(subjects, items))
    steps = np.linspace(-1.5, 1.5, categories - 1) if categories > 2 else [0.0]
    values = np.digitize(logit, steps).astype(float)
    values[rng.random(values.shape) < missing] = np.nan
    return irtjax.ResponseTable.from_arrays(values)


@pytest.mark.parametrize(
    ("model", "table", "settings"),
    [
        ("2pl", responses(133, 21, missing=0.3), {}),
        pytest.param(
            *("graded", responses(133, 9, 4, 0.1), {}), marks=pytest.mark.slow
        ),
        pytest.param("1pl", responses(77, 11), {}, marks=pytest.mark.slow),
        pytest.param("rasch", responses(77, 11), {}, marks=pytest.mark.slow),
        pytest.param("3pl", responses(300, 13), {}, marks=pytest.mark.slow),
        pytest.param("nominal", responses(330, 9, 4), {}, marks=pytest.mark.slow),
        pytest.param(
            "2pl",
            responses(133, 21),
            {"population": "histogram"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "2pl",
            responses(330, 9),
            {"priors": None, "standard_errors": "sandwich"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "2pl",
            responses(330, 9),
            {"standard_errors": "cross_product"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_padded_fit_is_the_fit(model, table, settings, monkeypatch):
    # Parameters within 1e-8 of their standard errors of the maximum, or as near as
    # rounding allows.
    fit = lambda: irtjax.fit(table, model, "em", tolerance=1e-8, **settings)
    padded = fit()
    monkeypatch.setattr(padding, "MOST_PADDED", 0)
    plain = fit()
    assert padded.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-7)
    assert padded.num_parameters == plain.num_parameters
    # Ranks and P(best) are drawn.
    drawn = {"probability_best", "rank_lower", "rank_upper"}
    for name in ("items", "abilities"):
        one, other = getattr(padded, name).table, getattr(plain, name).table
        assert one.column_names == other.column_names
        for column in set(one.column_names) - drawn:
            found, expected_ = one[column].to_pylist(), other[column].to_pylist()
            if isinstance(expected_[0], float):
                np.testing.assert_allclose(
                    np.array(found, float), np.array(expected_, float), atol=1e-6
                )
            else:
                assert found == expected_, column


def test_padding_repeats_with_weight_0():
    data = Responses(jnp.arange(6, dtype=jnp.int8).reshape(2, 3) % 2)
    data = dataclasses.replace(data, item_weight=jnp.array([1.0, 2.0, 0.5]))
    large = Responses(jnp.tile(data.values, (17, 11)), item_weight=None)
    model = irtjax.MODELS["2pl"]()
    _, padded, columns = padding.pad_responses(model, large, jnp.float32)
    assert padded.values.shape == (40, 40)
    np.testing.assert_array_equal(columns[:33], np.arange(33))
    np.testing.assert_array_equal(padded.values[:34, :33], large.values)
    np.testing.assert_array_equal(padded.subject_weight, [1] * 34 + [0] * 6)
    np.testing.assert_array_equal(padded.item_weight, [1] * 33 + [0] * 7)
    assert padded.item_weight.dtype == jnp.float32
    # Sizes up to 8 are kept, and so are weights that there were.
    _, same, _ = padding.pad_responses(model, data, jnp.float32)
    np.testing.assert_array_equal(same.item_weight, data.item_weight)


def test_large_data_and_scores_are_not_padded(monkeypatch):
    monkeypatch.setattr(padding, "MOST_PADDED", 700 * 400 - 1)
    two, scores = irtjax.MODELS["2pl"](), irtjax.MODELS["continuous"]()
    many = Responses(jnp.zeros((700, 400), jnp.int8))
    few = Responses(jnp.zeros((33, 33)))
    for model, data in ((two, many), (scores, few)):
        assert padding.pad_responses(model, data, jnp.float32)[1] is data
        whole = problem.Problem.create(model, data)
        assert padding.pad_problem(whole, jnp.float32) is whole


@pytest.mark.parametrize("count", [1, 8, 9, 31, 1025, 1500, 5055, 40_000])
def test_sizes_are_few_and_large_enough(count):
    found = padding.padded_size(count)
    assert count <= found <= 1.25 * count
    assert padding.padded_size(found) == found
    # Four sizes from one power of two to the next.
    power = 2 ** int(np.floor(np.log2(found)))
    assert (found * 4) % power == 0
    coarse = padding.padded_size(count, 1)
    assert found <= coarse <= 1.5 * count and (coarse * 2) % power == 0


def test_data_of_about_the_same_size_share_programs(stores_one_each):
    """Compiling them takes most of the time of a fit of small data."""
    watch, check = stores_one_each
    watch(
        driver.begin_jit,
        driver.run_jit,
        item_estimates._coordinates,
        covariance._covariance,
        expected.expected_scores,
        quadrature.largest_information,
    )
    for subjects, items in ((64, 12), (61, 11)):
        irtjax.fit(responses(subjects, items), "2pl", "em", nodes=NODES)
        check()


def test_padding_does_not_change_how_errors_are_computed(monkeypatch):
    # 520 items are padded to 640: beyond 600, items with asymptotes have fewer terms.
    model = irtjax.MODELS["3pl"]()
    data = Responses(jnp.zeros((120, 520), jnp.int8))
    plain = problem.Problem.create(model, data)
    padded = padding.pad_problem(plain, jnp.float32)
    assert padded.data.num_items == 640 and padded.data.num_subjects == 128
    seen = []
    monkeypatch.setattr(covariance, "_covariance", lambda *given: seen.append(given))
    for one in (plain, padded):
        covariance.item_covariance(one, None, None, NODES)
    (*_, terms, how), (*_, others, same) = seen
    assert (terms, how) == (others, same) and terms == 20
