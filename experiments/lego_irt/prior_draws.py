"""Parameters of a multilevel model drawn from its prior, and responses to them.

Drawn from the definitions, general ability first: simulation-based calibration checks
that the densities derived in `multilevel.model` agree.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.models.multilevel.model import MultilevelModel, Position
from irtjax.numerics.bijections import correlation_cholesky


class DrawnPosition(NamedTuple):
    """Parameters drawn from their prior, and `[subjects]` general abilities psi."""

    position: Position
    general: Float[Array, " subjects"]


def simulate_position(
    model: MultilevelModel, key: KeyArray, given: Position | None = None
) -> DrawnPosition:
    """All parameters of a multilevel model, drawn from its prior.

    psi_i ~ N(z_i' gamma, 1), zeta_i ~ N(0, Sigma), theta_im = psi_i + zeta_im and x_j ~
    N(D_j beta, Omega) with scales, correlations and effects from `Hyperpriors`.
    Canonical partial correlations of an LKJ matrix are symmetric beta variables
    (Lewandowski, Kurowicka and Joe 2009, Section 2.4). Hyperparameters (all but
    abilities and items) are those of `given`, if any. With one group ability is the
    general one.

    Raises:
        ValueError: If item parameters have given priors, which are not drawn from.
    """
    if model.priors:
        raise ValueError(
            f"simulate_position: {', '.join(model.priors)} has a prior that is given;"
            " leave priors empty, so that all are estimated and can be drawn"
        )
    zeros, own = model.zeros(model.design.dtype), model.hyperpriors
    parts = (*Position._fields, "general")
    keys = dict(zip(parts, jax.random.split(key, len(parts)), strict=True))

    def normal(name: str) -> Array:
        like = getattr(zeros, name)
        return jax.random.normal(keys[name], like.shape, like.dtype)

    def log_size(name: str, scale: float) -> Array:
        return jnp.log(scale * jnp.abs(normal(name)))

    def lkj(name: str, size: int) -> Array:
        _, columns = jnp.tril_indices(size, -1)
        shape = own.concentration + (size - 2 - columns) / 2
        share = jax.random.beta(keys[name], shape, shape, dtype=zeros.ability.dtype)
        return jnp.arctanh(2 * share - 1)

    hyper = zeros._replace(
        log_scale=log_size("log_scale", own.scale),
        correlation=lkj("correlation", model.num_groups),
        group_effects=own.group_effect * normal("group_effects"),
        effects=normal("effects"),
        log_component_sd=log_size("log_component_sd", own.component),
        log_residual_sd=log_size("log_residual_sd", own.residual),
        subject_effects=own.subject_effect * normal("subject_effects"),
        tilt=normal("tilt"),
        log_relative_sd=normal("log_relative_sd"),
    )
    if model.correlated:
        pairs = lkj("residual_correlation", model.num_correlated)
        hyper = hyper._replace(residual_correlation=pairs)
    hyper = hyper if given is None else given
    factor = model.residual_factor(
        hyper.log_residual_sd,
        hyper.residual_correlation,
        model.tilts(hyper),
        model.log_relative_sds(hyper),
    )[model.factor_row]
    residual = jnp.einsum("jab,jb->ja", factor, normal("items"))
    items = model.item_means(hyper) + residual
    mean = model.subject_design @ hyper.subject_effects
    general = mean + jax.random.normal(keys["general"], mean.shape, mean.dtype)
    ability = general[:, None]
    if model.num_groups > 1:
        factor = correlation_cholesky(hyper.correlation, model.num_groups)
        factor = jnp.exp(hyper.log_scale)[:, None] * factor
        ability = ability + normal("ability") @ factor.T
    if not model.centred:
        whole = model.covariance_factor(hyper)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(whole, gap, lower=True).T
    return DrawnPosition(hyper._replace(ability=ability, items=items), general)


def simulate_multilevel(
    model: MultilevelModel, position: Position, key: KeyArray
) -> Responses:
    """Random responses `[subjects, items]` at a position: int8, or logits of scores."""
    theta, items = model.abilities(position), model.items(position)
    keys = jax.random.split(key, model.group.shape[0])

    def column(key, item, group):
        one = jax.tree.map(lambda leaf: leaf[None], item)
        return model.family.sample(key, one, theta[:, group])[:, 0]

    values = jax.vmap(column, out_axes=1)(keys, items, model.group)
    return Responses(values)
