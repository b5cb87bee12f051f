"""Items of two kinds in one fit: right or wrong, and scores."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray
from irtjax.models.families.continuous import (
    AbstractScoreFamily,
    LogitNormalScores,
    ScoreItems,
)
from irtjax.models.predictor import predictor, start_slope
from irtjax.numerics.kernels import softplus

#: Coordinate of the dispersion of an item that has none.
_NO_DISPERSION = -60.0
#: Added to that coordinate: so far down that no prior brings it back.
_OUT_OF_USE = -1000.0


class MixedScores(AbstractScoreFamily):
    """Some items right or wrong (2PL, or counts of trials), others logit-normal.

    Both have the statistics z and z^2, a right response being z = 1: what differs is g,
    so one fit has both kinds and nothing is selected cell by cell. `binary` states
    which items are right or wrong.

    >>> family = MixedScores(binary=(True, False))
    >>> item = ScoreItems(*map(jnp.asarray, (1.0, 0.0, 0.0)))
    >>> float(family.information(item, jnp.array(0.0)))
    0.25
    """

    simulated = LogitNormalScores.simulated
    binary: tuple[bool, ...] = eqx.field(static=True)
    slopes: str = eqx.field(static=True, default="free")

    def complete(self, fields: dict[str, Array]) -> ScoreItems:
        """Dispersion 0 for items that are right or wrong."""
        dispersion = fields["dispersion"]
        none = dispersion < jnp.exp(jnp.asarray(_NO_DISPERSION + 1, dispersion.dtype))
        if dispersion.shape == (len(self.binary),):
            none = none | jnp.asarray(self.binary)
        return ScoreItems(**{**fields, "dispersion": jnp.where(none, 0, dispersion)})

    def unconstrain(self, item: ScoreItems) -> Float[Array, " columns"]:
        """Coordinates: a or log a, d, log sigma or a mark for none."""
        row = super().unconstrain(item)
        return row.at[2].set(jnp.where(item.dispersion > 0, row[2], _NO_DISPERSION))

    def in_use(self, item: ScoreItems, name: str) -> Array | bool:
        """Dispersions are those of the scores."""
        return item.dispersion > 0 if name == "dispersion" else True

    def free_columns(self, num_items: int) -> Bool[Array, "items columns"]:
        """All but the dispersions of items that are right or wrong."""
        if num_items != len(self.binary):
            raise ValueError(
                f"the model is for {len(self.binary)} items which are right or wrong,"
                f" but there are {num_items}"
            )
        every = super().free_columns(num_items)
        return every.at[:, 2].set(~jnp.asarray(self.binary))

    def offsets(self) -> np.ndarray | None:
        """Far below for the dispersions of items that are right or wrong."""
        offsets = np.zeros((len(self.binary), self.num_columns))
        offsets[np.asarray(self.binary), 2] = _OUT_OF_USE
        return offsets

    def of_items(self, places: Any) -> MixedScores:
        """The family of some of the items."""
        chosen = np.asarray(self.binary)[np.asarray(places)]
        return MixedScores(tuple(map(bool, chosen)), self.slopes)

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The response, 0 and 1 or a logit, and its square."""
        return values, values**2

    def natural(self, item: ScoreItems, theta: Array) -> tuple[Array, ...]:
        """Of the 2PL where there is no dispersion, else of the logit-normal."""
        eta = predictor(item, theta)
        normal = LogitNormalScores().natural(_as_score(item), theta)
        binary = -softplus(eta), eta, jnp.zeros_like(eta)
        pairs = zip(normal, binary, strict=True)
        return tuple(jnp.where(item.dispersion > 0, one, two) for one, two in pairs)

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """Of each kind its own; start values come for all items at once."""
        score = LogitNormalScores(self.slopes).start(means, slope)
        rate = jnp.clip(means[0], 0.01, 0.99)
        steep = start_slope(slope, self.slopes)
        easy = (jnp.log(rate) - jnp.log1p(-rate)) * jnp.sqrt(1 + (steep / 1.702) ** 2)
        binary = ScoreItems(steep, easy, jnp.zeros_like(slope))
        is_binary = jnp.asarray(self.binary)
        return jax.tree.map(lambda b, s: jnp.where(is_binary, b, s), binary, score)

    def covariance(self, item: ScoreItems, theta: Array) -> tuple[Any, Any]:
        """Covariance of the statistics; all entries of a binary item are P (1 - P)."""
        eta = predictor(item, theta)
        binary = jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)
        normal = LogitNormalScores().covariance(_as_score(item), theta)
        return jax.tree.map(lambda x: jnp.where(item.dispersion > 0, x, binary), normal)

    def log_base(self, values: Array, items: ScoreItems) -> Array:
        """As of all scores; 0 for responses that are right or wrong."""
        return jnp.where(items.dispersion > 0, super().log_base(values, items), 0)

    def to_scores(self, values: Array, items: ScoreItems) -> Array:
        """Scores of logits; right and wrong as they are."""
        return jnp.where(items.dispersion > 0, jax.nn.sigmoid(values), values)

    def tame(self, values: Array) -> Array:
        """Values as they are: counts may be large."""
        return values

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Probability of a right response, or mean score."""
        mean = LogitNormalScores().expected_response(_as_score(item), theta)
        chance = jax.nn.sigmoid(predictor(item, theta))
        return jnp.where(item.dispersion > 0, mean, chance)

    def sample(self, key: KeyArray, items: ScoreItems, theta: Array) -> Array:
        """Random logits, and 0 or 1."""
        score_key, key = jax.random.split(key)
        logits = LogitNormalScores().sample(score_key, items, theta)
        eta = predictor(items, theta[:, None])
        right = jax.random.bernoulli(key, jax.nn.sigmoid(eta))
        return jnp.where(items.dispersion > 0, logits, right.astype(logits.dtype))


def _as_score(item: ScoreItems) -> ScoreItems:
    """The item, with a dispersion of 1 where it has none."""
    dispersion = jnp.where(item.dispersion > 0, item.dispersion, 1)
    return item._replace(dispersion=dispersion)
