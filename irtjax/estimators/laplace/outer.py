"""Abilities and components that items are integrated given; diverged components."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.estimators.laplace.components import factors
from irtjax.estimators.laplace.item_posterior import Outer
from irtjax.estimators.laplace.problem import Components
from irtjax.models.multilevel.model import Hierarchical

#: A log standard deviation of the groups' own abilities that counts as none.
LOG_NOTHING = -3.5
#: A log standard deviation of log discriminations or dispersions (2) counted as
#: diverged.
LOG_TOO_WIDE = 0.69


def outer_of(model: Hierarchical, ability: Array, components: Components) -> Outer:
    """What items are integrated given."""
    return Outer(
        ability,
        components.effects,
        factors(model, components),
        components.group_effects,
    )


def blocks_of(covariance: Array, groups: int, aligned: bool) -> Array:
    """The covariance as `items.summarise` takes it: dense, or group by group."""
    if aligned:
        return covariance[None]
    subjects = covariance.shape[0] // groups
    whole = covariance.reshape(groups, subjects, groups, subjects)
    index = jnp.arange(groups)
    return whole[index, :, index]


def without_end(model: Hierarchical, components: Components) -> tuple[Array, Array]:
    """What diverges: `[groups]` group-specific abilities to 0, `[columns]` log SDs."""
    widest = components.log_residual_sd
    if model.num_clusters:
        widest = widest + jnp.max(components.spread, axis=0)
    wide = widest > LOG_TOO_WIDE
    logarithms = jnp.asarray(model.has_logarithm) & jnp.asarray(model.regressed)
    logarithms = logarithms[: wide.shape[0]]
    return components.log_scale < LOG_NOTHING, wide & logarithms
