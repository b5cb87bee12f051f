"""Parameters of a multilevel model drawn from its prior, and responses to them.

Drawn from the definitions, general ability first, and not from the densities that
`multilevel.model` derives from them: that one agrees with the other is what
simulation-based calibration checks.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.models.multilevel.model import Hierarchical, Position
from irtjax.numerics.bijections import correlation_cholesky


class DrawnPosition(NamedTuple):
    """Parameters drawn from their prior.

    Attributes:
        position: All that the model has.
        general: `[subjects]` psi, the general ability, which a position leaves out.
    """

    position: Position
    general: Float[Array, " subjects"]


def simulate_position(
    model: Hierarchical, key: KeyArray, given: Position | None = None
) -> DrawnPosition:
    """All parameters of a multilevel model, drawn from its prior.

    psi_i ~ N(z_i' gamma, 1), zeta_i ~ N(0, Sigma), theta_im = psi_i + zeta_im and
    x_j ~ N(D_j beta, Omega) with scales, correlations and effects from `Hyperpriors`.
    Canonical partial correlations of an LKJ matrix are symmetric beta variables
    (Lewandowski, Kurowicka and Joe 2009, Section 2.4). Pure.

    Args:
        model: The model.
        key: Random key.
        given: A position whose hyperparameters (all but abilities and items) are
            kept; they are drawn too when None.

    Returns:
        The position and the general abilities; with one group ability is the general
        one.

    Raises:
        ValueError: If item parameters have priors that are given: only learned ones can
            be drawn from.

    >>> from irtjax.models.families.logistic import Binary
    >>> flat, no_covariates = jnp.ones((6, 1)), jnp.zeros((4, 0))
    >>> group, stem, fixed = jnp.arange(6) % 2, jnp.arange(6), jnp.array([-1])
    >>> model = Hierarchical(
    ...     Binary(slopes="positive"), group, stem, flat, fixed, no_covariates,
    ...     num_groups=2, num_stems=6,
    ... )
    >>> drawn = simulate_position(model, jax.random.key(0))
    >>> drawn.position.ability.shape, drawn.general.shape
    ((4, 2), (4,))
    """
    if model.priors:
        raise ValueError(
            f"simulate_position: {', '.join(model.priors)} has a prior that is given;"
            " leave priors empty, so that all are learned and can be drawn"
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
        spread=normal("spread"),
    )
    if model.correlated:
        pairs = lkj("residual_correlation", model.num_correlated)
        hyper = hyper._replace(residual_correlation=pairs)
    hyper = hyper if given is None else given
    return _below(model, hyper, keys["general"], normal("ability"), normal("items"))


def _below(model: Hierarchical, hyper: Position, key, own, residual) -> DrawnPosition:
    """Abilities and items of drawn hyperparameters, from standard normal numbers."""
    factor = model.residual_factor(
        hyper.log_residual_sd,
        hyper.residual_correlation,
        model.tilts(hyper),
        model.spreads(hyper),
    )[model.factor_row]
    items = model.item_means(hyper) + jnp.einsum("jab,jb->ja", factor, residual)
    mean = model.subject_design @ hyper.subject_effects
    general = mean + jax.random.normal(key, mean.shape, mean.dtype)
    ability = general[:, None]
    if model.num_groups > 1:
        factor = correlation_cholesky(hyper.correlation, model.num_groups)
        factor = jnp.exp(hyper.log_scale)[:, None] * factor
        ability = ability + own @ factor.T
    if not model.centred:
        whole = model.covariance_factor(hyper)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(whole, gap, lower=True).T
    return DrawnPosition(hyper._replace(ability=ability, items=items), general)


def simulate_multilevel(
    model: Hierarchical, position: Position, key: KeyArray
) -> Responses:
    """Random responses at a position of a multilevel model; nothing is missing. Pure.

    Args:
        model: The model.
        position: Its parameters, such as `simulate_position` draws.
        key: Random key.

    Returns:
        Responses `[subjects, items]`: int8, or logits of scores.
    """
    theta, items = model.abilities(position), model.items(position)
    keys = jax.random.split(key, model.group.shape[0])

    def column(key, item, group):
        one = jax.tree.map(lambda leaf: leaf[None], item)
        return model.family.sample(key, one, theta[:, group])[:, 0]

    values = jax.vmap(column, out_axes=1)(keys, items, model.group)
    return Responses(values)
