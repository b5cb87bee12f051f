"""The base class of methods that are trained by epochs."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar, Self

import jax

from irtjax.data.responses import Responses
from irtjax.estimators.driver import AbstractMethod, Run, RunSettings, Solution, drive
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.families.logistic import Binary


class AbstractTrained(AbstractMethod):
    """A method for binary models by random steps; every fit has its `warning`."""

    runs: ClassVar[RunSettings] = RunSettings(
        limit="epochs", options=MappingProxyType({"start": "proportions"})
    )
    warning: ClassVar[str]

    def check(self, problem: Problem) -> None:
        """Refuses models of other families than `Binary`, lengths, and anchors."""
        model = problem.model
        if not isinstance(model.family, Binary) or model.has_lengths:
            raise ValueError(
                f"method {self.name!r} is for logistic and normal-ogive binary models,"
                f" not {model.name}: use rasch, 1pl to 4pl, or method='em'"
            )
        super().check(problem)
        if problem.anchored:
            message = f"method {self.name!r} has no fixed items: use method='em'"
            raise ValueError(message)

    def for_data(self, data: Responses) -> Self:
        """The method with what must be known of the data before compilation."""
        return self

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """Trains for at most `epochs` epochs; `max_steps` replaces them."""
        epochs = run.steps(getattr(self, self.runs.limit))
        method = dataclasses.replace(self, **{self.runs.limit: epochs})
        method = method.for_data(problem.data)
        key = jax.random.key(0) if run.key is None else run.key
        fit = drive(problem, method, start, key, epochs, run.clock)
        return Solution(fit, method, epochs, warnings=(self.warning,))

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Those of a joint method; training ends before estimates become infinite."""
        estimates = super().estimates(problem, solution, run)
        return dataclasses.replace(estimates, finite=True, trained=True)

    def record(self) -> dict[str, Any]:
        """Fields that are numbers, names, or tuples of these, which become lists."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = (bool, int, float, str, tuple)
        fields = {name: x for name, x in values.items() if isinstance(x, plain)}
        return {k: list(x) if isinstance(x, tuple) else x for k, x in fields.items()}
