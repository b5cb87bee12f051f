r"""Comparisons with random effects: categories of prompts, rates of ties, judges.

A comparison of i and j by judge k, on a prompt of category c, has the difference

    d = alpha_k (theta_i - theta_j + delta_ic - delta_jc + x'beta)

and the parameter of ties s + (t_i + t_j) / 2, log nu or log h of its family. With "both
bad" as an outcome of its own, an even verdict says so with log-odds b - g m, where m
is the mean ability of the two: weak models fail together.

Each of delta, t and log alpha is N(0, tau^2), with a tau of its own that maximises the
marginal likelihood of Laplace's approximation, where abilities have flat priors (Wood
and Fasiolo 2017). With u the q effects of one kind and C their block of the inverse
information, derivative and information of log tau are

    -q + (u'u + tr C) / tau^2,    2 tr (I - C / tau^2)^2.

Comparisons count as independent there: clusters are for errors alone.

The prior makes a model without ties, or a judge of few votes, estimable, and effects
have a sum of 0: abilities are means over categories, and the mean log alpha is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.sparse import coo_array, csr_array, hstack

from irtjax.comparisons.errors import clustered_covariance
from irtjax.comparisons.families import (
    PairFamily,
    expected_information,
    outcome_scores,
    row_derivatives,
)
from irtjax.comparisons.newton import NewtonPoint, ascend, regular

#: What a row depends on: difference, log alpha, ties, mean ability, b, and g.
COORDINATES = 6
#: Parameters of a dense information matrix that a laptop inverts in seconds.
MOST_PARAMETERS = 6000
#: Steps of the standard deviations.
MOST_STEPS = 100
#: Square of a step in standard errors, per parameter, at which the search ends.
TOLERANCE = 1e-14
#: Standard deviations below it count as 0; the first guess; the longest step of a log.
LEAST, FIRST, LONGEST = 1e-3, 0.3, 1.0


class Kind(NamedTuple):
    """Chances of outcomes as functions of the coordinates that a problem has.

    Attributes:
        family: The model.
        bad: Whether "both bad" is an outcome of its own.
        places: Of the coordinates that a row has; the others are 0.
    """

    family: PairFamily
    bad: bool
    places: tuple[int, ...]

    @property
    def real(self) -> Array:
        """`[4]` 1 for outcomes that the model has, else 0."""
        return jnp.array([1.0, 1.0, self.family.num_shapes, self.bad])

    def log_chances_at(self, coordinates: Array) -> Array:
        """Log-probabilities of a win, a loss, a tie, and "both bad".

        Those of outcomes that the model does not have stand for nothing.
        """
        z = jnp.zeros(COORDINATES, coordinates.dtype).at[jnp.array(self.places)]
        z = z.set(coordinates)
        chances = self.family.log_chances(z[0] * jnp.exp(z[1]), z[2:3])
        odds = z[4] - z[5] * z[3]
        even = jnp.stack([jax.nn.log_sigmoid(-odds), jax.nn.log_sigmoid(odds)])
        even = even if self.bad else jnp.zeros(2)
        return jnp.concatenate([chances[:2], chances[2] + even])


class MixedProblem(NamedTuple):
    """Rows of comparisons as functions of one vector of parameters.

    Attributes:
        family: The model.
        outcomes: `[rows, 4]` numbers of wins, losses, ties and "both bad".
        designs: `[rows, parameters]` sparse matrices by place of the coordinate.
        blocks: Places of each kind of random effects among the parameters, by name.
        num_subjects: Number of abilities, which come first.
        names: Names of the fixed effects, which come after the abilities.
        bad: Whether "both bad" is an outcome of its own.
    """

    family: PairFamily
    outcomes: np.ndarray
    designs: Mapping[int, csr_array]
    blocks: Mapping[str, slice]
    num_subjects: int
    names: tuple[str, ...]
    bad: bool

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return int(self.designs[0].shape[1])  # pyright: ignore

    @property
    def kind(self) -> Kind:
        """What the functions of rows are compiled for."""
        return Kind(self.family, self.bad, tuple(self.designs))

    def coordinates(self, vector: np.ndarray) -> np.ndarray:
        """What rows depend on, `[rows, coordinates]`: those that have a design."""
        return np.column_stack([design @ vector for design in self.designs.values()])


class MixedFit(NamedTuple):
    """Estimates of a mixed model.

    Attributes:
        vector: `[parameters]`.
        covariance: `[parameters, parameters]` inverse information with the priors.
        prior: `[parameters]` precisions of the priors.
        deviations: Estimate and standard error of each tau, by kind; where it is 0, the
            root of the standard error of tau^2.
        log_likelihood: Marginal over the random effects.
        converged: Whether estimates and standard deviations converged.
    """

    vector: np.ndarray
    covariance: np.ndarray
    prior: np.ndarray
    deviations: dict[str, tuple[float, float]]
    log_likelihood: float
    converged: bool


def mixed_problem(
    family: PairFamily,
    sides: tuple[np.ndarray, np.ndarray, int],
    outcomes: np.ndarray,
    features: tuple[np.ndarray, Sequence[str]],
    *,
    category: tuple[np.ndarray, int] | None = None,
    judge: tuple[np.ndarray, int] | None = None,
    tie_rates: bool = False,
    bad: bool = False,
) -> MixedProblem:
    """The designs of all rows.

    Args:
        family: The model.
        sides: First and second subjects `[rows]`, and the number of subjects.
        outcomes: `[rows, 4]`; "both bad" is 0 where it is no outcome of its own.
        features: `[rows, features]` covariates, and their names.
        category: Codes `[rows]` of categories, and their number.
        judge: Codes `[rows]` of judges, and their number.
        tie_rates: Whether models have rates of ties of their own.
        bad: Whether "both bad" is an outcome of its own.
    """
    first, second, count = sides
    columns, names = features
    shapes = ["tie"] * family.num_shapes + ["both_bad", "both_bad_slope"] * bad
    fixed = (*names, *shapes)
    sizes = {
        "category": 0 if category is None else count * category[1],
        "tie_rates": count * tie_rates,
        "judge": 0 if judge is None else judge[1],
    }
    ends = np.cumsum([count + len(fixed), *sizes.values()])
    blocks = {
        name: slice(int(start), int(end))
        for name, start, end in zip(sizes, ends[:-1], ends[1:], strict=True)
        if end > start
    }
    size = int(ends[-1])
    if size > MOST_PARAMETERS:
        raise ValueError(
            f"{size} parameters are more than {MOST_PARAMETERS}: give a category or"
            " judge column of fewer values"
        )

    def pick(*entries):
        """A design of a place (or places) and a weight for each entry."""
        rows = np.tile(np.arange(len(first)), len(entries))
        places = np.concatenate([np.broadcast_to(x, len(first)) for x, _ in entries])
        weights = np.repeat([float(w) for _, w in entries], len(first))
        return csr_array(coo_array((weights, (rows, places)), (len(first), size)))

    pairs = [(first, second)]
    if category is not None:
        at = blocks["category"].start + category[0]
        pairs.append((at + first * category[1], at + second * category[1]))
    gap = pick(*[(x, w) for pair in pairs for x, w in zip(pair, (1, -1), strict=True)])
    if len(names):
        left, right = (csr_array((len(first), n)) for n in (count, size - count))
        right = right[:, len(names) :]
        gap = csr_array(gap + hstack([left, csr_array(columns), right]))
    designs = {0: gap}
    if judge is not None:
        designs[1] = pick((blocks["judge"].start + judge[0], 1))
    if family.num_shapes:
        tie = [(count + fixed.index("tie"), 1.0)]
        if tie_rates:
            start = blocks["tie_rates"].start
            tie += [(start + first, 0.5), (start + second, 0.5)]
        designs[2] = pick(*tie)
    if bad:
        designs[3] = pick(*[(x, 0.5) for pair in pairs for x in pair])
        designs[4], designs[5] = (pick((count + len(fixed) - k, 1)) for k in (2, 1))
    return MixedProblem(family, outcomes, designs, blocks, count, fixed, bad)


def counts_of(problem: MixedProblem) -> np.ndarray:
    """Numbers of outcomes as the rule for ties counts them, `[rows, 4]`."""
    counts = np.array(problem.outcomes)
    counts[:, :3] = np.asarray(problem.family.counts(jnp.asarray(counts[:, :3])))
    return counts


def outcome_slopes(problem: MixedProblem, vector: np.ndarray) -> np.ndarray:
    """Scores of one comparison of each row and outcome, `[rows, 4, coordinates]`.

    A tie that is half a win has the mean of the scores of a win and of a loss.
    """
    places = problem.coordinates(vector)
    return outcome_scores(problem.kind, problem.family, places)


def cluster_scores(
    problem: MixedProblem,
    slope: np.ndarray,
    code: np.ndarray,
    place: np.ndarray,
    outcomes: np.ndarray,
) -> csr_array:
    """Scores of clusters, `[clusters, parameters]`.

    Args:
        problem: The rows.
        slope: Their `outcome_slopes`.
        code: `[comparisons]` cluster.
        place: `[comparisons]` row.
        outcomes: `[comparisons, 4]` numbers of outcomes.
    """
    own = np.einsum("no,noa->na", outcomes, slope[place])
    shape = int(code.max()) + 1, len(problem.outcomes)
    sums = sum(
        csr_array(coo_array((own[:, k], (code, place)), shape)) @ design
        for k, design in enumerate(problem.designs.values())
    )
    return csr_array(sums)


def _quadratic(problem: MixedProblem, local: np.ndarray) -> np.ndarray:
    """Second derivatives in all parameters from those of rows."""
    total = 0.0
    for a, left in enumerate(problem.designs.values()):
        for b, right in enumerate(problem.designs.values()):
            total += left.T @ (right.multiply(local[:, a, b][:, None]))
    return np.asarray(total.toarray())  # pyright: ignore


def _maximum(problem: MixedProblem, start: np.ndarray, precision: np.ndarray):
    """The mode, its log-likelihood, its information, and whether it converged."""
    counts, kind, prior = counts_of(problem), problem.kind, np.diag(precision)

    def evaluate(vector: np.ndarray) -> NewtonPoint:
        values, slopes, curves = map(
            np.asarray, row_derivatives(kind, problem.coordinates(vector), counts)
        )
        designs, value = problem.designs.values(), float(values.sum())
        gradient = sum(x.T @ slopes[:, k] for k, x in enumerate(designs))
        return NewtonPoint(
            vector,
            value,
            value - 0.5 * np.sum(precision * vector**2),
            gradient - precision * vector,
            prior - _quadratic(problem, curves),
        )

    def expected(vector: np.ndarray) -> np.ndarray:
        local = expected_information(kind, problem.coordinates(vector), counts)
        return prior + _quadratic(problem, local)

    point, converged, _ = ascend(
        evaluate,
        start,
        problem.num_subjects,
        expected=expected,
        tolerance=TOLERANCE,
    )
    return point.vector, point.log_likelihood, point.information, converged


def fit_mixed(
    problem: MixedProblem,
    precision: float = 0.0,
    start: MixedFit | None = None,
) -> MixedFit:
    """Estimates with standard deviations of the random effects.

    Args:
        problem: The rows.
        precision: Of a normal prior of abilities and covariates, 0 for none.
        start: A fit to similar comparisons: the search begins at its estimates, and
            standard deviations of effects are its, as few comparisons would move them
            far.
    """
    count, fixed = problem.num_subjects, len(problem.names)
    vector, prior = np.zeros(problem.num_parameters), np.zeros(problem.num_parameters)
    starts = {"tie": -0.5, "both_bad_slope": 0.1}
    vector[count : count + fixed] = [starts.get(x, 0.0) for x in problem.names]
    # Shares of wins less those of losses: at equal abilities g has no information.
    wins, gap = problem.outcomes[:, 0] - problem.outcomes[:, 1], problem.designs[0]
    games = abs(gap).T @ problem.outcomes.sum(axis=1)
    vector[:count] = (gap.T @ wins / np.maximum(games, 1e-300))[:count]
    vector[:count] -= vector[:count].mean()
    free = count + sum(
        name not in ("tie", "both_bad", "both_bad_slope") for name in problem.names
    )
    prior[:free] = precision
    logs = np.full(len(problem.blocks), np.log(FIRST))
    steps, done = 0, start is not None or not len(logs)
    if start is not None:
        vector = start.vector
        taus = [start.deviations[name][0] for name in problem.blocks]
        logs = np.log(np.maximum(taus, LEAST))
    while True:
        for block, log in zip(problem.blocks.values(), logs, strict=True):
            prior[block] = np.exp(-2 * log)
        vector, value, information, sound = _maximum(problem, vector, prior)
        inverse = np.linalg.inv(regular(information, count))
        score, curve = _of_deviations(problem, vector, inverse, prior)
        if done or steps == MOST_STEPS:
            break
        step = np.linalg.solve(curve + 1e-6 * np.eye(len(logs)), score)
        moved = logs + np.clip(step, -LONGEST, LONGEST)
        moved = np.maximum(moved, np.log(LEAST))
        done = bool(np.max(abs(moved - logs)) < 1e-5)
        logs, steps = moved, steps + 1
    tau = np.where(logs > np.log(LEAST), np.exp(logs), LEAST)
    error = np.sqrt(np.diagonal(np.linalg.pinv(curve)))
    # The integral over effects u of exp(l - u'u / (2 tau^2)), whose constants cancel.
    random = slice(count + fixed, None)
    determinant = np.linalg.slogdet(information[random, random])[1]
    weight = prior[random]
    marginal = value - 0.5 * np.sum(weight * vector[random] ** 2)
    marginal += 0.5 * (np.sum(np.log(weight)) - determinant)
    # Where tau is 0, the root of the standard error of its square.
    deviations = {
        name: (float(t), float(t * e))
        if t > LEAST
        else (0.0, float(t * (2 * e) ** 0.5))
        for name, t, e in zip(problem.blocks, tau, error, strict=True)
    }
    value = float(marginal)
    return MixedFit(vector, inverse, prior, deviations, value, sound and done)


def _of_deviations(problem, vector, inverse, prior):
    """Derivative and information of the log standard deviations of random effects."""
    blocks = list(problem.blocks.values())
    score, curve = np.zeros(len(blocks)), np.zeros((len(blocks), len(blocks)))
    root = np.sqrt(prior)
    for a, one in enumerate(blocks):
        scaled = np.sum(prior[one] * (vector[one] ** 2 + np.diagonal(inverse)[one]))
        score[a] = scaled - (one.stop - one.start)
        for b, other in enumerate(blocks):
            shrunk = root[one, None] * inverse[one, other] * root[None, other]
            part = np.eye(len(shrunk)) - shrunk if a == b else shrunk
            curve[a, b] = 2 * np.sum(part**2)
    return score, curve


def clustered(
    problem: MixedProblem,
    fit: MixedFit,
    place: np.ndarray,
    outcomes: np.ndarray,
    clusters: Sequence[np.ndarray],
) -> np.ndarray:
    """Covariance by clusters; see `comparisons.errors`.

    Scores of the priors count as one more cluster for each effect: where comparisons
    are independent this is the inverse information.

    Args:
        problem: The rows.
        fit: Their fit.
        place: `[comparisons]` row.
        outcomes: `[comparisons, 4]` numbers of outcomes.
        clusters: One or two codes of clusters, `[comparisons]` each.
    """
    slope = outcome_slopes(problem, fit.vector)

    def products(code: np.ndarray) -> np.ndarray:
        scores = cluster_scores(problem, slope, code, place, outcomes)
        return (scores.T @ scores).toarray()

    prior = np.diag(effect_precision(problem, fit.prior))
    return clustered_covariance(fit.covariance, clusters, products, prior)


def effect_precision(problem: MixedProblem, prior: np.ndarray) -> np.ndarray:
    """Precisions of the priors of random effects; 0 for other parameters."""
    fixed = problem.num_subjects + len(problem.names)
    return np.where(np.arange(len(prior)) < fixed, 0.0, prior)
