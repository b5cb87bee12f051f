"""Items of two kinds in one fit: right or wrong, and scores."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray
from irtjax.models.families.continuous import (
    AbstractScoreFamily,
    LogitNormalScores,
    Path,
    ScoreItems,
    by_covariance,
    here,
    normal_covariance,
    normal_mean,
    normal_natural,
    score_parameters,
)
from irtjax.models.predictor import predictor
from irtjax.numerics.bijections import Parameter
from irtjax.numerics.kernels import softplus

#: Coordinate of the dispersion of an item that has none.
_NO_DISPERSION = -60.0
#: Added to that coordinate: so far down that no prior brings it back.
_OUT_OF_USE = -1000.0


class MixedScores(AbstractScoreFamily):
    """Some items right or wrong (2PL, or counts of trials), others logit-normal.

    Both have the statistics z and z^2, a right response being z = 1: what differs is g,
    so one fit has both kinds and nothing is selected cell by cell.

    Attributes:
        binary: For each item, whether it is right or wrong.
        slopes: "free" (any sign) or "positive".

    >>> family = MixedScores(binary=(True, False))
    >>> item = ScoreItems(*map(jnp.asarray, (1.0, 0.0, 0.0)))
    >>> float(family.information(item, jnp.array(0.0)))
    0.25
    """

    Items: ClassVar[type] = ScoreItems
    simulated: ClassVar[dict[str, tuple[float, float]]] = {"dispersion": (0.5, 1.5)}
    binary: tuple[bool, ...] = eqx.field(static=True)
    slopes: str = eqx.field(static=True, default="free")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept and dispersion."""
        return score_parameters(self.slopes)

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
        is_score = item.dispersion > 0
        normal = normal_natural(eta, jnp.where(is_score, item.dispersion, 1))
        binary = -softplus(eta), eta, jnp.zeros_like(eta)
        both = zip(normal, binary, strict=True)
        return tuple(jnp.where(is_score, one, two) for one, two in both)

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """Of each kind its own; start values come for all items at once."""
        score = LogitNormalScores(self.slopes).start(means, slope)
        rate = jnp.clip(means[0], 0.01, 0.99)
        lowest = 0.2 if self.slopes == "positive" else -jnp.inf
        steep = jnp.maximum(slope, lowest)
        easy = (jnp.log(rate) - jnp.log1p(-rate)) * jnp.sqrt(1 + (steep / 1.702) ** 2)
        binary = ScoreItems(steep, easy, jnp.zeros_like(slope))
        which = jnp.asarray(self.binary)
        return jax.tree.map(lambda b, s: jnp.where(which, b, s), binary, score)

    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """From the covariance of the statistics; of a binary one all are P (1 - P)."""
        item, theta = here(path)
        eta = predictor(item, theta)
        is_score = item.dispersion > 0
        normal = normal_covariance(eta, jnp.where(is_score, item.dispersion, 1))
        spread = jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)
        covariance = tuple(
            tuple(jnp.where(is_score, x, spread) for x in row) for row in normal
        )
        return by_covariance(self, path, covariance)

    def log_base(
        self, values: Float[Array, "subjects items"], items: ScoreItems
    ) -> Float[Array, "subjects items"]:
        """As of all scores; 0 for answers that are right or wrong."""
        return jnp.where(items.dispersion > 0, super().log_base(values, items), 0)

    def to_scores(self, values: Array, items: ScoreItems) -> Array:
        """Scores of logits; right and wrong as they are."""
        return jnp.where(items.dispersion > 0, jax.nn.sigmoid(values), values)

    def tame(self, values: Array) -> Array:
        """Values as they are: counts may be large."""
        return values

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Probability of a right response, or mean score."""
        eta = predictor(item, theta)
        mean = normal_mean(eta, jnp.where(item.dispersion > 0, item.dispersion, 1))
        return jnp.where(item.dispersion > 0, mean, jax.nn.sigmoid(eta))

    def sample(self, key: KeyArray, items: ScoreItems, theta: Array) -> Array:
        """Random logits, and 0 or 1."""
        score_key, key = jax.random.split(key)
        logits = LogitNormalScores().sample(score_key, items, theta)
        eta = predictor(items, theta[:, None])
        right = jax.random.bernoulli(key, jax.nn.sigmoid(eta))
        return jnp.where(items.dispersion > 0, logits, right.astype(logits.dtype))
