"""Comparisons in the order of their pairs, against the same sums over rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.comparisons import PairCounts, PairFamily, PairParameters, errors, maximise
from irtjax.comparisons.rows import PairRows, maximum

#: Families, each with the kind of its features.
FAMILIES = [
    (PairFamily(), "none"),
    (PairFamily(), "many"),
    (PairFamily(ties="davidson"), "few"),
    (PairFamily("thurstone", "rao_kupper"), "many"),
]


def votes(number: int = 300, seed: int = 0) -> irtjax.ComparisonTable:
    """Votes of five models, each pair both ways around."""
    rng = np.random.default_rng(seed)
    first = rng.integers(5, size=number)
    second = (first + rng.integers(1, 5, size=number)) % 5
    gap = 0.3 * (first - second) + rng.logistic(size=number)
    place = np.where(gap > 0.5, 0, np.where(gap < -0.5, 1, 2))
    return irtjax.ComparisonTable.of("abcde", first, second, place)


@pytest.mark.parametrize(("family", "kind"), FAMILIES)
def test_the_maximum_is_that_of_rows_as_they_are(family, kind):
    """Of the compiled Newton's method on rows that are neither sorted nor added up."""
    table, rng = votes(), np.random.default_rng(1)
    few = rng.choice([-1.0, 0.5], size=(300, 1))
    features = {"none": few[:, :0], "few": few, "many": rng.normal(size=(300, 2))}[kind]
    start = PairParameters(
        np.zeros(5), np.zeros(features.shape[1]), np.full(family.num_shapes, -0.5)
    )
    prior = np.full(sum(map(len, start)), 0.1)
    rows, outcomes = (
        PairRows.of((table.first, table.second), features, 5),
        table.outcomes[:, :3],
    )
    with jax.enable_x64(True):
        fit = maximum(family, rows, rows.outcomes(outcomes), start, prior)
        pairs = PairCounts(table.first, table.second, outcomes, features)
        pairs, begin = jax.tree.map(jnp.asarray, (pairs, start))
        other = jax.jit(maximise, static_argnums=0)(family, pairs, begin, prior)
    assert bool(fit.converged) and bool(other.converged)
    assert float(fit.log_likelihood) == pytest.approx(float(other.log_likelihood))
    for one, two in zip(fit.parameters, other.parameters, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-8)
    np.testing.assert_allclose(fit.information, other.information, atol=1e-8)


def test_sums_by_cluster_do_not_depend_on_how_they_are_stored(monkeypatch):
    """Dense blocks, of several clusters or one at a time, and sparse sums."""
    table, rng = votes(), np.random.default_rng(2)
    codes, sides = rng.integers(40, size=300), (table.first, table.second)
    fits = [rng.normal(size=(300, 1)), rng.normal(size=(300, 3))]
    dense = np.zeros((40, 12))
    for row in range(300):
        for scores, begin in zip(fits, (0, 5), strict=True):
            dense[codes[row], begin + table.first[row]] += scores[row, 0]
            dense[codes[row], begin + table.second[row]] -= scores[row, 0]
        dense[codes[row], 10:] += fits[1][row, 1:]
    for limit, together in ((512, 2**17), (512, 60), (0, 1)):
        monkeypatch.setattr(errors, "DENSE", limit)
        monkeypatch.setattr(errors, "TOGETHER", together)
        sums = errors.cluster_products(codes, sides, fits, 5)
        np.testing.assert_allclose(sums, dense.T @ dense, atol=1e-10)


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean covariates="):
        irtjax.fit_comparisons(votes(), covariate=["length"])
