"""Every array of a calibration follows its subjects, whatever their order."""

import numpy as np
import pyarrow.csv
import pytest

import irtjax
from tests.small_fits import small_table


def columns(fit, name: str) -> np.ndarray:
    return np.array(fit.abilities.table.column(name).to_pylist(), float)


def shuffled(table, seed: int = 0):
    order = np.random.default_rng(seed).permutation(table.num_subjects)
    return table.select(subjects=order), order


def check(fit, other, order, rtol=1e-3, atol=1e-3) -> None:
    """All arrays of `other` are those of `fit` in another order."""
    close = {"rtol": rtol, "atol": atol}
    for one in (fit, other):
        names = one.abilities.table.column("subject").to_pylist()
        assert names == one.subject_names.tolist()
    assert other.subject_names.tolist() == fit.subject_names[order].tolist()
    names = ("ability", "ability_se", "expected_score", "expected_score_se")
    for name in (*names, "accuracy", "accuracy_se", "observed"):
        found = columns(other, name), columns(fit, name)[order]
        np.testing.assert_allclose(*found, **close, err_msg=name)
    if fit.ability_shared is not None:
        products = [
            np.asarray(x) @ np.asarray(x).T
            for x in (other.ability_shared, fit.ability_shared[order])
        ]
        np.testing.assert_allclose(*products, **close)
    if fit.parameters.theta is not None:
        theta = other.parameters.theta
        np.testing.assert_allclose(theta, fit.parameters.theta[order], **close)
        np.testing.assert_allclose(theta, columns(other, "ability"), **close)
    if fit.structure is not None:
        for name in ("ability", "error"):
            found = getattr(other.structure, name), getattr(fit.structure, name)[order]
            np.testing.assert_allclose(*found, **close, err_msg=name)


@pytest.mark.parametrize(
    "method",
    [
        "em",
        "mm",
        pytest.param("gradient", marks=pytest.mark.slow),
        pytest.param("laplace", marks=pytest.mark.slow),
    ],
)
def test_permuted_subjects_permute_all_arrays(method, tmp_path):
    table = small_table()
    other, order = shuffled(table)
    if method == "laplace":
        one, two = (
            irtjax.fit(t, "multibenchmark", method=method) for t in (table, other)
        )
    else:
        errors = "observed" if method == "em" else "none"
        one, two = (
            irtjax.fit(t, "2pl", method, standard_errors=errors) for t in (table, other)
        )
    check(one, two, order, rtol=0.02, atol=0.02)
    # Not sorted by ability: the data's order is another.
    assert (np.diff(columns(two, "ability")) > 0).any()
    back = irtjax.load(irtjax.save(two, tmp_path / "fit"))
    assert back.abilities.table.equals(two.abilities.table)
    # Files are for people: best first.
    written = pyarrow.csv.read_csv(tmp_path / "fit" / "abilities.csv")
    ranked = irtjax.rank(two).table.column("subject").to_pylist()
    assert written.column("subject").to_pylist() == ranked


def test_em_on_many_cells_returns_to_the_order_of_the_data(monkeypatch):
    # Large tables are sorted by accuracy within the fit.
    table = small_table()
    whole = irtjax.fit(table, "2pl", standard_errors="none")
    monkeypatch.setattr("irtjax.estimators.marginal.em.LARGE", 2 * table.size)
    check(whole, irtjax.fit(table, "2pl", standard_errors="none"), np.arange(24))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nuts", "vi"])
def test_draws_follow_the_subjects(method):
    table = small_table()
    fit = irtjax.fit(table, "hierarchical", method=method)
    assert (
        fit.abilities.table.column("subject").to_pylist() == fit.subject_names.tolist()
    )
    if method == "nuts":
        draws = np.asarray(fit.structure.draws.values["ability"])
        means = draws.mean(axis=(0, 1))
        np.testing.assert_allclose(means, fit.structure.ability, rtol=1e-6)
        scores = np.asarray(fit.structure.draws.values["expected_score"])
        np.testing.assert_allclose(
            scores.mean(axis=(0, 1)), columns(fit, "expected_score"), rtol=1e-6
        )
    accuracy = np.corrcoef(columns(fit, "accuracy"), columns(fit, "ability"))[0, 1]
    assert accuracy > 0.8
