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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax.numerics.programs import stored_jit

#: Bytes of the posteriors and residuals of one block of subjects.
BLOCK_BYTES = 64_000_000


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
    """Sums over the subjects of each group."""

    at_nodes: Array  # [groups, nodes, items] of subjects who answered.
    right: Array  # [groups, nodes, items]
    squares: Array  # [groups, items, 2, 2] of E_i s E_i s'.
    cross: Array  # [groups, items, 2, 2] of E_i s t_i'.
    population: Array  # [groups, 2, 2] of E_i t E_i t'.
    everyone: Array  # [groups, nodes] of all subjects.
    gradient: Array  # [groups, items, 2]


@stored_jit
def _group_sums(right, seen, member, items, population, nodes) -> _Sums:
    """The sums of one group over a block; `member` is `[block]` 1 for its subjects.

    Nodes are standardised: each group has its own abilities there.
    """
    mean, sd = population
    theta = mean + sd * nodes
    posterior, residual, gradient = _posteriors(
        right, seen, items, population, theta, nodes
    )
    weighted = posterior * member[:, None]
    of_members = residual * member[:, None, None]
    return _Sums(
        weighted.T @ seen,
        weighted.T @ (right * seen),
        jnp.einsum("ija,ijb->jab", of_members, residual),
        jnp.einsum("ija,ib->jab", of_members, gradient),
        jnp.einsum("ia,ib->ab", gradient * member[:, None], gradient),
        jnp.sum(weighted, axis=0),
        jnp.sum(of_members, axis=0),
    )


def _posteriors(right, seen, items, population, theta, nodes):
    """Posteriors at nodes, residuals `[block, items, 2]` and gradients `[block, 2]`."""
    slope, intercept = items
    mean, sd = population
    logit = theta[:, None] * slope + intercept
    # sum_j y logit - log(1 + exp(logit)) over what was answered.
    log_lik = (right * seen) @ logit.T - seen @ jax.nn.softplus(logit).T
    posterior = jax.nn.softmax(log_lik - nodes**2 / 2, axis=1)
    residual = _item_residuals(right, seen, items, theta, posterior)
    gap = (theta - mean) / sd
    gradient = jnp.stack(
        [posterior @ gap / sd, posterior @ (gap**2 - 1)],
        axis=1,
    )
    return posterior, residual, gradient


def _item_residuals(right, seen, items, theta, posterior):
    """`[block, items, 2]` expectations of (y - P) (theta, 1) over posteriors."""
    chance = jax.nn.sigmoid(theta[:, None] * items[0] + items[1])
    level = right - posterior @ chance
    slopes = right * (posterior @ theta)[:, None]
    slopes = slopes - posterior @ (theta[:, None] * chance)
    return jnp.stack([slopes * seen, level * seen], axis=2)


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
    groups, count = len(normals.mean), right.shape[1]
    dtype = jnp.zeros(()).dtype
    rows = max(1, BLOCK_BYTES // (dtype.itemsize * (4 * count + len(nodes))))
    at = jnp.asarray(nodes, dtype)
    order = [np.flatnonzero(codes == g) for g in range(groups)]
    rows = min(rows, max(len(x) for x in order))
    solved = []
    for g, members in enumerate(order):
        items = jnp.asarray(normals.slope[g]), jnp.asarray(normals.intercept[g])
        population = jnp.asarray(normals.mean[g]), jnp.asarray(normals.sd[g])
        total = None
        for start in range(0, len(members), rows):
            block = members[start : start + rows]
            # Of one size, so that there is one program.
            places = np.resize(block, rows)
            member = jnp.asarray(np.arange(rows) < len(block), dtype)
            values = jnp.asarray(right[places], dtype)
            there = jnp.ones_like(values)
            if seen is not None:
                there = jnp.asarray(seen[places], dtype)
            part = _group_sums(values, there, member, items, population, at)
            total = part if total is None else jax.tree.map(jnp.add, total, part)
        assert total is not None
        solved.append(_solved(total, items, population, at))
    return GroupSteps(*(np.stack(x) for x in zip(*solved, strict=True)))


def _solved(total: _Sums, items, population, nodes):
    """Steps and informations of the items of a group, and I_xt I_tt^-1."""
    (slope, intercept), (mean, sd) = items, population
    theta = mean + sd * nodes
    chance = jax.nn.sigmoid(theta[:, None] * slope + intercept)
    wrong = total.at_nodes - total.right
    # Complete information less the variance of the gradient given the responses.
    variance = total.right * (1 - chance) ** 2 + wrong * chance**2
    spread = total.at_nodes * chance * (1 - chance) - variance
    design = jnp.stack([theta, jnp.ones_like(theta)], axis=1)
    products = design[:, :, None] * design[:, None, :]
    own = jnp.einsum("qj,qab->jab", spread, products) + total.squares
    gap = (theta - mean) / sd
    of_population = jnp.stack([gap / sd, gap**2 - 1], axis=1)
    residual = total.right * (1 - chance) - wrong * chance
    joint = jnp.einsum("qj,qa,qb->jab", residual, design, of_population)
    cross = total.cross - joint
    count = jnp.sum(total.everyone)
    second = total.everyone @ jnp.stack([gap, gap**2], axis=1)
    complete = jnp.stack(
        [
            jnp.stack([count / sd**2, 2 * second[0] / sd]),
            jnp.stack([2 * second[0] / sd, 2 * second[1]]),
        ]
    )
    squares = jnp.einsum("q,qa,qb->ab", total.everyone, of_population, of_population)
    whole = complete - squares + total.population
    regressed = jnp.einsum("jab,bc->jac", cross, jnp.linalg.pinv(whole))
    information = np.asarray(
        own - jnp.einsum("jab,jcb->jac", regressed, cross), np.float64
    )
    gradient = np.asarray(total.gradient, np.float64)
    information = positive_definite(information)
    step = np.linalg.solve(information, gradient[:, :, None])[:, :, 0]
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
    residuals, dtype = np.zeros((*right.shape, 2)), jnp.zeros(()).dtype
    for g in range(len(normals.mean)):
        rows = codes == g
        values = jnp.asarray(right[rows], dtype)
        there = jnp.ones_like(values)
        if seen is not None:
            there = jnp.asarray(seen[rows], dtype)
        items = jnp.asarray(normals.slope[g]), jnp.asarray(normals.intercept[g])
        population = jnp.asarray(normals.mean[g]), jnp.asarray(normals.sd[g])
        theta = population[0] + population[1] * jnp.asarray(nodes, dtype)
        posterior, residual, gradient = _posteriors(
            values, there, items, population, theta, jnp.asarray(nodes, dtype)
        )
        if at is not None:
            items = jnp.asarray(at[g, :, 0]), jnp.asarray(at[g, :, 1])
            residual = _item_residuals(values, there, items, theta, posterior)
        accounted = jnp.einsum("jab,ib->ija", jnp.asarray(regressed[g]), gradient)
        residuals[rows] = residual - accounted
    return residuals


class StepTests(NamedTuple):
    """Chi-square `[items]` that groups have the same parameters, and its freedom."""

    statistic: np.ndarray
    df: int


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

    `clusters` need the `residuals` of subjects.
    """
    step, information = steps.step, steps.information
    groups = len(step)
    if clusters is None:
        gap = step - common_step(steps)
        statistic = np.einsum("gja,gjab,gjb->j", gap, information, gap)
        return StepTests(statistic, 2 * (groups - 1))
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
    return StepTests(np.einsum("ja,ja->j", contrast, applied), contrast.shape[1])


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
    return StepTests(np.einsum("ja,ja->j", score, applied), 2)
