"""Factor models of ordered categories, and with the probit link."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

import irtjax
from irtjax.estimators.driver import run_jit
from irtjax.estimators.start import start_values
from irtjax.fitting.defaults import choose
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.priors import Normal
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.loadings import align

SUBJECTS, ITEMS, CATEGORIES = 250, 40, 4
SLOW = pytest.mark.slow
CORRELATION = np.array([[1, 0.4], [0.4, 1]])


@functools.cache
def drawn(link):
    """Items that each measure one of two correlated factors; expected scores.

    The slopes are those in units of the standard deviations of the sample's abilities,
    whose correlations are the last value.
    """
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(SUBJECTS, 2)) @ np.linalg.cholesky(CORRELATION).T
    slopes = np.zeros((ITEMS, 2))
    slopes[np.arange(ITEMS), np.arange(ITEMS) % 2] = rng.uniform(1.0, 2.2, ITEMS)
    cuts = np.sort(rng.normal(size=(ITEMS, CATEGORIES - 1)), axis=1)[:, ::-1]
    cuts = cuts + np.linspace(0.5, -0.5, CATEGORIES - 1)
    eta = (theta @ slopes.T)[:, :, None] + cuts
    if link == "probit":
        slopes = slopes / 1.7
        chance = ndtr((theta @ slopes.T)[:, :, None] + cuts[:, 1:2])
    else:
        chance = 1 / (1 + np.exp(-eta))
    values = (rng.random((SUBJECTS, ITEMS, 1)) < chance).sum(-1)
    seen = rng.random(values.shape) < 0.9
    table = irtjax.ResponseTable.from_arrays(values, observed=seen)
    slopes = slopes * theta.std(axis=0)
    return table, slopes, chance.sum(-1).mean(1), np.corrcoef(theta.T)


@functools.cache
def fitted(link, method="mm"):
    settings = {} if link == "graded" else {"link": link}
    return irtjax.fit(drawn(link)[0], "factor", method=method, factors=2, **settings)


def category_chances(responses, product, levels):
    if responses == "probit":
        right = jax.scipy.stats.norm.cdf(product + levels[:, 0])
        return jnp.stack([1 - right, right], -1)
    if responses == "partial_credit":
        terms = jnp.cumsum(product[..., None] + levels, axis=-1)
        terms = jnp.concatenate([0 * terms[..., :1], terms], axis=-1)
        return jax.nn.softmax(terms, axis=-1)
    above = jax.nn.sigmoid(product[..., None] + levels)
    one = jnp.ones_like(above[..., :1])
    above = jnp.concatenate([one, above, 0 * one], -1)
    return above[..., :-1] - above[..., 1:]


@pytest.mark.parametrize(
    "link",
    ["graded", *(pytest.param(x, marks=SLOW) for x in ("probit", "partial_credit"))],
)
def test_the_estimate_is_a_maximum_of_the_penalised_joint_likelihood(link):
    plan = Factor(link="probit") if link == "probit" else Factor(item_model=link)
    data = "probit" if link == "probit" else "graded"
    table = drawn(data)[0].select(subjects=np.arange(30), items=np.arange(10))
    kinds = 2 if link == "probit" else CATEGORIES
    model, data = factor_model(plan, kinds), table.responses(float)
    problem = irtjax.Problem.create(model, data)
    start = start_values(model, data)
    fit = run_jit(problem, irtjax.MM(tolerance=1e-8), start, max_steps=3000)
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.diff(trace).min() > -1e-10
    values, seen = np.asarray(data.values).astype(int), np.asarray(data.observed)

    def loss(x):
        theta, rest = x[:60].reshape(30, 2), x[60:].reshape(10, -1)
        levels = rest[:, 2:]
        chances = category_chances(link, theta @ rest[:, :2].T, levels)
        chance = jnp.take_along_axis(chances, jnp.asarray(values)[..., None], -1)
        logs = jnp.log(jnp.maximum(chance[..., 0], 1e-300))
        height = jnp.sum(jnp.where(seen, logs, 0)) - 0.5 * jnp.sum(theta**2)
        height -= 30 * jnp.log(2 * jnp.pi)
        for column, sd in ((rest[:, :2], 1.0), (levels, 3.0)):
            height -= 0.5 * jnp.sum((column / sd) ** 2)
            height -= column.size * jnp.log(sd * jnp.sqrt(2 * jnp.pi))
        return -height

    best = fit.state.best
    levels = best.intercept[:, None] + (0 if best.cuts is None else best.cuts)
    x = np.concatenate(
        [np.ravel(best.theta), np.hstack([best.discrimination, levels]).ravel()]
    )
    derivative = jax.jit(jax.value_and_grad(loss))
    at = lambda x: tuple(np.asarray(y, float) for y in derivative(x))
    found = minimize(at, x, jac=True, method="BFGS", options={"gtol": 1e-7})
    assert -found.fun == pytest.approx(float(fit.objective), abs=1e-6)


@pytest.mark.slow  # Programs of their own, as of the tests below.
@pytest.mark.parametrize("link", ["graded", "probit"])
@pytest.mark.parametrize("method", ["mm", "em"])
def test_planted_simple_structure_is_found(link, method):
    table, slopes, score, correlation = drawn(link)
    fit = fitted(link, method)
    assert fit.status is irtjax.Status.CONVERGED
    variance = 1.0 if link == "probit" else np.pi**2 / 3
    total = np.einsum("jk,kl,jl->j", slopes, correlation, slopes) + variance
    true = slopes / np.sqrt(total)[:, None]
    found = fit.factors
    order = np.argmax(np.abs(found.loadings.T @ true), axis=1)
    error = found.loadings - true[:, order]
    # 80 numbers: the share of a normal below 1.96 has a standard error of .024.
    assert (np.abs(error / found.loadings_error) < 1.96).mean() > 0.95 - 5 * 0.024
    # Joint loadings of 40 items are a few percent off.
    assert abs((np.abs(found.loadings).max(1) - true.max(1)).mean()) < 0.05
    places = {name: k for k, name in enumerate(table.subjects.tolist())}
    rows = [places[name] for name in fit.abilities.table["subject"].to_pylist()]
    low, high = (
        fit.abilities.table[f"expected_score_{end}"].to_numpy()
        for end in ("lower", "upper")
    )
    # Five standard errors of a share of 250: .07.
    assert ((low <= score[rows]) & (score[rows] <= high)).mean() > 0.95 - 0.07


@pytest.mark.slow
def test_every_verb_of_ordered_responses(tmp_path):
    table = drawn("graded")[0]
    fit = fitted("graded")
    assert fit.options["item_model"] == "graded" and fit.model.family.dims == 2
    top = CATEGORIES - 1
    ranked = irtjax.rank(fit, level=0.999999).table
    assert max(ranked["ability"].to_pylist()) > 1
    assert 0 < min(ranked["lower"].to_pylist())
    assert max(ranked["upper"].to_pylist()) < top
    scored = irtjax.score(fit, table).table
    one, other = scored["ability"].to_numpy(), fit.abilities.table["ability"].to_numpy()
    np.testing.assert_allclose(np.sort(one), np.sort(other), atol=0.02)
    assert max(scored["upper"].to_pylist()) < top
    predicted = irtjax.predict(fit, categories=True)
    np.testing.assert_allclose(predicted.probabilities.sum(-1), 1)
    mean = predicted.probabilities @ np.arange(CATEGORIES)
    np.testing.assert_allclose(mean, predicted.expected)
    np.testing.assert_allclose(
        predicted.expected.mean(1), fit.abilities.table["expected_score"].to_numpy()
    )
    irtjax.save(fit, tmp_path / "fit")
    assert irtjax.load(tmp_path / "fit").model == fit.model
    given = jax.tree.map(jnp.asarray, fit.parameters)
    theta = simulate_abilities(3000, jax.random.key(0), given.population)
    data = irtjax.simulate(fit.model, given.items, theta, jax.random.key(1))
    chance = jax.nn.sigmoid(
        (theta @ given.items.discrimination.T)[:, :, None] + given.items.intercept
    )
    error = np.asarray(data.values).mean(0) - np.asarray(chance).sum(-1).mean(0)
    # Five standard errors of a mean of 3,000 responses from 0 to 3.
    assert np.abs(error).max() < 5 * 1.5 / 3000**0.5
    items = fit.items.table
    length = np.linalg.norm(given.items.discrimination, axis=1)
    np.testing.assert_allclose(
        items["difficulty_1"].to_numpy(), -given.items.intercept[:, 0] / length
    )


@pytest.mark.slow
def test_one_factor_is_the_model_of_one_ability():
    table = drawn("probit")[0]
    fit = irtjax.fit(table, "factor", factors=1, link="probit", method="mm")
    other = irtjax.fit(table, "probit2pl", method="mm")
    assert fit.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-9)
    few = drawn("graded")[0]
    fit = irtjax.fit(few, "factor", factors=1, positive=True, method="mm")
    other = irtjax.fit(few, "graded", method="mm", positive=True)
    assert fit.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-9)


@pytest.mark.slow
def test_loadings_of_both_links_agree():
    """Standardised loadings are on the scale of the latent response of each link."""
    fit = fitted("probit")
    other = irtjax.fit(drawn("probit")[0], "factor", method="mm", factors=2)
    moved = align(
        jnp.asarray(other.factors.loadings), jnp.asarray(fit.factors.loadings)
    )
    found = np.asarray(moved.loadings)
    assert np.abs(found - fit.factors.loadings).mean() < 0.06


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"link": "cauchit"}, "no link 'cauchit'; there are logit, probit"),
        ({"item_model": "nominal"}, "no factor model with the item_model 'nominal'"),
        ({"item_model": "graded", "link": "probit"}, "leave link out"),
    ],
)
def test_what_there_is_not_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.fit(drawn("graded")[0], "factor", **settings)
    assert "\n" not in str(refused.value)


def test_gvem_refuses_other_links_with_the_methods_that_fit_them():
    with pytest.raises(ValueError, match="GVEM fits .* with logits") as refused:
        irtjax.fit(drawn("graded")[0], "factor", method="gvem")
    assert str(refused.value).endswith("use method='em' or 'mm'")
    with pytest.raises(ValueError, match="use method='mm'$"):
        irtjax.fit(drawn("probit")[0], "factor", "gvem", factors=4, link="probit")


def test_the_default_is_em_where_its_grid_is_small_enough():
    few, many = (
        drawn("graded")[0],
        irtjax.ResponseTable.from_arrays(np.eye(30, 240) + 0.0),
    )
    assert choose(few, "factor")[1] == "em"
    assert "below 100" in choose(few, "factor").reason
    credit = {"item_model": "partial_credit"}
    assert choose(few, "factor", settings=credit)[1] == "em"
    right = drawn("probit")[0]
    assert choose(right, "factor", settings={"link": "probit"})[1] == "em"
    cases = [
        (few, {"factors": 4}, "at most 3 factors"),
        (few, {"factors": 3}, "too narrow for the grid of em"),
        (few, {"priors": {"discrimination": Normal(1.0, 1.0)}}, "em needs a prior"),
        (many, {"link": "probit"}, "120 responses to a factor on average, 100 or more"),
    ]
    for table, settings, reason in cases:
        found = choose(table, "factor", settings=settings)
        assert found.method == "mm" and reason in found.reason


def test_a_link_of_ordered_responses_is_refused():
    with pytest.raises(ValueError, match="link 'probit' is for binary responses"):
        irtjax.fit(drawn("graded")[0], "factor", link="probit")
