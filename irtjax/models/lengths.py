"""Response lengths as a second measure: the latency-response theory model (LaRT).

The logarithm of a length is normal around a line in the subject's speed, and speed is
correlated with ability:

    log T_ij ~ N(omega_j - phi_j tau_i, lambda_j),
    (theta_i, tau_i) ~ N(0, [[1, rho], [rho, 1]])

(LaRT, section 2; lambda is a variance). Given the lengths, ability is normal again, so
that their likelihood depends on two numbers per subject: the `evidence` that any
estimator and any score of one-dimensional abilities adds to the responses. Nothing else
of an accuracy model changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import Responses

_LOG_TWO_PI = 1.8378770664093453
#: Correlations are kept this far from -1 and 1.
_MARGIN = 1e-4
#: Smallest residual variance.
_SMALLEST = 1e-8


class LengthItems(NamedTuple):
    """Omega, phi and lambda of each item.

    Omega is the mean log length of an average subject; phi is positive where faster
    subjects give shorter responses.
    """

    speed_intercept: Float[Array, " items"]
    speed_discrimination: Float[Array, " items"]
    residual_variance: Float[Array, " items"]


class LengthParameters(NamedTuple):
    """Item parameters of the lengths, and the correlation of ability and speed."""

    items: LengthItems
    correlation: Scalar


class LengthCoordinates(NamedTuple):
    """`LengthParameters` without bounds: omega, phi, log lambda and atanh rho."""

    speed_intercept: Float[Array, " items"]
    speed_discrimination: Float[Array, " items"]
    log_variance: Float[Array, " items"]
    atanh_correlation: Scalar


class LengthSummary(NamedTuple):
    """Evidence of lengths about each subject, by sums over the lengths observed."""

    precision: Float[Array, " subjects"]  # A = sum_j phi_j^2 / lambda_j
    slope: Float[Array, " subjects"]  # S = sum_j phi_j (log T_j - omega_j) / lambda_j
    log_density: Float[Array, " subjects"]  # log p(T_i)


class SpeedMoments(NamedTuple):
    """Posterior moments of speed; the covariance is that with ability."""

    mean: Float[Array, " subjects"]
    variance: Float[Array, " subjects"]
    covariance: Float[Array, " subjects"]


class LengthUpdate(NamedTuple):
    """A maximisation step, with mean and standard deviation of speed folded in.

    In `raised` these and the correlation are as before. The curvature is the diagonal
    of the expected information, in coordinates.
    """

    folded: LengthParameters
    raised: LengthParameters
    curvature: LengthCoordinates
    centre: Scalar
    scale: Scalar


class Lengths(eqx.Module):
    """The model of response lengths, joined with a model of responses.

    The prior of a residual variance is worth `prior_weight` lengths of variance
    `prior_variance` (0 for plain maximum likelihood): items with a length or two stay
    finite.
    """

    prior_weight: float | Array = 0.5
    prior_variance: float | Array = 0.1

    def summary(self, parameters: LengthParameters, data: Responses) -> LengthSummary:
        """A, S and log p(T) of every subject (METHODS of LaRT, with lambda a variance).

        Weights of items are numbers of copies, each with its length.

        log p(T) = sum_j log N(log T_j; omega_j, lambda_j)
                   - log(1 + A) / 2 + S^2 / (2 (1 + A)).
        """

        def of_rows(part: Responses, _: Any, items: LengthItems) -> Any:
            omega, phi, variance = items
            residual, scaled = _log_length(part) - omega, phi / variance
            density = residual**2 / variance + jnp.log(variance) + _LOG_TWO_PI
            square = jnp.broadcast_to(phi * scaled, residual.shape)
            terms = square, residual * scaled, -0.5 * density
            if part.item_weight is not None:
                terms = [x * part.item_weight.astype(x.dtype) for x in terms]
            return None, [jnp.sum(_where_seen(part, x), axis=1) for x in terms]

        precision, slope, total = data.fold(of_rows, None, parameters.items)[1]
        total = total - 0.5 * jnp.log1p(precision) + 0.5 * slope**2 / (1 + precision)
        return LengthSummary(precision, slope, total)

    def ability(
        self, parameters: LengthParameters, summary: LengthSummary
    ) -> tuple[Array, Array]:
        """Mean and variance of ability given the lengths alone, each `[subjects]`.

        mean = -rho S / (1 + A), variance = 1 - rho^2 A / (1 + A).
        """
        rho, (precision, slope, _) = parameters.correlation, summary
        mean = -rho * slope / (1 + precision)
        return mean, 1 - rho**2 * precision / (1 + precision)

    def evidence(
        self, parameters: LengthParameters, summary: LengthSummary
    ) -> tuple[Float[Array, "subjects 2"], Float[Array, " subjects"]]:
        """The evidence for `Responses.evidence`, and a constant of each subject.

        log p(R_i, T_i) is the constant plus the log-likelihood with that evidence.
        """
        mean, variance = self.ability(parameters, summary)
        constant = -0.5 * jnp.log(variance) - 0.5 * mean**2 / variance
        evidence = jnp.stack([mean / variance, 1 / variance - 1], axis=1)
        return evidence, summary.log_density + constant

    def speed(
        self,
        parameters: LengthParameters,
        summary: LengthSummary,
        mean: Float[Array, " subjects"],
        variance: Float[Array, " subjects"],
    ) -> SpeedMoments:
        """Moments of speed from those of ability, given lengths and responses.

        tau | theta, T is normal with variance v = 1 / (1 / (1 - rho^2) + A) and mean
        v (rho theta / (1 - rho^2) - S).
        """
        rho, (precision, slope, _) = parameters.correlation, summary
        rest = 1 - rho**2
        v = 1 / (1 / rest + precision)
        lean = v * rho / rest
        speed = lean * mean - v * slope
        return SpeedMoments(speed, v + lean**2 * variance, lean * variance)

    def log_ability(
        self,
        parameters: LengthParameters,
        data: Responses,
        theta: Float[Array, " subjects"],
    ) -> Float[Array, " subjects"]:
        """The log density of the lengths given ability, speed integrated out."""
        summary = self.summary(parameters, data)
        evidence, constant = self.evidence(parameters, summary)
        return constant + evidence[:, 0] * theta - 0.5 * evidence[:, 1] * theta**2

    def log_prior(
        self,
        parameters: LengthParameters,
        item_weight: Float[Array, " items"] | None = None,
    ) -> Scalar:
        """Log prior of the residual variances, up to a constant."""
        variance = parameters.items.residual_variance
        ratio = jnp.log(variance) + self.prior_variance / variance
        if item_weight is not None:
            ratio = ratio * item_weight.astype(ratio.dtype)
        return -0.5 * self.prior_weight * jnp.sum(ratio)

    def start(self, data: Responses, theta: Array) -> LengthParameters:
        """Start values from first abilities `theta` and deviations from item means."""
        log_length = _log_length(data)
        one = jnp.ones_like(log_length)
        weight = _subject_weight(data, log_length.dtype)
        by_item = lambda cells: weight @ _where_seen(data, cells)
        by_subject = lambda cells: jnp.sum(_where_seen(data, cells), axis=1)
        count = jnp.maximum(by_item(one), 1e-6)
        mean = by_item(log_length) / count
        residual = log_length - mean
        # Shrunken by one length, so that a subject with few does not lead.
        deviation = by_subject(residual) / (by_subject(one) + 1)
        tau, theta = (_standardise(x, weight) for x in (-deviation, theta))
        square = by_item(jnp.broadcast_to(tau[:, None] ** 2, residual.shape))
        slope = -by_item(residual * tau[:, None]) / jnp.maximum(square, 1e-6)
        variance = by_item((residual + slope * tau[:, None]) ** 2) / count
        variance = jnp.maximum(variance, 1e-3)
        rho = weight @ (tau * theta) / jnp.sum(weight)
        items = LengthItems(mean, slope, variance)
        return LengthParameters(items, jnp.clip(rho, -0.9, 0.9))

    def improve(
        self,
        parameters: LengthParameters,
        data: Responses,
        mean: Float[Array, " subjects"],
        variance: Float[Array, " subjects"],
        speed: SpeedMoments,
    ) -> LengthUpdate:
        """One parameter-expanded maximisation, in closed form (Liu, Rubin and Wu 1998).

        Each item's line is a regression on the moments of speed. Means and variances of
        ability (`mean`, `variance`: posterior) and speed take their expected values,
        and are folded back to 0 and 1: speed's into the items here, ability's by the
        caller.
        """
        weight = _subject_weight(data, mean.dtype)
        total = jnp.sum(weight)
        items = parameters.items
        second = speed.variance + speed.mean**2
        moments = jnp.stack([jnp.ones_like(mean), speed.mean, second], axis=1)

        def of_some(part: Responses, moments: Array, intercept: Array) -> Any:
            residual = _where_seen(part, _log_length(part) - intercept)
            weight = _subject_weight(part, moments.dtype)
            on = moments.T * weight
            seen = _where_seen(part, jnp.ones_like(residual))
            return (on @ seen, on @ residual, weight @ residual**2), None

        sums, _ = data.fold(of_some, moments, items.speed_intercept)
        (count, first, square), (sum_residual, sum_product, _), sum_square = sums
        n = jnp.maximum(count, 1e-6)
        centred_square = jnp.maximum(square - first**2 / n, 1e-6)
        phi = -(sum_product - sum_residual * first / n) / centred_square
        shift = (sum_residual + phi * first) / n
        error = sum_square - 2 * shift * sum_residual + count * shift**2
        error = error + 2 * phi * (sum_product - shift * first) + phi**2 * square
        prior = self.prior_weight
        pooled = (error + prior * self.prior_variance) / (n + prior)
        residual_variance = jnp.maximum(pooled, _SMALLEST)
        # An item without lengths keeps its intercept.
        observed = count > 0
        phi, shift = jnp.where(observed, phi, 0), jnp.where(observed, shift, 0)
        omega = items.speed_intercept + shift
        raised = LengthItems(omega, phi, residual_variance)

        centre = weight @ speed.mean / total
        scale = jnp.sqrt(jnp.maximum(weight @ second / total - centre**2, 1e-8))
        theta_centre = weight @ mean / total
        theta_second = weight @ (variance + mean**2) / total
        theta_scale = jnp.sqrt(jnp.maximum(theta_second - theta_centre**2, 1e-8))
        product = weight @ (speed.covariance + mean * speed.mean) / total
        rho = (product - centre * theta_centre) / (scale * theta_scale)
        folded = LengthItems(omega - phi * centre, phi * scale, residual_variance)
        by_slope = jnp.maximum(square, 1e-6) / residual_variance
        curvature = LengthCoordinates(n / residual_variance, by_slope, n / 2, total)
        folded = LengthParameters(folded, jnp.clip(rho, -1 + _MARGIN, 1 - _MARGIN))
        raised = LengthParameters(raised, parameters.correlation)
        return LengthUpdate(folded, raised, curvature, centre, scale)

    def unconstrain(self, parameters: LengthParameters) -> LengthCoordinates:
        """Coordinates without bounds."""
        (omega, phi, variance), rho = parameters
        return LengthCoordinates(omega, phi, jnp.log(variance), jnp.arctanh(rho))

    def constrain(self, coordinates: LengthCoordinates) -> LengthParameters:
        """Parameters of coordinates."""
        omega, phi, log_variance, atanh = coordinates
        rho = jnp.clip(jnp.tanh(atanh), -1 + _MARGIN, 1 - _MARGIN)
        return LengthParameters(LengthItems(omega, phi, jnp.exp(log_variance)), rho)


class NoLengths(eqx.Module):
    """The answers of a model without response lengths: no parameters, no density."""

    def start(self, data: Responses, theta: Array) -> None:
        """No start values."""

    def unconstrain(self, parameters: LengthParameters | None) -> None:
        """No coordinates."""

    def constrain(self, coordinates: LengthCoordinates | None) -> None:
        """No parameters."""

    def log_ability(self, parameters: None, data: Responses, theta: Array) -> Array:
        """Log density 0 of no lengths, `[subjects]`."""
        return jnp.zeros(theta.shape[:1], theta.dtype)

    def log_prior(self, parameters: None, item_weight: Array | None = None) -> float:
        """Log prior 0 of no parameters."""
        return 0.0


def orient_speed(parameters: LengthParameters) -> LengthParameters:
    """The parameters with speed in the direction of a positive sum of phi.

    Speed, its discriminations and the correlation may change sign together.
    """
    items, rho = parameters
    phi = items.speed_discrimination
    sign = jnp.where(jnp.sum(phi) < 0, -1, 1).astype(phi.dtype)
    return LengthParameters(items._replace(speed_discrimination=sign * phi), sign * rho)


def _log_length(data: Responses) -> Float[Array, "subjects items"]:
    """Log lengths; refuses data without lengths."""
    if data.log_length is None:
        raise ValueError(
            "the model of response lengths needs them: read them with length=..., and"
            " pass length_offset=1.0 to ResponseTable.responses"
        )
    return data.log_length


def _where_seen(data: Responses, cells: Array) -> Array:
    """Cells with 0 where no length was observed."""
    seen = data.length_observed
    return cells if seen is None else jnp.where(seen, cells, 0)


def _subject_weight(data: Responses, dtype) -> Float[Array, " subjects"]:
    """`[subjects]` weights, 1 where there are none."""
    if data.subject_weight is None:
        return jnp.ones(data.num_subjects, dtype)
    return data.subject_weight.astype(dtype)


def _standardise(values: Array, weight: Array) -> Array:
    """Values with weighted mean 0 and standard deviation 1."""
    total = jnp.sum(weight)
    centred = values - weight @ values / total
    sd = jnp.sqrt(weight @ centred**2 / total)
    return centred / jnp.maximum(sd, 1e-6)
