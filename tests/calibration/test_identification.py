"""Equal abilities and discriminations of 0 are stated by name, by every method."""

import numpy as np
import pytest
from scipy.special import chdtrc

import irtjax
from irtjax.calibration.identification import not_identified, variation
from irtjax.models.families.logistic import LogisticItems
from tests.small_fits import small_table


def drawn(seed, subjects, items, slope, missing=0.0, signs=False):
    rng = np.random.default_rng(seed)
    sign = np.where(np.arange(items) % 2, -1, 1) if signs else 1
    logit = slope * sign * rng.normal(size=(subjects, 1)) + rng.normal(size=items)
    right = 1.0 * (rng.random((subjects, items)) < 1 / (1 + np.exp(-logit)))
    right[rng.random(right.shape) < missing] = np.nan
    return irtjax.ResponseTable.from_arrays(right)


@pytest.mark.parametrize(
    ("subjects", "items", "missing"), [(30, 20, 0.0), (8, 50, 0.0), (100, 40, 0.5)]
)
def test_size_of_the_test_of_equal_abilities(subjects, items, missing):
    p = [variation(drawn(k, subjects, items, 0.0, missing))[1] for k in range(300)]
    # 5 %, and 3 standard errors of 300 tables.
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5


def test_two_subjects_have_one_test():
    # Correlations of items need three subjects. Sums of 70 and 50 of 120 items: with
    # 20 more items right of 60 that differ, z^2 = 20^2 / 60.
    first = np.arange(120) < 70
    second = np.r_[np.ones(30), np.zeros(40), np.ones(20), np.zeros(30)]
    _, p_value, _ = variation(irtjax.ResponseTable.from_arrays([1.0 * first, second]))
    assert p_value == pytest.approx(chdtrc(1, 20**2 / 60), rel=1e-9)
    assert p_value < 0.05


@pytest.mark.parametrize("signs", [False, True])
def test_abilities_that_differ_are_found(signs):
    # Discriminations of both signs cancel in the sums, not in correlations of items.
    p = [variation(drawn(k, 100, 30, 1.0, 0.1, signs))[1] for k in range(30)]
    assert np.mean(np.array(p) <= 0.05) == 1


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("signs", [False, True])
def test_strength_is_subjects_times_the_mean_correlation_of_items(signs, missing):
    # The correlation of two items, from many subjects; the strength from 40.
    many = drawn(0, 20_000, 30, 1.0, signs=signs).values.astype(float)
    upper = np.triu_indices(30, 1)
    expected = 40 * (1 - missing) * np.abs(np.corrcoef(many.T)[upper]).mean()
    found = [variation(drawn(k, 40, 30, 1.0, missing, signs))[2] for k in range(20)]
    # Four standard errors; with both signs 1.64 of each one's own errors are taken off.
    error = 4 * np.std(found) / 20**0.5
    low = 0.4 if signs else 1 - error / expected
    assert low * expected < np.mean(found) < expected + error
    equal = [variation(drawn(k, 40, 30, 0.0, missing, signs))[2] for k in range(20)]
    assert np.mean(equal) < 0.5 and 0 <= min(equal)


def test_other_responses_than_right_and_wrong():
    rng = np.random.default_rng(0)
    ability = rng.normal(size=(40, 1))
    for sd, low, high in ((0.0, 0.01, 1.0), (1.0, 0.0, 1e-4)):
        score = 1 / (1 + np.exp(-sd * ability - 0.5 * rng.normal(size=(40, 12))))
        counts = rng.binomial(8, score)
        tables = (
            irtjax.ResponseTable.from_arrays(score),
            irtjax.ResponseTable.from_arrays(np.floor(4 * score)),
            irtjax.ResponseTable.from_arrays(counts, trials=np.full(score.shape, 8)),
        )
        for table in tables:
            varied, p_value, _ = variation(table)
            assert varied and low <= p_value <= high


def test_observed_responses_alone_give_the_same():
    dense = drawn(1, 60, 30, 0.8, 0.5)
    assert dense.observed is not None
    few = dense.replace(values=dense.cells, observed=None)
    assert variation(few) == pytest.approx(variation(dense))


def test_sentences():
    record = lambda slope: LogisticItems(slope, slope, 0 * slope, 0 * slope + 1)
    slope = np.ones(20)
    equal = np.tile(np.arange(20) % 2, (30, 1)).astype(float)
    table = irtjax.ResponseTable.from_arrays(equal)
    (same,) = not_identified(table, record(slope), True)
    assert same.startswith("all 30 subjects have the same responses: abilities are eq")
    assert "ranks and discriminations are not identified" in same
    (no_slopes,) = not_identified(table, record(slope), False)
    assert "and ranks are not identified" in no_slopes
    equal[np.eye(30, 20) > 0] = np.nan
    (shared,) = not_identified(
        irtjax.ResponseTable.from_arrays(equal), record(slope), True
    )
    assert "the same responses to the items that they share" in shared
    coin = drawn(0, 30, 20, 0.0)
    (tied,) = not_identified(coin, record(slope), True)
    assert tied.startswith("abilities of the 30 subjects are not significantly differ")
    good = drawn(0, 30, 20, 2.0)
    assert not_identified(good, record(slope), True) == []
    slope[1:] = 0
    assert not_identified(good, record(slope), True) == []
    (flat,) = not_identified(good, record(0 * slope), True)
    assert flat.startswith("all discriminations are 0: responses do not depend on")


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("rasch", "em"),
        pytest.param("2pl", "mm", marks=pytest.mark.slow),
        pytest.param("2pl", "em", marks=pytest.mark.slow),
        pytest.param("factor", "mm", marks=pytest.mark.slow),
        pytest.param("multibenchmark", "laplace", marks=pytest.mark.slow),
    ],
)
def test_fits_of_equal_subjects_warn(model, method):
    table = small_table()
    assert table.observed is not None
    values = np.where(table.observed, np.arange(15) % 2, 0).astype(np.int8)
    options = {} if model == "multibenchmark" else {"standard_errors": "none"}
    # Two factors of such responses are refused.
    options |= {"factors": 1} if model == "factor" else {}
    fit = irtjax.fit(table.replace(values=values), model, method, **options)
    (line,) = [x for x in fit.warnings if "have the same responses" in x]
    assert line.startswith("all 24 subjects") and "add subjects" in line
    assert np.isfinite(fit.abilities.table["ability"].to_numpy()).all()


@pytest.mark.slow
def test_a_penalty_that_sets_all_discriminations_to_0_is_stated():
    table = drawn(3, 60, 20, 1.0)
    fit = irtjax.fit(table, "2pl", "mm", positive=True, lasso=1e4)
    assert not np.asarray(fit.parameters.items.discrimination).any()
    assert [x for x in fit.warnings if x.startswith("all discriminations are 0")]
