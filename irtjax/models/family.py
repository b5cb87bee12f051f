"""What a response model is: a family, item priors and a population.

A **response family** writes the log-probability of one response in sufficient
statistics of the response and functions of ability and item,

    log p(y | theta, item) = sum_k s_k(y) g_k(theta, item) + h(y),   s_0(y) = 1,

with every other statistic zero at y = 0. Summed over subjects or items this is a
matrix product, which is all that EM, scoring and information need; derivatives come
from autodiff. A new model is therefore one small family.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator
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
    for each intercept of the item (`models.predictor`).

    A subclass states `Items`, `parameters`, `num_categories` and the methods below.
    """

    #: The NamedTuple class of an item record.
    Items: ClassVar[type]
    #: Name of the intercept parameter.
    intercept_name: ClassVar[str] = "intercept"
    #: Ranges from which `simulate_items` draws parameters of the family's own.
    simulated: ClassVar[dict[str, tuple[float, float]]] = {}
    #: Number of abilities; 0 for one that is a number (`predictor`).
    dims = 0
    #: Parameters that have one value for all items; see `common_columns`.
    common: ClassVar[tuple[str, ...]] = ()
    #: Parameters whose numbers must decrease, for anchors.
    decreasing: ClassVar[tuple[str, ...]] = ()
    #: Whether `laplace` is the default where items with slopes have few responses.
    integrable: ClassVar[bool] = True
    #: Whether items may lack categories (`families.graded`).
    closable: ClassVar[bool] = False
    #: Whether tables of few responses are fitted and scored without their matrix.
    by_cell: ClassVar[bool] = False

    @property
    def ability_shape(self) -> tuple[int, ...]:
        """Shape of the ability of a subject: `()` of a number, `(K,)` of a vector."""
        return (self.dims,) if self.dims else ()

    def with_free_slopes(self) -> AbstractResponseFamily | None:
        """The family with a discrimination for each item; None if there is none."""
        return None

    def with_any_sign(self) -> AbstractResponseFamily | None:
        """The family with discriminations of any sign; None if they are not positive.

        The other parameters are the same.
        """
        if getattr(self, "slopes", "") != "positive":
            return None
        return dataclasses.replace(self, slopes="free")

    def of_products(self) -> AbstractResponseFamily:
        """The family of one ability with slopes of 1, for families with `dims`.

        Its ability is a'theta of each cell: the response depends on nothing else of
        abilities and discriminations.
        """
        raise NotImplementedError(f"{type(self).__name__} has one ability")

    @property
    def link_variance(self) -> float:
        """Variance of the latent response given abilities, for families with `dims`."""
        raise NotImplementedError(f"{type(self).__name__} has one ability")

    @property
    def flat_variance(self) -> float:
        """s^2: a normal predictor of variance v flattens curves by 1 + v / s^2.

        8 / pi of a logistic link, whose variance is pi^2 / 3 (MacKay 1992): the means
        of curves are curves of predictors sqrt(1 + v / s^2) times as small.
        """
        return self.link_variance * 24 / math.pi**3

    def residual_variance(self, items: Items) -> Array | float:
        """Variance of the latent response given abilities: one, or by item."""
        return self.link_variance

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

    @property
    def category_codes(self) -> tuple[int, ...]:
        """The response that each category is."""
        return tuple(range(self.num_categories))

    def with_codes(self, codes: tuple[int, ...]) -> AbstractResponseFamily:
        """The family whose categories are these responses; itself without any."""
        return self

    def by_intercept(self) -> AbstractResponseFamily:
        """The same family with a parameter for each intercept; see `SpacedGraded`."""
        return self

    def existing(self, items: Items) -> np.ndarray | None:
        """Which categories items have, `[items, C]`; None where all have all."""
        return None

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
        fields = {}
        for parameter, part in self._split(coordinates):
            natural = parameter.bijection.forward(part)
            fields[parameter.name] = natural if parameter.size else natural[0]
        return self.complete(fields)

    def unconstrain(self, item: Items) -> Float[Array, " columns"]:
        """Unconstrained coordinates of one item record."""
        parts = [p.bijection.inverse(getattr(item, p.name)) for p in self.parameters]
        return jnp.concatenate([jnp.atleast_1d(part) for part in parts])

    def log_slopes(self, coordinates: Float[Array, " columns"]) -> Array:
        """Log derivative of each natural value in its own coordinate, `[columns]`.

        Their sum is the log Jacobian of `constrain`: a value depends on its own
        coordinate and earlier ones only.
        """
        parts = [p.bijection.log_slope(part) for p, part in self._split(coordinates)]
        return jnp.concatenate(parts)

    def complete(self, fields: dict[str, Array]) -> Items:
        """Item record of the estimated fields; adds constants where there are some."""
        return self.Items(**fields)

    def _split(self, coordinates: Array) -> Iterator[tuple[Parameter, Array]]:
        """Each parameter and its coordinates."""
        first = 0
        for parameter in self.parameters:
            yield parameter, coordinates[first : first + parameter.columns]
            first += parameter.columns

    def _columns_of(self, *names: str) -> tuple[int, ...]:
        """Columns of the parameters with these names."""
        by_column = [p.name for p in self.parameters for _ in range(p.columns)]
        return tuple(k for k, name in enumerate(by_column) if name in names)

    @property
    def num_columns(self) -> int:
        """Unconstrained columns per item."""
        return sum(p.columns for p in self.parameters)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """A name for each column, with its scale; several of one name are numbered."""
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
    def slope_columns(self) -> tuple[int, ...]:
        """Columns that hold discriminations, the first ones."""
        return self._columns_of("discrimination")

    @property
    def intercept_columns(self) -> tuple[int, ...]:
        """Columns that hold intercepts."""
        columns = self._columns_of(self.intercept_name)
        if not columns:
            raise ValueError(f"{type(self).__name__} names no {self.intercept_name}")
        return columns

    @property
    def common_columns(self) -> tuple[int, ...]:
        """Columns of parameters that have one value for all items.

        Records and coordinates hold that value for each item. Estimation, covariance
        and the number of parameters count it once; it has no prior.
        """
        return self._columns_of(*self.common)

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

    def category_log_probs(self, item: Items, theta: Array) -> Array:
        """Log-probabilities `[categories]` of one item at one ability."""
        values = jnp.asarray(self.category_codes)
        base, *rest = self.natural(item, theta)
        total = jnp.full(self.num_categories, base)
        for statistic, natural in zip(self.statistics(values), rest, strict=True):
            total = total + statistic.astype(total.dtype) * natural
        return total

    def log_base(self, values: Array, items: Any) -> Array | float:
        """The h(y) of each response, which depends on no ability; 0 of categories."""
        return 0.0

    def to_scores(self, values: Array, items: Any) -> Array:
        """Stored values as numbers to average: categories as they are."""
        return values.astype(float)

    def expected_response(self, item: Items, theta: Array) -> Array:
        """Mean response of one item at one ability (the item response function)."""
        chances = jnp.exp(self.category_log_probs(item, theta))
        return chances @ jnp.asarray(self.category_codes, chances.dtype)

    def information(self, item: Items, theta: Array) -> Array:
        """Fisher information of one item about ability at one ability.

        I(theta) = sum_y p(y) (d log p(y) / d theta)^2, by forward differentiation.
        """
        natural = lambda t: self.natural(item, t)
        derivatives = jax.jvp(natural, (theta,), (jnp.ones_like(theta),))
        total = jnp.zeros_like(theta)
        for log_prob, up in self._by_category(theta.dtype, derivatives):
            total = total + jnp.exp(log_prob) * up**2
        return total

    def _by_category(self, dtype, derivatives) -> Iterator[tuple[Array, ...]]:
        """Log-probability and its derivatives, from those of `natural`.

        One category at a time: under vmap that is elementwise work on whole tables,
        several times faster than a short trailing axis of categories.
        """
        categories = jnp.asarray(self.category_codes)
        kinds = [s.astype(dtype) for s in self.statistics(categories)]
        for y in range(self.num_categories):
            yield tuple(
                part[0] + sum(s[y] * g for s, g in zip(kinds, part[1:], strict=True))
                for part in derivatives
            )

    def information_and_skew(self, item: Items, theta: Array) -> tuple[Array, Array]:
        """Information I and J = sum_y P' P'' / P of one item, for Warm's correction."""
        one = jnp.ones_like(theta)
        natural = lambda t: self.natural(item, t)
        slope = lambda t: jax.jvp(natural, (t,), (one,))[1]
        derivatives = natural(theta), *jax.jvp(slope, (theta,), (one,))
        information = skew = jnp.zeros_like(theta)
        for log_prob, up, bend in self._by_category(theta.dtype, derivatives):
            probability = jnp.exp(log_prob)
            # P' = P l' and P'' = P (l'' + l'^2), so that nothing is divided.
            information = information + probability * up**2
            skew = skew + probability * up * (bend + up**2)
        return information, skew

    def coordinate_information(self, row: Array, theta: Array) -> tuple[Array, Array]:
        """Fisher information of each coordinate of one item, and of ability."""

        def log_probs(row, theta):
            return self.category_log_probs(self.constrain(row), theta)

        def along(*direction):
            slope = jax.jvp(log_probs, (row, theta), direction)[1]
            return jnp.sum(probabilities * slope**2)

        probabilities = jnp.exp(log_probs(row, theta))
        zero = jnp.zeros_like(theta)
        units = jnp.eye(self.num_columns, dtype=row.dtype)
        by_row = jnp.stack([along(unit, zero) for unit in units])
        return by_row, along(jnp.zeros_like(row), jnp.ones_like(theta))

    def in_use(self, item: Items, name: str) -> Array | bool:
        """Whether a parameter plays a part in an item; see `MixedScores`."""
        return True

    def free_columns(self, num_items: int) -> Bool[Array, "items columns"]:
        """The coordinates there are to estimate."""
        return jax.device_put(np.ones((num_items, self.num_columns), bool))

    def offsets(self) -> np.ndarray | None:
        """Added to coordinates `[items, columns]` to take some out of use, or None.

        For items that have a prior in common but not all parameters.
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
        """Random responses `[subjects, items]`, integers, or floats for scores."""
        over_items = jax.vmap(self.category_log_probs, in_axes=(0, None))
        log_probs = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
        drawn = jax.random.categorical(key, log_probs, axis=-1)
        codes = self.category_codes
        if codes == tuple(range(len(codes))):
            return drawn.astype(jnp.int8)
        kind = jnp.int8 if codes[-1] <= jnp.iinfo(jnp.int8).max else jnp.int32
        return jnp.asarray(codes, kind)[drawn]
