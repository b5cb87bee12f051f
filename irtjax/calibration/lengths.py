"""Response lengths in a calibration: columns, warnings, identification."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from irtjax.data.table import ResponseTable
from irtjax.likelihood.lengths import LengthPart
from irtjax.models.family import Items
from irtjax.models.lengths import LengthParameters
from irtjax.uncertainty import LengthCovariance, SpeedError

#: Slopes smaller than this are taken as zero when identification is judged.
ZERO_SLOPE = 1e-3


def item_columns(
    parameters: LengthParameters, covariance: LengthCovariance | None
) -> dict[str, np.ndarray | None]:
    """Length parameters of the items with standard errors, by column name.

    The error of a residual variance is that of its logarithm times itself.
    """
    columns: dict[str, np.ndarray | None] = {}
    for k, (name, value) in enumerate(parameters.items._asdict().items()):
        columns[name] = np.asarray(value, np.float64)
        error = None
        if covariance is not None:
            error = np.sqrt(np.asarray(covariance.lengths, np.float64)[:, k, k])
            error = error * columns[name] if name == "residual_variance" else error
        columns[f"{name}_se"] = error
    return columns


def ability_columns(
    part: LengthPart,
    ability: Array | np.ndarray,
    error: Array | np.ndarray,
    shared: Array | np.ndarray | None = None,
    parameters: SpeedError | None = None,
) -> dict[str, Array]:
    """Speed of each subject with its standard error.

    With the correlation of the errors of ability and speed, r, the two errors are
    joint: given the other, each is smaller by the factor sqrt(1 - r^2).

    Args:
        part: The lengths at their parameters.
        ability: Scores of ability.
        error: Their errors.
        shared: `[subjects, rank]` what these share; see `Scores.shared`.
        parameters: What the parameters' own error adds; None takes them as known.
    """
    speed = part.model.speed(
        part.parameters, part.summary, jnp.asarray(ability), jnp.asarray(error) ** 2
    )
    variance, together = speed.variance, speed.covariance
    if parameters is not None and shared is not None:
        # An error of ability brings `lean` times itself, which is in `variance`
        # already; its covariance with the other terms is not.
        rest = 1 - part.parameters.correlation**2
        lean = part.parameters.correlation / (1 + rest * part.summary.precision)
        tied = jnp.sum(shared * parameters.shared, axis=1)
        added = 2 * lean * tied + jnp.sum(parameters.shared**2, axis=1)
        variance = variance + added + parameters.own
        together = together + tied
    spread = jnp.sqrt(variance)
    return {
        "speed": speed.mean,
        "speed_se": spread,
        "ability_speed_correlation": together / jnp.maximum(spread * error, 1e-300),
    }


def correlation_error(
    parameters: LengthParameters, covariance: LengthCovariance | None
) -> float | None:
    """Standard error of the correlation of ability and speed, by the delta method."""
    if covariance is None:
        return None
    rho = float(parameters.correlation)
    return float(np.sqrt(covariance.atanh_correlation)) * (1 - rho**2)


def correlation_interval(rho, error, level: float):
    """Bounds of the correlation: an interval of atanh(rho), carried back.

    Its error is more nearly normal and of constant size than that of rho (Fisher's z).

    Args:
        rho: Estimate.
        error: Standard error of the estimate (not of its atanh).
        level: Probability of the interval.
    """
    half = ndtri(0.5 + level / 2) * error / (1 - rho**2)
    return np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)


def warnings_of(
    table: ResponseTable, items: Items, parameters: LengthParameters, offset: float
) -> list[str]:
    """Warnings about the lengths, and whether the model is identified.

    Theorem 1 of the LaRT paper requires two items with a discrimination that is not 0
    and two with a speed discrimination that is not 0; the directions of ability and
    speed are fixed by positive sums (its Proposition 1).
    """
    found: list[str] = []
    assert table.lengths is not None
    none = int(np.count_nonzero(table.lengths == 0))
    if none:
        found.append(
            f"{none:,} of {np.count_nonzero(~np.isnan(table.lengths)):,} lengths are 0:"
            f" log({offset:g} + length) was used for all"
        )
    missing = int(np.count_nonzero(np.isnan(table.lengths)))
    if missing:
        found.append(f"{missing:,} of {table.lengths.size:,} lengths are missing")
    for name, slope in (
        ("discrimination", items.discrimination),
        ("speed discrimination", parameters.items.speed_discrimination),
    ):
        size = np.abs(np.asarray(slope))
        count = int((size > ZERO_SLOPE).sum())
        if count < 2:
            found.append(
                f"{count} item{'s' * (count != 1)} with a {name} other than 0: ability"
                " and speed are not identified, which takes two"
            )
    return found
