"""A family of a user's own: the Cauchit link, P = 1/2 + arctan(a theta + d) / pi."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import irtjax
from irtjax.numerics.bijections import Parameter


class CauchitItems(NamedTuple):
    discrimination: jax.Array
    intercept: jax.Array


class Cauchit(irtjax.AbstractResponseFamily):
    Items: ClassVar[type] = CauchitItems
    num_categories = 2

    @property
    def parameters(self):
        return Parameter("discrimination"), Parameter("intercept")

    def statistics(self, values):
        return (values,)

    def natural(self, item, theta):
        angle = jnp.arctan(item.discrimination * theta + item.intercept) / jnp.pi
        return jnp.log(0.5 - angle), jnp.log((0.5 + angle) / (0.5 - angle))

    def start(self, means, slope):
        share = jnp.clip(means[0], 0.02, 0.98)
        return CauchitItems(slope, jnp.tan(jnp.pi * (share - 0.5)))


RNG = np.random.default_rng(0)
SLOPE, INTERCEPT = RNG.uniform(1, 2, size=10), RNG.normal(size=10)
PREDICTOR = RNG.normal(size=(400, 1)) * SLOPE + INTERCEPT
RIGHT = RNG.random((400, 10)) < 0.5 + np.arctan(PREDICTOR) / np.pi


def test_em_ends_at_the_maximum_of_the_sum_over_a_fine_grid():
    table = irtjax.ResponseTable.from_arrays(RIGHT)
    fit = irtjax.fit(table, irtjax.Model("cauchit", Cauchit()), "em")
    nodes = jnp.linspace(-8, 8, 3201)
    weights = jax.nn.log_softmax(-(nodes**2) / 2)

    def log_likelihood(items):
        angle = jnp.arctan(nodes[:, None] * items.discrimination + items.intercept)
        right = 0.5 + angle.T / jnp.pi
        log_lik = RIGHT @ jnp.log(right) + ~RIGHT @ jnp.log(1 - right)
        return jnp.sum(jax.nn.logsumexp(log_lik + weights, axis=1))

    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    np.testing.assert_allclose(fit.log_likelihood, log_likelihood(items), rtol=1e-9)
    gradient = jax.grad(log_likelihood)(items).discrimination
    in_errors = gradient * np.sqrt(fit.item_covariance[:, 0, 0])
    assert np.abs(in_errors).max() < 2e-4  # Twice the tolerance of EM.
