"""Intervals of expected scores at the ends: all wrong, all right, few responses.

Each model by name is fitted by its default method to a table whose last subjects are at
an end. The mean response of such a subject has an exact interval (Clopper and Pearson),
which is conservative for any responses in their range: an interval of the expected
score on the same items must overlap it, and be no wider than its outer bounds allow.
"""

import functools

import numpy as np
import pytest
from scipy.special import betaincinv

import irtjax
from irtjax.calibration.tables import score_interval
from irtjax.data.table import ResponseTable
from irtjax.harness.estimate import estimate
from tests.tables import BY_NAME
from tests.test_every_fit import CATEGORIES, ITEMS, SUBJECTS, TRIALS, matrix

#: Of the default run: a model of each kind of interval, by quadrature, with items
#: integrated out, and of several abilities.
QUICK = ("2pl", "nominal", "hierarchical")
ENDS = ("all wrong", "all right", "one right", "one wrong", "few, all wrong")
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
    for name in BY_NAME
]


@functools.cache
def fit_with_ends(name: str) -> irtjax.Calibration:
    """A fit by the default method, of a table whose last subjects are at an end."""
    kind = BY_NAME[name].kind
    values, observed, lengths = matrix(kind)
    values, observed = values.copy(), observed.copy()
    top = {"categories": CATEGORIES - 1, "counts": TRIALS}.get(kind, 1)
    values[-5:], observed[-5:] = 0, True
    values[[-4, -2]] = top
    values[-3, 0], values[-2, 0] = top, 0
    observed[-1, 3:] = False
    trials = np.full(values.shape, TRIALS) if kind == "counts" else None
    names = [f"s{k}" for k in range(SUBJECTS - len(ENDS))]
    table = ResponseTable.from_arrays(
        values,
        observed=observed,
        subjects=[*names, *ENDS],
        trials=trials,
        benchmark=["law" if k % 2 else "code" for k in range(ITEMS)],
        lengths=lengths,
    )
    return irtjax.fit(table, BY_NAME[name].model)


def exact_interval(share: np.ndarray, count: np.ndarray):
    """Clopper and Pearson's interval of 95 %."""
    right = share * count
    wrong = count - right
    low = betaincinv(np.maximum(right, 1e-9), wrong + 1, 0.025) * (right > 0)
    high = betaincinv(right + 1, np.maximum(wrong, 1e-9), 0.975)
    return low, np.where(wrong > 0, high, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_of_scores_at_the_ends(name):
    fit = fit_with_ends(name)
    table = fit.abilities.table.slice(SUBJECTS - len(ENDS))
    assert table["subject"].to_pylist() == list(ENDS)
    top = CATEGORIES - 1 if BY_NAME[name].kind == "categories" else 1
    column = {
        n: np.asarray(table[n].to_pylist(), float) / top
        for n in table.column_names
        if n.startswith(("expected_score", "accuracy"))
    }
    score = column["expected_score"]
    low, high = column["expected_score_lower"], column["expected_score_upper"]
    assert np.isfinite([score, low, high]).all()
    assert (low >= 0).all() and (low <= score).all()
    assert (score <= high).all() and (high <= 1).all()
    # Of the items answered: the last subject's others are predicted.
    count = np.asarray(table["observed"].to_pylist(), float)[:4]
    own_low, own_high = exact_interval(column["accuracy"][:4], count)
    assert (low[:4] <= own_high).all() and (own_low <= high[:4]).all()
    # The error of a score that shrinks to those of the others may exceed that of one
    # mean alone; an interval of the whole range has a width of 1.
    far = 39**0.5 * column["expected_score_se"][:4]
    assert (high[:4] <= np.maximum(own_high, score[:4] + far) + 1e-9).all()
    assert (low[:4] >= np.minimum(own_low, score[:4] - far) - 1e-9).all()
    assert (high - low)[:4].max() < 0.6


def test_an_interval_is_that_of_logits_where_the_error_is_small():
    score, error = np.array([0.2, 0.5, 0.93]), np.array([0.02, 0.1, 0.02])
    low, high = score_interval(score, error, own=(score, np.full(3, 30)))
    middle = np.log(score / (1 - score))
    half = 1.959963985 * error / (score * (1 - score))
    np.testing.assert_allclose(low, 1 / (1 + np.exp(half - middle)), rtol=1e-8)
    np.testing.assert_allclose(high, 1 / (1 + np.exp(-half - middle)), rtol=1e-8)


@pytest.mark.parametrize("top", [1.0, 4.0])
@pytest.mark.parametrize("share", [0.0, 1e-300, 4e-7, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("error", [0.0, 5e-6, 0.01])
def test_bounds_at_the_ends_are_numbers_in_range_that_hold_the_score(share, error, top):
    given = np.array([share * top]), np.array([error * top])
    for own in (None, (np.round(given[0] / top) * top, np.array([30.0]))):
        low, high = (float(x[0]) for x in score_interval(*given, top=top, own=own))
        # A rounding of the share divided by the top and multiplied again.
        assert 0 <= low <= share * top * (1 + 1e-12) + 1e-300
        assert share * top * (1 - 1e-12) <= high <= top
        # 1 - 0.025^(1 / 30) bounds what 30 equal responses leave possible.
        assert high - low <= top * max(0.1158, 2 * 39**0.5 * error)


@pytest.mark.slow
def test_an_all_wrong_model_of_aime_has_an_upper_bound(shared_data):
    import pyarrow.parquet as parquet

    read = lambda name: parquet.read_table(shared_data / "lart" / name).to_pandas()
    right, lengths = (
        read(f"{name}_aime24.parquet").select_dtypes("number")
        for name in ("accuracy", "cot_length")
    )
    table = ResponseTable.from_arrays(right.to_numpy(float), lengths=lengths.to_numpy())
    fit = irtjax.fit(table, "lart")
    rows = [row for row in fit.abilities.table.to_pylist() if row["accuracy"] == 0]
    assert len(rows) > 5
    for row in rows:
        assert row["expected_score_lower"] <= row["expected_score"] < 0.05
        # Those who are wrong on 30 items are right on fewer than 11.6 % (level 95 %);
        # farther out by the error alone.
        far = row["expected_score"] + 39**0.5 * row["expected_score_se"]
        assert row["expected_score"] <= row["expected_score_upper"] < max(0.116, far)
    least = min(rows, key=lambda row: row["expected_score"])
    assert least["expected_score_upper"] == pytest.approx(1 - 0.025 ** (1 / 30))
    # The same bound at another level.
    ranked = irtjax.rank(fit, level=0.9).table.to_pylist()
    again = next(row for row in ranked if row["subject"] == least["subject"])
    upper = again["expected_score_upper"]
    assert upper == pytest.approx(1 - 0.05 ** (1 / 30))


def test_estimates_of_a_harness_have_the_same_bounds():
    fit = fit_with_ends("2pl")
    found = estimate(fit, dict.fromkeys(fit.item_names.tolist(), 0))
    assert 0 <= found.score.lower <= found.score.value <= found.score.upper < 0.4
