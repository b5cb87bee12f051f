"""Variational inference of binary models, mean-field or amortised (VIBO).

Every item coordinate has its own normal approximation. Each ability has one too, or one
that a network computes from the responses: the product of the population and an expert
for each response, which sees the response and the item's coordinates (Wu, Davis,
Domingue, Piech and Goodman 2020, Variational Item Response Theory: Fast, Accurate, and
Expressive). An expert depends on its subject through the response alone, so experts are
computed once for right and once for wrong, and their product over items is a product of
matrices. An epoch is one `lax.scan` over shuffled batches of items.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import Progress
from irtjax.estimators.joint.objective import joint_derivatives, reported
from irtjax.estimators.neural.towers import Tower, make_tower
from irtjax.estimators.neural.trained import AbstractTrained
from irtjax.estimators.settings import check_least, check_rate, falling_rate
from irtjax.likelihood.problem import Parameters, Problem, Start

#: Standard deviations of the approximation at the start.
FIRST_SD = 0.3
#: Precision of an expert at the start: many of them must stay near the population.
FIRST_PRECISION = 0.05


class Beliefs(NamedTuple):
    """Parameters of the approximation: of item coordinates, and of abilities.

    `ability`, in mean field only, has means and log standard deviations; `expert`, if
    amortised, maps an item's coordinates and a response to a mean and a log precision.
    """

    mean: Float[Array, "items columns"]
    log_sd: Float[Array, "items columns"]
    ability: Float[Array, "subjects 2"] | None
    expert: Tower | None


class VIBOState(NamedTuple):
    """State of the search after `num_seen` epochs.

    `elbo` is the evidence lower bound of the last epoch's draws, `smooth` its moving
    average, `gain` the last change of that in nats per response.
    """

    beliefs: Beliefs
    optimiser: Any
    elbo: Scalar
    smooth: Scalar
    gain: Scalar
    num_seen: Array


class VIBO(AbstractTrained):
    """Variational inference for binary models by batches of items.

    Maximises E_q[log p(y | theta, x)] - KL(q(theta) || N(0, 1)) - KL(q(x) || p(x)), by
    Adam with one reparameterised draw per step. p(x) are the model's priors of items,
    or N(0, 1) for the unconstrained coordinates where it has none.

    Attributes:
        amortised: Whether a network maps responses to abilities; else mean field.
        hidden: Widths of its layers.
        batch_items: Items per step, with all their responses.
        epochs: Passes over the items.
        learning_rate: At first; it falls to a hundredth along half a cosine.
        tolerance: Largest change of the bound per epoch, in nats per response.

    >>> import irtjax
    >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    >>> irtjax.fit(table, "2pl", VIBO(epochs=5)).parameters.theta.shape
    (3,)
    """

    warning: ClassVar[str] = (
        "items are means of a variational approximation: they have no standard"
        " errors here, and those of abilities take the items as known"
    )

    amortised: bool = eqx.field(static=True, default=True)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(32,))
    batch_items: int = eqx.field(static=True, default=1024)
    epochs: int = eqx.field(static=True, default=200)
    learning_rate: float | Array = 0.02
    tolerance: float | Array = 1e-3

    def __check_init__(self):
        """Refuses settings that no search can have."""
        check_least("VIBO", self, batch_items=1, epochs=1)
        check_rate("learning_rate", self.learning_rate)

    def _optimiser(self, num_items: int) -> optax.GradientTransformation:
        steps = self.epochs * -(-num_items // self.batch_items)
        return optax.adam(falling_rate(self.learning_rate, steps))

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> VIBOState:
        """Items at the start values, abilities at the population."""
        self.check(problem)
        if key is None:
            raise ValueError("draws are random: pass run(..., key=)")
        mean = problem.model.unconstrain(start.items)
        dtype = mean.dtype
        ability = expert = None
        if self.amortised:
            first = jnp.asarray([0.0, jnp.log(FIRST_PRECISION)], dtype)
            width = mean.shape[1] + 1
            expert = make_tower(width, self.hidden, first, looked_up=False, key=key)
        else:
            ability = jnp.zeros((problem.data.num_subjects, 2), dtype)
        log_sd = jnp.full_like(mean, jnp.log(FIRST_SD))
        beliefs = Beliefs(mean, log_sd, ability, expert)
        zero, count = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        tree: Any = beliefs
        optimiser = self._optimiser(mean.shape[0]).init(tree)
        return VIBOState(beliefs, optimiser, zero, zero, zero + jnp.inf, count)

    def step(self, problem: Problem, state: VIBOState, key: KeyArray | None):
        """One epoch: all items in random order, batch by batch."""
        assert key is not None
        count = problem.data.num_items
        size = min(self.batch_items, count)
        number = -(-count // size)
        shuffle, draw = jax.random.split(key)
        order = jax.random.permutation(shuffle, count)
        batches = order[jnp.arange(number * size) % count].reshape(number, size)
        optimiser = self._optimiser(count)

        def body(carry, batch_and_key):
            beliefs, optimiser_state = carry
            batch, one = batch_and_key
            loss = lambda at: -_bound(problem, at, batch, one)
            value, gradient = jax.value_and_grad(loss)(beliefs)
            move, optimiser_state = optimiser.update(gradient, optimiser_state)
            moved = jax.tree.map(jnp.add, beliefs, move)
            return (moved, optimiser_state), -value

        carry = (state.beliefs, state.optimiser)
        carry, bounds = lax.scan(body, carry, (batches, jax.random.split(draw, number)))
        elbo = jnp.mean(bounds)
        fresh = state.num_seen == 0
        smooth = jnp.where(fresh, elbo, 0.95 * state.smooth + 0.05 * elbo)
        cells, exposure = float(problem.data.values.size), problem.data.exposure
        if exposure is not None:
            cells = jnp.sum(exposure.astype(elbo.dtype))
        gain = jnp.abs(smooth - state.smooth) / jnp.maximum(cells, 1)
        gain = jnp.where(fresh, jnp.inf, gain)
        return VIBOState(*carry, elbo, smooth, gain, state.num_seen + 1)

    @property
    def num_planned(self) -> int:
        """The epochs; the bound may need more to settle."""
        return self.epochs

    def progress(self, problem: Problem, state: VIBOState) -> Progress:
        """The bound of the last epoch; its change in nats per response."""
        over = (state.num_seen >= self.epochs) & (state.gain <= self.tolerance)
        return Progress(state.elbo, state.gain, over, jnp.zeros((), bool))

    def result(self, problem: Problem, state: VIBOState) -> tuple[Parameters, Array]:
        """Means of the approximation, abilities standardised and oriented."""
        coordinates = state.beliefs.mean
        theta = abilities(problem, state.beliefs, coordinates)[0]
        at = joint_derivatives(problem.model, problem.data, coordinates, theta)
        return reported(problem, theta, coordinates), at.log_lik


def abilities(
    problem: Problem,
    beliefs: Beliefs,
    coordinates: Float[Array, "batch columns"],
    items: Array | None = None,
) -> tuple[Float[Array, " subjects"], Float[Array, " subjects"]]:
    """Means and SDs of abilities; sums over some `items` are scaled up to all."""
    if beliefs.expert is None:
        assert beliefs.ability is not None
        return beliefs.ability[:, 0], jnp.exp(beliefs.ability[:, 1])
    right, wrong = _counts(problem.data, items, coordinates.dtype)
    factor = problem.data.num_items / coordinates.shape[0]
    precision = total = jnp.zeros(right.shape[0], coordinates.dtype)
    for response, counts in ((1.0, right), (-1.0, wrong)):
        column = jnp.full((coordinates.shape[0], 1), response, coordinates.dtype)
        expert = beliefs.expert(jnp.concatenate([coordinates, column], axis=1))
        weight = jnp.exp(jnp.clip(expert[:, 1], -15.0, 10.0))
        precision = precision + counts @ weight
        total = total + counts @ (weight * expert[:, 0])
    precision = 1 + factor * precision
    return factor * total / precision, precision**-0.5


def predict(
    problem: Problem, state: VIBOState, *, key: KeyArray, num_draws: int = 20
) -> Float[Array, "subjects items"]:
    """Probability of a right response in every cell, over draws of `Fit.state`."""
    model, beliefs = problem.model, state.beliefs

    def add(total, one):
        drawn, theta, _, _ = _draw(problem, beliefs, one)
        _, logit = model.family.table(model.constrain(drawn), theta)
        return total + jax.nn.sigmoid(logit), None

    shape = (problem.data.num_subjects, problem.data.num_items)
    empty = jnp.zeros(shape, beliefs.mean.dtype)
    return lax.scan(add, empty, jax.random.split(key, num_draws))[0] / num_draws


def _draw(problem: Problem, beliefs: Beliefs, key: KeyArray, items=None):
    """One draw of item coordinates and of abilities, and the latter's means and SDs."""
    for_items, for_subjects = jax.random.split(key)
    mean, log_sd = beliefs.mean, beliefs.log_sd
    if items is not None:
        mean, log_sd = mean[items], log_sd[items]
    noise = jax.random.normal(for_items, mean.shape, mean.dtype)
    drawn = mean + jnp.exp(log_sd) * noise
    centre, sd = abilities(problem, beliefs, drawn, items)
    noise = jax.random.normal(for_subjects, centre.shape, centre.dtype)
    return drawn, centre + sd * noise, centre, sd


def _counts(data, items: Array | None, dtype) -> tuple[Array, Array]:
    """Numbers of right and wrong responses `[subjects, batch]`, weighted."""
    take = lambda x: x if items is None else x[..., items]
    right = take(data.values).astype(dtype)
    exposure = data.exposure
    there = jnp.ones_like(right) if exposure is None else take(exposure).astype(dtype)
    if data.item_weight is not None:
        weight = take(data.item_weight).astype(dtype)
        right, there = right * weight, there * weight
    return right, there - right


def _bound(problem: Problem, beliefs: Beliefs, batch: Array, key: KeyArray) -> Scalar:
    """The evidence lower bound by one draw of some items and of all abilities."""
    model, data = problem.model, problem.data
    drawn, theta, centre, sd = _draw(problem, beliefs, key, batch)
    items = model.constrain(drawn)
    base, logit = model.family.table(items, theta)
    right, wrong = _counts(data, batch, drawn.dtype)
    by_subject = jnp.sum((right + wrong) * base + right * logit, axis=1)
    if model.priors:
        jacobian = jnp.sum(jax.vmap(model.family.log_slopes)(drawn))
        log_prior = jnp.sum(jax.vmap(model.log_prior)(items)) + jacobian
    else:
        log_prior = -0.5 * jnp.sum(drawn**2)
    # Of the items' normals, up to a constant.
    entropy = jnp.sum(beliefs.log_sd[batch])
    divergence = 0.5 * (centre**2 + sd**2 - 1) - jnp.log(sd)
    if data.subject_weight is not None:
        weight = data.subject_weight.astype(drawn.dtype)
        by_subject, divergence = by_subject * weight, divergence * weight
    factor = data.num_items / batch.shape[0]
    return factor * (jnp.sum(by_subject) + log_prior + entropy) - jnp.sum(divergence)
