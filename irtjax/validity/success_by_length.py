r"""Success of subjects by length of tasks: a logistic model with random difficulty.

The r of n runs of subject i at task j that succeed are binomial, with

.. math::  g(P_{ij}) = a_i - b_i x_j + \tau z_j, \qquad z_j \sim N(0, 1),

where x is log2 of minutes less its mean and :math:`\tau z_j` is the difficulty of the
task given its length, shared by all subjects. The likelihood of a task is an integral
over z, here on Gauss-Hermite nodes around its mode (Liu and Pierce 1994, Biometrika
81). Given z the predictor is linear in all parameters, so Louis' formula (1982, JRSS B
44) has the exact derivatives for Newton's method. Covariances are sandwiches of the
scores of families of tasks: runs of a family may depend on one another in any way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_ndtr, logsumexp

#: Nodes of the integral over the difficulty of a task. With 41 the log-likelihood of
#: 7,063 runs changes by 1e-4, with 11 by 8e-3.
NODES = 21
#: Steps of Newton's method, and the expected gain in log-likelihood that ends them.
STEPS, GAIN = 100, 1e-9
#: Predictors beyond this have probabilities of 0 or 1 in double precision.
LARGEST = 35.0


def _logit(eta: np.ndarray, r: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, ...]:
    """Log-likelihood of r of n successes, and its two derivatives in the predictor."""
    p = expit(eta)
    return r * log_expit(eta) + (n - r) * log_expit(-eta), r - n * p, -n * p * (1 - p)


def _probit(eta: np.ndarray, r: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same of the normal distribution function."""
    success, failure = log_ndtr(eta), log_ndtr(-eta)
    density = -0.5 * eta**2 - 0.5 * np.log(2 * np.pi)
    up, down = np.exp(density - success), np.exp(density - failure)
    return (
        r * success + (n - r) * failure,
        r * up - (n - r) * down,
        -r * up * (up + eta) - (n - r) * down * (down - eta),
    )


def _loglog(eta: np.ndarray, r: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same of P = exp(-exp(-eta)), Weibull survival: a constant hazard if b = ln 2.

    With E = exp(-eta) the second derivative of log(1 - P) is -g (E - 1 + g), g = E P /
    (1 - P).
    """
    hazard = np.exp(-eta)
    # Both are exact where the hazard is small, by expm1.
    failure, g = np.log(-np.expm1(-hazard)), hazard / np.expm1(np.minimum(hazard, 700))
    return (
        -r * hazard + (n - r) * failure,
        r * hazard - (n - r) * g,
        -r * hazard - (n - r) * g * (hazard - 1 + g),
    )


LINKS = {"logit": _logit, "probit": _probit, "loglog": _loglog}


class Assumptions(NamedTuple):
    """What an analysis assumes.

    Attributes:
        link: A name of `LINKS`.
        slope: "common" to all subjects, or each its "own".
        difficulty: Of tasks given their length: "random" or "none".
        weights: "runs": each run counts as one. "tasks": the runs of a subject at a
            task count as one. "families": as "tasks" without random difficulty, and
            each task counts 1 / sqrt(tasks of its family).
    """

    link: str = "logit"
    slope: str = "common"
    difficulty: str = "random"
    weights: str = "runs"


class RunCounts(NamedTuple):
    """TimedRuns by subject and task.

    Attributes:
        right: `[subjects, tasks]` successes.
        runs: `[subjects, tasks]` runs.
        length: `[tasks]` log2 of minutes.
        family: `[tasks]` numbers of families.
    """

    right: np.ndarray
    runs: np.ndarray
    length: np.ndarray
    family: np.ndarray


class _Moments(NamedTuple):
    """Log-likelihood, derivatives and posterior of the tasks at a point.

    Attributes:
        value: Weighted log-likelihood.
        scores: `[tasks, parameters]` weighted gradients.
        observed, complete: `[parameters, parameters]` information: observed, and that
            of known difficulties, which is positive definite everywhere.
        nodes, posterior: `[tasks, nodes]`.
    """

    value: float
    scores: np.ndarray
    observed: np.ndarray
    complete: np.ndarray
    nodes: np.ndarray
    posterior: np.ndarray


class SuccessCurves(NamedTuple):
    """The estimated model.

    Attributes:
        intercept: `[subjects]` a, at the mean length.
        slope: `[subjects]` b, on log2 of minutes.
        sd: tau, 0 without random difficulty.
        centre: Mean of log2 of minutes.
        covariance: Of intercepts, slopes, and tau if it is random.
        log_likelihood: At the maximum, weighted.
        parameters: Their number.
        converged: Whether Newton's method converged.
        nodes, posterior: `[tasks, nodes]` of the difficulties.
        assumptions: What was assumed.
    """

    intercept: np.ndarray
    slope: np.ndarray
    sd: float
    centre: float
    covariance: np.ndarray
    log_likelihood: float
    parameters: int
    converged: bool
    nodes: np.ndarray
    posterior: np.ndarray
    assumptions: Assumptions

    def log_horizons(self, success: float, marginal: bool = False) -> np.ndarray:
        """`[subjects]` log2 of the minutes at which subjects succeed with a chance.

        Marginal horizons average the chance over the difficulty of tasks; others are
        those of a task of typical difficulty. NaN where the slope is not positive.
        """
        return self.centre + self._above(success, marginal) / self._falling()

    def log_covariance(self, success: float, marginal: bool = False) -> np.ndarray:
        """`[subjects, subjects]` covariance of `log_horizons`, by the delta method."""
        subjects, slope = len(self.intercept), self._falling()
        rows = np.arange(subjects)
        gradient = np.zeros((subjects, self.parameters))
        gradient[rows, rows] = 1 / slope
        place = rows if self.assumptions.slope == "own" else 0
        gradient[rows, subjects + place] = -self._above(success, marginal) / slope**2
        if marginal and self.sd:
            step = 1e-4 * max(self.sd, 0.1)
            link = self.assumptions.link
            change = [predictor(link, success, self.sd + x) for x in (0, step)]
            gradient[:, -1] = -(change[1] - change[0]) / step / slope
        return gradient @ self.covariance @ gradient.T

    def _falling(self) -> np.ndarray:
        """Slopes, NaN where success does not fall with length."""
        return np.where(self.slope > 0, self.slope, np.nan)

    def _above(self, success: float, marginal: bool) -> np.ndarray:
        """Intercepts less the predictor at which the chance is `success`."""
        sd = self.sd if marginal else 0.0
        return self.intercept - predictor(self.assumptions.link, success, sd)


def predictor(link: str, success: float, sd: float) -> float:
    """The predictor of typical tasks whose mean chance over tasks is `success`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()

    def excess(typical: float) -> float:
        eta = np.clip(typical + sd * nodes, -LARGEST, LARGEST)
        return float(weights @ np.exp(LINKS[link](eta, np.ones(61), np.ones(61))[0]))

    wide = 40 + 10 * sd
    root: Any = brentq(lambda eta: excess(eta) - success, -wide, wide, xtol=1e-12)
    return float(root)


def fit_curves(counts: RunCounts, assumptions: Assumptions) -> SuccessCurves:
    """Maximises the marginal likelihood of runs by subject and task.

    Each subject must have a success and a failure; `separated` lists those whose own
    slope has no maximum.
    """
    model = _Model.of(counts, assumptions)
    point, moments, converged = _maximise(model)
    scores = np.zeros((counts.family.max() + 1, len(point)))
    np.add.at(scores, counts.family, moments.scores)
    bread = np.linalg.pinv(moments.observed, hermitian=True)
    number = len(np.unique(counts.family))
    meat = scores.T @ scores * number / max(number - 1, 1)
    subjects = len(counts.right)
    intercept, slope, sd = model.split(point)
    sign = np.ones(len(point))
    if sd < 0:  # The likelihood is that of |tau|.
        sign[-1] = -1
    return SuccessCurves(
        intercept,
        np.broadcast_to(slope, subjects).copy(),
        abs(sd),
        float(counts.length.mean()),
        np.outer(sign, sign) * (bread @ meat @ bread),
        moments.value,
        len(point),
        converged,
        moments.nodes * (1 if sd >= 0 else -1),
        moments.posterior,
        assumptions,
    )


def separated(counts: RunCounts) -> np.ndarray:
    """`[subjects]`: whether a length separates all successes from all failures.

    The likelihood of such a subject's own slope has no maximum.
    """
    right, wrong = counts.right > 0, counts.runs > counts.right
    extreme = lambda mask, fill, of: of(np.where(mask, counts.length, fill), axis=1)
    shortest = [extreme(mask, np.inf, np.min) for mask in (right, wrong)]
    longest = [extreme(mask, -np.inf, np.max) for mask in (right, wrong)]
    return (longest[0] <= shortest[1]) | (longest[1] <= shortest[0])


def bound(counts: RunCounts, curves: SuccessCurves, tail: float) -> tuple[float, float]:
    """Intercept and slope of a subject that always succeeds, or always fails.

    The intercept is that at which so extreme a result has the chance `tail`, given the
    common slope (or the median one) and the difficulties of tasks as other subjects
    show them; `counts` has this one subject alone.
    """
    slope = float(np.nanmedian(curves.slope))
    right, runs = counts.right[0][:, None], counts.runs[0][:, None]
    length = (counts.length - curves.centre)[:, None]
    weights = np.log(np.maximum(curves.posterior, 1e-300))

    def excess(intercept: float) -> float:
        eta = intercept - slope * length + curves.sd * curves.nodes
        eta = np.clip(eta, -LARGEST, LARGEST)
        value = LINKS[curves.assumptions.link](eta, right, runs)[0]
        chances = np.asarray(logsumexp(value + weights, axis=1))
        return float(chances.sum()) - np.log(tail)

    wide = 20 + 5 * curves.sd + abs(slope) * float(np.abs(length).max())
    if excess(-wide) * excess(wide) > 0:
        return float("nan"), slope
    root: Any = brentq(excess, -wide, wide)
    return float(root), slope


class _Model(NamedTuple):
    """Arrays of the likelihood.

    Attributes:
        right, runs: `[subjects, tasks]`, weighted where tasks count alike.
        length: `[tasks]`, centred.
        weight: `[tasks]` exponents of the tasks' likelihoods.
        places: `[subjects, 3, parameters]`: which parameters are the subject's
            intercept, slope and tau.
        assumptions: What is assumed.
    """

    right: np.ndarray
    runs: np.ndarray
    length: np.ndarray
    weight: np.ndarray
    places: np.ndarray
    assumptions: Assumptions

    @classmethod
    def of(cls, counts: RunCounts, assumptions: Assumptions) -> _Model:
        """Those of counts."""
        right, runs = counts.right, counts.runs
        weight = np.ones(len(counts.length))
        if assumptions.weights != "runs" and assumptions.difficulty == "none":
            right, runs = right / np.maximum(runs, 1), np.minimum(runs, 1.0)
        if assumptions.weights == "families":
            weight = 1 / np.sqrt(np.bincount(counts.family)[counts.family])
            weight = weight / weight.mean()
        subjects, own = len(right), assumptions.slope == "own"
        random = assumptions.difficulty == "random"
        slopes = subjects if own else 1
        rows = np.arange(subjects)
        places = np.zeros((subjects, 3, subjects + slopes + random))
        places[rows, 0, rows] = 1
        places[rows, 1, subjects + (rows if own else 0)] = 1
        if random:
            places[:, 2, -1] = 1
        length = counts.length - counts.length.mean()
        return cls(right, runs, length, weight, places, assumptions)

    def start(self) -> np.ndarray:
        """Intercepts of mean success, slopes of one half, tau of 1."""
        subjects, _, number = self.places.shape
        point = np.full(number, 0.5)
        share = (self.right.sum(axis=1) + 0.5) / (self.runs.sum(axis=1) + 1)
        point[:subjects] = np.log(share / (1 - share))
        if self.assumptions.difficulty == "random":
            point[-1] = 1.0
        return point

    def split(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Intercepts, slopes and tau."""
        subjects = len(self.right)
        random = self.assumptions.difficulty == "random"
        end = len(point) - random
        sd = float(point[-1]) if random else 0.0
        return point[:subjects], point[subjects:end], sd

    def _nodes(self, fixed: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
        """Nodes around the mode of each task, and log weights with their prior."""
        tasks = len(self.length)
        if self.assumptions.difficulty == "none":
            return np.zeros((tasks, 1)), np.zeros((tasks, 1))
        link = LINKS[self.assumptions.link]
        mode, information = np.zeros(tasks), np.ones(tasks)
        # The posterior is log-concave; a step of at most 1 keeps Newton from overshoot.
        for _ in range(50):
            eta = np.clip(fixed + sd * mode, -LARGEST, LARGEST)
            _, first, second = link(eta, self.right, self.runs)
            information = 1 - sd**2 * second.sum(axis=0)
            step = (sd * first.sum(axis=0) - mode) / information
            mode = mode + np.clip(step, -1, 1)
            if np.abs(step).max() < 1e-8:
                break
        node, weight = np.polynomial.hermite.hermgauss(NODES)
        scale = np.sqrt(2 / information)[:, None]
        nodes = mode[:, None] + scale * node
        prior = -0.5 * nodes**2 - 0.5 * np.log(2 * np.pi)
        return nodes, prior + np.log(scale) + np.log(weight) + node**2

    def moments(self, point: np.ndarray) -> _Moments:
        """Log-likelihood, scores and information at a point."""
        intercept, slope, sd = self.split(point)
        fixed = intercept[:, None] - np.reshape(slope, (-1, 1)) * self.length
        nodes, prior = self._nodes(fixed, sd)
        eta = np.clip(fixed[:, :, None] + sd * nodes, -LARGEST, LARGEST)
        right, runs = self.right[:, :, None], self.runs[:, :, None]
        value, first, second = LINKS[self.assumptions.link](eta, right, runs)
        joint = value.sum(axis=0) + prior
        marginal = np.asarray(logsumexp(joint, axis=1))
        posterior = np.exp(joint - marginal[:, None])
        # Derivatives of a predictor in its intercept, slope and tau.
        minus = np.broadcast_to(-self.length[:, None], nodes.shape)
        design = np.stack([np.ones(nodes.shape), minus, nodes])
        score = np.tensordot(first[:, None] * design, self.places, ((0, 1), (0, 1)))
        weighted = posterior * self.weight[:, None]
        mean = np.einsum("jq,jqk->jk", posterior, score)
        blocks = np.einsum(
            "ijq,ajq,bjq->iab", -second * weighted, design, design, optimize=True
        )
        complete = np.einsum(
            "iak,iab,ibl->kl", self.places, blocks, self.places, optimize=True
        )
        spread = (score - mean[:, None]) * np.sqrt(weighted)[:, :, None]
        spread = spread.reshape(-1, len(point))
        return _Moments(
            float(self.weight @ marginal),
            mean * self.weight[:, None],
            complete - spread.T @ spread,
            complete,
            nodes,
            posterior,
        )


def _maximise(model: _Model) -> tuple[np.ndarray, _Moments, bool]:
    """The maximum by Newton's method, with half steps while the likelihood falls."""
    point = model.start()
    now = model.moments(point)
    ridge = 1e-10 * np.eye(len(point))
    for _ in range(STEPS):
        gradient = now.scores.sum(axis=0)
        try:
            np.linalg.cholesky(now.observed)
            step = np.linalg.solve(now.observed, gradient)
        except np.linalg.LinAlgError:
            # A step of EM's kind, which rises wherever Newton's may not.
            step = np.linalg.solve(now.complete + ridge, gradient)
        gain = float(gradient @ step)
        if gain < GAIN:
            return point, now, True
        size = min(1.0, 3.0 / np.abs(step).max())
        for _ in range(30):
            new = model.moments(point + size * step)
            if new.value > now.value:
                break
            size *= 0.5
        else:
            return point, now, gain < 1e-5
        point, now = point + size * step, new
    return point, now, False
