"""Which subjects and items respond otherwise than a model expects: Zh, lz*, infit.

With l the log-likelihood of a subject's responses at its ability, over its items,

    Zh = (l - E l) / sqrt(Var l),

which is far below 0 for a subject with improbable responses, as one that is right on
hard items and wrong on easy ones (Drasgow, Levine and Williams 1985). The same sums
over the subjects of an item are its Zh.

An estimated ability takes up part of the misfit, so that Zh varies too little. lz* is
the part of l - E l that is uncorrelated with the score s = dl / d(ability),

    lz* = (l - E l - c s) / sqrt(Var l - c Cov(l, s)),   c = Cov(l, s) / Var s,

which is standard normal for many items at any consistent estimate of ability. At the
maximum likelihood s is 0, at the mode of a posterior minus the slope of the log prior:
these are the statistics of Snijders (2001).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.numerics.programs import stored_jit


class ResponseFit(NamedTuple):
    """Fit of subjects or of items, NaN without responses.

    Attributes:
        zh: Standardised log-likelihood; negative where responses are improbable.
        lz_star: The same with the variance that it has at an estimated ability; of
            subjects only.
        infit: Sum of squared residuals over that of their variances; 1 is expected.
        outfit: Mean squared standardised residual; 1 is expected.
    """

    zh: np.ndarray
    lz_star: np.ndarray
    infit: np.ndarray
    outfit: np.ndarray


@stored_jit
def _cells(family: Any, items: Any, theta: Any, values: Any, seen: Any) -> Any:
    """Sums over items `[9, subjects]` and over subjects `[9, items]`."""

    def log_chances(item, ability):
        return jnp.maximum(family.category_log_probs(item, ability), -30.0)

    def of_cell(item, ability, value):
        logs = log_chances(item, ability)
        slopes = jax.jacfwd(log_chances, argnums=1)(item, ability)
        chances = jnp.exp(logs)
        codes = jnp.asarray(family.category_codes, chances.dtype)
        mean, expected = chances @ codes, chances @ logs
        variance = jnp.maximum(chances @ (codes - mean) ** 2, 1e-12)
        gap = jnp.sum(jnp.where(codes == value, logs, 0)) - expected
        square = (value - mean) ** 2
        entropy = chances @ (logs - expected) ** 2
        score = jnp.sum(jnp.where(codes == value, slopes, 0))
        joint, information = chances @ (logs * slopes), chances @ slopes**2
        standardised = square / variance
        sums = gap, entropy, square, variance, standardised, 1.0
        return jnp.stack([*sums, score, joint, information])

    over_items = jax.vmap(of_cell, in_axes=(0, None, 0))
    cells = jax.vmap(over_items, in_axes=(None, 0, 0))(items, theta, values)
    cells = jnp.where(seen[..., None], cells, 0)
    return cells.sum(1).T, cells.sum(0).T


def response_fit(
    family: Any, items: Any, theta: np.ndarray, values: np.ndarray, seen: np.ndarray
) -> tuple[ResponseFit, ResponseFit]:
    """Fit of subjects and of items of one ability, responses in categories.

    Args:
        family: The response family.
        items: Item records `[items]`.
        theta: `[subjects]` abilities.
        values: `[subjects, items]` responses.
        seen: `[subjects, items]` whether there is a response.
    """
    kind = jnp.asarray(items[0]).dtype
    sums = _cells(family, items, *(jnp.asarray(x, kind) for x in (theta, values)), seen)
    by_subject, by_item = (_of_sums(np.asarray(x, np.float64)) for x in sums)
    return by_subject, by_item


def _of_sums(sums: np.ndarray) -> ResponseFit:
    """The statistics of their sums."""
    gap, entropy, square, variance, standardised, count, *at_ability = sums
    score, joint, information = at_ability
    slope = joint / np.maximum(information, 1e-300)
    rest = np.maximum(entropy - slope * joint, 0)
    # Equal items leave the score alone: no part of l is uncorrelated with it.
    rest = np.where(rest > 1e-9 * entropy, rest, np.nan)
    defined = lambda x: np.where(count > 0, x, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ResponseFit(
            defined(gap / np.sqrt(entropy)),
            defined((gap - slope * score) / np.sqrt(rest)),
            defined(square / variance),
            defined(standardised / count),
        )
