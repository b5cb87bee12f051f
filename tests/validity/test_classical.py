"""Classical statistics and tetrachoric correlations by their definitions."""

import numpy as np
import pytest
from scipy import stats

from irtjax.auditing import (
    tetrachoric_of_counts,
)
from irtjax.data.stored_cells import DenseCells
from irtjax.validity import tetrachoric as tetrachorics
from irtjax.validity.classical import classical
from irtjax.validity.tetrachoric import LARGEST, tetrachoric
from tests.small_fits import small_table


def test_classical_statistics_are_those_of_their_definitions():
    random = np.random.default_rng(3)
    values = (random.random((60, 7)) < random.random((60, 1))).astype(np.int8)
    found = classical(DenseCells(values))
    total = values.sum(1)

    def alpha(part):
        size, spread = part.shape[1], part.var(0).sum()
        return size / (size - 1) * (1 - spread / part.sum(1).var())

    assert found.alpha == pytest.approx(alpha(values))
    for j in range(7):
        rest = total - values[:, j]
        expected = np.corrcoef(values[:, j], rest)[0, 1]
        assert found.item_rest[j] == pytest.approx(expected)
        without = alpha(np.delete(values, j, 1))
        assert found.alpha_without[j] == pytest.approx(without)
    # A mask without gaps changes nothing.
    masked = classical(DenseCells(values, np.ones(values.shape, bool)))
    for one, other in zip(found, masked, strict=True):
        np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("r", [-0.8, 0.0, 0.6, 0.95])
def test_tetrachoric_recovers_the_correlation_behind_the_table(r):
    h, k = 0.3, -0.9
    both = stats.multivariate_normal.cdf([h, k], cov=[[1, r], [r, 1]])
    counts = 1e6 * np.array([both, stats.norm.cdf(h), stats.norm.cdf(k), 1])
    assert float(tetrachoric_of_counts(*counts)) == pytest.approx(r, abs=2e-4)


def test_many_tetrachoric_correlations_at_once_solve_their_tables():
    """Each search ends by itself, however long those of other tables take."""
    rng = np.random.default_rng(0)
    cells = rng.multinomial(158, rng.dirichlet(np.full(4, 0.4), 400)).astype(float)
    cells[:3] = [[0, 40, 50, 68], [79, 0, 0, 79], [0, 79, 79, 0]]
    both, alone, other, _ = cells.T
    given = both, both + alone, both + other, cells.sum(1)
    found = np.asarray(tetrachoric_of_counts(*given))
    varied = (given[1] % 158 > 0) & (given[2] % 158 > 0)
    assert (np.isnan(found) == ~varied).all() and varied.sum() > 300
    assert found[1] == LARGEST and found[2] == -LARGEST
    filled = cells + 0.5 * (cells.min(axis=1, keepdims=True) < 0.5)
    share = filled / filled.sum(axis=1, keepdims=True)
    for k in np.flatnonzero(varied & (np.abs(found) < LARGEST)):
        at = stats.norm.ppf([share[k, [0, 1]].sum(), share[k, [0, 2]].sum()])
        chance = stats.multivariate_normal.cdf(at, cov=[[1, found[k]], [found[k], 1]])
        # The integral is exact to 1e-9 up to |r| = 0.99, and scipy's to 1e-8.
        assert chance == pytest.approx(share[k, 0], abs=1e-7), k


def test_each_tetrachoric_table_is_solved_once(monkeypatch):
    solve, sizes = tetrachorics.solve_tables, []
    noted = lambda tables: sizes.append(tables.shape[1]) or solve(tables)
    monkeypatch.setattr(tetrachorics, "solve_tables", noted)
    table, solved = small_table(), tetrachorics.Solved()
    wanted = tetrachoric(table)
    found = [tetrachoric(table, solved) for _ in range(2)]
    for one in found:
        np.testing.assert_array_equal(one, wanted)
    alone, first, second = sizes
    # A pair once, not in both orders.
    assert alone == first <= table.num_items * (table.num_items + 1) / 2
    assert second == 0


def test_tetrachoric_pairs_are_pairwise_complete():
    table = small_table()
    found = tetrachoric(table)
    assert table.observed is not None
    i, j = 5, 8
    both = table.observed[:, i] & table.observed[:, j]
    alone = tetrachoric(table.select(both, [i, j]))
    assert found[i, j] == pytest.approx(alone[0, 1]) == pytest.approx(found[j, i])
    # Item 0 is all right: no correlation exists.
    assert np.isnan(found[0, 1:]).all()
