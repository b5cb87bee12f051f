"""Filters by signs of correlations with their null, and similarity of features."""

import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.validity.filtering import _shares, filter_items
from irtjax.validity.semantic import semantic_space


def one_ability(seed, subjects=158, items=489):
    """The 2PL of the specification: slopes from U(.5, 1), no bad item."""
    rng = np.random.default_rng(seed)
    logit = rng.uniform(0.5, 1, items) * rng.normal(size=(subjects, 1))
    right = rng.random(logit.shape) < expit(logit + rng.normal(0, 1, items))
    return right.astype(float)


def test_signs_are_those_of_corrected_tables():
    """Pair by pair, with missing responses and empty cells."""
    rng = np.random.default_rng(0)
    seen = rng.random((12, 7)) < 0.8
    right = (rng.random((12, 7)) < 0.6) * seen
    negative = []
    for j in range(7):
        for k in range(j):
            both = seen[:, j] & seen[:, k]
            y, x = right[both, j], right[both, k]
            cells = np.array([[np.sum((y == a) & (x == b)) for a in (1, 0)]
                              for b in (1, 0)], float)  # fmt: skip
            if 0 in cells.sum(axis=0) or 0 in cells.sum(axis=1):
                continue
            cells += 0.5 * (cells.min() == 0)
            negative.append(np.linalg.det(cells) < -1e-12)
    share = _shares(right, seen.astype(np.float32), 0, 1)[0][0]
    assert share == pytest.approx(np.mean(negative))


def test_math500_is_consistent_after_one_round(shared_data):
    table = irtjax.read(shared_data / "lart" / "accuracy_math500.parquet")
    mean = table.item_accuracy()
    table = table.select(items=(mean > 0) & (mean < 1))
    shares, _ = _shares(np.asarray(table.values, np.float32), None, 1, 25)
    # The specification's 2.12 and .02 %.
    assert np.round(100 * shares, 2).tolist() == [2.12, 0.02]


def test_mmlu_is_filtered_in_five_rounds_of_five(shared_data):
    path = shared_data / "metabench" / "mmlu_3pl_responses.parquet"
    values = np.asarray(irtjax.read(path).values, np.float32)
    shares, _ = _shares(values, None, 5, 5)
    # The specification's 23.9 and .31 % after 25 of 102 items.
    assert np.round(100 * shares[[0, -1]], 2).tolist() == [23.94, 0.31]


def test_clean_items_and_noise_are_filtered_to_consistency_too():
    """9.9 to 15.7 % fall to a few without a bad item; noise from a half to 44 %."""
    starts, ends = zip(
        *(_shares(one_ability(s), None, 9, 25)[0][[0, 9]] for s in range(3)),
        strict=True,
    )
    # The range of six seeds in the specification, with its width on either side.
    assert 0.05 < min(starts) and max(starts) < 0.21
    assert max(ends) < 0.25 * max(starts)
    noise = np.random.default_rng(1).random((158, 489)) < 0.5
    shares = _shares(noise, None, 9, 25)[0]
    assert shares[0] == pytest.approx(0.497, abs=0.01)
    assert shares[-1] == pytest.approx(0.44, abs=0.01)


@pytest.mark.slow
def test_no_item_has_to_go_from_one_ability_and_reversed_ones_do():
    values = one_ability(5, 200, 60)
    table = irtjax.ResponseTable.from_arrays(values)
    assert filter_items(table, rounds=3, drop=4).stop == 0
    values[:, :8] = 1 - values[:, :8]
    result = filter_items(irtjax.ResponseTable.from_arrays(values), rounds=4, drop=4)
    assert result.stop is not None and 0 < result.stop <= 4
    # Until the rest is as one ability would be, reversed items alone.
    assert set(result.items["item"].to_pylist()) <= {f"item {k + 1}" for k in range(8)}
    # Half the subjects choose, the others judge: chance falls less.
    rows = result.table.to_pandas()
    assert rows["other_half"].iloc[-1] >= rows["negative"].iloc[-1]


def test_rounds_are_those_of_one_product():
    """Each round from its own table, without a null."""
    values = one_ability(8, 60, 30)
    names = np.array([f"q{k}" for k in range(30)])
    table = irtjax.ResponseTable.from_arrays(values, items=names)
    result = filter_items(table, rounds=3, drop=2, tables=0)
    left = ~np.isin(names, result.items["item"].to_pylist())
    share = _shares(values[:, left], None, 0, 1)[0][0]
    assert result.table["negative"][3].as_py() == pytest.approx(share, rel=1e-6)
    assert result.table["items"].to_pylist() == [30, 28, 26, 24]
    assert result.stop is None and "after the last round" in result.sentence


def test_bad_input_of_filters_in_one_line():
    table = irtjax.ResponseTable.from_arrays(one_ability(6, 30, 20))
    with pytest.raises(ValueError, match="leave fewer than 3 of"):
        filter_items(table, rounds=5, drop=4, tables=0)
    with pytest.raises(ValueError, match="a row for each of the 20 items"):
        semantic_space(table, np.zeros((10, 3)))
    values = one_ability(6, 30, 20)
    values[0, 0] = np.nan
    with pytest.raises(ValueError, match="none missing"):
        semantic_space(irtjax.ResponseTable.from_arrays(values), np.zeros((20, 3)))


@pytest.mark.slow
def test_similar_items_that_share_an_ability_are_above_the_band():
    """Four clusters with abilities of their own, and features of the clusters."""
    rng = np.random.default_rng(7)
    cluster = np.arange(60) % 4
    own = rng.normal(size=(200, 4))
    logit = rng.normal(size=(200, 1)) + own[:, cluster] - rng.normal(0, 1, 60)
    right = rng.random(logit.shape) < expit(logit)
    features = np.eye(4)[cluster] + 0.1 * rng.normal(size=(60, 4))
    table = irtjax.ResponseTable.from_arrays(right * 1.0)
    result = semantic_space(table, features, tables=4)
    value, _, high = result.correlation["residual"]
    assert value > 0.5 > high and "above the band" in result.sentence
    shuffled = semantic_space(table, rng.permutation(features), tables=2)
    value, _, _ = shuffled.correlation["residual"]
    # Four standard errors of a correlation of 1,770 pairs.
    assert abs(value) < 4 / np.sqrt(1770)
