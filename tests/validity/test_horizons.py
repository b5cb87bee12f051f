"""Horizons in human time: recovery, brute force, bounds, doubling times, messages."""

import datetime

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as t_distribution

import irtjax
from irtjax.validity.horizons import horizons
from irtjax.validity.success_by_length import (
    LINKS,
    Assumptions,
    RunCounts,
    _Model,
    fit_curves,
    predictor,
)

#: Success of each link, written independently of the package.
CURVES = {
    "logit": expit,
    "probit": norm.cdf,
    "loglog": lambda eta: np.exp(-np.exp(-eta)),
}


def simulate(rng, tasks=83, families=36, subjects=6, slope=0.6, sds=(1.0, 2.0)):
    """RunCounts of runs, and the log2 horizons behind them."""
    family = np.r_[np.arange(families), rng.integers(0, families, tasks - families)]
    length = rng.uniform(0, 10, tasks)
    horizon = np.linspace(1, 6, subjects)
    eta = slope * (horizon[:, None] - length)
    eta = eta + sds[0] * rng.normal(size=families)[family]
    eta = eta + sds[1] * rng.normal(size=tasks)
    runs = rng.integers(1, 9, eta.shape)
    right = rng.binomial(runs, expit(eta))
    return RunCounts(right.astype(float), runs.astype(float), length, family), horizon


def rows_of(counts):
    """A row for each run."""
    rows = {name: [] for name in ("subject", "task", "minutes", "success", "family")}
    for (i, j), number in np.ndenumerate(counts.runs.astype(int)):
        rows["subject"] += [f"model {i}"] * number
        rows["task"] += [f"task {j}"] * number
        rows["minutes"] += [float(2 ** counts.length[j])] * number
        rows["family"] += [f"family {counts.family[j]}"] * number
        right = int(counts.right[i, j])
        rows["success"] += [1.0] * right + [0.0] * (number - right)
    return rows


@pytest.mark.parametrize("link", LINKS)
def test_derivatives_are_those_of_the_log_likelihood(link):
    eta = np.linspace(-6, 6, 41)
    right, runs, step = np.full(41, 2.0), np.full(41, 5.0), 1e-5
    value, first, second = LINKS[link](eta, right, runs)
    p = CURVES[link](eta)
    expected = right * np.log(p) + (runs - right) * np.log1p(-p)
    # The reference loses digits where 1 - p is small.
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    up, down = (LINKS[link](eta + x, right, runs) for x in (step, -step))
    np.testing.assert_allclose((up[0] - down[0]) / step / 2, first, atol=1e-6)
    np.testing.assert_allclose((up[1] - down[1]) / step / 2, second, atol=1e-6)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("slope", ["common", "own"])
def test_the_maximum_is_that_of_the_integral_by_brute_force(link, slope):
    rng = np.random.default_rng(0)
    counts, _ = simulate(rng, tasks=30, families=10, subjects=3)
    curves = fit_curves(counts, Assumptions(link, slope))
    z = np.linspace(-8, 8, 2001)
    density = norm.pdf(z) * (z[1] - z[0])
    length = counts.length - counts.length.mean()

    def value(intercept, slopes, sd):
        fixed = intercept[:, None] - slopes[:, None] * length
        p = np.clip(CURVES[link](fixed[:, :, None] + sd * z), 1e-15, 1 - 1e-15)
        right, runs = counts.right[:, :, None], counts.runs[:, :, None]
        log = (right * np.log(p) + (runs - right) * np.log(1 - p)).sum(axis=0)
        return float(np.log(np.exp(log) @ density).sum())

    best = value(curves.intercept, curves.slope, curves.sd)
    assert curves.converged
    # 21 nodes of each task against a fine grid.
    assert curves.log_likelihood == pytest.approx(best, abs=2e-3)
    for change in (-0.03, 0.03):
        moved = curves.intercept + change * np.eye(3)[0]
        assert value(moved, curves.slope, curves.sd) < best
        assert value(curves.intercept, curves.slope + change, curves.sd) < best
        assert value(curves.intercept, curves.slope, curves.sd + change) < best


def test_regressions_by_subject_are_weighted_logistic_regressions():
    counts, _ = simulate(np.random.default_rng(1))
    curves = fit_curves(counts, Assumptions("logit", "own", "none", "families"))
    weight = 1 / np.sqrt(np.bincount(counts.family)[counts.family])
    share = counts.right / counts.runs

    def loss(point, subject):
        p = expit(point[0] - point[1] * counts.length)
        log = share[subject] * np.log(p) + (1 - share[subject]) * np.log(1 - p)
        return -float(weight @ log)

    for subject, log in enumerate(curves.log_horizons(0.5)):
        a, b = minimize(loss, [0.0, 0.5], (subject,), "BFGS").x
        assert a / b == pytest.approx(log, abs=1e-3)
        assert b == pytest.approx(curves.slope[subject], abs=1e-3)


@pytest.mark.parametrize("link", LINKS)
def test_marginal_chances_are_means_over_tasks(link):
    z = np.linspace(-9, 9, 4001)
    for success, sd in ((0.5, 0.0), (0.8, 1.5), (0.8, 3.0)):
        eta = predictor(link, success, sd)
        mean = np.sum(CURVES[link](eta + sd * z) * norm.pdf(z)) * (z[1] - z[0])
        # 61 nodes, of a curve as steep as the loglog one with a deviation of 3.
        assert mean == pytest.approx(success, abs=1e-4)
    assert predictor("logit", 0.5, 2.0) == pytest.approx(0, abs=1e-9)


def test_horizons_are_recovered_within_their_errors():
    counts, truth = simulate(np.random.default_rng(2), 200, 100)
    result = horizons(rows_of(counts))
    rows = sorted(result.table.to_pylist(), key=lambda row: row["subject"])
    log = np.log2(
        [[row[f"horizon_50{x}"] for x in ("_lower", "_upper")] for row in rows]
    )
    error = (log[:, 1] - log[:, 0]) / 2 / 1.98
    z = (log.mean(axis=1) - truth) / error
    assert np.abs(z).max() < 3.5 and error.max() < 1
    assert result.difficulty_sd == pytest.approx(5**0.5, abs=0.5)
    assert result.slope == pytest.approx(0.6, abs=0.15) and result.families == 100
    first = result.sensitivity.to_pylist()[0]
    assert first["assumption"] == "chosen" and first["ratio_50"] == pytest.approx(1)
    names = result.sensitivity["assumption"].to_pylist()
    assert {"probit", "loglog", "slope own", "difficulty none"} < {*names}
    for row in rows:
        least, most = row["horizon_50_least"], row["horizon_50_most"]
        assert least <= row["horizon_50"] <= most
        # A symmetrical link: of half of the runs the two agree, of 80 % they do not.
        assert row["horizon_50_marginal"] == pytest.approx(row["horizon_50"])
        assert row["horizon_80_marginal"] < row["horizon_80"] < row["horizon_50"]


@pytest.mark.slow
def test_intervals_hold_their_level():
    """300 data sets: 6 subjects share tasks, so the error of coverage is about 1 %."""
    rng = np.random.default_rng(3)
    inside = {0.5: [], 0.8: []}
    for _ in range(300):
        counts, truth = simulate(rng)
        curves = fit_curves(counts, Assumptions())
        tail = t_distribution.ppf(0.975, 35)
        for chance, found in inside.items():
            marginal = chance == 0.8
            needed = predictor("logit", chance, 5**0.5) if marginal else 0.0
            log = curves.log_horizons(chance, marginal)
            error = np.sqrt(np.diag(curves.log_covariance(chance, marginal)))
            found.append(np.abs(log - truth + needed / 0.6) < tail * error)
    for found in inside.values():
        assert 0.92 < np.mean(found) < 0.98


def test_extreme_subjects_have_bounds():
    counts, _ = simulate(np.random.default_rng(4))
    counts.right[0], counts.right[5] = 0, counts.runs[5]
    result = horizons(rows_of(counts))
    rows = {row["subject"]: row for row in result.table.to_pylist()}
    best, worst = rows["model 5"], rows["model 0"]
    assert np.isnan(best["horizon_50"]) and np.isnan(best["horizon_50_upper"])
    assert best["horizon_50_lower"] > rows["model 4"]["horizon_50"]
    assert np.isnan(worst["horizon_50_lower"])
    assert worst["horizon_50_upper"] < rows["model 1"]["horizon_50"]
    assert list(rows)[0] == "model 5" and list(rows)[-1] == "model 0"
    text = " ".join(result.warnings)
    assert "model 5 always succeeds: its horizon is at least" in text
    assert "model 0 always fails: its horizon is at most" in text


def test_an_own_slope_needs_overlapping_lengths():
    counts, _ = simulate(np.random.default_rng(5))
    counts.right[2] = np.where(counts.length < 4, counts.runs[2], 0)
    result = horizons(rows_of(counts), slope="own")
    rows = {row["subject"]: row for row in result.table.to_pylist()}
    assert np.isnan(rows["model 2"]["horizon_50"]) and rows["model 3"]["horizon_50"] > 0
    assert any("no own slope of model 2" in text for text in result.warnings)


def test_doubling_time_is_that_of_the_best_subjects():
    rng = np.random.default_rng(6)
    counts, truth = simulate(rng, 150, 150, sds=(0.0, 0.5))
    start = datetime.date(2024, 1, 1)
    dates = {f"model {k}": start + datetime.timedelta(100 * k) for k in range(6)}
    # Horizons are 1, 2, ..., 6 doublings; a late model is no best one.
    assert np.allclose(np.diff(truth), 1)
    result = horizons(rows_of(counts), dates=dates)
    trend = result.trend
    assert '"date": "2024-01-01"' in result.to_json()
    assert trend.doubling_days_lower < 100 < trend.doubling_days_upper
    assert trend.doubling_days == pytest.approx(100, rel=0.2)
    assert trend.subjects == tuple(f"model {k}" for k in range(6))
    dates["model 0"] = "2026-01-01"
    result = horizons(rows_of(counts), dates=dates)
    assert result.trend.subjects == tuple(f"model {k}" for k in range(1, 6))
    del dates["model 2"], dates["model 3"], dates["model 4"]
    result = horizons(rows_of(counts), dates=dates)
    assert result.trend is None
    assert any("fewer than three best subjects" in x for x in result.warnings)


def test_people_are_left_out_unless_asked():
    rows = rows_of(simulate(np.random.default_rng(7))[0])
    rows["subject"] = ["Human" if x == "model 3" else x for x in rows["subject"]]
    assert "Human" not in horizons(rows).table["subject"].to_pylist()
    asked = horizons(rows, humans=True).table["subject"].to_pylist()
    assert "Human" in asked and len(asked) == 6


def altered(**columns):
    """TimedRuns with other columns."""
    counts, _ = simulate(np.random.default_rng(8), 20, 5, 2)
    rows = rows_of(counts)
    for name, value in columns.items():
        rows[name] = value(rows[name])
    return rows


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ({"minutes": lambda x: [0.0, *x[1:]]}, {}, "minutes must be above 0, and that"),
        ({"success": lambda x: [2.0, *x[1:]]}, {}, "success must be from 0 to 1"),
        ({"minutes": lambda x: [5.0] * len(x)}, {}, "all tasks have 5 minutes"),
        ({"minutes": lambda x: [9.0, *x[1:]]}, {}, "give each task one"),
        ({"success": lambda x: [1.0] * len(x)}, {}, "both successes and failures"),
        (
            {"minutes": lambda x: ["long"] * len(x)},
            {},
            "column 'minutes', row 1: 'long' is not a number; write one",
        ),
        ({"minutes": lambda x: [1e3 / y for y in x]}, {}, "does not fall with the min"),
        ({}, {"dates": {"model 0": "soon"}}, "date 'soon' of 'model 0' is none: write"),
        ({}, {"dates": "released"}, "no column 'released' of dates among"),
        ({}, {"columns": {"task": "question"}}, "no column 'question' .task. among"),
        ({}, {"link": "cauchit"}, "link 'cauchit' is none of logit, probit, loglog"),
        ({}, {"weights": "tasks"}, "requires difficulty 'none'"),
        ({}, {"level": 95}, "level 95 is not between 0 and 1"),
    ],
)
def test_wrong_input_is_refused_in_one_line(columns, settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.horizons(altered(**columns), **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("slope", ["common", "own"])
def test_the_sign_of_the_difficulties_changes_no_error(slope, monkeypatch):
    """The likelihood is that of their absolute standard deviation."""
    counts, _ = simulate(np.random.default_rng(9), 40, 40, 3, sds=(0.0, 1.0))
    assumed = Assumptions(slope=slope)
    curves = fit_curves(counts, assumed)
    start = _Model.start

    def negative(model):
        point = start(model)
        return np.append(point[:-1], -point[-1])

    monkeypatch.setattr(_Model, "start", negative)
    mirrored = fit_curves(counts, assumed)
    covariance = mirrored.log_covariance(0.8, marginal=True)
    np.testing.assert_allclose(
        covariance, curves.log_covariance(0.8, marginal=True), rtol=1e-3, atol=1e-6
    )


def test_curves_that_are_steps_are_refused():
    rows = altered()
    rows["success"] = [float(x < 30) for x in rows["minutes"]]
    with pytest.raises(ValueError, match="overlapping lengths of tasks"):
        horizons(rows)


def test_runs_of_real_agents(shared_data):
    """7,063 runs of ten agents and people on 83 tasks in 36 families."""
    file = shared_data / "horizons" / "metr_runs_v1_0.parquet"
    result = irtjax.horizons(file)
    assert result.families == 36 and result.table.num_rows == 10
    rows = {row["subject"]: row for row in result.table.to_pylist()}
    assert rows["o1"]["runs"] == 1014 and rows["o1"]["tasks"] == 83
    # It fails in all 68 runs.
    assert np.isnan(rows["davinci-002"]["horizon_50"])
    analyses = {row["assumption"]: row for row in result.sensitivity.to_pylist()}
    # Difficulty given length is random: the likelihood is 1,264 nats higher.
    gain = result.sensitivity["log_likelihood"][0].as_py()
    gain -= analyses["difficulty none"]["log_likelihood"]
    assert gain > 1000 and result.difficulty_sd > 2
    # Analyses differ by 1.5 to 2 times from assumptions alone.
    ratios = [row["ratio_50_most"] / row["ratio_50_least"] for row in analyses.values()]
    assert 1.5 < max(ratios) < 3
