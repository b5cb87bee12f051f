"""Several sources on one scale: against other optimisers, limits and simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import irtjax
from experiments.comparisons.joint_scale import drawn, simulate
from irtjax.comparisons import sources
from irtjax.comparisons.joint import fit_jointly, without_prior


def abilities_of(estimates, source):
    """The estimates of one source as abilities."""
    rows = estimates.source == source
    error = np.sqrt(np.diagonal(estimates.covariance))[rows]
    names = [f"m{k}" for k in estimates.subject[rows]]
    return irtjax.Abilities(names, estimates.value[rows], error)


def restricted(estimates, sigma):
    """The likelihood of differences within each source: a basis, by SciPy's density."""
    x = np.eye(2)[estimates.source]
    basis = np.linalg.svd(x, full_matrices=True)[0][:, 2:]
    same = estimates.subject[:, None] == estimates.subject
    total = estimates.covariance + np.where(same, x @ sigma @ x.T, 0)
    covariance = basis.T @ total @ basis
    return multivariate_normal(cov=covariance).logpdf(basis.T @ estimates.value)


def test_the_likelihood_is_that_of_differences_and_its_maximum_another_optimisers():
    _, estimates = drawn(np.random.default_rng(3), 0.6, 25, only=5)

    def sigma_of(values):
        one, other = np.exp(values[:2])
        rho = np.tanh(values[2])
        return np.array([[one**2, rho * one * other], [rho * one * other, other**2]])

    negative = lambda values: -restricted(estimates, sigma_of(values))
    best = minimize(negative, [0, 0, 0], method="Nelder-Mead", options={"xatol": 1e-7})
    sigma, at = sources.maximum(estimates)
    np.testing.assert_allclose(sigma, sigma_of(best.x), rtol=2e-3)
    # Equal up to a constant, at the maximum and away from it.
    away = sigma_of([0.3, -0.5, 0.1])
    other = sources.likelihood(estimates, away).value - at.value
    assert other == pytest.approx(restricted(estimates, away) + best.fun, abs=1e-5)
    step = 1e-5 * np.array([[1, 0.5], [0.5, -2]])
    values = [sources.likelihood(estimates, away + s * step).value for s in (1, -1)]
    slope = np.sum(sources.likelihood(estimates, away).gradient * step)
    assert (values[0] - values[1]) / 2 == pytest.approx(slope, rel=1e-6)


def test_without_errors_the_agreement_is_pearsons_correlation_with_students_interval():
    rng = np.random.default_rng(0)
    true, _ = drawn(rng, 0.5, 20)
    exact = np.full(20, 1e-4)
    names = [f"m{k}" for k in range(20)]
    one, other = (irtjax.Abilities(names, x, exact) for x in true.T)
    row = fit_jointly(accuracy=one, votes=other).agreement[0]
    r = np.corrcoef(true.T)[0, 1]
    assert row.correlation == pytest.approx(r, abs=1e-3)
    # Fisher's interval is another approximation: they agree to second order.
    ends = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(17))
    np.testing.assert_allclose([row.lower, row.upper], ends, atol=0.03)


def test_errors_do_not_attenuate_the_agreement():
    row = {}
    for noise in (0.05, 0.9):
        _, estimates = drawn(np.random.default_rng(5), 0.8, 150, (noise, noise / 2))
        parts = {k: abilities_of(estimates, s) for s, k in enumerate(("a", "b"))}
        row[noise] = fit_jointly(**parts).agreement[0]
        raw = np.corrcoef(estimates.value.reshape(2, -1))[0, 1]
    assert raw < 0.6  # 0.8 / (1 + 0.9^2) = 0.44 is expected.
    assert row[0.9].lower < 0.8 < row[0.9].upper
    assert row[0.9].upper - row[0.9].lower > row[0.05].upper - row[0.05].lower


def test_one_source_gives_its_own_fit_up_to_a_scale():
    rng = np.random.default_rng(2)
    odds = rng.normal(size=(80, 1)) - rng.normal(size=25)
    right = rng.random((80, 25)) < 1 / (1 + np.exp(-odds))
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "rasch")
    own = fit.abilities.table.to_pandas().set_index("subject")
    joint = fit_jointly(fit)
    assert joint.agreement == () and joint.residuals.num_rows == 0
    shared = dict(zip(joint.abilities.names, joint.abilities.estimates, strict=True))
    both = own["ability"].to_numpy(), np.array([shared[x] for x in own.index])
    assert np.corrcoef(*both)[0, 1] > 0.9999
    # An arena, whose covariance has rows that sum to 0, keeps its order.
    rows = [[30, 10, 6, 0], [25, 15, 4, 2], [20, 18, 9, 0]]
    table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    arena = irtjax.fit_comparisons(table)
    alone = fit_jointly(comparisons=table).abilities
    assert np.corrcoef(alone.estimates, arena.abilities.estimates)[0, 1] > 0.999


def test_the_prior_of_a_fit_is_taken_away():
    rng = np.random.default_rng(4)
    theta = rng.normal(size=300)
    odds = theta[:, None] - rng.normal(size=15)
    right = rng.random((300, 15)) < 1 / (1 + np.exp(-odds))
    abilities = without_prior(
        irtjax.fit(irtjax.ResponseTable.from_arrays(right), "rasch")
    )
    # Estimates with the variance of truth and of errors; posterior means have less.
    error = np.mean(abilities.standard_error**2)
    unit = np.mean(theta**2)
    assert np.var(abilities.estimates) == pytest.approx(unit + error, rel=0.25)


def test_scale_and_origin_of_a_source_do_not_matter_and_signs_turn():
    _, estimates = drawn(np.random.default_rng(6), 0.7, 30)
    one, other = (abilities_of(estimates, s) for s in (0, 1))
    turned = irtjax.Abilities(
        other.names, 9 - 40 * other.estimates, 40 * other.standard_error
    )
    first, second = fit_jointly(a=one, b=other), fit_jointly(a=one, b=turned)
    row, flipped = first.agreement[0], second.agreement[0]
    values = row.correlation, row.lower, row.upper
    others = -flipped.correlation, -flipped.upper, -flipped.lower
    np.testing.assert_allclose(values, others, atol=3e-3)
    q = [x.residuals["q_value"].to_numpy() for x in (first, second)]
    np.testing.assert_allclose(*q, rtol=1e-2, atol=1e-4)


def test_a_planted_model_differs_and_three_sources_join_with_missing_models():
    rng = np.random.default_rng(8)
    true, estimates = drawn(rng, 0.95, 40, (0.1, 0.05), only=8)
    estimates.value[40 + 3] += 1.2  # The votes of m3.
    length = irtjax.Abilities(
        [f"m{k}" for k in range(2, 40)], rng.normal(size=38), np.full(38, 0.1)
    )
    parts = {
        "accuracy": abilities_of(estimates, 0),
        "votes": abilities_of(estimates, 1),
    }
    joint = fit_jointly(**parts, length=length, weights={"length": 0})
    assert joint.differences("votes")[0]["subject"] == "m3"
    assert len(joint.agreement) == 3 and len(joint.abilities.names) == 40
    names = [int(name[1:]) for name in joint.abilities.names]
    others = np.array(names) != 3
    shared = true[names] @ [1, 2]
    assert np.corrcoef(joint.abilities.estimates[others], shared[others])[0, 1] > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_coverage_of_planted_agreement(rho):
    # The standard error of a coverage of 0.95 in 60 samples is 0.028.
    found = simulate(rho, 40, 60)
    assert found.inside > 0.95 - 3 * 0.028
    assert abs(found.estimate - rho) < 0.05
    if rho == 1:  # No model has a residual.
        assert found.discoveries < 0.05 + 3 * 0.028


def test_refusals_name_the_cure():
    five = irtjax.Abilities(list("abcde"), np.arange(5.0), np.ones(5))
    other = irtjax.Abilities(list("cdefg"), np.arange(5.0), np.ones(5))
    with pytest.raises(ValueError, match="3 common models .* rename with names="):
        fit_jointly(votes=five, accuracy=other)
    fit_jointly(votes=five, accuracy=other, names={"f": "a", "g": "b"})
    with pytest.raises(ValueError, match="two models named 'c' after renaming"):
        fit_jointly(votes=five, accuracy=other, names={"d": "c"})
    with pytest.raises(ValueError, match="needs a source"):
        fit_jointly()
    with pytest.raises(ValueError, match="name the sources"):
        fit_jointly(five, five, five)
    with pytest.raises(ValueError, match="judge is a list: give a ResponseTable"):
        fit_jointly(judge=[1, 2])
    with pytest.raises(ValueError, match="weights has 'vote', not one of a, b"):
        fit_jointly(a=five, b=five, weights={"vote": 1})
    flat = irtjax.Abilities(list("abcde"), np.zeros(5), np.ones(5))
    with pytest.raises(ValueError, match="same ability in flat: leave it out"):
        fit_jointly(five, flat=flat)
