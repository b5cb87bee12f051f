"""Whole tests: one as a scan over its items, many side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import Design
from irtjax.adaptive.repeats import TrialCounts
from irtjax.adaptive.state import Observation, State
from irtjax.adaptive.steps import (
    above_mark,
    open_items,
    passed,
    select,
    start,
    stop,
    update,
)
from irtjax.numerics.precision import full_precision

#: Tests run side by side; more than that follow in turns, to bound the memory.
SIDE_BY_SIDE = 256


class Tests(NamedTuple):
    """One test, or many with a leading axis; a test that is over keeps its score."""

    items: Int[Array, "*tests num_items"]  # in the order given, -1 where it was over
    observations: Observation  # what was observed of each
    ability: Float[Array, "*tests num_items"]  # score after each item
    standard_error: Float[Array, "*tests num_items"]
    num_given: Int[Array, "*tests"]
    stopped: Int[Array, "*tests"]  # why it ended, `StopFlag` codes
    abilities: Any = ()  # of several abilities the last `FactorPosterior`
    above: Any = ()  # with a pass mark, the probability of an ability above it
    passed: Any = ()  # with a pass mark, the decision (`steps.passed`)


# Not a test, whatever its name suggests to a test runner.
Tests.__test__ = False  # pyright: ignore[reportAttributeAccessIssue]


def run_test(
    bank: AbstractBank,
    design: Design,
    respond: Callable[[Int[Array, ""], Int[Array, ""]], Observation],
    first: State,
) -> Tests:
    """One test from its first state (`start`) to its end: a scan over steps. Pure.

    `respond` gives the observation of an item, from its position in the bank and the
    number of items before it; it is traced once.

    >>> from irtjax.adaptive import Design, ItemBank, start
    >>> from irtjax.models.model import Population
    >>> from irtjax.models.catalogue import rasch
    >>> from irtjax.models.families.logistic import LogisticItems
    >>> ones, zeros = jnp.ones(5), jnp.zeros(5)
    >>> items = LogisticItems(ones, jnp.array([2.0, 1, 0, -1, -2]), zeros, ones)
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> bank, design = ItemBank.create(rasch(), items, unit), Design.create(3)
    >>> begun = start(bank, design, key=jax.random.key(0))
    >>> run_test(bank, design, lambda item, place: jnp.int32(1), begun).items.tolist()
    [2, 3, 4]
    """
    return _run_test(bank, design, lambda item, place, _: respond(item, place), first)


def _run_test(bank: AbstractBank, design: Design, respond, first: State) -> Tests:
    """`run_test`, whose responses may depend on what the bank remembers."""

    def step(state: State, _):
        goes_on = stop(bank, design, state) == 0
        item = select(bank, design, state)
        observation = respond(item, state.num_given, state.memory)
        new = update(bank, design, state, item, observation)
        # The state of an ended test stays, so that it never begins again.
        state = jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), new, state)
        item = jnp.where(goes_on, item, -1)
        return state, (item, state.ability, state.standard_error)

    last, (items, ability, error) = lax.scan(step, first, length=design.num_items)
    why = stop(bank, design, last)
    tests = Tests(
        items,
        last.observations,
        ability,
        error,
        last.num_given,
        why,
        bank.reported(last.posterior),
    )
    if design.pass_mark is None:
        return tests
    return tests._replace(
        above=above_mark(bank, design, last), passed=passed(bank, design, last)
    )


def run_tests(
    bank: AbstractBank,
    design: Design,
    *,
    key: KeyArray,
    theta: Float[Array, "subjects *dims"],
    available: Bool[Array, "subjects items"] | None = None,
    recorded: Observation | TrialCounts | None = None,
    max_exposure: Float[Array, ""] | None = None,
    answers: AbstractBank | None = None,
    subjects: Int[Array, " tested"] | None = None,
    priors: tuple[Array, Array] | None = None,
) -> Tests:
    """Tests of subjects of abilities `theta`, who respond by the model. Pure.

    They respond by the items of the bank, or by those of another bank, `answers`.
    Where positions of `subjects` are given, only these are tested, as they would be
    among all.

    If observations are `recorded`, with leading axes `[subjects, items]`, subjects
    respond as they did; with `TrialCounts` each response is one of those that are left,
    in random order. `max_exposure` is the largest share of the tests that may use an
    item. Tests then run one after the other, since each closes items for the next
    (`open_items`). `priors` are means and standard deviations `[subjects]` of normal
    priors, with which tests begin in place of the population.
    """
    source = bank if answers is None else answers

    def one(index, allowed):
        test_key, response_key = jax.random.split(jax.random.fold_in(key, index))

        def respond(item, place, memory):
            draw = jax.random.fold_in(response_key, place)
            if isinstance(recorded, TrialCounts):
                return recorded.drawn(index, item, draw, memory)
            if recorded is not None:
                return jax.tree.map(lambda x: x[index, item], recorded)
            return source.draw(item, theta[index], draw, memory)

        if available is not None:
            mine = available[index]
            allowed = mine if allowed is None else mine & allowed
        most = None
        if isinstance(recorded, TrialCounts):
            most = recorded.most(index, design.repeats)
        own: Any = bank
        if priors is not None:
            own = own.with_prior(priors[0][index], priors[1][index])
        first = start(own, design, key=test_key, available=allowed, most=most)
        return _run_test(own, design, respond, first)

    order = jnp.arange(theta.shape[0]) if subjects is None else subjects
    if max_exposure is None:
        together = lambda index: one(index, None)
        if order.shape[0] <= SIDE_BY_SIDE:
            return jax.vmap(together)(order)
        return lax.map(together, order, batch_size=SIDE_BY_SIDE)

    def in_turn(used, index):
        test = one(index, open_items(used, index, max_exposure))
        # An index of -1 means the last item: it must count nothing.
        administered = (test.items >= 0).astype(used.dtype)
        return used + jnp.zeros_like(used).at[test.items].max(administered), test

    return lax.scan(in_turn, jnp.zeros(bank.num_items, jnp.int32), order)[1]


#: Compiled once for all tests of a shape.
run_tests_jit = full_precision(eqx.filter_jit(run_tests))
