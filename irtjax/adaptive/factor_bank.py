r"""The bank of a factor model: tests of several abilities.

What is known of the abilities is a normal distribution around the mode,

    theta = argmax log N(theta; mu, Sigma) + sum_given log p(y_j | a_j'theta),
    P = Sigma^-1 + sum_given w_j a_j a_j',     C = P^-1,

found by Newton's method from the last mode, on all responses given. The reported
ability is the expected score on all items, as in `irtjax.scoring.factors` (equations 1
and 2 there), or a composite c'theta. Its variance is g'C g with the gradient g (c of
the composite), and `merits` states what an item would take from it. `factor_errors`
has what errors of the items and of the axes add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray
from irtjax.adaptive import merits
from irtjax.adaptive.bank import AbstractBank, check_categories
from irtjax.adaptive.factor_errors import (
    MOST_NEWTON,
    SlopeErrors,
    axes_variance,
    flat_posterior,
    shared_covariance,
    with_axes_error,
)
from irtjax.adaptive.repeats import (
    Repeats,
    before_each,
    best_sum,
    expected_shares,
    next_information,
    next_log_prob,
)
from irtjax.adaptive.state import Memory, Observation, State
from irtjax.data.responses import Responses
from irtjax.likelihood.product_errors import of_predictor, shrinkage, shrunken
from irtjax.likelihood.products import by_product, cells, expected_cells, outer
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.kernels import inverse_cholesky, positive_definite_solve
from irtjax.numerics.precision import full_precision
from irtjax.scoring.factors import expected_on_items, score_factors

#: Equal steps over a product in standard deviations, for entropies. Of a standard
#: deviation of 2.6 the error is below 1e-5; with 13 steps it was 2e-4.
ENTROPY_REACH, ENTROPY_NODES = 4.5, 19
#: log2 of the points by which the standard deviation of expected scores is computed.
LOG_POINTS = 10


class FactorPosterior(NamedTuple):
    """What is known of several abilities.

    Attributes:
        mode: `[dims]` posterior mode.
        precision: `[dims, dims]` P, minus the Hessian of the log posterior there.
        covariance: `[dims, dims]` its inverse C.
        mean: `[dims]` posterior mean, to second order (`irtjax.scoring.factors`).
        gradient: `[dims]` g, of the reported ability.
    """

    mode: Float[Array, "*tests dims"]
    precision: Float[Array, "*tests dims dims"]
    covariance: Float[Array, "*tests dims dims"]
    mean: Float[Array, "*tests dims"]
    gradient: Float[Array, "*tests dims"]


class FactorBank(AbstractBank):
    """The items of a factor model; build it with `FactorBank.create`.

    An observation is a response. The reported ability is the expected score on all
    items of the bank, or the composite. Errors of the items are integrated out of their
    curves, by which subjects respond and items are selected too; with repeats they are
    counted by the delta method.

    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> from irtjax.models.families.logistic import LogisticItems
    >>> slopes = jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> items = LogisticItems(slopes, *jnp.array([[0.0] * 3, [0.0] * 3, [1.0] * 3]))
    >>> unit = Population(jnp.zeros(2), jnp.ones(2))
    >>> bank = FactorBank.create(factor_model(Factor(factors=2)), items, unit)
    >>> bank.num_items, float(bank.mean)
    (3, 0.5)
    """

    selections: ClassVar[tuple[str, ...]] = (
        "information",
        "d_optimal",
        "a_optimal",
        "mutual_information",
    )
    several: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    mean: Float[Array, ""]  # of the reported ability over the population
    sd: Float[Array, ""]
    model: Model
    items: Items
    center: Float[Array, " dims"]  # mean of the population
    spread: Float[Array, "dims dims"]  # covariance of the population
    precision: Float[Array, "dims dims"]  # of the population
    products: Float[Array, "square items"]  # entries of a_j a_j'
    composite: Float[Array, " dims"] | None = None
    errors: SlopeErrors | None = None  # None: the items are exact
    sampling: Float[Array, ""] | None = None  # 1 / N, of a calibration's subjects
    axes_fixed: bool = eqx.field(static=True, default=False)

    @classmethod
    def create(
        cls,
        model: Model,
        items: Items,
        population: Population,
        *,
        composite: Sequence[float] | Array | None = None,
        covariance: Any = None,
        num_subjects: float | None = None,
        axes_fixed: bool = False,
    ) -> FactorBank:
        """Prepares a bank, in the dtype of its items. On the host.

        Args:
            model: A model with several abilities.
            items: Item records, discriminations `[items, dims]`.
            population: The normal prior of every subject's abilities.
            composite: `[dims]` weights of the abilities in the reported one; None
                reports the expected score on all items.
            covariance: `[items, columns, columns]` of the slopes and the intercepts,
                without the error of a rotation; None or zeros where items are exact.
            num_subjects: Subjects of the calibration, whose sample defines the axes:
                standard errors of abilities then count the errors of these; None where
                the axes are exact.
            axes_fixed: Whether the axes are those of a confirmatory model.

        Raises:
            ValueError: If the model has one ability or is of scores, the composite or
                the covariance does not suit, or an item has parameters that are not
                finite.
        """
        dims = model.family.dims
        if not dims:
            raise ValueError(
                f"a FactorBank is for several abilities, and a {model.name} model has"
                " one: use ItemBank"
            )
        check_categories(model)
        items = jax.tree.map(jnp.asarray, items)
        slopes = items.discrimination
        dtype = slopes.dtype
        parts = [np.asarray(x, float).reshape(len(slopes), -1) for x in items]
        bad = ~np.isfinite(np.concatenate(parts, axis=1)).all(axis=1)
        if bad.any():
            raise ValueError(
                f"item {bad.argmax() + 1} of the bank has parameters that are not"
                " finite: leave it out"
            )
        center = jnp.asarray(population.mean, dtype)
        spread = jnp.asarray(population.covariance, dtype)
        inverse = jnp.asarray(np.linalg.inv(np.asarray(spread, float)), dtype)
        known = model, items, center, spread, inverse, outer(slopes).T
        more: dict[str, Any] = dict(axes_fixed=axes_fixed)
        if covariance is not None and np.any(covariance):
            blocks = of_predictor(model, items, covariance, center)
            more["errors"] = SlopeErrors.of(jnp.asarray(blocks, dtype))
        if num_subjects is not None:
            more["sampling"] = jnp.asarray(1 / num_subjects, dtype)
        if composite is None:
            zero = jnp.zeros((), dtype)
            bank = cls(zero, zero, *known, **more)
            sd = jnp.std(bank.truth(_points(population, dtype)))
            value, _ = _expected_jit(bank, center, spread)
            return cls(jnp.mean(value), sd, *known, **more)
        weights = np.asarray(composite, float)
        if weights.shape != (dims,) or not np.isfinite(weights).all():
            raise ValueError(f"composite: give {dims} finite weights, one per ability")
        if not weights.any():
            raise ValueError("composite: give a weight other than 0")
        weights = jnp.asarray(weights, dtype)
        mean, sd = weights @ center, jnp.sqrt(weights @ spread @ weights)
        return cls(mean, sd, *known, weights, **more)

    @property
    def population(self) -> Population:
        """The population that subjects come from."""
        sd = jnp.sqrt(jnp.diagonal(self.spread))
        return Population(self.center, sd, None, self.spread / (sd[:, None] * sd))

    @property
    def weighted(self) -> bool:
        """Whether the reported ability is a composite."""
        return self.composite is not None

    @property
    def num_items(self) -> int:
        """Number of items."""
        return self.products.shape[1]

    @property
    def num_categories(self) -> int:
        """Number of categories of a response."""
        return self.model.family.num_categories

    @property
    def blank(self) -> Observation:
        """A response, int32."""
        return jnp.zeros((), jnp.int32)

    @property
    def prior(self) -> FactorPosterior:
        """The population."""
        none = jnp.zeros_like(self.center)
        return FactorPosterior(
            self.center, self.precision, self.spread, self.center, none
        )

    def learn(
        self, before: State, after: State, item: Array, observation: Observation
    ) -> FactorPosterior:
        """The normal posterior given all responses of a test."""
        given = jax.tree.map(lambda x: x[after.items], self.items)
        change, memory = None, after.memory
        if self.errors is not None and not isinstance(memory, Repeats):
            values = after.observations.astype(self.center.dtype)
            cells_of = given, self.errors.blocks[after.items], values, after.given
            return self._flat(*cells_of, before.posterior.mode)
        slopes, seen = given.discrimination, after.given[None]
        values = after.observations[None].astype(slopes.dtype)
        if isinstance(memory, Repeats):
            known = before_each(after.items, after.observations, after.given)
            shared = lambda first: next_log_prob(first, *known, memory.odds)
            change = lambda first: jnp.where(seen, shared(first), 0)
        at = lambda theta: cells(self.model, given, theta[None], values, seen, change)

        def curvature_of(found):
            # Of families that are not concave the upward part is left out.
            weight = jnp.maximum(found.curvature[0], 0)
            return self.precision + slopes.T @ (weight[:, None] * slopes)

        def newton(search):
            theta, _, count = search
            found = at(theta)
            slope = found.slope[0] @ slopes - self.precision @ (theta - self.center)
            step, _ = positive_definite_solve(curvature_of(found), slope)
            # The logistic's third derivative is at most r times its second one along
            # the step, so that this share of it always ascends; near the mode it is
            # all of it (generalised self-concordance: Sun and Tran-Dinh 2019).
            r = jnp.max(jnp.abs(slopes @ step))
            share = jnp.where(r > 1e-6, jnp.log1p(r) / jnp.maximum(r, 1e-6), 1)
            return theta + share * step, jnp.max(jnp.abs(step)), count + 1

        # The error after a step is of the order of its square.
        tolerance = jnp.finfo(slopes.dtype).eps ** (1 / 3)
        init = before.posterior.mode, jnp.full_like(self.mean, jnp.inf), 0
        going = lambda search: (search[1] > tolerance) & (search[2] < MOST_NEWTON)
        mode, *_ = lax.while_loop(going, newton, init)
        found = at(mode)
        precision = curvature_of(found)
        root = inverse_cholesky(precision)
        covariance = root.T @ root
        variance = jnp.sum((slopes @ covariance) * slopes, axis=1)
        skew = covariance @ ((found.bend[0] * variance) @ slopes)
        mean = mode - skew / 2
        if self.errors is not None:
            blocks = self.errors.blocks[after.items]
            same = (after.items[:, None] == after.items) & after.given & seen.T
            where = slopes, blocks, found, mode, covariance, same
            covariance = covariance + shared_covariance(*where)
            root = inverse_cholesky(covariance)
            precision = root.T @ root
        return FactorPosterior(mode, precision, covariance, mean, mean)

    def _flat(self, given: Items, blocks, values, seen, start) -> FactorPosterior:
        """The posterior of responses to items with errors."""
        assert self.errors is not None
        prior = self.center, self.precision
        cells_of = self.model, given, blocks, values, seen
        found = flat_posterior(*cells_of, prior, start)
        return FactorPosterior(*found, found.mean)

    def _factor(self, theta: Array) -> Float[Array, " items"] | None:
        """How much errors of items shrink their curves at abilities."""
        if self.errors is None:
            return None
        return self.errors.shrinkage(self.model, theta)

    def _expected(self, theta: Array, spread: Array) -> tuple[Array, Array]:
        """`[items]` expected responses and their slopes over N(theta, spread)."""
        product = theta[None] @ self.items.discrimination.T
        variance = spread.reshape(1, -1) @ self.products
        if self.errors is not None:
            variance = variance + self.errors.variance(theta, spread)
        found = expected_cells(self.model, self.items, product, variance)
        return found.mean[0], found.slope[0]

    def scored(self, score: str, state: State) -> State:
        """The reported ability, its error, and its gradient.

        "eap": the posterior mean; "map": the value at the mode.
        """
        known = state.posterior
        at_mode = score == "map"
        theta = known.mode if at_mode else known.mean
        slopes = self.items.discrimination
        if self.composite is not None:
            ability, gradient = self.composite @ theta, self.composite
            covariance = self.whole(theta, known.covariance)
            square = gradient @ covariance @ gradient
        else:
            if at_mode:
                value, rise = self._responses(slopes @ theta, self._factor(theta))
            else:
                value, rise = self._expected(theta, known.covariance)
            ability, gradient = jnp.mean(value), rise @ slopes / self.num_items
            square = gradient @ known.covariance @ gradient
            if self.errors is not None:
                square = square + self._of_items(state, theta, rise, gradient)
        return state._replace(
            posterior=known._replace(gradient=gradient),
            ability=ability,
            standard_error=jnp.sqrt(square),
        )

    def _of_items(self, state: State, theta, rise, gradient) -> Float[Array, ""]:
        """What errors of items add to the variance of the expected score.

        At least minus half of the variance by the abilities.
        """
        assert self.errors is not None
        variance = self.errors.variance(theta)
        rise = rise / self.num_items
        own = jnp.sum(rise**2 * variance)
        if isinstance(state.memory, Repeats):
            return own
        along = state.posterior.covariance @ gradient
        at = lambda x: x[state.items]
        given = jax.tree.map(at, self.items)
        factor = shrinkage(self.model, at(variance))
        weight = self._weights(given.discrimination @ theta, (), factor, given)
        shared = at(rise) * weight * (given.discrimination @ along) * at(variance)
        found = own - 2 * jnp.sum(jnp.where(state.given, shared, 0))
        return jnp.maximum(found, -gradient @ along / 2)

    def whole(self, theta: Array, covariance: Array) -> Float[Array, "dims dims"]:
        """The covariance of abilities with the errors of the axes."""
        if self.sampling is None:
            return covariance
        gap = theta - self.center
        axes = gap, self.spread, self.precision, self.sampling, self.axes_fixed
        error = axes_variance(*axes)
        return with_axes_error(covariance, gap, self.spread, error)

    def of_composite(self, theta: Array, variance: Array) -> Array:
        """A variance of the composite with the errors of the axes."""
        if self.sampling is None or self.composite is None:
            return variance
        gap, along = theta - self.center, self.composite
        axes = gap, self.spread, self.precision, self.sampling, self.axes_fixed
        error, whole = along @ axes_variance(*axes) @ along, along @ self.spread @ along
        wide = lambda x: x[None, None]
        parts = wide(variance), (along @ gap)[None], wide(whole), wide(error)
        return with_axes_error(*parts)[0, 0]

    def begun(self, score: str, state: State) -> State:
        """The population, whose standard deviation is known exactly."""
        state = self.scored(score, state)
        return state._replace(ability=self.mean, standard_error=self.sd)

    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """What each item adds by a rule (`merits`), at the mode."""
        known, slopes = state.posterior, self.items.discrimination
        covariance = known.covariance
        spread = covariance.reshape(-1) @ self.products
        repeated = isinstance(state.memory, Repeats)
        if select == "mutual_information":
            factor = None if repeated else self._factor(known.mean)
            mean = slopes @ known.mean
            return self._mutual_information(mean, spread, state.memory, factor)
        factor = None if repeated else self._factor(known.mode)
        weight = self._weights(slopes @ known.mode, state.memory, factor)
        if select == "d_optimal":
            return merits.d_optimal(weight, spread)
        if select == "a_optimal":
            square = (covariance @ covariance).reshape(-1) @ self.products
            return merits.a_optimal(weight, spread, square)
        along = slopes @ (covariance @ known.gradient)
        return merits.c_optimal(weight, spread, along)

    def smallest_errors(
        self, design: Any, allowed: Bool[Array, " items"]
    ) -> tuple[Array, Array]:
        """A lower bound at points of the population, by the delta method.

        With c the gradient, Cauchy and Schwarz give c'C c >= v / (1 + sum_j w_j
        (c'Sigma a_j)^2 / v) with v = c'Sigma c.
        """
        points = _points(self.population, self.mean.dtype)
        errors = _bounds(self, design, allowed, points)
        return errors, jnp.full(len(errors), 1 / len(errors), errors.dtype)

    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the variance of the reported ability."""
        return self.merit("information", state)

    def above(self, state: State, mark: Array, error: Array) -> Float[Array, ""]:
        """Of a normal posterior of the reported ability."""
        spread = jnp.hypot(state.standard_error, error)
        spread = jnp.maximum(spread, jnp.finfo(mark.dtype).tiny)
        return ndtr((state.ability - mark) / spread)

    def determinant(self, state: State) -> Array:
        """Determinant of the covariance of the abilities."""
        root = inverse_cholesky(state.posterior.precision)
        return jnp.prod(jnp.diagonal(root)) ** 2

    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory
    ) -> Observation:
        """A random response of a subject of abilities `theta`, int32."""
        family, records = by_product(self.model, self.items)
        record = jax.tree.map(lambda x: x[item], records)
        product = self.items.discrimination[item] @ theta
        if self.errors is not None and not isinstance(memory, Repeats):
            wide = jnp.append(theta, jnp.ones_like(theta[:1]))
            variance = wide @ self.errors.blocks[item] @ wide
            record = shrunken(record, shrinkage(self.model, variance))
        chances = family.category_log_probs(record, product)
        if isinstance(memory, Repeats):
            counts = jnp.stack([memory.counts(y)[item] for y in range(2)])
            known = counts, memory.times[item], memory.odds
            chances = next_log_prob(chances, *known)
        return jax.random.categorical(key, chances).astype(jnp.int32)

    def draw_abilities(self, num_subjects: int, key: KeyArray) -> Array:
        """Abilities from the population, `[subjects, dims]`."""
        return simulate_abilities(num_subjects, key, self.population)

    def truth(self, theta: Array) -> Float[Array, " subjects"]:
        """Expected score on all items, or the composite, at known abilities."""
        if self.composite is not None:
            return theta @ self.composite
        return _true_scores(self, theta)

    def reported(self, posterior: FactorPosterior) -> FactorPosterior:
        """The posterior, its covariance with the errors of the axes."""
        covariance = self.whole(posterior.mode, posterior.covariance)
        return posterior._replace(covariance=covariance)

    def placed(self, theta: Array, key: KeyArray) -> Array:
        """Abilities on the axes of a calibration, which have errors."""
        if self.sampling is None:
            return theta
        gap = theta - self.center
        axes = self.spread, self.precision, self.sampling, self.axes_fixed
        error = jax.vmap(lambda x: axes_variance(x, *axes))(gap)
        noise = jax.random.normal(key, theta.shape, theta.dtype)
        return theta + jnp.einsum("nkl,nl->nk", jnp.linalg.cholesky(error), noise)

    @property
    def on_axes(self) -> bool:
        """Whether the reported ability is on the axes: the composite."""
        return self.weighted

    def all_items(self, data: Responses) -> Array:
        """The reported ability from responses of many subjects."""
        if self.errors is not None and data.trials is None:
            return _all_items(self, data)
        found = score_factors(self.model, self.items, self.population, data)
        if self.composite is not None:
            return found.mean @ self.composite
        return expected_on_items(self.model, self.items, found)[0]

    def chances(self, data: Responses) -> Float[Array, "subjects items"]:
        """Probabilities of right responses at the abilities of many subjects."""
        found = score_factors(self.model, self.items, self.population, data)
        return jax.vmap(self._right)(found.mean @ self.items.discrimination.T)

    def check(self, design: Any) -> None:
        """Refuses rules of one ability."""
        super().check(design)
        if design.gain is not None:
            raise ValueError(
                "gain is for one ability: use standard_error, reliability or"
                " determinant"
            )

    def _weights(
        self,
        product: Float[Array, " items"],
        memory: Memory = (),
        factor: Array | None = None,
        items: Items | None = None,
    ) -> Float[Array, " items"]:
        """Information of the next response to each item about its product."""
        given = self.items if items is None else items
        family, records = by_product(self.model, given)
        records = records if factor is None else shrunken(records, factor)
        weight = jax.vmap(family.information)(records, product)
        if isinstance(memory, Repeats):
            weight = weight * next_information(self._right(product), memory)
        return weight

    def _right(self, product: Float[Array, " items"]) -> Float[Array, " items"]:
        """Probability of a first right response."""
        family, records = by_product(self.model, self.items)
        return jnp.exp(jax.vmap(family.category_log_probs)(records, product)[:, 1])

    def _mutual_information(
        self,
        mean: Array,
        variance: Array,
        memory: Memory = (),
        factor: Array | None = None,
    ) -> Array:
        """`merits.mutual_information`, the products N(mean, variance).

        A response depends on the abilities through its product alone, so that the
        expectations have one dimension, whatever the number of abilities.
        """
        family, records = by_product(self.model, self.items)
        records = records if factor is None else shrunken(records, factor)
        sd = jnp.sqrt(jnp.maximum(variance, 0))
        kinds = [x.astype(sd.dtype) for x in family.statistics(self._categories)]

        def add(total, part):
            node, weight = part
            base, *rest = jax.vmap(family.natural)(records, mean + node * sd)
            found = []
            # One category at a time: a short last axis of them is several times slower.
            for y in range(self.num_categories):
                log = base + sum(k[y] * g for k, g in zip(kinds, rest, strict=True))
                if isinstance(memory, Repeats):
                    seen = memory.counts(y), memory.times, memory.odds
                    log = next_log_prob(log, *seen)
                chance = jnp.exp(log)
                found.append((chance, -jnp.where(chance > 0, chance * log, 0)))
            return jax.tree.map(lambda x, y: x + weight * y, total, found), None

        nodes = jnp.linspace(-ENTROPY_REACH, ENTROPY_REACH, ENTROPY_NODES)
        pairs = (x.astype(sd.dtype) for x in (nodes, jax.nn.softmax(-(nodes**2) / 2)))
        zeros = [(jnp.zeros_like(sd),) * 2] * self.num_categories
        found = lax.scan(add, zeros, tuple(pairs))[0]
        chance = jnp.stack([part[0] for part in found], axis=-1)
        return merits.entropy(chance) - sum(part[1] for part in found)

    @property
    def _categories(self) -> Array:
        """Numbers of the categories, from 0."""
        return jnp.arange(self.num_categories)

    def _responses(self, product: Array, factor: Array | None) -> tuple[Array, Array]:
        """Expected responses and their slopes, at products `[items]`."""
        family, records = by_product(self.model, self.items)
        records = records if factor is None else shrunken(records, factor)
        at = lambda t: jax.vmap(family.expected_response)(records, t)
        return jax.jvp(at, (product,), (jnp.ones_like(product),))


@full_precision
@eqx.filter_jit
def _bounds(bank: FactorBank, design: Any, allowed: Array, points: Array) -> Array:
    """`FactorBank.smallest_errors` at points `[points, dims]`."""
    slopes = bank.items.discrimination

    def at(theta):
        product, factor = slopes @ theta, None
        if bank.errors is not None and design.repeats == 1:
            factor = bank._factor(theta)
        gradient = bank.composite
        if gradient is None:
            rise = bank._responses(product, factor)[1]
            gradient = rise @ slopes / bank.num_items
        along = bank.spread @ gradient
        variance = gradient @ along
        tiny = jnp.finfo(variance.dtype).tiny
        share = bank._weights(product, (), factor) * (slopes @ along) ** 2
        share = jnp.where(allowed, share / jnp.maximum(variance, tiny), 0)
        more = jnp.ones((bank.num_items, 1), share.dtype)
        if design.repeats > 1:
            more = expected_shares(bank._right(product), design.repeats, design.icc)
        best = best_sum(share, more, design.num_items)
        found = variance / (1 + best)
        if bank.composite is not None:
            found = bank.of_composite(theta, found)
        return jnp.sqrt(found)

    return lax.map(at, points)


@full_precision
@eqx.filter_jit
def _expected_jit(bank: FactorBank, theta: Array, spread: Array) -> tuple[Array, Array]:
    """`FactorBank._expected`, compiled."""
    return bank._expected(theta, spread)


@full_precision
@eqx.filter_jit
def _all_items(bank: FactorBank, data: Responses) -> Array:
    """`[subjects]` reported abilities, errors of items integrated out."""
    assert bank.errors is not None
    blocks, values = bank.errors.blocks, data.values.astype(bank.center.dtype)
    exposure = data.exposure
    given = jnp.ones(values.shape, bool) if exposure is None else exposure > 0

    def one(part):
        row, seen = part
        found = bank._flat(bank.items, blocks, row, seen, bank.center)
        if bank.composite is not None:
            return bank.composite @ found.mean
        return jnp.mean(bank._expected(found.mean, found.covariance)[0])

    return lax.map(one, (values, given), batch_size=64)


@full_precision
@eqx.filter_jit
def _true_scores(bank: FactorBank, theta: Array) -> Array:
    """`[subjects]` expected mean responses to all items at true abilities."""
    slopes = bank.items.discrimination
    one = lambda point: jnp.mean(
        bank._responses(slopes @ point, bank._factor(point))[0]
    )
    return lax.map(one, theta, batch_size=64)


def _points(population: Population, dtype) -> Array:
    """Quasi-random points of the population, `[points, dims]`."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    root = np.linalg.cholesky(np.asarray(population.covariance, float))
    sobol = qmc.Sobol(len(root), scramble=False).random_base2(LOG_POINTS)
    # In the middle of their cells, and so inside the unit cube.
    uniform = sobol + 0.5 ** (LOG_POINTS + 1)
    points = np.asarray(population.mean, float) + ndtri(uniform) @ root.T
    return jnp.asarray(points, dtype)
