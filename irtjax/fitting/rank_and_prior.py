"""What factor models can leave to the data: their number, and the prior of slopes.

`penalty="noise"` keeps the factors above noise (`estimators.noise_rank`) and refits
with the usual prior. `priors="held_out"` chooses the standard deviation of the prior of
slopes by responses held out (`estimators.slope_prior`). Both are for right and wrong
responses, by `mm`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.folds import folds_of
from irtjax.estimators.noise_rank import GLOBAL, NoiseRank, rank_above_noise
from irtjax.estimators.slope_prior import SCALES, PriorPath, prior_path
from irtjax.fitting.specification import Parts, Task
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import HELD_OUT, factor_model
from irtjax.models.factors import Factor
from irtjax.models.priors import Normal

#: The penalty that keeps the factors above noise.
NOISE = "noise"
#: The method of both searches.
METHOD = "mm"
#: Standard deviation of slopes with the usual prior. With it 95 % intervals of loadings
#: covered 94 %, with the one that held-out responses chose 82 % (`experiments/aims`).
USUAL_SD = 1.0


class Search(NamedTuple):
    """What is left to the data: whether the number of factors, and the prior."""

    noise: bool
    held_out: bool

    @classmethod
    def of(
        cls, plan: Factor, table: ResponseTable, method: Any, parts: Parts
    ) -> Search:
        """What the settings leave to the data.

        Raises:
            ValueError: If other settings, the method or the responses do not allow it.
        """
        penalty = parts.fields.get("penalty")
        search = cls(
            isinstance(penalty, str) and penalty == NOISE,
            isinstance(plan.priors, str) and plan.priors == HELD_OUT,
        )
        if search.noise:
            _check(f"penalty {NOISE!r}", plan, table, method, parts)
            for name, is_set in (
                ("positive", plan.positive),
                ("loadings", plan.loadings is not None),
                ("target", plan.target is not None),
                ("start", isinstance(parts.options.get("start"), Start)),
            ):
                if is_set:
                    raise ValueError(
                        f"penalty {NOISE!r} finds the number of factors with slopes of"
                        f" any sign: leave {name} out"
                    )
            if not (isinstance(plan.priors, str) and plan.priors in ("weak", HELD_OUT)):
                raise ValueError(
                    f"penalty {NOISE!r} has its own prior of slopes: leave priors out"
                )
        if search.held_out:
            _check(f"priors {HELD_OUT!r}", plan, table, method, parts)
            strength = parts.fields.get("penalty", getattr(method, "penalty", None))
            if isinstance(strength, int | float) and strength == 0:
                raise ValueError(
                    f"priors {HELD_OUT!r} has no effect with penalty 0: leave penalty"
                    " out"
                )
        return search

    def usual(self, plan: Factor, parts: Parts) -> tuple[Factor, Parts]:
        """The settings of a fit in which nothing is left to the data."""
        fields = dict(parts.fields)
        if self.noise:
            del fields["penalty"]
        priors = "weak" if self.held_out else plan.priors
        return dataclasses.replace(plan, priors=priors), parts._replace(fields=fields)


def _check(
    what: str, plan: Factor, table: ResponseTable, method: Any, parts: Parts
) -> None:
    """Refuses methods, responses and a lasso for which nothing can be found."""
    name = method if isinstance(method, str) else method.name
    if name != METHOD:
        raise ValueError(f"{what} requires method={METHOD!r}, not {name!r}")
    binary = plan.item_model == "binary" and table.trials is None
    if not binary or plan.link != "logit":
        raise ValueError(
            f"{what} is for responses that are right or wrong, with the logit link"
        )
    if parts.fields.get("lasso", getattr(method, "lasso", None)) is not None:
        raise ValueError(f"{what} does not accept a lasso: leave lasso out")


def find_rank(task: Task, plan: Factor, floating: Any, key: KeyArray) -> NoiseRank:
    """The factors above noise, of at most those of the task.

    Raises:
        ValueError: If there are none.
    """
    data = task.problem.data.with_mask()
    noise = rank_above_noise(data, plan.count, floating, key)
    if not noise.rank:
        raise ValueError(
            f"no factor is above noise (0 of {plan.count}): use a model with one"
            " ability, such as 2pl, or more responses"
        )
    return noise


def with_rank(task: Task, noise: NoiseRank, most: int) -> Task:
    """The task of the refit, with the record of the fit at the penalty of noise."""
    warnings = task.warnings
    if noise.certificate > GLOBAL:
        cure = "raise factors" if noise.used >= most else "it may be a local maximum"
        warnings = (
            *warnings,
            f"the fit at the penalty of noise is not shown to be the best one (q ="
            f" {noise.certificate:.3f}, 1 at the best): {cure}",
        )
    record = {**task.options, "noise": {"most": most, **noise._asdict()}}
    return task._replace(warnings=warnings, options=record)


def noise_note(noise: dict[str, Any], log_likelihood: float) -> str:
    """The rank, its certificate, and both log-likelihoods, in one sentence."""
    best = ""
    if noise["certificate"] <= GLOBAL:
        best = ": the best fit of any number of factors"
    return (
        f"the penalty of noise keeps {noise['rank']} of"
        f" {counted(noise['most'], 'factor')} (q = {noise['certificate']:.3f}{best});"
        f" log-likelihood {noise['log_likelihood']:,.1f}, and {log_likelihood:,.1f}"
        " refitted without that penalty"
    )


def with_held_out_prior(
    task: Task, plan: Factor, floating: Any, given_start: bool, key: KeyArray
) -> Task:
    """The task with the prior of slopes that held-out responses choose."""
    path = _path_of(task, plan, floating, key)
    model = task.problem.model
    prior = Normal(0.0, path.best)
    model = dataclasses.replace(model, priors={**model.priors, "discrimination": prior})
    options = {
        **task.options,
        "priors": {name: repr(x) for name, x in model.priors.items()},
        "prior_scale": path.record(),
    }
    start = task.start
    if plan.count > 1 and not given_start:
        start, options["start"] = path.start, HELD_OUT
    warnings = task.warnings
    if path.at_edge:
        warnings = (
            *warnings,
            f"the best standard deviation of slopes, {path.best:g}, is at the end of"
            f" those tried ({SCALES[-1]:g} to {SCALES[0]:g}): try others in Python by"
            " priors={'discrimination': Normal(0, sd)}",
        )
    notes = [
        f"slopes have the prior N(0, {path.best:g}^2), chosen by held-out responses"
        f" (one standard error: {path.one_standard_error:g})"
    ]
    if path.best < USUAL_SD:
        notes.append(
            "a narrow prior of slopes predicts well, but makes loadings too small and"
            " their intervals too short: interpret those of the usual prior"
        )
    return task._replace(
        problem=dataclasses.replace(task.problem, model=model),
        table=task.table.replace(notes=(*task.table.notes, *notes)),
        start=start,
        warnings=warnings,
        options=options,
    )


def _path_of(task: Task, plan: Factor, floating: Any, key: KeyArray) -> PriorPath:
    """Held-out responses by scale; one factor is fitted as the first of two."""
    table, data = task.table, task.problem.data
    dims = max(plan.count, 2)
    mask = plan.mask(table)
    if plan.count == 1:
        first = np.ones((table.num_items, 1), bool) if mask is None else mask
        mask = np.column_stack([first, np.zeros(table.num_items, bool)])
    wide = dataclasses.replace(
        plan, factors=dims, loadings=None, target=None, rotation=None
    )
    problem = Problem.create(task.method.adapted(factor_model(wide)), data)
    if mask is not None:
        free = problem.free.at[:, :dims].set(jnp.asarray(mask))
        problem = dataclasses.replace(problem, free=free)
    cells = not data.has_blocks
    what = "the prior of slopes by held-out responses"
    folds = folds_of(table, key, what=what, cells=cells)
    method: Any = task.method
    return prior_path(problem, method, folds, floating, mask=mask)
