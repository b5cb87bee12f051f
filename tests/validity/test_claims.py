"""Claims: forms, verdicts against the paired test, errors under the null."""

import numpy as np
import pytest

import irtjax
from irtjax.ranking.accuracy import paired_difference
from irtjax.validity.claims import Statement, anytime_p_value, claim, parse


def table_of(chances, items=300, seed=0, **options):
    """Right and wrong responses of subjects a, b, c ... with these chances."""
    rng = np.random.default_rng(seed)
    chances = np.asarray(chances)[:, None]
    values = (rng.random((len(chances), items)) < chances).astype(int)
    names = [chr(ord("a") + k) for k in range(len(chances))]
    return irtjax.ResponseTable.from_arrays(values, subjects=names, **options)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("gpt-4 > claude 3", Statement("greater", "gpt-4", "claude 3", None)),
        ("a is better than b.", Statement("greater", "a", "b", None)),
        ("a beats b", Statement("greater", "a", "b", None)),
        ("a in top 3", Statement("top", "a", None, 3.0)),
        ("a is among the top 10", Statement("top", "a", None, 10.0)),
        ("A is the best", Statement("best", "A", None, None)),
        ("a within .5 points of b", Statement("within", "a", "b", 0.5)),
        ("a is within 1 point of b", Statement("within", "a", "b", 1.0)),
        ("a cheaper than b and no worse", Statement("no worse", "a", "b", None)),
        ("a beats the record", Statement("record", "a", None, None)),
        ("a above 85.5", Statement("above", "a", None, 85.5)),
        ("a > 85%", Statement("above", "a", None, 85.0)),
    ],
)
def test_claims_are_understood(text, statement):
    assert parse(text) == statement


def test_a_difference_is_that_of_the_paired_test():
    table = table_of([0.7, 0.6])
    result = claim("a > b", table)
    paired = paired_difference(table.values)
    assert result.estimate == paired.difference
    assert result.standard_error == paired.standard_error
    assert (result.lower, result.upper) == pytest.approx((paired.lower, paired.upper))
    assert result.probability == pytest.approx(1 - paired.p_value / 2)
    assert (result.verdict == "supported") == (paired.p_value < 0.05)
    other = claim("b > a", table)
    assert other.probability == pytest.approx(1 - result.probability)


def test_verdicts_follow_the_data():
    table = table_of([0.95, 0.6, 0.58, 0.3])
    verdicts = {
        "a > d": "supported",
        "d > a": "refuted",
        "b > c": "open",
        "a is the best": "supported",
        "d is the best": "refuted",
        "b in top 3": "supported",
        "d in top 3": "refuted",
        "a within 5 points of d": "refuted",
        "b within 20 points of c": "supported",
        "a above 80": "supported",
        "d beats 50": "refuted",
        "a beats the record": "supported",
    }
    assert {text: claim(text, table).verdict for text in verdicts} == verdicts
    costs = {"a": 1.0, "b": 2.0}
    text = "a cheaper than b and no worse"
    assert claim(text, table, costs=costs).verdict == "supported"
    result = claim("b cheaper than a and no worse", table, costs=costs)
    assert result.verdict == "refuted" and result.probability == 0
    assert claim("a beats the record", table, record=99).verdict != "supported"


def test_more_items_are_needed_for_a_smaller_difference_and_cost_something():
    table = table_of([0.63, 0.6], 200)
    result = claim("a > b", table, costs={"a": 10.0, "b": 10.0})
    assert result.verdict == "open" and result.items_needed > 200
    missing = result.items_needed - 200
    assert result.cost_needed == pytest.approx(missing * 20 / 200)
    # With that many the difference is 2.8 errors away.
    assert result.detectable == pytest.approx(2.8016 * result.standard_error, rel=1e-3)


def test_runs_widen_the_interval():
    table = table_of([0.7, 0.6])
    one, other = claim("a > b", table), claim("a > b", table, run_sd=2)
    width = np.hypot(one.standard_error, np.sqrt(2) * 0.02)
    assert other.standard_error == pytest.approx(width)
    assert any("answered once" in x for x in one.rebuttals)
    assert not any("answered once" in x for x in other.rebuttals)


def test_the_luck_of_the_winner_is_taken_off():
    raw, corrected = [], []
    for seed in range(6):
        table = table_of(np.full(8, 0.5), 100, seed=seed)
        scores = table.subject_accuracy()
        result = claim(f"{table.subjects[np.argmax(scores)]} is the best", table)
        raw.append(scores.max() - scores.mean())
        corrected.append(result.corrected - scores.mean())
    # Equal subjects: nothing of the advance is theirs. Of six tables the mean of alpha,
    # where it is above 0, is .13, with an error of .1.
    assert np.mean(corrected) < 0.45 * np.mean(raw)


def test_the_report_has_all_parts():
    text = claim("a > b", table_of([0.7, 0.6])).report()
    for part in ("# a > b", "## Data", "## Warrant", "## Backing", "## Rebuttals"):
        assert part in text


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a and b", {}, "is no claim that is understood"),
        ("a > x", {}, "no subject is called 'x'"),
        ("a > a", {}, "'a' is compared with itself"),
        ("a in top 9", {}, "top 9 of 3 subjects is no claim"),
        ("a cheaper than b and no worse", {}, "there is no cost of 'a'"),
        ("a in top 2", {"anytime": True}, "anytime is for"),
        ("a > b", {"level": 95}, "level is between 0 and 1"),
    ],
)
def test_what_cannot_be_claimed_is_refused_in_a_line(text, options, message):
    with pytest.raises(ValueError, match=message) as error:
        claim(text, table_of([0.5, 0.6, 0.7], 40), **options)
    assert "\n" not in str(error.value)


def test_peeking_after_every_item_is_wrong_in_at_most_one_in_twenty():
    rng = np.random.default_rng(1)
    wrong, found = 0, 0
    for _ in range(400):
        one, other = rng.random((2, 800)) < 0.6
        gap = one.astype(float) - other
        wrong += min(anytime_p_value(gap), anytime_p_value(-gap)) <= 0.025
        better = (rng.random(800) < 0.72).astype(float) - other
        found += anytime_p_value(better) <= 0.025
    # A binomial of 400 with .05 is below 29 in 98 % of the cases.
    assert wrong <= 28
    assert found > 320  # 4.9 errors of the paired test.


def test_anytime_claims_have_verdicts():
    table = table_of([0.9, 0.4, 0.45], 400)
    assert claim("a > b", table, anytime=True).verdict == "supported"
    assert claim("b > a", table, anytime=True).verdict == "refuted"
    assert claim("a is the best", table, anytime=True).verdict == "supported"
    assert claim("b > c", table, anytime=True).verdict == "open"


@pytest.mark.slow
def test_claims_about_equal_subjects_are_rarely_supported():
    """At most 5 % of the winners of ten equal subjects are called the best."""
    wrong = within = 0
    for seed in range(200):
        table = table_of(np.full(10, 0.6), 200, seed=seed)
        best = table.subjects[np.argmax(table.subject_accuracy())]
        wrong += claim(f"{best} is the best", table).verdict == "supported"
        # Six points apart, at the edge of the claim.
        pair = table_of([0.63, 0.57], 400, seed=seed)
        within += claim("a within 6 points of b", pair).verdict == "supported"
    assert wrong <= 18 and within <= 18  # .05 with three binomial errors.
