"""Draws from the prior of a multilevel model against what the prior is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.lego_irt.posteriors import structured_model
from experiments.lego_irt.prior_draws import simulate_multilevel, simulate_position
from irtjax.models.multilevel.model import general_ability
from irtjax.models.priors import Normal
from irtjax.numerics.bijections import correlation_cholesky

DRAWS = 2000


@pytest.fixture(scope="module")
def drawn():
    model = structured_model("LEGO-MM", subjects=2, items=6)
    keys = jax.random.split(jax.random.key(5), DRAWS)

    @jax.jit
    def all_of_it(keys):
        many = jax.vmap(lambda key: simulate_position(model, key))(keys)
        factor = jax.vmap(lambda c: correlation_cholesky(c, 3))
        return many, factor(many.position.correlation)

    return model, *all_of_it(keys)


@pytest.mark.slow
def test_hyperparameters_are_from_their_priors(drawn):
    model, (position, _), factor = drawn
    own = model.hyperpriors
    whole = np.asarray(factor @ jnp.swapaxes(factor, 1, 2))
    correlation = whole[:, [1, 2, 2], [0, 0, 1]]
    # Any correlation of an LKJ matrix: beta on (-1, 1) with concentration - 1 + size/2.
    shape = own.concentration - 1 + 3 / 2
    beta = stats.beta(shape, shape, -1, 2).cdf
    samples = [(column, beta) for column in correlation.T]
    for part, scale in (
        (position.log_scale, own.scale),
        (position.log_residual_sd, own.residual),
    ):
        cdf = stats.halfnorm(scale=scale).cdf
        samples += [(column, cdf) for column in np.exp(np.asarray(part)).T]
    for part, sd in ((position.effects, 1), (position.group_effects, own.group_effect)):
        flat = np.asarray(part).reshape(DRAWS, -1)
        samples += [(column, stats.norm(scale=sd).cdf) for column in flat.T]
    # Twenty-one Kolmogorov-Smirnov tests: all above 1e-4 but once in 500 seeds.
    assert len(samples) == 21
    assert min(stats.kstest(*sample).pvalue for sample in samples) > 1e-4


@pytest.mark.slow
def test_abilities_and_items_are_normal_given_them(drawn):
    model, (position, general), _ = drawn
    whole = jax.jit(jax.vmap(model.covariance_factor))(position)
    z = jnp.linalg.solve(whole[:, None], position.ability[..., None])[..., 0]
    means = jax.vmap(model.item_means)(position)
    factor = jax.vmap(model.common_factor)(
        position.log_residual_sd, position.residual_correlation
    )
    gap = (position.items - means)[..., None]
    y = jnp.linalg.solve(factor[:, None], gap)[..., 0]
    # psi given the abilities is as `general_ability` says.
    own = jax.jit(jax.vmap(model.specific_covariance))(position)
    said = jax.vmap(general_ability)(own)
    mean = jnp.einsum("dng,dg->dn", position.ability, said.weights)
    psi = (general - mean) / jnp.sqrt(said.variance)[:, None]
    for part in (z, y, psi):
        flat = np.asarray(part).reshape(DRAWS, -1)
        # Thirty tests or so of the same kind.
        assert all(stats.kstest(c, "norm").pvalue > 1e-4 for c in flat.T)
        together = np.corrcoef(flat.T) - np.eye(flat.shape[1])
        assert np.abs(together).max() < 5 / np.sqrt(DRAWS)


@pytest.mark.slow
def test_positions_make_responses_and_keep_what_is_given():
    model = structured_model("LEGO-MB", subjects=60, items=9)
    assert not model.centred

    @jax.jit
    def all_of_it(key):
        first, second, third = jax.random.split(key, 3)
        drawn = simulate_position(model, first)
        again = simulate_position(model, second, drawn.position)
        data = simulate_multilevel(model, drawn.position, third)
        said = general_ability(model.specific_covariance(drawn.position))
        mean = model.abilities(drawn.position) @ said.weights
        return drawn, again, data, (drawn.general - mean) / jnp.sqrt(said.variance)

    drawn, again, data, psi = all_of_it(jax.random.key(0))
    assert data.values.shape == (60, 9) and data.values.dtype == jnp.int8
    assert set(np.unique(data.values)) == {0, 1}
    # One test with one seed: standard normals of abilities are turned back rightly.
    assert stats.kstest(psi, "norm").pvalue > 1e-3
    np.testing.assert_array_equal(again.position.log_scale, drawn.position.log_scale)
    assert not np.allclose(again.position.items, drawn.position.items)
    fixed = dataclasses.replace(model, priors={"intercept": Normal(0.0, 1.0)})
    with pytest.raises(ValueError, match="intercept has a prior that is given"):
        simulate_position(fixed, jax.random.key(0))
