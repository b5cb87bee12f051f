"""Scores in [0, 1] whose ends have probabilities of their own."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.scores import END
from irtjax.models.families.continuous import (
    AbstractScoreFamily,
    BetaScores,
    Path,
    first_and_second,
    here,
)
from irtjax.models.predictor import predictor
from irtjax.numerics.bijections import POSITIVE, Parameter
from irtjax.numerics.kernels import log_sigmoid


class InflatedItems(NamedTuple):
    """a, d, the precision between the ends, and the cuts k_0 < k_1.

    At a theta + d = k_0 half the scores are 0, at k_1 half are 1.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    dispersion: Float[Array, "*items"]
    lower_cut: Float[Array, "*items"]
    upper_cut: Float[Array, "*items"]


class InflatedBetaScores(AbstractScoreFamily):
    """Ordered beta scores: 0, 1 or between them, one ability behind all three.

    P(y = 0) = 1 - sigmoid(eta - k_0), P(y = 1) = sigmoid(eta - k_1) with
    eta = a theta + d and k_0 < k_1, and beta scores of mean sigmoid(eta) between
    (Kubinec 2022). Scores within `ends` of 0 or 1 are at it.
    """

    Items: ClassVar[type] = InflatedItems
    # The second is the distance between the cuts, as `complete` takes it.
    simulated = BetaScores.simulated | {
        "lower_cut": (-2.5, -1.0),
        "upper_cut": (3.0, 4.0),
    }
    ends: float = eqx.field(static=True, default=0.0)
    slopes: str = eqx.field(static=True, default="free")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept, dispersion and the cuts, as k_0 and a distance."""
        cuts = Parameter("lower_cut"), Parameter("upper_cut", POSITIVE)
        return *super().parameters, *cuts

    @property
    def ends_at(self) -> float | None:
        """`ends`."""
        return self.ends

    def complete(self, fields: dict[str, Array]) -> InflatedItems:
        """Puts the upper cut above the lower one."""
        upper = fields["lower_cut"] + fields["upper_cut"]
        return InflatedItems(**{**fields, "upper_cut": upper})

    def unconstrain(self, item: InflatedItems) -> Float[Array, " columns"]:
        """Coordinates: a or log a, d, log phi, k_0, log(k_1 - k_0)."""
        gap = item.upper_cut - item.lower_cut
        return super().unconstrain(item._replace(upper_cut=gap))

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """Indicators of 0 and of 1, and those of beta scores between."""
        low, high = values <= -END, values >= END
        inside = jnp.where(low | high, 0, values)
        kinds = (end.astype(values.dtype) for end in (low, high))
        return *kinds, *BetaScores().statistics(inside)

    def log_shares(self, item: InflatedItems, theta: Array) -> tuple[Array, ...]:
        """Log-probabilities of 0, of between, and of 1."""
        eta = predictor(item, theta)
        low, high = eta - item.lower_cut, eta - item.upper_cut
        # sigmoid(low) - sigmoid(high), without a difference of probabilities.
        gap = jnp.log(-jnp.expm1(item.lower_cut - item.upper_cut))
        between = log_sigmoid(low) + log_sigmoid(-high) + gap
        return log_sigmoid(-low), between, log_sigmoid(high)

    def natural(self, item: InflatedItems, theta: Array) -> tuple[Array, ...]:
        """Log density between the ends, and what the ends have in its place."""
        zero, between, one = self.log_shares(item, theta)
        base, up, down = BetaScores().natural(item, theta)
        base = base + between
        return base, zero - base, one - base, up, down

    def start(self, means: tuple[Array, ...], slope: Array) -> InflatedItems:
        """Cuts from the shares at the ends, the others from the scores between."""
        zeros, ones = (jnp.clip(share, 0.01, 0.8) for share in means[:2])
        between = jnp.maximum(1 - means[0] - means[1], 0.02)
        inner = (means[2] / between, means[3] / between)
        beta = BetaScores(self.slopes).start(inner, slope)
        # Mostly at one end, the few scores between hardly inform the mean.
        intercept = jnp.clip(beta.intercept, -3, 3)
        dispersion = jnp.clip(beta.dispersion, 0.1, 100)
        lower = jnp.log(zeros) - jnp.log1p(-zeros) + intercept
        upper = intercept - jnp.log(ones) + jnp.log1p(-ones)
        upper = jnp.maximum(upper, lower + 0.2)
        return InflatedItems(beta.discrimination, intercept, dispersion, lower, upper)

    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """Of the three shares, and of the beta density times the share between.

        With l = log P(between) + b, E[b'] = 0 and E[b''] = -E[b'^2].
        """
        item, theta = here(path)
        shares = [jnp.exp(x) for x in self.log_shares(item, theta)]
        along = lambda t: self.log_shares(*path(t))
        first, second = first_and_second(along, theta.dtype)
        square, cross = BetaScores().path_moments(path)
        parts = list(zip(shares, first, second, strict=True))
        information = sum(p * up**2 for p, up, _ in parts)
        skew = sum(p * up * bend for p, up, bend in parts)
        skew = skew + shares[1] * (cross - first[1] * square)
        return information + shares[1] * square, skew

    def expected_response(self, item: InflatedItems, theta: Array) -> Array:
        """Mean score: P(1) + P(between) sigmoid(a theta + d)."""
        _, between, one = self.log_shares(item, theta)
        mean = jax.nn.sigmoid(predictor(item, theta))
        return jnp.exp(one) + jnp.exp(between) * mean

    def sample(self, key: KeyArray, items: InflatedItems, theta: Array) -> Array:
        """Random logits, and codes of the ends."""
        part_key, key = jax.random.split(key)
        shares = jax.vmap(lambda t: jnp.stack(self.log_shares(items, t), -1))(theta)
        part = jax.random.categorical(part_key, shares, axis=-1)
        inside = BetaScores().sample(key, items, theta)
        return jnp.where(part == 0, -END, jnp.where(part == 2, END, inside))
