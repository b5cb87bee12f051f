"""The matrix of responses: its order, missing cells, and its thinning."""

import numpy as np
import pytest

import irtjax
from irtjax.plots import plot_response_matrix, response_matrix


def drawn(table):
    return plot_response_matrix(table).axes[0].images[0].get_array()


def test_a_guttman_scale_is_a_staircase():
    rng = np.random.default_rng(0)
    right = (np.arange(9)[:, None] > np.arange(8)).astype(float)
    shuffled = right[rng.permutation(9)][:, rng.permutation(8)]
    values = drawn(irtjax.ResponseTable.from_arrays(shuffled))
    np.testing.assert_array_equal(values, right[::-1])


def test_missing_responses_are_masked_and_counts_are_shares():
    table = irtjax.ResponseTable.from_arrays([[1, np.nan], [0, 0], [1, 1]])
    values = drawn(table)
    assert values.mask.sum() == 1 and values.shape == (3, 2)
    counts = irtjax.ResponseTable.from_arrays([[4, 2], [1, 0]], trials=[[4] * 2] * 2)
    np.testing.assert_allclose(drawn(counts), [[1, 0.5], [0.25, 0]])


@pytest.mark.parametrize("size", [(1000, 30), (3, 401)])
def test_large_tables_are_thinned_with_their_ends(size):
    right = (np.arange(size[0])[:, None] * size[1] > np.arange(size[1]) * size[0]) * 1.0
    values = drawn(irtjax.ResponseTable.from_arrays(right))
    assert values.shape == tuple(min(x, 400) for x in size)
    # A column of 401 is left out.
    ends = right.mean(axis=1)[[-1, 0]]
    np.testing.assert_allclose(values.mean(axis=1)[[0, -1]], ends, atol=1 / 400)


def test_benchmarks_have_a_strip():
    rng = np.random.default_rng(0)
    table = irtjax.ResponseTable.from_arrays(rng.random((20, 50)) < 0.5)
    names = np.repeat(["maths", "code"], [20, 30])
    figure = plot_response_matrix(table.replace(item_facets={"benchmark": names}))
    axes = figure.axes[0]
    (strip,) = axes.child_axes
    # Codes by name: "code" is 0. In the order of the items that are drawn.
    easiest = np.argsort(-table.item_accuracy(), kind="stable")
    drawn = np.asarray(strip.images[0].get_array())[0]
    np.testing.assert_array_equal(drawn, names[easiest] == "maths")
    assert [x.get_text() for x in figure.legends[0].get_texts()] == ["code", "maths"]
    # The strip has a place of its own: all rows are below it.
    top = axes.transAxes.inverted().transform(axes.transData.transform((0, -0.5)))[1]
    assert top == pytest.approx(1 - response_matrix.STRIP)
    assert not plot_response_matrix(table).axes[0].child_axes
