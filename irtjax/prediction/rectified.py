r"""Scores of new models on all items from a few answers, unbiased whatever the model.

The J items of a fit are the population, and the score is the mean response on all of
them. A model of responses predicts them, and a few answers correct the predictions.

**Random draws.** Of n answers to items drawn at random without replacement, with
predictions f that do not use the item's own answer (by folds),

.. math:: \hat s = \bar y_n + \lambda (\bar f_J - \bar f_n),
          \quad se^2 = (1 - n / J) \, s^2(y - \lambda f) / n,

which is unbiased for any fixed lambda and any f, and with lambda = 0 the plain mean.
lambda = cov(y, f) / var(f) of the other folds (the regression estimator: Cochran 1977,
chapter 7; Angelopoulos and others 2023), from 0 to `LARGEST`.

**Draws with known probabilities,** one after another, that may depend on all earlier
answers, as of an adaptive test. With f from the earlier answers alone,

.. math:: z_t = \frac1J \Bigl( \sum_j f_{tj} + \sum_{s < t} (y_s - f_{ts})
          + \frac{y_t - f_{tt}}{q_t} \Bigr)

has the score as its mean given the past (Raj 1956, JASA 51): the z are uncorrelated at
every stopping time. Their mean has weights 1 / V_t, V_t an expected variance of z_t
given the past (Hadad and others 2021, PNAS 118). With draws of equal chances of m_t
items left V_t is proportional to m_t^2, and the variance is that of a mean of random
draws without replacement, s^2 (1 - n / J) / n.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import stdtrit

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.run_errors import check_run_sd, run_errors_of
from irtjax.calibration.score import score
from irtjax.calibration.tables import floats
from irtjax.data.coding import coded_as
from irtjax.data.frames import HasTable
from irtjax.data.matching import find_names
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.inference.expected import response_table_jit
from irtjax.inference.vector_scores import score_factors
from irtjax.models.model import response_ends
from irtjax.numerics.precision import full_precision
from irtjax.numerics.seeds import seed_of
from irtjax.prediction.responses import (
    ABILITY_NODES,
    BLOCK_CELLS,
    expected_of_factors,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Folds of the answers of a subject.
FOLDS = 10
#: Answers from which there are folds; fewer are averaged alone.
FEWEST = 6
#: Largest factor of the predictions.
LARGEST = 1.2
#: Abilities at which expected responses are tabulated.
GRID = 401


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EstimatedScores(HasTable):
    """Scores on all items of a fit, from a few answers.

    Attributes:
        table: A row for each subject: `subject`, `score`, `score_se`, `lower`, `upper`,
            `answers`, `items`, `mean` (of the answers alone) with `mean_se`, and
            `effective_answers`: how many random answers would be as exact alone.
        level: Level of the intervals.
        design: "random" or "sequential".
        warnings: Reasons to doubt it.
    """

    title = "Scores on all items"

    table: pa.Table
    level: float
    design: str
    warnings: tuple[str, ...] = ()


@full_precision
def estimate_score(
    fit: Calibration,
    data: ResponseTable | Any,
    *,
    probabilities: np.ndarray | None = None,
    order: np.ndarray | None = None,
    level: float = 0.95,
    key: RandomKey | None = None,
    run_sd: float | None = None,
) -> EstimatedScores:
    """Estimates the mean response of new subjects on all items of a fit.

    Args:
        fit: A calibration of one ability or of factors.
        data: Answers of the subjects to some of its items: a `ResponseTable`, or what
            `irtjax.read` takes. Without `probabilities` the items are a random sample
            without replacement.
        probabilities: `[subjects, items]` the chance with which each answered item was
            drawn among those that were left, if the draws had different ones.
        order: `[subjects, items]` numbers by which the answers are ordered in time;
            with probabilities.
        level: Level of the intervals.
        key: Seed of the folds; 0 by default.
        run_sd: Standard deviation of a score from run to run, in points, that errors
            count (`calibration.runs`); by default that of the fit.

    Returns:
        Scores with intervals: t with n - 1 degrees of freedom, within the ends of the
        response.

    Raises:
        ValueError: The fit has an ability for each benchmark, no item is of the fit, a
            subject has fewer than 2 answers, or a probability is not in (0, 1].

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> old, new = table.select(subjects=np.arange(1, 60)), table.select(subjects=[0])
    >>> fit = irtjax.fit(old, "rasch", method="em", standard_errors="none")
    >>> few = new.select(items=np.random.default_rng(0).permutation(150)[:30])
    >>> row = estimate_score(fit, few).table.to_pylist()[0]
    >>> row["lower"] < float(new.subject_accuracy()[0]) < row["upper"]
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, such as 0.95, not {level}")
    if fit.num_groups > 1:
        raise ValueError(
            "scores are estimated from fits of one ability or of factors, and this has"
            f" {counted(fit.num_groups, 'ability', 'abilities')}, one a benchmark: fit"
            " 2pl or factor"
        )
    table = _answers(fit, data)
    values, seen = _cells(fit, table)
    columns = find_names(fit.item_names, table.items, "item")
    rng = np.random.default_rng(seed_of(0 if key is None else key))
    ends = response_ends(fit.model)
    if probabilities is not None:
        probabilities = np.asarray(probabilities, float)
        if not ((probabilities > 0) & (probabilities <= 1))[seen].all():
            raise ValueError("probabilities of answered items are above 0, at most 1")
    samples, few = [], 0
    for subject in range(table.num_subjects):
        place = np.flatnonzero(seen[subject])
        if len(place) < 2:
            name = str(table.subjects[subject])
            raise ValueError(
                f"{name!r} has fewer than 2 answers to items of the fit: leave it out,"
                " or give it more"
            )
        if probabilities is not None and order is not None:
            place = place[np.argsort(np.asarray(order)[subject, place], kind="stable")]
        few += len(place) < FEWEST
        q = None if probabilities is None else probabilities[subject, place]
        samples.append(_Sample.of(values[subject, place], columns[place], q, rng))
    stated = fit.options.get("run_sd") if run_sd is None else run_sd
    runs = run_errors_of(table, check_run_sd(stated), fit.options)
    estimated = _in_blocks(fit, samples)
    rows = [
        _row(str(name), sample.y, numbers, float(run), fit, ends, level)
        for name, sample, numbers, run in zip(
            table.subjects, samples, estimated, runs, strict=True
        )
    ]
    warnings = []
    if few:
        warnings.append(
            f"{counted(few, 'subject')} with fewer than {FEWEST} answers:"
            " the mean of the answers alone"
        )
    import pyarrow as pa

    return EstimatedScores(
        pa.Table.from_pylist(rows),
        level,
        "random" if probabilities is None else "sequential",
        tuple(warnings),
    )


def _answers(fit: Calibration, data: Any) -> ResponseTable:
    """The answers to items of the fit, coded as its responses are."""
    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    shared = np.isin(data.items, fit.item_names)
    if not shared.any():
        raise ValueError(
            f"none of {counted(data.num_items, 'item')} is of the fit, whose items are"
            f" such as {str(fit.item_names[0])!r}: give answers to these"
        )
    return coded_as(fit.options, data.select(items=shared))


def _cells(fit: Calibration, table: ResponseTable) -> tuple[np.ndarray, np.ndarray]:
    """Responses, shares of trials, and which are there."""
    values = np.asarray(table.values, float)
    seen = np.ones(values.shape, bool) if table.observed is None else table.observed
    if table.trials is not None:
        seen = table.trials > 0
        values = values / np.maximum(table.trials, 1)
    return values, np.asarray(seen)


class _Sample(NamedTuple):
    """Answers of a subject, and which of them each prediction may use.

    Attributes:
        y: `[answers]`.
        columns: Their places in the fit.
        q: Chances with which they were drawn; None of a random sample.
        folds: Fold of each answer; None where there are none.
        used: `[predictions, answers]` answers behind each row of predictions.
    """

    y: np.ndarray
    columns: np.ndarray
    q: np.ndarray | None
    folds: np.ndarray | None
    used: np.ndarray

    @classmethod
    def of(cls, y, columns, q, rng: np.random.Generator) -> _Sample:
        """Random answers in folds; drawn ones with those before each."""
        number = len(y)
        if q is not None:
            return cls(y, columns, q, None, np.tri(number, number, -1) > 0)
        if number < FEWEST:
            return cls(y, columns, None, None, np.zeros((0, number), bool))
        folds = rng.permutation(np.arange(number) % min(FOLDS, number // 2))
        return cls(
            y, columns, None, folds, np.arange(folds.max() + 1)[:, None] != folds
        )


def _in_blocks(
    fit: Calibration, samples: list[_Sample]
) -> list[tuple[float, float, int]]:
    """Estimates of all subjects; predictions of many are made at once."""
    items, estimated, start = len(fit.item_names), [], 0
    while start < len(samples):
        stop, rows = start, 0
        while stop < len(samples) and (
            stop == start or (rows + len(samples[stop].used)) * items <= BLOCK_CELLS
        ):
            rows += len(samples[stop].used)
            stop += 1
        part = samples[start:stop]
        answers = np.full((rows, items), np.nan)
        first = 0
        for sample in part:
            last = first + len(sample.used)
            block = np.where(sample.used, sample.y, np.nan)
            answers[first:last, sample.columns] = block
            first = last
        predicted = predicted_responses(fit, answers) if rows else answers
        first = 0
        for sample in part:
            last = first + len(sample.used)
            estimated.append(_estimate(sample, predicted[first:last], items))
            first = last
        start = stop
    return estimated


def _estimate(
    sample: _Sample, predicted: np.ndarray, items: int
) -> tuple[float, float, int]:
    """Estimate, squared error and degrees of freedom of a subject's score."""
    y, columns, q, folds, _ = sample
    number = len(y)
    if q is not None:
        own = predicted[:, columns]
        answered = np.sum(np.tri(number, number, -1) * own, axis=1)
        rest = predicted.sum(axis=1) - answered
        weights = 1 / (items - np.arange(number)) ** 2
        parts = np.diag(own), rest, q, items, weights
        return *drawn_score(y, *parts), number - 1
    left = 1 - number / items
    if folds is None or number == items:
        return float(y.mean()), left * float(y.var(ddof=1)) / number, number - 1
    count = len(predicted)
    own = predicted[folds, columns]
    factor = np.array([_factor(y[folds != k], own[folds != k]) for k in range(count)])
    # Each answer is predicted from other folds, and so is the sum over all items.
    error = y - factor[folds] * own
    share = np.bincount(folds, minlength=count) / number
    whole = float(share @ (factor * predicted.mean(axis=1)))
    square = float(np.sum((error - error.mean()) ** 2)) / (number - 2)
    return whole + float(error.mean()), left * square / number, number - 2


def drawn_score(
    y: np.ndarray,
    own: np.ndarray,
    rest: np.ndarray,
    q: np.ndarray,
    items: int,
    weights: np.ndarray,
) -> tuple[float, float]:
    """The score from draws with known probabilities, and its squared error.

    Args:
        y: `[draws]` responses in the order of the draws.
        own: `[draws]` prediction of each before it was drawn.
        rest: `[draws]` sum of the predictions over the items left, the drawn one too.
        q: `[draws]` chance of the drawn item among those left.
        items: Number of all items.
        weights: `[draws]` of each z, which depend on earlier responses alone.

    Returns:
        The mean of z of the module with its squared error; of all items their mean.

    >>> zeros, ones = np.zeros(2), np.ones(2)
    >>> drawn_score(np.array([1.0, 0.0]), zeros, zeros, ones / 4, 4, ones)
    (0.625, 0.140625)
    """
    number = len(y)
    if number == items:
        return float(y.mean()), 0.0
    z = (rest + np.cumsum(y) - y + (y - own) / q) / items
    share = weights / np.sum(weights)
    score = float(share @ z)
    square = float(np.sum(share**2 * (z - score) ** 2))
    return score, square * number / (number - 1)


def _factor(y: np.ndarray, f: np.ndarray) -> float:
    """cov(y, f) / var(f), drawn to 1 where answers are few."""
    square = float(np.sum((f - f.mean()) ** 2))
    cross = float(np.sum((f - f.mean()) * (y - y.mean())))
    # As much weight as a tenth of the variance of a response in ten answers.
    weight = 10 * 0.25 * 0.1
    return float(np.clip((cross + weight) / (square + weight), 0, LARGEST))


def predicted_responses(fit: Calibration, answers: np.ndarray) -> np.ndarray:
    """Expected responses to all items of a fit given some answers, `[rows, items]`.

    Args:
        fit: A calibration of one ability or of factors.
        answers: `[rows, items]`, NaN where there is none; a row without any has the
            predictions of the population.
    """
    rows, items = len(answers), fit.item_names
    names = [f"row {k}" for k in range(rows)]
    table = ResponseTable.from_arrays(answers, items=items, subjects=names)
    records = jax.tree.map(jnp.asarray, fit.parameters.items)
    if fit.several_abilities:
        population = jax.tree.map(jnp.asarray, fit.parameters.population)
        data = table.responses(records[0].dtype)
        modes = score_factors(fit.model, records, population, data)
        return np.asarray(expected_of_factors(fit.model, records, modes), float)
    scored = score(fit, table)
    ability = floats(scored.table, "ability")[0]
    error = np.asarray(scored.own_error, float)
    nodes, weights = np.polynomial.hermite_e.hermegauss(ABILITY_NODES)
    # Between a few hundred abilities expected responses are all but linear.
    grid = np.linspace(-8, 8, GRID)
    curves = np.asarray(
        response_table_jit(
            fit.model.family, records, jnp.asarray(grid, records[0].dtype)
        ),
        float,
    )
    predicted = np.zeros((rows, len(items)))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        at = np.clip((ability + node * error + 8) / 16 * (GRID - 1), 0, GRID - 1)
        low = np.minimum(at.astype(int), GRID - 2)
        part = (at - low)[:, None]
        predicted += weight * ((1 - part) * curves[low] + part * curves[low + 1])
    return predicted


def _row(
    name: str,
    y: np.ndarray,
    estimated: tuple[float, float, int],
    run: float,
    fit: Calibration,
    ends: dict[str, float],
    level: float,
) -> dict[str, Any]:
    """The row of a subject."""
    value, square, degrees = estimated
    items, number = len(fit.item_names), len(y)
    error = math.hypot(math.sqrt(max(square, 0.0)), run)
    half = float(stdtrit(max(degrees, 1), 0.5 + level / 2)) * error
    low, high = ends.get("low", 0.0), ends.get("top", 1.0)
    clip = lambda x: min(max(x, low), high)
    spread = float(y.var(ddof=1))
    plain = (1 - number / items) * spread / number
    # Random answers m with the same error: (1 - m / J) s^2 / m.
    effective = spread / (square + spread / items) if spread > 0 else float(number)
    return {
        "subject": name,
        "score": clip(value),
        "score_se": error,
        "lower": clip(value - half),
        "upper": clip(value + half),
        "answers": number,
        "items": items,
        "mean": float(y.mean()),
        "mean_se": math.sqrt(max(plain, 0.0)),
        "effective_answers": float(effective),
    }
