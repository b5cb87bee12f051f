r"""Chances of a win, a loss and a tie as functions of a difference of abilities.

With d the difference, G the logistic or normal distribution function:

- `bradley_terry` (Bradley and Terry 1952) and `thurstone` (1927, case V): P(win) is
  G(d). A tie is half a win and half a loss, or is left out.
- `davidson` (1970): P(win) : P(tie) : P(loss) = e^(d/2) : nu : e^(-d/2).
- `rao_kupper` (1967): P(win) = G(d - h), P(loss) = G(-d - h), else a tie, h > 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

#: Links of a win, by the name of the model.
LINKS: dict[str, Callable] = {
    "bradley_terry": jax.nn.log_sigmoid,
    "thurstone": log_ndtr,
}
#: Rules for ties.
TIES = ("half", "drop", "davidson", "rao_kupper")


class PairFamily(NamedTuple):
    """How a difference of abilities becomes an outcome.

    Attributes:
        link: A name of `LINKS`.
        ties: A name of `TIES`; the last two have one parameter, log nu or log h.
    """

    link: str = "bradley_terry"
    ties: str = "half"

    @property
    def num_shapes(self) -> int:
        """Number of parameters of ties."""
        return int(self.ties in ("davidson", "rao_kupper"))

    @property
    def real(self) -> Array:
        """`[3]` 1 for outcomes that the family has, else 0."""
        return jnp.array([1.0, 1.0, self.num_shapes])

    def log_chances(
        self, difference: Float[Array, ""], shape: Float[Array, " shapes"]
    ) -> Float[Array, " outcomes"]:
        """Log-probabilities of a win, a loss and a tie.

        Where ties are halves or left out, the last one is 0 and stands for nothing.
        """
        log_g = LINKS[self.link]
        if self.ties == "davidson":
            half = difference / 2
            three = jnp.stack([half, -half, shape[0]])
            return jax.nn.log_softmax(three)
        if self.ties == "rao_kupper":
            cut = jnp.exp(shape[0])
            win, loss = log_g(difference - cut), log_g(-difference - cut)
            if self.link == "bradley_terry":
                # 1 - G(d - h) - G(-d - h) = (1 - e^(-2h)) G(d + h) G(h - d).
                product = log_g(difference + cut) + log_g(cut - difference)
                tie = jnp.log(-jnp.expm1(-2 * cut)) + product
            else:
                # G(d + h) - G(d - h), from the side of the smaller tail.
                size = jnp.abs(difference)
                upper, lower = log_g(cut - size), log_g(-cut - size)
                tie = upper + jnp.log(-jnp.expm1(lower - upper))
            return jnp.stack([win, loss, tie])
        return jnp.stack([log_g(difference), log_g(-difference), jnp.zeros(())])

    def log_chances_at(self, local: Array) -> Array:
        """The same of a difference followed by the shapes."""
        return self.log_chances(local[0], local[1:])

    def counts(self, outcomes: Any) -> Any:
        """Wins, losses and ties `[rows, 3]` as the rule for ties counts them."""
        win, loss, tie = outcomes[..., 0], outcomes[..., 1], outcomes[..., 2]
        if self.num_shapes:
            return outcomes
        half = tie / 2 if self.ties == "half" else 0 * tie
        numpy: Any = np if isinstance(outcomes, np.ndarray) else jnp
        counts = numpy.stack([win + half, loss + half, 0 * tie])
        return numpy.moveaxis(counts, 0, -1)  # Columns stay contiguous.

    def expected_share(
        self, difference: Float[Array, ""], shape: Float[Array, " shapes"]
    ) -> Float[Array, ""]:
        """Chance of a win and half that of a tie."""
        chances = jnp.exp(self.log_chances(difference, shape))
        tie = chances[2] / 2 if self.num_shapes else 0.0
        return chances[0] + tie


@partial(jax.jit, static_argnums=0)
def row_derivatives(model: Any, local: Array, counts: Array):
    """Log-likelihoods of rows, their gradients and Hessians in local coordinates.

    Args:
        model: A `PairFamily`, or a `mixed.Kind`.
        local: `[rows, coordinates]` what the chances of a row depend on.
        counts: `[rows, outcomes]` numbers of outcomes.
    """

    def one(z, n):
        def value(z):
            # Of an outcome without counts the log-probability may be -inf.
            return jnp.sum(jnp.where(n > 0, n * model.log_chances_at(z), 0.0))

        slope = jax.grad(value)
        return value(z), slope(z), jax.jacfwd(slope)(z)

    return jax.vmap(one)(local, counts)


@partial(jax.jit, static_argnums=0)
def row_slopes(model: Any, local: Any):
    """Log-probabilities of rows, and their derivatives."""
    chances = model.log_chances_at
    return jax.vmap(lambda z: (chances(z), jax.jacfwd(chances)(z)))(local)


def outcome_scores(model: Any, family: PairFamily, local: Any) -> np.ndarray:
    """Derivatives `[rows, outcomes, coordinates]` of log-probabilities of outcomes.

    Ties that are halves have the mean of a win and a loss.

    Args:
        model: As for `row_derivatives`.
        family: Its family.
        local: `[rows, coordinates]`.
    """
    scores = np.array(row_slopes(model, local)[1], np.float64)
    if not family.num_shapes:
        scores[:, 2:] = 0.0
        if family.ties == "half":
            scores[:, 2] = scores[:, :2].mean(axis=1)
    return scores


@partial(jax.jit, static_argnums=0)
def expectations(model: Any, local: Array):
    """Chances `[rows, outcomes]`, shares of points, and slopes `[rows, coordinates]`.

    The slopes are those of the shares, in which a tie is half a win.
    """

    def share(z):
        chance = model.real * jnp.exp(model.log_chances_at(z))
        return chance[0] + chance[2:].sum() / 2, chance

    every = jax.vmap(jax.value_and_grad(share, has_aux=True))
    (value, chance), slope = every(local)
    return chance, value, slope


def expected_information(model: Any, local: Any, counts: np.ndarray) -> np.ndarray:
    """Fisher information `[rows, coordinates, coordinates]` of as many comparisons."""
    logs, slope = map(np.asarray, row_slopes(model, local))
    weight = counts.sum(axis=1, keepdims=True) * np.exp(logs) * np.asarray(model.real)
    return np.einsum("ro,roa,rob->rab", weight, slope, slope)
