"""What a fit with response lengths depends on: constants, noise, empty responses.

The correlation of ability and speed counts every subject. One without any right
response has no upper bound on how low its ability is, so that its lengths alone place
it; and an empty response has length 0, far below all others. Both can make most of the
correlation, which is therefore estimated again without them, from the same nodes.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted
from irtjax.estimators.driver import run_jit
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.marginal.em import EM
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes

#: Permutations of lengths: a statistic above all of them has p = 1 / 200.
PERMUTATIONS = 199
#: Standard deviations above its mean at which no permutation is needed.
_SURE = 8.0
#: Smaller changes of the correlation are not reported.
_RELEVANT = 0.02
#: Standard errors within which the estimates without some responses converge.
_TOLERANCE = 1e-2
_MAX_STEPS = 300


class _Variant(NamedTuple):
    """Subjects that count, and lengths that do, each as a mask."""

    subjects: np.ndarray
    lengths: np.ndarray


def refuse_constant(table: ResponseTable) -> None:
    """Refuses lengths that are the same for all subjects, in a one-line ValueError."""
    lengths = table.length_cells
    if np.isnan(lengths).all():
        return
    seen = ~np.isnan(lengths)
    low, high = (
        f(np.where(seen, lengths, empty), axis=0)
        for f, empty in ((np.min, np.inf), (np.max, -np.inf))
    )
    if (low < high).any():
        return
    observed = lengths[seen]
    what = f"all response lengths are {observed[0]:g}"
    if observed.min() < observed.max():
        what = "no item has response lengths that differ between subjects"
    raise ValueError(
        f"{what}: they have no information on speed; use the model 'probit2pl', which"
        " has no lengths"
    )


def warnings_of(
    problem: Problem, estimates: Estimates, table: ResponseTable
) -> tuple[str, ...]:
    """Warnings about lengths without speed, and what the correlation depends on."""
    lengths, parameters = table.length_cells, estimates.parameters.lengths
    assert parameters is not None
    if is_noise(lengths):
        return (
            "subjects do not differ in their response lengths beyond chance: speed and"
            " its correlation with ability are those of noise; use the model"
            " 'probit2pl'",
        )
    seen = ~np.isnan(lengths)
    accuracy = table.subject_accuracy()
    wrong, right = accuracy == 0, accuracy == 1
    extreme = wrong | right
    zero = seen & (lengths == 0)
    everyone = np.ones(len(extreme), bool)
    rho = float(parameters.correlation)
    variants = {
        "subjects": _Variant(~extreme, seen),
        "zeros": _Variant(everyone, seen & ~zero),
        "both": _Variant(~extreme, seen & ~zero),
    }
    # Two subjects have a correlation of -1 or 1, whatever they are.
    few = (~extreme).sum() < 3
    wanted = ["subjects"] * bool(extreme.any() and not few)
    wanted += ["zeros"] * bool(zero.any())
    wanted += ["both"] * (len(wanted) == 2)
    others = {name: _correlation(problem, estimates, variants[name]) for name in wanted}
    moved = {name for name, x in others.items() if abs(x - rho) >= _RELEVANT}
    reasons = []
    if "subjects" in moved:
        kind = "all wrong" if not right.any() else "all right or all wrong"
        kind = "all right" if not wrong.any() else kind
        count = int(extreme.sum())
        reasons.append(
            f"{others['subjects']:.2f} without"
            f" {counted(count, 'subject')} that {are(count)} {kind}: only lengths"
            f" order {'these' if count > 1 else 'it'}; leave_out= leaves subjects out"
        )
    if "zeros" in moved:
        count = int(zero.sum())
        rest = ""
        if "both" in others:
            rest = f", and {others['both']:.2f} without those subjects too"
        reasons.append(
            f"{others['zeros']:.2f} without"
            f" {counted(count, 'length')} of 0{rest}: empty responses count as very"
            " short ones; zero_lengths='missing' takes these lengths as missing"
        )
    # One warning: the verdict has room for the first words of two.
    return (f"rho is {rho:.2f}, but {'; it is '.join(reasons)}",) if reasons else ()


def _correlation(problem: Problem, estimates: Estimates, variant: _Variant) -> float:
    """The correlation of ability and speed of some subjects and lengths, by EM."""
    parameters, data = estimates.parameters, problem.data
    dtype = parameters.items[0].dtype
    start = Start(parameters.items, None, parameters.population, parameters.lengths)
    population = estimation_scale(problem, start)
    nodes = choose_nodes(problem.model, parameters.items, population, data)
    weight = jnp.asarray(variant.subjects, dtype)
    if data.subject_weight is not None:
        weight = weight * data.subject_weight
    data = dataclasses.replace(
        data, subject_weight=weight, length_observed=jnp.asarray(variant.lengths)
    )
    method = EM(jnp.asarray(nodes, dtype), _TOLERANCE)
    again = run_jit(
        dataclasses.replace(problem, data=data), method, start, max_steps=_MAX_STEPS
    )
    lengths = again.parameters.lengths
    assert lengths is not None
    return float(lengths.correlation)


def is_noise(lengths: np.ndarray) -> bool:
    """Whether lengths look as if each item's were dealt to subjects at random.

    Neither the variance of the subjects' means nor the largest singular value of the
    logarithms, standardised by item, exceeds those of all of `PERMUTATIONS` random
    permutations of the subjects within each item.

    >>> rng = np.random.default_rng(1)
    >>> is_noise(rng.lognormal(5, 1, (20, 30)))
    True
    >>> is_noise(rng.lognormal(5 + rng.normal(size=(20, 1)), 1, (20, 30)))
    False
    """
    cells = _standardised(lengths)
    # Of noise the sum of squares is chi-square with a degree of freedom a subject.
    count = len(cells)
    if _of_means(cells) > count + _SURE * np.sqrt(2 * count):
        return False
    rng = np.random.default_rng(0)
    for statistic in (_of_means, _of_factor):
        value = statistic(cells)
        chance = (statistic(_permuted(cells, rng)) for _ in range(PERMUTATIONS))
        if all(value > other for other in chance):
            return False
    return True


def _standardised(lengths: np.ndarray) -> np.ndarray:
    """Logarithms by item, of mean 0 and variance 1; NaN where missing."""
    logs = np.log1p(lengths)
    logs = logs[:, (~np.isnan(logs)).sum(axis=0) > 1]
    logs = logs - np.nanmean(logs, axis=0)
    sd = np.nanstd(logs, axis=0)
    return logs[:, sd > 0] / sd[sd > 0]


def _permuted(cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The known lengths of each item, dealt to its subjects at random."""
    if not np.isnan(cells).any():
        return rng.permuted(cells, axis=0)
    out = cells.copy()
    for column in out.T:
        places = np.flatnonzero(~np.isnan(column))
        column[places] = column[rng.permutation(places)]
    return out


def _of_means(cells: np.ndarray) -> float:
    """The sum of squares between subjects."""
    count = np.maximum((~np.isnan(cells)).sum(axis=1), 1)
    return float(np.sum(np.nansum(cells, axis=1) ** 2 / count))


def _of_factor(cells: np.ndarray) -> float:
    """The largest singular value, squared; missing cells are 0."""
    filled = np.nan_to_num(cells)
    filled = filled if filled.shape[0] <= filled.shape[1] else filled.T
    return float(np.linalg.eigvalsh(filled @ filled.T)[-1]) if filled.size else 0.0
