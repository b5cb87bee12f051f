"""Response lengths in a calibration: columns, warnings, identification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from irtjax.calibration.parts.part import Findings, Part
from irtjax.calibration.scale import compares_means
from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted
from irtjax.estimators.estimates import Estimates
from irtjax.inference import SpeedError
from irtjax.likelihood.lengths import LengthPart
from irtjax.likelihood.problem import Parameters
from irtjax.models.lengths import LengthItems, LengthParameters

#: Slopes smaller than this are taken as zero when identification is judged.
ZERO_SLOPE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class ResponseLengths(Part):
    """Parameters of response lengths.

    Attributes:
        items: `LengthParameters`: of the items, and the correlation of ability and
            speed.
        correlation_error: Standard error of this correlation, or None.
    """

    prefix: ClassVar[str] = "lengths."
    absence: ClassVar[str] = "this fit has no response lengths: fit model='lart'"

    items: LengthParameters
    correlation_error: float | None = None

    @classmethod
    def of(cls, table: ResponseTable, estimates: Estimates, layout: Any) -> Self | None:
        """The part of a model with lengths."""
        estimated = estimates.lengths
        if estimated is None:
            return None
        error = None
        if estimated.covariance is not None:
            # By the delta method.
            rho = float(estimated.part.parameters.correlation)
            error = float(np.sqrt(estimated.covariance.atanh_correlation)) * (
                1 - rho**2
            )
        return cls(jax.tree.map(np.asarray, estimates.parameters.lengths), error)

    @property
    def no_rank(self) -> str:
        """Ranks are by ability alone."""
        return "the fit has response lengths"

    def correlation_interval(self, level: float) -> tuple[float, float] | None:
        """Bounds of the correlation by Fisher's z; None without its error."""
        if self.correlation_error is None:
            return None
        rho = float(self.items.correlation)
        lower, upper = correlation_interval(rho, self.correlation_error, level)
        return float(lower), float(upper)

    def item_columns(self, estimates: Estimates) -> dict[str, Any]:
        """Length parameters with their standard errors."""
        assert estimates.lengths is not None
        covariance, columns = estimates.lengths.covariance, {}
        for k, (name, value) in enumerate(self.items.items._asdict().items()):
            columns[name], error = np.asarray(value, np.float64), None
            if covariance is not None:
                error = np.sqrt(np.asarray(covariance.lengths, np.float64)[:, k, k])
                # That of a variance is the error of its logarithm times itself.
                error = error * columns[name] if name == "residual_variance" else error
            columns[f"{name}_se"] = error
        return columns

    def ability_columns(self, estimates: Estimates) -> dict[str, Any]:
        """Speed with its standard error."""
        assert estimates.lengths is not None
        part, _, speed = estimates.lengths
        # Loadings of mean responses are not those of the parameters.
        joint = None if compares_means(estimates) else estimates.shared
        return ability_columns(part, estimates.ability, estimates.error, joint, speed)

    def findings(
        self, table: ResponseTable, estimates: Estimates, options: dict[str, Any]
    ) -> Findings:
        """Lengths that are 0 or missing, and slopes that identify nothing."""
        offset = options["length_offset"]
        return Findings(tuple(warnings_of(table, estimates.parameters, offset)))

    def figures(self) -> list[tuple[str, str, str]]:
        """Ability and speed, and the items' parameters."""
        return [
            ("Ability and speed", "latency.png", "plot_latency"),
            ("Item parameters", "item_parameters.png", "plot_item_parameters"),
        ]

    def document(self) -> dict[str, Any]:
        """The correlation of ability and speed."""
        error = self.correlation_error
        return {"correlation": self.items.correlation, "correlation_se": error}

    def parameters(self) -> dict[str, Any]:
        """`Parameters.lengths`."""
        return {"lengths": self.items}

    def arrays(self) -> dict[str, Any]:
        """The parameters of items, and the correlation."""
        own = {f"{self.prefix}{k}": x for k, x in self.items.items._asdict().items()}
        return own | {"correlation": self.items.correlation}

    @classmethod
    def from_own(
        cls, own: dict[str, Any], arrays: Mapping[str, Any], document: Any
    ) -> Self:
        """The parameters of a file."""
        items = LengthItems(**{name: own[name] for name in LengthItems._fields})
        parameters = LengthParameters(items, arrays["correlation"])
        return cls(parameters, document.correlation_se)


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
    assert parameters.lengths is not None
    lengths = table.length_cells
    size, missing = lengths.size, np.count_nonzero(np.isnan(lengths))
    none = np.count_nonzero(lengths == 0)
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
    if not table.has_lengths or zero_lengths != "missing":
        return table
    lengths = table.length_cells
    return table.replace(lengths=np.where(lengths == 0, np.nan, lengths))
