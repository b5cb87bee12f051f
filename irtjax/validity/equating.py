r"""Scores on one version of a benchmark as scores on another.

With T_k(theta) the expected number right on all items of version k, and abilities
theta_old = A theta_new + B (`validity.linking`), the score s of the new version is
equated to

    true       T_old(A t + B),  T_new(t) = s,                                        (1)
    observed   F_old^-1(F_new(s)),                                                   (2)

F the distribution of scores in the old version's population, made continuous by uniform
densities about each score (Kolen and Brennan 2014, chapters 2 and 6). The distribution
of a sum of independent responses is the inverse Fourier transform of the product of
their characteristic functions (Hong 2013). Standard errors are those of the delta
method by all items of both versions, directly and through A and B, which are not
independent of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.frames import HasTable
from irtjax.validity.link_estimation import (
    NODES,
    WEIGHTS,
    Form,
    family_of,
    moves_of_forms,
)
from irtjax.validity.linking import Link, link

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration
    from irtjax.models.family import AbstractResponseFamily

KINDS = "true", "observed"
#: Items of a version up to which scores are equated: errors have a row for each score.
MOST_ITEMS = 400
#: Abilities between which the one of a true score is sought, and halvings.
RANGE, HALVINGS = 40.0, 60


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Equating(HasTable):
    """Scores on the new version as scores on the old one.

    Attributes:
        table: `score`: number right on all items of the new version, `equated`: the
            number right on all items of the old one, `equated_se`.
        kind: "true" or "observed".
        link: The link of the two.
    """

    table: pa.Table
    kind: str
    link: Link


def equate(
    old: Calibration, new: Calibration, *, kind: str = "true", method: str = "robust"
) -> Equating:
    """Equates numbers right on all items of two versions of a benchmark.

    Args:
        old: The calibration of the version on which scores are wanted.
        new: The calibration of the version on which scores are known.
        kind: "true" (expected scores of equal ability) or "observed" (scores of equal
            rank in the old version's population).
        method: A method of `irtjax.link`.

    Returns:
        The equated scores; see `Equating`.

    Raises:
        ValueError: For another kind, versions with more than 400 items, responses that
            are not right or wrong, and what `irtjax.link` refuses.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch", method="em")
    >>> equated = irtjax.equate(fit, fit, method="mean_mean")
    >>> equated.table["equated"].to_numpy().round(6).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    import pyarrow as pa

    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    most = max(len(fit.item_names) for fit in (old, new))
    if most > MOST_ITEMS:
        raise ValueError(
            f"a version has {most:,} items, and scores on at most {MOST_ITEMS} are"
            " equated: compare abilities (`irtjax.link`)"
        )
    family = family_of(old)
    if family.num_categories != 2:
        raise ValueError(
            f"scores of right and wrong responses are equated, and a {old.model.name}"
            " model has others: compare abilities (`irtjax.link`)"
        )
    result = link(old, new, method=method)
    with jax.enable_x64(True):
        forms = result.forms
        of = _true if kind == "true" else _observed
        start = _abilities_at(family, forms[1].x)
        equated, slopes = _with_slopes(
            of,
            family,
            (forms[0].x, forms[1].x, result.estimate.constants[1]),
            start,
            np.array(forms[0].population),
        )
        equated = np.asarray(equated)
        error = _errors(forms, result, [np.asarray(x) for x in slopes])
    columns = {
        "score": np.arange(len(equated)),
        "equated": equated,
        "equated_se": error,
    }
    return Equating(pa.table(columns), kind, result)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _with_slopes(
    of: Callable[..., jax.Array],
    family: AbstractResponseFamily,
    arguments: tuple[np.ndarray, np.ndarray, np.ndarray],
    start: np.ndarray,
    population: np.ndarray,
) -> tuple[jax.Array, Any]:
    """Equated scores, and their derivatives in the items of both, A and B."""
    value = functools.partial(of, family, start, population)
    return value(*arguments), jax.jacrev(value, argnums=(0, 1, 2))(*arguments)


def _chances(family: AbstractResponseFamily, x: Any, theta: Any) -> jax.Array:
    """Chances of a right response, `[abilities, items]`."""
    response = jax.vmap(family.expected_response, (0, None))
    return jax.vmap(response, (None, 0))(jax.vmap(family.constrain)(x), theta)


@functools.partial(jax.jit, static_argnums=0)
def _expected_totals(family: AbstractResponseFamily, x: Any, theta: Any) -> jax.Array:
    """Expected numbers right on all items, `[abilities]`."""
    return _chances(family, x, theta).sum(axis=1)


def _abilities_at(family: AbstractResponseFamily, x: np.ndarray) -> np.ndarray:
    """Abilities whose expected score is 1, 2, ... J - 1, by bisection.

    Scores that no ability has, such as those by guessing alone, have the ends.
    """
    scores = np.arange(1, len(x))
    low, high = np.full(len(scores), -RANGE), np.full(len(scores), RANGE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = np.asarray(_expected_totals(family, x, middle)) < scores
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _true(family, start, population, old, new, constants) -> jax.Array:
    """(1); a step of Newton's method from its solution has the derivatives of it.

    Between 0 and the least expected score it is linear, and above the largest.
    """
    total = functools.partial(_expected_totals, family)
    scores = jnp.arange(1, len(new), dtype=new.dtype)
    reached, slope = jax.jvp(
        functools.partial(total, jax.lax.stop_gradient(new)),
        (jnp.asarray(start),),
        (jnp.ones(len(start)),),
    )
    inside = jnp.abs(reached - scores) < 1e-6
    step = (total(new, start) - scores) / jnp.where(inside, slope, 1.0)
    ability = start - jnp.where(inside, step, 0.0)
    equated = total(old, constants[0] * ability + constants[1])
    xs = jnp.concatenate([jnp.zeros(1), scores, jnp.full(1, float(len(new)))])
    ys = jnp.concatenate([jnp.zeros(1), equated, jnp.full(1, float(len(old)))])
    weight = jnp.concatenate([jnp.ones(1, bool), inside, jnp.ones(1, bool)])
    # Points that no ability has are between the nearest that some has.
    place = jnp.arange(len(xs))
    below = jax.lax.cummax(jnp.where(weight, place, 0))
    above = jnp.flip(jax.lax.cummin(jnp.flip(jnp.where(weight, place, len(xs) - 1))))
    share = (place - below) / jnp.maximum(above - below, 1)
    return ys[below] + share * (ys[above] - ys[below])


def _distribution(chances: jax.Array) -> jax.Array:
    """Distribution of the number right over the population, `[items + 1]`."""
    size = chances.shape[1] + 1
    turn = jnp.exp(-2j * jnp.pi * jnp.arange(size) / size)
    product = jnp.prod(1 + chances[:, None, :] * (turn[:, None] - 1), axis=2)
    return jnp.fft.ifft(jnp.asarray(WEIGHTS) @ product).real


def _observed(family, start, population, old, new, constants) -> jax.Array:
    """(2), at the abilities of the old version's population."""
    mean, sd = population
    theta = mean + sd * jnp.asarray(NODES)
    there = (theta - constants[1]) / constants[0]
    f_old, f_new = (
        _distribution(_chances(family, x, t)) for x, t in ((old, theta), (new, there))
    )
    rank = jnp.cumsum(f_new) - f_new / 2
    ends = jnp.concatenate([jnp.zeros(1), jnp.cumsum(f_old)])
    return jnp.interp(rank, ends, jnp.arange(len(ends)) - 0.5)


def _errors(
    forms: Sequence[Form], result: Link, slopes: list[np.ndarray]
) -> np.ndarray:
    """Standard errors of equated scores from derivatives in items, A and B."""
    by_items, estimate = np.concatenate(slopes[:2], axis=1), result.estimate
    total = by_items + np.einsum("se,ejp->sjp", slopes[2], estimate.derivative[1])
    own = np.concatenate([form.own for form in forms])
    finite = np.isfinite(own).all(axis=(1, 2))
    used = total[:, finite]
    # "robust" counts by how much items differ more than their errors.
    spread = own[finite] * estimate.dispersion
    variance = np.einsum("sjp,jpq,sjq->s", used, spread, used, optimize=True)
    if np.ndim(estimate.by_subjects):
        block = np.asarray(estimate.by_subjects)[2:, 2:]
        variance += np.einsum("se,ef,sf->s", slopes[2], block, slopes[2])
    moves = moves_of_forms(by_items, forms) + slopes[2] @ estimate.by_scale[:, 2:]
    for moved, form in zip(moves, forms, strict=True):
        variance += np.sum((moved @ form.scale) ** 2, axis=1)
    return np.sqrt(variance) if finite.any() else np.full(len(variance), np.nan)
