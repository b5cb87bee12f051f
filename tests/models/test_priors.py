"""Prior densities against scipy and numpyro."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from irtjax.inference import score
from irtjax.models.catalogue import three_parameter
from irtjax.models.priors import (
    Beta,
    Exponential,
    Gamma,
    InverseChi,
    LogitNormal,
    LogNormal,
    Normal,
)
from tests import brute_force
from tests.tables import NODES, case, standard_population

INSIDE = np.array([0.02, 0.3, 0.5, 0.97])
WIDE = np.array([-3.0, 0.1, 2.5])


@pytest.mark.parametrize(
    ("prior", "reference", "points"),
    [
        (Normal(1.0, 2.0), stats.norm(1, 2), WIDE),
        (LogNormal(0.2, 0.7), stats.lognorm(0.7, scale=np.exp(0.2)), INSIDE + 1),
        (Beta(5.0, 17.0), stats.beta(5, 17), INSIDE),
        (Exponential(3.0), stats.expon(scale=3), INSIDE * 9),
        (Gamma(2.5, 0.5), stats.gamma(2.5, scale=2), INSIDE * 9),
    ],
)
def test_densities_are_those_of_scipy(prior, reference, points):
    np.testing.assert_allclose(
        prior.log_density(jnp.asarray(points)), reference.logpdf(points), rtol=1e-12
    )


def test_the_inverse_chi_is_a_change_of_variable():
    degrees, scale = 3.0, 0.7
    square = stats.invgamma(degrees / 2, scale=degrees * scale**2 / 2)
    expected = square.logpdf(INSIDE**2) + np.log(2 * INSIDE)
    found = InverseChi(degrees, scale).log_density(jnp.asarray(INSIDE))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_logit_normal_is_a_change_of_variable():
    prior = LogitNormal(-1.0, 0.5)
    logit = np.log(INSIDE / (1 - INSIDE))
    expected = stats.norm(-1, 0.5).logpdf(logit) - np.log(INSIDE * (1 - INSIDE))
    np.testing.assert_allclose(prior.log_density(jnp.asarray(INSIDE)), expected)
    grid = np.linspace(1e-6, 1 - 1e-6, 20001)
    mass = np.trapezoid(np.exp(prior.log_density(jnp.asarray(grid))), grid)
    assert mass == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("prior", [LogNormal(0.0, 1.0), Gamma(2.0, 1.0)])
def test_priors_of_slopes_have_no_mass_below_zero_and_a_finite_slope_above(prior):
    density = prior.log_density
    assert float(density(jnp.asarray(-1.0))) == -np.inf
    assert np.isfinite(float(jax.grad(density)(jnp.asarray(1e-3))))


@pytest.mark.parametrize(
    "prior",
    [
        *(Normal(0.0, 1.0), LogNormal(0.0, 1.0), Beta(2.0, 8.0)),
        *(Exponential(3.0), Gamma(2.0, 0.5), InverseChi(1.0, 0.5)),
    ],
)
def test_single_precision_is_kept(prior):
    assert prior.log_density(jnp.asarray(0.5, jnp.float32)).dtype == jnp.float32


def test_the_joint_density_is_that_of_a_numpyro_model():
    # Likelihood of all cells, abilities and priors of a 3PL in another package.
    simulated = case("3pl")
    data, items = simulated.data, simulated.items
    priors = {
        "discrimination": Normal(1.0, 2.0),
        "intercept": Normal(0.0, 3.0),
        "lower_asymptote": Beta(2.0, 8.0),
    }
    model = three_parameter(priors)

    def reference():
        with numpyro.plate("items", 6):
            slope = numpyro.sample("a", dist.Normal(1.0, 2.0))
            intercept = numpyro.sample("d", dist.Normal(0.0, 3.0))
            guessing = numpyro.sample("c", dist.Beta(2.0, 8.0))
        with numpyro.plate("subjects", data.num_subjects):
            theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
        rising = jax.nn.sigmoid(slope * theta[:, None] + intercept)
        right = guessing + (1 - guessing) * rising
        with numpyro.handlers.mask(mask=data.observed):
            numpyro.sample("y", dist.BernoulliProbs(right), obs=data.values)

    values = {
        "a": items.discrimination,
        "d": items.intercept,
        "c": items.lower_asymptote,
        "theta": jnp.asarray(simulated.theta),
    }
    density = lambda values: log_density(reference, (), {}, values)[0]
    expected = jax.jit(density)(values)
    log_prob = jax.jit(model.family.log_prob)
    cells = log_prob(data.values.astype(float), items, values["theta"], data.observed)
    own = cells.sum() + jax.jit(jax.vmap(model.log_prior))(items).sum()
    own = own + stats.norm.logpdf(simulated.theta).sum()
    assert float(own) == pytest.approx(float(expected), rel=1e-10)
    brute = brute_force.joint_log_likelihood("3pl", items, simulated.theta, data)
    assert float(cells.sum()) == pytest.approx(float(brute.sum()), rel=1e-10)


def test_a_sampler_finds_the_posterior_means_of_abilities():
    # NUTS on the model's own density of six abilities, items known, against the
    # posterior means that the quadrature gives.
    simulated = case("3pl")
    model, items = simulated.model, simulated.items
    data = jax.tree.map(lambda x: x[:6], simulated.data)

    def log_posterior(theta):
        cells = model.family.log_prob(
            data.values.astype(float), items, theta, data.observed
        )
        return cells.sum() - 0.5 * jnp.sum(theta**2)

    sampler = blackjax.nuts(log_posterior, 0.6, jnp.ones(6))

    @jax.jit
    def sample(key):
        def step(state, part):
            state, _ = sampler.step(part, state)
            return state, state.position

        start = sampler.init(jnp.zeros(6))
        return jax.lax.scan(step, start, jax.random.split(key, 2200))[1][200:]

    draws = np.asarray(sample(jax.random.key(1)))
    scores = score(model, items, standard_population(), data, nodes=NODES)
    # Monte-Carlo errors by 20 batch means; 5 of them are exceeded with probability
    # 1e-4 by a t variable of 19 degrees of freedom.
    batches = draws.reshape(20, 100, 6).mean(1)
    error = batches.std(0, ddof=1) / np.sqrt(20)
    assert (np.abs(draws.mean(0) - scores.ability) < 5 * error).all()
    np.testing.assert_allclose(draws.std(0), scores.standard_error, rtol=0.15)
