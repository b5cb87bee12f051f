"""Verbal aggression through the structured door: explanatory item response models.

De Boeck and Wilson (2004), Explanatory Item Response Models: 316 persons, 24 items,
"perhaps" and "yes" taken together. The references are limits: with flat priors of the
intercepts and of everything else next to flat, `laplace` must come to what
maximum likelihood says, to the errors of Laplace's approximation. Those are written
here by themselves, on 61 nodes in [-6, 6].
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import irtjax
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.models.priors import Normal

pytestmark = pytest.mark.slow
WIDE = 1000.0
METHOD = Laplace(order=5, tolerance=1e-3)
NODES = np.linspace(-6, 6, 61)


@pytest.fixture(name="data", scope="module")
def data_fixture(shared_data):
    parquet, csv = (
        pytest.importorskip(f"pyarrow.{name}") for name in ("parquet", "csv")
    )
    folder = shared_data / "classic"
    table = parquet.read_table(folder / "verbagg.parquet")
    items = csv.read_csv(folder / "verbagg_items.csv").to_pydict()
    persons = csv.read_csv(folder / "verbagg_persons.csv").to_pydict()
    values = np.stack([table[c].to_numpy() for c in items["item"]], axis=1)
    names = [c for c in table.column_names if c not in items["item"]]
    assert table[names[0]].to_pylist() == persons["person"]
    design = {
        "scold": np.array(items["btype"]) == "scold",
        "shout": np.array(items["btype"]) == "shout",
        "self": np.array(items["situ"]) == "self",
        "do": np.array(items["mode"]) == "do",
    }
    covariates = {
        "anger": np.array(persons["anger"], float),
        "male": np.array(persons["gender"]) == "M",
    }
    responses = irtjax.ResponseTable.from_arrays(values > 0, items=items["item"])
    return responses, design, covariates


def maximum_likelihood(values, covariates):
    """Intercepts, effects on ability and log sd, their information, log-likelihood."""
    log_weights = -(NODES**2) / 2 - np.logaddexp.reduce(-(NODES**2) / 2)
    columns = [np.asarray(c, float) - np.mean(c) for c in covariates.values()]
    design = np.reshape(columns, (len(columns), len(values))).T
    num_items = values.shape[1]

    def loss(point):
        d, gamma = point[:num_items], point[num_items:-1]
        theta = (design @ gamma)[:, None] + jnp.exp(point[-1]) * NODES
        eta = theta[:, :, None] + d
        cells = jnp.einsum("ij,iqj->iq", values, eta) - jax.nn.softplus(eta).sum(-1)
        return -jnp.sum(jax.nn.logsumexp(cells + log_weights, axis=1))

    both = jax.jit(jax.value_and_grad(loss))
    found = optimize.minimize(
        lambda x: [np.asarray(part) for part in both(x)],
        np.zeros(num_items + len(columns) + 1),
        jac=True,
        options={"gtol": 1e-6},
    )
    return found.x, np.asarray(jax.hessian(loss)(found.x)), -found.fun


def laplace_gap(values, d, log_sd, exact):
    """What Laplace's approximation of each person's integral leaves out."""
    theta, precision = np.zeros((len(values), 1)), np.exp(-2 * log_sd)
    for _ in range(50):
        right = 1 / (1 + np.exp(-theta - d))
        bend = (right * (1 - right)).sum(axis=1) + precision
        slope = (values - right).sum(axis=1) - precision * theta[:, 0]
        theta += (slope / bend)[:, None]
    cells = values * (theta + d) - np.logaddexp(0, theta + d)
    height = cells.sum(axis=1) - precision * theta[:, 0] ** 2 / 2
    return exact - float(np.sum(height - np.log(bend) / 2 - log_sd))


def test_rasch_is_the_limit_of_flat_priors(data, shared_data):
    reference = json.loads(
        (shared_data / "classic" / "reference_fits.json").read_text()
    )["VerbAgg"]["one_pl"]
    table = data[0]
    values = np.asarray(table.values, float)
    point, information, exact = maximum_likelihood(values, {})
    assert exact == pytest.approx(-4036.905, abs=2e-3)
    assert np.exp(2 * point[-1]) == pytest.approx(1.919, abs=1e-3)
    flat = {"intercept": Normal(0.0, WIDE)}
    fit = irtjax.fit(table, "hierarchical", METHOD, item_model="rasch", priors=flat)
    assert fit.status == irtjax.Status.CONVERGED
    # The mode is that of the logarithm, which 316 persons set higher by 1 / 315 or
    # 0.006; Laplace's next order is as large. Standard error 0.2: a tenth is allowed.
    variance = fit.structure.general_variance
    assert variance == pytest.approx(reference["var_theta_if_rasch"], abs=0.02)
    d, size = point[:-1], values.shape[1]
    error = np.sqrt(np.diag(np.linalg.inv(information)))[:-1]
    assert np.abs(fit.parameters.items.intercept - d).max() < 0.2 * error.min()
    # The integral over flat intercepts is the maximum times the volume there.
    _, log_det = np.linalg.slogdet(information[:-1, :-1])
    volume = 0.5 * log_det + size * np.log(WIDE) + np.sum(d**2) / (2 * WIDE**2)
    found = fit.log_likelihood + volume
    gap = laplace_gap(values, d, point[-1], exact)
    # Laplace's approximation person by person lacks `gap`, 2.35 nats; here all persons'
    # abilities are one vector that items tie together, which lacks half a nat more.
    assert 2 < gap < 3
    assert found + gap == pytest.approx(reference["logLik"], abs=1.0)
    # The population is carried on, so that newcomers are scored on this scale.
    assert float(fit.parameters.population.sd) == pytest.approx(variance**0.5)
    scored = irtjax.score(fit, table).table["ability"].to_numpy()
    place = {n: k for k, n in enumerate(fit.abilities.table["subject"].to_pylist())}
    rows = [place[name] for name in table.subjects.tolist()]
    own = fit.abilities.table["ability"].to_numpy()[rows]
    # Exact posterior means against those by Laplace's approximation.
    assert np.abs(scored - own).max() < 0.05


def test_anger_and_gender_are_a_latent_regression(data):
    table, _, covariates = data
    values = np.asarray(table.values, float)
    point, information, exact = maximum_likelihood(values, covariates)
    assert exact > -4036.905 + 5
    error = np.sqrt(np.diag(np.linalg.inv(information)))[-3:-1]
    flat = {"intercept": Normal(0.0, WIDE)}
    options = {"item_model": "rasch", "priors": flat, "subject_covariates": covariates}
    fit = irtjax.fit(table, "hierarchical", METHOD, **options)
    names, effects, errors = fit.structure.subject_effects
    assert names.tolist() == ["anger", "male"]
    # Their prior, N(0, 2), takes up to a hundredth of an effect; Laplace's next order
    # is of the size that it has in the variance.
    assert (np.abs(effects - point[-3:-1]) < 0.05 * error).all()
    np.testing.assert_allclose(errors, error, rtol=0.02)
    variance = fit.structure.general_variance
    assert variance == pytest.approx(np.exp(2 * point[-1]), abs=0.02)


def test_item_properties_are_an_lltm_with_error(data):
    table, design, covariates = data
    values = np.asarray(table.values, float)
    point, information, _ = maximum_likelihood(values, covariates)
    options = {"item_covariates": design, "subject_covariates": covariates}
    fit = irtjax.fit(table, "hierarchical", METHOD, item_model="rasch", **options)
    # With 316 persons intercepts are normal around their estimates; their regression on
    # the properties has a residual, whose mode under its prior is found here too.
    size = values.shape[1]
    spread = np.linalg.inv(information)[:size, :size]
    columns = [np.asarray(c, float) - np.mean(c) for c in design.values()]
    matrix = np.column_stack([np.ones(size), *columns])

    def regressed(log_sd):
        inverse = np.linalg.inv(spread + np.exp(2 * log_sd) * np.eye(size))
        precision = matrix.T @ inverse @ matrix + np.eye(matrix.shape[1]) / 25
        beta = np.linalg.solve(precision, matrix.T @ inverse @ point[:size])
        left = (point[:size] - matrix @ beta) @ inverse @ point[:size]
        log_dets = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(inverse)[1]
        prior = -np.exp(2 * log_sd) / 8 + log_sd
        return (log_dets + left) / 2 - prior, beta, np.linalg.inv(precision)

    best = optimize.minimize_scalar(
        lambda x: regressed(x)[0], bounds=(-4, 1), method="bounded"
    )
    _, beta, covariance = regressed(best.x)
    names, effects = fit.structure.effects
    assert names.tolist() == ["all items", "scold", "shout", "self", "do"]
    gap = (effects[1:, 0] - beta[1:]) / np.sqrt(np.diag(covariance))[1:]
    # The normal approximation of the intercepts is within a tenth of an error.
    assert np.abs(gap).max() < 0.1
    # Want more than do, curse more than scold more than shout, blame others more.
    assert (effects[1:, 0] < 0).all() and effects[2, 0] < effects[1, 0]
    assert fit.structure.subject_effects[1][0] > 2 * fit.structure.subject_effects[2][0]
