"""Items with known parameters: reading them, holding them, and the scale they set."""

import jax.numpy as jnp
import numpy as np
import polars
import pytest
from pyarrow import parquet

import irtjax
from irtjax._types import Status
from irtjax.data.table import ResponseTable
from irtjax.fitting.anchors import apply_anchor, read_anchor
from irtjax.likelihood.problem import Start
from irtjax.models import catalogue
from tests.tables import MODELS, draw, true_items

NAMES = np.array(["a", "b", "c", "d", "e", "f"])


def _start(model):
    return Start(true_items(model))


def test_reading_a_mapping_a_frame_and_files(tmp_path):
    wanted = {
        "a": {"discrimination": 1.5, "difficulty": 0.2},
        "b": {"difficulty": -1.0},
    }
    assert read_anchor(wanted) == wanted
    frame = polars.DataFrame(
        {
            "item": ["a", "b"],
            "discrimination": [1.5, None],
            "difficulty": [0.2, -1.0],
            "note": ["x", "y"],
        }
    )
    assert read_anchor(frame) == wanted
    frame.write_parquet(tmp_path / "items.parquet")
    frame.write_csv(tmp_path / "items.csv")
    for name in ("items.parquet", "items.csv"):
        assert read_anchor(tmp_path / name) == wanted
        assert read_anchor(str(tmp_path / name)) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,intercept\na,1\n", "no column 'item'; it has name, intercept"),
        ("item,weight\na,1\n", "no parameter column; use any of discrimination"),
        (
            "item,intercept\na,1\nb,much\n",
            "row 1, column 'intercept': '1' is no number",
        ),
        ("item,intercept\na,1\nb,inf\n", "row 2, column 'intercept': inf is no number"),
    ],
)
def test_bad_files_are_named_with_the_place(tmp_path, text, message):
    path = tmp_path / "anchor.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_anchor(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="no such anchor file"):
        read_anchor(tmp_path / "nothing.csv")


def test_values_are_held_elementwise():
    model = catalogue.three_parameter()
    anchor = {
        "b": {"discrimination": 2.0, "intercept": -0.5, "lower_asymptote": 0.25},
        "d": {"lower_asymptote": 0.1},
        "f": {"discrimination": 0.5, "difficulty": 3.0},
        "elsewhere": {"intercept": 9.0},
    }
    start, free = apply_anchor(model, _start(model), NAMES, anchor)
    items = start.items
    assert float(items.discrimination[1]) == 2 and float(items.intercept[1]) == -0.5
    assert float(items.lower_asymptote[1]) == 0.25
    assert float(items.lower_asymptote[3]) == pytest.approx(0.1)
    # Difficulty 3 at slope 0.5 is the intercept -1.5.
    assert float(items.intercept[5]) == -1.5
    assert np.asarray(free).tolist() == [
        [True, True, True],
        [False, False, False],
        [True, True, True],
        [True, True, False],
        [True, True, True],
        [False, False, True],
    ]


@pytest.mark.parametrize(
    ("model", "anchor", "message"),
    [
        (
            "2pl",
            {"z": {"intercept": 1.0}},
            "none of the 1 anchored items is in the data",
        ),
        ("2pl", {"a": {"difficulty": 1.0}}, "a difficulty requires a discrimination"),
        ("2pl", {"a": {"lower_asymptote": 0.2}}, "a 2pl model has no lower_asymptote"),
        ("3pl", {"a": {"lower_asymptote": 1.2}}, r"lower_asymptote 1.2 is not in \[0"),
        ("positive", {"a": {"discrimination": -1.0}}, "-1.0 is not positive"),
        ("2pl", {"a": {"intercept": float("nan")}}, "intercept nan is no number"),
        ("2pl", {"a": {"guessing": 0.2}}, "has no guessing to fix at 0.2"),
        ("2pl", {"a": {"intercept": [0.5, 0.2]}}, "give one number"),
        ("2pl", {"a": {"discrimination": 1.0, "difficulty": "x"}}, "'x' is no number"),
        ("graded", {"a": {"intercept": 0.5}}, "intercept 0.5 .* give a list of 2 num"),
        ("graded", {"a": {"intercept": [0.5]}}, "give a list of 2 numbers"),
        ("graded", {"a": {"intercept": [0.5, 0.5]}}, "must decrease from category"),
        ("graded", {"a": {"intercept": ["x", 1]}}, "is no number"),
        ("graded", {"a": {"intercept_1": 0.5}}, "all of intercept_1, intercept_2, or"),
        ("graded", {"a": {"discrimination": 1.0, "difficulty": 0.0}}, "list of 2 num"),
        ("pcm", {"a": {"discrimination": 2.0}}, "no discrimination to fix at 2.0"),
        ("nominal", {"a": {"scoring_1": 0.5, "scoring_2": 1.0}}, "has no scoring_2"),
    ],
)
def test_values_that_cannot_be_held_are_named(model, anchor, message):
    chosen = (
        catalogue.two_parameter(positive=True)
        if model == "positive"
        else MODELS[model]()
    )
    with pytest.raises(ValueError, match=message):
        apply_anchor(chosen, _start(chosen), NAMES, anchor)


def test_constants_of_a_model_may_be_named():
    model = catalogue.two_parameter()
    anchor = {"a": {"intercept": 1.0, "lower_asymptote": 0.0, "upper_asymptote": 1.0}}
    _, free = apply_anchor(model, _start(model), NAMES, anchor)
    assert np.asarray(free).sum() == 11


@pytest.fixture(scope="module")
def shifted():
    """Subjects of mean 0.7 and standard deviation 1.5 on items of a known scale."""
    model = catalogue.two_parameter()
    rng = np.random.default_rng(12)
    items = true_items(model, 10)
    theta = 0.7 + 1.5 * rng.standard_normal(1000)
    values = draw("2pl", items, theta, rng)
    names = [f"q{k}" for k in range(10)]
    return items, theta, ResponseTable.from_arrays(values, items=names)


@pytest.mark.slow
def test_anchors_set_the_scale_of_another_population(shifted):
    items, theta, table = shifted
    known = {
        f"q{k}": {
            "discrimination": float(items.discrimination[k]),
            "intercept": float(items.intercept[k]),
        }
        for k in range(0, 10, 2)
    }
    calibration = irtjax.fit(table, "2pl", anchor=known)
    assert calibration.status is Status.CONVERGED
    assert calibration.options["anchored_items"] == 5
    # Five free items of two parameters, a mean and a standard deviation.
    assert calibration.num_parameters == 12
    population = calibration.parameters.population
    # Standard errors of a mean, 1.5 / sqrt(1000) = 0.047, and of a standard deviation,
    # 1.5 / sqrt(2000) = 0.034, both divided by a reliability of about 0.75; four of.
    assert float(population.mean) == pytest.approx(theta.mean(), abs=4 * 0.063)
    assert float(population.sd) == pytest.approx(theta.std(), abs=4 * 0.045)
    found = calibration.items.table.to_pydict()
    for k in range(10):
        for name in ("discrimination", "intercept"):
            value, error = found[name][k], found[f"{name}_se"][k]
            truth = float(getattr(items, name)[k])
            if k % 2 == 0:
                assert value == pytest.approx(truth, abs=1e-12) and error == 0
            else:
                # Ten such differences: one in 1,500 exceeds 4 standard errors.
                assert abs(value - truth) < 4 * error
    ability = calibration.abilities.table.to_pydict()["ability"]
    assert np.mean(ability) == pytest.approx(0.7, abs=0.25)


def test_difficulties_anchor_a_rasch_model(shifted):
    _, _, table = shifted
    calibration = irtjax.fit(
        table,
        "rasch",
        anchor={"q0": {"difficulty": 1.0}, "q9": {"difficulty": -1.0}},
        standard_errors="none",
    )
    items = calibration.parameters.items
    np.testing.assert_allclose(items.intercept[[0, 9]], [-1.0, 1.0], atol=1e-12)
    np.testing.assert_array_equal(items.discrimination, 1)
    assert calibration.num_parameters == 8 + 2


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("graded", "partial_credit", "pcm", "nominal")
    ],
)
def test_items_of_several_intercepts_are_those_of_a_saved_fit(model, tmp_path):
    """Half of the items of a fit as anchors, by file: fitted again they are the same.

    An intercept of the table of a fit is the mean of several, and stays out.
    """
    rng = np.random.default_rng(3)
    theta, easiness = rng.standard_normal((400, 1)), rng.normal(0, 0.7, (1, 6))
    eta = 1.2 * theta + easiness + rng.logistic(size=(400, 6))
    table = ResponseTable.from_arrays((eta > -0.7).astype(int) + (eta > 0.7))
    # Without priors, whose frame is another with anchors.
    options = {"priors": None, "standard_errors": "none"}
    first = irtjax.fit(table, model, "em", **options)
    assert first.status is Status.CONVERGED
    chosen = first.items.table.slice(0, 3)
    parquet.write_table(chosen, tmp_path / "items.parquet")
    again = irtjax.fit(table, model, "em", anchor=tmp_path / "items.parquet", **options)
    assert again.status is Status.CONVERGED
    # Three items are free, and mean and standard deviation of ability.
    parameters = first.model.family.num_columns
    assert again.num_parameters == 3 * parameters + 2
    for name, value in first.parameters.items._asdict().items():
        found = np.asarray(getattr(again.parameters.items, name))
        np.testing.assert_allclose(found[:3], np.asarray(value)[:3], rtol=1e-12)
        # The optimum is the same: both stop within 1e-4 errors, which are about 0.2.
        np.testing.assert_allclose(found[3:], np.asarray(value)[3:], atol=2e-3)
    assert again.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-4)


def test_several_numbers_by_list_or_by_number():
    model = MODELS["graded"]()
    listed = {"a": {"discrimination": 2.0, "intercept": [1.0, -1.0]}}
    numbered = {"a": {"discrimination": 2.0, "intercept": 0.0, "lower_asymptote": 0.0}}
    numbered["a"] |= {"intercept_1": 1.0, "intercept_2": -1.0, "difficulty": 7.0}
    difficult = {"a": {"discrimination": 2, "difficulty_1": -0.5, "difficulty_2": 0.5}}
    for anchor in (listed, numbered, difficult):
        start, free = apply_anchor(model, _start(model), NAMES, anchor)
        np.testing.assert_array_equal(start.items.intercept[0], [1.0, -1.0])
        assert np.asarray(free).sum() == 15 and not np.asarray(free)[0].any()


def test_anchors_of_unlike_slopes_do_not_suit_equal_ones(shifted):
    _, _, table = shifted
    unlike = {"q0": {"discrimination": 1.0}, "q1": {"discrimination": 2.0}}
    with pytest.raises(ValueError, match="2 discriminations do not suit a 1pl model"):
        irtjax.fit(table, "1pl", anchor=unlike)
    with pytest.raises(ValueError, match="do not suit a rasch model; use 2pl"):
        irtjax.fit(table, "rasch", anchor={"q0": {"discrimination": 2.0}})


def test_a_value_reaches_the_coordinates_in_the_dtype_asked_for():
    model = catalogue.two_parameter()
    start, _ = apply_anchor(model, _start(model), NAMES, {"a": {"intercept": 0.1}})
    assert jnp.asarray(start.items.intercept).dtype == jnp.float64
