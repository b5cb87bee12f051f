"""Variance components: published values, lme4, the two roads, coverage of designs."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from irtjax.validity import generalisability as module
from irtjax.validity.generalisability import generalisability

#: lme4 1.1-31, `lmer` with six random effects and REML, on incomplete scores.
LME4 = {
    "log_likelihood": -210.487104104,
    "subject": 0.38236020110,
    "item": 0.16574889661,
    "rater": 0.12979927190,
    "subject × item": 0.37268163823,
    "subject × rater": 0.09295945884,
    "item × rater": 0.15352464940,
    "residual": 0.15380203200,
}


def columns_of(subjects=12, items=10, raters=4, share=1.0, seed=0):
    """Scores of a crossed design with all effects; a share of them at random."""
    rng = np.random.default_rng(seed)
    shape = subjects, items, raters
    size = lambda *axes: [n if k in axes else 1 for k, n in enumerate(shape)]
    score = 0.4 * rng.normal(size=shape)
    effects = [((0,), 1), ((1,), 0.5), ((2,), 0.4), ((0, 1), 0.5), ((0, 2), 0.3)]
    for axes, sd in [*effects, ((1, 2), 0.4)]:
        score = score + sd * rng.normal(size=size(*axes))
    chosen = rng.random(shape) < share
    names = zip(("subject", "item", "rater"), np.nonzero(chosen), strict=True)
    return {name: place.tolist() for name, place in names} | {"score": score[chosen]}


@pytest.mark.parametrize(
    ("dimension", "variances", "coefficients"),
    [
        (
            "coherence",
            [0.3594, 0.1135, 0.1237, 0.5078, 0.1061, 0.0320, 0.4057],
            (0.8958, 0.8101),
        ),
        (
            "consistency",
            [0.3558, 0.0183, 0.0041, 0.6895, 0.0071, 0.0004, 0.1045],
            (0.9737, 0.9696),
        ),
        (
            "fluency",
            [0.1615, 0.0239, 0.0086, 0.4037, 0.0044, 0.0100, 0.1806],
            (0.9637, 0.9459),
        ),
        (
            "relevance",
            [0.1250, 0.1329, 0.0644, 0.2998, 0.0395, 0.0415, 0.3916],
            (0.8774, 0.7557),
        ),
    ],
)
def test_summeval_has_the_published_components(
    shared_data, dimension, variances, coefficients
):
    table = pq.read_table(
        shared_data / "summeval" / "ratings_long.parquet",
        filters=[("dimension", "==", dimension), ("rater_type", "==", "expert")],
    )
    study = generalisability(table, ["item", "rater"], subject="system")
    # The published values have four decimals.
    found = list(study.variances.values())
    assert np.abs(np.array(found) - variances).max() <= 0.5001e-4
    design = study.design()
    assert abs(design.coefficient - coefficients[0]) <= 0.5001e-4
    assert abs(design.dependability - coefficients[1]) <= 0.5001e-4
    if dimension == "coherence":
        one, few = study.design(rater=1), study.design(item=20)
        assert abs(one.coefficient - 0.757) < 0.5e-3
        assert abs(few.coefficient - 0.842) < 0.5e-3


def test_both_roads_have_the_same_maximum(monkeypatch):
    columns = columns_of()
    study = generalisability(columns, ["item", "rater"])
    monkeypatch.setattr(module, "_strata", lambda *arguments: None)
    again = generalisability(columns, ["item", "rater"])
    assert again.log_likelihood == pytest.approx(study.log_likelihood, abs=1e-8)
    left, right = list(study.variances.values()), list(again.variances.values())
    np.testing.assert_allclose(left, right, rtol=1e-6)
    np.testing.assert_allclose(study.covariance, again.covariance, rtol=1e-4)


def test_incomplete_scores_have_the_likelihood_of_lme4():
    study = generalisability(columns_of(6, 9, 5, 0.7, seed=3), ["item", "rater"])
    # The maximum is not below that of lme4, which stops 1e-7 before it.
    assert 0 <= study.log_likelihood - LME4["log_likelihood"] < 1e-6
    for name, variance in study.variances.items():
        assert variance == pytest.approx(LME4[name], rel=1e-3), name


def test_a_negative_estimate_is_zero_where_the_likelihood_is_highest(monkeypatch):
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(30, 1)) + rng.normal(size=(30, 6))
    scores -= scores.mean(axis=0)  # Items do not differ at all.
    study = generalisability(scores)
    assert study.variances["item"] == 0
    assert "no variance was found of item" in study.warnings[0]
    monkeypatch.setattr(module, "_strata", lambda *arguments: None)
    again = generalisability(scores)
    assert again.variances["item"] == 0
    assert again.variances["residual"] == pytest.approx(
        study.variances["residual"], rel=1e-5
    )


def test_items_in_benchmarks_are_a_facet_of_their_own():
    rng = np.random.default_rng(1)
    benchmark = np.repeat(np.arange(8), 25)
    score = rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=(40, 8))[:, benchmark]
    score = score + rng.normal(size=200) + rng.normal(size=(40, 200))
    row, column = (x.ravel() for x in np.indices(score.shape))
    columns = {"subject": row, "item": column % 25, "benchmark": benchmark[column]}
    study = generalisability(
        columns | {"score": score.ravel()},
        ["benchmark", "item"],
        nested={"item": "benchmark"},
    )
    names = study.table["component"].to_pylist()
    assert "benchmark × item" in names and "item" not in names
    assert study.sizes == {"benchmark": pytest.approx(8), "item": pytest.approx(25)}
    # More benchmarks help where more items of the same ones cannot.
    wide, long = study.design(benchmark=32), study.design(item=100)
    assert wide.coefficient > long.coefficient
    true = {"subject": 1, "subject × benchmark": 0.25, "residual": 1}
    errors = dict(zip(names, study.table["variance_se"].to_pylist(), strict=True))
    for name, variance in true.items():
        assert abs(study.variances[name] - variance) < 4 * errors[name]


def test_designs_are_sorted_by_cost_and_reach_a_target():
    study = generalisability(columns_of(), ["item", "rater"])
    sizes = {"item": [10, 40, 160], "rater": [1, 2, 4]}
    costs = {"item": 1.0, "rater": 0.5}
    table = study.designs(sizes, costs, target=0.3)
    cost, error = table["cost"].to_pylist(), table["relative_error"].to_pylist()
    assert cost == sorted(cost) and max(error) <= 0.3
    row = table.to_pylist()[0]
    assert row["cost"] == row["item"] + 0.5 * row["item"] * row["rater"]
    with pytest.raises(ValueError, match="no design has a standard error of 0.001"):
        study.designs(sizes, costs, target=0.001)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": ["a"] * 4}, "item has one level"),
        ({"score": [1.0] * 4}, "all scores of 'score' are the same"),
        ({"score": ["a", "b", "c", "d"]}, "column 'score' has no numbers"),
        ({"subject": ["a", None, "b", "b"]}, "column 'subject' has rows without"),
        ({"subject": ["a", "b", "c", "d"]}, "no subject has two scores"),
    ],
)
def test_what_is_no_study_is_refused_in_a_line(change, message):
    columns = {"subject": [0, 0, 1, 1], "item": [0, 1, 0, 1], "score": [1.0, 2, 2, 5]}
    with pytest.raises(ValueError, match=message) as error:
        generalisability(columns | change)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="no column 'judge'"):
        generalisability(columns, ["judge"])


@pytest.mark.parametrize(
    ("rater", "nested", "cure"),
    [
        (lambda i, j, k: j, {}, "item and rater have .*: leave out rater"),
        (lambda i, j, k: i, {}, "subject and rater have .*: leave out rater"),
        (lambda i, j, k: 2 * i + k, {}, "subject × rater have .*: leave out rater"),
        (lambda i, j, k: j, {"rater": "item"}, "item × rater have .*: leave out rater"),
        (lambda i, j, k: 2 * j + k, {}, "one item, so give nested={'rater': 'item'}"),
    ],
)
def test_facets_that_are_not_crossed_are_refused_with_a_cure(rater, nested, cure):
    rng = np.random.default_rng(6)
    i, j, k = (x.ravel() for x in np.indices((6, 5, 2)))
    score = rng.normal(size=6)[i] + rng.normal(size=60)
    columns = {"subject": i, "item": j, "rater": rater(i, j, k), "score": score}
    with pytest.raises(ValueError, match=cure):
        generalisability(columns, ["item", "rater"], nested=nested)
    if "leave out" in cure:
        study = generalisability(columns, ["item"])
    else:
        study = generalisability(columns, ["item", "rater"], nested={"rater": "item"})
    assert study.variances["subject"] > 0


@pytest.mark.slow
def test_intervals_of_coefficients_hold():
    """95 % intervals of E rho^2 by its standard error, 12 x 10 x 4, 70 % observed."""
    true = 1 / (1 + 0.25 / 10 + 0.09 / 4 + 0.16 / 40)
    held = 0
    for seed in range(200):
        study = generalisability(columns_of(40, 10, 4, 0.7, seed), ["item", "rater"])
        design = study.design(item=10, rater=4)
        held += abs(design.coefficient - true) <= 1.96 * design.coefficient_se
    assert 0.88 <= held / 200 <= 0.99  # Three binomial errors around .93 to .96.
