"""What joint methods share: the prior of abilities, where their scale is fixed."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.estimators.driver import AbstractMethod, Run, Solution, run_jit
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes


class AbstractPenalised(AbstractMethod):
    """Base class of joint methods, with a field `penalty`: the weight of log priors."""

    def __check_init__(self):
        """Refuses a penalty that is no number."""
        penalty = self.penalty  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(penalty, str):
            raise ValueError(
                f"penalty {penalty!r}: give a number of at least 0 ('noise' requires"
                " the model factor, and method='mm' by its name)"
            )

    @property
    def _penalises(self) -> bool:
        """Whether the method adds the priors."""
        return self.penalty > 0  # pyright: ignore[reportAttributeAccessIssue]

    def suited(self, model: Any, num_subjects: int) -> AbstractPenalised:
        """Penalises abilities as well as items, or neither: plain joint likelihood."""
        return dataclasses.replace(self, penalty=1.0 if model.priors else 0.0)

    def check_anchors(self, problem: Problem) -> None:
        """Refuses anchors, which do not let a penalty of abilities be undone."""
        if problem.anchored and self._penalises:
            raise ValueError(
                f"method {self.name!r} shrinks abilities, and anchors fix their scale,"
                " so free slopes are biased (a third too large with 30 items): use"
                " method='em', or priors=None if subjects have hundreds of responses"
            )

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """Drives the method, with a prior of abilities that suits their scale.

        Unit slopes fix the scale: N(0, 1) would shrink abilities of another standard
        deviation, which a rough marginal fit estimates.
        """
        model = problem.model
        if not model.family.has_slope and self._penalises:
            population = estimation_scale(problem, start)
            nodes = choose_nodes(model, start.items, population, problem.data)
            rough = EM(jnp.asarray(nodes, start.items[0].dtype), 0.05)
            first = start._replace(theta=None)
            rough_fit = run_jit(problem, rough, first, max_steps=100).parameters
            prior = estimation_scale(
                problem, Start(rough_fit.items, None, rough_fit[1])
            )
            prior = prior._replace(log_weights=None)
            problem = dataclasses.replace(problem, prior=prior)
        laid_out = self.laid_out(problem)
        if laid_out is not problem and start.theta is None:
            start = start._replace(theta=start_abilities(problem, start))
        return super().solve(laid_out, start, run)

    def laid_out(self, problem: Problem) -> Problem:
        """The problem with its data as the method passes over them."""
        return problem


def start_abilities(problem: Problem, start: Start) -> Array:
    """The abilities of a start, in the dtype of its items; else those of the data."""
    dtype, theta = start.items.intercept.dtype, start.theta
    if theta is None:
        theta = start_values(problem.model, problem.data, dtype=dtype).theta
    return jnp.asarray(theta, dtype)
