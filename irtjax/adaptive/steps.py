"""Adaptive testing as four pure steps: start, select, update, stop.

The state has arrays of fixed size, so one compiled program serves every item of every
test, and the steps may be scanned, vmapped over subjects, or called one by one.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num

from irtjax._types import KeyArray
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import Design, StopFlag
from irtjax.adaptive.repeats import Repeats
from irtjax.adaptive.score_draws import draw_merit
from irtjax.adaptive.state import Observation, State
from irtjax.numerics.precision import full_precision


def start(
    bank: AbstractBank,
    design: Design,
    *,
    key: KeyArray,
    available: Bool[Array, " items"] | None = None,
    eligibility: Float[Array, " items"] | None = None,
    order: Num[Array, " items"] | None = None,
    most: Int[Array, " items"] | None = None,
) -> State:
    """The state before the first item: the posterior is the population.

    Only items that are `available` are given; those used too often so far are closed
    here (`open_items`). `eligibility` is the probability with which each item may be
    used in this test, drawn once for each: the item's rate of use can then not exceed
    it, whatever is selected (van der Linden and Veldkamp 2004). `order` is the place of
    each item under "fixed", lowest first; None for the bank's. `most` is how often
    each may be given, with `repeats`; None for the rule's number.
    """
    bank.check(design)
    size, dtype = bank.num_items, bank.mean.dtype
    allowed = jnp.ones(size, bool) if available is None else available
    allowed = design.with_weight(allowed)
    if eligibility is not None:
        draw = jax.random.fold_in(key, 0)
        allowed = allowed & jax.random.bernoulli(draw, eligibility)
    priority = None
    if design.select == "random":
        priority = jax.random.uniform(jax.random.fold_in(key, 1), (size,), dtype)
    elif design.select == "fixed":
        place = jnp.arange(size) if order is None else order
        priority = -place.astype(dtype)
    memory = bank.memory_for(design)
    if isinstance(memory, Repeats) and most is not None:
        memory = memory._replace(most=most)
        allowed = allowed & memory.left
    empty = lambda x: jnp.zeros((design.num_items, *x.shape), x.dtype)
    state = State(
        num_given=jnp.zeros((), jnp.int32),
        items=jnp.zeros(design.num_items, jnp.int32),
        observations=jax.tree.map(empty, bank.blank),
        available=allowed,
        posterior=bank.prior,
        ability=bank.mean,
        standard_error=bank.sd,
        merit=None,
        information=None,
        worth=None,
        memory=memory,
        priority=priority,
        key=key,
    )
    return _informed(bank, design, bank.begun(design.scoring, state))


def open_items(
    times_used: Int[Array, " items"], num_tests: Int[Array, ""], max_exposure: Array
) -> Bool[Array, " items"]:
    """Whether the next test may use each item without its use in too many tests.

    An item is closed once it was used in ceil(max_exposure * (num_tests + 1)) tests.
    After N tests no item was therefore used more than ceil(max_exposure * N) times,
    and there are items enough for tests of L as long as the bank has L / max_exposure.
    Counts are those of earlier tests.

    >>> open_items(jnp.array([0, 1, 2]), jnp.array(9), jnp.array(0.2)).tolist()
    [True, True, False]
    """
    # A share such as 0.2 times a count such as 10 must not round to above 2.
    limit = jnp.ceil(max_exposure * (num_tests + 1) * (1 - 1e-6))
    return times_used < limit


def select(bank: AbstractBank, design: Design, state: State) -> Int[Array, ""]:
    """Position of the item to give next; of any item when none is available (`stop`).

    With content targets the item is taken from the group that is furthest below its
    share, counted with the item to come: the largest w_g (n + 1) - n_g of the groups
    with items left (after Kingsbury and Zara 1989). No group then ever exceeds its
    share of the items given by one whole item or more, unless others have run out.
    """
    candidates = _candidates(design, state)
    ordered = design.select in ("random", "fixed")
    merit = state.priority if ordered else state.merit
    assert merit is not None
    if design.cost is not None and not ordered:
        merit = merit / design.cost.astype(merit.dtype)
    merit = jnp.where(candidates, merit, -jnp.inf)
    most = min(design.randomesque, bank.num_items)
    if most == 1:
        return jnp.argmax(merit).astype(jnp.int32)
    best = lax.top_k(merit, most)[1]
    count = jnp.minimum(jnp.sum(candidates, dtype=jnp.int32), most)
    key = jax.random.fold_in(state.key, 2 + state.num_given)
    place = jax.random.randint(key, (), 0, jnp.maximum(count, 1))
    return best[place].astype(jnp.int32)


def _candidates(design: Design, state: State) -> Bool[Array, " items"]:
    """Affordable items, of the group whose turn it is."""
    open_now = affordable(design, state)
    if design.groups is None or design.targets is None:
        return open_now
    codes = jnp.maximum(design.groups, 0)
    size = design.targets.shape[0]
    counts = jnp.zeros(size, jnp.int32)
    counts = counts.at[codes[state.items]].add(state.given.astype(jnp.int32))
    left = jnp.zeros(size, bool).at[codes].max(open_now)
    targets = design.targets.astype(state.ability.dtype)
    number, counts = (x.astype(targets.dtype) for x in (state.num_given + 1, counts))
    due = targets * number - counts
    turn = jnp.argmax(jnp.where(left, due, -jnp.inf)).astype(jnp.int32)
    return open_now & (design.groups == turn)


def update(
    bank: AbstractBank,
    design: Design,
    state: State,
    item: Int[Array, ""],
    observation: Observation,
) -> State:
    """The state, which must have room, after one more observation like `bank.blank`."""
    put = lambda old, x: old.at[state.num_given].set(x)
    memory = bank.remember(state.memory, item, observation)
    again, priority = jnp.zeros((), bool), state.priority
    if isinstance(memory, Repeats):
        again = memory.left[item]
        priority = _after(design, state, item)
    new = state._replace(
        memory=memory,
        num_given=state.num_given + 1,
        items=put(state.items, item),
        observations=jax.tree.map(put, state.observations, observation),
        available=state.available.at[item].set(again),
        priority=priority,
    )
    new = new._replace(posterior=bank.learn(state, new, item, observation))
    return _informed(bank, design, bank.scored(design.scoring, new))


def reserve(
    bank: AbstractBank, design: Design, state: State, item: Int[Array, ""]
) -> State:
    """The state, which must have room, as if an item that was handed out were given.

    It counts for the length, the budget and the quota; nothing is learned from it. It
    is for the choice of further items while responses are awaited.
    """
    new = state._replace(
        num_given=state.num_given + 1,
        items=state.items.at[state.num_given].set(item),
        available=state.available.at[item].set(False),
    )
    return _informed(bank, design, new)


def withdraw(
    bank: AbstractBank, design: Design, state: State, item: Int[Array, ""]
) -> State:
    """The state in which an item without a response is not given any more."""
    available = state.available.at[item].set(False)
    return _informed(bank, design, state._replace(available=available))


def _after(design: Design, state: State, item: Array) -> Array | None:
    """Priorities after an item that may be given again."""
    priority = state.priority
    if priority is None or design.select == "fixed":
        # Behind all others: the order is gone through again and again.
        size = state.available.shape[0]
        return None if priority is None else priority.at[item].add(-size)
    key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.num_given)
    return jax.random.uniform(key, priority.shape, priority.dtype)


def _informed(bank: AbstractBank, design: Design, state: State) -> State:
    """The state with what rules of choice and of stopping need of the next items."""
    # Kept in the state, and not computed where it is used: inside the loop of a
    # maximum it would not vectorise, which takes five times as long on a CPU.
    if design.select == "score":
        state = state._replace(merit=draw_merit(bank, design, state))
    elif design.select not in ("random", "fixed"):
        find = bank.order if design.cost is None else bank.merit
        state = state._replace(merit=find(design.select, state))
    if design.gain is not None:
        state = state._replace(information=bank.merit("information", state))
    if design.price is not None:
        decrease = bank.decrease(design, state)
        if design.cost is not None:
            decrease = decrease / design.cost.astype(decrease.dtype)
        worth = jnp.max(jnp.where(_candidates(design, state), decrease, -jnp.inf))
        state = state._replace(worth=worth)
    return state


def spent(design: Design, state: State) -> Float[Array, ""]:
    """What the items given so far cost; their number without costs."""
    if design.cost is None:
        return state.num_given.astype(state.ability.dtype)
    cost = design.cost.astype(state.ability.dtype)
    return jnp.sum(jnp.where(state.given, cost[state.items], 0))


def affordable(design: Design, state: State) -> Bool[Array, " items"]:
    """Whether each item may be given and costs no more than is left of the budget."""
    if design.budget is None or design.cost is None:
        return state.available
    cost = design.cost.astype(state.ability.dtype)
    budget = design.budget.astype(cost.dtype)
    # Costs such as 0.1 must add up to 0.3, whatever the rounding. In single precision
    # the bound on the rounding of a long test can exceed a whole item.
    slack = budget * (2 * design.num_items * jnp.finfo(cost.dtype).eps)
    slack = jnp.minimum(slack, 1e-3 * cost)
    return state.available & (cost <= budget - spent(design, state) + slack)


def above_mark(bank: AbstractBank, design: Design, state: State) -> Float[Array, ""]:
    """Probability that the reported ability is above the mark, or the rival's."""
    return bank.above(state, *design.mark(state.ability.dtype))


def risk(bank: AbstractBank, design: Design, state: State) -> Float[Array, ""]:
    """Expected loss of the better decision on the pass mark."""
    assert design.pass_mark is not None and design.losses is not None
    above = above_mark(bank, design, state)
    wrong_pass, wrong_fail = design.losses.astype(above.dtype)
    return jnp.minimum(wrong_pass * (1 - above), wrong_fail * above)


def passed(bank: AbstractBank, design: Design, state: State) -> Bool[Array, ""]:
    """The decision on the pass mark if the test ended now.

    The one of the smaller expected loss; with `indifference` the one of Wald's test,
    and between its bounds that of the nearer one.
    """
    assert design.pass_mark is not None and design.losses is not None
    if design.indifference is not None:
        ratio, low, high = _wald(bank, design, state)
        return ratio > (low + high) / 2
    above = above_mark(bank, design, state)
    wrong_pass, wrong_fail = design.losses.astype(above.dtype)
    return wrong_fail * above > wrong_pass * (1 - above)


def decided(bank: AbstractBank, design: Design, state: State) -> Bool[Array, ""]:
    """Whether `risk` ends the test: see `Rules`, risk and indifference."""
    assert design.risk is not None
    if design.indifference is not None:
        ratio, low, high = _wald(bank, design, state)
        return (ratio < low) | (ratio > high)
    return risk(bank, design, state) < design.risk.astype(state.ability.dtype)


def _wald(bank: AbstractBank, design: Design, state: State) -> tuple[Array, ...]:
    """Log-likelihood ratio and its bounds, log b / (1 - a) and log (1 - b) / a.

    With a = risk / l10 and b = risk / l01, the rates of wrong passes and wrong fails
    (Wald 1945); a + b < 1, which `Design.create` checks.
    """
    assert design.pass_mark is not None and design.indifference is not None
    assert design.losses is not None and design.risk is not None
    dtype = state.ability.dtype
    mark, half = design.pass_mark.astype(dtype), design.indifference.astype(dtype)
    ratio = bank.odds(state, mark - half, mark + half)
    wrong_pass, wrong_fail = design.risk.astype(dtype) / design.losses.astype(dtype)
    low = jnp.log(wrong_fail) - jnp.log1p(-wrong_pass)
    return ratio, low, jnp.log1p(-wrong_fail) - jnp.log(wrong_pass)


@full_precision
def decided_by_population(bank: AbstractBank, design: Design) -> bool:
    """Whether `risk` ends every test before its first item."""
    # The likelihood ratio of no responses is 1, which is between Wald's bounds.
    if design.risk is None or design.indifference is not None:
        return False
    # No rule needs anything of the items.
    bare = dataclasses.replace(design, select="fixed", gain=None, price=None)
    return bool(decided(bank, bare, start(bank, bare, key=jax.random.key(0))))


def stop(bank: AbstractBank, design: Design, state: State) -> Int[Array, ""]:
    """Why the test is over: `StopFlag` codes, 0 if it is not."""
    dtype = state.ability.dtype
    always: list[tuple[StopFlag, Array]] = [
        (StopFlag.NUM_ITEMS, state.num_given >= design.num_items),
        (StopFlag.NO_ITEMS, ~jnp.any(state.available)),
    ]
    ends: list[tuple[StopFlag, Array]] = []
    if design.standard_error is not None:
        limit = design.standard_error.astype(dtype)
        ends.append((StopFlag.STANDARD_ERROR, state.standard_error < limit))
    if design.reliability is not None:
        reliability = 1 - (state.standard_error / bank.sd) ** 2
        limit = design.reliability.astype(dtype)
        ends.append((StopFlag.RELIABILITY, reliability > limit))
    if design.budget is not None:
        left = jnp.any(state.available) & ~jnp.any(affordable(design, state))
        always.append((StopFlag.BUDGET, left))
    if design.price is not None:
        assert state.worth is not None
        # Minus infinity where no item can be given, which is another reason.
        worthless = state.worth < design.price.astype(dtype)
        ends.append((StopFlag.UTILITY, worthless & (state.worth > -jnp.inf)))
    if design.risk is not None:
        ends.append((StopFlag.DECIDED, decided(bank, design, state)))
    if design.determinant is not None:
        limit = design.determinant.astype(dtype)
        ends.append((StopFlag.DETERMINANT, bank.determinant(state) < limit))
    if design.gain is not None:
        information = state.information
        assert information is not None
        so_far = jnp.sum(jnp.where(state.given, information[state.items], 0))
        best = jnp.max(jnp.where(state.available, information, 0))
        ends.append((StopFlag.GAIN, best < design.gain.astype(dtype) * so_far))
    if design.min_items is not None:
        enough = state.num_given >= design.min_items
        ends = [(flag, enough & ended) for flag, ended in ends]
    flags = (jnp.where(ended, int(flag), 0) for flag, ended in always + ends)
    return sum(flags, jnp.zeros((), jnp.int32)).astype(jnp.int32)
