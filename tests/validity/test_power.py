"""Power against the paired test on simulated responses, and against textbooks."""

import numpy as np
import pytest
from scipy.stats import nct, norm

import irtjax
from irtjax.data.stored_cells import DenseCells
from irtjax.ranking.accuracy import paired_difference
from irtjax.ranking.power import (
    PairedDesign,
    items_needed,
    paired_power,
    paired_variance,
)

#: Data sets of a simulation: the error of a share near 0.5 is 0.008.
REPLICATES = 4000


def correlated(rng, high, low, correlation, shape):
    """Two right or wrong responses with these means and this correlation."""
    together = high * low + correlation * np.sqrt(high * (1 - high) * low * (1 - low))
    chance = [together, high - together, low - together]
    draw = rng.random(shape)
    cuts = np.cumsum(chance)
    first = draw < cuts[1]
    second = (draw < cuts[0]) | ((draw >= cuts[1]) & (draw < cuts[2]))
    return first.astype(np.int8), second.astype(np.int8)


def share_found(first, second, labels=None):
    found = [
        paired_difference(np.stack(pair), None, labels).p_value < 0.05
        for pair in zip(first, second, strict=True)
    ]
    return np.mean(found)


@pytest.mark.parametrize(
    ("accuracy", "difference", "correlation", "items"),
    [(0.7, 0.05, 0.5, 400), (0.5, 0.15, 0.1, 120), (0.85, 0.1, 0.3, 60)],
)
def test_power_is_the_share_of_data_sets_with_a_significant_test(
    accuracy, difference, correlation, items
):
    rng = np.random.default_rng(0)
    high, low = accuracy + difference / 2, accuracy - difference / 2
    pair = correlated(rng, high, low, correlation, (REPLICATES, items))
    (row,) = irtjax.power(
        sizes=items, accuracy=accuracy, difference=difference, correlation=correlation
    ).table.to_pylist()
    share = share_found(*pair)
    # Three errors of the share, and a point: responses are not normal.
    error = np.sqrt(share * (1 - share) / REPLICATES)
    assert abs(row["power"] - share) < 3 * error + 0.01


def test_power_with_clusters_is_that_of_the_test_with_clusters():
    """Differences that share a normal shift within each cluster of 8 items."""
    rng = np.random.default_rng(1)
    clusters, size, inside, mean = 40, 8, 0.25, 0.1
    shared = rng.normal(size=(REPLICATES, clusters, 1)) * np.sqrt(inside)
    own = rng.normal(size=(REPLICATES, clusters, size)) * np.sqrt(1 - inside)
    difference = mean * 2 + (shared + own) * 0.5
    first = difference.reshape(REPLICATES, -1)
    labels = np.repeat(np.arange(clusters), size)
    share = share_found(first, np.zeros_like(first), labels)
    design = PairedDesign(0.25, size, inside)
    predicted = paired_power(design, clusters * size, mean * 2)
    error = np.sqrt(predicted * (1 - predicted) / REPLICATES)
    assert abs(share - predicted) < 3 * error


def test_half_width_is_that_of_the_interval_of_an_accuracy():
    from irtjax.ranking.accuracy import accuracies

    rng = np.random.default_rng(2)
    found = accuracies(DenseCells((rng.random((2000, 300)) < 0.7).astype(np.int8)))
    width = np.mean(found.upper - found.lower) / 2
    (row,) = irtjax.power(sizes=300, accuracy=0.7).table.to_pylist()
    assert row["half_width"] == pytest.approx(width, rel=0.005)


@pytest.mark.parametrize(
    ("accuracy", "difference", "correlation"),
    [(0.7, 0.05, 0.3), (0.5, 0.02, 0.6), (0.8, 0.1, 0.0)],
)
def test_items_needed_follow_the_textbook(accuracy, difference, correlation):
    """n = (z + z)^2 v / d^2 of normal tests; t needs z^2 / 2 more, about two."""
    found = irtjax.power(
        accuracy=accuracy, difference=difference, correlation=correlation
    )
    variance = paired_variance(
        accuracy + difference / 2, accuracy - difference / 2, correlation
    )
    normal = (norm.isf(0.025) + norm.isf(0.2)) ** 2 * variance / difference**2
    assert normal < found.items_needed < normal + norm.isf(0.025) ** 2 / 2 + 2


def test_the_variance_of_right_and_wrong_responses_is_that_of_mcnemars_test():
    """Connor (1987): share that differ less the squared difference."""
    rng = np.random.default_rng(3)
    first, second = correlated(rng, 0.75, 0.65, 0.4, 200_000)
    differ = np.mean(first != second)
    gap = np.mean(first) - np.mean(second)
    assert paired_variance(0.75, 0.65, 0.4) == pytest.approx(differ - gap**2, rel=0.02)


@pytest.mark.parametrize("degrees", [1, 4, 30, 1000, 10**6])
def test_power_is_that_of_the_noncentral_t(degrees):
    """Against SciPy's distribution, where it is not NaN."""
    design = PairedDesign(1.0)
    for shift in (0.0, 0.5, 2.0, 3.0, 6.0):
        difference = shift * design.error(degrees + 1)
        power = paired_power(design, degrees + 1, difference)
        from scipy.special import stdtrit

        critical = stdtrit(degrees, 0.975)
        exact = nct.sf(critical, degrees, shift) + nct.cdf(-critical, degrees, shift)
        # The quadrature has 100 nodes; its error is largest with one degree of freedom.
        assert power == pytest.approx(exact, abs=2e-4)


def test_the_smallest_detectable_difference_has_the_power_wanted():
    found = irtjax.power(models=10, power=0.9, cluster_size=5)
    assert found.design.cluster_correlation == 0.1
    for row in found.table.to_pylist():
        for end, level in (("", 0.95), ("_of_pairs", 1 - 0.05 / 45)):
            at = row["detectable" + end]
            power = paired_power(found.design, row["items"], at, level)
            assert power == pytest.approx(0.9, abs=1e-6)


def test_items_needed_are_the_fewest():
    design = PairedDesign(0.3, 4, 0.2)
    needed = items_needed(design, 0.04)
    assert paired_power(design, needed, 0.04) >= 0.8
    assert paired_power(design, needed - 1, 0.04) < 0.8


def test_data_give_accuracy_correlation_and_variance():
    rng = np.random.default_rng(4)
    ability, item = rng.normal(size=(12, 1)), rng.normal(size=(1, 300))
    right = rng.random((12, 300)) < 1 / (1 + np.exp(-ability - item))
    table = irtjax.ResponseTable.from_arrays(right)
    found = irtjax.power(table)
    assert found.models == 12
    assert 300 in found.table["items"].to_pylist()
    assert found.accuracy == pytest.approx(right.mean())
    errors = [
        paired_difference(right[[i, k]].astype(np.int8)).standard_error
        for k in range(12)
        for i in range(k)
    ]
    assert found.design.error(300) ** 2 == pytest.approx(np.mean(np.square(errors)))
    # A number of the user replaces that of the data.
    other = irtjax.power(table, correlation=0.9)
    assert other.items_needed < found.items_needed
    assert irtjax.power(table, models=2).items_needed_of_pairs is None


def test_missing_responses_and_trials_are_read():
    rng = np.random.default_rng(5)
    right = rng.binomial(4, 0.6, (6, 200)).astype(float)
    trials = np.full((6, 200), 4)
    counts = irtjax.ResponseTable.from_arrays(right, trials=trials)
    found = irtjax.power(counts)
    # Four trials: a quarter of the variance of one.
    assert found.design.variance == pytest.approx(2 * 0.24 / 4, rel=0.15)
    scores = np.where(rng.random((6, 200)) < 0.2, np.nan, right / 4)
    part = irtjax.power(irtjax.ResponseTable.from_arrays(scores))
    assert part.design.variance == pytest.approx(found.design.variance, rel=0.15)


def test_benchmarks_limit_what_more_items_find():
    rng = np.random.default_rng(6)
    shift = rng.normal(size=(8, 6)) * 1.5
    logit = np.repeat(shift, 50, axis=1)
    right = rng.random((8, 300)) < 1 / (1 + np.exp(-logit))
    names = np.repeat([f"task {k}" for k in range(6)], 50)
    table = irtjax.ResponseTable.from_arrays(right, benchmark=names)
    found = irtjax.power(table)
    assert found.design.clusters == 6
    assert found.items_needed is None
    assert "more benchmarks" in found.sentences[1]
    few, many = (irtjax.power(table, sizes=n).table for n in (600, 10**6))
    assert many["power"][0].as_py() < few["power"][0].as_py() + 0.05


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"difference": 5}, "difference 5 is not between 0 and 1; 5 points are 0.05"),
        ({"difference": -0.1}, "difference -0.1 is not between"),
        ({"accuracy": 0.97, "difference": 0.1}, "0.92 and 1.02 are not both from 0"),
        ({"correlation": 1.0}, "correlation 1 is not between -1 and 1"),
        ({"sizes": 1}, "sizes must be at least 2"),
        ({"sizes": []}, "sizes must be at least 2"),
        ({"models": 1}, "models must be at least 2"),
        ({"cluster_size": 0}, "cluster_size must be at least 1"),
        ({"power": 0.05}, "power 0.05 must be above 1 - level"),
        ({"level": 95}, "level 95 is not between 0 and 1"),
    ],
)
def test_numbers_out_of_range_are_refused(given, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        irtjax.power(**given)


def test_one_subject_is_refused():
    with pytest.raises(ValueError, match="two subjects"):
        irtjax.power(irtjax.ResponseTable.from_arrays([[1, 0, 1]]))


def test_equal_responses_have_no_power():
    table = irtjax.ResponseTable.from_arrays(np.ones((2, 5), int))
    with pytest.raises(ValueError, match="two subjects differ"):
        irtjax.power(table)
    assert irtjax.power(table, accuracy=0.9).items_needed > 100
