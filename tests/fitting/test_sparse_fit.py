"""A fit of observed cells alone is the fit of the dense table."""

import re
from typing import Any

import jax
import numpy as np
import pytest

import irtjax
from irtjax.calibration import discrimination, flags
from irtjax.calibration.identification import variation
from irtjax.data import sparse_table
from irtjax.data.sparse_table import SparseCells
from irtjax.data.table import ResponseTable
from irtjax.fitting.defaults import choose
from irtjax.fitting.one_ability import OneAbility
from irtjax.fitting.problem import make_task
from irtjax.fitting.settings import sort_settings
from irtjax.fitting.several_abilities import FactorAnalysis
from irtjax.fitting.specification import takes_cells
from irtjax.inference import covariance
from irtjax.likelihood.problem import Problem
from irtjax.models.factors import Factor
from irtjax.ranking.accuracy import accuracies

#: Columns of errors of items, which have other approximations in a dense fit.
OF_ERRORS = "_se"


def tables(seed: int, subjects: int = 80, items: int = 25, benchmarks: int = 6):
    """A dense table and the same by observed cell; one empty row and column each."""
    rng = np.random.default_rng(seed)
    seen = rng.random((subjects, items)) < rng.uniform(0.2, 0.7)
    seen[2], seen[:, 4] = False, False
    ability, easiness = rng.normal(size=(subjects, 1)), rng.normal(size=items)
    slope = rng.uniform(0.5, 1.5, items)
    slope[7] = -1.5
    right = rng.random(seen.shape) < 1 / (1 + np.exp(-slope * ability - easiness))
    right[:, 9] = True
    names = [f"b{k % benchmarks}" for k in range(items)]
    values = np.where(seen, right, np.nan)
    dense = ResponseTable.from_arrays(values, benchmark=names)
    few: Any = dense.replace(values=dense.cells, observed=None)
    return dense, few


def check_tables(few, dense, tolerance: float) -> None:
    """Columns of two tables agree; standard errors to their approximation."""
    assert few.column_names == dense.column_names
    for name in dense.column_names:
        found, wanted = few[name].to_pylist(), dense[name].to_pylist()
        if name.startswith("rank_") and tolerance > 1e-6:  # Ends of simulated ranks.
            assert np.max(np.abs(np.subtract(found, wanted))) <= 4
        elif not any(isinstance(x, float) for x in wanted):
            assert found == wanted, name
        if not any(isinstance(x, float) for x in wanted):
            continue
        assert [x is None for x in found] == [x is None for x in wanted], name
        known = [k for k, x in enumerate(wanted) if x is not None]
        x, y = (
            np.array(column, object)[known].astype(float) for column in (found, wanted)
        )
        # Shares of simulated ranks.
        near = tolerance * (1.5 if name == "probability_best" else 1)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=near, err_msg=name)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("subjects", "benchmarks"), [(80, 6), (12, 3)])
def test_what_is_counted_from_the_cells(seed, subjects, benchmarks):
    dense, few = tables(seed, subjects, benchmarks=benchmarks)
    cells, labels = few.sparse, dense.benchmarks
    data = dense.stored
    for axis in (0, 1):
        found = flags.margins(cells, 1, axis)
        wanted = flags.margins(data, 1, axis)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(x, y)
    for names in (None, labels):
        found = accuracies(cells, names, level=0.9)
        wanted = accuracies(data, names, level=0.9)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-12)
    ability = np.random.default_rng(seed).normal(size=subjects).round(1)
    found = flags.separated_items(cells, ability)
    np.testing.assert_array_equal(found, flags.separated_items(data, ability))
    assert cells.num_components() == data.num_components()
    found = discrimination.negative_discrimination(cells)
    np.testing.assert_array_equal(found, discrimination.negative_discrimination(data))
    for found, wanted in zip(variation(few), variation(dense), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_p_values_of_negative_items_do_not_depend_on_the_blocks(monkeypatch):
    dense, few = tables(5, 200)
    kept = {}
    adjust = discrimination.benjamini_hochberg
    keep = lambda p: kept.setdefault(len(kept), p) is p and adjust(p)
    monkeypatch.setattr(discrimination, "benjamini_hochberg", keep)
    discrimination.negative_discrimination(dense.stored)
    for size in (200, 200_000):
        monkeypatch.setattr(discrimination, "BLOCK", size)
        discrimination.negative_discrimination(few.sparse)
    for found in (kept[1], kept[2]):
        np.testing.assert_allclose(found, kept[0], atol=1e-12)
    assert np.nanmin(kept[0]) < 1e-3


def test_separate_groups_are_counted():
    dense = ResponseTable.from_arrays(
        [[1, 0, np.nan], [np.nan, np.nan, 1], [np.nan] * 3]
    )
    assert dense.stored.num_components() == dense.cells.num_components() == 2


def test_cells_are_used_where_they_are_quicker_or_the_matrix_too_large(monkeypatch):
    few = tables(0, 700)[1]
    model, asked = irtjax.MODELS["2pl"](), {"standard_errors": "observed"}
    chosen = lambda method, **more: takes_cells(few, model, method, asked | more)
    assert not chosen(irtjax.EM()) and not chosen(irtjax.MM())
    monkeypatch.setattr("irtjax.data.table.available_memory", lambda: 1000.0)
    assert chosen(irtjax.EM()) and chosen(irtjax.MM())
    assert not chosen(irtjax.EM(), standard_errors="sandwich")
    assert not chosen(irtjax.EM(), start="low_rank")
    assert not chosen(irtjax.Gradient())
    assert "700 subjects · 25 items" in repr(few)


def test_the_default_is_that_of_the_dense_table():
    dense, few = tables(0, 700)
    assert choose(few)[:] == choose(dense)[:] and choose(few).method == "em"


def fits(method: str, model: str, monkeypatch, seed: int = 0, **options):
    """Both fits; that of cells makes no matrix."""
    dense, few = tables(seed)
    wanted = irtjax.fit(dense, model, method=method, **options)
    with monkeypatch.context() as patch:
        patch.setattr(SparseCells, "dense", None)
        patch.setattr("irtjax.estimators.joint.mm.FEW_OBSERVED", 1.0)
        patch.setattr("irtjax.estimators.marginal.em.FEW_ON_NODES", 1.0)
        patch.setattr(sparse_table, "MANY_CELLS", 0)
        patch.setattr(sparse_table, "FEW_OBSERVED", 1.0)
        found = irtjax.fit(few, model, method=method, **options)
    return found, wanted


@pytest.mark.parametrize(
    ("method", "model", "errors"),
    [
        ("mm", "2pl", "none"),
        pytest.param("mm", "1pl", "none", marks=pytest.mark.slow),
        pytest.param("mm", "2pl", "observed", marks=pytest.mark.slow),
        pytest.param("mm", "probit2pl", "none", marks=pytest.mark.slow),
        pytest.param("em", "2pl", "observed", marks=pytest.mark.slow),
        pytest.param("em", "1pl", "observed", marks=pytest.mark.slow),
        pytest.param("em", "rasch", "none", marks=pytest.mark.slow),
        pytest.param("em", "3pl", "none", marks=pytest.mark.slow),
        pytest.param("mm", "factor", "observed", marks=pytest.mark.slow),
    ],
)
def test_the_fit_is_the_dense_fit(method, model, errors, monkeypatch):
    jax.config.update("jax_enable_x64", True)
    options = {"mm": {"tolerance": 1e-9}, "em": {"tolerance": 1e-8}}[method]
    options = {**options, "standard_errors": errors, "max_steps": 3000}
    if model == "factor":
        options |= {"factors": 2, "tolerance": 1e-8, "level": 0.9}
    found, wanted = fits(method, model, monkeypatch, **options)
    near = 1e-6 if model == "factor" else 1e-8
    assert found.log_likelihood == pytest.approx(wanted.log_likelihood, abs=near)
    # Errors of items are approximate.
    tolerance = 1e-7 if errors == "none" else 0.02
    check_tables(found.items.table, wanted.items.table, tolerance)
    few, all_ = found.abilities.table, wanted.abilities.table
    if model == "factor":  # Exact errors, but other draws of the ranks.
        tolerance = 1e-5
        names = ["probability_best", "rank_lower", "rank_upper"]
        few, all_ = few.drop_columns(names), all_.drop_columns(names)
    check_tables(few, all_, tolerance)
    # The residual at which rounding ends both fits differs in its second digit.
    sentences = [
        re.sub(r"residual [\d.e-]+", "", " ".join(fit.warnings))
        for fit in (found, wanted)
    ]
    assert sentences[0] == sentences[1]
    assert found.options["storage"] == "cells" and "storage" not in wanted.options
    said = [sum("mm visited" in x for x in fit.notes) for fit in (found, wanted)]
    assert said == [method == "mm", 0]


def test_the_record_says_that_errors_are_of_cells(monkeypatch):
    few = tables(0)[1]
    monkeypatch.setattr("irtjax.estimators.marginal.em.FEW_ON_NODES", 1.0)
    for errors in ("none", "observed"):
        settings = {"standard_errors": errors}
        for specification in (
            OneAbility("2pl"),
            FactorAnalysis(Factor(factors=1)),
        ):
            parts = sort_settings(settings, specification, irtjax.EM, None)
            task = make_task(few, specification, "em", parts, level=0.95, dtype=None)
            assert task.options["storage"] == "cells"
            noted = any("items are approximate" in x for x in task.table.notes)
            assert noted == (errors == "observed")


def test_models_with_asymptotes_have_more_terms(monkeypatch):
    """With 8 terms an error of a dense table was 3 % too small."""
    data = tables(0, 80, 700)[1].sparse_responses()
    monkeypatch.setattr(covariance, "_covariance", lambda *x: x[-2:])
    of: Any = None, None  # Coordinates and population.
    for name, terms in (("2pl", 5), ("3pl", 20), ("4pl", 20)):
        problem = Problem.create(irtjax.MODELS[name](), data)
        found: Any = covariance.item_covariance(problem, *of, np.zeros(41))
        assert found == (terms, "leading")


@pytest.mark.slow
def test_subjects_and_items_without_a_finite_estimate(monkeypatch):
    found, wanted = fits("mm", "2pl", monkeypatch, priors=None, max_steps=50)
    assert found.abilities.table["flags"] == wanted.abilities.table["flags"]
    assert found.items.table["flags"] == wanted.items.table["flags"]
    assert any("no finite estimate" in x for x in found.warnings)


def test_a_method_that_needs_the_matrix_is_refused_with_a_cure(monkeypatch):
    few = tables(0)[1]
    monkeypatch.setattr("irtjax.numerics.memory.available_memory", lambda: 100.0)
    with pytest.raises(ValueError, match="a dense table of .* by method='em' or 'mm'"):
        irtjax.fit(few, "2pl", method="gradient")


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("2pl", "wle"),
        *(pytest.param("2pl", x, marks=pytest.mark.slow) for x in ("eap", "map", "ml")),
        pytest.param("3pl", "eap", marks=pytest.mark.slow),
        pytest.param("factor", "map", marks=pytest.mark.slow),
    ],
)
def test_new_subjects_are_scored_without_the_matrix(model, method, monkeypatch):
    dense, few = tables(3)
    more = {"factors": 2, "max_steps": 50} if model == "factor" else {}
    errors = "observed" if more else "none"
    steps = {"standard_errors": errors, "method": "mm" if more else "em"}
    fit = irtjax.fit(dense, model, **steps, **more)
    rows, columns = np.arange(1, 30), np.arange(22)[::-1]
    wanted = irtjax.score(fit, dense.select(rows, columns), scoring=method)
    monkeypatch.setattr(SparseCells, "dense", None)
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 0)
    monkeypatch.setattr(sparse_table, "FEW_OBSERVED", 1.0)
    monkeypatch.setattr("irtjax.data.table.available_memory", lambda: 1000.0)
    found = irtjax.score(fit, few.select(rows, columns), scoring=method)
    check_tables(found.table, wanted.table, 1e-7)
    assert found.notes == wanted.notes


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["subjects", "items"])
def test_a_bootstrap_of_cells_is_that_of_the_matrix(unit):
    jax.config.update("jax_enable_x64", True)
    model, draws = irtjax.MODELS["2pl"](), []
    dense, few = tables(0, 60, 20)
    for data in (dense.responses(), few.sparse_responses()):
        problem = Problem.create(model, data)
        start = irtjax.start_values(model, data)
        options = {"num_replicates": 4, "batch_size": 4, "max_steps": 400}
        draws.append(
            irtjax.bootstrap(
                problem, irtjax.MM(), start, key=jax.random.key(0), unit=unit, **options
            )
        )
    np.testing.assert_allclose(draws[1].ability, draws[0].ability, atol=1e-5)
