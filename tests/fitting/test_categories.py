"""Categories are the responses that occur; adding a constant to them changes no fit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import irtjax
from irtjax.data.coding import coding_of, recoded
from irtjax.data.sparse_table import SparseCells
from irtjax.data.table import ResponseTable
from irtjax.estimators.catalogue import METHODS
from irtjax.fitting.categories import observed_categories, with_categories
from irtjax.fitting.defaults import choose
from irtjax.fitting.resolve import category_codes, make_model
from irtjax.models.catalogue import ORDERED_MODELS
from irtjax.models.families.logistic import Binary
from irtjax.storage import load, save
from tests.tables import SETTINGS, refusal


def ratings(num_subjects: int = 90, num_items: int = 5, top: int = 2) -> np.ndarray:
    """Ratings 0 to `top`, of which the first item lacks the lowest, the second the top.

    Every item has at least two.
    """
    rng = np.random.default_rng(3)
    ability, easy = rng.normal(size=(num_subjects, 1)), rng.normal(size=num_items)
    noise = rng.logistic(size=(num_subjects, num_items))
    cuts = np.linspace(-1.2, 1.2, top)
    values = ((1.3 * ability + easy + noise)[..., None] > cuts).sum(-1)
    values[:, 0] = np.maximum(values[:, 0], 1)
    values[:, 1] = np.minimum(values[:, 1], top - 1)
    return values


def table_of(values, **more) -> ResponseTable:
    """A table of ratings."""
    return ResponseTable.from_arrays(values, **more)


def test_categories_are_those_observed():
    """Of all items, then of each; a missing cell is no category."""
    table = table_of([[1, 3, np.nan], [5, 3, 1], [1, 5, 5]])
    codes = category_codes(table)
    assert codes == (1, 3, 5)
    found = observed_categories(table, codes)
    assert found.tolist() == [[1, 0, 1], [0, 1, 1], [1, 0, 1]]
    cells = SparseCells.of([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [1, 3, 5, 3, 5], (2, 3))
    sparse = ResponseTable.from_cells(cells, subjects="ab", items="xyz")
    found = observed_categories(sparse, codes)
    assert found.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]


def test_items_with_one_category_keep_a_neighbour():
    """As items that everybody solves keep the chance of a failure."""
    table = table_of([[1, 3, 1], [2, 3, 1], [3, 3, 1]])
    model, exists = with_categories(make_model("graded", table), table)
    family: Any = model.family
    assert family.gaps and exists is not None
    assert exists.tolist() == [[1, 1, 1], [0, 1, 1], [1, 1, 0]]


def test_scale_that_every_item_uses_is_plain():
    """The family of 0 ... C - 1 but for its codes, and no note."""
    table = table_of([[1, 2], [2, 3], [3, 1]])
    model, exists = with_categories(make_model("graded", table), table)
    family: Any = model.family
    assert exists is None and not family.gaps
    assert family.codes == (1, 2, 3)
    family = make_model("graded", table_of(table.values - 1)).family
    assert family.codes == ()


@pytest.mark.parametrize("codes", [(1, 2), (0, 100), (-1, 1), (4, 9)])
def test_two_numbers_are_wrong_and_right(codes):
    """The lower one is wrong, whatever they are."""
    right = np.array([[0, 1, 1], [1, 1, 0]])
    table = table_of(np.where(right, codes[1], codes[0]))
    coding = coding_of(table)
    assert recoded(table, coding).values.tolist() == right.tolist()
    missing = table_of(np.array([[codes[0], np.nan], [codes[1], codes[1]]]))
    again = recoded(missing, coding_of(missing))
    assert again.values.tolist() == [[0, 0], [1, 1]]
    assert again.observed is not None and not again.observed[0, 1]
    cells = SparseCells.of([0, 1], [1, 0], codes, (2, 2))
    sparse = ResponseTable.from_cells(cells, subjects="ab", items="xy")
    assert recoded(sparse, coding_of(sparse)).seen.tolist() == [0, 1]


def test_ratings_are_not_recoded():
    """Nor are right and wrong responses, scores, or counts of trials."""
    for values in ([[1, 2, 3]], [[0, 1, 1]], [[0.5, 1.0, 0.5]], [[1, 1, 1]]):
        assert coding_of(table_of(values)) is None
    assert coding_of(table_of([[1, 2]], trials=[[2, 2]])) is None
    assert coding_of(table_of([[-2, 0, 2]])) == (-2, 1)


@pytest.mark.parametrize("count", [10, 300])
@pytest.mark.parametrize("top", [2, 4, 9])
def test_default_does_not_depend_on_the_codes(count, top):
    """The model and the method of a rating from 1 are those of one from 0."""
    values = np.random.default_rng(1).integers(0, top + 1, size=(count, 40))
    plain = choose(table_of(values))
    for shift in (1, 5, 11):
        found = choose(table_of(values + shift))
        assert found[:2] == plain[:2]
        if plain.bounds is not None:
            assert found.bounds == tuple(x + shift for x in plain.bounds)


@functools.cache
def fit_of(model: str, method: str, shift: int) -> irtjax.Calibration:
    """A fit of ratings from a number on."""
    settings: Any = SETTINGS[method]
    return irtjax.fit(table_of(ratings() + shift), model, method, **settings)


#: Standard errors by which fits may differ where the start rounds otherwise: `laplace`
#: ends where a step is a hundredth of one, and draws differ by less than a half.
WITHIN = {"laplace": 0.01, "nuts": 0.5, "vi": 0.5}


def _check_near(plain, moved, shift: int, share: float) -> None:
    """Abilities and expected scores differ by a small share of their errors."""
    for name, by in (("ability", 0), ("expected_score", shift)):
        one, two = (np.array(x.abilities.table[name]) for x in (plain, moved))
        error = np.array(plain.abilities.table[f"{name}_se"])
        assert (np.abs(two - one - by) < share * error).all()


def _check_same(plain, moved, shift: int) -> None:
    """Everything is the same, but for what is on the scale of the responses."""
    assert moved.num_parameters == plain.num_parameters
    assert moved.status == plain.status
    close: Any = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(moved.log_likelihood, plain.log_likelihood, **close)
    for name in plain.abilities.table.column_names:
        one, two = (x.abilities.table[name].to_pylist() for x in (plain, moved))
        on_scale = name.startswith(("expected_score", "accuracy"))
        if name in ("subject", "flags"):
            assert one == two
            continue
        by = shift if on_scale and not name.endswith("_se") else 0
        one, two = (np.array(x, float) for x in (one, two))
        np.testing.assert_allclose(two, one + by, **close)
    score = np.array(moved.abilities.table["expected_score"].to_pylist(), float)
    assert (shift <= score).all() and (score <= shift + 2).all()


PAIRS = [
    (model, method)
    for model in ORDERED_MODELS
    for method in METHODS
    if refusal(model, method) is None
]
QUICK = [("graded", "em")]


@pytest.mark.parametrize(
    ("model", "method"),
    [pytest.param(*x, marks=[pytest.mark.slow] * (x not in QUICK)) for x in PAIRS],
)
def test_adding_a_constant_changes_no_fit(model, method):
    """Of every ordinal model by every method."""
    # The default run has the fit of 1 to 3 for the tests below, too.
    shift = 1 if (model, method) in QUICK else 3
    plain, moved = (fit_of(model, method, by) for by in (0, shift))
    if method in WITHIN:
        _check_near(plain, moved, shift, WITHIN[method])
    else:
        _check_same(plain, moved, shift)


@pytest.fixture(scope="module")
def fitted():
    """Ratings 1 to 3, of which the first item lacks 1 and the second lacks 3."""
    return fit_of("graded", "em", 1)


def test_parameters_are_those_of_observed_categories(fitted):
    """Five slopes, two intercepts of three items and one of the two others."""
    assert fitted.num_parameters == 5 + 3 * 2 + 2
    found = [x for x in fitted.notes if "lack" in x]
    assert found == [
        "2 items lack some of the responses 1 to 3 ('item 1' has no 1; 'item 2' has no"
        " 3): an item is fitted with the categories that its responses have"
    ]
    table = fitted.items.table
    empty = [[x is None for x in table[f"intercept_{k}"].to_pylist()] for k in (1, 2)]
    assert empty == [[True] + [False] * 4, [False, True] + [False] * 3]
    for name in ("intercept", "difficulty", "discrimination", "discrimination_se"):
        assert None not in table[name].to_pylist()
    chances = irtjax.predict(fitted, categories=True).table
    first = np.array(chances["item"].to_pylist()) == "item 1"
    by_code = {k: np.array(chances[f"probability_{k}"]) for k in (1, 2, 3)}
    assert by_code[1][first].max() < 1e-6 < by_code[1][~first].min()
    expected = sum(k * x for k, x in by_code.items())
    np.testing.assert_allclose(chances["expected"], expected, rtol=1e-5)


def test_saved_fit_scores_categories_that_it_lacks(fitted, tmp_path):
    """They count as the nearest one that the item has, with a note."""
    again = load(save(fitted, tmp_path / "fit"))
    values = ratings()[:4] + 1
    plain = irtjax.score(again, table_of(values))
    assert not any("nearest" in note for note in plain.notes)
    own = np.array(fitted.abilities.table["ability"].to_pylist())[:4]
    np.testing.assert_allclose(plain.table["ability"], own, atol=1e-4)
    values[0, 0] = 2
    one = irtjax.score(again, table_of(values)).table["ability"].to_pylist()
    values[0, 0] = 1
    moved = irtjax.score(again, table_of(values))
    assert moved.table["ability"].to_pylist() == one
    assert any(
        note == "1 response was taken as the nearest one that the item had in the data"
        " of the fit, such as 1 of 'item 1' as 2"
        for note in moved.notes
    )
    values[0, 0] = 4
    with pytest.raises(ValueError, match="response 4 is not 1 or 2 or 3"):
        irtjax.score(again, table_of(values))


def test_right_and_wrong_by_other_numbers():
    """A fit of 1 and 2 is that of 0 and 1, and so are scores of new responses."""
    values = (ratings(top=3) > 1).astype(int)
    plain, coded = (
        irtjax.fit(table_of(values + k), "2pl", "em", standard_errors="none")
        for k in (0, 1)
    )
    assert isinstance(coded.model.family, Binary)
    assert coded.log_likelihood == plain.log_likelihood
    assert coded.num_parameters == plain.num_parameters == 10
    assert coded.abilities.table.equals(plain.abilities.table)
    assert "the responses 1 and 2 were taken as 0 (wrong) and 1 (right)" in coded.notes
    # A file in which all responses are wrong.
    lowest = irtjax.score(coded, table_of(np.ones((1, 5), int))).table["ability"]
    assert (
        lowest == irtjax.score(plain, table_of(np.zeros((1, 5), int))).table["ability"]
    )


#: Log-likelihoods and numbers of parameters by maximum likelihood in R's mirt.
MIRT = {
    "C24b/likert.csv": (-944.22, 30),
    "C24c/likert.csv": (-944.22, 30),
    "C27/coded12.csv": (-417.38, 24),
    "C31/seven.csv": (-1774.52, 49),
    "C31b/six.csv": (-1770.47, 48),
    "C31y/six.csv": (-1770.47, 48),
    "C31z/six.csv": (-1770.47, 48),
    "C95/ltm3.csv": (-788.31, 29),
}


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * ("C95" not in x)) for x in MIRT]
)
def test_log_likelihoods_of_mirt(shared_cases, name):
    """Maximum likelihood."""
    table = irtjax.read(shared_cases / name)
    fit = irtjax.fit(table, "auto", "em", priors=None, standard_errors="none")
    wanted, count = MIRT[name]
    assert fit.status.name == "CONVERGED"
    assert fit.num_parameters == count
    # mirt's tolerance of parameters, 1e-4, and its nodes are worth a hundredth.
    assert abs(fit.log_likelihood - wanted) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", MIRT)
def test_weak_priors_lose_half_a_unit_of_log_likelihood(shared_cases, name):
    """At most, and no parameter."""
    table = irtjax.read(shared_cases / name)
    fit = irtjax.fit(table, "auto", "em", standard_errors="none")
    wanted, count = MIRT[name]
    assert fit.num_parameters == count
    assert wanted - 0.6 < fit.log_likelihood < wanted + 0.05


def test_judge_from_one_to_five(shared_cases):
    """The same model and method as of the same ratings from 0 to 4."""
    one = choose(irtjax.read(shared_cases / "C94" / "judge_1to5.csv"))
    two = choose(irtjax.read(shared_cases / "C94b" / "judge_0to4.csv"))
    assert one == two
    assert one[:2] == ("graded", "laplace")
