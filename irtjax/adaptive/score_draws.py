r"""Draws of items with known chances, for the score on all items (`select="score"`).

Given the responses so far, item j is right with the chance p_j, and
v_j = p_j (1 - p_j). The next item is drawn among those left with the chance

.. math:: q_j = (1 - u) \Bigl( (1 - e) \frac{\sqrt{v_j}}{\sum_k \sqrt{v_k}}
          + e \frac{g_j}{\sum_k g_k} \Bigr) + \frac{u}{J_{left}}.

The first part has the least variance of a score whose predictions are as they are
(Neyman 1934, JRSS 97). The second one explores: g_j is the expected decrease of the
variance of the ability that is reported, by which later predictions are better. The
third bounds the weight of a response from above.

`irtjax.prediction.rectified.drawn_score` is the estimate, which has no bias whatever
the predictions are worth. Its variance is estimated from its n draws and, counted as
n_0 = 20 of these, as the one expected from the predictions: where nearly all responses
are equal, a few draws alone underestimate it. The sum of responses and predictions

.. math:: \tilde s = \frac1J \Bigl( \sum_{answered} y_j + \sum_{left} p_j \Bigr)

is the predicted score, whose error is smaller if the model is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import stdtrit

from irtjax.prediction.rectified import drawn_score

if TYPE_CHECKING:
    from irtjax.adaptive.bank import AbstractBank
    from irtjax.adaptive.design import Design
    from irtjax.adaptive.state import State

#: u and e. With items as known and 5 % of 9,574 answered, e = 0 has the same squared
#: error for models of 16 factors, and about twice as much for models of 64.
UNIFORM, EXPLORING = 0.05, 0.25
#: Least variance of a response by which draws are weighted.
LEAST_NOISE = 0.01
#: Draws that the expected variance counts as: n_0.
EXPECTED_DRAWS = 20
#: Draws from which an error of the score is estimated well enough to end a test.
FEWEST_DRAWS = 20


class Draw(NamedTuple):
    """What an estimate needs of the draw of an item.

    Attributes:
        chance: q of the item, among those left.
        own: Its p.
        rest: Sum of p over the items left, this one too.
        variance: Expected variance by this draw alone of the sum of all responses.
    """

    chance: Float[Array, "*draws"]
    own: Float[Array, "*draws"]
    rest: Float[Array, "*draws"]
    variance: Float[Array, "*draws"]


class DrawnScore(NamedTuple):
    """The score on all items, from answers to drawn ones.

    Attributes:
        score: Unbiased estimate of the mean response.
        standard_error: Its standard error.
        lower: End of its interval.
        upper: The other end.
        answers: Number of answers.
        items: Number of items.
        predicted: The predicted score; its error is smaller if the model is right.
        predicted_error: Its standard error by the model.
    """

    score: float
    standard_error: float
    lower: float
    upper: float
    answers: int
    items: int
    predicted: float
    predicted_error: float


def draw_chances(
    bank: AbstractBank, design: Design, state: State
) -> tuple[Float[Array, " items"], Float[Array, " items"]]:
    """Chances q with which each item is drawn next, and p of the module."""
    left = state.available
    right = bank.predicted(state)[0]
    share = lambda x: x / jnp.maximum(jnp.sum(x), jnp.finfo(x.dtype).tiny)
    noise = jnp.sqrt(jnp.maximum(right * (1 - right), 0))
    noise = share(jnp.where(left, noise, 0))
    gain = share(jnp.where(left, jnp.maximum(bank.decrease(design, state), 0), 0))
    mixed = (1 - EXPLORING) * noise + EXPLORING * gain
    # Where all predictions are sure, or none explores, the rest is uniform.
    sure = 1 - jnp.sum(mixed)
    even = share(left.astype(right.dtype))
    return (1 - UNIFORM) * (mixed + sure * even) + UNIFORM * even, right


def draw_merit(
    bank: AbstractBank, design: Design, state: State
) -> Float[Array, " items"]:
    """Numbers whose largest is an item drawn by `draw_chances` (Gumbel 1954)."""
    chance = draw_chances(bank, design, state)[0]
    # One key for each draw, also of those that wait for their responses.
    number = jnp.sum(~state.available, dtype=jnp.int32)
    key = jax.random.fold_in(state.key, 2 + number)
    tiny = jnp.finfo(chance.dtype).tiny
    noise = jax.random.gumbel(key, chance.shape, chance.dtype)
    return jnp.log(jnp.maximum(chance, tiny)) + noise


def draw_of(bank: AbstractBank, design: Design, state: State, item: Array) -> Draw:
    """The draw of an item in the state in which it was chosen."""
    chance, right = draw_chances(bank, design, state)
    left, tiny = state.available, jnp.finfo(chance.dtype).tiny
    # Predictions that are too sure would give their draws too much weight.
    noise = jnp.maximum(right * (1 - right), LEAST_NOISE)
    square = jnp.where(left, noise / jnp.maximum(chance, tiny) - noise, 0)
    rest = jnp.sum(jnp.where(left, right, 0))
    return Draw(chance[item], right[item], rest, jnp.sum(square))


def estimate_drawn(
    draws: Draw,
    responses: np.ndarray,
    items: int,
    predicted: tuple[float, float],
    level: float,
) -> DrawnScore:
    """The score from draws in their order and their responses, NaN of skipped ones.

    Args:
        draws: Of each answered or skipped item.
        responses: `[draws]`; a skipped item counts as its prediction.
        items: Number of items of the score.
        predicted: Predicted score and its error.
        level: Level of the interval.
    """
    chance, own, rest, variance = (np.asarray(x, float) for x in draws)
    values = np.where(np.isnan(responses), own, responses)
    number = len(values)
    if number < 2:
        return DrawnScore(np.nan, np.nan, 0.0, 1.0, number, items, *predicted)
    # The last item of all has the variance 0.
    weights = 1 / np.maximum(variance, LEAST_NOISE**2)
    value, square = drawn_score(values, own, rest, chance, items, weights)
    expected = 1 / (items**2 * weights.sum())
    pooled = number * square + EXPECTED_DRAWS * expected
    error = 0.0 if number == items else math.sqrt(pooled / (number + EXPECTED_DRAWS))
    half = float(stdtrit(number - 1, 0.5 + level / 2)) * error
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    score = min(max(value, 0.0), 1.0)
    return DrawnScore(score, error, low, high, number, items, *predicted)


def score_of_records(
    records: Sequence[Mapping[str, float]], responses: Sequence[float], level: float
) -> DrawnScore:
    """The score from draws that a harness stored with its samples.

    The predicted score requires the model, and is NaN.

    Args:
        records: `AdaptiveTest.draw` of each item, in the order of the draws.
        responses: `[draws]`.
        level: Level of the interval.

    >>> draw = {"chance": 0.25, "own": 0.0, "rest": 0.0, "variance": 1.0, "items": 4}
    >>> score_of_records([draw, draw], [1.0, 0.0], 0.95).score
    0.625
    """
    columns: Any = [[float(x[name]) for x in records] for name in Draw._fields]
    items = int(records[0]["items"])
    values = np.asarray(responses, float)
    return estimate_drawn(Draw(*columns), values, items, (np.nan, np.nan), level)


def stopping_error(draws: Draw, responses: np.ndarray, items: int) -> float:
    """Error of the score for a rule that ends a test; infinite with few draws."""
    if len(responses) < FEWEST_DRAWS:
        return float("inf")
    return estimate_drawn(draws, responses, items, (0.0, 0.0), 0.95).standard_error


def predicted_score(
    bank: AbstractBank, state: State, responses: Any, allowed: Array
) -> tuple[Array, Array]:
    """The predicted score on the allowed items, and its standard error.

    Args:
        bank: The items.
        state: The test.
        responses: Sum of the responses so far.
        allowed: `[items]` items of the score.
    """
    right, variance = bank.predicted(state)
    left = state.available
    number = jnp.sum(allowed)
    noise = jnp.sum(jnp.where(left, right * (1 - right), 0))
    total = responses + jnp.sum(jnp.where(left, right, 0))
    return total / number, jnp.sqrt(variance + noise) / number
