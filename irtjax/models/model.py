"""A model: a response family, the population of abilities, and priors of items."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.models.family import AbstractResponseFamily, Items
from irtjax.models.lengths import Lengths, NoLengths
from irtjax.models.predictor import folded
from irtjax.models.priors import AbstractPrior
from irtjax.numerics.kernels import (
    derivatives_of,
    normal_log_weights,
    positive_definite_solve,
)


class Population(NamedTuple):
    """Distribution of ability: normal, or a histogram on nodes.

    Attributes:
        mean: Mean; of several abilities `[dims]`.
        sd: Standard deviation; of several abilities `[dims]`.
        log_weights: `[nodes]` of standardised nodes, for a histogram; else None.
        correlation: `[dims, dims]` correlations of several abilities; None of one
            ability, and of uncorrelated ones.
    """

    mean: Array
    sd: Array
    log_weights: Array | None = None
    correlation: Array | None = None

    @property
    def covariance(self) -> Array:
        """`[dims, dims]` covariance of several abilities."""
        if self.correlation is None:
            return jnp.diag(self.sd**2)
        return self.correlation * self.sd[:, None] * self.sd

    def log_weights_at(self, nodes: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
        """Normalised log weights at standardised nodes: of N(0, 1) or the histogram.

        Raises:
            ValueError: If a histogram has another number of nodes.

        >>> unit = Population(jnp.zeros(()), jnp.ones(()))
        >>> jnp.exp(unit.log_weights_at(jnp.array([-1.0, 0.0, 1.0]))).round(3).tolist()
        [0.274, 0.452, 0.274]
        """
        if self.log_weights is None:
            return normal_log_weights(nodes)
        if self.log_weights.shape != nodes.shape:
            raise ValueError(
                f"the population is a histogram on {self.log_weights.shape[0]} nodes,"
                f" but {nodes.shape[0]} nodes were given; pass the nodes it was"
                " estimated on"
            )
        return jax.nn.log_softmax(jnp.asarray(self.log_weights)).astype(nodes.dtype)


def check_one_ability(model: Model, what: str) -> None:
    """Refuses models with several abilities."""
    if model.several:
        raise ValueError(
            f"{what} needs one ability, and a {model.name} model has"
            f" {model.family.ability_shape[0]}: fit a model with one, such as 2pl"
        )


class Model(eqx.Module):
    """A response family with item priors and a rule for the ability scale.

    Attributes:
        name: Short name, such as "2pl".
        family: The response family.
        priors: Prior of each named item parameter; an empty dict is plain maximum
            likelihood. For families without an item discrimination the prior named
            "discrimination" is on the common slope.
        scale: "standard": ability has unit standard deviation and items carry the
            slope. "unit_slope": slopes are 1 and the standard deviation of ability is
            estimated (Rasch).
        lengths: The model of response lengths, or None.
        prior_weight: `[items, parameters]` weight of each log prior, where items share
            parameters that have one prior together; None for 1 each.
    """

    #: Whether items are nested in groups with estimated distributions.
    multilevel: ClassVar[bool] = False

    name: str = eqx.field(static=True)
    family: AbstractResponseFamily
    priors: dict[str, AbstractPrior] = eqx.field(default_factory=dict)
    scale: str = eqx.field(static=True, default="standard")
    lengths: Lengths | None = None
    prior_weight: Float[Array, "items parameters"] | None = None

    @property
    def several(self) -> bool:
        """Whether a subject has a vector of abilities."""
        return bool(self.family.ability_shape)

    @property
    def has_lengths(self) -> bool:
        """Whether response lengths are modelled with the responses."""
        return self.lengths is not None

    @property
    def length_model(self) -> Any:
        """`lengths`; of a model without, `NoLengths`, which takes and adds nothing."""
        return self.lengths or NoLengths()

    def log_prior(self, item: Items, weight: Array | None = None) -> Array:
        """Log prior density of one item record, summed over its parameters.

        `weight` is that of each parameter, None for 1.
        """
        total = jnp.zeros((), jnp.asarray(item[0]).dtype)
        for place, parameter in enumerate(self.family.parameters):
            name = parameter.name
            if name in self.priors:
                density = self.priors[name].log_density(getattr(item, name))
                used = self.family.in_use(item, name)
                if used is not True:
                    density = jnp.where(used, density, 0)
                own = jnp.sum(density)
                total = total + (own if weight is None else own * weight[place])
        return total

    def log_common_slope_prior(self, slope: Array) -> Array:
        """Log prior of the common slope of a family without item discriminations."""
        prior = self.priors.get("discrimination")
        if prior is None or self.family.has_slope:
            return jnp.zeros_like(slope)
        return prior.log_density(slope)

    def constrain(self, coordinates: Float[Array, "items columns"]) -> Items:
        """Item records of unconstrained coordinates, for every item."""
        return jax.vmap(self.family.constrain)(coordinates)

    def unconstrain(self, items: Items) -> Float[Array, "items columns"]:
        """Unconstrained coordinates of item records, for every item."""
        rows = jax.vmap(self.family.unconstrain)(items)
        common = self.family.common_columns
        if not common:
            return rows
        is_common = np.isin(np.arange(rows.shape[1]), common)
        return jnp.where(is_common, jnp.mean(rows, axis=0), rows)

    def fold(
        self, coordinates: Float[Array, "items columns"], mean: Array, sd: Array
    ) -> Float[Array, "items columns"]:
        """Items that see a standardised ability as they saw mean + sd * ability.

        d becomes d + a * mean; a becomes a * sd, where the family has slopes.
        """
        return jax.vmap(lambda row: self.fold_row(row, mean, sd))(coordinates)

    def fold_row(self, row: Float[Array, " columns"], mean: Array, sd: Array) -> Array:
        """`fold` of one item."""
        family = self.family
        slope = family.constrain(row).discrimination
        gain, slope = folded(slope, mean, sd)
        # Masks, not `.at[]`: XLA compiles a scatter as a loop, the masks into one pass.
        columns = np.arange(row.shape[0])
        is_intercept = np.isin(columns, family.intercept_columns)
        moved = jnp.where(is_intercept, row + gain, row)
        if family.has_slope:
            new = family.parameters[0].bijection.inverse(slope)
            if self.several:
                return jnp.concatenate([new, moved[new.size :]])
            moved = jnp.where(columns == 0, new, moved)
        return moved

    def log_prior_in(
        self, row: Array, frame: Float[Array, "2"], weight: Array | None = None
    ) -> Array:
        """Log prior of one item's coordinates, in a frame; see `prior_frame`.

        Several abilities have no frame: the population fixes their location and scale.
        `weight` is the item's row of `prior_weight`.
        """
        if not self.priors:
            return jnp.zeros((), row.dtype)
        if self.several:
            return self.log_prior(self.family.constrain(row), weight)
        shift, log_scale = frame
        scale = jnp.exp(log_scale) if self.family.has_slope else jnp.ones_like(shift)
        item = self.family.constrain(self.fold_row(row, shift, scale))
        return self.log_prior(item, weight)

    def log_priors_in(
        self, coordinates: Float[Array, "items columns"], frame: Float[Array, "2"]
    ) -> Float[Array, " items"]:
        """`log_prior_in` of every item."""
        of_row = lambda row, weight: self.log_prior_in(row, frame, weight)
        return jax.vmap(of_row)(coordinates, self.prior_weight)

    def total_log_prior(
        self,
        coordinates: Float[Array, "items columns"],
        frame: Float[Array, "2"],
        item_weight: Float[Array, " items"] | None = None,
    ) -> Array:
        """Sum of `log_prior_in` over items, each times its weight."""
        rows = self.log_priors_in(coordinates, frame)
        if item_weight is not None:
            rows = rows * item_weight.astype(rows.dtype)
        return jnp.sum(rows)

    def prior_frame(
        self,
        coordinates: Float[Array, "items columns"],
        first: Float[Array, "2"],
        num_newton: int = 6,
        item_weight: Float[Array, " items"] | None = None,
    ) -> Float[Array, "2"]:
        """The shift and log scale of ability in which the items are most probable.

        Priors on items must not determine where ability has mean 0 and variance 1: with
        J items against N subjects they would outweigh the subjects by J / N. Item
        priors are therefore stated up to a shift and a scale of ability, which are
        chosen to suit them, by Newton steps on sum_j log p(fold(x_j, shift, scale)).
        `first` is where these start; `item_weight` weighs each item's prior.
        """
        if not self.priors or self.several:
            return first
        movable = jnp.asarray([1.0, float(self.family.has_slope)], first.dtype)
        num_items = coordinates.shape[0]

        def total(frame):
            return self.total_log_prior(coordinates, frame, item_weight) / num_items

        def improve(_, frame):
            height, gradient, hessian = derivatives_of(total)(frame)
            curvature = -hessian * movable * movable[:, None] + jnp.diag(1 - movable)
            step, _ = positive_definite_solve(curvature, gradient * movable)
            trial = frame + jnp.clip(step, -0.5, 0.5)
            return jnp.where(total(trial) >= height, trial, frame)

        return jax.lax.fori_loop(0, num_newton, improve, first)


def highest_response(model: Model) -> int:
    """The highest response of a model: 1 of scores and of right or wrong responses."""
    codes = model.family.category_codes
    return codes[-1] if codes else 1


def response_ends(model: Model) -> dict[str, Any]:
    """The lowest response, `low`, and the highest one, `top`.

    >>> from irtjax.models.families.graded import Graded
    >>> response_ends(Model("graded", Graded(3, codes=(1, 2, 3))))
    {'low': 1, 'top': 3}
    """
    codes = model.family.category_codes
    return {"low": codes[0] if codes else 0, "top": highest_response(model)}


def response_size(model: Model) -> float:
    """The distance of the highest response from the lowest one."""
    ends = response_ends(model)
    return float(ends["top"] - ends["low"])


def unit_responses(model: Model, values: Any) -> Any:
    """Responses, or means of them, from 0 for the lowest one to 1 for the highest.

    >>> from irtjax.models.families.graded import Graded
    >>> unit_responses(Model("graded", Graded(3, codes=(1, 2, 3))), 2.0)
    0.5
    """
    ends = response_ends(model)
    if ends == {"low": 0, "top": 1}:
        return values
    return (values - ends["low"]) / response_size(model)
