"""Reliability: identities, published values, missing responses, runs."""

import numpy as np
import pytest

import irtjax
from irtjax.validity.reliability import reliability


def right(subjects=80, items=30, seed=0, spread=1.0):
    """Responses of a Rasch model."""
    rng = np.random.default_rng(seed)
    logit = spread * rng.normal(size=(subjects, 1)) - rng.normal(size=items)
    return (rng.random((subjects, items)) < 1 / (1 + np.exp(-logit))).astype(float)


@pytest.mark.parametrize(
    ("name", "coefficient", "dependability", "components"),
    [
        ("classic/lsat7.parquet", 0.45341, 0.4369, (0.02605, 0.01085, 0.15705)),
        (
            "lart/accuracy_math500.parquet",
            *(0.9977, 0.9971),
            (0.10211, 0.03060, 0.11775),
        ),
    ],
)
def test_alpha_is_the_coefficient_of_subjects_by_items(
    shared_data, name, coefficient, dependability, components
):
    result = reliability(irtjax.read(shared_data / name))
    design = result.components.design()
    assert result.alpha == pytest.approx(design.coefficient, abs=1e-10)
    assert result.alpha == pytest.approx(coefficient, abs=5e-5)
    assert design.dependability == pytest.approx(dependability, abs=5e-5)
    assert result.sem == pytest.approx(design.relative_error, rel=1e-9)
    variances = result.components.table["variance"].to_numpy()
    np.testing.assert_allclose(variances, components, atol=5e-6)


def test_coefficients_are_those_of_the_covariances():
    values = right(60, 12)
    row = reliability(values).table.to_pylist()[-1]
    cov = np.cov(values.T, bias=True)
    total, apart = cov.sum(), cov - np.diag(np.diag(cov))
    lambda2 = (apart.sum() + np.sqrt(12 / 11 * np.sum(apart**2))) / total
    assert row["lambda2"] == pytest.approx(lambda2, abs=1e-12)
    # Every split in halves, of which the best is lambda-4.
    signs = 1 - 2 * ((np.arange(2**11)[:, None] >> np.arange(12)) & 1)
    best = np.max(1 - np.einsum("sj,jk,sk->s", signs, cov, signs) / total)
    assert best - 0.02 <= row["lambda4"] <= best + 1e-12
    alpha = 12 / 11 * (1 - np.trace(cov) / total)
    assert row["alpha"] == pytest.approx(alpha, abs=1e-12)
    assert row["sem"] == pytest.approx(row["sd"] * np.sqrt(1 - row["alpha"]), rel=1e-10)
    assert row["alpha_lower"] < alpha < row["alpha_upper"]
    subjects, score = reliability(values).subjects, values.mean(axis=1)
    kelley = alpha * score + (1 - alpha) * score.mean()
    np.testing.assert_allclose(subjects["kelley"].to_numpy(), kelley, atol=1e-12)
    # Of a score of random items (Lord 1957), and of a regression on it.
    error = np.sqrt(score * (1 - score) / 11)
    np.testing.assert_allclose(subjects["sem"].to_numpy(), error, atol=1e-12)
    error = row["sd"] * np.sqrt(alpha * (1 - alpha))
    np.testing.assert_allclose(subjects["kelley_se"].to_numpy(), error, atol=1e-12)


def test_omega_of_one_factor_is_that_of_its_loadings():
    rng = np.random.default_rng(2)
    loading, unique = rng.uniform(0.3, 1.2, 15), rng.uniform(0.5, 1.5, 15)
    skill = rng.normal(size=(8_000, 1))
    values = loading * skill + np.sqrt(unique) * rng.normal(size=(8_000, 15))
    true = loading.sum() ** 2 / (loading.sum() ** 2 + unique.sum())
    # Of 8,000 subjects omega has an error of about (1 - omega) sqrt(2 / n) = .002.
    assert abs(reliability(values).omega - true) < 0.006


def test_missing_responses_at_random_change_little():
    values = right(400, 40)
    whole = reliability(values)
    rng = np.random.default_rng(3)
    some = np.where(rng.random(values.shape) < 0.7, values, np.nan)
    part = reliability(some)
    # Alpha of all items, by the pairs that are there; the error is that of 28 items.
    assert part.alpha == pytest.approx(whole.alpha, abs=0.02)
    assert part.omega == pytest.approx(whole.omega, abs=0.03)
    assert part.sem == pytest.approx(whole.sem * np.sqrt(1 / 0.7), rel=0.03)


def test_benchmarks_have_rows_and_a_facet():
    values = right(50, 40)
    table = irtjax.ResponseTable.from_arrays(
        values, benchmark=np.repeat(["math", "code"], 20)
    )
    result = reliability(table)
    assert result.table["benchmark"].to_pylist() == ["math", "code", "all"]
    assert "subject × benchmark" in result.components.variances
    alone = reliability(table.select(items=np.arange(20)))
    assert result.table["alpha"][0].as_py() == alone.alpha


def test_runs_have_flips_and_a_spread():
    rng = np.random.default_rng(4)
    chance = rng.beta(0.8, 0.8, (30, 50))
    table = irtjax.ResponseTable.from_arrays(
        rng.binomial(6, chance), trials=np.full((30, 50), 6)
    )
    runs = reliability(table).runs
    true = np.mean(2 * chance * (1 - chance))
    assert runs["flips"] == pytest.approx(true, rel=0.05)
    spread = np.sqrt(np.mean(chance * (1 - chance)) / 50)
    assert runs["run_sd"] == pytest.approx(spread, rel=0.05)
    between = np.var(chance.mean(axis=1), ddof=1)
    assert runs["retest"] == pytest.approx(between / (between + spread**2), abs=0.1)
    assert reliability(right()).runs is None


def test_the_difference_is_that_of_equal_subjects():
    """Of equal subjects 95 % of the pairs differ by less than it says."""
    rng = np.random.default_rng(6)
    chance = rng.uniform(0.1, 0.9, 200)
    values = (rng.random((300, 200)) < chance).astype(float)
    result = reliability(values)
    score = values.mean(axis=1)
    gaps = np.abs(score[:, None] - score)[np.triu_indices(300, 1)]
    # 300 subjects: the standard deviation of scores is known to 4 %.
    assert np.mean(gaps <= result.difference) == pytest.approx(0.95, abs=0.02)
    assert result.alpha < 0.3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (right(2, 5), "needs 3 subjects or more, and there are 2"),
        (np.ones((5, 4)), "needs 2 items with different responses"),
    ],
)
def test_too_little_is_refused_in_a_line(values, message):
    with pytest.raises(ValueError, match=message):
        reliability(values)
    with pytest.raises(ValueError, match="level is between 0 and 1"):
        reliability(right(), level=95)


@pytest.mark.slow
@pytest.mark.parametrize("subjects", [10, 20, 100])
def test_intervals_of_alpha_hold(subjects):
    big = right(20_000, 50, seed=99)
    held = 0
    true = reliability(big).alpha
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values = big[rng.choice(len(big), subjects, replace=False)]
        row = reliability(values).table.to_pylist()[-1]
        held += row["alpha_lower"] <= true <= row["alpha_upper"]
    assert 0.92 <= held / 300 <= 0.985  # .95 with two binomial errors of .0126.
