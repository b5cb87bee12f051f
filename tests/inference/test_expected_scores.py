"""Expected scores over all items: against brute force and the delta method by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import irtjax
from irtjax.adaptive import ItemBank
from irtjax.data.responses import Responses
from irtjax.inference import Covariance, expected_scores, score
from irtjax.inference.expected import watched_expected_scores
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.model import Population
from irtjax.numerics import kernels, progress
from irtjax.numerics.progress import watching
from tests import brute_force, tables
from tests.inference.test_scores import log_lik
from tests.scoring_cases import (
    ALL,
    NODES,
    UNIT,
    delta_method,
    make_data,
    uncertain_items,
)


def response_means(family, items, theta):
    """Expected responses from probabilities of categories, `[nodes, items]`."""
    over = jax.vmap(family.category_log_probs, in_axes=(0, None))
    logs = jax.vmap(over, in_axes=(None, 0))(items, jnp.asarray(theta))
    return np.exp(logs) @ np.arange(family.num_categories)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("2pl", "missing"),
        pytest.param("4pl", "trials", marks=pytest.mark.slow),
        pytest.param("rasch", "complete", marks=pytest.mark.slow),
        pytest.param("graded", "missing", marks=pytest.mark.slow),
    ],
)
def test_means_and_errors_are_those_on_a_fine_grid(name, kind):
    model = ALL[name]
    items, data = make_data(model, kind)
    wide = Population(jnp.array(0.3), jnp.array(1.2))
    fine = np.linspace(0.3 - 7.2, 0.3 + 7.2, 4001)
    log_prior = -0.5 * ((fine - 0.3) / 1.2) ** 2
    joint = log_lik(model, items, data, fine) + log_prior
    weight = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    at = response_means(model.family, items, fine).mean(axis=1)
    mean = weight @ at
    sd = np.sqrt((weight * (at - mean[:, None]) ** 2).sum(axis=1))
    got = expected_scores(model, items, wide, data, jnp.asarray(NODES))
    np.testing.assert_allclose(got.score, mean, atol=1e-6)
    np.testing.assert_allclose(got.standard_error, sd, atol=1e-6)


@pytest.mark.parametrize("name", tables.NAMES)
def test_every_model_of_the_table(name):
    # The mean of expected responses by the package's own function, integrated with
    # brute-force likelihoods: what is tested is the pass over the data.
    case = tables.case(name)
    model, data = case.model, case.data
    nodes = np.linspace(-6, 6, 241)
    family = model.family
    over = jax.vmap(family.expected_response, in_axes=(0, None))
    at = np.asarray(jax.vmap(over, in_axes=(None, 0))(case.items, nodes)).mean(axis=1)
    values, seen = np.asarray(data.values), np.asarray(data.observed)
    if isinstance(family, AbstractScoreFamily):
        cells = brute_force.score_densities(model.name, case.items, nodes, values)
        cells = np.where(seen[..., None], cells, 1.0)
    else:
        chance = brute_force.category_probabilities(model.name, case.items, nodes)
        chance = np.moveaxis(np.asarray(chance), 0, -1)
        cells = chance[np.arange(values.shape[1]), values.astype(int)]
        cells = np.where(seen[..., None], cells, 1.0)
    joint = np.asarray(cells).prod(axis=1) * brute_force.normal_weights(nodes)
    weight = joint / joint.sum(axis=1, keepdims=True)
    got = expected_scores(
        model, case.items, tables.standard_population(), data, jnp.asarray(nodes)
    )
    np.testing.assert_allclose(got.score, weight @ at, atol=1e-8)
    spread = np.sqrt(np.maximum(weight @ at**2 - (weight @ at) ** 2, 0))
    np.testing.assert_allclose(got.standard_error, spread, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "1pl",
        pytest.param("2pl", marks=pytest.mark.slow),
        pytest.param("3pl", marks=pytest.mark.slow),
        "graded",
    ],
)
def test_uncertain_items_follow_the_delta_method(name):
    model, items, data, covariance = uncertain_items(name)
    nodes = jnp.asarray(NODES)
    plain = expected_scores(model, items, UNIT, data, nodes)
    uncertain = Covariance.of_independent(covariance)
    got = expected_scores(model, items, UNIT, data, nodes, uncertain)

    def score_at(moved):
        return expected_scores(model, moved, UNIT, data, nodes).score

    added = delta_method(score_at, model, items, covariance)
    # The error of the differences is about step^2.
    np.testing.assert_allclose(
        got.standard_error**2 - plain.standard_error**2, added, rtol=1e-4, atol=1e-10
    )
    np.testing.assert_allclose(got.score, plain.score, rtol=1e-12)


@pytest.mark.parametrize(("name", "rescaled"), [("1pl", True), ("rasch", False)])
def test_an_uncertain_scale_moves_scores_as_a_new_population_does(name, rescaled):
    # A common slope that is estimated is, for the responses, the sd of the population.
    model = ALL[name]
    items, data = make_data(model, "missing", num_subjects=6, num_items=5)
    error, step = 0.2, 1e-4
    covariance = Covariance.of_independent(jnp.zeros((5, 1, 1)))._replace(
        shared=jnp.zeros((1, 5, 1)),
        shared_scale=jnp.array([[0.0, error]]),
        rescaled=jnp.asarray(rescaled),
    )
    nodes = jnp.asarray(NODES)

    def score_at(log_sd):
        if rescaled:
            new = items._replace(discrimination=items.discrimination * jnp.exp(log_sd))
            return expected_scores(model, new, UNIT, data, nodes).score
        population = UNIT._replace(sd=jnp.exp(log_sd))
        return expected_scores(model, items, population, data, nodes).score

    slope = (score_at(step) - score_at(-step)) / (2 * step)
    plain = expected_scores(model, items, UNIT, data, nodes)
    got = expected_scores(model, items, UNIT, data, nodes, covariance)
    np.testing.assert_allclose(
        got.standard_error**2 - plain.standard_error**2,
        (error * np.asarray(slope)) ** 2,
        rtol=1e-4,
        atol=1e-10,
    )


def test_a_shift_of_items_and_abilities_together_changes_no_score():
    # With many items per subject the shift is undone by the ability: the part of the
    # error that all abilities share is none of the score's.
    rng = np.random.default_rng(5)
    model = ALL["rasch"]
    items, _ = make_data(model, "complete", num_subjects=2, num_items=400)
    theta = rng.normal(size=8)
    chance = response_means(model.family, items, theta)
    data = Responses(jnp.asarray((rng.random(chance.shape) < chance).astype(np.int8)))
    covariance = Covariance.of_independent(jnp.full((400, 1, 1), 0.04))
    covariance = covariance._replace(
        shared=jnp.full((1, 400, 1), 0.2), shared_scale=jnp.zeros((1, 2))
    )
    nodes = jnp.linspace(-6, 6, 401)
    plain = expected_scores(model, items, UNIT, data, nodes)
    got = expected_scores(model, items, UNIT, data, nodes, covariance)
    # Independent errors of 0.2 would add about 0.2 * 0.2 = 0.04 to the score's error.
    np.testing.assert_allclose(got.standard_error, plain.standard_error, rtol=0.02)


@pytest.mark.slow
def test_the_table_agrees_with_accuracy_on_complete_data():
    # Every item answered: the mean of P over these items is what accuracy estimates
    # with the error of independent responses, smaller than that over items.
    rng = np.random.default_rng(6)
    theta, slope = rng.normal(size=40), rng.uniform(0.7, 1.6, 60)
    chance = 1 / (1 + np.exp(-slope * (theta[:, None] - rng.normal(size=60))))
    values = (rng.random(chance.shape) < chance).astype(float)
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(values), "2pl", "em")
    columns = {k: np.array(v) for k, v in fit.abilities.table.to_pydict().items()}
    np.testing.assert_allclose(columns["accuracy"], values.mean(axis=1))
    gap = columns["expected_score"] - columns["accuracy"]
    sampling = np.sqrt((chance * (1 - chance)).sum(axis=1)) / 60
    assert np.abs(gap / sampling).max() < 1
    assert np.median(columns["expected_score_se"] / sampling) == pytest.approx(
        1, abs=0.1
    )
    assert (columns["expected_score_se"] < columns["accuracy_se"]).mean() > 0.9
    inside = columns["expected_score_lower"] < columns["expected_score"]
    assert (
        inside & (columns["expected_score"] < columns["expected_score_upper"])
    ).all()


def test_a_histogram_on_other_nodes_is_refused():
    # Scores, adaptive banks and expected scores take one prior: Population's.
    model = irtjax.MODELS["2pl"]()
    items, data = make_data(model, "complete")
    histogram = UNIT._replace(log_weights=jnp.zeros(13))
    with pytest.raises(ValueError, match="13 nodes, but 121 nodes were given"):
        expected_scores(model, items, histogram, data, jnp.asarray(NODES))
    with pytest.raises(ValueError, match="13 nodes, but 61 nodes were given"):
        nodes = jnp.linspace(-4, 4, 61)
        ItemBank.create(model, items, histogram, nodes=nodes)


def test_a_watcher_sees_shares_and_changes_no_score(monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    monkeypatch.setattr(progress, "STRETCH", 0.0)
    model = irtjax.MODELS["2pl"]()
    items = model.constrain(jnp.asarray([[1.0, 0.5], [0.7, -1.0], [1.5, 0.0]]))
    rng = np.random.default_rng(3)
    data = Responses(jnp.asarray(rng.integers(0, 2, (600, 3)), jnp.int8))
    covariance = Covariance.of_independent(jnp.full((3, 2, 2), 0.01))
    given, nodes = (model, items, UNIT, data), jnp.asarray(NODES)

    def both():
        scores = score(*given, nodes=nodes, item_covariance=covariance)
        return *scores, *watched_expected_scores(*given, nodes, covariance)

    alone, shares = both(), []
    with watching(lambda share, name: shares.append(share)):
        seen = both()
    # Blocks of 200 subjects.
    assert shares == 2 * [0.0, 1 / 3, 2 / 3, None]
    pure = expected_scores(*given, nodes, covariance)
    for x, y in zip((*alone, *alone[-2:]), (*seen, *pure), strict=True):
        np.testing.assert_array_equal(x, y)
