"""M2, C2, S-X2 and likelihood ratios against mirt's numbers, and what is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.parts.populations import Populations
from irtjax.cli.app import app
from irtjax.validity.fitted_curves import FittedCurves
from irtjax.validity.nested_tests import slope_scores, slope_wald


@pytest.fixture(name="lsat7", scope="module")
def lsat7_fixture(shared_data):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(shared_data / "classic" / "lsat7.parquet")
    columns = [table[name].to_numpy() for name in table.column_names]
    values = np.stack([x for x in columns if x.dtype.kind in "iu"], axis=1)
    return irtjax.ResponseTable.from_arrays(values)


@pytest.fixture(name="fits", scope="module")
def fits_fixture(lsat7):
    names = "rasch", "2pl"
    return [irtjax.fit(lsat7, x, method="em", priors={}) for x in names]


def test_lsat7_has_the_statistics_of_mirt(lsat7, fits):
    result = irtjax.fit_statistics(fits[1], lsat7)
    assert (result.name, result.degrees, result.num_subjects) == ("M2", 5, 1000)
    # mirt's own test; both stop within 1e-3 of the largest likelihood.
    assert result.statistic == pytest.approx(11.93841, abs=2e-3)
    assert "M2 11.94 with 5 degrees of freedom (p = .036)" in str(result)
    assert result.rmsea_interval[0] < result.rmsea < result.rmsea_interval[1]
    assert result.largest.num_rows == 10
    assert irtjax.fit_statistics(fits[0], lsat7).degrees == 9


def test_items_and_subjects_of_lsat7(lsat7, fits):
    result = irtjax.fit_statistics(fits[1], lsat7)
    zh = result.items["zh"].to_numpy()
    # mirt's own test. Its estimates stop 1e-3 from ours, which move Zh by 3e-3.
    expected = [1.431838, 6.354917, 5.310844, 5.804449, 0.696139]
    np.testing.assert_allclose(zh, expected, atol=5e-3)
    s_x2 = [4.749440, 14.451071, 1.270381, 5.237400, 0.941125]
    np.testing.assert_allclose(result.items["s_x2"].to_numpy(), s_x2, atol=5e-3)
    assert result.items["s_x2_degrees"].to_pylist() == [2] * 5
    # Of the first pattern, all wrong: by hand from mirt's parameters and its EAP.
    assert result.subjects["zh"][0].as_py() == pytest.approx(0.5799, abs=2e-3)
    q = result.subjects["q_value"].to_numpy()
    assert (q >= result.subjects["p_value"].to_numpy()).all()
    # Item 2 alone misfits.
    assert result.effect.misfitting == result.effect.left_out == 1
    assert str(result).startswith("Without the items that misfit (1 of 5 items) a")


def test_equal_slopes_of_lsat6_have_the_statistic_of_mirt():
    counts = {
        "00000": 3, "00001": 6, "00010": 2, "00011": 11, "00100": 1, "00101": 1,
        "00110": 3, "00111": 4, "01000": 1, "01001": 8, "01011": 16, "01101": 3,
        "01110": 2, "01111": 15, "10000": 10, "10001": 29, "10010": 14, "10011": 81,
        "10100": 3, "10101": 28, "10110": 15, "10111": 80, "11000": 16, "11001": 56,
        "11010": 21, "11011": 173, "11100": 11, "11101": 61, "11110": 28, "11111": 298,
    }  # fmt: skip
    # Bock and Lieberman 1970, Section 6 of the Law School Admission Test.
    patterns = np.array([[int(x) for x in pattern] for pattern in counts])
    values = np.repeat(patterns, [*counts.values()], axis=0)
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "1pl", method="em", priors={})
    result = irtjax.fit_statistics(fit, table)
    assert (len(values), result.degrees) == (1000, 9)
    # mirt, of the same model: 5.292566 with equal slopes, 5.291576 with a variance. It
    # stops at changes below 1e-4 of a parameter.
    assert result.statistic == pytest.approx(5.2921, abs=2e-3)


def test_likelihood_ratio_of_lsat7(fits):
    # log L of mirt 1.47: -2664.9008909547 and -2658.8051136323.
    result = irtjax.compare_fits(*fits)
    assert result.statistic == pytest.approx(12.19155, abs=2e-3)
    assert result.degrees == 4
    assert result.p_value == pytest.approx(0.01598, abs=2e-4)
    assert irtjax.compare_fits(*fits[::-1]).statistic == result.statistic
    assert result.table["model"].to_pylist() == ["rasch", "2pl"]
    assert not result.notes
    with pytest.raises(ValueError, match="neither is nested"):
        irtjax.compare_fits(fits[0], fits[0])


def test_score_and_wald_tests_of_lsat7(lsat7, fits):
    values, seen = lsat7.stored.dense
    fitted = FittedCurves.of(fits[0], lsat7)
    z, step = slope_scores(fitted, values, np.asarray(seen))
    # Of each slope alone, by numpy over the 32 patterns, by products of scores:
    # X = g' C^-1 g. z^2 has residuals' variance less their mean's, and six parameters.
    # Of the first item X is .5324 by the expected information, .4779 by the Hessian,
    # and the likelihood ratio .5378 at a slope of 1.1592 times the common one. mirt's
    # .3702 has the information of a 2PL at its starting values.
    products = np.array([0.60275, 0.07188, 10.43909, 2.47836, 2.89601])
    expected = products / (1000 / 994 - products / 1000)
    np.testing.assert_allclose(z**2, expected, rtol=2e-3)
    assert step[0] == pytest.approx(0.1592, abs=0.02)
    wald = slope_wald(FittedCurves.of(fits[1], lsat7), values, np.asarray(seen))
    # The likelihood ratio, 12.19; the third slope is the largest.
    assert wald.degrees == 4 and 8 < wald.statistic < 16
    assert np.argmax(wald.z) == np.argmax(z) == 2


def test_plausible_values_of_lsat7(lsat7, fits):
    result = irtjax.plausible_values(fits[0], lsat7, num_draws=200)
    values, seen = lsat7.stored.dense
    likelihood = FittedCurves.of(fits[0], lsat7).likelihood(values, np.asarray(seen))
    eap = likelihood.ability()
    sd = np.sqrt(likelihood.posterior() @ likelihood.nodes**2 - eap**2)
    # Of 1,000 means of 200 draws the largest is within five errors.
    assert np.abs((result.draws.mean(0) - eap) / sd).max() < 5 / np.sqrt(200)
    np.testing.assert_allclose(result.draws.std(0).mean(), sd.mean(), rtol=0.01)
    # At the largest likelihood the mean square over posteriors is the population's
    # variance; posterior means have half of it.
    variance = float(fits[0].parameters.population.sd) ** 2
    assert np.mean(result.draws**2) == pytest.approx(variance, rel=0.02)
    assert np.var(eap) < 0.6 * variance
    estimate, error = result.pooled(lambda x: (x.mean(), x.std() / np.sqrt(x.size)))
    # The mean of the population is 0, that of the sample as near as its error.
    assert abs(estimate) < 3 * error and error > np.sqrt(variance / 1000)
    assert result.table.column_names[:2] == ["subject", "value_1"]
    with pytest.raises(ValueError, match="give at least 2"):
        irtjax.plausible_values(fits[0], lsat7, num_draws=1)


@pytest.mark.slow
def test_plausible_values_of_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b"], 400)
    ability = rng.normal(size=(800, 1)) + 1.5 * (group == "b")[:, None]
    right = rng.random((800, 8)) < 1 / (1 + np.exp(-ability - rng.normal(size=8)))
    table = irtjax.ResponseTable.from_arrays(right.astype(int))
    table = table.replace(subject_facets={"group": group})
    fit = irtjax.fit(table, "2pl", method="em", groups="group", priors={})
    draws = irtjax.plausible_values(fit, table, num_draws=50).draws
    part = fit.require(Populations)
    # At the largest likelihood means over posteriors are those of the populations.
    for k, name in enumerate(part.names.tolist()):
        own = draws[:, group == name]
        assert own.mean() == pytest.approx(part.mean[k], abs=0.02)
        assert own.std() == pytest.approx(part.sd[k], rel=0.03)


def test_expected_test_score_of_lsat7(fits):
    axes = irtjax.plots.plot_test_score(fits[1]).axes[0]
    grid, score = axes.get_lines()[0].get_data()
    items = fits[1].parameters.items
    a, d = (np.asarray(x) for x in (items.discrimination, items.intercept))
    p = 1 / (1 + np.exp(-a * grid[:, None] - d))
    np.testing.assert_allclose(score, p.mean(1), rtol=1e-6)
    sd = np.sqrt((p * (1 - p)).sum(1)) / 5
    top = np.minimum(score + 1.959964 * sd, 1)
    vertices = axes.collections[0].get_paths()[0].vertices
    assert np.isclose(vertices[:, 1].max(), top.max())
    assert len(axes.collections[1].get_offsets()) == 1000


@pytest.mark.slow
def test_comparison_with_the_responses(lsat7, fits):
    result = irtjax.compare_fits(*fits, lsat7)
    losses = result.table["log_loss"].to_numpy()
    assert result.gain == pytest.approx(losses[0] - losses[1])
    assert abs(result.gain) < 3 * result.gain_se
    assert result.items["q_value"].to_numpy()[2] < 0.05
    assert str(result).startswith("2pl predicts responses left out by ")
    with pytest.raises(ValueError, match="not that of the fits"):
        irtjax.compare_fits(*fits, lsat7.select(np.arange(10), None))


def test_the_command_prints_the_keys(lsat7, fits, tmp_path):
    irtjax.save(fits[1], tmp_path / "fit")
    rows = [["subject", *lsat7.items]]
    pairs = zip(lsat7.subjects, lsat7.values, strict=True)
    rows += [[name, *map(str, row)] for name, row in pairs]
    path = tmp_path / "responses.csv"
    path.write_text("\n".join(map(",".join, rows)))
    words = ["fit-statistics", str(tmp_path / "fit"), str(path), "--json"]
    words += ["--out", str(tmp_path / "out")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert document["df"] == 5
    assert document["M2"] == pytest.approx(11.938, abs=2e-3)
    assert {"RMSEA", "SRMSR", "CFI", "TLI", "p_value"} <= set(document)
    lines = {x.name: x.read_text().splitlines() for x in (tmp_path / "out").iterdir()}
    assert {name: len(x) for name, x in lines.items()} == {
        "item_fit.csv": 6,
        "subject_fit.csv": 1001,
        "item_pairs.csv": 11,
    }


def test_missing_responses(lsat7, fits):
    values = np.asarray(lsat7.values, float)
    values[0, 0] = np.nan
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "2pl", method="em", priors={})
    result = irtjax.fit_statistics(fit, table)
    # mirt's own test: 11.95335, by a formula that is not published. Moments of existing
    # responses with a covariance of complete ones have 11.970, and S-X2 4.8448539.
    assert result.statistic == pytest.approx(11.95335, rel=5e-3)
    assert result.items["s_x2"][0].as_py() == pytest.approx(4.8448539, abs=5e-3)
    assert result.num_subjects == 1000
    note = "1 of 5,000 responses is missing: taken as at random."
    assert result.notes == (note,)
    # Up to version 1.40 mirt left out the subject: 11.76977.
    complete = irtjax.fit_statistics(fit, table.select(np.arange(1000) > 0, None))
    assert complete.statistic == pytest.approx(11.76977, abs=2e-3)
    some = np.random.default_rng(0).random(values.shape) < 0.1
    scattered = irtjax.ResponseTable.from_arrays(np.where(some, np.nan, values))
    result = irtjax.fit_statistics(fits[1], scattered)
    assert "subjects responded to every item: S-X2 has groups of" in result.notes[1]
    assert min(result.items["s_x2_degrees"].to_pylist()) > 0
    # Two items missing together: the 997 complete subjects.
    values[:3, :2] = np.nan
    table = irtjax.ResponseTable.from_arrays(values)
    result = irtjax.fit_statistics(fits[1], table)
    assert result.num_subjects == 997
    assert result.notes[0].startswith("Items are missing together: the 997 of 1,000")
    values[1:, :2] = np.nan
    values[0] = 1
    constant = np.where(np.arange(5) == 0, 1, lsat7.values)
    constant = irtjax.ResponseTable.from_arrays(constant)
    result = irtjax.fit_statistics(fits[1], constant)
    assert result.notes[0] == (
        "1 item without variation (item 1): leave out, then fit again."
    )
    assert np.isfinite(result.cfi)
    counts = lsat7.replace(trials=np.full(lsat7.values.shape, 2))
    with pytest.raises(ValueError, match="these are counts: fit single runs"):
        irtjax.fit_statistics(fits[1], counts)
    with pytest.raises(ValueError, match="1 of 1,000 subjects responded to every"):
        irtjax.fit_statistics(fits[1], irtjax.ResponseTable.from_arrays(values))


@pytest.mark.slow
def test_science_has_the_c2_of_mirt(shared_data):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(shared_data / "classic" / "science.parquet")
    columns = [table[name].to_numpy() for name in table.column_names]
    values = np.stack([x for x in columns if x.dtype.kind in "iu"], axis=1)
    responses = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(responses, "graded", method="em", priors={})
    result = irtjax.fit_statistics(fit, responses)
    assert (result.name, result.degrees) == ("C2", 2)
    # mirt stops at changes below 1e-4: 19.17929, and its third slope is 2.296, the
    # largest likelihood's 2.3006 (-1608.86941). Plain EM passes 19.1806 where that
    # slope is 2.2952, 19.1776 where it is 2.2991, and ends at 19.1771.
    assert result.statistic == pytest.approx(19.1771, abs=5e-4)
    assert result.statistic == pytest.approx(19.17929, abs=5e-3)
