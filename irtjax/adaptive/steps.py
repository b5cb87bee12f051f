"""Adaptive testing as four pure steps: start, select, update, stop.

The state has arrays of fixed size, so one compiled program serves every item of every
test, and the steps may be scanned, vmapped over subjects, or called one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num

from irtjax._types import KeyArray
from irtjax.adaptive.bank import AbstractBank, Memory, Observation
from irtjax.adaptive.design import Design, StopFlag

#: More steps than bisection alone needs from a grid interval in double precision.
MOST_STEPS = 40


class State(NamedTuple):
    """A test under way."""

    num_given: Int[Array, ""]  # number of items with a response
    items: Int[Array, " num_items"]  # in the order given, 0 beyond `num_given`
    observations: Observation  # what was observed of each, leading axis as `items`
    available: Bool[Array, " items"]  # whether each item may still be given
    log_posterior: Float[Array, " nodes"]  # log prior plus log-likelihoods
    ability: Float[Array, ""]  # the score so far
    standard_error: Float[Array, ""]
    information: Float[Array, " items"] | None  # at the ability, if a rule needs it
    memory: Memory  # what the bank stores with the posterior
    priority: Float[Array, " items"] | None  # of "random", "fixed": the highest is next
    key: KeyArray


def start(
    bank: AbstractBank,
    design: Design,
    *,
    key: KeyArray,
    available: Bool[Array, " items"] | None = None,
    eligibility: Float[Array, " items"] | None = None,
    order: Num[Array, " items"] | None = None,
) -> State:
    """The state before the first item: the posterior is the population.

    Only items that are `available` are given; those used too often so far are closed
    here (`open_items`). `eligibility` is the probability with which each item may be
    used in this test, drawn once for each: the item's rate of use can then not exceed
    it, whatever is selected (van der Linden and Veldkamp 2004). `order` is the place of
    each item under "fixed", lowest first; None for the bank's.
    """
    size, dtype = bank.num_items, bank.theta.dtype
    allowed = jnp.ones(size, bool) if available is None else available
    if design.groups is not None:
        allowed = allowed & (design.groups >= 0)
    if eligibility is not None:
        draw = jax.random.fold_in(key, 0)
        allowed = allowed & jax.random.bernoulli(draw, eligibility)
    priority = None
    if design.select == "random":
        priority = jax.random.uniform(jax.random.fold_in(key, 1), (size,), dtype)
    elif design.select == "fixed":
        place = jnp.arange(size) if order is None else order
        priority = -place.astype(dtype)
    empty = lambda x: jnp.zeros((design.num_items, *x.shape), x.dtype)
    state = State(
        num_given=jnp.zeros((), jnp.int32),
        items=jnp.zeros(design.num_items, jnp.int32),
        observations=jax.tree.map(empty, bank.blank),
        available=allowed,
        log_posterior=bank.log_prior,
        ability=bank.mean,
        standard_error=bank.sd,
        information=None,
        memory=bank.memory,
        priority=priority,
        key=key,
    )
    if design.score == "map":
        return _informed(bank, design, state)
    return _scored(bank, design, state)


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
    informed = design.select == "information"
    merit = state.information if informed else state.priority
    assert merit is not None
    merit = jnp.where(candidates, merit, -jnp.inf)
    most = min(design.randomesque, bank.num_items)
    if most == 1:
        return jnp.argmax(merit).astype(jnp.int32)
    best = lax.top_k(merit, most)[1]
    count = jnp.minimum(jnp.sum(candidates, dtype=jnp.int32), most)
    key = jax.random.fold_in(state.key, 2 + state.num_given)
    place = jax.random.randint(key, (), 0, jnp.maximum(count, 1))
    return best[place].astype(jnp.int32)


def _given(state: State) -> Bool[Array, " num_items"]:
    """Whether each place of the test has an item."""
    return jnp.arange(state.items.shape[0], dtype=jnp.int32) < state.num_given


def _candidates(design: Design, state: State) -> Bool[Array, " items"]:
    """Available items, of the group whose turn it is."""
    if design.groups is None or design.targets is None:
        return state.available
    codes = jnp.maximum(design.groups, 0)
    size = design.targets.shape[0]
    counts = jnp.zeros(size, jnp.int32)
    counts = counts.at[codes[state.items]].add(_given(state).astype(jnp.int32))
    left = jnp.zeros(size, bool).at[codes].max(state.available)
    targets = design.targets.astype(state.ability.dtype)
    number, counts = (x.astype(targets.dtype) for x in (state.num_given + 1, counts))
    due = targets * number - counts
    turn = jnp.argmax(jnp.where(left, due, -jnp.inf)).astype(jnp.int32)
    return state.available & (design.groups == turn)


def update(
    bank: AbstractBank,
    design: Design,
    state: State,
    item: Int[Array, ""],
    observation: Observation,
) -> State:
    """The state, which must have room, after one more observation like `bank.blank`."""
    put = lambda old, x: old.at[state.num_given].set(x)
    log_posterior = state.log_posterior + bank.node_log_probs(item, observation)
    memory = bank.remember(state.memory, item, observation)
    if jax.tree.leaves(memory):
        at_nodes = jax.vmap(bank.log_memory, in_axes=(None, 0))
        change = at_nodes(memory, bank.theta) - at_nodes(state.memory, bank.theta)
        log_posterior = log_posterior + change
    new = state._replace(
        memory=memory,
        num_given=state.num_given + 1,
        items=put(state.items, item),
        observations=jax.tree.map(put, state.observations, observation),
        available=state.available.at[item].set(False),
        log_posterior=log_posterior,
    )
    return _scored(bank, design, new)


def _scored(bank: AbstractBank, design: Design, state: State) -> State:
    score = _mode if design.score == "map" else _mean
    ability, variance = score(bank, state)
    new = state._replace(ability=ability, standard_error=jnp.sqrt(variance))
    return _informed(bank, design, new)


def _informed(bank: AbstractBank, design: Design, state: State) -> State:
    # Kept in the state, and not computed where it is used: inside the loop of a
    # maximum it would not vectorise, which takes five times as long on a CPU.
    if design.select != "information" and design.gain is None:
        return state
    return state._replace(information=bank.gain(state.ability, state.memory))


def _mean(bank: AbstractBank, state: State) -> tuple[Array, Array]:
    """EAP: mean and variance of the posterior on the nodes."""
    posterior = jax.nn.softmax(state.log_posterior)
    ability = posterior @ bank.theta
    variance = posterior @ (bank.theta - ability) ** 2
    # No narrower than the nodes resolve, as in `irtjax.scoring`.
    return ability, jnp.maximum(variance, (bank.theta[1] - bank.theta[0]) ** 2 / 12)


def _mode(bank: AbstractBank, state: State) -> tuple[Array, Array]:
    """MAP: a safeguarded Newton search from the best node, and 1 / (-l'' + 1 / s^2).

    The search is exact: it uses the log-likelihood itself and not its table. The nodes,
    half a posterior standard deviation apart, only select the highest of several modes.
    """
    given = _given(state)

    def log_posterior(theta):
        one = lambda item, seen: bank.log_prob(item, seen, theta)
        cells = jax.vmap(one)(state.items, state.observations)
        prior = -0.5 * ((theta - bank.mean) / bank.sd) ** 2
        prior = prior + bank.log_memory(state.memory, theta)
        return prior + jnp.sum(jnp.where(given, cells, 0))

    slope_at = jax.grad(log_posterior)
    nodes, last = bank.theta, bank.theta.shape[0] - 1
    index = jnp.argmax(state.log_posterior)
    tolerance = jnp.finfo(nodes.dtype).eps ** (2 / 3)

    def body(search):
        theta, low, high, _, _, num_steps = search
        slope, bend = jax.jvp(slope_at, (theta,), (jnp.ones_like(theta),))
        low = jnp.where(slope > 0, theta, low)
        high = jnp.where(slope < 0, theta, high)
        newton = theta - slope / jnp.where(bend < 0, bend, -1)
        trusted = (bend < 0) & (newton >= low) & (newton <= high)
        new = jnp.where(trusted, newton, (low + high) / 2)
        new = jnp.where(slope == 0, theta, new)
        return new, low, high, -bend, jnp.abs(new - theta) <= tolerance, num_steps + 1

    theta = nodes[index]
    low, high = nodes[jnp.maximum(index - 2, 0)], nodes[jnp.minimum(index + 2, last)]
    zero = jnp.zeros((), jnp.int32)
    init = (theta, low, high, theta, jnp.zeros((), bool), zero)
    found = lax.while_loop(lambda s: ~s[4] & (s[5] < MOST_STEPS), body, init)
    return found[0], 1 / jnp.maximum(found[3], (nodes[-1] - nodes[0]) ** -2)


def stop(bank: AbstractBank, design: Design, state: State) -> Int[Array, ""]:
    """Why the test is over: `StopFlag` codes, 0 if it is not."""
    dtype = state.ability.dtype
    ends: list[tuple[StopFlag, Array]] = [
        (StopFlag.NUM_ITEMS, state.num_given >= design.num_items),
        (StopFlag.NO_ITEMS, ~jnp.any(state.available)),
    ]
    if design.standard_error is not None:
        limit = design.standard_error.astype(dtype)
        ends.append((StopFlag.STANDARD_ERROR, state.standard_error < limit))
    if design.reliability is not None:
        reliability = 1 - (state.standard_error / bank.sd) ** 2
        limit = design.reliability.astype(dtype)
        ends.append((StopFlag.RELIABILITY, reliability > limit))
    if design.gain is not None:
        information = state.information
        assert information is not None
        so_far = jnp.sum(jnp.where(_given(state), information[state.items], 0))
        best = jnp.max(jnp.where(state.available, information, 0))
        ends.append((StopFlag.GAIN, best < design.gain.astype(dtype) * so_far))
    flags = (jnp.where(ended, int(flag), 0) for flag, ended in ends)
    return sum(flags, jnp.zeros((), jnp.int32)).astype(jnp.int32)
