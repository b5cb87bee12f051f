r"""Tests of the scores of items (`validity.group_scores`), of dependent subjects too.

That groups have the same parameters is tested by

    chi2_j = sum_g (delta_jg - mean_j)' J_jg (delta_jg - mean_j),

mean_j the mean weighted by J_jg: the Lagrange multiplier test (Glas 1998), with 2 (G-1)
degrees of freedom. That parameters do not change with a number is tested by the score
of their change less its regression on that of the parameters. Its covariance is the
information: the sum of outer products of scores rejects too often (Davidson and
MacKinnon 1983), of 300 subjects 14 times as often as stated at p < .0005.

Dependent subjects (fine-tunes of one model, one model under two prompts) are counted by
the sums z_jc of their scores over clusters c, about their mean, in units of the
covariance without dependence. Few clusters make few degrees of freedom. With w_c the
share of cluster c in the squares of z, averaged over items, the covariance M_j = sum_c
z_jc z_jc' has v = 1 / sum_c w_c^2 less the number of means, which is C - G for C equal
clusters in G groups (Satterthwaite 1946). All items have the same clusters, so M_j is
shrunk to its mean as Smyth (2004) and Tai and Speed (2006) shrink variances of genes,

    (v_0 M_0 + v M_j) / (v_0 + v),

with v_0 and M_0 estimated from the distribution of tr M_j over items. Hotelling's F has
then v_0 + v degrees of freedom.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import digamma, polygamma
from scipy.stats import chi2, f

from irtjax.validity.group_scores import GroupSteps, NumberScores, positive_definite

#: Degrees of freedom of a common covariance, at most.
MOST_DF = 1e6
#: Items from which their covariances are pooled.
FEWEST_ITEMS = 5
#: Share of the median of squares below which an item is not pooled.
LEAST_INFLATION = 0.01


class StepTests(NamedTuple):
    """Chi-square `[items]` that groups have the same parameters.

    Attributes:
        statistic: Chi-square.
        df: Its degrees of freedom.
        p_value: Of chi-square; of clusters by Hotelling's F. NaN of too few clusters.
        inflation: `[items]` or 1, by which dependence multiplies variances.
    """

    statistic: np.ndarray
    df: int
    p_value: np.ndarray
    inflation: np.ndarray | float = 1.0


def common_step(steps: GroupSteps) -> np.ndarray:
    """`[items, 2]` mean of the steps of the groups, weighted by their information."""
    weighted = np.einsum("gjab,gjb->ja", steps.information, steps.step)
    whole = steps.information.sum(axis=0)
    return np.linalg.solve(whole, weighted[:, :, None])[:, :, 0]


def step_tests(
    steps: GroupSteps,
    sums: Float[np.ndarray, "groups clusters items 2"] | None = None,
    members: Bool[np.ndarray, "clusters groups"] | None = None,
) -> StepTests:
    """Tests that all groups have the same parameters.

    Args:
        steps: Steps of the groups.
        sums: Sums of scores over clusters; None of independent subjects.
        members: Whether a cluster has subjects in a group.
    """
    step, information = steps.step, steps.information
    if sums is None:
        gap = step - common_step(steps)
        statistic = np.einsum("gja,gjab,gjb->j", gap, information, gap)
        df = 2 * (len(step) - 1)
        return StepTests(statistic, df, chi2.sf(statistic, df))
    assert members is not None
    items, inverse = step.shape[1], np.linalg.inv(information)
    count = members.sum(axis=0)
    influence = np.einsum("gjab,gcja->gcjb", inverse, sums)
    present = members.T[:, :, None, None]
    influence -= (
        present * influence.sum(axis=1, keepdims=True) / count[:, None, None, None]
    )
    influence *= np.sqrt(count / np.maximum(count - 1, 1))[:, None, None, None]
    # Contrasts with the first group.
    contrast = (step[1:] - step[0]).transpose(1, 0, 2).reshape(items, -1)
    apart = (influence[1:] - influence[0]).transpose(1, 2, 0, 3)
    df, others = contrast.shape[1], len(step) - 1
    model = np.zeros((items, others, 2, others, 2))
    for k in range(others):
        model[:, k, :, k] += inverse[k + 1]
    model += inverse[0][:, None, :, None, :]
    # Each mean is over the clusters of its group.
    means = len(members) * len(step) / count.sum()
    return _cluster_tests(
        contrast, model.reshape(items, df, df), apart.reshape(-1, items, df), means
    )


def number_tests(
    scores: NumberScores,
    sums: Float[np.ndarray, "clusters items 4"] | None = None,
) -> StepTests:
    """Tests that parameters do not change with a number, 2 degrees of freedom.

    `sums` are those of scores over clusters; None of independent subjects.
    """
    own, cross = scores.information[:, :2, :2], scores.information[:, 2:, :2]
    regressed = cross @ np.linalg.inv(positive_definite(own))
    rest = lambda x: x[..., 2:] - np.einsum("jab,...jb->...ja", regressed, x[..., :2])
    score = rest(scores.score)
    information = scores.information[:, 2:, 2:] - regressed @ cross.transpose(0, 2, 1)
    information = positive_definite(information)
    if sums is None:
        applied = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        statistic = np.einsum("ja,ja->j", score, applied)
        return StepTests(statistic, 2, chi2.sf(statistic, 2))
    apart, count = rest(sums), len(sums)
    apart = (apart - apart.mean(axis=0)) * np.sqrt(count / max(count - 2, 1))
    return _cluster_tests(score, information, apart, 2.0)


def _cluster_tests(
    contrast: Float[np.ndarray, "items d"],
    model: Float[np.ndarray, "items d d"],
    apart: Float[np.ndarray, "clusters items d"],
    means: float,
) -> StepTests:
    """Hotelling's F of contrasts, their covariances pooled over items.

    `model` is the covariance of independent subjects, and `apart` are the parts of the
    clusters about their means.
    """
    (items, df), tiny = contrast.shape, np.finfo(float).tiny
    root = np.linalg.cholesky(np.linalg.inv(model))
    gap = np.einsum("jba,jb->ja", root, contrast)
    apart = np.einsum("jba,cjb->cja", root, apart)
    squares = np.einsum("cja,cja->cj", apart, apart)
    total = squares.sum(axis=0)
    # Items without responses in a group have hardly any, and are not pooled.
    least = LEAST_INFLATION * np.median(total)
    pooled = total >= least
    inflation = np.maximum(total, least) / df
    shares = (squares[:, pooled] / np.maximum(total[pooled], tiny)).mean(axis=1)
    freedom = 1 / np.maximum((shares**2).sum(), tiny) - means
    if not freedom > 0:
        unknown = np.full(items, np.nan)
        return StepTests(unknown, df, unknown)
    covariance = np.einsum("cja,cjb->jab", apart, apart)
    prior, level = _pooled(inflation[pooled], freedom * df)
    prior = prior / df
    common = covariance[pooled].mean(axis=0) * level / inflation[pooled].mean()
    share = prior / (prior + freedom)
    covariance = positive_definite(share * common + (1 - share) * covariance)
    applied = np.linalg.solve(covariance, gap[:, :, None])[:, :, 0]
    statistic = np.einsum("ja,ja->j", gap, applied)
    inflation = share * level + (1 - share) * inflation
    whole = prior + freedom
    if whole - df + 1 <= 0:
        return StepTests(statistic, df, np.full(items, np.nan), inflation)
    ratio = statistic * (whole - df + 1) / (whole * df)
    return StepTests(statistic, df, f.sf(ratio, df, whole - df + 1), inflation)


def _pooled(variance: np.ndarray, freedom: float) -> tuple[float, float]:
    """Degrees of freedom and level of the distribution of variances over items.

    Variances with `freedom` degrees of freedom are level F(freedom, prior), whose
    logarithms have the mean and variance that Smyth (2004, section 6.2) equates.

    >>> rng = np.random.default_rng(0)
    >>> drawn = 2 * rng.f(20, 10, size=20_000)
    >>> [round(x, 1) for x in _pooled(drawn, 20)]
    [9.9, 2.0]
    """
    if len(variance) < FEWEST_ITEMS:
        return 0.0, 1.0
    log = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    rest = log.var(ddof=1) - polygamma(1, freedom / 2)
    if not rest > polygamma(1, MOST_DF / 2):
        return MOST_DF, float(np.exp(log.mean()))
    # Newton's steps of 1 / trigamma, which converge from below.
    half = 0.5 + 1 / rest
    for _ in range(30):
        value = polygamma(1, half)
        half += value * (1 - value / rest) / polygamma(2, half)
    level = np.exp(log.mean() + digamma(half) - np.log(half))
    return 2 * float(half), float(level)
