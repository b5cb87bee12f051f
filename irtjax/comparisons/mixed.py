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
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array, csr_array, hstack

from irtjax.comparisons.errors import crossed, robust_covariance
from irtjax.comparisons.families import PairFamily

#: What a row depends on: difference, log alpha, ties, mean ability, b, and g.
COORDINATES = 6
#: Parameters of a dense information matrix that a laptop inverts in seconds.
MOST_PARAMETERS = 6000
MOST_STEPS, MOST_HALVINGS = 100, 30
#: Square of a step in standard errors, per parameter, at which the search ends.
TOLERANCE = 1e-14
#: Standard deviations below it count as 0; the first guess; the longest step of a log.
LEAST, FIRST, LONGEST = 1e-3, 0.3, 1.0


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

    def coordinates(self, vector: np.ndarray) -> np.ndarray:
        """What rows depend on, `[rows, coordinates]`."""
        columns = np.zeros((len(self.outcomes), COORDINATES))
        for k, design in self.designs.items():
            columns[:, k] = design @ vector
        return columns


class MixedFit(NamedTuple):
    """Estimates of a mixed model.

    Attributes:
        vector: `[parameters]`.
        covariance: `[parameters, parameters]` inverse information with the priors, or
            by clusters if there are any.
        deviations: Estimate and standard error of each tau, by kind; where it is 0, the
            root of the standard error of tau^2.
        log_likelihood: Marginal over the random effects.
        converged: Whether estimates and standard deviations converged.
    """

    vector: np.ndarray
    covariance: np.ndarray
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


@partial(jax.jit, static_argnums=(0, 1))
def local_derivatives(family: PairFamily, bad: bool, places, outcomes):
    """Log-likelihood, derivatives by outcome, and negative Hessian of each row.

    The last one is the expected information.
    """

    def logs(z):
        chances = family.log_chances(z[0] * jnp.exp(z[1]), z[2:3])
        odds = z[4] - z[5] * z[3]
        even = jnp.stack([jax.nn.log_sigmoid(-odds), jax.nn.log_sigmoid(odds)])
        even = even if bad else jnp.zeros(2)
        return jnp.concatenate([chances[:2], chances[2] + even])

    def one(z, n):
        total = lambda z: jnp.sum(jnp.where(n > 0, n * logs(z), 0.0))
        slope, chance = jax.jacfwd(logs)(z), jnp.exp(logs(z))
        real = jnp.array([1.0, 1.0, family.num_shapes, bad])
        weight = jnp.sum(n) * chance * real
        expected = jnp.einsum("o,oa,ob->ab", weight, slope, slope)
        return total(z), slope, -jax.hessian(total)(z), expected

    return jax.vmap(one)(places, outcomes)


def _counts(problem: MixedProblem) -> np.ndarray:
    """Numbers of outcomes as the rule for ties counts them."""
    counts = np.array(problem.outcomes)
    counts[:, :3] = np.asarray(problem.family.counts(jnp.asarray(counts[:, :3])))
    return counts


def _derivatives(problem: MixedProblem, vector: np.ndarray):
    """Log-likelihood, gradient, observed and expected information."""
    counts = _counts(problem)
    value, slope, observed, expected = map(
        np.asarray,
        local_derivatives(
            problem.family, problem.bad, problem.coordinates(vector), counts
        ),
    )
    slope = np.einsum("ro,roa->ra", counts, np.where(counts[..., None] > 0, slope, 0))
    gradient = sum(x.T @ slope[:, k] for k, x in problem.designs.items())

    def assembled(local):
        total = 0.0
        for a, left in problem.designs.items():
            for b, right in problem.designs.items():
                total += left.T @ (right.multiply(local[:, a, b][:, None]))
        return np.asarray(total.toarray())  # pyright: ignore

    return (
        float(value.sum()),
        gradient,
        lambda: assembled(observed),
        lambda: assembled(expected),
    )


def _regular(problem: MixedProblem, information: np.ndarray) -> np.ndarray:
    """The information with a size for the sum of abilities, which is fixed."""
    one = np.zeros(len(information))
    one[: problem.num_subjects] = problem.num_subjects**-0.5
    size = np.trace(information) / len(information)
    return information + size * np.outer(one, one)


def _maximum(problem: MixedProblem, start: np.ndarray, precision: np.ndarray):
    """The mode, its log-likelihood, its information, and whether it converged."""
    vector, count = start, problem.num_subjects

    def objective(vector):
        counts, places = _counts(problem), problem.coordinates(vector)
        value = local_derivatives(problem.family, problem.bad, places, counts)[0]
        return float(value.sum()) - 0.5 * np.sum(precision * vector**2)

    steps = 0
    while True:
        value, gradient, observed, expected = _derivatives(problem, vector)
        gradient = gradient - precision * vector
        matrix = observed() + np.diag(precision)
        # The observed information is positive definite near the mode alone.
        if np.linalg.eigvalsh(_regular(problem, matrix))[0] <= 0:
            matrix = expected() + np.diag(precision)
        move = np.linalg.solve(_regular(problem, matrix), gradient)
        move[:count] -= move[:count].mean()
        converged = bool(gradient @ move < TOLERANCE * len(vector))
        if converged or steps == MOST_STEPS:
            return vector, value, matrix, converged
        steps += 1
        now, factor = value - 0.5 * np.sum(precision * vector**2), 1.0
        slack = 1e-12 * abs(now)
        for _ in range(MOST_HALVINGS):
            if objective(vector + factor * move) >= now - slack:
                break
            factor /= 2
        vector = vector + factor * move


def fit_mixed(
    problem: MixedProblem,
    precision: float = 0.0,
    clusters: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]] = (),
) -> MixedFit:
    """Estimates with standard deviations of the random effects.

    Args:
        problem: The rows.
        precision: Of a normal prior of abilities and covariates, 0 for none.
        clusters: For each kind: codes of clusters, rows of the problem, and outcomes
            `[n, 4]` of all single comparisons.
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
    steps, done = 0, not len(logs)
    while True:
        for block, log in zip(problem.blocks.values(), logs, strict=True):
            prior[block] = np.exp(-2 * log)
        vector, value, information, sound = _maximum(problem, vector, prior)
        inverse = np.linalg.inv(_regular(problem, information))
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
    covariance = inverse
    if clusters:
        covariance = _clustered(problem, vector, inverse, prior, clusters)
    # Where tau is 0, the root of the standard error of its square.
    deviations = {
        name: (float(t), float(t * e))
        if t > LEAST
        else (0.0, float(t * (2 * e) ** 0.5))
        for name, t, e in zip(problem.blocks, tau, error, strict=True)
    }
    return MixedFit(vector, covariance, deviations, float(marginal), sound and done)


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


def _clustered(problem, vector, inverse, prior, clusters) -> np.ndarray:
    """The sandwich of clusters; see `comparisons.errors`.

    Scores of the priors count as one more cluster for each effect: where comparisons
    are independent this is the inverse information.
    """
    slope = np.asarray(
        local_derivatives(
            problem.family, problem.bad, problem.coordinates(vector), problem.outcomes
        )[1]
    )
    if not problem.family.num_shapes:
        half = slope[:, :2].mean(axis=1) if problem.family.ties == "half" else 0.0
        slope = np.concatenate([slope[:, :2], 0 * slope[:, 2:]], axis=1)
        slope[:, 2] = half
    middle = 0.0
    kinds = [(1.0, *x) for x in clusters]
    if len(clusters) == 2:
        (one, place, outcomes), (other, *_) = clusters
        kinds.append((-1.0, crossed(one, other), place, outcomes))
    numbers = []
    for sign, code, place, outcomes in kinds:
        own = np.einsum("no,noa->na", outcomes, slope[place])
        shape = int(code.max()) + 1, len(problem.outcomes)
        sums = 0.0
        for k, design in problem.designs.items():
            sums += coo_array((own[:, k], (code, place)), shape).tocsr() @ design
        number = shape[0]
        numbers.append(number)
        middle = middle + sign * (sums.T @ sums).toarray()  # pyright: ignore
    number = min(numbers[: len(clusters)])
    if number < 2:
        raise ValueError("errors by cluster require two clusters or more")
    middle = middle * number / (number - 1)
    fixed = problem.num_subjects + len(problem.names)
    of_effects = np.where(np.arange(len(prior)) < fixed, 0.0, prior)
    middle = middle + np.diag(of_effects)
    return robust_covariance(inverse, middle, two_way=len(clusters) == 2)
