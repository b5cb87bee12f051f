"""The scale of the prior of slopes, chosen by responses held out.

With the prior N(0, s^2) of every slope, a joint fit leaves out each of five folds of
cells in turn, and the posterior mean chances of these are evaluated by their mean
log-likelihood. One compiled program serves every s and every fold.

The path goes from weak priors to strong ones, each fit from the estimate of its fold
before it: a strong prior can make a factor vanish, and from slopes of 0 no weaker one
would find it again. It ends where predictions have become worse.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.estimators.driver import run_jit
from irtjax.estimators.folds import FOLDS, Folds, Losses, losses
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.noise_rank import MOST_STEPS, TOLERANCE
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watched

#: Standard deviations of slopes, weak priors first, in steps of a factor of about 1.4.
#: At 4 the prior hardly restricts slopes. At 0.03 all factors vanish from tables of up
#: to about 1,000 x 1,000, where noise has singular values of 30 (see `noise_rank`).
SCALES = (4.0, 2.8, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)
SCALES = (*SCALES, 0.18, 0.125, 0.09, 0.063, 0.044, 0.031)
#: Scales in a row whose loss is above its standard error, after which the path ends.
ENOUGH_WORSE = 2


class PriorPath(NamedTuple):
    """Held-out responses by the standard deviation of the prior of slopes.

    Attributes:
        slope_sd: `[scales]` standard deviations tried, ascending.
        height: `[folds, scales]` mean log-likelihoods of held-out cells, in nats.
        start: The estimates of the last fold at the best scale.
    """

    slope_sd: np.ndarray
    height: np.ndarray
    start: Start

    @property
    def losses(self) -> Losses:
        """The scales compared; `chosen` is the strongest prior close to the best."""
        return losses(self.height)

    @property
    def best(self) -> float:
        """The scale that predicts held-out cells best."""
        return float(self.slope_sd[self.losses.best])

    @property
    def one_standard_error(self) -> float:
        """The smallest scale whose loss is at most one standard error of it."""
        return float(self.slope_sd[self.losses.chosen])

    @property
    def at_edge(self) -> bool:
        """Whether the best scale is the first or the last one."""
        return self.losses.best in (0, len(self.slope_sd) - 1)

    def record(self) -> dict[str, Any]:
        """The path for the record of a fit."""
        losses, held_out = self.losses, self.height.mean(axis=0)
        columns = self.slope_sd, held_out, losses.loss, losses.error
        names = "slope_sd", "held_out", "loss", "loss_se"
        rows = np.column_stack(columns).tolist()
        return {
            "slope_sd": self.best,
            "one_standard_error": self.one_standard_error,
            "path": [dict(zip(names, row, strict=True)) for row in rows],
        }


def prior_path(
    problem: Problem,
    method: MM,
    folds: Folds,
    dtype,
    *,
    mask: np.ndarray | None = None,
    scales: tuple[float, ...] = SCALES,
) -> PriorPath:
    """Fits scales without each fold of cells, and predicts these.

    Args:
        problem: The model, with several abilities, and the slopes to estimate.
        method: The method, with its penalty and temperature.
        folds: The responses.
        dtype: Floating type.
        mask: `[items, dims]` slopes to estimate, as start values need it; None for all.
        scales: Standard deviations, descending.
    """
    # Arrays, so that other numbers are the same program.
    goal = jnp.asarray(TOLERANCE, dtype)
    method = dataclasses.replace(method, tolerance=goal, stop="kkt")
    of_folds: list[Start | None] = [None] * FOLDS
    height, starts = [], []
    for scale in watched(scales, "prior"):
        prior = Normal(jnp.zeros((), dtype), jnp.asarray(scale, dtype))
        priors = {**problem.model.priors, "discrimination": prior}
        model = dataclasses.replace(problem.model, priors=priors)
        fits = []
        for fold in watched(range(FOLDS)):
            data, start = folds.without(fold), of_folds[fold]
            if start is None:
                start = start_values(model, data, loadings=mask, dtype=dtype)
            part = dataclasses.replace(problem, model=model, data=data)
            fit = run_jit(part, method, start, max_steps=MOST_STEPS)
            fits.append(folds.judge(fold, data, fit).log_likelihood)
            items, population, theta = fit.parameters[:3]
            of_folds[fold] = Start(items, theta, population)
        height.append(fits)
        starts.append(of_folds[-1])
        seen = losses(np.array(height).T)
        # The best scale has no loss, so it is before these.
        worse = seen.loss > seen.error
        if len(worse) > ENOUGH_WORSE and worse[-ENOUGH_WORSE:].all():
            break
    ascending = np.array(scales[: len(height)])[::-1], np.array(height).T[:, ::-1]
    return PriorPath(*ascending, starts[losses(np.array(height).T).best])
