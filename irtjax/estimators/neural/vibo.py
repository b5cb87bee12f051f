"""Variational inference of binary models, mean-field or amortised (VIBO).

Every item coordinate has a normal approximation of its own. Abilities have one each, or
one that a network computes from the responses: the product of the population and an
expert for each response, which sees the response and the item's coordinates (Wu, Davis,
Domingue, Piech and Goodman 2020, Variational Item Response Theory: Fast, Accurate, and
Expressive). An expert depends on its subject through the response alone, so experts are
made once for right and once for wrong, and their product over items is a product of
matrices. An epoch is one `lax.scan` over shuffled batches of items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Progress, Run, Solution, drive
from irtjax.estimators.joint.objective import identify, joint_derivatives
from irtjax.estimators.neural.settings import plain_settings
from irtjax.estimators.neural.towers import Tower, check_rate, make_tower
from irtjax.likelihood.problem import Parameters, Problem, Start, report_scale
from irtjax.models.families.logistic import Binary

#: Standard deviations of the approximation at the start.
FIRST_SD = 0.3
#: Precision of an expert at the start: many of them are to stay near the population.
FIRST_PRECISION = 0.05


class Beliefs(NamedTuple):
    """Parameters of the approximation.

    Attributes:
        mean: `[items, columns]` means of item coordinates.
        log_sd: `[items, columns]` logarithms of their standard deviations.
        ability: `[subjects, 2]` means and log standard deviations, mean field only.
        expert: The network from an item's coordinates and a response to an expert's
            mean and log precision, amortised only.
    """

    mean: Float[Array, "items columns"]
    log_sd: Float[Array, "items columns"]
    ability: Float[Array, "subjects 2"] | None
    expert: Tower | None


class VIBOState(NamedTuple):
    """State of the search.

    Attributes:
        beliefs: The approximation.
        optimiser: The optimiser's state.
        elbo: Evidence lower bound by the draws of the last epoch.
        smooth: Its moving average over epochs.
        gain: How much that moved in the last epoch, in nats per response.
        num_seen: Epochs.
    """

    beliefs: Beliefs
    optimiser: Any
    elbo: Scalar
    smooth: Scalar
    gain: Scalar
    num_seen: Array


class VIBO(AbstractMethod):
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
        tolerance: Nats per response that the bound may still move by per epoch.

    >>> from irtjax.data.responses import Responses
    >>> from irtjax.likelihood.problem import Problem
    >>> from irtjax.estimators.driver import run
    >>> from irtjax.estimators.start import start_values
    >>> from irtjax.models.catalogue import two_parameter
    >>> data = Responses(jnp.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], jnp.int8))
    >>> problem = Problem.create(two_parameter(), data)
    >>> start, method = start_values(problem.model, data), VIBO(epochs=5)
    >>> fit = run(problem, method, start, key=jax.random.key(0), max_steps=5)
    >>> fit.parameters.theta.shape
    (3,)
    """

    trained: ClassVar[bool] = True
    limit: ClassVar[str] = "epochs"
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({"start": "proportions"})

    amortised: bool = eqx.field(static=True, default=True)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(32,))
    batch_items: int = eqx.field(static=True, default=1024)
    epochs: int = eqx.field(static=True, default=200)
    learning_rate: float | Array = 0.02
    tolerance: float | Array = 1e-3

    def __check_init__(self):
        """Refuses settings that no search can have."""
        for name in ("batch_items", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"VIBO has {name}={getattr(self, name)}; it needs at least 1"
                )
        check_rate("learning_rate", self.learning_rate)

    def check(self, problem: Problem) -> None:
        """Refuses models that are not binary, and anchors, in one line."""
        model = problem.model
        if not isinstance(model.family, Binary) or model.lengths is not None:
            raise ValueError(
                f"vibo is for binary models, not {model.name}: use rasch, 1pl to 4pl,"
                " or method='em'"
            )
        if problem.anchored:
            raise ValueError("vibo has no fixed items: use method='em'")

    def _optimiser(self, num_items: int) -> optax.GradientTransformation:
        steps = self.epochs * -(-num_items // self.batch_items)

        def rate(count):
            share = jnp.minimum(count / steps, 1.0)
            return self.learning_rate * (
                0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * share))
            )

        return optax.adam(rate)

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """Trains for at most `epochs` epochs; `max_steps` replaces them."""
        steps = run.max_steps
        method = self if steps is None else replace(self, epochs=steps)
        key = jax.random.key(0) if run.key is None else run.key
        fit = drive(problem, method, start, key, method.epochs, run.clock)
        said = (
            "items are means of a variational approximation: they have no standard"
            " errors here, and those of abilities take the items as known",
        )
        return Solution(fit, method, method.epochs, warnings=said)

    def record(self) -> dict[str, Any]:
        """Settings that are numbers, names, or several of these."""
        return plain_settings(self)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> VIBOState:
        """Items at the start values, abilities at the population.

        Raises:
            ValueError: Without a key, or for models that are not binary.
        """
        self.check(problem)
        if key is None:
            raise ValueError("draws are random: pass run(..., key=)")
        mean = problem.model.unconstrain(start.items)
        dtype = mean.dtype
        ability = expert = None
        if self.amortised:
            first = jnp.asarray([0.0, jnp.log(FIRST_PRECISION)], dtype)
            expert = make_tower(
                mean.shape[1] + 1, self.hidden, first, looked_up=False, key=key
            )
        else:
            ability = jnp.zeros((problem.data.num_subjects, 2), dtype)
        log_sd = jnp.full_like(mean, jnp.log(FIRST_SD))
        beliefs = Beliefs(mean, log_sd, ability, expert)
        low = jnp.zeros((), dtype)
        tree: Any = beliefs
        optimiser = self._optimiser(mean.shape[0]).init(tree)
        return VIBOState(
            beliefs, optimiser, low, low, low + jnp.inf, jnp.zeros((), jnp.int32)
        )

    def step(
        self, problem: Problem, state: VIBOState, key: KeyArray | None
    ) -> VIBOState:
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
            beliefs, kept = carry
            batch, one = batch_and_key
            loss = lambda at: -_bound(problem, at, batch, one)  # noqa: E731
            value, gradient = jax.value_and_grad(loss)(beliefs)
            move, kept = optimiser.update(gradient, kept)
            moved = jax.tree.map(jnp.add, beliefs, move)
            return (moved, kept), -value

        carry = (state.beliefs, state.optimiser)
        carry, bounds = lax.scan(body, carry, (batches, jax.random.split(draw, number)))
        elbo = jnp.mean(bounds)
        fresh = state.num_seen == 0
        smooth = jnp.where(fresh, elbo, 0.95 * state.smooth + 0.05 * elbo)
        cells = jnp.sum(_exposure(problem.data, elbo.dtype))
        gain = jnp.where(
            fresh, jnp.inf, jnp.abs(smooth - state.smooth) / jnp.maximum(cells, 1)
        )
        return VIBOState(*carry, elbo, smooth, gain, state.num_seen + 1)

    def progress(self, problem: Problem, state: VIBOState) -> Progress:
        """The bound of the last epoch; its move in nats per response."""
        over = (state.num_seen >= self.epochs) & (state.gain <= self.tolerance)
        return Progress(state.elbo, state.gain, over, jnp.zeros((), bool))

    def result(self, problem: Problem, state: VIBOState) -> tuple[Parameters, Array]:
        """Means of the approximation, abilities standardised and oriented."""
        model, data = problem.model, problem.data
        coordinates = state.beliefs.mean
        theta = abilities(problem, state.beliefs, coordinates)[0]
        log_lik = joint_derivatives(model, data, coordinates, theta).log_lik
        slope = model.constrain(coordinates).discrimination
        scale = identify(problem, theta, slope)
        coordinates = model.fold(coordinates, scale.shift, scale.scale)
        theta = (theta - scale.shift) / scale.scale
        found = Parameters(model.constrain(coordinates), scale.population, theta)
        return report_scale(problem, found), log_lik


def abilities(
    problem: Problem,
    beliefs: Beliefs,
    coordinates: Float[Array, "batch columns"],
    items: Array | None = None,
) -> tuple[Float[Array, " subjects"], Float[Array, " subjects"]]:
    """Means and standard deviations of all abilities.

    Args:
        problem: The problem.
        beliefs: The approximation.
        coordinates: Of the items that the experts see.
        items: Which items these are; None for all. The evidence of a part of the items
            counts for all of them.
    """
    if beliefs.expert is None:
        assert beliefs.ability is not None
        return beliefs.ability[:, 0], jnp.exp(beliefs.ability[:, 1])
    right, wrong = _counts(problem.data, items, coordinates.dtype)
    factor = problem.data.num_items / coordinates.shape[0]
    precision = total = jnp.zeros(right.shape[0], coordinates.dtype)
    for response, counts in ((1.0, right), (-1.0, wrong)):
        column = jnp.full((coordinates.shape[0], 1), response, coordinates.dtype)
        told = beliefs.expert(jnp.concatenate([coordinates, column], axis=1))
        weight = jnp.exp(jnp.clip(told[:, 1], -15.0, 10.0))
        precision = precision + counts @ weight
        total = total + counts @ (weight * told[:, 0])
    precision = 1 + factor * precision
    return factor * total / precision, precision**-0.5


def predict(
    problem: Problem,
    state: VIBOState,
    *,
    key: KeyArray,
    num_draws: int = 20,
) -> Float[Array, "subjects items"]:
    """Chance of a right response in every cell, averaged over the approximation.

    Args:
        problem: What was fitted.
        state: `Fit.state`.
        key: Random key.
        num_draws: Draws of abilities and items.
    """
    model, beliefs = problem.model, state.beliefs

    def add(total, one):
        for_items, for_subjects = jax.random.split(one)
        noise = jax.random.normal(for_items, beliefs.mean.shape, beliefs.mean.dtype)
        drawn = beliefs.mean + jnp.exp(beliefs.log_sd) * noise
        mean, sd = abilities(problem, beliefs, drawn)
        theta = mean + sd * jax.random.normal(for_subjects, mean.shape, mean.dtype)
        _, logit = model.family.table(model.constrain(drawn), theta)
        return total + jax.nn.sigmoid(logit), None

    shape = (problem.data.num_subjects, problem.data.num_items)
    empty = jnp.zeros(shape, beliefs.mean.dtype)
    return lax.scan(add, empty, jax.random.split(key, num_draws))[0] / num_draws


def _exposure(data, dtype) -> Array:
    if data.exposure is None:
        return jnp.ones(data.values.shape, dtype)
    return data.exposure.astype(dtype)


def _counts(data, items: Array | None, dtype) -> tuple[Array, Array]:
    """Numbers of right and wrong responses `[subjects, batch]`, weighted."""
    take = lambda x: x if items is None else x[:, items]  # noqa: E731
    right = take(data.values).astype(dtype)
    exposure = data.exposure
    there = jnp.ones_like(right) if exposure is None else take(exposure).astype(dtype)
    if data.item_weight is not None:
        weight = data.item_weight if items is None else data.item_weight[items]
        right, there = right * weight.astype(dtype), there * weight.astype(dtype)
    return right, there - right


def _bound(problem: Problem, beliefs: Beliefs, batch: Array, key: KeyArray) -> Scalar:
    """The evidence lower bound by one draw of some items and of all abilities."""
    model, data = problem.model, problem.data
    for_items, for_subjects = jax.random.split(key)
    mean, log_sd = beliefs.mean[batch], beliefs.log_sd[batch]
    noise = jax.random.normal(for_items, mean.shape, mean.dtype)
    drawn = mean + jnp.exp(log_sd) * noise
    centre, sd = abilities(problem, beliefs, drawn, batch)
    theta = centre + sd * jax.random.normal(for_subjects, centre.shape, centre.dtype)
    items = model.constrain(drawn)
    base, logit = model.family.table(items, theta)
    right, wrong = _counts(data, batch, mean.dtype)
    by_subject = jnp.sum((right + wrong) * base + right * logit, axis=1)
    if model.priors:
        jacobian = jnp.sum(jax.vmap(model.family.log_slopes)(drawn))
        log_prior = jnp.sum(jax.vmap(model.log_prior)(items)) + jacobian
    else:
        log_prior = -0.5 * jnp.sum(drawn**2)
    # Entropies of normals, up to a constant.
    own = jnp.sum(log_sd)
    shrink = 0.5 * (centre**2 + sd**2 - 1) - jnp.log(sd)
    if data.subject_weight is not None:
        weight = data.subject_weight.astype(mean.dtype)
        by_subject, shrink = by_subject * weight, shrink * weight
    factor = data.num_items / batch.shape[0]
    return factor * (jnp.sum(by_subject) + log_prior + own) - jnp.sum(shrink)
