"""Distributions of NumPyro for the sites of `numpyro_model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as numpyro_distributions
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.models import priors as own
from irtjax.models.family import AbstractResponseFamily, Items

#: Of any type: supports are properties of NumPyro's class, and fields of subclasses.
dist: Any = numpyro_distributions
constraints, transforms = dist.constraints, dist.transforms

#: What replaces the prior of a site: a distribution of one parameter, or a function
#: that returns the values, with sites of its own.
Prior = numpyro_distributions.Distribution | Callable[[], Array]

#: Supports of the bijections of parameters.
SUPPORTS: dict[str, Any] = {
    "identity": constraints.real,
    "positive": constraints.positive,
    "unit": constraints.unit_interval,
}


class _Decreasing(constraints.ParameterFreeConstraint):
    """Vectors whose numbers decrease."""

    event_dim = 1

    def __call__(self, x: Any) -> Any:
        return (x[..., 1:] < x[..., :-1]).all(axis=-1)

    def feasible_like(self, prototype: Any) -> Array:
        count = prototype.shape[-1]
        return jnp.broadcast_to(-jnp.arange(float(count)), prototype.shape)


@transforms.biject_to.register(_Decreasing)
def _to_decreasing(constraint: Any) -> Any:
    """From unbounded numbers: minus a vector that increases."""
    turn = transforms.IndependentTransform(transforms.AffineTransform(0.0, -1.0), 1)
    return transforms.ComposeTransform([transforms.OrderedTransform(), turn])


class Decreasing(dist.Distribution):
    """Independent numbers given that they decrease, not normalised for this."""

    support = _Decreasing()
    pytree_data_fields = ("base",)

    def __init__(self, base: Any, size: int):
        self.base = base
        super().__init__(base.batch_shape, (size,))

    def sample(self, key: KeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws in order."""
        shape = (*sample_shape, *self.event_shape)
        return -jnp.sort(-self.base.sample(key, shape), axis=-1)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Sum of the log densities."""
        return jnp.sum(self.base.log_prob(value), axis=-1)


class OfPrior(dist.Distribution):
    """A prior that NumPyro has no distribution of, such as a user's own."""

    pytree_data_fields = ("prior", "_support")

    def __init__(self, prior: own.AbstractPrior, support: Any):
        self.prior, self._support = prior, support
        super().__init__((), ())

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """The numbers that the parameter can be."""
        return self._support

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """That of the prior."""
        return self.prior.log_density(value)


def distribution_of(prior: own.AbstractPrior | None, support: Any) -> Any:
    """The distribution of one parameter; flat, and improper, without a prior."""
    if prior is None:
        return dist.ImproperUniform(support, (), ())
    if isinstance(prior, own.Normal) and support is constraints.real:
        return dist.Normal(prior.mean, prior.sd)
    if isinstance(prior, own.LogNormal):
        return dist.LogNormal(prior.mean, prior.sd)
    if isinstance(prior, own.Gamma):
        return dist.Gamma(prior.shape, prior.rate)
    if isinstance(prior, own.HalfNormal):
        return dist.HalfNormal(prior.scale)
    if isinstance(prior, own.Beta):
        return dist.Beta(prior.alpha, prior.beta)
    if isinstance(prior, own.Exponential):
        return dist.Exponential(1 / jnp.asarray(prior.mean))
    if isinstance(prior, own.InverseChi):
        half = jnp.asarray(prior.degrees) / 2
        square = dist.InverseGamma(half, half * jnp.asarray(prior.scale) ** 2)
        return dist.TransformedDistribution(square, transforms.PowerTransform(0.5))
    if isinstance(prior, own.LogitNormal):
        normal = dist.Normal(prior.mean, prior.sd)
        return dist.TransformedDistribution(normal, transforms.SigmoidTransform())
    return OfPrior(prior, support)


def sample_site(
    name: str, usual: Any, prior: Prior | None, shape: tuple[int, ...]
) -> Any:
    """A site of independent parameters, with the prior that was given for it.

    A distribution of one parameter is repeated; one of the whole site is as it is. A
    function returns the values itself.
    """
    if prior is not None and not isinstance(prior, numpyro_distributions.Distribution):
        return jnp.broadcast_to(prior(), shape)
    chosen: Any = usual if prior is None else prior
    if not shape or chosen.batch_shape + chosen.event_shape == shape:
        return numpyro.sample(name, chosen)
    event = len(chosen.event_shape)
    if chosen.event_shape != shape[len(shape) - event :]:
        raise ValueError(
            f"the prior of {name} has values of shape {chosen.event_shape}: give one of"
            f" a number, or of shape {shape}"
        )
    batch = shape[: len(shape) - event]
    return numpyro.sample(name, chosen.expand(batch).to_event(len(batch)))


class ResponsesGiven(dist.Distribution):
    """Responses given abilities and items, up to the term h(y) of the family.

    Attributes:
        log_lik: The log-likelihood of each response of a matrix.
        draw: Random responses by a key.
    """

    support = constraints.real

    def __init__(self, log_lik: Callable, draw: Callable, shape: tuple[int, ...]):
        self.log_lik, self.draw = log_lik, draw
        super().__init__(shape, ())

    def sample(self, key: KeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Random responses, also where none were observed."""
        if not sample_shape:
            return self.draw(key)
        keys = jax.random.split(key, sample_shape)
        drawn = jax.lax.map(self.draw, keys.reshape(-1))
        return drawn.reshape(*sample_shape, *drawn.shape[1:])

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """The log-likelihood of each response; 0 where none was observed."""
        return self.log_lik(value)


class ItemRows(dist.Distribution):
    """Coordinates of items that are normal around estimated means, or have priors.

    Attributes:
        density: The log density of all rows.
        centre: Means of the rows, and `root` a Cholesky factor of each covariance; None
            where the priors of some coordinates are given.
    """

    support = constraints.independent(constraints.real, 2)

    def __init__(self, density: Callable, shape, centre=None, root=None):
        self.density, self.centre, self.root = density, centre, root
        super().__init__((), shape)

    def sample(self, key: KeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Normal rows."""
        if self.centre is None or self.root is None:
            raise NotImplementedError(
                "items with given priors are not drawn from these"
            )
        shape = (*sample_shape, *self.event_shape)
        normal = jax.random.normal(key, shape, self.centre.dtype)
        return self.centre + jnp.einsum("jkl,...jl->...jk", self.root, normal)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """The log density of all rows."""
        return self.density(value)


def draw_responses(
    family: AbstractResponseFamily,
    items: Items,
    theta: Float[Array, "subjects *dims"],
    trials: Array | None,
) -> Callable[[KeyArray], Array]:
    """Random responses of abilities to items, or numbers right of trials."""

    def draw(key: KeyArray) -> Array:
        if trials is None:
            return family.sample(key, items, theta)
        over_items = jax.vmap(family.expected_response, in_axes=(0, None))
        share = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
        return dist.Binomial(trials, share).sample(key)

    return draw
