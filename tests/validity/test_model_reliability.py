"""Reliability by a model: by formulas of numpy, simulation, and constructed factors."""

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.validity.model_reliability import model_reliability, omegas


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    slope, easy = rng.uniform(0.3, 2.5, 30), rng.normal(size=30)
    logit = rng.normal(size=(400, 1)) * slope + easy
    right = rng.random((400, 30)) < 1 / (1 + np.exp(-logit))
    return irtjax.ResponseTable.from_arrays(right)


@pytest.fixture(scope="module")
def fit(table):
    return irtjax.fit(table, "2pl", method="em", standard_errors="none")


def test_errors_by_ability_are_those_of_lord(fit):
    result = model_reliability(fit)
    rows = {name: np.asarray(result.table[name]) for name in result.table.column_names}
    a, d = (np.asarray(x, float) for x in fit.parameters.items[:2])
    p = 1 / (1 + np.exp(-(np.outer(rows["ability"], a) + d)))
    pq = p * (1 - p)
    assert rows["score"] == pytest.approx(p.mean(axis=1))
    assert rows["score_sem"] == pytest.approx(np.sqrt(pq.sum(axis=1)) / 30)
    information = (a**2 * pq).sum(axis=1)
    of_sum = (a * pq).sum(axis=1) ** 2 / pq.sum(axis=1)
    assert rows["efficiency"] == pytest.approx(of_sum / information)
    weight = np.exp(-0.5 * np.linspace(-3, 3, 61) ** 2)
    whole = (weight @ of_sum) / (weight @ information)
    assert result.efficiency == pytest.approx(whole)
    assert f"keeps {whole:.0%} of the information" in result.sentence
    assert 0.5 < whole < 0.95
    # Of equal slopes the sum is sufficient.
    items = fit.parameters.items
    items = items._replace(discrimination=np.full(30, 1.2))
    equal = dataclasses.replace(fit, parameters=fit.parameters._replace(items=items))
    assert model_reliability(equal).efficiency == pytest.approx(1, abs=1e-12)


def test_reliabilities_are_squared_correlations_with_true_abilities(fit):
    """By simulation from the fitted items: errors of 4,000 subjects are about .01."""
    rng = np.random.default_rng(3)
    a, d = (np.asarray(x, float) for x in fit.parameters.items[:2])
    theta = rng.normal(size=4000)
    right = rng.random((4000, 30)) < 1 / (1 + np.exp(-(theta[:, None] * a + d)))
    nodes = np.linspace(-5, 5, 201)
    p = 1 / (1 + np.exp(-(np.outer(nodes, a) + d)))
    log = right @ np.log(p).T + (~right) @ np.log1p(-p).T - nodes**2 / 2
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    eap = weight @ nodes / weight.sum(axis=1)
    squared = np.corrcoef(eap, theta)[0, 1] ** 2
    result = model_reliability(fit)
    assert result.marginal == pytest.approx(squared, abs=0.03)
    assert result.empirical == pytest.approx(squared, abs=0.03)


def test_omegas_of_a_second_order_model():
    """Correlations made by one general ability: its share of the sum is exact."""
    gamma, own = np.array([0.9, 0.7, 0.5, 0.6]), np.array([0.8, 0.7, 0.6, 0.5])
    loadings = np.kron(np.diag(own), np.ones((3, 1)))
    correlation = np.outer(gamma, gamma) + np.diag(1 - gamma**2)
    general = float(np.sum(3 * own * gamma)) ** 2
    groups = float(np.sum((3 * own) ** 2 * (1 - gamma**2)))
    total = general + groups + float(np.sum(3 * (1 - own**2)))
    expected = (general + groups) / total, general / total
    assert omegas(loadings, correlation) == pytest.approx(expected, rel=1e-6)
    bifactor = np.column_stack([loadings @ gamma, loadings * np.sqrt(1 - gamma**2)])
    assert omegas(bifactor, np.eye(5), general=True) == pytest.approx(expected)
    # Two factors identify no general one.
    assert np.isnan(omegas(loadings[:6, :2], correlation[:2, :2])[1])


def test_a_fit_of_scores_is_refused(fit):
    scores = dataclasses.replace(fit, model=irtjax.MODELS["continuous"]())
    with pytest.raises(ValueError, match="this fit is of scores: leave the fit out"):
        model_reliability(scores)


def test_the_command_adds_the_model(table, fit, tmp_path):
    irtjax.save(fit, tmp_path / "fit", responses=table)
    run = CliRunner().invoke(
        app,
        ["reliability", "--fit", str(tmp_path / "fit"), "--json"]
        + ["--out", str(tmp_path / "out")],
    )
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert document["model"]["efficiency"] == pytest.approx(
        model_reliability(fit).efficiency
    )
    assert len(document["model"]["errors_by_ability"]) == 61
    assert (tmp_path / "out" / "errors_by_ability.csv").is_file()
