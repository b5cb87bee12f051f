r"""Joint fits from starts that do not depend on the data: is there one optimum?

The cBMM paper's study of stability (A.7): abilities begin at N(0, 1), log
discriminations and intercepts at N(0, v), v = 1, ..., 5. Runs of one variance are
compared with each other and with those of the others by Spearman's correlation. The
paper maximises the likelihood; `irtjax.stability` adds weak priors (MAP), which give
every estimate a finite value.

Two runs may end at different points of one optimum only where the likelihood is flat,
and at different optima: a *reversed* run has theta near -theta and discriminations
pushed to 0, where they may not become negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from irtjax._types import KeyArray, Status
from irtjax.data.wording import are, counted
from irtjax.estimators.driver import run
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.joint.objective import diverging
from irtjax.estimators.multistart import random_starts
from irtjax.likelihood.problem import Problem
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched

if TYPE_CHECKING:
    import pyarrow as pa

#: Runs at once, up to so many cells: small arrays keep no core busy. Of larger tables a
#: run takes its own steps, not those of the longest of its batch.
BATCH, CELLS_AT_ONCE = 8, 200_000
#: Nats below the best within which a run has reached it.
NEAR = 1e-3
#: Standard deviations below which two neighbouring values of a run are tied.
TIED = 1e-5


class Runs(NamedTuple):
    """Runs on the host, `[runs]` but for the estimates."""

    ability: np.ndarray
    discrimination: np.ndarray
    intercept: np.ndarray
    objective: np.ndarray
    residual: np.ndarray
    status: np.ndarray
    steps: np.ndarray


class StartComparison(NamedTuple):
    """What `compare_starts` found: tables, a sentence and warnings."""

    table: pa.Table
    runs: pa.Table
    agreement: pa.Table
    sentence: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@stored_jit
def _run_batch(problem, method, key, variance, max_steps: int, size: int):
    """Abilities, items and endings of fits from `size` random starts."""
    starts = random_starts(problem, size, key=key, variance=variance)

    def one(start):
        fit = run(problem, method, start, max_steps=max_steps)
        items = fit.parameters.items
        return (
            fit.parameters.theta,
            items.discrimination,
            items.intercept,
            fit.objective,
            fit.residual,
            fit.status,
            fit.num_steps,
        )

    return jax.vmap(one)(starts) if size > 1 else jax.lax.map(one, starts)


def compare_starts(
    problem: Problem,
    method: MM,
    *,
    num: int,
    variances: Sequence[float],
    key: KeyArray,
    report: Callable[[str], None],
) -> StartComparison:
    """Runs the method from `num` starts of each variance; see `irtjax.stability`."""
    batches = []
    cells = problem.data.num_subjects * problem.data.num_items
    size = BATCH if cells <= CELLS_AT_ONCE else 1
    for k, variance in enumerate(watched(variances)):
        report(f"starts of variance {variance:g}")
        keys = jax.random.split(jax.random.fold_in(key, k), -(-num // size))
        parts = []
        for one in watched(list(keys)):
            # Whole batches, so that one program serves any number of runs.
            at = jnp.asarray(variance, float)
            batch = _run_batch(problem, method, one, at, MM.runs.max_steps, size)
            # JAX computes while Python goes on: the share would be far ahead.
            parts.append(jax.block_until_ready(batch))
        batches += [jax.tree.map(lambda *x: np.concatenate(x)[:num], *parts)]
    runs = Runs(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))
    setting = np.repeat(np.arange(len(variances)), num)
    return _described(problem, method, runs, setting, np.asarray(variances, float))


def _described(problem, method: MM, runs: Runs, setting, variances) -> StartComparison:
    """Tables and sentence of runs from several starts."""
    import pyarrow as pa

    failed = (runs.status == Status.NONFINITE) | ~np.isfinite(runs.objective)
    objective = np.where(failed, -np.inf, runs.objective)
    best = int(objective.argmax())
    gap = objective[best] - objective
    slack = 64 * np.finfo(runs.ability.dtype).eps * abs(objective[best])
    at_best = gap <= max(NEAR, float(slack))
    subjects, items, notes = _finite(problem, method, runs, best)
    sides = {
        "ability": runs.ability[:, subjects],
        "discrimination": runs.discrimination[:, items],
        "intercept": runs.intercept[:, items],
    }
    nonzero = items & (runs.discrimination != 0).all(axis=0)
    sides["difficulty"] = -runs.intercept[:, nonzero] / runs.discrimination[:, nonzero]
    agree = {name: spearman_matrix(part) for name, part in sides.items()}
    reversed_runs = np.nan_to_num(agree["ability"][best], nan=1.0) < 0
    rows = [
        {"quantity": name, "variance": float(variances[v]),
         "other_variance": float(variances[w])}
        | _summary(_pairs(matrix, setting == v, setting == w, v == w))
        for name, matrix in agree.items()
        for v in range(len(variances))
        for w in range(v + 1)
    ]  # fmt: skip
    within = np.equal.outer(setting, setting)
    upper = np.triu(np.ones(within.shape, bool), 1)
    agreement = [
        {"quantity": name, "runs": kind} | _summary(matrix[mask & upper])
        for name, matrix in agree.items()
        for kind, mask in (("same variance", within), ("other variance", ~within))
    ]
    table = pa.table(
        {
            "run": np.arange(len(setting)),
            "variance": variances[setting],
            "objective": pa.array(objective, mask=failed),
            "gap": pa.array(gap, mask=failed),
            "at_best": at_best,
            "reversed": reversed_runs,
            "residual": runs.residual,
            "status": [Status(int(code)).name for code in runs.status],
            "steps": runs.steps,
        }
    )
    lowest = np.nanmin(agree["ability"][upper]) if upper.any() else 1.0
    sentence = (
        f"{at_best.sum():,} of {len(setting):,} runs from random starts"
        f" {'reaches' if at_best.sum() == 1 else 'reach'} the highest objective. The"
        " lowest Spearman correlation of abilities of two runs"
        f" is {_down(lowest)}."
    )
    warnings = _warnings(runs, at_best, reversed_runs, gap)
    return StartComparison(
        pa.Table.from_pylist(rows),
        table,
        pa.Table.from_pylist(agreement),
        sentence,
        warnings,
        notes,
    )


def _warnings(runs: Runs, at_best, reversed_runs, gap) -> tuple[str, ...]:
    """Lines on runs that are reversed, end lower or did not converge."""
    count = lambda mask: f"{int(mask.sum()):,} of {mask.size:,} runs"
    sentences = []
    if reversed_runs.any():
        sentences.append(
            f"{count(reversed_runs)} {are(reversed_runs.sum())} reversed: abilities"
            " have the opposite order of the best run; use the usual start values, or"
            " discriminations of any sign"
        )
    lower = ~at_best & ~reversed_runs
    if lower.any():
        largest = np.max(gap[lower], where=np.isfinite(gap[lower]), initial=0)
        sentences.append(
            f"{count(lower)} {'ends' if lower.sum() == 1 else 'end'} below the best"
            f" objective, by at most {largest:.3g}"
            " nats: there are several optima, or the step limit came first"
        )
    stopped = runs.status == Status.MAX_STEPS
    if stopped.any():
        sentences.append(
            f"{count(stopped)} stopped at the step limit before converging"
        )
    return tuple(sentences)


def _finite(problem: Problem, method: MM, runs: Runs, best: int):
    """Masks of subjects and items with finite estimates, and a note on the others."""
    subjects = np.ones(runs.ability.shape[1], bool)
    items = np.ones(runs.intercept.shape[1], bool)
    if method.penalty > 0:
        return subjects, items, ()
    record = fit_items(problem, runs, best)
    theta = jnp.asarray(runs.ability[best])
    infinite = diverging(problem.model, problem.data, record, theta)
    subjects, items = ~np.asarray(infinite.subjects), ~np.asarray(infinite.items)
    left = int((~subjects).sum()), int((~items).sum())
    if not any(left):
        return subjects, items, ()
    return subjects, items, (
        f"{counted(left[0], 'subject')} and {counted(left[1], 'item')} without a"
        " finite estimate are left"
        " out of the correlations",
    )  # fmt: skip


def fit_items(problem: Problem, runs: Runs, place: int) -> Any:
    """The item record of one run."""
    fields = {
        "discrimination": jnp.asarray(runs.discrimination[place]),
        "intercept": jnp.asarray(runs.intercept[place]),
    }
    return problem.model.family.complete(fields)


def spearman_matrix(values: np.ndarray, tied: float = TIED) -> np.ndarray:
    """Spearman's correlations of all pairs of rows; NaN of rows without variation.

    Values that differ by less than `tied` standard deviations are ties: subjects with
    equal responses have equal abilities, up to where a run stops.

    >>> spearman_matrix(np.array([[1.0, 2, 3], [2, 4, 9], [3, 2, 1]])).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    if values.shape[1] < 2:
        return np.full((len(values), len(values)), np.nan)
    ranks = np.empty(values.shape)
    for row, own in zip(ranks, values, strict=True):
        order = np.argsort(own, kind="stable")
        apart = np.diff(own[order]) > tied * own.std()
        row[order] = np.concatenate([[0], np.cumsum(apart)])
    ranks = rankdata(ranks, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    length = np.sqrt(np.sum(ranks**2, axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip((ranks @ ranks.T) / np.outer(length, length), -1, 1)


def _pairs(matrix, first, second, same: bool) -> np.ndarray:
    """Correlations of runs of two settings; of one setting, each pair once."""
    block = matrix[np.ix_(first, second)]
    return block[np.triu_indices(len(block), 1)] if same else block.ravel()


def _summary(values: np.ndarray) -> dict[str, float | None]:
    """Mean, standard deviation and minimum of the finite values; None without any."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return dict.fromkeys(("mean", "sd", "min"))
    sd = float(finite.std(ddof=1)) if finite.size > 1 else 0.0
    return {"mean": float(finite.mean()), "sd": sd, "min": float(finite.min())}


def _down(value: float) -> str:
    """A correlation rounded down: 1 is exact."""
    return f"{np.floor(value * 1000 + 1e-6) / 1000:.3f}"
