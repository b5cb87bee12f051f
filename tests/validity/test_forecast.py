"""Regression of abilities on size and date: lme4, dense algebra, planted slopes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.validity.forecast import forecast
from irtjax.validity.latent_regression import latent_regression, unshrunk


def test_the_regression_is_that_of_lme4():
    """lme4 1.1-31, `lmer(y ~ x + (1 | f))`, at a tolerance of 1e-10 of the search."""
    i = np.arange(60)
    x, family = (i * 7 % 60) / 60, i % 12
    y = 0.3 + 0.8 * x + (family * 5 % 12 - 5.5) / 10 + (i * i * 13 % 61 - 30) / 50
    design = np.column_stack([np.ones(60), x])
    result = latent_regression(y, np.zeros(60), design, family)
    assert result.slopes == pytest.approx([0.122704838752, 1.172125751690], abs=1e-7)
    error = np.sqrt(np.diagonal(result.covariance))
    assert error == pytest.approx([0.157538159461, 0.174020640880], abs=1e-7)
    assert result.family_sd == pytest.approx(0.425127541348, abs=1e-6)
    assert result.residual_sd == pytest.approx(0.382356939426, abs=1e-6)
    assert result.log_likelihood == pytest.approx(-40.214587748603, abs=1e-9)
    wanted = [-0.6176333496, -0.1798701130, 0.5595204795]
    assert result.effects[:3] == pytest.approx(wanted, abs=1e-6)


def test_errors_of_abilities_are_in_the_covariance():
    """The estimates by the dense inverse of V, at the variances that were found."""
    rng = np.random.default_rng(1)
    design = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    family, error = rng.integers(0, 9, 50), rng.uniform(0.1, 0.9, 50)
    y = design @ [0.0, 1.0, -1.0] + rng.normal(size=9)[family] + rng.normal(size=50)
    result = latent_regression(y, error, design, family)
    same = family[:, None] == family
    v = result.family_sd**2 * same + np.diag(result.residual_sd**2 + error**2)
    inverse = np.linalg.inv(v)
    covariance = np.linalg.inv(design.T @ inverse @ design)
    assert result.covariance == pytest.approx(covariance)
    slopes = covariance @ design.T @ inverse @ y
    assert result.slopes == pytest.approx(slopes)
    mean, sd = result.predict(design, family)
    gap = y - design @ slopes
    effect = result.family_sd**2 * np.eye(9)[family].T @ inverse @ gap
    assert mean == pytest.approx(design @ slopes + effect[family])
    far, wide = result.predict(design)
    assert far == pytest.approx(design @ slopes) and (wide > sd).all()


def test_posterior_means_are_unshrunk():
    rng = np.random.default_rng(2)
    estimate, error = rng.normal(size=5), rng.uniform(0.1, 0.8, 5)
    weight = 4.0 / (4.0 + error**2)
    mean, sd = 0.3 + weight * (estimate - 0.3), error * np.sqrt(weight)
    again = unshrunk(mean, sd, 0.3, 2.0)
    assert again[0] == pytest.approx(estimate) and again[1] == pytest.approx(error)


@pytest.fixture(scope="module")
def planted():
    """A fit of 60 models: a slope of 1 on log10 size, of .8 a year, 16 families."""
    rng = np.random.default_rng(4)
    size, days = 10 ** rng.uniform(0, 2, 60), np.sort(rng.integers(0, 900, 60))
    family = rng.integers(0, 16, 60)
    ability = np.log10(size) - 1 + 0.8 * (days / 365.25 - 1)
    ability = ability + 0.3 * rng.normal(size=16)[family] + 0.3 * rng.normal(size=60)
    logit = ability[:, None] - rng.normal(size=80)
    right = rng.random((60, 80)) < 1 / (1 + np.exp(-logit))
    names = [f"model-{k}-{x:.1f}b" for k, x in enumerate(size)]
    table = irtjax.ResponseTable.from_arrays(right, subjects=names)
    fit = irtjax.fit(table, "rasch", method="em", standard_errors="none")
    dates = (np.datetime64("2024-01-01") + days).astype(str).tolist()
    columns = {"subject": names, "size": size.tolist(), "date": dates}
    return fit, columns | {"family": [f"f{k}" for k in family]}


def test_planted_slopes_are_covered_and_later_models_predicted(planted):
    fit, columns = planted
    settings = {"parameters": "size", "date": "date", "family": "family"}
    result = forecast(fit, columns, to=["2027-01-01"], **settings)
    rows = {row["term"]: row for row in result.table.to_pylist()}
    for term, true in (("log10 parameters", 1.0), ("year", 0.8)):
        assert rows[term]["lower"] < true < rows[term]["upper"]
    assert result.test["models"] >= 20
    assert result.test["error"] < result.test["persistence"]
    # 95 % of some 30: two errors are 8 points.
    assert result.test["coverage"] > 0.85
    row = result.future.to_pylist()[0]
    assert row["lower"] < row["score"] < row["upper"] and row["frontier"] > row["score"]
    assert result.subjects.num_rows == 60
    # Sizes in names, of one digit.
    by_name = forecast(fit, columns, parameters="names")
    by_size = forecast(fit, columns, parameters="size")
    slopes = [x.table["estimate"].to_pylist()[1] for x in (by_name, by_size)]
    assert slopes[0] == pytest.approx(slopes[1], abs=0.02)


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {}, "no covariate: give a column as parameters"),
        ({}, {"tokens": "none"}, "no column 'none' of subjects among"),
        ({"size": ["x"] * 60}, {"parameters": "size"}, "'x' is no number"),
        ({"size": [0] * 60}, {"parameters": "size"}, "0 is not above 0"),
        ({"size": [3] * 60}, {"parameters": "size"}, "constant or follows from others"),
        ({"date": ["May"] * 60}, {"date": "date"}, "date 'May' of 'model-0"),
        ({}, {"parameters": "size", "to": ["2027-01-01"]}, "need a column of dates"),
        ({"subject": [str(k) for k in range(60)]}, {"date": "date"}, "no subject of"),
    ],
)
def test_what_makes_no_sense_is_refused(planted, changes, settings, message):
    fit, columns = planted
    with pytest.raises(ValueError, match=message) as error:
        forecast(fit, columns | changes, **settings)
    assert "\n" not in str(error.value)


def test_the_command(planted, tmp_path):
    fit, columns = planted
    irtjax.save(fit, tmp_path / "fit")
    cells = zip(*columns.values(), strict=True)
    rows = [",".join(columns), *(",".join(map(str, x)) for x in cells)]
    (tmp_path / "models.csv").write_text("\n".join(rows))
    words = ["forecast", str(tmp_path / "models.csv"), "--fit", str(tmp_path / "fit")]
    words += ["--parameters", "size", "--date", "date", "--out", str(tmp_path / "out")]
    run = CliRunner().invoke(app, [*words, "--json", "--to", "2027-01-01"])
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert document["forecasts"][0]["date"] == "2027-01-01"
    assert (tmp_path / "out" / "forecasts.csv").is_file()
    shown = CliRunner().invoke(app, words)
    assert "log10 parameters" in shown.output and "persistence" in shown.output
