"""`irtjax.numpyro_model`: the log density of every model that has one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import initialize_model
from numpyro.infer.util import log_density as numpyro_density

import irtjax
from irtjax import functional as fn
from irtjax.models.model import Population
from irtjax.models.multilevel.density import log_density as multilevel_density
from irtjax.models.priors import AbstractPrior, LogNormal, Normal
from tests.tables import MODELS, NAMES, case

RNG = np.random.default_rng(4)


def table_of(name: str) -> irtjax.ResponseTable:
    """The simulated responses of a model."""
    found = case(name)
    values = np.where(
        np.asarray(found.data.observed), np.asarray(found.data.values, float), np.nan
    )
    if MODELS[name]().family.num_categories == 0 and name != "share":
        binary = np.asarray(getattr(MODELS[name]().family, "binary", (False,)))
        logistic = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
        values = np.where(binary, values, np.where(values > 1e3, 1, logistic))
        values = np.where(values < -1e3, 0, values)
    return irtjax.ResponseTable.from_arrays(values)


def model_of(*arguments, **settings) -> Any:
    return irtjax.numpyro_model(*arguments, **settings)


def start_point(model, seed: int):
    """A point near the start of NumPyro's own search, unconstrained and natural."""
    info, energy, constrain, _ = initialize_model(jax.random.key(seed), model)
    return info.z, energy, constrain(info.z)


def items_at(model, sites):
    """The item records at values of the sites."""
    with handlers.block(), handlers.substitute(data=sites):
        return model.items()


@pytest.mark.parametrize("name", NAMES)
def test_the_density_is_that_of_the_pure_function(name):
    table = table_of(name)
    model = model_of(MODELS[name](), table)
    _, _, sites = start_point(model, 1)
    # One program in place of one for each operation.
    found = jax.jit(lambda sites: numpyro_density(model, (), {}, sites)[0])(sites)
    problem = model.problem
    items, theta, data = items_at(model, sites), sites["theta"], problem.data
    own, more, population = problem.model, 0.0, None
    for parameter in own.family.parameters:
        value = getattr(items, parameter.name)
        if jnp.shape(sites.get(parameter.name)) == jnp.shape(value):
            np.testing.assert_allclose(sites[parameter.name], value, rtol=1e-12)
    if not own.family.has_slope:
        slope = sites.get("ability_sd", sites.get("discrimination"))
        population = Population(jnp.zeros(()), slope)
        more = own.log_common_slope_prior(slope)
        if "discrimination" in sites:
            theta = theta * slope
            more = more + len(theta) * jnp.log(slope)
    wanted = jax.jit(fn.log_density, static_argnames="jacobian")(
        own,
        own.unconstrain(items),
        theta,
        data.values,
        data.observed,
        population=population,
        jacobian=False,
        trials=data.trials,
    )
    if name == "4pl":  # The site is the share of the room above the lower asymptote.
        more = more + jnp.sum(jnp.log1p(-items.lower_asymptote))
    np.testing.assert_allclose(found, wanted + more, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_the_density_with_response_lengths():
    right = RNG.random((7, 4)) < 0.6
    lengths = np.exp(RNG.normal(5, 1, (7, 4)))
    table = irtjax.ResponseTable.from_arrays(right)
    table = dataclasses.replace(table, lengths=lengths)
    model = model_of("lart", table)
    _, _, sites = start_point(model, 2)
    problem = model.problem
    with handlers.block(), handlers.substitute(data=sites):
        of_lengths = model.lengths()
    wanted = fn.log_density(
        problem.model,
        problem.model.unconstrain(items_at(model, sites)),
        sites["theta"],
        problem.data.values,
        jacobian=False,
        lengths=of_lengths,
        log_length=problem.data.log_length,
        length_observed=problem.data.length_observed,
    )
    found, _ = numpyro_density(model, (), {}, sites)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "factor",
    [
        irtjax.Factor(factors=3),
        irtjax.Factor(loadings=np.array([[1, 0]] * 3 + [[0, 1]] * 2 + [[1, 1]]) > 0),
        pytest.param(irtjax.Factor(factors=2, positive=True), marks=pytest.mark.slow),
    ],
    ids=["3 factors", "loadings", "positive"],
)
def test_the_density_of_factor_models(factor):
    table = irtjax.ResponseTable.from_arrays((RNG.random((9, 6)) < 0.6) * 1.0)
    model = model_of(factor, table)
    _, _, sites = start_point(model, 3)
    problem, items = model.problem, items_at(model, sites)
    slopes = np.asarray(items.discrimination)
    assert (slopes[~np.asarray(problem.free)[:, : slopes.shape[1]]] == 0).all()
    wanted = fn.log_density(
        problem.model,
        problem.model.unconstrain(items),
        sites["theta"],
        problem.data.values,
        jacobian=False,
    )
    # Slopes that are fixed at 0 have no site, and no prior.
    zeros = np.sum(~np.asarray(problem.free))
    prior = problem.model.priors["discrimination"]
    wanted = wanted - zeros * prior.log_density(jnp.zeros(()))
    found, _ = numpyro_density(model, (), {}, sites)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


def several_benchmarks(subjects=6, items=8) -> irtjax.ResponseTable:
    right = (RNG.random((subjects, items)) < 0.6) * 1.0
    right[0, 1] = np.nan
    facets = {"benchmark": np.repeat(["law", "code"], items // 2)}
    table = irtjax.ResponseTable.from_arrays(right)
    return table.replace(item_facets={k: v.astype(str) for k, v in facets.items()})


LOGARITHMS = {
    "ability_scale": "log_scale",
    "ability_sd": "log_general_sd",
    "component_sd": "log_component_sd",
    "item_sd": "log_residual_sd",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "specification",
    [
        irtjax.MultiBenchmark(),
        irtjax.Hierarchical(sd_by_benchmark=True),
        irtjax.Hierarchical(item_model="rasch"),
        irtjax.MultiBenchmark(item_model="3pl", priors={"intercept": Normal(0.0, 1.5)}),
    ],
    ids=["multibenchmark", "sd by benchmark", "rasch", "given prior"],
)
def test_the_density_of_multilevel_models(specification):
    model = model_of(specification, several_benchmarks())
    z, energy, _ = start_point(model, 5)
    own, parts = model.model, {"items": z["items"], "ability": z["theta"]}
    for name, value in z.items():
        if name in LOGARITHMS:
            parts[LOGARITHMS[name]] = value
        elif name.endswith("correlation"):
            short = {"ability_correlation": "correlation"}
            parts[short.get(name, "residual_correlation")] = value
        elif name not in ("items", "theta"):
            parts[name] = value
    position = own.zeros()._replace(**parts)
    shapes = [jnp.shape(x) for x in own.zeros()]
    assert [jnp.shape(x) for x in position] == shapes
    wanted = multilevel_density(own, position, model.data)
    np.testing.assert_allclose(-energy(z), wanted, rtol=0, atol=1e-8)


class Laplacian(AbstractPrior):
    """A prior of a user's own."""

    def log_density(self, value):
        return -jnp.abs(value) - jnp.log(2.0)


@pytest.mark.slow
def test_priors_of_a_user():
    table = irtjax.ResponseTable.from_arrays((RNG.random((6, 5)) < 0.6) * 1.0)
    model = irtjax.MODELS["2pl"](
        priors={"discrimination": LogNormal(0.0, 1.0)}, positive=True
    )
    model = dataclasses.replace(
        model, priors={**model.priors, "intercept": Laplacian()}
    )

    def hierarchical():
        centre = numpyro.sample("centre", dist.Normal(0, 1))
        with numpyro.plate("items", 5):
            return numpyro.sample("intercept", dist.Normal(centre, 0.5))

    plain = model_of(model, table)
    _, _, sites = start_point(plain, 1)
    before, _ = numpyro_density(plain, (), {}, sites)
    priors = {"discrimination": dist.HalfNormal(2.0), "intercept": hierarchical}
    other = model_of(model, table, priors=priors)
    after, _ = numpyro_density(other, (), {}, {**sites, "centre": jnp.array(0.3)})
    slope, intercept = sites["discrimination"], sites["intercept"]
    wanted = (
        dist.HalfNormal(2.0).log_prob(slope) - dist.LogNormal(0, 1).log_prob(slope)
    ).sum() + dist.Normal(0, 1).log_prob(0.3)
    wanted += dist.Normal(0.3, 0.5).log_prob(intercept).sum()
    wanted -= Laplacian().log_density(intercept).sum()
    np.testing.assert_allclose(after - before, wanted, atol=1e-9)
    with pytest.raises(ValueError, match="no site 'slope' to give a prior; there are"):
        irtjax.numpyro_model(model, table, priors={"slope": dist.HalfNormal(2.0)})


@pytest.mark.slow
def test_a_kernel_and_a_guide_give_the_abilities():
    theta = RNG.normal(size=(60, 1))
    right = RNG.random((60, 20)) < 1 / (1 + np.exp(-1.2 * theta - RNG.normal(size=20)))
    table = irtjax.ResponseTable.from_arrays(right)
    model = model_of("2pl", table)
    chain = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
    chain.run(jax.random.key(0))
    drawn = chain.get_samples()["theta"].mean(axis=0)
    assert np.corrcoef(drawn, theta[:, 0])[0, 1] > 0.8
    guide = AutoNormal(model)
    search = SVI(model, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
    found = search.run(jax.random.key(1), 1500, progress_bar=False)
    near = guide.median(found.params)["theta"]
    assert np.corrcoef(drawn, near)[0, 1] > 0.97
    again: Any = Predictive(model, chain.get_samples())(jax.random.key(2), values=None)
    shares = again["responses"].mean(axis=(0, 1))
    np.testing.assert_allclose(shares, right.mean(axis=0), atol=0.1)
