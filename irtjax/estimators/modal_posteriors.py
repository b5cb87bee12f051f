"""Errors, abilities and scores of several abilities, whose posteriors are normal."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax.data.wording import counted
from irtjax.estimators.estimates import ParameterErrors, on_host
from irtjax.estimators.loadings import loadings_of
from irtjax.estimators.timing import Clock
from irtjax.inference.joint_covariance import factor_covariance
from irtjax.inference.marginal_covariance import (
    FactorCovariance,
    marginal_covariance,
    normal_rule,
)
from irtjax.inference.vector_scores import (
    FactorScores,
    expected_with_items,
    watched_on_items,
    watched_score_factors,
)
from irtjax.likelihood.cubature import points_for
from irtjax.likelihood.problem import Problem

#: Points of each posterior with more than three factors, where a method has no number.
DRAWS = 200


class ModalPosteriors(NamedTuple):
    """Normal posteriors of several abilities, around their modes."""

    problem: Problem
    solution: Any
    modes: FactorScores

    @classmethod
    def of(cls, problem: Problem, solution: Any, clock: Clock) -> ModalPosteriors:
        """Those given the items, from the abilities that a joint method estimates."""
        items, population, theta, _ = solution.fit.parameters
        clock.report("scores", 0, math.nan, math.nan)
        with clock.phase("scores"):
            modes = watched_score_factors(
                problem.model, items, population, problem.data, theta
            )
        return cls(problem, solution, modes)

    def errors(self, coordinates: Array, kind: str) -> ParameterErrors:
        """Errors of the items, from the observed information."""
        del coordinates, kind
        items = self.solution.fit.parameters.items
        natural = self._natural()
        count = int((~natural.is_identified).any(axis=1).sum())
        warning = (
            f"parameters of {counted(count, 'item')} are not identified and have no"
            " standard error: use fewer factors or narrower priors"
        )
        covariance = natural.in_coordinates(self.problem, items)
        return ParameterErrors(covariance, (warning,) if count else (), natural=natural)

    def _natural(self) -> FactorCovariance:
        """Covariances of natural slopes and the other coordinates."""
        parameters, method = self.solution.fit.parameters, self.solution.method
        items, modes = parameters.items, self.modes
        if not method.marginal:
            blocks = factor_covariance(
                self.problem,
                items,
                modes.ability,
                modes.covariance,
                getattr(method, "penalty", 1.0),
                getattr(method, "temperature", 1.0),
            )
            return FactorCovariance(*(np.asarray(x, np.float64) for x in blocks))
        size, draws = modes.ability.shape[1], getattr(method, "num_samples", DRAWS)
        return marginal_covariance(
            self.problem,
            items,
            parameters.population,
            (modes.ability, modes.covariance),
            points_for(size, draws, jax.random.key(0))
            if self.problem.model.family.num_categories
            else normal_rule(size),
            getattr(method, "prior_subjects", 0.0),
        )

    def scores(self, errors: ParameterErrors) -> dict[str, Any]:
        """Fields of `Estimates`: expected scores on all items are the abilities."""
        model, items = self.problem.model, self.solution.fit.parameters.items
        shared = None
        if errors.natural is None:
            ability, error = watched_on_items(model, items, self.modes)
        else:
            blocks = jnp.asarray(errors.natural.items, items.discrimination.dtype)
            ability, error, shared = expected_with_items(
                model, items, self.problem.data, self.modes, blocks
            )
        ability, error = on_host(ability), on_host(error)
        return {
            "ability": ability,
            "error": error,
            "shared": on_host(shared),
            "expected": (ability, error),
            "unfinished": ~np.asarray(self.modes.converged),
        }

    def fields(self, errors: ParameterErrors, scores: dict[str, Any]) -> dict[str, Any]:
        """Other fields of `Estimates`: abilities on the factors, and loadings."""
        factors = loadings_of(
            self.problem, self.solution.fit.parameters, self.modes, errors.natural
        )
        return {"scale": np.zeros(len(scores["ability"])), "factors": factors}
