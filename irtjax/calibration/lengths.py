"""Response lengths in a calibration: columns, warnings, identification."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted
from irtjax.estimators.estimates import LengthEstimates
from irtjax.likelihood.lengths import LengthPart
from irtjax.likelihood.problem import Parameters
from irtjax.uncertainty import SpeedError

#: Slopes smaller than this are taken as zero when identification is judged.
ZERO_SLOPE = 1e-3


def item_columns(found: LengthEstimates | None) -> dict[str, np.ndarray | None]:
    """Length parameters of the items with standard errors, by column name."""
    columns: dict[str, np.ndarray | None] = {}
    if found is None:
        return columns
    items = found.part.parameters.items._asdict()
    for k, (name, value) in enumerate(items.items()):
        columns[name] = np.asarray(value, np.float64)
        error = None
        if found.covariance is not None:
            error = np.sqrt(np.asarray(found.covariance.lengths, np.float64)[:, k, k])
            # That of a variance is the error of its logarithm times itself.
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

    With the correlation r of the errors of ability and speed: given the other, each
    error is smaller by the factor sqrt(1 - r^2). `shared` are loadings of the errors of
    ability (`Scores.shared`); `parameters` is the part of the errors of speed due to
    errors of the parameters, if these are not exact.
    """
    speed = part.model.speed(
        part.parameters, part.summary, jnp.asarray(ability), jnp.asarray(error) ** 2
    )
    variance, together = speed.variance, speed.covariance
    if parameters is not None:
        variance = variance + jnp.sum(parameters.shared**2, axis=1) + parameters.own
    if parameters is not None and shared is not None:
        # `lean` times the error of ability is in `variance` already; its covariance
        # with the other terms is not.
        rest = 1 - part.parameters.correlation**2
        lean = part.parameters.correlation / (1 + rest * part.summary.precision)
        tied = jnp.sum(shared * parameters.shared, axis=1)
        variance = variance + 2 * lean * tied
        together = together + tied
    speed_se = jnp.sqrt(variance)
    return {
        "speed": speed.mean,
        "speed_se": speed_se,
        "ability_speed_correlation": together / jnp.maximum(speed_se * error, 1e-300),
    }


def correlation_error(found: LengthEstimates | None) -> float | None:
    """Standard error of the correlation of ability and speed, by the delta method."""
    if found is None or found.covariance is None:
        return None
    rho = float(found.part.parameters.correlation)
    return float(np.sqrt(found.covariance.atanh_correlation)) * (1 - rho**2)


def correlation_interval(rho, error, level: float):
    """Bounds of the correlation by its estimate and standard error, with Fisher's z."""
    # The error of atanh(rho) is closer to normal, and of constant size.
    half = ndtri(0.5 + level / 2) * error / (1 - rho**2)
    return np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)


def warnings_of(
    table: ResponseTable, parameters: Parameters, offset: float
) -> list[str]:
    """Warnings about the lengths and the identification of the model.

    Theorem 1 of the LaRT paper requires two items with a discrimination that is not 0
    and two with a speed discrimination that is not 0; the directions of ability and
    speed are fixed by positive sums (its Proposition 1).
    """
    warnings: list[str] = []
    assert table.lengths is not None and parameters.lengths is not None
    size, missing = table.lengths.size, np.count_nonzero(np.isnan(table.lengths))
    none = np.count_nonzero(table.lengths == 0)
    if none:
        warnings.append(
            f"{none:,} of {counted(size - missing, 'length')} {are(none)} 0:"
            f" log({offset:g} +"
            " length)"
            " was used for all"
        )
    if missing:
        warnings.append(
            f"{missing:,} of {counted(size, 'length')} {are(missing)} missing"
        )
    for name, slope in (
        ("discrimination", parameters.items.discrimination),
        ("speed discrimination", parameters.lengths.items.speed_discrimination),
    ):
        count = int((np.abs(np.asarray(slope)) > ZERO_SLOPE).sum())
        if count < 2:
            warnings.append(
                f"{counted(count, 'item')} with a {name} other than 0: ability"
                " and speed are not identified, which takes two"
            )
    return warnings


def without_zero_lengths(table: ResponseTable, zero_lengths: str) -> ResponseTable:
    """The table, with missing lengths where they are 0 if these are "missing"."""
    if table.lengths is None or zero_lengths != "missing":
        return table
    return table.replace(lengths=np.where(table.lengths == 0, np.nan, table.lengths))
