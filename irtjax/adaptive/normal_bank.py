r"""The bank of a factor model: tests of several abilities.

What is known of the abilities is a normal distribution around the mode,

    theta = argmax log N(theta; mu, Sigma) + sum_given log p(y_j | a_j'theta),
    P = Sigma^-1 + sum_given w_j a_j a_j',     C = P^-1,

found by Newton's method from the last mode, on all responses given. The rules of choice
use it: g'C g is the variance of the reported ability with the gradient g, and `merits`
states what an item would take from it. What is reported is that of the nearest normal
distribution (`irtjax.inference.moments`): the expected score on all items, as in
`irtjax.inference.vector_scores` (equations 1 and 2 there), or a composite c'theta.
`normal_errors` has what errors of the items and of the axes add.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Float
from scipy.special import ndtri, roots_gegenbauer

from irtjax._types import KeyArray
from irtjax.adaptive import merits
from irtjax.adaptive.bank import drawn_errors, reproducible
from irtjax.adaptive.curves import Curves
from irtjax.adaptive.model_bank import (
    INTEGRALS,
    AbstractModelBank,
    check_categories,
    check_items,
    of_several,
)
from irtjax.adaptive.normal_errors import (
    SlopeErrors,
    axes_variance,
    with_axes_error,
)
from irtjax.adaptive.normal_posterior import (
    FactorPosterior,
    LogPosterior,
    flat_posterior,
    known_posterior,
)
from irtjax.adaptive.regressed import regressed_items
from irtjax.adaptive.repeats import Repeats, before_each, next_log_prob
from irtjax.adaptive.state import Observation, State
from irtjax.data.responses import Responses
from irtjax.inference.moments import variance_of_score
from irtjax.inference.scale_error import with_shared_error
from irtjax.inference.vector_scores import expected_on_items, score_factors
from irtjax.likelihood.product_errors import of_predictor, shrunken
from irtjax.likelihood.products import (
    ExpectedCells,
    by_product,
    expected_cells,
    outer,
)
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import inverse_cholesky
from irtjax.numerics.precision import full_precision

#: Equal steps over a product in standard deviations, for entropies. Of a standard
#: deviation of 2.6 the error is below 1e-5; with 13 steps it was 2e-4.
ENTROPY_REACH, ENTROPY_NODES = 4.5, 19
#: Nodes of KL's integral. With a largest distance of products of 10 its error is below
#: 1e-3, of 3 below 1e-7.
KL_NODES = 9
#: log2 of the points by which the standard deviation of expected scores is computed.
LOG_POINTS = 10


class FactorBank(AbstractModelBank):
    """The items of a factor model; build it with `FactorBank.create`.

    The reported ability is the expected score on all items of the bank, or the
    composite. The curve of an item is that of the product of its slopes and the
    abilities.

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
        "kl",
        "score",
    )
    several: ClassVar[bool] = True

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
        if not of_several(items):
            raise ValueError(
                f"a FactorBank is for several abilities, and a {model.name} model has"
                " one: use ItemBank"
            )
        check_categories(model)
        items = jax.tree.map(jnp.asarray, items)
        slopes = items.discrimination
        (size, dims), dtype = slopes.shape, slopes.dtype
        parts = [np.asarray(x, float).reshape(size, -1) for x in items]
        # Products with infinite parameters may be finite at some abilities.
        check_items(model, 0 * np.concatenate(parts, axis=1))
        center = jnp.asarray(population.mean, dtype)
        spread = jnp.asarray(population.covariance, dtype)
        errors = None
        if covariance is not None and np.any(covariance):
            blocks = of_predictor(model, items, covariance, center)
            errors = SlopeErrors.of(jnp.asarray(blocks, dtype))
        bank = cls(
            mean=jnp.zeros((), dtype),
            sd=jnp.zeros((), dtype),
            model=model,
            items=items,
            center=center,
            spread=spread,
            precision=jnp.asarray(np.linalg.inv(np.asarray(spread, float)), dtype),
            products=outer(slopes).T,
            errors=errors,
            sampling=None
            if num_subjects is None
            else jnp.asarray(1 / num_subjects, dtype),
            axes_fixed=axes_fixed,
        )
        if composite is None:
            sd = jnp.std(bank.truth(bank.points()[0]))
            mean = jnp.mean(_expected_jit(bank, center, spread).mean)
            return dataclasses.replace(bank, mean=mean, sd=sd)
        weights = np.asarray(composite, float)
        if weights.shape != (dims,) or not np.isfinite(weights).all():
            raise ValueError(f"composite: give {dims} finite weights, one per ability")
        if not weights.any():
            raise ValueError("composite: give a weight other than 0")
        weights = jnp.asarray(weights, dtype)
        mean, sd = weights @ center, jnp.sqrt(weights @ spread @ weights)
        return dataclasses.replace(bank, mean=mean, sd=sd, composite=weights)

    @property
    def population(self) -> Population:
        """The population that subjects come from."""
        sd = jnp.sqrt(jnp.diagonal(self.spread))
        return Population(self.center, sd, None, self.spread / (sd[:, None] * sd))

    def rebuilt(
        self,
        items: Items,
        covariance: np.ndarray | None,
        counts: np.ndarray,
        repeats: int,
    ) -> FactorBank:
        """A bank of drawn items of the same population.

        Args:
            items: Item records.
            covariance: `[items, columns, columns]` of their errors; None: exact items.
            counts: `[items]` numbers of responses of their calibration.
            repeats: Responses to an item; it does not matter to this bank.
        """
        if covariance is not None:
            # No prior has drawn these items towards its mean.
            items, covariance = regressed_items(
                self.model, items, self.population, covariance, counts, weight=0
            )
        return FactorBank.create(
            self.model,
            items,
            self.population,
            composite=self.composite,
            covariance=covariance,
        )

    @property
    def factor_names(self) -> np.ndarray:
        """factor_1, factor_2, ..., `[dims]`."""
        return np.array([f"factor_{k + 1}" for k in range(self.center.shape[0])])

    @property
    def items_without_errors(self) -> tuple[int, str] | None:
        """Items whose covariance is 0."""
        if self.errors is None:
            return None
        exact = ~np.asarray(self.errors.blocks).any(axis=(1, 2))
        return int(exact.sum()), "items without errors are taken as known"

    def identity(self) -> tuple[Any, Any]:
        """Family; items, population, composite, errors of items and axes."""
        items, errors = self.items, ()
        if self.errors is not None:
            # These were drawn towards their mean: last digits differ.
            items = jax.tree.map(reproducible, items)
            errors = (reproducible(self.errors.blocks),)
        if self.sampling is not None:
            errors += (reproducible(self.sampling),)
        population = self.center, self.spread, self.composite
        return self.model.family, (items, *population, *errors)

    def drawn_items(self, key: KeyArray) -> Items | None:
        """Items drawn by their errors around their regressed estimates."""
        if self.errors is None:
            return None
        slopes, intercept = self.items.discrimination, self.items.intercept
        moves = drawn_errors(self.errors.blocks, key, slopes.dtype)
        shift = moves[:, -1].reshape((-1,) + (1,) * (intercept.ndim - 1))
        drawn = slopes + moves[:, :-1]
        if self.model.family.parameters[0].bijection.kind == "positive":
            drawn = jnp.maximum(drawn, 0)
        return self.items._replace(discrimination=drawn, intercept=intercept + shift)

    @property
    def prior(self) -> FactorPosterior:
        """The population."""
        return FactorPosterior(
            mode=self.center,
            precision=self.precision,
            covariance=self.spread,
            mean=self.center,
            spread=self.spread,
            gradient=jnp.zeros_like(self.center),
        )

    def learn(
        self, before: State, after: State, item: Array, observation: Observation
    ) -> FactorPosterior:
        """The normal posterior given all responses of a test."""
        codes = jnp.asarray(self.model.family.category_codes)
        values, seen, memory = codes[after.observations], after.given, after.memory
        records = jax.tree.map(lambda x: x[after.items], self.items)
        density, start = self._density(records, values, seen), before.posterior.mode
        blocks = None if self.errors is None else self.errors.blocks[after.items]
        if not isinstance(memory, Repeats):
            if blocks is None:
                return known_posterior(density, start)
            return flat_posterior(density, start, blocks)
        equal, times = before_each(after.items, values, seen)
        change = lambda first: jnp.where(
            seen, next_log_prob(first, equal, times, memory.odds), 0
        )
        same = (after.items[:, None] == after.items) & seen & seen[:, None]
        return known_posterior(density._replace(change=change), start, blocks, same)

    def _density(self, records: Items, values: Array, seen: Array) -> LogPosterior:
        """The log posterior of responses of one subject."""
        values, prior = values.astype(self.center.dtype), (self.center, self.precision)
        return LogPosterior(self.model, records, values, seen, prior)

    def curves(self, theta: Array, at: Any = slice(None), flat: bool = True) -> Curves:
        """Curves of the products of items, at abilities."""
        family, records = by_product(self.model, self.items)
        if flat and self.errors is not None:
            records = shrunken(records, self.errors.shrinkage(self.model, theta))
        place = self.items.discrimination @ theta
        return Curves(family, *jax.tree.map(lambda x: x[at], (records, place)))

    def _expected(self, theta: Array, spread: Array) -> ExpectedCells:
        """Expected responses `[items]` over N(theta, spread)."""
        product = theta[None] @ self.items.discrimination.T
        variance = spread.reshape(1, -1) @ self.products
        if self.errors is not None:
            variance = variance + self.errors.variance(theta, spread)
        cells = expected_cells(self.model, self.items, product, variance)
        return jax.tree.map(lambda x: x[0], cells)

    def _score(self, theta: Array, spread: Array) -> tuple[Array, Array, Array, Array]:
        """Expected score over N(theta, spread), its variance and gradient, slopes."""
        cells = self._expected(theta, spread)
        gradient = cells.slope @ self.items.discrimination / self.num_items
        hessian = (self.products @ cells.bend).reshape(spread.shape) / self.num_items
        each = (x[None] for x in (gradient, hessian, spread))
        variance = variance_of_score(*each)[0]
        return jnp.mean(cells.mean), variance, gradient, cells.slope

    def scored(self, scoring: str, state: State) -> State:
        """The reported ability, its error, and its gradient.

        "eap": the posterior mean; "map": the value at the mode, whose error as an
        expected score counts its distance from the mean.
        """
        posterior = state.posterior
        at_mode = scoring == "map"
        if self.composite is not None:
            gradient = self.composite
            theta, spread = posterior.mean, posterior.spread
            if at_mode:
                theta, spread = posterior.mode, posterior.covariance
            ability = gradient @ theta
            square = gradient @ self.whole(theta, spread) @ gradient
        else:
            theta = posterior.mean
            ability, square, gradient, rise = self._score(theta, posterior.spread)
            if at_mode:
                theta, mean = posterior.mode, ability
                slopes = self.items.discrimination
                value, rise = self.curves(theta).expected()
                ability, gradient = jnp.mean(value), rise @ slopes / self.num_items
                square = square + (ability - mean) ** 2
            if self.errors is not None:
                square = square + self._of_items(state, theta, rise, gradient)
        return state._replace(
            posterior=posterior._replace(gradient=gradient),
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
        slopes = self.items.discrimination[state.items]
        weight = self.curves(theta, state.items).information()
        shared = (rise * variance)[state.items] * weight * (slopes @ along)
        total = own - 2 * jnp.sum(jnp.where(state.given, shared, 0))
        return jnp.maximum(total, -gradient @ along / 2)

    def whole(self, theta: Array, covariance: Array) -> Float[Array, "dims dims"]:
        """The covariance of abilities with the errors of the axes."""
        if self.sampling is None:
            return covariance
        gap = theta - self.center
        error = self._axes_variance(gap)
        return with_axes_error(covariance, gap, self.spread, self.precision, error)

    def _axes_variance(self, gap: Array) -> Float[Array, "dims dims"]:
        """The error of the axes at abilities `gap` from the population's mean."""
        assert self.sampling is not None
        return axes_variance(
            gap, self.spread, self.precision, self.sampling, self.axes_fixed
        )

    def whole_variance(self, theta: Array, variance: Array) -> Array:
        """The variance of the composite with the errors of the axes."""
        if self.sampling is None or self.composite is None:
            return variance
        gap, along = theta - self.center, self.composite
        error = along @ self._axes_variance(gap) @ along
        whole = along @ self.spread @ along
        return with_shared_error(variance, along @ gap, whole, error)

    def begun(self, scoring: str, state: State) -> State:
        """The population, whose standard deviation is known exactly."""
        state = self.scored(scoring, state)
        return state._replace(ability=self.mean, standard_error=self.sd)

    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """What each item adds by a rule (`merits`), at the mode."""
        if select in INTEGRALS:
            return super().merit(select, state)
        posterior, slopes = state.posterior, self.items.discrimination
        covariance = posterior.covariance
        spread = covariance.reshape(-1) @ self.products
        weight = self.gain(posterior.mode, state.memory)
        if select == "d_optimal":
            return merits.d_optimal(weight, spread)
        if select == "a_optimal":
            square = (covariance @ covariance).reshape(-1) @ self.products
            return merits.a_optimal(weight, spread, square)
        along = slopes @ (covariance @ posterior.gradient)
        return merits.c_optimal(weight, spread, along)

    def order(self, select: str, state: State) -> Float[Array, " items"]:
        """`merit`, of "d_optimal" without logarithms: a fifth of the time of tests."""
        if select != "d_optimal":
            return self.merit(select, state)
        spread = state.posterior.covariance.reshape(-1) @ self.products
        return self.gain(state.posterior.mode, state.memory) * spread

    def around(self, select: str, state: State) -> tuple[Array, Array, Array]:
        """Curves at products with the abilities of the posterior, or of KL's ellipsoid.

        Of abilities u uniform in (u - theta)' Sigma^-1 (u - theta) <= r^2 the product
        a'u has a density proportional to (1 - x^2)^((dims - 1) / 2) at
        a'theta + x r sqrt(a'Sigma a), so that Gegenbauer's nodes integrate it.
        """
        center, dtype = state.posterior.mean, self.center.dtype
        if select == "mutual_information":
            nodes = np.linspace(-ENTROPY_REACH, ENTROPY_REACH, ENTROPY_NODES)
            weights, spread = np.exp(-(nodes**2) / 2), state.posterior.spread
            reach = jnp.ones((), dtype)
        else:
            nodes, weights = roots_gegenbauer(KL_NODES, len(center) / 2)
            spread = self.spread
            reach = merits.KL_REACH / jnp.sqrt(state.num_given.astype(dtype) + 1)
        sd = jnp.sqrt(jnp.maximum(spread.reshape(-1) @ self.products, 0))
        distance = (reach * sd)[:, None] * jnp.asarray(nodes, dtype)
        flat = not isinstance(state.memory, Repeats)
        log_probs = self.curves(center, flat=flat).around(distance)
        return log_probs, jnp.asarray(weights / weights.sum(), dtype), center

    def points(self) -> tuple[Array, Array]:
        """Quasi-random points of the population, all of one weight."""
        from scipy.stats import qmc

        root = np.linalg.cholesky(np.asarray(self.spread, float))
        sobol = qmc.Sobol(len(root), scramble=False).random_base2(LOG_POINTS)
        # In the middle of their cells, and so inside the unit cube.
        uniform = sobol + 0.5 ** (LOG_POINTS + 1)
        points = np.asarray(self.center, float) + ndtri(uniform) @ root.T
        weights = np.full(len(points), 1 / len(points))
        return jnp.asarray(points, self.mean.dtype), jnp.asarray(
            weights, self.mean.dtype
        )

    def reduction(self, design: Any, theta: Array) -> tuple[Array, Array, Array]:
        """By a lower bound of the variance.

        With c the gradient, Cauchy and Schwarz give c'C c >= v / (1 + sum_j w_j
        (c'Sigma a_j)^2 / v) with v = c'Sigma c.
        """
        slopes, gradient = self.items.discrimination, self.composite
        curves = self.curves(theta, flat=design.repeats == 1)
        if gradient is None:
            gradient = curves.expected()[1] @ slopes / self.num_items
        along = self.spread @ gradient
        variance = gradient @ along
        tiny = jnp.finfo(variance.dtype).tiny
        each = curves.information() * (slopes @ along) ** 2
        return variance, each / jnp.maximum(variance, tiny), jnp.zeros_like(variance)

    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the variance of the reported ability."""
        return self.merit("information", state)

    def predicted(self, state: State) -> tuple[Float[Array, " items"], Array]:
        """Chances of right responses over the posterior; variance of their sum."""
        posterior = state.posterior
        cells = self._expected(posterior.mean, posterior.spread)
        rise = jnp.where(state.available, cells.slope, 0)
        gradient = rise @ self.items.discrimination
        return cells.mean, gradient @ posterior.spread @ gradient

    def above(self, state: State, mark: Array, error: Array) -> Float[Array, ""]:
        """Of a normal posterior of the reported ability, a mark on the same axes."""
        own = state.standard_error
        if self.composite is not None:
            own = jnp.sqrt(self.composite @ state.posterior.spread @ self.composite)
        spread = jnp.hypot(own, error)
        spread = jnp.maximum(spread, jnp.finfo(mark.dtype).tiny)
        return ndtr((state.ability - mark) / spread)

    def determinant(self, state: State) -> Array:
        """Determinant of the covariance of the abilities."""
        root = inverse_cholesky(state.posterior.precision)
        return jnp.prod(jnp.diagonal(root)) ** 2

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
        error = jax.vmap(self._axes_variance)(gap)
        noise = jax.random.normal(key, theta.shape, theta.dtype)
        return theta + jnp.einsum("nkl,nl->nk", jnp.linalg.cholesky(error), noise)

    @property
    def on_axes(self) -> bool:
        """Whether the reported ability is on the axes: the composite."""
        return self.composite is not None

    def all_items(self, data: Responses) -> Array:
        """The reported ability from responses of many subjects."""
        if self.errors is not None and data.trials is None:
            return _all_items(self, data)
        scores = score_factors(self.model, self.items, self.population, data)
        if self.composite is not None:
            return scores.mean @ self.composite
        return expected_on_items(self.model, self.items, scores)[0]

    def chances(self, data: Responses) -> Float[Array, "subjects items"]:
        """Probabilities of right responses at the abilities of many subjects."""
        scores = score_factors(self.model, self.items, self.population, data)
        return jax.vmap(self.right)(scores.mean)

    def check(self, design: Any) -> None:
        """Refuses rules of one ability."""
        super().check(design)
        if design.gain is not None:
            raise ValueError(
                "gain is for one ability: use standard_error, reliability or"
                " determinant"
            )


@full_precision
@eqx.filter_jit
def _expected_jit(bank: FactorBank, theta: Array, spread: Array) -> ExpectedCells:
    """`FactorBank._expected`, compiled."""
    return bank._expected(theta, spread)


@full_precision
@eqx.filter_jit
def _all_items(bank: FactorBank, data: Responses) -> Array:
    """`[subjects]` reported abilities, errors of items integrated out."""
    assert bank.errors is not None
    blocks, values = bank.errors.blocks, data.values.astype(bank.center.dtype)
    exposure = data.exposure
    observed = jnp.ones(values.shape, bool) if exposure is None else exposure > 0

    def one(part):
        posterior = flat_posterior(
            bank._density(bank.items, *part), bank.center, blocks
        )
        if bank.composite is not None:
            return bank.composite @ posterior.mean
        return jnp.mean(bank._expected(posterior.mean, posterior.spread).mean)

    return lax.map(one, (values, observed), batch_size=64)


@full_precision
@eqx.filter_jit
def _true_scores(bank: FactorBank, theta: Array) -> Array:
    """`[subjects]` expected mean responses to all items at true abilities."""
    one = lambda point: jnp.mean(bank.curves(point).expected()[0])
    return lax.map(one, theta, batch_size=64)
