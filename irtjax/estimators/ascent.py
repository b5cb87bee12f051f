r"""Fixed-point iterations that do not lower an objective, as methods: one safe ascent.

EM and MM map a point x to its image F(x), which has an objective at least as high. A
step judges the point and proposes the next one by Anderson acceleration
(`numerics.acceleration`). A proposal that lowers the objective is refused, and the
image of the best point is next (Henderson and Varadhan 2019).

Objectives are sums of many terms. Near the optimum their differences are far smaller
than the rounding of the sum, so the objective adds up gains

    g_t = sum_i w_i (l_i(x_t) - l_i(x_best)) + sum_r (p_r(x_t) - p_r(x_best)),

and a point is accepted if g_t >= -4 eps ||(w l, p)||: roundings of independent terms
add as squares.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Fit, Progress, tree_where
from irtjax.likelihood.problem import AnyProblem
from irtjax.numerics.acceleration import Memory, accelerate, empty_memory, forget
from irtjax.numerics.kernels import weigh_rows


class Image(NamedTuple):
    """What a pass over the data at a point gives.

    Attributes:
        point: The image: the point after one step of the iteration.
        log_lik: Log-likelihood of each subject at the point that was given, or its
            lower bound.
        log_prior: Terms that the objective has in addition, there.
        residual: Distance of that point from a fixed point; see `Progress`. `Ascent`
            has the largest move of a coordinate times its scale for None.
        scale: Weights of the coordinates in the acceleration: roots of curvatures.
            `Ascent` has 1 for None.
        carry: What the next pass starts from if the point is accepted, as posteriors.
        fallback: Tried where the image of the best point is refused, too; None where
            the image cannot have a lower objective.
    """

    point: Any
    log_lik: Float[Array, " subjects"]
    log_prior: Array | float = 0.0
    residual: Scalar | None = None
    scale: Any = None
    carry: Any = None
    fallback: Any = None


class AscentState(NamedTuple):
    """State: the point to evaluate next, and the best one so far.

    Attributes:
        point: The next point.
        best: The accepted point of the highest objective. `image`, `fallback`, `carry`,
            `log_lik`, `log_prior`, `objective` and `residual` are those of `best`; see
            `Image`.
        gain: Gain of `best` over the accepted point before it.
        refused: Points refused in a row.
        flat: Points in a row with a gain within the rounding of independent terms.
        num_seen: Points evaluated.
    """

    point: Any
    best: Any
    image: Any
    fallback: Any
    carry: Any
    log_lik: Float[Array, " subjects"]
    log_prior: Array
    objective: Scalar
    residual: Scalar
    gain: Scalar
    memory: Memory
    refused: Array
    flat: Array
    num_seen: Array

    @property
    def is_plain(self) -> Array:
        """Whether the next point is the first one or an image, not a proposal."""
        return self.memory.num_seen <= 1


class AbstractAscent(AbstractMethod):
    """Base class of methods that repeat an image which does not lower the objective.

    A method writes `init`, by `first_state`, `image` and `result`. The other functions
    have defaults.

    Attributes:
        num_plain: Steps before the acceleration.
        carries_refused: Whether the next pass starts from the carry of a refused point
            rather than from that of the best one.
    """

    num_plain: ClassVar[int] = 0
    carries_refused: ClassVar[bool] = False

    @property
    @abstractmethod
    def num_differences(self) -> int:
        """Depth of the acceleration: earlier steps that it uses; 0 turns it off."""

    @abstractmethod
    def image(self, problem: AnyProblem, state: AscentState) -> Image:
        """The image of `state.point`, by a pass over the data that reads `carry`."""

    def feasible(
        self, problem: AnyProblem, state: AscentState, proposal: Any, image: Image
    ) -> Any:
        """The proposal of the acceleration within the bounds of the parameters."""
        return proposal

    def accepts(self, state: AscentState, gain: Scalar, terms: Array) -> Array:
        """Whether a point with this gain over the best one is accepted."""
        return (state.num_seen == 0) | (gain >= -independent_rounding(terms))

    def stalled(self, state: AscentState) -> Array:
        """Whether no point is left to try."""
        tries = 2 if state.fallback is None else 3
        return state.refused >= tries

    def term_weight(self, problem: AnyProblem) -> Array | None:
        """The weight of each term of `log_lik` in the objective; None for 1 each."""
        return self.weight_of(problem)

    def first_state(
        self,
        point: Any,
        num_terms: int,
        num_priors: tuple[int, ...] = (),
        *,
        carry: Any = None,
        has_fallback: bool = False,
    ) -> AscentState:
        """The state at the first point, given shapes of `log_lik` and `log_prior`."""
        flat, _ = ravel_pytree(point)
        dtype = flat.dtype
        zero, none = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return AscentState(
            point,
            best=point,
            image=point,
            fallback=point if has_fallback else None,
            carry=carry,
            log_lik=jnp.zeros(num_terms, dtype),
            log_prior=jnp.zeros(num_priors, dtype),
            objective=zero,
            residual=jnp.full((), jnp.inf, dtype),
            gain=zero,
            memory=empty_memory(flat.size, max(self.num_differences, 1), dtype),
            refused=none,
            flat=none,
            num_seen=none,
        )

    def step(
        self, problem: AnyProblem, state: AscentState, key: KeyArray | None
    ) -> AscentState:
        """Judges the point and proposes the next one: a pass over the data."""
        image = self.image(problem, state)
        weight = self.term_weight(problem)
        # The first objective is a plain sum; later ones add small, accurate gains.
        gain = jnp.sum(weigh_rows(image.log_lik - state.log_lik, weight))
        gain = gain + jnp.sum(image.log_prior - state.log_prior)
        likelihoods = weigh_rows(image.log_lik, weight)
        terms = jnp.concatenate([likelihoods, jnp.ravel(image.log_prior)])
        accepted = self.accepts(state, gain, terms)
        proposal, memory = self._propose(problem, state, image)
        better = state._replace(
            point=proposal,
            best=state.point,
            image=image.point,
            fallback=image.fallback,
            carry=image.carry,
            log_lik=image.log_lik,
            log_prior=image.log_prior,
            objective=state.objective + gain,
            residual=image.residual,
            gain=gain,
        )
        other = state.image
        if state.fallback is not None:
            other = tree_where(state.refused == 0, state.image, state.fallback)
        carry = image.carry if self.carries_refused else state.carry
        worse = state._replace(point=other, carry=carry)
        plain = state.num_seen < self.num_plain
        return tree_where(accepted, better, worse)._replace(
            memory=forget(memory, ~accepted | plain),
            refused=jnp.where(accepted, 0, state.refused + 1),
            flat=jnp.where(gain > independent_rounding(terms), 0, state.flat + 1),
            num_seen=state.num_seen + 1,
        )

    def _propose(
        self, problem: AnyProblem, state: AscentState, image: Image
    ) -> tuple[Any, Memory]:
        """The accelerated proposal; the image itself where acceleration is off."""
        if self.num_differences == 0:
            return image.point, state.memory
        flat, unravel = ravel_pytree(state.point)
        flat_image, scale = ravel_pytree(image.point)[0], ravel_pytree(image.scale)[0]
        flat, memory = accelerate(state.memory, flat, flat_image, scale)
        proposal = self.feasible(problem, state, unravel(flat), image)
        if self.num_plain:
            plain = state.num_seen < self.num_plain
            proposal = tree_where(plain, image.point, proposal)
        return proposal, memory

    def measured(self, state: AscentState) -> Array:
        """What falls to `goal`: the residual, unless a method has another rule."""
        return state.residual

    def measure(self, fit: Fit) -> Array:
        """What falls to `goal` while a fit proceeds."""
        return self.measured(fit.state)

    def progress(self, problem: AnyProblem, state: AscentState) -> Progress:
        """Objective, residual and verdict of the best point."""
        dtype = state.residual.dtype
        goal = jnp.asarray(self.goal(problem, dtype), dtype)
        solved = self.measured(state) <= goal
        return Progress(state.objective, state.residual, solved, self.stalled(state))


class AbstractIteration(eqx.Module):
    """A fixed-point iteration that does not lower an objective; see `Ascent`."""

    @abstractmethod
    def first(self, problem: AnyProblem, start: Any) -> Any:
        """The first point: any PyTree of floating-point arrays."""

    @abstractmethod
    def image(self, problem: AnyProblem, point: Any) -> Image:
        """The point after one step, and the objective at the point before it."""

    @abstractmethod
    def result(self, problem: AnyProblem, point: Any) -> Any:
        """The `Parameters` of a point."""


class Ascent(AbstractAscent):
    """A fixed-point iteration of your own as a method for `irtjax.run`.

    Its steps are accelerated, and none lowers the objective. The fit resumes, and maps
    over weights and starts by `jax.vmap`, as other methods do.

    Attributes:
        iteration: The iteration.
        tolerance: Converged when the residual is at most this.
        depth: Depth of the acceleration; 0 turns it off.

    Intercepts alone, by steps to the maximum of a bound of curvature 1/4, converge to
    the logits of the proportions of right responses:

    >>> import irtjax
    >>> model = irtjax.MODELS["rasch"]()
    >>> data = irtjax.Responses(jnp.array([[1, 0], [1, 1], [1, 0], [0, 0]]))
    >>> start = irtjax.start_values(model, data)
    >>> class Proportions(AbstractIteration):
    ...     def first(self, problem, start):
    ...         return jnp.zeros(2)
    ...     def image(self, problem, point):
    ...         values = problem.data.values
    ...         log_lik = (values * point - jax.nn.softplus(point)).sum(axis=1)
    ...         rest = values.mean(axis=0) - jax.nn.sigmoid(point)
    ...         return Image(point + 4 * rest, log_lik)
    ...     def result(self, problem, point):
    ...         items = start.items._replace(intercept=point)
    ...         return irtjax.Parameters(items, irtjax.Population(jnp.zeros(()), 1.0))
    >>> problem = irtjax.Problem.create(model, data)
    >>> fit = irtjax.run(problem, Ascent(Proportions(), tolerance=1e-4), start)
    >>> int(fit.status), fit.parameters.items.intercept.round(2).tolist()
    (0, [1.1, -1.1])
    """

    iteration: AbstractIteration
    tolerance: float | Array = 1e-6
    depth: int = eqx.field(static=True, default=5)

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.depth

    def init(
        self, problem: AnyProblem, start: Any, key: KeyArray | None
    ) -> AscentState:
        """State at the first point."""
        point = self.iteration.first(problem, start)
        return self.first_state(point, problem.data.num_subjects)

    def image(self, problem: AnyProblem, state: AscentState) -> Image:
        """The iteration's image, with a scale and a residual."""
        image = self.iteration.image(problem, state.point)
        scale, residual = image.scale, image.residual
        if scale is None:
            scale = jax.tree.map(jnp.ones_like, state.point)
        if residual is None:
            move = jax.tree.map(
                lambda new, old, by: jnp.max(jnp.abs(new - old) * by),
                image.point,
                state.point,
                scale,
            )
            residual = jnp.max(jnp.stack(jax.tree.leaves(move)))
        prior = jnp.sum(jnp.asarray(image.log_prior, residual.dtype))
        return image._replace(log_prior=prior, scale=scale, residual=residual)

    def result(self, problem: AnyProblem, state: AscentState) -> tuple[Any, Array]:
        """Parameters and log-likelihoods of the best point."""
        return self.iteration.result(problem, state.best), state.log_lik


def independent_rounding(terms: Array) -> Scalar:
    """What rounding adds to a sum of terms that are rounded independently."""
    return 4 * jnp.finfo(terms.dtype).eps * jnp.linalg.norm(terms)
