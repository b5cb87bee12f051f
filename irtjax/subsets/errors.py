"""Errors and agreement of predicted scores on held-out subjects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data.frames import HasTable
from irtjax.numerics import order
from irtjax.subsets.predictor import Prediction, join
from irtjax.subsets.rules import Compared, counts

#: Fewest subjects of a fold for which its own rank correlation is taken.
FOLD_SUBJECTS = 10


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SubsetErrors(HasTable):
    """Errors of subsets by rule and size: what `irtjax.subset_errors` returns.

    Attributes:
        rows: One dict per rule and size:
            rule, size;
            mean_absolute_error of predicted full scores, its standard error
            mean_absolute_error_se (over subjects) and root_mean_square_error;
            mean_absolute_error_of_irt, before the correction by held-out subjects, and
            mean_absolute_error_of_mean, of the plain weighted mean;
            coverage of the intervals and their mean width;
            kendall and spearman correlation of predicted and full scores, kendall_se
            from the folds (None if small), kendall_of_mean, of weighted means;
            variance of the weighted mean over subjects, and variance_full of the full
            score (with 1 / N, as the PSN-IRT paper's Table 6);
            reference_kendall, of predicted scores and the reference (None without),
            and reference_kendall_of_mean, of the weighted means and it;
            rules_taken by "auto", one or more with their counts.
        level: Level of the intervals.
        num_subjects: Number of subjects, each predicted once.
        num_items: Number of items of the whole.
        warnings: What the numbers must be read with.
    """

    title = "Errors of predicted full scores, by size of the subset"
    columns = ("rule", "size", "mean_absolute_error", "mean_absolute_error_se")
    columns += ("coverage", "kendall", "spearman", "rules_taken")

    rows: tuple[dict[str, Any], ...]
    level: float
    num_subjects: int
    num_items: int
    warnings: tuple[str, ...] = ()

    @property
    def table(self) -> pa.Table:
        """The rows as a table."""
        return pa.Table.from_pylist(list(self.rows))

    def size_for(self, rule: str, error: float) -> int | None:
        """The smallest size from which on the mean absolute error is at most `error`.

        None if the largest is not enough.

        Args:
            rule: One of the rules.
            error: In shares: 0.01 is one point.
        """
        rows = [row for row in self.rows if row["rule"] == rule]
        bad = [row["size"] for row in rows if not row["mean_absolute_error"] <= error]
        good = (row["size"] for row in rows if row["size"] > max(bad, default=0))
        return min(good, default=None)


def _correlation(measure: Callable[..., float], first, second) -> float | None:
    """A rank correlation, None where one of the two does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return measure(first, second)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Kendall's tau-b, None where one of the two does not vary.

    >>> rank_correlation(np.arange(3.0), np.array([0.0, 2.0, 1.0]))
    0.333333333333
    """
    # Equal scores summed in another order are still equal.
    tau = lambda x, y: order.kendall(np.round(x, 12), np.round(y, 12))
    correlation = _correlation(tau, first, second)
    return None if correlation is None else round(correlation, 12)


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Spearman's correlation, None where one of the two does not vary."""
    return _correlation(order.spearman, first, second)


def summarise(
    predicted: np.ndarray, prediction: Prediction, score: np.ndarray
) -> dict[str, Any]:
    """Errors of predictions, corrected and as they were; see `Shrunken.held_out`."""
    miss = predicted - score
    plain = np.abs(prediction.mean - score)
    plain = plain[np.isfinite(plain)]
    return {
        "num_subjects": len(score),
        "mean_absolute_error": float(np.mean(np.abs(miss))),
        "root_mean_square_error": float(np.sqrt(np.mean(miss**2))),
        "mean_absolute_error_of_irt": float(np.mean(np.abs(prediction.score - score))),
        "mean_absolute_error_of_mean": float(plain.mean()) if plain.size else None,
        "kendall": rank_correlation(predicted, score),
        "spearman": spearman(predicted, score),
    }


def agreement(
    parts: list[tuple[Prediction, np.ndarray, Compared]],
    score: np.ndarray,
    subjects: np.ndarray,
    reference: Mapping[str, float] | None,
) -> dict[str, Any]:
    """A row of `SubsetErrors`, from the predictions, rows and rules of each fold."""
    joined = join([part for part, _, _ in parts])
    judged = ((part, rows, compared.calibrator) for part, rows, compared in parts)
    by_fold = [(rows, one.score(x), *one.interval(x)) for x, rows, one in judged]
    rows, predicted, low, high = map(np.concatenate, zip(*by_fold, strict=True))
    truth = score[rows]
    # A score on the end of an interval is in it, despite rounding.
    inside = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    miss = np.abs(predicted - truth)
    large = [x for x in by_fold if len(x[0]) >= FOLD_SUBJECTS]
    found_taus = (rank_correlation(own, score[places]) for places, own, *_ in large)
    taus = [tau for tau in found_taus if tau is not None]
    tau_se = float(np.std(taus, ddof=1) / len(taus) ** 0.5) if len(taus) > 1 else None
    finite = np.isfinite(joined.mean)
    mean, names = joined.mean[finite], subjects[rows]
    errors = summarise(predicted, joined, truth)
    del errors["num_subjects"]
    return {
        **errors,
        "mean_absolute_error_se": float(miss.std() / len(miss) ** 0.5),
        "coverage": float(inside.mean()),
        "width": float((high - low).mean()),
        "kendall_se": tau_se,
        "kendall_of_mean": rank_correlation(mean, truth[finite]),
        "variance": float(np.var(mean)) if finite.any() else None,
        "variance_full": float(np.var(truth)),
        "reference_kendall": _with_reference(predicted, names, reference),
        "reference_kendall_of_mean": _with_reference(mean, names[finite], reference),
        "rules_taken": counts([compared.rule for _, _, compared in parts]),
    }


def check_reference(reference: Mapping[str, float], names: np.ndarray) -> None:
    """Refuses a reference of fewer than two of the subjects, or not of numbers."""
    shared = [name for name in names.tolist() if name in reference]
    if len(shared) < 2:
        raise ValueError(
            f"the reference names {len(shared)} of the subjects: it needs two or more"
        )
    for name in shared:
        if not np.isfinite(reference[name]):
            raise ValueError(
                f"the reference of {name!r} is {reference[name]}: leave it out"
            )


def _with_reference(score, names, reference) -> float | None:
    """Kendall's tau of scores and the reference of the subjects it names."""
    if reference is None:
        return None
    pairs = zip(score, names.tolist(), strict=True)
    shared = [(value, reference[name]) for value, name in pairs if name in reference]
    first, second = np.array(shared, float).reshape(-1, 2).T
    return rank_correlation(first, second)
