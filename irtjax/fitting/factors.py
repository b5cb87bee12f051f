"""The task of factor models: several abilities, items estimated as parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from irtjax.estimators.estimates import Estimates
from irtjax.estimators.factor_estimates import rotated
from irtjax.estimators.factor_start import factor_start
from irtjax.estimators.joint.bound import check_logistic
from irtjax.estimators.start import start_values
from irtjax.fitting.resolve import (
    check_data,
    make_method,
    nearly_binary,
    num_categories,
)
from irtjax.fitting.specification import AbstractSpecification, Task
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import FACTOR, Factor
from irtjax.models.families.bounded import arrays_of


class FactorAnalysis(AbstractSpecification):
    """A factor model, as an object or by its name."""

    settings = FACTOR
    default = "mm", "the factor model has several abilities"

    def __init__(self, model: Factor | str):
        self.model = model
        self.name = Factor.name
        self.stated = frozenset(() if isinstance(model, str) else FACTOR)

    def serves(self, method) -> bool:
        """Methods for several abilities."""
        return method.several

    def task(self, table, method, parts, level, floating) -> Task:
        """The task, with start values and the mask of loadings."""
        plan = Factor(**parts.model) if isinstance(self.model, str) else self.model
        plan = plan.of("binary" if nearly_binary(table) else table.kind)
        model = factor_model(plan, num_categories(table))
        made = make_method(method, parts.fields, model, table.num_subjects)
        if plan.priors == "weak":
            model = made.adapted(model)
        if made.marginal and model.family.dims:
            check_logistic(model, f"method {made.name!r} fits several abilities to")
        check_data(table, model, level)
        most = min(table.num_subjects, table.num_items) - 1
        if plan.count > most:
            raise ValueError(
                f"{plan.count} factors of {table.num_subjects} subjects and"
                f" {table.num_items} items: give at most {most}"
            )
        if parts.options.get("anchor") is not None:
            raise ValueError("a factor model takes no anchors: leave anchor out")
        if not model.priors:
            raise ValueError(
                "a factor model needs priors, without which its joint estimates have no"
                " finite value: leave priors out"
            )
        mask = plan.mask(table)
        table, responses, warnings, scaling = arrays_of(
            table, model, parts.data, floating
        )
        problem = Problem.create(model, responses)
        if mask is not None:
            slopes = jnp.asarray(mask).reshape(table.num_items, -1)
            free = problem.free.at[:, : slopes.shape[1]].set(slopes)
            problem = dataclasses.replace(problem, free=free)
        made.check(problem)
        start = parts.options.get("start", "proportions")
        if isinstance(start, Start):
            first = start
        elif model.family.dims:
            first = factor_start(model, responses, mask=mask, dtype=floating)
        else:
            first = start_values(model, responses, how=start, dtype=floating)
        record = {
            "model": model.name,
            "priors": {name: repr(prior) for name, prior in model.priors.items()},
            "positive": plan.positive,
            **plan.record(),
            "start": start if isinstance(start, str) else "given",
            "standard_errors": parts.options.get("standard_errors", "none"),
            "item_uncertainty": parts.options.get("item_uncertainty", True),
            **scaling,
        }
        return Task(made, table, problem, first, plan.names(), warnings, record)

    def finish(self, estimates: Estimates, record: dict[str, Any]) -> Estimates:
        """The estimates on rotated factors."""
        rotation = record["rotation"]
        if estimates.factors is None or rotation == "none":
            return estimates
        return rotated(estimates, rotation)
