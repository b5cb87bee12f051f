"""Sparse networks: conditions of the optimum, structures behind drawn responses."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal

import irtjax
from irtjax.validity import sparse_networks
from irtjax.validity.ising import all_patterns, features


def chain(rng, size, count, weight):
    """Responses of an Ising model in which each item depends on its neighbours."""
    patterns = all_patterns(count)
    first, second = np.triu_indices(count)
    omega = np.select([second == first, second - first == 1], [-weight, weight], 0.0)
    energy = features(patterns) @ omega
    chance = np.exp(energy - energy.max())
    return patterns[rng.choice(len(patterns), size, p=chance / chance.sum())]


def test_a_regression_of_elasso_is_at_its_optimum():
    pytest.importorskip("sklearn")
    right = chain(np.random.default_rng(0), 800, 8, 1.0)
    y, others = right[:, 3], np.delete(right, 3, axis=1)
    intercept, slope = sparse_networks._neighbours(y, others, 0.0)
    rest = y - expit(intercept + others @ slope)
    gradient = (others - others.mean(0)).T @ rest / others.std(0) / len(y)
    active = slope != 0
    assert 1 <= active.sum() < 7
    # Coefficients other than 0 have one gradient, the penalty, with their signs.
    penalty = np.abs(gradient[active]).max()
    expected = penalty * np.sign(slope[active])
    np.testing.assert_allclose(gradient[active], expected, atol=1e-5)
    assert np.abs(gradient[~active]).max() <= penalty + 1e-5
    assert abs(rest.mean()) < 1e-5


def test_elasso_has_the_edges_of_a_chain():
    pytest.importorskip("sklearn")
    right = chain(np.random.default_rng(1), 1000, 6, 1.2).astype(int)
    table = irtjax.ResponseTable.from_arrays(right)
    both = irtjax.network(table, "elasso")
    first, second = np.nonzero(np.triu(both.weights))
    assert list(zip(first, second, strict=True)) == [(k, k + 1) for k in range(5)]
    assert "weight_se" not in both.edges.column_names
    # An edge of "or" has one coefficient or both.
    one = irtjax.network(table, "elasso", edge_rule="or")
    assert np.all(one.weights[both.weights != 0] == both.weights[both.weights != 0])
    coins = (np.random.default_rng(0).random((1000, 6)) < 0.5).astype(int)
    table = irtjax.ResponseTable.from_arrays(coins)
    assert irtjax.network(table, "elasso").edges.num_rows == 0


def test_graphical_lasso_is_at_its_optimum_and_has_the_edges_of_a_chain():
    pytest.importorskip("sklearn")
    count, size = 6, 1000
    truth = np.eye(count) + 0.4 * (np.eye(count, k=1) + np.eye(count, k=-1))
    rng = np.random.default_rng(2)
    scores = rng.multivariate_normal(np.zeros(count), np.linalg.inv(truth), size)
    correlation = np.corrcoef(scores.T)
    precision, penalty = sparse_networks.fit_glasso(correlation, size, 0.5)
    apart = ~np.eye(count, dtype=bool)
    excess = np.linalg.inv(precision) - correlation
    edges = apart & (precision != 0)
    # The stop of the solver is a duality gap of 1e-6.
    bound = penalty * np.sign(precision[edges])
    np.testing.assert_allclose(excess[edges], bound, atol=1e-5)
    assert np.abs(excess[apart & ~edges]).max() < penalty + 1e-5
    np.testing.assert_allclose(np.diagonal(excess), 0, atol=1e-8)
    result = irtjax.network(irtjax.ResponseTable.from_arrays(scores), "glasso")
    standard = (scores - scores.mean(0)) / scores.std(0)
    normal = multivariate_normal(np.zeros(count), np.linalg.inv(precision))
    assert result.log_likelihood == pytest.approx(normal.logpdf(standard).sum())
    # The penalty that keeps them lets weights of noise in, which are small.
    chained = np.diagonal(result.weights, 1)
    rest = np.triu(result.weights, 2)
    assert chained.max() < -0.2 and np.abs(rest).max() < 0.1
    assert result.table.column_names[1] == "strength"


def test_a_network_of_right_and_wrong_is_of_tetrachoric_correlations():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(3)
    truth = np.array([[1, 0.6, 0.36], [0.6, 1, 0.6], [0.36, 0.6, 1]])
    right = rng.multivariate_normal(np.zeros(3), truth, 4000) > [0.2, -0.3, 0.5]
    table = irtjax.ResponseTable.from_arrays(right.astype(int))
    weights = irtjax.network(table, "glasso").weights
    # Partial correlations .6 sqrt(1 - .36) / (1 - .36 .36)^(1/2), less the penalty;
    # four standard errors of a tetrachoric correlation of 4,000 are .08.
    partial = (0.6 - 0.6 * 0.36) / np.sqrt((1 - 0.6**2) * (1 - 0.36**2))
    np.testing.assert_allclose(weights[[0, 1], [1, 2]], partial, atol=0.08)
    assert abs(weights[0, 2]) < 0.08


def test_correlations_that_are_not_positive_definite_are_repaired():
    correlation = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    repaired = sparse_networks.positive_definite(correlation)
    assert np.linalg.eigvalsh(repaired)[0] > 0
    np.testing.assert_allclose(np.diagonal(repaired), 1)
    np.testing.assert_allclose(repaired, repaired.T)


@pytest.mark.parametrize("method", ["elasso", "glasso"])
def test_without_scikit_learn_a_command_installs_it(method, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    coins = (np.random.default_rng(0).random((40, 4)) < 0.5).astype(int)
    table = irtjax.ResponseTable.from_arrays(coins)
    with pytest.raises(ValueError, match=r"pip install 'irtjax\[network\]'"):
        irtjax.network(table, method)


def test_scores_need_the_graphical_lasso():
    table = irtjax.ResponseTable.from_arrays(np.random.default_rng(0).random((9, 3)))
    with pytest.raises(ValueError, match="choose method='glasso'"):
        irtjax.network(table, "elasso")
    with pytest.raises(ValueError, match="edge_rule 'xor' is not one of and, or"):
        irtjax.network(table, "elasso", edge_rule="xor")
