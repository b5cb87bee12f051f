"""What a response model is: a family, item priors and a population.

A **response family** writes the log-probability of one response in sufficient
statistics of the response and functions of ability and item,

    log p(y | theta, item) = sum_k s_k(y) g_k(theta, item) + h(y),   s_0(y) = 1,

with every other statistic zero at y = 0. Summed over subjects or items this is a
matrix product, which is all that EM, scoring and information need; derivatives come
from autodiff. A new model is therefore one small family.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray
from irtjax.numerics.bijections import Parameter

#: A family's record of item parameters: a NamedTuple of arrays, items leading.
Items = Any


class AbstractResponseFamily(eqx.Module):
    """One response given ability and item parameters.

    Where abilities and items meet, they meet as `discrimination * theta + intercept`
    for each intercept of the item. Estimators rely on it twice: the derivative in the
    discrimination is theta times the one in the intercepts, and a shift or change of
    the ability scale folds into the items.

    A subclass states `Items`, `parameters`, `num_categories` and the methods below.
    """

    #: The NamedTuple class of an item record.
    Items: ClassVar[type]
    #: Name of the intercept parameter.
    intercept_name: ClassVar[str] = "intercept"
    #: Ranges from which `simulate_items` draws parameters of the family's own.
    simulated: ClassVar[dict[str, tuple[float, float]]] = {}

    #: Parameters that have one value for all items; see `common_columns`.
    common: ClassVar[tuple[str, ...]] = ()

    def with_free_slopes(self) -> AbstractResponseFamily | None:
        """The family with a discrimination for each item; None if there is none."""
        return None

    @property
    def diverges(self) -> bool:
        """Whether joint estimates without priors can have no finite value."""
        return False

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The estimated item parameters, discrimination first if it is one."""

    @property
    @abstractmethod
    def num_categories(self) -> int:
        """Number of categories, values being 0 ... this - 1; 0 for scores in [0, 1]."""

    @abstractmethod
    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The s_k(y), k >= 1, each of the values' shape; 0 where the value is 0."""

    @abstractmethod
    def natural(self, item: Items, theta: Array) -> tuple[Array, ...]:
        """The g_0, g_1, ... of one item at one ability, scalars."""

    @abstractmethod
    def start(self, means: tuple[Array, ...], slope: Array) -> Items:
        """Start values from the mean of each statistic and a first slope, `[items]`."""

    def constrain(self, coordinates: Float[Array, " columns"]) -> Items:
        """Item record of one row of unconstrained coordinates."""
        fields, column = {}, 0
        for parameter in self.parameters:
            part = coordinates[column : column + parameter.columns]
            natural = parameter.bijection.forward(part)
            fields[parameter.name] = natural if parameter.size else natural[0]
            column += parameter.columns
        return self.complete(fields)

    def unconstrain(self, item: Items) -> Float[Array, " columns"]:
        """Unconstrained coordinates of one item record."""
        parts = [
            jnp.atleast_1d(p.bijection.inverse(getattr(item, p.name)))
            for p in self.parameters
        ]
        return jnp.concatenate(parts)

    def log_slopes(self, coordinates: Float[Array, " columns"]) -> Array:
        """Log derivative of each natural value in its own coordinate, `[columns]`.

        Their sum is the log Jacobian of `constrain`: a value depends on its own
        coordinate and earlier ones only.
        """
        parts, column = [], 0
        for parameter in self.parameters:
            part = coordinates[column : column + parameter.columns]
            parts.append(parameter.bijection.log_slope(part))
            column += parameter.columns
        return jnp.concatenate(parts)

    def complete(self, fields: dict[str, Array]) -> Items:
        """Item record of the estimated fields; adds constants where there are some."""
        return self.Items(**fields)

    @property
    def num_columns(self) -> int:
        """Unconstrained columns per item."""
        return sum(p.columns for p in self.parameters)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """A name for each column, with the scale it is on.

        A parameter that is several numbers has them counted from 1, as in the table of
        items.
        """
        scales = {"positive": "log_", "unit": "logit_"}
        names: list[str] = []
        for parameter in self.parameters:
            name = scales.get(parameter.bijection.kind, "") + parameter.name
            several = [f"{name}_{k + 1}" for k in range(parameter.size)]
            names += several or [name]
        return tuple(names)

    @property
    def has_slope(self) -> bool:
        """Whether each item's discrimination is estimated."""
        return self.parameters[0].name == "discrimination"

    @property
    def intercept_columns(self) -> tuple[int, ...]:
        """Columns that hold intercepts."""
        column = 0
        for parameter in self.parameters:
            if parameter.name == self.intercept_name:
                return tuple(range(column, column + parameter.columns))
            column += parameter.columns
        raise ValueError(f"{type(self).__name__} names no {self.intercept_name}")

    @property
    def common_columns(self) -> tuple[int, ...]:
        """Columns of parameters that have one value for all items.

        Records and coordinates hold that value for each item. Estimation, covariance
        and the number of parameters count it once; it has no prior.
        """
        found, column = [], 0
        for parameter in self.parameters:
            if parameter.name in self.common:
                found += range(column, column + parameter.columns)
            column += parameter.columns
        return tuple(found)

    def table(self, items: Items, nodes: Float[Array, " nodes"]) -> tuple[Array, ...]:
        """Every g_k at every node for every item, each `[nodes, items]`."""
        over_items = jax.vmap(self.natural, in_axes=(0, None))
        return jax.vmap(over_items, in_axes=(None, 0))(items, nodes)

    def log_prob(
        self,
        values: Float[Array, "subjects items"],
        items: Items,
        theta: Float[Array, " subjects"],
        exposure: Array | None = None,
    ) -> Float[Array, "subjects items"]:
        """Log-probability of each cell up to h(y); 0 where `exposure` is 0.

        Args:
            values: Responses as floats, 0 where missing.
            items: Item record with arrays `[items]`.
            theta: Ability of each row.
            exposure: Mask or number of trials `[subjects, items]`; None for all ones.
        """
        base, *rest = self.table(items, theta)
        total = base if exposure is None else base * exposure.astype(base.dtype)
        for statistic, natural in zip(self.statistics(values), rest, strict=True):
            total = total + statistic * natural
        return total

    def category_log_probs(
        self, item: Items, theta: Array
    ) -> Float[Array, " categories"]:
        """Log-probability of each category of one item at one ability."""
        values = jnp.arange(self.num_categories)
        base, *rest = self.natural(item, theta)
        total = jnp.full(self.num_categories, base)
        for statistic, natural in zip(self.statistics(values), rest, strict=True):
            total = total + statistic.astype(total.dtype) * natural
        return total

    def expected_response(self, item: Items, theta: Array) -> Array:
        """Mean response of one item at one ability (the item response function)."""
        probabilities = jnp.exp(self.category_log_probs(item, theta))
        return probabilities @ jnp.arange(
            self.num_categories, dtype=probabilities.dtype
        )

    def information(self, item: Items, theta: Array) -> Array:
        """Fisher information of one item about ability at one ability.

        I(theta) = sum_y p(y) (d log p(y) / d theta)^2, by forward differentiation.
        """
        # One category at a time: under vmap that is elementwise work on whole tables,
        # several times faster than a short trailing axis of categories.
        natural = lambda t: self.natural(item, t)  # noqa: E731
        value, slope = jax.jvp(natural, (theta,), (jnp.ones_like(theta),))
        categories = jnp.arange(self.num_categories)
        kinds = [s.astype(theta.dtype) for s in self.statistics(categories)]
        total = jnp.zeros_like(theta)
        for y in range(self.num_categories):
            log_prob, up = (
                part[0] + sum(s[y] * g for s, g in zip(kinds, part[1:], strict=True))
                for part in (value, slope)
            )
            total = total + jnp.exp(log_prob) * up**2
        return total

    def information_and_skew(self, item: Items, theta: Array) -> tuple[Array, Array]:
        """Information I and J = sum_y P' P'' / P of one item, for Warm's correction."""
        # One category at a time, for the same reason as in `information`.
        one = jnp.ones_like(theta)
        natural = lambda t: self.natural(item, t)  # noqa: E731
        slope = lambda t: jax.jvp(natural, (t,), (one,))[1]  # noqa: E731
        value = natural(theta)
        first, second = jax.jvp(slope, (theta,), (one,))
        categories = jnp.arange(self.num_categories)
        kinds = [s.astype(theta.dtype) for s in self.statistics(categories)]
        information = skew = jnp.zeros_like(theta)
        for y in range(self.num_categories):
            log_prob, up, bend = (
                part[0] + sum(s[y] * g for s, g in zip(kinds, part[1:], strict=True))
                for part in (value, first, second)
            )
            probability = jnp.exp(log_prob)
            # P' = P l' and P'' = P (l'' + l'^2), so that nothing is divided.
            information = information + probability * up**2
            skew = skew + probability * up * (bend + up**2)
        return information, skew

    def coordinate_information(
        self, row: Float[Array, " columns"], theta: Array
    ) -> tuple[Float[Array, " columns"], Array]:
        """Fisher information of each coordinate of one item, and of ability."""

        def log_probs(row, theta):
            return self.category_log_probs(self.constrain(row), theta)

        probabilities = jnp.exp(log_probs(row, theta))
        score = lambda r, t: jnp.sum(  # noqa: E731
            probabilities * jax.jvp(log_probs, (row, theta), (r, t))[1] ** 2
        )
        zero = jnp.zeros_like(theta)
        directions = jnp.eye(self.num_columns, dtype=row.dtype)
        by_row = jnp.stack([score(direction, zero) for direction in directions])
        return by_row, score(jnp.zeros_like(row), jnp.ones_like(theta))

    def in_use(self, item: Items, name: str) -> Array | bool:
        """Whether a parameter plays a part in an item; see `MixedScores`."""
        return True

    def free_columns(self, num_items: int) -> Bool[Array, "items columns"]:
        """The coordinates there are to estimate."""
        return jnp.asarray(np.ones((num_items, self.num_columns), bool))

    def offsets(self) -> np.ndarray | None:
        """What takes coordinates out of use, `[items, columns]`; None where all are.

        Added to the coordinates of an item before `constrain` sees them, where items
        have a prior in common and not all of them have all parameters.
        """
        return None

    def with_offsets(self, rows):
        """Coordinates `[items, columns]`, those out of use taken out."""
        offsets = self.offsets()
        return rows if offsets is None else rows + offsets.astype(rows.dtype)

    def of_items(self, places: Any) -> AbstractResponseFamily:
        """The family of some of the items, where it has parameters for each."""
        return self

    def sample(self, key: KeyArray, items: Items, theta: Array) -> Array:
        """Random responses `[subjects, items]`, int8, or floats for scores."""
        over_items = jax.vmap(self.category_log_probs, in_axes=(0, None))
        log_probs = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
        return jax.random.categorical(key, log_probs, axis=-1).astype(jnp.int8)
