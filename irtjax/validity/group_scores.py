r"""Scores of items in groups of subjects, all items from one pass over the data.

In a multiple-group 2PL with common items (`irtjax.fit(..., groups=)`), the gradient in
the parameters (a, d) that item j would have in group g alone is

    S_jg = sum_{i in g} E_i[s_ij],    s_ij = (y_ij - P_j(theta)) (theta, 1),

expectations over the posterior of subject i, with Louis' (1982) information: of one
response P Q (theta, 1)(theta, 1)' less the posterior variance of s_ij. The population
(m, log s) of the group has the gradient t_i, and is removed from both (the score of
Neyman's C(alpha) test). With R = I_xt I_tt^-1

    J_jg = I_xx - R I_tx,    delta_jg = J_jg^-1 (S_jg - R sum_i t_i).

That is one Newton step from the common parameters to those of the group, with
covariance J_jg^-1. Parameters that change with a number x of the subjects have the
gradients s_ij and x_i s_ij. Since abilities may depend on x, each group has then a
regression on it: z ~ N(c + b x, scale^2) at standardised nodes, by EM with fixed items.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse
from scipy.special import expit, softmax

#: Bytes of the responses of one block of subjects, and of its posteriors.
BLOCK_BYTES = 32_000_000
#: Weights of nodes below this are 0; posteriors with fewer others than this share of
#: the nodes are sparse.
LEAST, SPARSE = 1e-14, 0.1
#: Nodes of which one is first evaluated, to see where posteriors lie; below a log
#: density of this less than the maximum nodes are left out.
STRIDE, LEAST_LOG = 8, -40.0
#: Steps of EM for the regression of abilities on a number, and the change of its
#: coefficients, in standard deviations of the group, at which it has converged.
REGRESSION_STEPS, REGRESSION_TOLERANCE = 200, 1e-5


class Normals(NamedTuple):
    """Items of a 2PL `[groups, items]`, and populations `[groups]`."""

    slope: np.ndarray
    intercept: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


class GroupSteps(NamedTuple):
    """The steps of each group from the common parameters.

    Attributes:
        step: `[groups, items, 2]` delta of (a, d).
        information: `[groups, items, 2, 2]` J.
        regressed: `[groups, items, 2, 2]` R.
    """

    step: np.ndarray
    information: np.ndarray
    regressed: np.ndarray


class NumberScores(NamedTuple):
    """Scores of parameters that change with a number, summed over groups.

    Attributes:
        score: `[items, 4]` of (a, d), and of their change with the number.
        information: `[items, 4, 4]`.
        regressed: `[groups, items, 4, 3]` R.
    """

    score: np.ndarray
    information: np.ndarray
    regressed: np.ndarray


class _Sums(NamedTuple):
    """Weighted sums over subjects, w_i being the weight."""

    at_nodes: np.ndarray  # [nodes, items] of subjects who answered, [nodes, 1] if all.
    right: np.ndarray  # [nodes, items]
    squares: np.ndarray  # [items, 2, 2] of w_i E_i s E_i s'.
    cross: np.ndarray  # [items, 2, 2] of w_i E_i s E_i (z, z^2).
    population: np.ndarray  # [2, 2] of w_i E_i (z, z^2) E_i (z, z^2)'.
    everyone: np.ndarray  # [nodes] of all subjects.
    score: np.ndarray  # [items, 2] of w_i E_i s.


class _Moments(NamedTuple):
    """Weighted sums over subjects of score, information and moments of z."""

    score: np.ndarray  # [items, 2]
    own: np.ndarray  # [items, 2, 2] information
    cross: np.ndarray  # [items, 2, 2] less posterior covariance of s and (z, z^2).
    covariance: np.ndarray  # [2, 2] posterior covariance of (z, z^2).
    level: np.ndarray  # [3] of E_i (1, z, z^2).


class _Group(NamedTuple):
    """Items `[items]` and abilities `[nodes]` of one group, at standardised nodes."""

    slope: np.ndarray
    intercept: np.ndarray
    theta: np.ndarray
    nodes: np.ndarray
    chance: np.ndarray  # [nodes, items]
    lost: np.ndarray  # [nodes, items] -log(1 - chance)
    lost_of_all: np.ndarray  # [nodes]
    #: z ~ N(shift + slope_of_mean x, scale^2).
    shift: float = 0.0
    slope_of_mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, normals: Normals, nodes: np.ndarray, k: int) -> _Group:
        """Group k of the estimates."""
        slope, intercept, sd = normals.slope[k], normals.intercept[k], normals.sd[k]
        theta = normals.mean[k] + sd * nodes
        logit = theta[:, None] * slope + intercept
        small = np.exp(-np.abs(logit))
        chance = np.where(logit < 0, small, 1)
        small += 1
        chance /= small
        lost = np.log(small, out=small)
        lost += np.maximum(logit, 0, out=logit)
        return cls(slope, intercept, theta, nodes, chance, lost, lost.sum(axis=1))

    @classmethod
    def around(cls, normals, nodes, k, right, seen, rows) -> _Group:
        """Group k at the nodes between which all posteriors of `rows` lie.

        Posteriors have one maximum, since their logarithm is concave in a 2PL: outside
        the neighbours of the coarse nodes that have weight there is less.
        """
        if len(nodes) < 10 * STRIDE:
            return cls.of(normals, nodes, k)
        coarse = cls.of(normals, nodes[::STRIDE], k)
        weighty = np.zeros(len(coarse.nodes), bool)
        for _, values, there in _blocks(right, seen, rows, len(coarse.nodes)):
            density = coarse.log_likelihood(values, there) - coarse.nodes**2 / 2
            density -= density.max(axis=1, keepdims=True)
            weighty |= (density > LEAST_LOG).any(axis=0)
        places = np.flatnonzero(weighty)
        first, last = max(places[0] - 1, 0), places[-1] + 1
        return cls.of(normals, nodes[first * STRIDE : last * STRIDE + 1], k)

    def with_items(self, at: np.ndarray) -> _Group:
        """Of other parameters `[items, 2]`."""
        chance = expit(self.theta[:, None] * at[:, 0] + at[:, 1])
        return self._replace(slope=at[:, 0], intercept=at[:, 1], chance=chance)

    def with_regression(
        self,
        right: np.ndarray,
        seen: np.ndarray | None,
        rows: np.ndarray,
        number: np.ndarray,
    ) -> _Group:
        """Of a regression of z on a number, estimated by EM with the items fixed."""
        blocks = _blocks(right, seen, rows, len(self.nodes))
        likelihood = [self.log_likelihood(values, there) for _, values, there in blocks]
        density, x = np.concatenate(likelihood), number[rows]
        design = np.stack([np.ones_like(x), x], axis=1)
        solve = np.linalg.pinv(design)
        least = self.nodes[1] - self.nodes[0]
        place, scale = np.zeros(2), 1.0
        for _ in range(REGRESSION_STEPS):
            centre = (design @ place)[:, None]
            prior = -(((self.nodes - centre) / scale) ** 2) / 2
            weight = softmax(density + prior, axis=1)
            mean, square = (weight @ np.stack([self.nodes, self.nodes**2], 1)).T
            last = *place, scale
            place = solve @ mean
            centre = design @ place
            variance = np.mean(square - 2 * centre * mean + centre**2)
            scale = max(math.sqrt(variance), least)
            if np.abs(np.array(last) - [*place, scale]).max() < REGRESSION_TOLERANCE:
                break
        shift, slope = (float(v) for v in place)
        return self._replace(shift=shift, slope_of_mean=slope, scale=scale)

    def gradients(self, level: np.ndarray, number: np.ndarray | None) -> np.ndarray:
        """`[subjects, t]` gradients in (c, log scale), and b if there is a number.

        `level` are the posterior means of (z, z^2).
        """
        x = 0.0 if number is None else number
        centre = self.shift + self.slope_of_mean * x
        first = (level[:, 0] - centre) / self.scale**2
        second = level[:, 1] - 2 * centre * level[:, 0] + centre**2
        parts = [first, second / self.scale**2 - 1]
        return np.stack(parts if number is None else [*parts, x * first], axis=1)

    def log_likelihood(self, right: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
        """`[subjects, nodes]` log likelihoods but for a constant."""
        # sum_j y logit - log(1 + exp(logit)) over what was answered.
        weight = right if seen is None else right * seen
        linear = np.outer(weight @ self.slope, self.theta)
        linear += (weight @ self.intercept)[:, None]
        lost = self.lost_of_all if seen is None else seen @ self.lost.T
        return linear - lost

    def posterior(
        self,
        right: np.ndarray,
        seen: np.ndarray | None,
        number: np.ndarray | None = None,
    ) -> Any:
        """`[subjects, nodes]` posteriors, sparse where they are narrow."""
        centre = self.shift
        if number is not None:
            centre = centre + self.slope_of_mean * number[:, None]
        prior = -(((self.nodes - centre) / self.scale) ** 2) / 2
        weight = softmax(self.log_likelihood(right, seen) + prior, axis=1)
        weight[weight < LEAST] = 0
        few = np.count_nonzero(weight) < SPARSE * weight.size
        return csr_array(weight) if few else weight

    def residuals(
        self, right: np.ndarray, seen: np.ndarray | None, posterior: Any
    ) -> np.ndarray:
        """`[2, subjects, items]` expectations of (y - P) (theta, 1)."""
        out = np.empty((2, *right.shape))
        np.subtract(right, posterior @ self.chance, out=out[1])
        np.multiply(right, (posterior @ self.theta)[:, None], out=out[0])
        out[0] -= _scaled(posterior, self.theta) @ self.chance
        if seen is not None:
            out *= seen
        return out


def _scaled(posterior: Any, weight: np.ndarray) -> Any:
    """Posteriors times weights of nodes, or of subjects `[subjects, 1]`."""
    scaled = posterior * weight
    return csr_array(scaled) if issparse(scaled) else scaled


def _weighted_sums(
    right: np.ndarray,
    seen: np.ndarray | None,
    posterior: Any,
    residual: np.ndarray,
    level: np.ndarray,
    weight: np.ndarray | None,
) -> _Sums:
    """The sums of a block of subjects; of weight 1 where None."""
    weighted, heavy, far = residual, posterior, level
    if weight is not None:
        column = weight[:, None]
        weighted, far = residual * column, level * column
        heavy = _scaled(posterior, column)
    squares = np.empty((right.shape[1], 2, 2))
    for a, b in ((0, 0), (0, 1), (1, 1)):
        product = np.einsum("ij,ij->j", weighted[a], residual[b])
        squares[:, a, b] = squares[:, b, a] = product
    everyone = heavy.sum(axis=0)
    return _Sums(
        # A copy, since blocks are added in place.
        everyone[:, None].copy() if seen is None else heavy.T @ seen,
        heavy.T @ (right if seen is None else right * seen),
        squares,
        np.stack([residual[0].T @ far, residual[1].T @ far], axis=1),
        far.T @ level,
        everyone,
        weighted.sum(axis=1).T,
    )


def _moments(total: _Sums, group: _Group, other: _Group) -> _Moments:
    """Complete information less the posterior variance of the gradient.

    With n and r the weights of those who answered and of those right at a node, P Q n -
    [r Q^2 + (n - r) P^2] = (2 P - 1) (r - n P).
    """
    theta, nodes, chance = group.theta, group.nodes, other.chance
    powers = np.stack([nodes, nodes**2], axis=1)
    design = np.stack([theta, np.ones_like(theta)], axis=1)
    outer = lambda x, y: (x[:, :, None] * y[:, None, :]).reshape(len(x), -1)
    pairs = lambda x: x.reshape(-1, 2, 2)
    residual = total.right - total.at_nodes * chance
    cross = total.cross - pairs(residual.T @ outer(design, powers))
    residual *= 2 * chance - 1
    own = total.squares + pairs(residual.T @ outer(design, design))
    covariance = (powers.T * total.everyone) @ powers - total.population
    level = total.everyone @ np.stack([nodes**0, nodes, nodes**2], axis=1)
    return _Moments(total.score, own, cross, covariance, level)


def _blocks(
    right: np.ndarray, seen: np.ndarray | None, rows: np.ndarray, num_nodes: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Rows in blocks of `BLOCK_BYTES`, with their responses and what was observed."""
    size = max(1, BLOCK_BYTES // (8 * (right.shape[1] + num_nodes)))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        values = np.asarray(right[block], np.float64)
        there = None if seen is None else np.asarray(seen[block], np.float64)
        yield block, values, there


def _rows_by_score(right: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """Subjects of group k by score, whose posteriors share nodes in the cache."""
    rows = np.flatnonzero(codes == k)
    return rows[np.argsort(right.sum(axis=1)[rows])]


def _group_moments(
    right: np.ndarray,
    seen: np.ndarray | None,
    rows: np.ndarray,
    group: _Group,
    at: np.ndarray | None = None,
    number: np.ndarray | None = None,
) -> list[_Moments]:
    """Moments of the subjects `rows`: weighted by 1, and by x and x^2 of a number x."""
    other = group if at is None else group.with_items(at)
    totals: list[_Sums] = []
    for block, values, there in _blocks(right, seen, rows, len(group.nodes)):
        x = None if number is None else number[block]
        posterior = group.posterior(values, there, x)
        residual = other.residuals(values, there, posterior)
        weights = [None] if x is None else [None, x, x**2]
        parts = [
            _weighted_sums(
                values, there, posterior, residual, _levels(posterior, group), weight
            )
            for weight in weights
        ]
        if not totals:
            totals = parts
            continue
        for total, part in zip(totals, parts, strict=True):
            for x, y in zip(total, part, strict=True):
                x += y
    return [_moments(total, group, other) for total in totals]


def _levels(posterior: Any, group: _Group) -> np.ndarray:
    """`[subjects, 2]` posterior means of z and z^2."""
    return posterior @ np.stack([group.nodes, group.nodes**2], axis=1)


def _without_population(
    score: np.ndarray,
    gradient: np.ndarray,
    own: np.ndarray,
    cross: np.ndarray,
    population: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score and information without what the population accounts for, and R."""
    regressed = cross @ np.linalg.pinv(population)
    information = own - regressed @ cross.transpose(0, 2, 1)
    return score - regressed @ gradient, information, regressed


def _of_group(moments: _Moments) -> tuple[np.ndarray, ...]:
    """The arguments of `_without_population` for the population N(m, s^2)."""
    count, first, second = moments.level
    gradient = np.array([first, second - count])
    complete = 2 * np.array([[count / 2, first], [first, second]])
    population = complete - moments.covariance
    return moments.score, gradient, moments.own, moments.cross, population


def _of_regression(moments: list[_Moments], group: _Group) -> tuple[np.ndarray, ...]:
    """The same for z ~ N(c + b x, scale^2), and parameters that change with x.

    With r = (z - c - b x) / scale the population has the gradient (r / scale, r^2 - 1,
    x r / scale) = (fixed + x moving) (z, z^2), but for constants.
    """
    one, first, second = moments
    c, b, precision = group.shift, group.slope_of_mean, 1 / group.scale**2
    fixed = precision * np.array([[1, 0], [-2 * c, 1], [0, 0]])
    moving = precision * np.array([[0, 0], [-2 * b, 0], [1, 0]])
    crosses = [
        x.cross @ fixed.T + y.cross @ moving.T
        for x, y in ((one, first), (first, second))
    ]
    mixed = fixed @ first.covariance @ moving.T
    covariance = fixed @ one.covariance @ fixed.T + mixed + mixed.T
    covariance += moving @ second.covariance @ moving.T
    (n0, z0, q0), (n1, z1, _), (n2, _, _) = (x.level for x in moments)
    # Sums of r / scale, x r / scale and r^2.
    r0 = precision * (z0 - c * n0 - b * n1)
    r1 = precision * (z1 - c * n1 - b * n2)
    squares = q0 - 2 * c * z0 - 2 * b * z1 + c**2 * n0 + 2 * c * b * n1 + b**2 * n2
    squares *= precision
    complete = np.array(
        [
            [precision * n0, 2 * r0, precision * n1],
            [2 * r0, 2 * squares, 2 * r1],
            [precision * n1, 2 * r1, precision * n2],
        ]
    )
    return (
        np.concatenate([one.score, first.score], axis=1),
        np.array([r0, squares - n0, r1]),
        np.block([[one.own, first.own], [first.own, second.own]]),
        np.concatenate(crosses, axis=1),
        complete - covariance,
    )


def group_steps(
    right: Float[np.ndarray, "subjects items"],
    seen: Float[np.ndarray, "subjects items"] | None,
    codes: Int[np.ndarray, " subjects"],
    normals: Normals,
    nodes: Float[np.ndarray, " nodes"],
) -> GroupSteps:
    """The steps of every item in every group, at the estimates of the common fit.

    Args:
        right: 0 and 1; 0 where missing.
        seen: 1 where observed; None if all are.
        codes: Group of each subject.
        normals: The estimates.
        nodes: Standardised nodes, equally spaced.
    """
    solved = []
    for k in range(len(normals.mean)):
        rows = _rows_by_score(right, codes, k)
        group = _Group.around(normals, nodes, k, right, seen, rows)
        (moments,) = _group_moments(right, seen, rows, group)
        score, information, regressed = _without_population(*_of_group(moments))
        information = positive_definite(information)
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        solved.append((step, information, regressed))
    return GroupSteps(*(np.stack(x) for x in zip(*solved, strict=True)))


def number_scores(
    right: Float[np.ndarray, "subjects items"],
    seen: Float[np.ndarray, "subjects items"] | None,
    codes: Int[np.ndarray, " subjects"],
    number: Float[np.ndarray, " subjects"],
    normals: Normals,
    nodes: Float[np.ndarray, " nodes"],
    at: Float[np.ndarray, "items 2"],
) -> NumberScores:
    """Scores of items whose parameters change with a number of the subjects.

    Args:
        right: 0 and 1; 0 where missing.
        seen: 1 where observed; None if all are.
        codes: Group of each subject; each group has its own population.
        number: Number of each subject, such as its size.
        normals: The estimates.
        nodes: Standardised nodes, equally spaced.
        at: Parameters (a, d) of the items tested, common to all groups.
    """
    score, information, regressed = 0.0, 0.0, []
    for k in range(len(normals.mean)):
        rows = _rows_by_score(right, codes, k)
        group = _Group.around(normals, nodes, k, right, seen, rows)
        group = group.with_regression(right, seen, rows, number)
        moments = _group_moments(right, seen, rows, group, at, number)
        own, whole, by_population = _without_population(*_of_regression(moments, group))
        score, information = score + own, information + whole
        regressed.append(by_population)
    return NumberScores(np.asarray(score), np.asarray(information), np.stack(regressed))


def positive_definite(information: np.ndarray) -> np.ndarray:
    """Informations with their eigenvalues above a millionth of the largest."""
    values, vectors = np.linalg.eigh((information + information.transpose(0, 2, 1)) / 2)
    least = 1e-6 * np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-6)
    values = np.maximum(values, least)
    return np.einsum("jab,jb,jcb->jac", vectors, values, vectors)


def cluster_scores(
    right: Float[np.ndarray, "subjects items"],
    seen: Float[np.ndarray, "subjects items"] | None,
    codes: Int[np.ndarray, " subjects"],
    normals: Normals,
    nodes: Float[np.ndarray, " nodes"],
    regressed: Float[np.ndarray, "groups items p t"],
    clusters: Int[np.ndarray, " subjects"],
    at: Float[np.ndarray, "items 2"] | None = None,
    number: Float[np.ndarray, " subjects"] | None = None,
) -> Float[np.ndarray, "groups clusters items p"]:
    """Sums over clusters of the scores of subjects, s_ij - R t_i.

    Arguments are those of `group_steps` and `number_scores`, which give `regressed`.
    """
    groups, items, size, _ = regressed.shape
    sums = np.zeros((groups, int(clusters.max()) + 1, items, size))
    for k in range(groups):
        rows = np.flatnonzero(codes == k)
        rows = rows[np.argsort(clusters[rows], kind="stable")]
        group = _Group.around(normals, nodes, k, right, seen, rows)
        if number is not None:
            group = group.with_regression(right, seen, rows, number)
        other = group if at is None else group.with_items(at)
        for block, values, there in _blocks(right, seen, rows, len(group.nodes)):
            x = None if number is None else number[block]
            posterior = group.posterior(values, there, x)
            own = other.residuals(values, there, posterior)
            gradient = group.gradients(_levels(posterior, group), x)
            if x is not None:
                own = np.concatenate([own, own * x[:, None]])
            labels, starts = np.unique(clusters[block], return_index=True)
            total = np.add.reduceat(own, starts, axis=1).transpose(1, 2, 0)
            population = np.add.reduceat(gradient, starts, axis=0)
            sums[k, labels] += total
            sums[k, labels] -= np.einsum("jab,cb->cja", regressed[k], population)
    return sums


def posterior_means(
    right: Float[np.ndarray, "subjects items"],
    seen: Float[np.ndarray, "subjects items"] | None,
    codes: Int[np.ndarray, " subjects"],
    normals: Normals,
    nodes: Float[np.ndarray, " nodes"],
) -> Float[np.ndarray, " subjects"]:
    """Abilities; arguments are those of `group_steps`."""
    ability = np.empty(len(codes))
    for k in range(len(normals.mean)):
        rows = np.flatnonzero(codes == k)
        group = _Group.around(normals, nodes, k, right, seen, rows)
        for block, values, there in _blocks(right, seen, rows, len(group.nodes)):
            ability[block] = group.posterior(values, there) @ group.theta
    return ability
