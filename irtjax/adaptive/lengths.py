"""Adaptive tests that use responses and their lengths (LaRT)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.adaptive.item_bank import ItemBank
from irtjax.adaptive.node_bank import AbstractNodeBank
from irtjax.adaptive.state import State
from irtjax.data.responses import Responses
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.family import Items
from irtjax.models.lengths import LengthParameters, LengthSummary
from irtjax.models.model import Model, Population


class Answer(NamedTuple):
    """A response and the logarithm of its length, NaN where that is not known."""

    response: Array
    log_length: Array


class LengthMemory(NamedTuple):
    """Evidence of the lengths of a test so far."""

    precision: Float[Array, ""]  # A = sum_j phi_j^2 / lambda_j
    slope: Float[Array, ""]  # S = sum_j phi_j (log T_j - omega_j) / lambda_j


class LengthBank(ItemBank):
    """Items of a model with response lengths; build it with `LengthBank.of`.

    Lengths depend on speed, which all items of a subject share, so they do not add up
    item by item: a test stores two sums, and given those the lengths contribute to
    ability what N(-rho S / (1 + A), 1 - rho^2 A / (1 + A)) contributes. An item's
    information is that of its response plus what its length would add to the precision
    of ability (the corrected equation (10) of the LaRT paper).
    `offset` is added to lengths before the logarithm.
    """

    #: The others would leave out what a length adds.
    selections: ClassVar[tuple[str, ...]] = ("information",)
    decides: ClassVar[bool] = False
    repeatable: ClassVar[bool] = False

    lengths: LengthParameters = eqx.field(kw_only=True)
    offset: float = eqx.field(static=True, default=1.0)

    @classmethod
    def of(
        cls,
        model: Model,
        items: Items,
        population: Population,
        lengths: LengthParameters,
        *,
        offset: float = 1.0,
        **options: Any,
    ) -> LengthBank:
        """Computes the tables of a bank under N(0, 1); see `ItemBank.create`.

        Errors of the items are those of their responses; lengths are taken as known.
        """
        if not model.has_lengths:
            raise ValueError(
                f"the model {model.name} has no response lengths: use ItemBank"
            )
        rho = float(lengths.correlation)
        extra = rho**2 / (1 - rho**2)
        options["extra_precision"] = extra
        plain = ItemBank.create(model, items, population, **options)
        names = (field.name for field in dataclasses.fields(plain))
        fields = {name: getattr(plain, name) for name in names}
        dtype = plain.theta.dtype
        records = jax.tree.map(lambda x: jnp.asarray(x, dtype), lengths)
        return cls(**fields, lengths=records, offset=offset)

    @property
    def _records(self):
        """Parameters of lengths of items; the correlation of ability and speed."""
        omega, phi, variance = self.lengths.items
        return omega, phi, variance, self.lengths.correlation

    def identity(self) -> tuple[Any, Any]:
        """As of an item bank, with the parameters of lengths."""
        family, (items, mean, sd, *errors) = super().identity()
        return family, (items, mean, sd, self.lengths, *errors)

    def with_items(self, items: Any, order: np.ndarray | None = None) -> LengthBank:
        """A bank of exact items, with their lengths in the same order."""
        bank = dataclasses.replace(self, items=items, errors=None)
        if order is None:
            return bank
        records = jax.tree.map(lambda x: x[order], self.lengths.items)
        lengths = self.lengths._replace(items=records)
        return dataclasses.replace(bank, lengths=lengths)

    def observations(self, responses: Array, lengths: np.ndarray | None) -> Answer:
        """Observations of responses and lengths `[subjects, items]`; NaN: no length."""
        if lengths is None:
            lengths = np.full(responses.shape, np.nan)
        logs = np.log(lengths + self.offset)
        return Answer(responses, jnp.asarray(logs, self.theta.dtype))

    def responses_of(self, observations: Answer, observed: Array) -> Responses:
        """Responses and lengths as data."""
        data = super().responses_of(observations.response, observed)
        has_length = jnp.isfinite(observations.log_length)
        return dataclasses.replace(
            data,
            log_length=jnp.where(has_length, observations.log_length, 0),
            length_observed=has_length,
        )

    def all_items(self, data: Responses) -> Array:
        """EAP abilities from responses and lengths of many subjects."""
        problem, _ = with_lengths(Problem.create(self.model, data), self.lengths)
        return super().all_items(problem.data)

    @property
    def blank(self) -> Answer:
        """A response without a length."""
        return Answer(jnp.zeros((), jnp.int32), jnp.full((), jnp.nan, self.theta.dtype))

    @property
    def memory(self) -> LengthMemory:
        """No lengths yet."""
        return LengthMemory(*(jnp.zeros((), self.theta.dtype),) * 2)

    def observe(self, category: int, length: Any = None) -> Answer:
        """An observation of a category and a length of 0 or more, or None."""
        number = np.nan if length is None else float(length)
        usable = np.isfinite(number) and number + self.offset > 0 and number >= 0
        if length is not None and not usable:
            raise ValueError(f"the length {length!r} is not a number of 0 or more")
        log_length = jnp.asarray(np.log(number + self.offset), self.theta.dtype)
        return Answer(jnp.asarray(category, jnp.int32), log_length)

    def response_of(self, observation: Answer) -> Array:
        """The responses of observations."""
        return observation.response

    def remember(
        self, memory: LengthMemory, item: Array, observation: Answer
    ) -> LengthMemory:
        """The sums with one more length, unless that is not known."""
        omega, phi, variance, _ = self._records
        measured = jnp.isfinite(observation.log_length)
        gap = jnp.where(measured, observation.log_length - omega[item], 0)
        ratio = jnp.where(measured, phi[item] / variance[item], 0)
        precision = memory.precision + ratio * phi[item]
        return LengthMemory(precision, memory.slope + ratio * gap)

    def log_memory(self, memory: LengthMemory, theta: Array) -> Array:
        """What the lengths add to the log-likelihood of an ability."""
        model, lengths = self.model.lengths, self.lengths
        assert model is not None and lengths is not None
        zero = jnp.zeros_like(memory.slope)
        summary = LengthSummary(memory.precision, memory.slope, zero)
        mean, variance = model.ability(lengths, summary)
        return mean / variance * theta - 0.5 * (1 / variance - 1) * theta**2

    def gain(self, theta: Array, memory: LengthMemory) -> Float[Array, " items"]:
        """Information of each response, plus the precision its length would add."""
        _, phi, variance, rho = self._records
        precision = lambda sums: 1 / (1 - rho**2 * sums / (1 + sums))
        after = precision(memory.precision + phi**2 / variance)
        return self.information(theta) + after - precision(memory.precision)

    @property
    def more_precision(self) -> Array:
        """What lengths add to the precision of ability, at most."""
        rho = self._records[3]
        return rho**2 / (1 - rho**2)

    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the variance, by a response and its length."""
        return AbstractNodeBank.decrease(self, design, state)

    def log_prob(self, item: Array, observation: Answer, theta: Array) -> Array:
        """Log-probability of the response alone; lengths are in the memory."""
        return super().log_prob(item, observation.response, theta)

    def node_log_probs(self, item: Array, observation: Answer) -> Array:
        """A row of the table of responses."""
        return super().node_log_probs(item, observation.response)

    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: LengthMemory
    ) -> Answer:
        """A random response given ability and the lengths so far.

        A length is drawn from its prediction given those before, which makes the
        lengths of a test follow one speed without its being drawn.
        """
        omega, phi, variance, rho = self._records
        response, speed, noise = jax.random.split(key, 3)
        rest = 1 - rho**2
        v = 1 / (1 / rest + memory.precision)
        mean = v * (rho * theta / rest - memory.slope)
        tau = mean + jnp.sqrt(v) * jax.random.normal(speed, (), v.dtype)
        error = jnp.sqrt(variance[item]) * jax.random.normal(noise, (), v.dtype)
        log_length = omega[item] - phi[item] * tau + error
        return Answer(self.sample(item, theta, response), log_length)
