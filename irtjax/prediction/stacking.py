r"""Predictions stacked with those of effects of subjects and items alone.

With few subjects slopes are uncertain, and responses that the model does not describe
make its predictions too near to the middle. With eta_ij the logit of the prediction of
a fit and xi_ij that of additive effects (an ability less a difficulty, no slopes), both
made without the response that is predicted,

    logit P_ij = b (w eta_ij + (1 - w) xi_ij),  0 <= w <= 1,                        (1)

has the smallest log-loss over all responses, but for one standard error of it in favour
of additive effects (stacking, Wolpert 1992). Folds of cells are left out in turn. b has
a normal prior with mean 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from irtjax.calibration.calibration import Calibration
from irtjax.data.coding import coded_as
from irtjax.data.table import ResponseTable
from irtjax.fitting.fit import fit as fit_table
from irtjax.numerics.precision import full_precision

#: Folds of cells that are left out, and items in them at most.
FOLDS, MOST_ITEMS = 4, 1000
#: Subjects from which slopes are determined well enough: folds would take long.
MOST_SUBJECTS = 200
#: Weights that are tried, and the prior standard deviation of b.
WEIGHTS, PRIOR_SD = np.linspace(0, 1, 11), 0.1
#: Nearest that a chance is to 0 or 1 where weights are compared.
NEAREST = 1e-4
#: Prior standard deviation of subjects' effects, and the steps to the effects.
SUBJECT_SD, STEPS, NEAR = 3.0, 100, 1e-4


class Stack(NamedTuple):
    """Weight w of the fit and slope b of (1), and additive chances of all cells."""

    weight: float
    slope: float
    additive: np.ndarray

    def of(self, chance: np.ndarray, additive: np.ndarray) -> np.ndarray:
        """Stacked chances from those of the fit and of additive effects."""
        logits = [logit(np.clip(x, 1e-12, 1 - 1e-12)) for x in (chance, additive)]
        stacked = self.slope * (self.weight * logits[0] + (1 - self.weight) * logits[1])
        return expit(stacked)


def is_stacked(fit: Calibration, table: ResponseTable) -> bool:
    """Whether predictions of a fit are stacked: right or wrong, of few subjects."""
    family = fit.model.family
    right = not fit.factor_names and family.num_categories == 2
    few = table.num_subjects <= MOST_SUBJECTS and table.sparse is None
    return right and few and isinstance(fit.options.get("model"), str)


@full_precision
def stack_of(
    fit: Calibration,
    table: ResponseTable,
    predict: Callable[..., Any],
) -> Stack:
    """The stack of a fit and of additive effects, from the responses of the fit.

    Args:
        fit: A calibration of right and wrong responses, or counts of right ones.
        table: The responses it was fitted to, subjects and items in its order.
        predict: `irtjax.predict`.

    Returns:
        Weight and slope of (1), and the additive chances `[subjects, items]`.
    """
    table = coded_as(fit.options, table)
    right, count = cells_of(table)
    rng = np.random.default_rng(0)
    chosen = np.arange(table.num_items)
    if len(chosen) > MOST_ITEMS:
        chosen = np.sort(rng.choice(chosen, MOST_ITEMS, replace=False))
    few, right_of, count_of = (
        table.select(items=chosen),
        right[:, chosen],
        count[:, chosen],
    )
    fold = np.tile(np.arange(table.num_subjects) % FOLDS, (len(chosen), 1))
    fold = rng.permuted(fold, axis=1).T
    chances = np.full((2, *fold.shape), np.nan)
    settings = {"model": fit.options["model"], "method": fit.options["method"]}
    for k in range(FOLDS):
        out = _left_out(count_of > 0, fold == k)
        seen = (count_of > 0) & ~out
        try:
            part = fit_table(_only(few, seen), **settings)
        except ValueError:  # The responses left of a small table may be constant.
            continue
        predicted = predict(
            part, subject_names=table.subjects, item_names=few.items
        ).expected
        chances[0][out] = predicted[out]
        chances[1][out] = additive(right_of * seen, count_of * seen)[out]
    finite = np.isfinite(chances).all(axis=0)
    weight, slope = 1.0, 1.0
    if finite.any():
        cells = right_of[finite], count_of[finite]
        weight, slope = best_stack(*cells, *chances[:, finite])
    return Stack(weight, slope, additive(right, count))


def _left_out(seen: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """The responses of a fold, where the subject and the item have others."""
    out = fold & seen
    out &= (seen & ~out).any(axis=0)
    return out & (seen & ~out).any(axis=1, keepdims=True)


def _only(table: ResponseTable, seen: np.ndarray) -> ResponseTable:
    """The table with some of its responses."""
    trials = table.trials
    if trials is not None:
        trials = np.where(seen, trials, 0)
    values = np.where(seen, table.values, 0).astype(table.values.dtype)
    return table.replace(values=values, observed=seen, trials=trials)


def cells_of(table: ResponseTable) -> tuple[np.ndarray, np.ndarray]:
    """Right responses and responses of each cell, `[subjects, items]`."""
    count = np.ones(table.values.shape)
    if table.trials is not None:
        count = np.asarray(table.trials, float)
    if table.observed is not None:
        count = np.where(table.observed, count, 0.0)
    return np.where(count > 0, np.asarray(table.values, float), 0.0), count


def additive(right: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Chances by effects of subjects and items, these normal with an estimated SD.

    Of `right` responses of `count`, `[subjects, items]`.

    >>> right = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    >>> chance = additive(right, np.ones((2, 3)))
    >>> bool((chance[0] > chance[1]).all() and chance[0, 0] > chance[0, 2])
    True
    """
    subjects, items, sd = np.zeros(len(right)), np.zeros(right.shape[1]), 1.3
    precision = np.full(len(items), sd**-2)
    for _ in range(STEPS):
        before = subjects + items.mean()
        weight, rest = _slopes(subjects, items, right, count)
        gain = rest.sum(axis=1) - subjects / SUBJECT_SD**2
        subjects = subjects + gain / (weight.sum(axis=1) + SUBJECT_SD**-2)
        weight, rest = _slopes(subjects, items, right, count)
        precision = weight.sum(axis=0) + sd**-2
        gain = rest.sum(axis=0) - (items - items.mean()) / sd**2
        items = items + gain / precision
        sd = np.sqrt(np.var(items) + np.mean(1 / precision))
        if np.abs(subjects + items.mean() - before).max() < NEAR:
            break
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    chance = np.zeros(right.shape)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        chance += weight * expit(subjects[:, None] + items + node * precision**-0.5)
    return chance


def _slopes(subjects, items, right, count) -> tuple[np.ndarray, np.ndarray]:
    """Information and slope of the log-likelihood of each cell in its logit."""
    chance = expit(subjects[:, None] + items)
    return count * chance * (1 - chance), right - count * chance


def best_stack(
    right: np.ndarray, count: np.ndarray, chance: np.ndarray, additive: np.ndarray
) -> tuple[float, float]:
    """Weight and slope of (1) from responses left out.

    The smallest weight whose log-loss is within one standard error of the smallest, and
    the slope nearest to 1 within one (Breiman and others 1984): slopes of items, and
    another scale of logits, count where they predict better than without.

    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=4000)
    >>> right = (rng.random(4000) < expit(logits)).astype(float)
    >>> weight, slope = best_stack(
    ...     right, np.ones(4000), expit(logits / 1.3), np.full(4000, 0.5)
    ... )
    >>> weight, round(slope, 1)
    (1.0, 1.2)
    """
    near = lambda x: logit(np.clip(x, NEAREST, 1 - NEAREST))
    first, second = near(chance), near(additive)
    slopes, errors = np.ones((2, len(WEIGHTS)))
    losses = np.zeros((len(WEIGHTS), len(right)))
    for k, weight in enumerate(WEIGHTS.tolist()):
        at = weight * first + (1 - weight) * second
        slopes[k], errors[k] = slope, _ = _slope(right, count, at)
        losses[k] = count * np.logaddexp(0, slope * at) - right * slope * at
    total = losses.sum(axis=1) + 0.5 * ((slopes - 1) / PRIOR_SD) ** 2
    best = int(np.argmin(total))
    error = (losses - losses[best]).std(axis=1) * len(right) ** 0.5
    k = int(np.argmax(total <= total[best] + error))
    # The slope nearest to 1 within one standard error.
    slope = 1 + np.sign(slopes[k] - 1) * max(abs(slopes[k] - 1) - errors[k], 0)
    return float(WEIGHTS[k]), float(slope)


def _slope(right: np.ndarray, count: np.ndarray, at: np.ndarray) -> tuple[float, float]:
    """The slope b of logits with the largest posterior density, and its error."""
    slope, information = 1.0, 1.0
    for _ in range(20):
        p = expit(slope * at)
        gain = float(at @ (right - count * p)) - (slope - 1) / PRIOR_SD**2
        information = float((at**2) @ (count * p * (1 - p))) + PRIOR_SD**-2
        slope = float(np.clip(slope + gain / information, 0.1, 10))
        if abs(gain / information) < NEAR:
            break
    return slope, information**-0.5
