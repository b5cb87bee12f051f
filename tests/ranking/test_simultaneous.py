"""Simultaneous rank sets: known quantiles, coverage, and how they reach users."""

import jax
import numpy as np
import pytest
from scipy.stats import studentized_range

import irtjax
from irtjax import ranking
from irtjax.ranking.pairs import ScoreErrors
from irtjax.ranking.simultaneous import rank_sets, simultaneous_z


@pytest.mark.parametrize("subjects", [2, 5, 20])
def test_equal_errors_have_the_studentised_range(subjects):
    """Tukey's quantile; its standard error with 40,000 draws is below 0.01."""
    wanted = studentized_range.ppf(0.95, subjects, np.inf) / np.sqrt(2)
    errors = ScoreErrors(np.full(subjects, 0.2), None, None)
    generator = np.random.default_rng(0)
    z = simultaneous_z(np.zeros(subjects), errors, 0.95, 40_000, generator)
    assert z == pytest.approx(wanted, abs=0.04)


def test_shared_errors_and_their_covariance_are_the_same():
    rng = np.random.default_rng(0)
    shared, theta = rng.normal(size=(8, 2)), rng.normal(size=8)
    error = np.sqrt(0.25 + np.sum(shared**2, axis=1))
    covariance = shared @ shared.T + 0.25 * np.eye(8)
    draw = lambda errors: simultaneous_z(
        theta, errors, 0.9, 40_000, np.random.default_rng(1)
    )
    one = draw(ScoreErrors(error, None, shared))
    assert one == pytest.approx(draw(ScoreErrors(error, covariance, None)), abs=0.03)


def test_distant_pairs_leave_only_their_other_side():
    """Two leagues far apart: fewer pairs are left, and the quantile is lower."""
    theta = np.repeat([0.0, 50.0], 10)
    errors = ScoreErrors(np.ones(20), None, None)
    draw = lambda x: simultaneous_z(x, errors, 0.95, 20_000, np.random.default_rng(0))
    apart, equal = draw(theta), draw(np.zeros(20))
    assert apart < equal - 0.05
    lower, upper = rank_sets(theta, errors, apart)
    assert lower.tolist() == [11] * 10 + [1] * 10
    assert upper.tolist() == [20] * 10 + [10] * 10


def coverage(subjects: int, tests: int, tied: bool) -> float:
    """Share of simulations in which every true rank lies in its set."""
    rng = np.random.default_rng(subjects)
    theta = np.zeros(subjects) if tied else np.linspace(0, 3, subjects)
    root = rng.normal(size=(subjects, subjects)) / np.sqrt(subjects) * 0.3
    covariance = root @ root.T + 0.01 * np.eye(subjects)
    inside = 0
    for k in range(tests):
        noise = rng.multivariate_normal(np.zeros(subjects), covariance)
        errors = np.sqrt(np.diagonal(covariance))
        options = {"covariance": covariance, "simultaneous": True, "num_draws": 1000}
        r = ranking.rank(theta + noise, errors, key=jax.random.key(k), **options)
        lowest = 1 + (theta[None, :] > theta[:, None]).sum(axis=1)
        highest = (theta[None, :] >= theta[:, None]).sum(axis=1)
        # Of equal abilities every shared rank is a true one.
        inside += bool(np.all((r.rank_lower <= lowest) & (r.rank_upper >= highest)))
    return inside / tests


def test_rank_sets_of_five_cover_together():
    """200 simulations: a standard error of 0.015 at a coverage of 0.95."""
    assert coverage(5, 200, True) >= 0.95 - 3 * 0.0154


@pytest.mark.slow
@pytest.mark.parametrize("subjects", [20, 200])
@pytest.mark.parametrize("tied", [True, False])
def test_rank_sets_cover_together(subjects, tied):
    tests = 200 if subjects < 200 else 60
    share = coverage(subjects, tests, tied)
    error = np.sqrt(0.95 * 0.05 / tests)
    assert share >= 0.95 - 3 * error
    if tied:
        # All abilities equal: the quantile is exact.
        assert share <= min(1.0, 0.95 + 3 * error)


def test_verbs_have_simultaneous_ranks():
    rng = np.random.default_rng(0)
    names = [f"m{k}" for k in range(12)]
    estimates = np.sort(rng.normal(size=12))
    abilities = irtjax.Abilities(names, estimates, 0.15**2 * np.eye(12))
    plain, wide = irtjax.rank(abilities), irtjax.rank(abilities, simultaneous=True)
    assert wide.num_different < plain.num_different
    width = lambda r: np.subtract(
        np.asarray(r.table["rank_upper"]), np.asarray(r.table["rank_lower"])
    )
    assert np.all(width(wide) >= width(plain)) and width(wide).sum() > 0
    data = rng.random((8, 30)) < np.linspace(0.2, 0.9, 8)[:, None]
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data.astype(int)), "rasch")
    both = [irtjax.rank(fit, simultaneous=x).num_different for x in (False, True)]
    assert both[1] <= both[0]
    with pytest.raises(ValueError, match="up to 2,000 subjects"):
        many = np.arange(2001.0)
        ranking.rank(many, np.ones(2001), key=jax.random.key(0), simultaneous=True)
