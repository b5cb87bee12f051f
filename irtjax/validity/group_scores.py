r"""Score tests of items in groups of subjects, all items from one pass over the data.

In a multiple-group 2PL with common items (`irtjax.fit(..., groups=)`), the gradient in
the parameters (a, d) that item j would have in group g alone is

    S_jg = sum_{i in g} E_i[(y_ij - P_j(theta)) (theta, 1)],

expectations over the posterior of subject i. With Louis' (1982) information I_jg of
(a, d), of the population (m, log s) of the group and between these,

    J_jg = I_xx - I_xt I_tt^-1 I_tx,    delta_jg = J_jg^-1 S_jg

is one Newton step from the common parameters to those of the group, with covariance
J_jg^-1. That groups have the same parameters is tested by

    chi2_j = sum_g (delta_jg - mean_j)' J_jg (delta_jg - mean_j),

mean_j the mean weighted by J_jg: the Lagrange multiplier test (Glas 1998), with 2 (G-1)
degrees of freedom. Groups of dependent subjects (fine-tunes of one model, one model
under two prompts) have for J the covariance of sums over clusters of J^-1 (s_i - I_xt
I_tt^-1 t_i), t_i the gradient in the population.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse
from scipy.special import expit, softmax
from scipy.stats import chi2, f

#: Bytes of the posteriors and residuals of one block of subjects.
BLOCK_BYTES = 64_000_000
#: Weights of nodes below this are 0; posteriors with fewer others than this share of
#: the nodes are sparse.
LEAST, SPARSE = 1e-14, 0.1


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
        regressed: `[groups, items, 2, 2]` I_xt I_tt^-1.
    """

    step: np.ndarray
    information: np.ndarray
    regressed: np.ndarray


class _Sums(NamedTuple):
    """Sums over the subjects of a group."""

    at_nodes: np.ndarray  # [nodes, items] of subjects who answered, [nodes, 1] if all.
    right: np.ndarray  # [nodes, items]
    squares: np.ndarray  # [items, 2, 2] of E_i s E_i s'.
    cross: np.ndarray  # [items, 2, 2] of E_i s E_i t'.
    population: np.ndarray  # [2, 2] of E_i t E_i t'.
    everyone: np.ndarray  # [nodes] of all subjects.
    gradient: np.ndarray  # [items, 2]


class _Group(NamedTuple):
    """Items `[items]` and abilities `[nodes]` of one group, at standardised nodes."""

    slope: np.ndarray
    intercept: np.ndarray
    theta: np.ndarray
    nodes: np.ndarray
    sd: float
    chance: np.ndarray  # [nodes, items]
    lost: np.ndarray  # [nodes, items] -log(1 - chance)
    lost_of_all: np.ndarray  # [nodes]

    @classmethod
    def of(cls, normals: Normals, nodes: np.ndarray, k: int) -> _Group:
        """Group k of the estimates."""
        slope, intercept, sd = normals.slope[k], normals.intercept[k], normals.sd[k]
        theta = normals.mean[k] + sd * nodes
        logit = theta[:, None] * slope + intercept
        lost = np.logaddexp(0, logit)
        chance, of_all = np.exp(logit - lost), lost.sum(axis=1)
        return cls(slope, intercept, theta, nodes, sd, chance, lost, of_all)

    def with_items(self, at: np.ndarray) -> _Group:
        """Of other parameters `[items, 2]`."""
        chance = expit(self.theta[:, None] * at[:, 0] + at[:, 1])
        return self._replace(slope=at[:, 0], intercept=at[:, 1], chance=chance)

    @property
    def of_population(self) -> np.ndarray:
        """`[nodes, 2]` gradient t of the log density in mean and log sd."""
        return np.stack([self.nodes / self.sd, self.nodes**2 - 1], axis=1)

    def posterior(self, right: np.ndarray, seen: np.ndarray | None) -> Any:
        """`[subjects, nodes]` posteriors, sparse where they are narrow."""
        # sum_j y logit - log(1 + exp(logit)) over what was answered.
        weight = right if seen is None else right * seen
        linear = np.outer(weight @ self.slope, self.theta)
        linear += (weight @ self.intercept)[:, None]
        lost = self.lost_of_all if seen is None else seen @ self.lost.T
        weight = softmax(linear - lost - self.nodes**2 / 2, axis=1)
        weight[weight < LEAST] = 0
        few = np.count_nonzero(weight) < SPARSE * weight.size
        return csr_array(weight) if few else weight

    def residuals(
        self, right: np.ndarray, seen: np.ndarray | None, posterior: Any
    ) -> np.ndarray:
        """`[subjects, items, 2]` expectations of (y - P) (theta, 1)."""
        out = np.empty((*right.shape, 2))
        out[..., 1] = right - posterior @ self.chance
        out[..., 0] = right * (posterior @ self.theta)[:, None]
        scaled = posterior * self.theta
        out[..., 0] -= (csr_array(scaled) if issparse(scaled) else scaled) @ self.chance
        return out if seen is None else out * seen[..., None]


def _group_sums(right: np.ndarray, seen: np.ndarray | None, group: _Group) -> _Sums:
    """The sums of a block of subjects of one group."""
    posterior = group.posterior(right, seen)
    residual = group.residuals(right, seen, posterior)
    gradient = posterior @ group.of_population
    squares = np.empty((right.shape[1], 2, 2))
    for a, b in ((0, 0), (0, 1), (1, 1)):
        product = np.einsum("ij,ij->j", residual[..., a], residual[..., b])
        squares[:, a, b] = squares[:, b, a] = product
    everyone = posterior.sum(axis=0)
    return _Sums(
        everyone[:, None] if seen is None else posterior.T @ seen,
        posterior.T @ (right if seen is None else right * seen),
        squares,
        np.einsum("ija,ib->jab", residual, gradient, optimize=True),
        gradient.T @ gradient,
        everyone,
        residual.sum(axis=0),
    )


def _blocks(
    right: np.ndarray, seen: np.ndarray | None, rows: np.ndarray, num_nodes: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Rows in blocks of `BLOCK_BYTES`, with their responses and what was observed."""
    size = max(1, BLOCK_BYTES // (8 * (4 * right.shape[1] + num_nodes)))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        values = np.asarray(right[block], np.float64)
        there = None if seen is None else np.asarray(seen[block], np.float64)
        yield block, values, there


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
        group, rows = _Group.of(normals, nodes, k), np.flatnonzero(codes == k)
        blocks = _blocks(right, seen, rows, len(nodes))
        parts = (_group_sums(values, there, group) for _, values, there in blocks)
        add = lambda a, b: _Sums(*(x + y for x, y in zip(a, b, strict=True)))
        total = functools.reduce(add, parts)
        solved.append(_solved(total, group))
    return GroupSteps(*(np.stack(x) for x in zip(*solved, strict=True)))


def _solved(total: _Sums, group: _Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps and informations of the items of a group, and I_xt I_tt^-1."""
    theta, nodes, sd = group.theta, group.nodes, group.sd
    chance = group.chance
    wrong = total.at_nodes - total.right
    # Complete information less the variance of the gradient given the responses.
    variance = total.right * (1 - chance) ** 2 + wrong * chance**2
    spread = total.at_nodes * chance * (1 - chance) - variance
    design = np.stack([theta, np.ones_like(theta)], axis=1)
    products = design[:, :, None] * design[:, None, :]
    own = np.einsum("qj,qab->jab", spread, products, optimize=True) + total.squares
    of_population = group.of_population
    residual = total.right * (1 - chance) - wrong * chance
    joint = design[:, :, None] * of_population[:, None, :]
    joint = np.einsum("qj,qab->jab", residual, joint, optimize=True)
    cross = total.cross - joint
    count, first, second = total.everyone @ np.stack([nodes**0, nodes, nodes**2], 1)
    complete = np.array([[count / sd**2, 2 * first / sd], [2 * first / sd, 2 * second]])
    squares = np.einsum("q,qa,qb->ab", total.everyone, of_population, of_population)
    whole = complete - squares + total.population
    regressed = cross @ np.linalg.pinv(whole)
    information = own - np.einsum("jab,jcb->jac", regressed, cross)
    information = positive_definite(information)
    step = np.linalg.solve(information, total.gradient[:, :, None])[:, :, 0]
    return step, information, regressed


def positive_definite(information: np.ndarray) -> np.ndarray:
    """Informations with their eigenvalues above a millionth of the largest."""
    values, vectors = np.linalg.eigh((information + information.transpose(0, 2, 1)) / 2)
    least = 1e-6 * np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-6)
    values = np.maximum(values, least)
    return np.einsum("jab,jb,jcb->jac", vectors, values, vectors)


def subject_residuals(
    right: Float[np.ndarray, "subjects items"],
    seen: Float[np.ndarray, "subjects items"] | None,
    codes: Int[np.ndarray, " subjects"],
    normals: Normals,
    nodes: Float[np.ndarray, " nodes"],
    regressed: Float[np.ndarray, "groups items 2 2"],
    at: Float[np.ndarray, "groups items 2"] | None = None,
) -> Float[np.ndarray, "subjects items 2"]:
    """E_i[(y - P) (theta, 1)] less what the population accounts for.

    `regressed` is that of `GroupSteps`, `at` the parameters (a, d) of P: those of
    `normals` where None. See `group_steps`.
    """
    residuals = np.empty((*right.shape, 2))
    for k in range(len(normals.mean)):
        group, rows = _Group.of(normals, nodes, k), np.flatnonzero(codes == k)
        other = group
        if at is not None:
            other = group.with_items(at[k])
        for block, values, there in _blocks(right, seen, rows, len(nodes)):
            posterior = group.posterior(values, there)
            own = other.residuals(values, there, posterior)
            gradient = posterior @ group.of_population
            own -= np.einsum("jab,ib->ija", regressed[k], gradient, optimize=True)
            residuals[block] = own
    return residuals


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
        group, rows = _Group.of(normals, nodes, k), np.flatnonzero(codes == k)
        for block, values, there in _blocks(right, seen, rows, len(nodes)):
            ability[block] = group.posterior(values, there) @ group.theta
    return ability


class StepTests(NamedTuple):
    """Chi-square `[items]` that groups have the same parameters.

    Attributes:
        statistic: Chi-square.
        df: Its degrees of freedom.
        p_value: Of chi-square; of clusters by Hotelling's F.
    """

    statistic: np.ndarray
    df: int
    p_value: np.ndarray


def common_step(steps: GroupSteps) -> np.ndarray:
    """`[items, 2]` mean of the steps of the groups, weighted by their information."""
    weighted = np.einsum("gjab,gjb->ja", steps.information, steps.step)
    whole = steps.information.sum(axis=0)
    return np.linalg.solve(whole, weighted[:, :, None])[:, :, 0]


def step_tests(
    steps: GroupSteps,
    codes: np.ndarray,
    clusters: np.ndarray | None = None,
    residuals: np.ndarray | None = None,
) -> StepTests:
    """The tests of the steps; of dependent subjects by sums over `clusters`.

    `clusters` need the `residuals` of subjects. Their covariance is estimated from C
    sums, of which the groups take G means: by Hotelling (1931) chi2 (v - d + 1) / (v d)
    has F with d and v - d + 1 degrees of freedom, d those of chi2 and v = C - G.
    """
    step, information = steps.step, steps.information
    groups = len(step)
    if clusters is None:
        gap = step - common_step(steps)
        statistic = np.einsum("gja,gjab,gjb->j", gap, information, gap)
        df = 2 * (groups - 1)
        return StepTests(statistic, df, chi2.sf(statistic, df))
    assert residuals is not None
    inverse = np.linalg.inv(information)
    influence = np.einsum("ijab,ijb->ija", inverse[codes], residuals)
    count, items = int(clusters.max()) + 1, step.shape[1]
    sums = np.zeros((count, groups, items, 2))
    np.add.at(sums, (clusters, codes), influence)
    # Contrasts with the first group.
    contrast = (step[1:] - step[0]).transpose(1, 0, 2).reshape(items, -1)
    spread = (sums[:, 1:] - sums[:, :1]).transpose(2, 0, 1, 3)
    spread = spread.reshape(items, count, -1)
    covariance = np.einsum("jca,jcb->jab", spread, spread) * count / (count - 1)
    covariance = positive_definite(covariance)
    applied = np.linalg.solve(covariance, contrast[:, :, None])[:, :, 0]
    statistic, df = np.einsum("ja,ja->j", contrast, applied), contrast.shape[1]
    rest = count - groups - df + 1
    if rest < 1:
        return StepTests(statistic, df, np.full(items, np.nan))
    ratio = statistic * rest / ((count - groups) * df)
    return StepTests(statistic, df, f.sf(ratio, df, rest))


def number_tests(
    residuals: Float[np.ndarray, "subjects items 2"],
    number: Float[np.ndarray, " subjects"],
    clusters: np.ndarray | None = None,
) -> StepTests:
    """Tests of items against a number x of each subject, 2 degrees of freedom.

    The gradient in x (a, d) less that in (a, d) is e_i = x_i r_i - A r_i with A = (sum
    x r r') (sum r r')^-1, and its covariance the sum of products of e over subjects, or
    of sums of e over `clusters`.
    """
    x = (number - number.mean()) / number.std()
    products = lambda weight: np.einsum("i,ija,ijb->jab", weight, residuals, residuals)
    own = positive_definite(products(np.ones_like(x)))
    by_own = np.einsum("jab,jbc->jac", products(x), np.linalg.inv(own))
    rest = x[:, None, None] * residuals - np.einsum("jab,ijb->ija", by_own, residuals)
    score = rest.sum(axis=0)
    if clusters is not None:
        sums = np.zeros((int(clusters.max()) + 1, *score.shape))
        np.add.at(sums, clusters, rest)
        rest = sums
    covariance = positive_definite(np.einsum("cja,cjb->jab", rest, rest))
    applied = np.linalg.solve(covariance, score[:, :, None])[:, :, 0]
    statistic = np.einsum("ja,ja->j", score, applied)
    return StepTests(statistic, 2, chi2.sf(statistic, 2))
