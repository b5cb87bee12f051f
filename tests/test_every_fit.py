"""`irtjax.fit` with every model by name and every method by name.

A pair is refused in one line before anything is compiled, or its calibration keeps the
contract below. The pairs are those of the package's catalogues; `tests/tables.py` has
the data and settings that they are given, and the reasons to refuse.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.estimators.catalogue import METHODS as ALL_METHODS
from irtjax.estimators.catalogue import method_class
from irtjax.likelihood.problem import Start
from irtjax.models import catalogue
from irtjax.models.catalogue import MODELS as ALL_MODELS
from irtjax.models.catalogue import MULTILEVEL_MODELS
from tests.tables import (
    ALL_PAIRS,
    BY_NAME,
    FITTED,
    METHODS,
    METHODS_NOT_IN_GRID,
    MODELS,
    NOT_IN_GRID,
    QUICK_PAIRS,
    REFUSED,
    SETTINGS,
    refusal,
)

#: One shape for all pairs.
SUBJECTS, ITEMS, CATEGORIES, TRIALS = 40, 12, 3, 4
#: The least and the largest expected response to an item.
BOUNDS = {"categories": (0, CATEGORIES - 1)}


@functools.cache
def matrix(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Responses of a kind, the mask of those observed, and lengths if there are any."""
    rng = np.random.default_rng(5)
    ability = rng.standard_normal((SUBJECTS, 1))
    eta = (0.9 + 0.1 * np.arange(ITEMS)) * ability + np.linspace(-1.2, 1.2, ITEMS)
    chance = 1 / (1 + np.exp(-eta))
    observed = rng.random(eta.shape) < 0.95
    right = (rng.random(eta.shape) < chance).astype(float)
    scores = 1 / (1 + np.exp(-eta - 0.7 * rng.standard_normal(eta.shape)))
    values = {
        "binary": right,
        "lengths": right,
        "counts": rng.binomial(TRIALS, chance).astype(float),
        "categories": rng.binomial(CATEGORIES - 1, chance).astype(float),
        "scores": scores,
        "mixed": np.where(np.arange(ITEMS) % 2 == 0, right, scores),
    }[kind]
    lengths = np.rint(np.exp(6 - 0.5 * ability + 0.4 * rng.standard_normal(eta.shape)))
    return values, observed, lengths if kind == "lengths" else None


def make_table(kind: str, missing: float | None = None) -> irtjax.ResponseTable:
    """The table of a kind; `missing` is put in the cells that the mask leaves out."""
    values, observed, lengths = matrix(kind)
    trials = np.full(values.shape, TRIALS) if kind == "counts" else None
    return irtjax.ResponseTable.from_arrays(
        values if missing is None else np.where(observed, values, missing),
        observed=observed,
        # Neither list is sorted, so that a result in another order is seen.
        subjects=[f"s{(7 * k) % SUBJECTS}" for k in range(SUBJECTS)],
        items=[f"i{(5 * k) % ITEMS}" for k in range(ITEMS)],
        trials=trials,
        benchmark=["law" if k % 2 else "code" for k in range(ITEMS)],
        lengths=lengths,
    )


def fit_pair(name: str, method: str, missing: float | None = None, **settings):
    named = BY_NAME[name]
    chosen = SETTINGS.get(method, {}) | settings
    return irtjax.fit(make_table(named.kind, missing), named.model, method, **chosen)


@functools.cache
def made_once(name: str, method: str) -> irtjax.Calibration:
    return fit_pair(name, method)


def test_the_tables_have_every_model_and_method():
    for name in ALL_MODELS:
        assert name in MODELS or name in NOT_IN_GRID, (
            f"the model {name} is in no table: add a row to MODELS in tests/tables.py"
        )
    for name in (*ALL_MODELS, *MULTILEVEL_MODELS):
        assert name in BY_NAME, (
            f"the model {name} has no data: add its catalogue to BY_NAME in"
            " tests/tables.py, with the kind of data"
        )
    for name in ALL_METHODS:
        assert name in SETTINGS, (
            f"the method {name} has no settings: add a row to SETTINGS in"
            " tests/tables.py that makes a fit quick"
        )
        assert name in METHODS or name in METHODS_NOT_IN_GRID, (
            f"the method {name} is in no table: add a row to METHODS in"
            " tests/tables.py, or the reason not to in METHODS_NOT_IN_GRID"
        )
    # Nothing that the package no longer has.
    assert set(NOT_IN_GRID) <= set(ALL_MODELS)
    assert set(SETTINGS) == set(ALL_METHODS)
    assert set(METHODS_NOT_IN_GRID) <= set(ALL_METHODS)
    assert {named.model for named in BY_NAME.values()} <= {
        *ALL_MODELS,
        *MULTILEVEL_MODELS,
    }


@pytest.mark.parametrize(("name", "method"), REFUSED)
def test_a_pair_is_refused_in_one_line_before_anything_is_compiled(name, method):
    settings = {}
    if "start" in method_class(method).runs.options:
        # No numbers: an error of another kind where start values are taken.
        settings["start"] = Start((np.full(ITEMS, "nowhere"),))
    with pytest.raises(ValueError, match=re.escape(refusal(name, method))) as found:
        fit_pair(name, method, **settings)
    message = str(found.value)
    assert "\n" not in message
    assert repr(method) in message or BY_NAME[name].model in message
    assert re.search(r"\buse |method='", message)


#: Methods with one optimum, whatever the rounding and the random numbers.
EXACT = ("em", "mm", "gradient", "laplace")


class Accepted(Exception):
    """Raised in place of a fit."""


def test_every_other_pair_is_accepted(monkeypatch):
    def stop(*args):
        raise Accepted

    # Start values that are given are not computed, and nothing is compiled.
    start = Start((jnp.zeros(ITEMS),))
    accepted = []
    for name, method in ALL_PAIRS:
        kind = method_class(method)
        monkeypatch.setattr(kind, "solve", stop)
        settings = {"start": start} if "start" in kind.runs.options else {}
        try:
            fit_pair(name, method, **settings)
        except Accepted:
            accepted.append((name, method))
        except ValueError as refused:
            assert refusal(name, method), (
                f"{name} by {method} is refused: {refused}; if it has to be, add the"
                " reason to REFUSALS in tests/tables.py"
            )
    wrong = [pair for pair in accepted if pair in REFUSED]
    assert not wrong, f"accepted, but REFUSALS in tests/tables.py has {wrong}"


@pytest.mark.parametrize(("name", "method"), FITTED)
def test_a_fit_keeps_the_contract(name, method, tmp_path):
    kind, fit = BY_NAME[name].kind, made_once(name, method)
    table = make_table(kind)
    check_labels(fit, table)
    check_numbers(fit, table, kind)
    check_texts(fit, name, method)
    check_ranks_and_predictions(fit, kind)
    irtjax.save(fit, tmp_path / "fit")
    check_equal(irtjax.load(tmp_path / "fit"), fit)


def check_labels(fit, table):
    """Everything is in the order of the data."""
    assert fit.subject_names.tolist() == table.subjects.tolist()
    assert fit.item_names.tolist() == table.items.tolist()
    assert fit.abilities.table["subject"].to_pylist() == table.subjects.tolist()
    assert fit.items.table["item"].to_pylist() == table.items.tolist()
    assert fit.benchmarks.tolist() == table.benchmarks.tolist()
    assert fit.num_observed == table.num_observed


def check_numbers(fit, table, kind):
    """Numbers are finite, errors positive, and abilities those of the data."""
    assert isinstance(fit, irtjax.Calibration)
    assert fit.status in irtjax.Status and fit.status is not irtjax.Status.NONFINITE
    assert np.isfinite([fit.log_likelihood, fit.log_prior, fit.aic, fit.bic]).all()
    ability, error, score, score_error = (
        fit.abilities.table[name].to_numpy()
        for name in ("ability", "ability_se", "expected_score", "expected_score_se")
    )
    assert np.isfinite([ability, error, score, score_error]).all()
    assert (error > 0).all() and (score_error > 0).all()
    low, high = bounds(kind)
    assert (low <= score).all() and (score <= high).all()
    if fit.status is irtjax.Status.CONVERGED:
        # Twelve items have a reliability of about .7, so means correlate about .95
        # with estimates of ability; the items' unlike slopes, the missing cells and,
        # at 40 subjects, a standard error of .1 leave more than a half.
        means = table.subject_accuracy()
        assert np.corrcoef(ability, means)[0, 1] > 0.5


def bounds(kind):
    return BOUNDS.get(kind, (0, 1))


def check_texts(fit, name, method):
    """The summary has ten lines at most, and names model and method."""
    lines = fit.summary().splitlines()
    assert len(lines) <= 10
    assert f"{BY_NAME[name].model} by {method} on 40 subjects" in lines[0]
    assert fit.options["method"] == method
    assert all(isinstance(text, str) and text for text in (*fit.warnings, *fit.notes))


def check_ranks_and_predictions(fit, kind):
    """All subjects are ranked, best first; predictions are within their bounds."""
    ranked = irtjax.rank(fit).table
    assert sorted(ranked["subject"].to_pylist()) == sorted(fit.subject_names)
    assert (np.diff(ranked["ability"].to_numpy()) <= 0).all()
    low, high = bounds(kind)
    found = irtjax.predict(fit)
    assert found.expected.shape == (SUBJECTS, ITEMS)
    assert (low <= found.expected).all() and (found.expected <= high).all()
    assert (found.standard_error >= 0).all()
    some = irtjax.predict(
        fit, subject_names=fit.subject_names[[3, 1]], item_names=fit.item_names[[2]]
    )
    expected = found.expected[np.ix_([3, 1], [2])]
    # Blocks of another shape add in another order.
    np.testing.assert_allclose(some.expected, expected, rtol=1e-9)


def check_equal(one, other):
    """The same tables, parameters and record."""
    for name in ("abilities", "items"):
        assert getattr(one, name).table.equals(getattr(other, name).table)
    assert one.summary() == other.summary()
    assert one.status is other.status and one.warnings == other.warnings
    assert one.data_hash == other.data_hash and one.notes == other.notes


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair != ("2pl", "em")))
        for pair in ALL_PAIRS
        if pair not in REFUSED
        and (pair in QUICK_PAIRS or pair[0] in catalogue.MULTILEVEL_MODELS)
    ],
)
def test_single_precision_is_kept_where_double_is_the_default(name, method):
    """JAX's default type is double in these tests; a fit follows its `dtype`."""
    fit = fit_pair(name, method, dtype=jnp.float32)
    kinds = {x.dtype for x in jax.tree.leaves(fit.parameters) if hasattr(x, "dtype")}
    assert kinds <= {np.dtype(np.float32), np.dtype(np.int32)}, kinds
    ability = fit.abilities.table["ability"].to_numpy()
    wanted = dict(zip(*made_once(name, method).abilities.table.select(
        ["subject", "ability"]).to_pydict().values(), strict=True))  # fmt: skip
    wanted = [wanted[subject] for subject in fit.abilities.table["subject"].to_pylist()]
    done = fit.status is made_once(name, method).status is Status.CONVERGED
    if method in EXACT and done:
        # Both stop when a step is small against standard errors.
        np.testing.assert_allclose(ability, wanted, atol=0.02)
    assert np.isfinite(ability).all()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("2pl", method)
        if refusal("2pl", method) is None
        else pytest.param("factor", method, marks=pytest.mark.slow)
        for method in ALL_METHODS
    ],
)
def test_values_of_missing_cells_change_nothing(name, method):
    # No response of any kind, so that the table is refused where one is seen.
    check_equal(fit_pair(name, method, missing=-7.5), made_once(name, method))


@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_setting_of_another_method_is_refused(method):
    own = {field.name for field in dataclasses.fields(method_class(method))}
    name = next(n for n in ("num_ratios", "window") if n not in own)
    with pytest.raises(ValueError, match=f"{name} requires method"):
        fit_pair("2pl", method, **{name: 1})
