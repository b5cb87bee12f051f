r"""A link of two calibrations by the subjects that both have.

The responses of a subject to calibration k are those of a normal likelihood of its
ability: about x_k with variance v_k. A posterior mean m with variance p under the
population N(mu, s^2) has

    x = mu + (m - mu) / c,    v = p / c,    c = 1 - p / s^2.

Both versions measure one ability, x_1 = A x_2 + B without errors. A and B minimise

    sum_i rho(delta_i),    delta_i^2 = (x_1 - A x_2 - B)^2 / (v_1 + A^2 v_2),

maximum likelihood of normal errors with the true abilities profiled out where rho is
the square (Deming 1943; common-person linking, Kolen and Brennan 2014, chapter 6).
"robust" has Tukey's bisquare: subjects that changed between the versions have no
weight. Where subjects differ by more than their errors, as they do if the versions
measure different abilities, delta^2 is over the dispersion as in `link_estimation`.

Errors of A and B are those of the subjects' own errors of x, of other shared errors,
and of location and scale e of each calibration, by which x moves by e_0 + x e_1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from irtjax.data.wording import counted
from irtjax.validity.link_estimation import (
    ENOUGH,
    NO_WEIGHT,
    QUANTILE,
    STEP,
    Form,
    LinkEstimate,
    minimum,
)

#: Common subjects that a link needs at least.
LEAST_SUBJECTS = 5
#: Share of the information that is the responses', below which a subject is left out.
LEAST_CARRIED = 0.05
#: A beyond which the criterion has no minimum.
MOST_SCALE = 100.0


class SharedSubjects(NamedTuple):
    """Abilities of the subjects that two calibrations share, without their prior.

    Attributes:
        x: `[2, subjects]` abilities on the scales of both.
        v: `[2, subjects]` variances of their own errors.
        rest: `[2][subjects, rank]` loadings of other shared errors of each.
        scale: `[2][2, rank]` L of each, in the same factors.
    """

    x: np.ndarray
    v: np.ndarray
    rest: tuple[np.ndarray, np.ndarray]
    scale: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, one: Form, two: Form) -> SharedSubjects:
        """Those whose responses determine their ability in both."""
        first, second = (
            form.subjects[
                np.isfinite(form.ability + form.error)
                & (form.design[:, 0] > LEAST_CARRIED)
            ]
            for form in (one, two)
        )
        names = np.intersect1d(first, second)
        x, v, rest = [], [], []
        for form in (one, two):
            order = np.argsort(form.subjects)
            rows = order[np.searchsorted(form.subjects, names, sorter=order)]
            carried, mean = form.design[rows, 0], form.population[0]
            x.append(mean + (form.ability[rows] - mean) / carried)
            v.append(form.error[rows] ** 2 / carried)
            rest.append(form.rest[rows] / carried[:, None])
        return cls(np.stack(x), np.stack(v), (rest[0], rest[1]), (one.scale, two.scale))

    def terms(
        self, x: np.ndarray, constants: np.ndarray, limit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rho `[subjects]` and its derivatives in log A and B `[subjects, 2]`."""
        a, b = constants
        gap, variance = x[0] - a * x[1] - b, self.v[0] + a**2 * self.v[1]
        square = gap**2 / variance
        by_gap = 2 * gap / variance
        by_log_a = -a * x[1] * by_gap - 2 * square * a**2 * self.v[1] / variance
        gradient = np.stack([by_log_a, -by_gap], axis=1)
        if not np.isfinite(limit):
            return square, gradient
        rest = 1 - np.minimum(square / limit, 1)
        return limit / 3 * (1 - rest**3), rest[:, None] ** 2 * gradient


def solve_subjects(
    shared: SharedSubjects, slope: bool, robust: bool, shape: tuple[int, ...]
) -> LinkEstimate:
    """A and B of the second of two calibrations, with errors.

    Args:
        shared: The subjects.
        slope: Whether A is estimated; it is 1 for items without slopes.
        robust: Whether subjects far from the others have no weight.
        shape: That of the items' coordinates, on which A and B do not depend.
    """
    ratio = float(np.std(shared.x[0]) / np.std(shared.x[1])) if slope else 1.0
    start = np.array([ratio, np.median(shared.x[0] - ratio * shared.x[1])])
    # The dispersion about the medians, then about the link.
    dispersion = _dispersion(shared, start, slope, robust)
    start, *_ = _minimum_at(shared, start, slope, _limit(dispersion, robust))
    dispersion = _dispersion(shared, start, slope, robust)
    limit = _limit(dispersion, robust)
    constants, hessian = _minimum_at(shared, start, slope, limit)
    if not 1 / MOST_SCALE < constants[0] < MOST_SCALE:
        raise ValueError(
            f"{counted(shared.x.shape[1], 'common subject')} do not determine A: use"
            " common items, or a model with slopes of 1, such as rasch"
        )
    free = slice(0 if slope else 1, 2)
    cross = np.stack([_slopes(shared, constants, limit, k)[:, free] for k in (0, 1)])
    by_x = np.zeros((2, 2, cross.shape[1]))  # Of A and B, in x of both.
    by_x[free] = -np.einsum("ef,knf->ekn", np.linalg.inv(hessian), cross)
    by_x[0] *= constants[0]
    by_scale, own = np.zeros((2, 4, 2)), np.zeros((4, 4))
    own[2:, 2:] = dispersion * np.einsum("ekn,kn,fkn->ef", by_x, shared.v, by_x)
    total = own.copy()
    for k in (0, 1):
        moves = np.stack([np.ones_like(shared.x[k]), shared.x[k] * slope], axis=1)
        by_scale[k, 2:] = by_x[:, k] @ moves
        other, moved = by_x[:, k] @ shared.rest[k], by_scale[k, 2:] @ shared.scale[k]
        own[2:, 2:] += other @ other.T
        total[2:, 2:] += other @ other.T + moved @ moved.T
    of_forms = np.stack([np.array([1.0, 0.0]), constants])
    by_items = np.zeros((2, 2, *shape))
    return LinkEstimate(of_forms, by_items, own, by_scale, total, dispersion, own)


def _minimum_at(
    shared: SharedSubjects, start: np.ndarray, slope: bool, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """A and B, and the Hessian in log A and B; in B alone without slopes."""
    at = lambda eta: np.array([np.exp(eta[0]) if slope else 1.0, eta[-1]])
    free = slice(0 if slope else 1, 2)

    def value(eta: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = shared.terms(shared.x, at(eta), limit)
        return float(total.sum()), gradient.sum(axis=0)[free]

    eta, hessian = minimum(value, np.array([np.log(start[0]), start[1]])[free])
    return at(eta), hessian


def _limit(dispersion: float, robust: bool) -> float:
    """Delta^2 from which subjects have no weight."""
    return dispersion * float(chi2.isf(NO_WEIGHT, 1)) if robust else np.inf


def _dispersion(
    shared: SharedSubjects, constants: np.ndarray, slope: bool, robust: bool
) -> float:
    """s^2, by which subjects differ more than by their errors."""
    square = shared.terms(shared.x, constants, np.inf)[0]
    if len(square) < ENOUGH:
        return 1.0
    if robust:
        return max(1.0, float(np.median(square) / chi2.ppf(QUANTILE, 1)))
    return max(1.0, float(square.sum() / (len(square) - 1 - slope)))


def _slopes(
    shared: SharedSubjects, constants: np.ndarray, limit: float, k: int
) -> np.ndarray:
    """`[subjects, 2]` derivatives of the gradient in x of a calibration."""
    step = np.zeros((2, 1))
    step[k] = STEP
    ends = [shared.terms(shared.x + x, constants, limit)[1] for x in (step, -step)]
    return (ends[0] - ends[1]) / (2 * STEP)
