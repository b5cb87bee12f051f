"""Item banks: what a test needs of its items, computed once.

A bank has three tasks in a test: what the responses so far imply of the abilities
(`learn`, `scored`), how much each item would add (`merit`), and which observation a
subject might make (`draw`). An observation is any PyTree of scalars, so that it may
have more than the response, such as its length.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray
from irtjax.adaptive.repeats import Repeats, best_sum
from irtjax.adaptive.state import Memory, Observation, Posterior, State
from irtjax.data.wording import counted
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.precision import full_precision


def reproducible(values: Any) -> np.ndarray:
    """Float64 without the last digits, in which machines differ; no negative zero.

    >>> reproducible([0.1234567, -1e-9]).tolist()
    [0.123457, 0.0]
    """
    return np.round(np.asarray(values, float), 6) + 0.0


def drawn_errors(blocks: Any, key: KeyArray, dtype: Any) -> Array:
    """Random errors of items with covariances `[items, p, p]`, `[items, p]`."""
    values, vectors = np.linalg.eigh(np.asarray(blocks, float))
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    noise = jax.random.normal(key, values.shape, dtype)
    return jnp.einsum("jpq,jq->jp", jnp.asarray(roots, dtype), noise)


class AbstractBank(eqx.Module):
    """Items, and the population that subjects come from.

    Those of a response model derive from `AbstractModelBank`. The posterior of one
    ability is a table at nodes (`AbstractNodeBank`), that of several abilities a normal
    distribution (`FactorBank`).
    """

    #: Of the reported ability over the population.
    mean: eqx.AbstractVar[Array]
    sd: eqx.AbstractVar[Array]
    #: Rules of selection that suit, other than "random" and "fixed".
    selections: ClassVar[tuple[str, ...]] = ("information",)
    #: Whether subjects have several abilities.
    several: ClassVar[bool] = False
    #: Whether `decrease` serves the loss of a decision.
    decides: ClassVar[bool] = False
    #: Whether a test may repeat items.
    repeatable: ClassVar[bool] = False

    @property
    @abstractmethod
    def num_items(self) -> int:
        """Number of items."""

    @property
    def num_categories(self) -> int:
        """Number of categories of a response."""
        return 2

    @property
    def category_codes(self) -> tuple[int, ...]:
        """The response that each category is."""
        return tuple(range(self.num_categories))

    @property
    @abstractmethod
    def blank(self) -> Observation:
        """An observation of the right form and dtypes, whatever its values."""

    @property
    @abstractmethod
    def prior(self) -> Posterior:
        """The posterior before the first item."""

    @abstractmethod
    def learn(
        self, before: State, after: State, item: Array, observation: Observation
    ) -> Posterior:
        """The posterior with one more observation, which is in `after` already."""

    @abstractmethod
    def scored(self, scoring: str, state: State) -> State:
        """The state with the ability and standard error of its posterior."""

    def begun(self, scoring: str, state: State) -> State:
        """The first state with its ability and standard error."""
        return self.scored(scoring, state)

    @abstractmethod
    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """What a rule of selection maximises, for every item."""

    def order(self, select: str, state: State) -> Float[Array, " items"]:
        """Numbers in the order of `merit`, for rules that compare items alone."""
        return self.merit(select, state)

    @abstractmethod
    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the loss by each item: see `Rules`, price."""

    @abstractmethod
    def above(self, state: State, mark: Array, error: Array) -> Float[Array, ""]:
        """Probability that the reported ability is above N(mark, error^2)."""

    def predicted(self, state: State) -> tuple[Float[Array, " items"], Array]:
        """Chances of right responses given those so far, and a variance.

        Returns:
            The chances, and the variance of their sum over the items left by the error
            of the abilities.
        """
        raise NotImplementedError(f"{type(self).__name__} predicts no responses")

    def odds(self, state: State, low: Array, high: Array) -> Float[Array, ""]:
        """Log-likelihood ratio of two abilities."""
        raise NotImplementedError(f"{type(self).__name__} has several abilities")

    @abstractmethod
    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory
    ) -> Observation:
        """A random observation of a subject of ability `theta`, given the memory."""

    @property
    @abstractmethod
    def population(self) -> Population:
        """The population that subjects come from."""

    def draw_abilities(self, num_subjects: int, key: KeyArray) -> Array:
        """Abilities of subjects from the population, `[subjects]` or with dims."""
        return simulate_abilities(num_subjects, key, self.population, self.mean.dtype)

    @abstractmethod
    def points(self) -> tuple[Array, Array]:
        """Points of the population, `[points]` or with dims, and weights of sum 1."""

    @abstractmethod
    def reduction(self, design: Any, theta: Array) -> tuple[Array, Array, Array]:
        """The effect of one response to each item on the variance, by the delta method.

        Args:
            design: The rules of the test.
            theta: Abilities.

        Returns:
            v, the variance over the population of the reported ability; `[items]` r_j,
            of which items with a sum R reduce v to v / (1 + R) at most; and the largest
            r of what is not a response.
        """

    def shares(self, design: Any, theta: Array) -> Float[Array, "items repeats"]:
        """Information of each response to an item over that of the first."""
        return jnp.ones((self.num_items, 1), theta.dtype)

    def smallest_errors(
        self, design: Any, allowed: Bool[Array, " items"]
    ) -> tuple[Array, Array]:
        """Smallest standard errors of a test at points of the population.

        They follow from the responses of the most information at each point.

        Returns:
            Errors and weights, which sum to one, each `[points]`.
        """
        points, weights = self.points()
        return _smallest_errors(self, design, allowed, points), weights

    def whole_variance(self, theta: Array, variance: Array) -> Array:
        """The variance of the reported ability with the error of its scale."""
        return variance

    @property
    def may_repeat(self) -> bool:
        """Whether a test may repeat items: right and wrong responses."""
        return self.repeatable and self.num_categories == 2

    @property
    def factor_names(self) -> np.ndarray | None:
        """`[dims]` names of several abilities; None of one."""
        return None

    @property
    def items_without_errors(self) -> tuple[int, str] | None:
        """Number of items without finite errors and the effect; None: all are exact."""
        return None

    def identity(self) -> tuple[Any, Any]:
        """The response family, if any, and the arrays by which a saved test resumes.

        Tables that follow from these are left out, as other machines have other last
        digits.
        """
        return None, self

    def drawn_items(self, key: KeyArray) -> Any:
        """Item records drawn by errors around their mean; None if a bank has none."""
        return None

    @property
    def on_axes(self) -> bool:
        """Whether the reported ability is on the scale of a calibration."""
        return True

    def placed(self, theta: Array, key: KeyArray) -> Array:
        """Abilities of a population on the scale of the bank, which has an error."""
        return theta

    def truth(self, theta: Array) -> Float[Array, " subjects"]:
        """The true value of the reported ability of subjects."""
        return theta

    def reported(self, posterior: Posterior) -> Any:
        """What of the last posterior is part of a test's result."""
        return ()

    def check(self, design: Any) -> None:
        """Refuses rules that do not suit.

        Raises:
            ValueError: With the rule and the cure.
        """
        if design.select not in ("random", "fixed", *self.selections):
            what = "several abilities" if self.several else "one ability"
            raise ValueError(
                f"select {design.select!r} does not suit {what}: choose among"
                f" {', '.join((*self.selections, 'random', 'fixed'))}"
            )

        if design.select == "score" and self.num_categories != 2:
            raise ValueError(
                "select 'score' is for right and wrong responses: choose 'random'"
            )
        if design.cost is not None and design.cost.shape != (self.num_items,):
            raise ValueError(
                f"cost has {design.cost.shape[0]:,} numbers: give one for each of the"
                f" {counted(self.num_items, 'item')}"
            )
        if design.indifference is not None and self.several:
            raise ValueError(
                "indifference is for one ability: leave it out, and the risk is that"
                " of the posterior"
            )
        looks_ahead = design.pass_mark is not None and design.price is not None
        if looks_ahead and not self.decides:
            raise ValueError(
                "price with pass_mark needs one ability and no response lengths: use"
                " risk"
            )
        if design.repeats > 1 and not self.may_repeat:
            raise ValueError(
                "repeats needs right and wrong responses without lengths: leave it out"
            )
        if design.determinant is not None and not self.several:
            raise ValueError("determinant is for several abilities: use standard_error")

    def determinant(self, state: State) -> Array:
        """Determinant of the covariance of several abilities."""
        raise NotImplementedError(f"{type(self).__name__} has one ability")

    # Where observations are not independent given ability, a test stores more of them
    # than the posterior; most banks leave these as they are.

    @property
    def memory(self) -> Memory:
        """What a test stores before its first item."""
        return ()

    def memory_for(self, design: Any) -> Memory:
        """What a test with these rules stores before its first item."""
        if design.repeats > 1:
            return Repeats.none(design, self.num_items, self.mean.dtype)
        return self.memory

    def remember(self, memory: Memory, item: Array, observation: Observation) -> Memory:
        """The memory with one more observation."""
        if isinstance(memory, Repeats):
            return memory.added(item, self.response_of(observation))
        return memory

    def observe(self, category: int, length: Any = None) -> Observation:
        """The observation of a response, with its length if the bank models lengths."""
        if length is not None:
            raise ValueError("the bank has no model of response lengths: leave it out")
        return jnp.asarray(category, jnp.int32)

    def response_of(self, observation: Observation) -> Array:
        """The response in an observation, or in an array of them."""
        return observation


@full_precision
@eqx.filter_jit
def _smallest_errors(
    bank: AbstractBank, design: Any, allowed: Array, points: Array
) -> Array:
    """`AbstractBank.smallest_errors` at points."""

    def at(theta):
        variance, each, other = bank.reduction(design, theta)
        each = jnp.where(allowed, each, 0)
        best = best_sum(each, bank.shares(design, theta), design.num_items)
        bound = variance / (1 + best + other)
        return jnp.sqrt(bank.whole_variance(theta, bound))

    return lax.map(at, points)
