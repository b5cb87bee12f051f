"""Banks of one ability, whose posteriors are tables of weights at nodes."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.adaptive import merits
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.state import Memory, Observation, Posterior, State
from irtjax.models.model import Population

#: More steps than bisection alone needs from a grid interval in double precision.
MOST_STEPS = 40


class AbstractNodeBank(AbstractBank):
    """A bank of one ability, whose posterior is a table of log weights at nodes.

    Only `information` determines what is selected, only `log_prob` and `node_log_probs`
    what is estimated: a model of several measures (a response and its length, for
    example) adds their informations in the one and their log-likelihoods in the others.
    """

    theta: Float[Array, " nodes"]  # abilities of posteriors, equally spaced
    log_prior: Float[Array, " nodes"]  # log weights of the population, summing to one
    mean: Float[Array, ""]  # of the population
    sd: Float[Array, ""]  # of the population

    @abstractmethod
    def information(self, theta: Array) -> Float[Array, " items"]:
        """Fisher information of every item about ability at one ability."""

    @abstractmethod
    def log_prob(self, item: Array, observation: Observation, theta: Array) -> Array:
        """Log-likelihood of one observation of one item at one ability."""

    @abstractmethod
    def sample(self, item: Array, theta: Array, key: KeyArray) -> Observation:
        """A random observation of one item at one ability."""

    def node_log_probs(self, item: Array, observation: Observation) -> Array:
        """Log-likelihood of one observation at every node, `[nodes]`."""
        return jax.vmap(lambda node: self.log_prob(item, observation, node))(self.theta)

    def log_memory(self, memory: Memory, theta: Array) -> Array:
        """What the memory adds to the log-likelihood of an ability."""
        return jnp.zeros_like(theta)

    def gain(self, theta: Array, memory: Memory) -> Float[Array, " items"]:
        """The information of each item at an ability, given the memory."""
        return self.information(theta)

    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory
    ) -> Observation:
        """A random observation given ability and memory."""
        return self.sample(item, theta, key)

    @property
    def population(self) -> Population:
        """The normal population."""
        return Population(self.mean, self.sd)

    @property
    def prior(self) -> Posterior:
        """The log weights of the population."""
        return self.log_prior

    def with_prior(self, mean: Array, sd: Array) -> Self:
        """The bank for a subject with a normal prior of its own, on the same nodes."""
        standard = (self.theta - mean) / sd
        log_prior = jax.nn.log_softmax(-0.5 * standard**2)
        return dataclasses.replace(self, log_prior=log_prior, mean=mean, sd=sd)

    def learn(
        self, before: State, after: State, item: Array, observation: Observation
    ) -> Posterior:
        """Log weights plus the log-likelihood of the observation."""
        log_posterior = before.posterior + self.node_log_probs(item, observation)
        if jax.tree.leaves(after.memory):
            at_nodes = jax.vmap(self.log_memory, in_axes=(None, 0))
            change = at_nodes(after.memory, self.theta)
            log_posterior += change - at_nodes(before.memory, self.theta)
        return log_posterior

    def scored(self, scoring: str, state: State) -> State:
        """EAP or MAP with its standard error."""
        ability, variance = (_mode if scoring == "map" else _mean)(self, state)
        variance += self.item_variance(state)
        error = jnp.sqrt(self.whole_variance(ability, variance))
        return state._replace(ability=ability, standard_error=error)

    def item_variance(self, state: State) -> Array:
        """Variance of an ability by errors of items that the posterior leaves out."""
        return jnp.zeros_like(self.sd)

    def begun(self, scoring: str, state: State) -> State:
        """The population; its mode is its mean."""
        if scoring == "map":
            return state._replace(ability=self.mean, standard_error=self.sd)
        return self.scored(scoring, state)

    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """The information of each item at the current ability."""
        return self.gain(state.ability, state.memory)

    @property
    def more_precision(self) -> Array:
        """Precision of ability that does not come from responses, at most."""
        return jnp.zeros_like(self.sd)

    def points(self) -> tuple[Array, Array]:
        """The nodes and the weights of the population there."""
        return self.theta, jnp.exp(self.log_prior)

    def reduction(self, design: Any, theta: Array) -> tuple[Array, Array, Array]:
        """The variance of the population, and informations times it."""
        variance = self.sd**2
        information = self.information(theta)
        return variance, variance * information, variance * self.more_precision

    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the variance, as of a normal posterior."""
        variance = state.standard_error**2
        gain = self.gain(state.ability, state.memory)
        return merits.c_optimal(gain, variance, variance)

    def above(self, state: State, mark: Array, error: Array) -> Float[Array, ""]:
        """Mass of the nodes above N(mark, error^2)."""
        return jax.nn.softmax(state.posterior) @ self._above(mark, error)

    def _above(self, mark: Array, error: Array) -> Float[Array, " nodes"]:
        """Share of each node that is above a mark: it stands for its surroundings."""
        step, tiny = self.theta[1] - self.theta[0], jnp.finfo(mark.dtype).tiny
        sharp = jnp.clip((self.theta - mark) / step + 0.5, 0, 1)
        smooth = ndtr((self.theta - mark) / jnp.maximum(error, tiny))
        # Where the error is below the distance of nodes, neither is far off.
        return jnp.where(error > step / 2, smooth, sharp)

    def odds(self, state: State, low: Array, high: Array) -> Float[Array, ""]:
        """Log-likelihood ratio of the responses at two abilities."""
        log_lik = self.log_likelihood(state)
        return log_lik(high) - log_lik(low)

    def log_likelihood(self, state: State) -> Callable[[Array], Array]:
        """Log-likelihood of all observations of a test, of an ability."""

        def log_lik(theta):
            one = lambda item, seen: self.log_prob(item, seen, theta)
            cells = jax.vmap(one)(state.items, state.observations)
            total = jnp.sum(jnp.where(state.given, cells, 0))
            return total + self.log_memory(state.memory, theta)

        return log_lik


def _mean(bank: AbstractNodeBank, state: State) -> tuple[Array, Array]:
    """EAP: mean and variance of the posterior on the nodes."""
    posterior = jax.nn.softmax(state.posterior)
    ability = posterior @ bank.theta
    variance = posterior @ (bank.theta - ability) ** 2
    # No narrower than the nodes resolve, as in `irtjax.inference`.
    return ability, jnp.maximum(variance, (bank.theta[1] - bank.theta[0]) ** 2 / 12)


def _mode(bank: AbstractNodeBank, state: State) -> tuple[Array, Array]:
    """MAP: a safeguarded Newton search from the best node, and 1 / (-l'' + 1 / s^2).

    The search is exact: it uses the log-likelihood itself and not its table. The nodes,
    half a posterior standard deviation apart, only select the highest of several modes.
    """
    log_likelihood = bank.log_likelihood(state)

    def log_posterior(theta):
        return log_likelihood(theta) - 0.5 * ((theta - bank.mean) / bank.sd) ** 2

    slope_at = jax.grad(log_posterior)
    nodes, last = bank.theta, bank.theta.shape[0] - 1
    index = jnp.argmax(state.posterior)
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
    final = lax.while_loop(lambda s: ~s[4] & (s[5] < MOST_STEPS), body, init)
    return final[0], 1 / jnp.maximum(final[3], (nodes[-1] - nodes[0]) ** -2)
