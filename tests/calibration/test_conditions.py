"""Conditions of gates: what can be written, and when they hold."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from irtjax._types import Status
from irtjax.calibration.conditions import Condition, judge, parse_condition
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.data import ResponseTable
from irtjax.models.catalogue import two_parameter

NEW, OLD = "org/new-1.5", "old < model"


def parse(text, first=NEW, second=OLD):
    return parse_condition(text, first, second)


@pytest.mark.parametrize(
    ("text", "quantity", "subjects", "less", "threshold"),
    [
        ("A < B", "ability", (NEW, OLD), True, 0.0),
        ("A>B", "ability", (NEW, OLD), False, 0.0),
        ("B > A", "ability", (OLD, NEW), False, 0.0),
        (f"{NEW} < '{OLD}'", "ability", (NEW, OLD), True, 0.0),
        (f'ability({NEW}) < "{OLD}"', "ability", (NEW, OLD), True, 0.0),
        # A name without quotes may have any signs: it is known.
        (f"{NEW} < {OLD}", "ability", (NEW, OLD), True, 0.0),
        ("A - B < -0.1", "ability", (NEW, OLD), True, -0.1),
        ("A < B - 0.1", "ability", (NEW, OLD), True, -0.1),
        ("-.1 > A - B", "ability", (OLD, NEW), False, 0.1),
        ("A - B + 1 < 3e-1 + 1", "ability", (NEW, OLD), True, 0.3),
        ("accuracy(A) < accuracy(B) - 2 %", "accuracy", (NEW, OLD), True, -0.02),
        ("accuracy(A) < 70%", "accuracy", (NEW,), True, 0.7),
        ("0.7 > score( A )", "score", (NEW,), True, 0.7),
        ("A > 1", "ability", (NEW,), False, 1.0),
        ("P(A < B) > 0.9", "probability", (OLD, NEW), False, 0.9),
        ("10 % < P(A > B)", "probability", (NEW, OLD), False, 0.1),
    ],
)
def test_what_can_be_written(text, quantity, subjects, less, threshold):
    found = parse(text)
    assert found.quantity == quantity and found.text == text
    # "x - y < c" is "y - x > -c".
    if found.subjects != subjects and quantity != "probability":
        assert found.subjects == subjects[::-1]
        assert (found.less, found.threshold) == (not less, -threshold)
    else:
        assert found.subjects == subjects
        assert (found.less, found.threshold) == (less, pytest.approx(threshold))


def test_names_win_over_letters():
    with pytest.raises(ValueError, match="compared with itself"):
        parse("A < B", "x", "A")
    # Names of a fit are those of an array.
    with pytest.raises(ValueError, match="neither 'A' nor 'B' nor 'x' nor 'y' nor a"):
        parse("C < A", *np.array(["x", "y"]))
    assert parse("A < x", "x", "A").subjects == ("A", "x")
    assert parse("gpt-4 < gpt-4o", "gpt-4", "gpt-4o").subjects == ("gpt-4", "gpt-4o")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a name or a number is missing at the end"),
        ("A", "a < or > is missing"),
        ("A = B", "a < or > is missing"),
        ("A <= B", "write < or >"),
        ("A < B < A", "too much"),
        ("A < C", "'C' is neither"),
        ("A-B < 0", "put spaces around -"),
        ("1 < 2", "neither of the two subjects"),
        ("A < A", "itself"),
        ("A - A < 1", "itself"),
        ("A + B < 1", "two of the same quantity"),
        ("A < accuracy(B)", "two of the same quantity"),
        ("A - B < A", "two of the same quantity"),
        ("score(A) < score(B)", "with a number"),
        ("P(A < B) > P(B < A)", "with a number"),
        ("P(A < B) > 90", "between 0 and 1"),
        ("P(A) > 0.9", "write P"),
        ("P(A < A) > 0.9", "itself"),
        ("accuracy(A < 1", "a \\) is missing"),
        ("__import__('os').system('x') < 1", "is neither"),
        ("A < 1e999999999", "too large"),
        ("A < " + "9" * 400, "too large"),
        ("A < 'B", "is neither"),
        ("A" * 5000, "longer than"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse(text)
    assert len(str(error.value).splitlines()) == 1


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("AB <>()+-%.'\"P1e9xaccuracy"), max_size=30))
def test_any_text_is_a_condition_or_refused(text):
    try:
        assert isinstance(parse(text), Condition)
    except ValueError:
        pass


def a_fit(ability, error, *, status=Status.CONVERGED, **columns):
    """What a verdict needs of a calibration."""
    ability, error = np.asarray(ability, float), np.asarray(error, float)
    half = stats.norm.ppf(0.975) * error
    table = {
        "ability": ability,
        "ability_se": error,
        "lower": ability - half,
        "upper": ability + half,
        "expected_score": 1 / (1 + np.exp(-ability)),
        "accuracy": 1 / (1 + np.exp(-ability)),
        "observed": np.full(len(ability), 100),
        **columns,
    }
    names = np.array([NEW, OLD, *map(str, range(len(ability) - 2))])
    return SimpleNamespace(
        subject_names=names,
        abilities=AbilityTable(pa.table({k: pa.array(v) for k, v in table.items()})),
        ability_shared=None,
        ability_scale=None,
        level=0.95,
        status=status,
        # Without items, the slope of scores is that over the other subjects.
        parts=(SimpleNamespace(no_rank="an ability for each group"),),
        abilities_are_scores=False,
        options={},
        reversed_scores=None,
        item_names=np.array([]),
        items=ItemTable(pa.table({"item": pa.array([], pa.string())})),
        model=two_parameter(),
    )


def outcome(text, fit, **options):
    return judge(parse(text), fit, **options)


def test_three_outcomes_of_a_difference():
    fit = a_fit([0.0, 1.0], [0.3, 0.4])  # z = -2, p = 0.0455
    found = outcome("A < B", fit)
    assert found.outcome == "holds"
    assert found.p_value == pytest.approx(2 * stats.norm.cdf(-2))
    assert found.lower == pytest.approx(-1 - 0.5 * stats.norm.ppf(0.975))
    assert outcome("A > B", fit).outcome == "does not hold"
    assert outcome("B > A", fit).outcome == "holds"
    assert outcome("A < B", fit, level=0.99).outcome == "undecided"
    # The difference is -1: below -0.01 significantly, below -0.1 not.
    assert outcome("A < B - 0.01", fit).outcome == "holds"
    weaker = outcome("A < B - 0.1", fit)
    assert weaker.outcome == "undecided"
    assert weaker.p_value == pytest.approx(2 * stats.norm.cdf(-0.9 / 0.5))
    assert outcome("B - A < 3", fit).outcome == "holds"


def test_probabilities_are_compared_as_they_are():
    fit = a_fit([0.0, 1.0], [0.3, 0.4])
    chance = stats.norm.cdf(2)
    found = outcome("P(A < B) > 0.97", fit)
    assert found.outcome == "holds" and found.estimate == pytest.approx(chance)
    assert outcome("P(B > A) > 0.98", fit).outcome == "does not hold"
    assert outcome("P(A > B) < 0.03", fit).outcome == "holds"
    assert found.p_value is None and found.lower is None


def test_equal_models_fail_a_gate_as_often_as_is_written():
    """(1 - level) / 2, within 4 standard errors of 1,500 draws."""
    random, level, draws = np.random.default_rng(0), 0.9, 1500
    holds = 0
    for first, second in random.normal(size=(draws, 2)) * [0.3, 0.4]:
        fit = a_fit([first, second], [0.3, 0.4])
        holds += outcome("A < B", fit, level=level).outcome == "holds"
    expected, error = 0.05, (0.05 * 0.95 / draws) ** 0.5
    assert abs(holds / draws - expected) < 4 * error


def test_accuracies_are_paired_by_item():
    random = np.random.default_rng(1)
    right = (random.random((2, 60)) < [[0.4], [0.7]]).astype(float)
    data = ResponseTable.from_arrays(right, subjects=[NEW, OLD])
    fit = a_fit([0.0, 1.0], [0.3, 0.4], status=Status.MAX_STEPS)
    difference = right[0] - right[1]
    for margin in (0.0, -0.1):
        text = f"accuracy(A) < accuracy(B) - {abs(margin)}"
        found = outcome(text, fit, data=data)
        truth = stats.ttest_1samp(difference, margin)
        assert found.p_value == pytest.approx(truth.pvalue)
        assert found.estimate == pytest.approx(difference.mean())
        assert (found.outcome == "holds") == (truth.pvalue <= 0.05)
    with pytest.raises(ValueError, match="responses"):
        outcome("accuracy(A) < accuracy(B)", fit)


def test_two_items_decide_nothing_about_accuracies():
    fit = a_fit([0.0, 1.0], [0.3, 0.4])

    def found(size, text="accuracy(A) < accuracy(B)"):
        right = np.repeat([[0.0], [1.0]], size, axis=1)
        data = ResponseTable.from_arrays(right, subjects=[NEW, OLD])
        return outcome(text, fit, data=data)

    assert (found(2).outcome, found(2).p_value) == ("undecided", 0.5)
    assert (found(6).outcome, found(6).p_value) == ("holds", 2**-5)
    lower = found(6, "accuracy(A) < accuracy(B) - 20 %")
    assert lower.outcome == "undecided" and lower.p_value == pytest.approx(2 * 0.6**6)


def test_one_subject_is_judged_by_its_interval():
    ends = {"accuracy_lower": [0.6, 0.7], "accuracy_upper": [0.8, 0.9]}
    columns = {"accuracy": [0.7, 0.8], "accuracy_se": [0.05, 0.05], **ends}
    fit = a_fit([0.5, 1.0], [0.3, 0.4], **columns)
    assert outcome("accuracy(A) < 0.81", fit).outcome == "holds"
    assert outcome("accuracy(A) < 0.75", fit).outcome == "undecided"
    assert outcome("accuracy(A) < 55 %", fit).outcome == "does not hold"
    with pytest.raises(ValueError, match="level of the fit"):
        outcome("accuracy(A) < 0.5", fit, level=0.9)
    assert outcome("A > 0", fit).outcome == "undecided"
    assert outcome("A > 0", fit, level=0.9).outcome == "holds"  # z = 1.667


def test_a_fit_that_has_not_converged_decides_nothing():
    fit = a_fit([0.0, 5.0], [0.1, 0.1], status=Status.MAX_STEPS)
    found = outcome("A < B", fit)
    assert found.outcome == "undecided" and "not converged" in found.reason
    assert not found.tested and outcome("A > 1", fit).outcome == "undecided"
    assert outcome("P(A < B) > 0.9", fit).outcome == "undecided"


def test_a_quantity_without_an_error_is_refused():
    fit = a_fit([0.0, np.nan], [0.1, np.nan])
    with pytest.raises(ValueError, match="no finite ability|no error"):
        outcome("A < B", fit)
    with pytest.raises(ValueError, match="no error of the ability"):
        outcome("B > 0", fit)
