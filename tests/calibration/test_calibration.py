"""The tables of a calibration: columns, arithmetic, errors, and no NaN anywhere."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import irtjax
from irtjax.data.table import ResponseTable
from irtjax.models.catalogue import MODELS
from tests.tables import case

ITEM_COLUMNS = [
    "item",
    "benchmark",
    *(
        name + suffix
        for name in (
            "discrimination",
            "intercept",
            "difficulty",
            "lower_asymptote",
            "upper_asymptote",
        )
        for suffix in ("", "_se")
    ),
    "accuracy",
    "observed",
    "flags",
    "separated",
]
ABILITY_COLUMNS = (
    "subject ability ability_se lower upper rank rank_lower rank_upper"
    " probability_best expected_score expected_score_se expected_score_lower"
    " expected_score_upper"
    " accuracy accuracy_se accuracy_lower accuracy_upper observed flags"
).split()


def _odd_table(name: str) -> ResponseTable:
    """All-right, all-wrong and empty rows and columns among ordinary ones."""
    data = case(name).data
    values, observed = np.array(data.values), np.array(data.observed)
    top = values.max()
    values[:, 0], values[:, 1], values[3], values[4] = top, 0, top, 0
    observed[:, 2] = False
    observed[5] = False
    return ResponseTable.from_arrays(values * observed, observed=observed)


SLOW = pytest.mark.slow


@pytest.fixture(
    scope="module",
    params=[
        "2pl",
        pytest.param("1pl", marks=SLOW),
        pytest.param("3pl", marks=SLOW),
        pytest.param("graded", marks=SLOW),
    ],
)
def calibration(request):
    return irtjax.fit(_odd_table(request.param), request.param)


def _numbers(table):
    return {
        name: table.column(name).to_pylist()
        for name in table.column_names
        if str(table.schema.field(name).type) == "double"
    }


def test_columns_are_the_documented_ones_in_order(calibration):
    items, abilities = calibration.items.table, calibration.abilities.table
    assert items.column_names[: len(ITEM_COLUMNS)] == ITEM_COLUMNS
    assert abilities.column_names[: len(ABILITY_COLUMNS)] == ABILITY_COLUMNS
    assert items.num_rows == 6 and abilities.num_rows == 240
    assert items.column("item").to_pylist() == calibration.item_names.tolist()
    assert set(abilities.column("subject").to_pylist()) == set(
        calibration.subject_names
    )


def test_no_number_is_nan_or_infinite(calibration):
    for table in (calibration.items.table, calibration.abilities.table):
        for name, values in _numbers(table).items():
            known = [v for v in values if v is not None]
            assert all(map(math.isfinite, known)), name
            if name.endswith("_se"):
                assert min(known, default=0) >= 0
    # Only what does not exist is missing: the accuracy of what nobody answered.
    accuracy = calibration.items.table.column("accuracy").to_pylist()
    assert [v is None for v in accuracy] == [False, False, True, False, False, False]
    abilities = calibration.abilities.table.to_pydict()
    assert None not in abilities["ability"] and None not in abilities["ability_se"]


def test_flags_name_what_has_no_variation(calibration):
    flags = calibration.items.table.column("flags").to_pylist()
    # Rows 3 and 4 are all of one kind, which gives the first two columns variation.
    assert flags[2] == "no responses"
    abilities = calibration.abilities.table.to_pydict()
    by_name = dict(zip(abilities["subject"], abilities["flags"], strict=True))
    assert "all right" in by_name["subject 4"]
    assert "all wrong" in by_name["subject 5"]
    assert "no responses" in by_name["subject 6"]
    assert any("no responses" in text for text in calibration.warnings)


def test_abilities_follow_the_subjects_with_intervals_of_the_level(calibration):
    table = calibration.abilities.table.to_pydict()
    assert table["subject"] == calibration.subject_names.tolist()
    ability, error = np.array(table["ability"]), np.array(table["ability_se"])
    order = np.argsort(-ability, kind="stable")
    ranks = np.array(table["rank"])[order]
    assert (np.diff(ranks) >= 0).all() and ranks[0] == 1
    half = stats.norm.ppf(0.975) * error
    np.testing.assert_allclose(table["lower"], ability - half)
    np.testing.assert_allclose(table["upper"], ability + half)
    inside = np.less_equal(table["rank_lower"], table["rank"])
    inside &= np.less_equal(table["rank"], table["rank_upper"])
    assert inside.all()


def test_information_criteria(calibration):
    name = calibration.model.name
    columns = {"1pl": 1, "2pl": 2, "3pl": 3, "graded": 3}[name]
    num_parameters = 6 * columns + (name == "1pl")
    assert calibration.num_parameters == num_parameters
    deviance = -2 * calibration.log_likelihood
    assert calibration.aic == pytest.approx(deviance + 2 * num_parameters)
    assert calibration.bic == pytest.approx(deviance + num_parameters * np.log(240))
    assert calibration.num_observed == sum(
        calibration.items.table.column("observed").to_pylist()
    )
    # What EM maximised is the sum of the two parts that are reported.
    total = calibration.log_likelihood + calibration.log_prior
    assert total == pytest.approx(calibration.trace[-1], abs=1e-6)


def _natural(model, row):
    """Slope, intercept, difficulty and asymptotes of one row of coordinates."""
    item = model.family.constrain(jnp.asarray(row))
    slope, intercept = item.discrimination, item.intercept
    found = {
        "discrimination": slope,
        "intercept": intercept,
        "difficulty": -intercept / slope,
    }
    if hasattr(item, "lower_asymptote"):
        found["lower_asymptote"] = item.lower_asymptote
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.parametrize("name", ["2pl", pytest.param("3pl", marks=pytest.mark.slow)])
def test_errors_are_the_delta_method_by_differences(name):
    data = case(name).data
    table = ResponseTable.from_arrays(
        np.asarray(data.values), observed=np.asarray(data.observed)
    )
    fit = irtjax.fit(table, name)
    model, found = fit.model, fit.items.table.to_pydict()
    rows = np.asarray(
        model.unconstrain(jax.tree.map(jnp.asarray, fit.parameters.items))
    )
    assert fit.item_covariance is not None
    for j, row in enumerate(rows):
        centre = _natural(model, row)
        for key in centre:
            slopes = []
            for direction in np.eye(row.size) * 1e-5:
                up, down = (
                    _natural(model, row + direction),
                    _natural(model, row - direction),
                )
                slopes.append((up[key] - down[key]) / 2e-5)
            error = np.sqrt(
                np.array(slopes) @ fit.item_covariance[j] @ np.array(slopes)
            )
            assert found[f"{key}_se"][j] == pytest.approx(error, rel=1e-6)
            assert found[key][j] == pytest.approx(centre[key], rel=1e-9)


@pytest.mark.slow
def test_a_common_slope_has_one_error():
    fit = irtjax.fit(_odd_table("1pl"), "1pl")
    table = fit.items.table.to_pydict()
    assert len(set(table["discrimination"])) == 1
    errors = table["discrimination_se"]
    assert errors == pytest.approx([errors[0]] * 6) and errors[0] > 0


def test_constants_of_a_model_have_no_error():
    table = irtjax.fit(_odd_table("2pl"), "2pl").items.table.to_pydict()
    for name, value in (("lower_asymptote", 0.0), ("upper_asymptote", 1.0)):
        assert table[name] == [value] * 6 and table[f"{name}_se"] == [0.0] * 6


def test_errors_not_asked_for_are_null():
    fit = irtjax.fit(_odd_table("2pl"), "2pl", standard_errors="none")
    assert fit.items.table.column("discrimination_se").null_count == 6
    assert fit.item_covariance is None


def test_the_models_tested_here_are_in_the_catalogue():
    assert {"2pl", "1pl", "3pl"} <= set(MODELS)


def test_a_fit_prints_as_its_leaderboard_and_has_a_summary_of_ten_lines():
    names = ["<b>best</b>", *(f"model {k}" for k in range(7))]
    rng = np.random.default_rng(0)
    values = (rng.random((8, 12)) < np.linspace(0.9, 0.2, 8)[:, None]).astype(int)
    table = irtjax.ResponseTable.from_arrays(values, subjects=names)
    fit = irtjax.fit(table, "rasch", standard_errors="none")
    text = fit.summary()
    lines = text.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("rasch by em on 8 subjects and 12 items (96 responses)")
    best = irtjax.rank(fit).table.to_pylist()[0]
    assert f"{best['subject']}: ability {best['ability']:.2f}" in lines[2]
    assert "and 4 more subjects" in text
    board = str(fit).splitlines()
    assert board[0] == "8 subjects · 12 items · complete"
    assert (
        board[: len(repr(irtjax.rank(fit)).splitlines())]
        == repr(irtjax.rank(fit)).splitlines()
    )
    assert all(len(line) <= 80 for line in board)
    html = fit._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;best&lt;/b&gt;" in html
    assert html.count("<tr>") == 9
