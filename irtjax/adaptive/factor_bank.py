r"""The bank of a factor model: tests of several abilities.

What is known of the abilities is a normal distribution around the mode,

    theta = argmax log N(theta; mu, Sigma) + sum_given log p(y_j | a_j'theta),
    P = Sigma^-1 + sum_given w_j a_j a_j',     C = P^-1,

found by Newton's method from the last mode, on all responses given. The reported
ability is the expected score on all items, as in `irtjax.scoring.factors` (equations 1
and 2 there, items known), or a composite c'theta. Its variance is g'C g with the
gradient g (c of the composite), and `merits` states what an item would take from it.
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
from irtjax.likelihood.products import by_product, cells, expected_cells, outer
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.kernels import inverse_cholesky, positive_definite_solve
from irtjax.numerics.precision import full_precision
from irtjax.scoring.factors import FactorScores, expected_on_items, score_factors

#: More Newton steps than a mode needs from the one before the last response.
MOST_NEWTON = 30
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
    items of the bank, or the composite.

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

    @classmethod
    def create(
        cls,
        model: Model,
        items: Items,
        population: Population,
        *,
        composite: Sequence[float] | Array | None = None,
    ) -> FactorBank:
        """Prepares a bank, in the dtype of its items. On the host.

        Args:
            model: A model with several abilities.
            items: Item records, discriminations `[items, dims]`.
            population: The normal prior of every subject's abilities.
            composite: `[dims]` weights of the abilities in the reported one; None
                reports the expected score on all items.

        Raises:
            ValueError: If the model has one ability or is of scores, the composite does
                not suit, or an item has parameters that are not finite.
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
        if composite is None:
            zero = jnp.zeros((), dtype)
            bank = cls(zero, zero, *known)
            sd = jnp.std(bank.truth(_points(population, dtype)))
            posterior = jax.tree.map(lambda x: x[None], bank.prior)
            parts = posterior.mode, posterior.covariance, posterior.mean
            scores = FactorScores(*parts, jnp.ones(1, bool))
            mean, _ = expected_on_items(model, items, scores)
            return cls(mean[0], sd, *known)
        weights = np.asarray(composite, float)
        if weights.shape != (dims,) or not np.isfinite(weights).all():
            raise ValueError(f"composite: give {dims} finite weights, one per ability")
        if not weights.any():
            raise ValueError("composite: give a weight other than 0")
        weights = jnp.asarray(weights, dtype)
        mean, sd = weights @ center, jnp.sqrt(weights @ spread @ weights)
        return cls(mean, sd, *known, weights)

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
        slopes, seen = given.discrimination, after.given[None]
        values = after.observations[None].astype(slopes.dtype)
        change, memory = None, after.memory
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
        return FactorPosterior(mode, precision, covariance, mean, mean)

    def scored(self, score: str, state: State) -> State:
        """The reported ability, its error, and its gradient.

        "eap": the posterior mean; "map": the value at the mode.
        """
        known = state.posterior
        at_mode = score == "map"
        theta = known.mode if at_mode else known.mean
        if self.composite is not None:
            ability, gradient = self.composite @ theta, self.composite
        else:
            slopes = self.items.discrimination
            product = theta[None] @ slopes.T
            if at_mode:
                value, rise = self._responses(product)
            else:
                variance = known.covariance.reshape(1, -1) @ self.products
                found = expected_cells(self.model, self.items, product, variance)
                value, rise = found.mean, found.slope
            ability, gradient = jnp.mean(value), rise[0] @ slopes / self.num_items
        error = jnp.sqrt(gradient @ known.covariance @ gradient)
        return state._replace(
            posterior=known._replace(gradient=gradient),
            ability=ability,
            standard_error=error,
        )

    def begun(self, score: str, state: State) -> State:
        """The population, whose standard deviation is known exactly."""
        state = self.scored(score, state)
        return state._replace(ability=self.mean, standard_error=self.sd)

    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """What each item adds by a rule (`merits`), at the mode."""
        known, slopes = state.posterior, self.items.discrimination
        covariance = known.covariance
        spread = covariance.reshape(-1) @ self.products
        if select == "mutual_information":
            mean = slopes @ known.mean
            return self._mutual_information(mean, spread, state.memory)
        weight = self._weights(slopes @ known.mode, state.memory)
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
        """The posterior itself."""
        return posterior

    def all_items(self, data: Responses) -> Array:
        """The reported ability from responses of many subjects."""
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
        self, product: Float[Array, " items"], memory: Memory = ()
    ) -> Float[Array, " items"]:
        """Information of the next response to each item about its product."""
        family, records = by_product(self.model, self.items)
        weight = jax.vmap(family.information)(records, product)
        if isinstance(memory, Repeats):
            weight = weight * next_information(self._right(product), memory)
        return weight

    def _right(self, product: Float[Array, " items"]) -> Float[Array, " items"]:
        """Probability of a first right response."""
        family, records = by_product(self.model, self.items)
        return jnp.exp(jax.vmap(family.category_log_probs)(records, product)[:, 1])

    def _mutual_information(
        self, mean: Array, variance: Array, memory: Memory = ()
    ) -> Array:
        """`merits.mutual_information`, the products N(mean, variance).

        A response depends on the abilities through its product alone, so that the
        expectations have one dimension, whatever the number of abilities.
        """
        family, records = by_product(self.model, self.items)
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

    def _responses(self, product: Array) -> tuple[Array, Array]:
        """Expected responses and their slopes, at products `[subjects, items]`."""
        family, records = by_product(self.model, self.items)
        over = jax.vmap(jax.vmap(family.expected_response), (None, 0))
        at = lambda t: over(records, t)
        return jax.jvp(at, (product,), (jnp.ones_like(product),))


@full_precision
@eqx.filter_jit
def _bounds(bank: FactorBank, design: Any, allowed: Array, points: Array) -> Array:
    """`FactorBank.smallest_errors` at points `[points, dims]`."""
    slopes = bank.items.discrimination

    def at(theta):
        product = slopes @ theta
        gradient = bank.composite
        if gradient is None:
            rise = bank._responses(product[None])[1][0]
            gradient = rise @ slopes / bank.num_items
        along = bank.spread @ gradient
        variance = gradient @ along
        tiny = jnp.finfo(variance.dtype).tiny
        share = bank._weights(product) * (slopes @ along) ** 2
        share = jnp.where(allowed, share / jnp.maximum(variance, tiny), 0)
        more = jnp.ones((bank.num_items, 1), share.dtype)
        if design.repeats > 1:
            more = expected_shares(bank._right(product), design.repeats, design.icc)
        best = best_sum(share, more, design.num_items)
        return jnp.sqrt(variance / (1 + best))

    return lax.map(at, points)


@full_precision
@eqx.filter_jit
def _true_scores(bank: FactorBank, theta: Array) -> Array:
    """`[subjects]` expected mean responses to all items at true abilities."""
    one = lambda point: jnp.mean(
        bank._responses(point[None] @ bank.items.discrimination.T)[0]
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
