"""Items that respond to -theta have negative slopes, and intervals that reach there.

The truths are simulated wrong keys, and the fit of the same responses with right keys.
"""

import numpy as np
import pytest

import irtjax
from irtjax.estimators.laplace.direction import (
    TAIL,
    SlopeDirections,
    error_with_directions,
    in_any_direction,
)
from irtjax.models.catalogue import graded, share, three_parameter, two_parameter

#: One shape for all fits of right and wrong responses.
SUBJECTS, ITEMS, REVERSED = 40, 100, 3


def draw(subjects: int, seed: int, reversed_items: int = REVERSED):
    """Responses, true slopes and abilities; the first items have wrong keys."""
    rng = np.random.default_rng([11, seed])
    theta = rng.standard_normal(subjects)
    slope = np.exp(rng.normal(0.1, 0.3, ITEMS))
    intercept = rng.normal(0, 1, ITEMS)
    chance = 1 / (1 + np.exp(-slope * theta[:, None] - intercept))
    right = (rng.random(chance.shape) < chance).astype(float)
    values = right.copy()
    values[:, :reversed_items] = 1 - values[:, :reversed_items]
    slope[:reversed_items] *= -1
    return right, values, slope, theta


def column(table, name: str) -> np.ndarray:
    return np.asarray(table[name].to_pylist(), float)


def fit(values, model="2pl", **settings) -> irtjax.Calibration:
    table = irtjax.ResponseTable.from_arrays(values, **settings)
    return irtjax.fit(table, model, "laplace")


@pytest.fixture(scope="module")
def wrong_keys():
    right, values, slope, theta = draw(SUBJECTS, 1)
    return fit(right), fit(values), slope, theta


@pytest.mark.slow
def test_wrong_keys_have_the_slopes_of_right_keys_with_the_other_sign(wrong_keys):
    right, wrong, *_ = wrong_keys
    first, second = (column(f.items.table, "discrimination") for f in (right, wrong))
    error = column(right.items.table, "discrimination_se")
    assert (second[:REVERSED] < 0).all() and (second[REVERSED:] > 0).all()
    sign = np.where(np.arange(ITEMS) < REVERSED, -1, 1)
    # The prior of intercepts is not symmetric, so the two are not equal.
    assert np.abs(first - sign * second).max() < 0.2 * error.min()
    intercepts = [column(f.items.table, "intercept") for f in (right, wrong)]
    gap = np.abs(intercepts[0] - sign * intercepts[1])
    assert (gap < 0.3 * column(right.items.table, "intercept_se")).all()
    # Abilities have the same information, and the same errors.
    for name in ("ability", "ability_se"):
        pair = [column(f.abilities.table, name) for f in (right, wrong)]
        assert np.abs(pair[0] - pair[1]).max() < 0.03


@pytest.mark.slow
def test_expected_scores_count_reversed_items_as_they_are_scored(wrong_keys):
    _, wrong, slope, theta = wrong_keys
    predicted = irtjax.predict(wrong).expected
    ability = column(wrong.abilities.table, "ability")
    for j in range(REVERSED):
        assert np.corrcoef(predicted[:, j], ability)[0, 1] < -0.9
    # On complete data the expected score is near the mean response.
    names = "expected_score", "accuracy", "expected_score_se"
    score, accuracy, error = (column(wrong.abilities.table, name) for name in names)
    assert (np.abs(score - accuracy) < 2 * error).all()


@pytest.mark.slow
def test_a_saved_fit_with_negative_slopes_scores_as_before(wrong_keys, tmp_path):
    _, wrong, *_ = wrong_keys
    _, values, *_ = draw(SUBJECTS, 1)
    table = irtjax.ResponseTable.from_arrays(values)
    irtjax.save(wrong, tmp_path / "fit")
    loaded = irtjax.load(tmp_path / "fit")
    for name in ("discrimination", "discrimination_se"):
        np.testing.assert_array_equal(
            column(loaded.items.table, name), column(wrong.items.table, name)
        )
    before, after = (irtjax.score(f, table).table for f in (wrong, loaded))
    np.testing.assert_allclose(column(before, "ability"), column(after, "ability"))
    own = column(wrong.abilities.table, "ability")
    assert np.corrcoef(own, column(before, "ability"))[0, 1] > 0.995


@pytest.mark.slow
def test_items_without_a_flag_are_named_in_a_note(wrong_keys):
    _, wrong, *_ = wrong_keys
    flags = wrong.items.table["flags"].to_pylist()
    noted = [note for note in wrong.notes if "negative discrimination" in note]
    flagged = sum("negative discrimination" in flag for flag in flags)
    assert flagged == REVERSED or any("item 1" in note for note in noted)
    assert not any("negative" in flag for flag in flags[REVERSED:])


@pytest.mark.slow
def test_slopes_of_good_items_stay_positive():
    right, *_ = draw(SUBJECTS, 2)
    found = fit(right)
    assert (column(found.items.table, "discrimination") > 0).all()
    assert not any("negative discrimination" in note for note in found.notes)


@pytest.mark.slow
def test_intervals_of_reversed_items_reach_below_zero_with_ten_models():
    # 0 % where slopes are positive by their prior. 36 items: at a true coverage of .85
    # a share below .65 has a chance of 1 in 1,000.
    covered, good = [], []
    for seed in range(12):
        _, values, slope, _ = draw(10, 100 + seed)
        table = fit(values).items.table
        gap = np.abs(column(table, "discrimination") - slope)
        inside = gap <= 1.96 * column(table, "discrimination_se")
        covered += inside[:REVERSED].tolist()
        good.append(inside[REVERSED:].mean())
    assert np.mean(covered) > 0.65
    assert np.mean(good) > 0.85


def draw_chances(rng: np.random.Generator) -> np.ndarray:
    """Chances of 30 items, the first of them reversed."""
    theta = rng.standard_normal((SUBJECTS, 1))
    eta = 1.2 * theta + rng.normal(0, 1, 30)
    eta[:, 0] = -1.5 * theta[:, 0]
    return 1 / (1 + np.exp(-eta))


@pytest.mark.slow
def test_counts_have_directions_too():
    rng = np.random.default_rng(3)
    chance = draw_chances(rng)
    counts = rng.binomial(5, chance).astype(float)
    found = fit(counts, trials=np.full(counts.shape, 5)).items.table
    slope = column(found, "discrimination")
    assert slope[0] < 0 < slope[1:].min()


@pytest.mark.slow
def test_ratings_have_directions_too():
    rng = np.random.default_rng(3)
    values = rng.binomial(2, draw_chances(rng)).astype(float)
    found = fit(values, "graded").items.table
    slope = column(found, "discrimination")
    assert slope[0] < 0 < slope[1:].min()


def test_intervals_end_at_the_quantile_of_a_size_and_of_the_other_sign():
    slope, error = np.array([0.8, 0.8, -1.0]), np.array([0.2, 0.2, 0.3])
    chance = np.array([TAIL / 2, 0.2, 0.1])
    size, other = np.array([0.5, 0.5, 0.6]), np.array([0.3, 0.3, 0.2])
    directions = SlopeDirections(np.sign(slope), chance, chance, size, other)
    wide = error_with_directions(slope, error, directions)
    z = 1.959963984540054
    quantile = lambda size, sd: np.exp(np.log(size) + z * sd / size)
    assert slope[0] + z * wide[0] == pytest.approx(quantile(0.8, 0.2))
    # The bound on the other side is that of a slope of the other sign.
    assert slope[1] - z * wide[1] == pytest.approx(-quantile(0.5, 0.3))
    assert slope[2] + z * wide[2] == pytest.approx(quantile(0.6, 0.2))
    # The sign of the first is certain: its interval does not reach 0.
    far = error_with_directions(slope, 1.9 * error, directions)
    assert 0 < slope[0] - z * far[0] < 0.02 * slope[0]
    # A slope without information has a finite error.
    none = np.array([1e-9]), np.array([1e3])
    assert np.isfinite(error_with_directions(*none, directions.of(np.array([1])))).all()


def test_covariances_of_slopes_are_by_the_delta_method():
    rng = np.random.default_rng(0)
    mean = np.array([[0.1, -0.4]])
    covariance = np.array([[[0.01, 0.004], [0.004, 0.02]]])
    sign = np.array([-1.0])
    moved, found = in_any_direction(mean, covariance, sign)
    draws = rng.multivariate_normal(mean[0], covariance[0], 200_000)
    draws[:, 0] = -np.exp(draws[:, 0])
    np.testing.assert_allclose(moved[0], [-np.exp(0.1), -0.4])
    # The log-normal has a variance 1.5 % larger; draws of 1 in 300.
    np.testing.assert_allclose(np.cov(draws.T), found[0], rtol=0.04, atol=2e-4)


def test_families_keep_their_other_parameters():
    positive = two_parameter(positive=True).family
    assert positive.with_any_sign() == two_parameter().family
    for family in (
        graded(3, positive=True).family,
        three_parameter(positive=True).family,
        share(positive=True).family,
    ):
        free = family.with_any_sign()
        assert free is not None
        assert free.num_columns == family.num_columns
        assert [p.name for p in free.parameters] == [p.name for p in family.parameters]
        assert free.with_any_sign() is None
