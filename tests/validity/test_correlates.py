"""Correlations without errors of measurement, and the multitrait-multimethod table."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, multivariate_normal
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.data.result_text import level_of
from irtjax.validity.alpha import alpha_of
from irtjax.validity.correlates import correlates
from irtjax.validity.latent_correlation import latent_correlation
from irtjax.validity.measures import measures_of, without_joint_prior


def noisy(rho, count, rng, low=0.2, high=0.9):
    """Estimates of two standard normal quantities, and their errors."""
    true = rng.normal(size=(2, count))
    true[1] = rho * true[0] + np.sqrt(1 - rho**2) * true[1]
    errors = rng.uniform(low, high, size=(2, count))
    return true + errors * rng.normal(size=(2, count)), errors


def test_of_equal_errors_it_is_the_correction_for_attenuation():
    t, _ = noisy(0.6, 80, np.random.default_rng(0))
    errors = np.array([[0.3], [0.5]]) * np.ones((2, 80))
    result = latent_correlation(t, errors)
    reliabilities = 1 - errors[:, 0] ** 2 / t.var(axis=1)
    assert result.reliabilities == pytest.approx(reliabilities, rel=1e-4)
    by_hand = result.raw / np.sqrt(reliabilities.prod())
    assert result.correlation == pytest.approx(by_hand, abs=1e-5)


def test_without_errors_the_interval_is_that_of_fishers_z():
    t, errors = noisy(0.6, 60, np.random.default_rng(1))
    result = latent_correlation(t, 0 * errors)
    assert result.correlation == pytest.approx(result.raw, abs=1e-5)
    half = 1.96 / np.sqrt(57)
    ends = np.tanh(np.arctanh(result.raw) + np.array([-half, half]))
    # The deviance is not a parabola in z: they differ by terms of order 1 / n.
    assert [result.lower, result.upper] == pytest.approx(ends, abs=0.005)


def test_the_ends_have_the_deviance_of_the_quantile():
    t, errors = noisy(0.7, 25, np.random.default_rng(2))
    result = latent_correlation(t, errors)

    def minus(point):
        mean, (first, second), rho = point[:2], np.exp(point[2:4]), np.tanh(point[4])
        total = 0.0
        for estimate, error in zip(t.T, errors.T, strict=True):
            covariance = np.diag(error**2) + np.array(
                [[first**2, rho * first * second], [rho * first * second, second**2]]
            )
            total -= multivariate_normal.logpdf(estimate, mean, covariance)
        return total

    best = minimize(minus, np.array([0, 0, 0, 0, 0.8]))
    assert np.tanh(best.x[4]) == pytest.approx(result.correlation, abs=1e-3)
    z = np.arctanh(result.lower)
    at_end = minimize(lambda x: minus([*x, z]), best.x[:4]).fun
    deviance = 2 * (at_end - best.fun) * 22 / 25
    assert deviance == pytest.approx(chi2.ppf(0.95, 1), abs=0.01)


def test_influences_are_those_of_leaving_a_subject_out():
    t, errors = noisy(0.6, 150, np.random.default_rng(3))
    result = latent_correlation(t, errors)
    first = np.arange(12)
    left_out = [
        latent_correlation(np.delete(t, k, 1), np.delete(errors, k, 1)).correlation
        for k in first
    ]
    change = result.correlation - np.array(left_out)
    # They differ by a share of 1 / n, and in the quadratic term.
    assert np.corrcoef(change, result.influence[first])[0, 1] > 0.99
    assert change == pytest.approx(result.influence[first], abs=0.004)


def test_subjects_repeated_in_families_count_once():
    t, errors = noisy(0.6, 60, np.random.default_rng(4))
    own = np.arange(60)
    once = latent_correlation(t, errors, own)
    twice = latent_correlation(np.tile(t, 2), np.tile(errors, 2), np.tile(own, 2))
    # The deviance keeps (n - 3) / n of its size: 57 / 60 and 117 / 120.
    assert twice.correlation == pytest.approx(once.correlation, abs=1e-5)
    assert twice.upper - twice.lower == pytest.approx(once.upper - once.lower, rel=0.03)
    alone = latent_correlation(np.tile(t, 2), np.tile(errors, 2))
    assert alone.upper - alone.lower < 0.85 * (twice.upper - twice.lower)


def test_errors_that_explain_all_leave_no_correlation():
    rng = np.random.default_rng(5)
    t = rng.normal(size=(2, 40))
    result = latent_correlation(t, np.full((2, 40), [[1.5], [0.1]]))
    assert np.isnan(result.correlation) and result.reliabilities[0] == 0
    perfect = latent_correlation(np.stack([t[0], t[0]]), np.full((2, 40), 0.3))
    assert perfect.upper == 1 and perfect.correlation > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_intervals_cover(rho):
    rng = np.random.default_rng(6)
    ends = []
    for _ in range(400):
        result = latent_correlation(*noisy(rho, 60, rng))
        ends.append((result.lower, result.upper))
    lower, upper = np.transpose(ends)
    # 95 %, with a standard error of 1.1 points of 400 data sets.
    assert 0.92 < np.mean((lower <= rho) & (rho <= upper)) < 0.98


@pytest.fixture(scope="module")
def planted():
    """A fit of 200 subjects, and a table of subjects."""
    rng = np.random.default_rng(7)
    ability = rng.normal(size=200)
    logit = ability[:, None] - rng.normal(size=15)
    right = rng.random((200, 15)) < 1 / (1 + np.exp(-logit))
    names = [f"m{k}" for k in range(200)]
    table = irtjax.ResponseTable.from_arrays(right, subjects=names)
    fit = irtjax.fit(table, "rasch", method="em", standard_errors="none")
    quality = 0.8 * ability + 0.6 * rng.normal(size=200)
    columns = {
        "subject": names[::-1],
        "quality": quality[::-1].tolist(),
        "noisy": (quality + 0.7 * rng.normal(size=200))[::-1].tolist(),
        "other": rng.normal(size=200).tolist(),
        "base": [f"b{k % 40}" for k in range(200)],
    }
    return fit, table, columns


def test_planted_correlations_are_covered(planted):
    fit, table, columns = planted
    reliability = {"noisy": 1 / 1.49}
    settings = {"related": ["quality", "noisy"], "unrelated": ["other"]}
    for source in (fit, table):
        result = correlates(source, columns, reliability=reliability, **settings)
        rows = {row["other"]: row for row in result.table.to_pylist()}
        for name in ("quality", "noisy"):
            row = rows[name]
            assert row["raw"] < row["correlation"] and row["verdict"] == "supported"
            assert row["lower"] < 0.8 < row["upper"]
        assert rows["other"]["verdict"] == "supported"
        assert "Supported:" in result.sentence and level_of(result.table) == 0.95
    # Of mean responses the error is that of alpha.
    row = result.measures.to_pylist()[0]
    assert row["reliability"] == pytest.approx(alpha_of(table), abs=0.005)
    with_families = correlates(fit, columns, ["quality"], family="base")
    row = with_families.table.to_pylist()[0]
    assert row["lower"] < 0.8 < row["upper"] and row["verdict"] == ""
    # Dates are numbers of days.
    dated = {**columns, "date": [f"{2000 + k % 25}-01-01" for k in range(200)]}
    dated["years"] = [np.nan, *(2000.0 + k % 25 for k in range(1, 200))]
    dated["date"][0] = ""
    rows = correlates(fit, dated, ["date", "years"]).table.to_pylist()
    assert rows[0]["correlation"] == pytest.approx(rows[1]["correlation"], abs=1e-3)
    # Of two measures with each other: the same abilities, once as scores.
    both = correlates({"a": fit, "b": fit})
    assert both.table.to_pylist()[0]["correlation"] > 0.99


def test_estimates_of_groups_have_the_precisions_behind_their_posteriors():
    rng = np.random.default_rng(10)
    root = rng.normal(size=(3, 3))
    prior, precision = root @ root.T, rng.uniform(0.3, 9, (50, 3))
    precision[0, 1] = 0
    estimate = rng.normal(size=(50, 3))
    covariance = np.linalg.inv(np.linalg.inv(prior) + precision[:, :, None] * np.eye(3))
    mean = np.einsum("njk,nk->nj", covariance, precision * estimate)
    error = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    estimates, errors = without_joint_prior(mean, error, prior)
    assert np.isnan(estimates[0, 1]) and np.isfinite(estimates[0, [0, 2]]).all()
    assert estimates[1:] == pytest.approx(estimate[1:], rel=1e-6)
    assert errors[1:] == pytest.approx(precision[1:] ** -0.5, rel=1e-6)


def test_a_column_of_errors_is_that_of_their_reliability():
    rng = np.random.default_rng(11)
    estimates, errors = noisy(0.7, 120, rng)
    names = [f"m{k}" for k in range(120)]
    table = {"subject": names, "x": estimates[0], "x_se": errors[0]}
    abilities = irtjax.Abilities(names, estimates[1], errors[1])
    result = correlates(abilities, table, ["x"])
    row = result.table.to_pylist()[0]
    direct = latent_correlation(estimates[::-1], errors[::-1])
    assert row["correlation"] == pytest.approx(direct.correlation)
    assert not any("free of error" in x for x in result.warnings)
    without_error = correlates(abilities, table, ["x"], reliability={"x": 1.0})
    assert without_error.table.to_pylist()[0]["correlation"] < row["correlation"]
    with pytest.raises(ValueError, match="column 'x_se' has an error below 0"):
        correlates(abilities, table | {"x_se": -errors[0]}, ["x"])


def test_traits_by_methods():
    rng = np.random.default_rng(8)
    skills = rng.normal(size=(400, 2))
    skills[:, 1] = 0.4 * skills[:, 0] + np.sqrt(1 - 0.16) * skills[:, 1]
    methods = 0.4 * rng.normal(size=(400, 2))
    facets = {"skill": [], "metric": []}
    parts = []
    for k, skill in enumerate(("maths", "code")):
        for m, metric in enumerate(("exact", "judge")):
            latent = skills[:, [k]] + methods[:, [m]] - rng.normal(size=20)
            parts.append(rng.random((400, 20)) < 1 / (1 + np.exp(-1.5 * latent)))
            facets["skill"] += [skill] * 20
            facets["metric"] += [metric] * 20
    table = irtjax.ResponseTable.from_arrays(np.hstack(parts))
    table = table.replace(item_facets={x: np.array(y) for x, y in facets.items()})
    result = correlates(table, trait="skill", method="metric")
    rows = result.convergence.to_pylist()
    assert [row["trait"] for row in rows] == ["code", "maths"]
    for row in rows:
        assert row["convergent"] == "yes" and row["discriminant"] == "yes"
        # 1 / (1 + .4^2) and of the same method .4 and the variance of the method.
        assert row["lower"] < 1 / 1.16 < row["upper"]
        assert (
            row["difference_lower"] < 1 / 1.16 - 0.56 / 1.16 < row["difference_upper"]
        )
    assert "Discriminant: 2 of 2" in result.sentence
    # One trait called two: their correlation is no smaller.
    halves = np.array(["even", "odd"])[np.arange(40) % 2]
    one = table.select(items=np.arange(40))
    one = one.replace(item_facets={**one.item_facets, "skill": halves})
    rows = correlates(one, trait="skill", method="metric").convergence.to_pylist()
    assert {row["discriminant"] for row in rows} == {"no"}


def test_mean_responses_with_missing_cells():
    rng = np.random.default_rng(9)
    values = rng.normal(size=(30, 1)) + rng.normal(size=(30, 10))
    seen = rng.random((30, 10)) < 0.7
    seen[0] = False
    seen[1:, 0] = True
    table = irtjax.ResponseTable.from_arrays(np.where(seen, values, np.nan))
    measures = measures_of(table)
    level = np.nanmean(np.where(seen, values, np.nan), axis=0)
    apart = np.where(seen, values - level, np.nan)
    place = [table.subjects.tolist().index(x) for x in table.subjects]
    expected = np.nanmean(apart[1:], axis=1) + level.mean()
    assert np.isnan(measures.estimates[0, place[0]])
    assert measures.estimates[0, 1:] == pytest.approx(expected)
    # The interaction has a variance of 1.
    error = measures.errors[0, 1:] * np.sqrt(seen[1:].sum(axis=1))
    assert error == pytest.approx(np.full(29, error[0])) and 0.8 < error[0] < 1.2


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {"columns": ["none"]}, "no column 'none' of subjects among"),
        ({"quality": [1] * 200}, {"columns": ["quality"]}, "'quality' is constant"),
        ({"quality": ["x"] * 200}, {"columns": ["quality"]}, "'x' is no finite number"),
        (
            {"quality": ["big", *range(199)]},
            {"columns": ["quality"]},
            "column 'quality', 'row 1': 'big' is not a number, as 199 other values are",
        ),
        ({"quality": [""] * 200}, {"columns": ["quality"]}, "'quality' has no number"),
        ({"subject": ["z"] * 200}, {"columns": ["quality"]}, "has two rows in column"),
        (
            {"subject": [str(k) for k in range(200)]},
            {"columns": ["quality"]},
            "names no subject of the measures, such as 'm0'",
        ),
        ({"quality": [1, 2] + [""] * 198}, {"columns": ["quality"]}, "2 subjects in"),
        ({}, {}, "one measure has nothing to correlate with"),
        ({}, {"columns": ["other"], "level": 95}, "level is between 0 and 1"),
        ({}, {"columns": ["other"], "margin": 2}, "margin is at least 0"),
        ({}, {"columns": ["other"], "reliability": {"other": 0}}, "is above 0 and"),
        ({}, {"columns": ["other"], "reliability": {"x": 0.5}}, "of 'x': no such"),
        ({}, {"columns": ["other"], "trait": "skill"}, "give the responses, not a fit"),
        ({}, {"related": ["other"], "unrelated": ["other"]}, "both related and"),
    ],
)
def test_what_makes_no_sense_is_refused(planted, changes, settings, message):
    fit, _, columns = planted
    with pytest.raises(ValueError, match=message) as error:
        correlates(fit, columns | changes, **settings)
    assert "\n" not in str(error.value)


def test_responses_without_the_facet_are_refused(planted):
    _, table, columns = planted
    with pytest.raises(ValueError, match="'skill' is no facet of items"):
        correlates(table, columns, ["other"], trait="skill")
    with pytest.raises(ValueError, match="columns need a table of subjects"):
        correlates(table, None, ["other"])


def test_verbal_aggression(shared_data):
    """Anger by another questionnaire, and behaviours by what is wanted and done."""
    folder = shared_data / "classic"
    responses = pq.read_table(folder / "verbagg.parquet").to_pandas()
    items = pyarrow.csv.read_csv(folder / "verbagg_items.csv").to_pydict()
    persons = pyarrow.csv.read_csv(folder / "verbagg_persons.csv").to_pydict()
    place = [items["item"].index(x) for x in responses.columns]
    facets = {x: np.array(items[x])[place] for x in ("btype", "mode")}
    table = irtjax.ResponseTable.from_arrays(
        responses.to_numpy(), subjects=responses.index.tolist()
    ).replace(item_facets=facets)
    result = correlates(table, persons, related=["anger"], name="person", margin=0.1)
    row = result.table.to_pylist()[0]
    share = 1 - (1 - alpha_of(table)) * 315 / 316
    # Spearman's correction by hand; alpha divides by n - 1, the likelihood by n.
    assert row["correlation"] == pytest.approx(row["raw"] / share**0.5, abs=5e-4)
    assert row["verdict"] == "supported"
    result = correlates(table, trait="btype", method="mode")
    alphas = {x["measure"]: x["reliability"] for x in result.measures.to_pylist()}
    for row in result.table.to_pylist():
        share = alphas[row["measure"]] * alphas[row["other"]]
        assert row["correlation"] == pytest.approx(row["raw"] / share**0.5, abs=1e-4)
    rows = {row["trait"]: row for row in result.convergence.to_pylist()}
    # Cursing that is wanted correlates more with scolding that is wanted.
    assert rows["curse"]["rival"] == "curse want, scold want"
    verdicts = {trait: row["discriminant"] for trait, row in rows.items()}
    assert verdicts == {"curse": "undecided", "scold": "undecided", "shout": "yes"}


def test_the_command(planted, tmp_path):
    fit, table, columns = planted
    irtjax.save(fit, tmp_path / "bench")
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "models.csv")
    words = ["correlates", str(tmp_path / "bench")]
    words += ["--subjects", str(tmp_path / "models.csv"), "--related", "quality"]
    words += ["--unrelated", "other", "--reliability", "quality=.9"]
    out = CliRunner().invoke(app, [*words, "--json", "--out", str(tmp_path / "out")])
    assert out.exit_code == 0, out.output
    rows = {x["other"]: x for x in json.loads(out.stdout)["correlations"]}
    assert rows["quality"]["measure"] == "bench"
    assert rows["quality"]["verdict"] == "supported"
    written = {x.name for x in (tmp_path / "out").iterdir()}
    assert written == {"correlates.csv", "measures.csv", "correlates.png"}
    shown = CliRunner().invoke(app, words)
    assert "Supported: bench with quality" in " ".join(shown.output.split())
