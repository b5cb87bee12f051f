"""Errors and agreement of predicted scores on held-out subjects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from irtjax.subsets.predictor import Prediction

if TYPE_CHECKING:
    import pyarrow as pa

#: Fewest subjects of a fold for which its own rank correlation is taken.
FOLD_SUBJECTS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class SubsetErrors:
    """Errors of subsets by method and size: what `irtjax.subset_errors` returns.

    Attributes:
        rows: One dict per method and size:
            method, size;
            mean_absolute_error of predicted full scores, its standard error
            mean_absolute_error_se (over subjects) and root_mean_square_error;
            mean_absolute_error_of_irt, before the correction by held-out subjects, and
            mean_absolute_error_of_mean, of the plain weighted mean;
            coverage of the intervals and their mean width;
            kendall and spearman correlation of predicted and full scores, over all
            subjects, and kendall_se from the folds (None where these are small);
            kendall_of_mean, of the weighted mean;
            variance of the weighted mean over subjects, and variance_full of the full
            score (with 1 / N, as the PSN-IRT paper's Table 6);
            reference_kendall, of predicted scores and the reference (None without),
            and reference_kendall_of_mean, of the weighted means and it.
        level: Level of the intervals.
        num_subjects: Number of subjects, each predicted once.
        num_items: Number of items of the whole.
        warnings: What the numbers must be read with.
    """

    rows: tuple[dict[str, Any], ...]
    level: float
    num_subjects: int
    num_items: int
    warnings: tuple[str, ...] = ()

    def table(self) -> pa.Table:
        """The rows as a table."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(self.rows))

    def size_for(self, method: str, error: float) -> int | None:
        """The smallest size from which on the mean absolute error is at most `error`.

        Args:
            method: One of the methods.
            error: In shares: 0.01 is one point.

        Returns:
            The size, or None if the largest is not enough.
        """
        best = None
        mine = [row for row in self.rows if row["method"] == method]
        for row in sorted(mine, key=lambda row: -row["size"]):
            if row["mean_absolute_error"] > error:
                break
            best = row["size"]
        return best


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Kendall's tau-b, None where one of the two does not vary.

    >>> rank_correlation(np.arange(3.0), np.array([0.0, 2.0, 1.0]))
    0.333333333333
    """
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    # Equal scores summed in another order are still equal.
    found: Any = stats.kendalltau(np.round(first, 12), np.round(second, 12))
    return round(float(found.statistic), 12)


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Spearman's correlation, None where one of the two does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    found: Any = stats.spearmanr(first, second)
    return float(found.statistic)


def summarise(
    predicted: np.ndarray, prediction: Prediction, score: np.ndarray
) -> dict[str, Any]:
    """Errors of predictions of known full scores.

    Args:
        predicted: `[subjects]` corrected predictions.
        prediction: What they come from.
        score: `[subjects]` full scores.

    Returns:
        Numbers by name; see `Shrunken.held_out`.
    """
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
    method: str,
    size: int,
    parts: list[tuple],
    score: np.ndarray,
    subjects: np.ndarray,
    reference: Mapping[str, float] | None,
) -> dict[str, Any]:
    """A row of `SubsetErrors`.

    Args:
        method: How items were chosen.
        size: How many.
        parts: For each fold, its predictions, its rows and its calibrator.
        score: `[subjects]` full scores.
        subjects: Their names.
        reference: Values by name, or None.
    """
    found = Prediction(
        *(np.concatenate(x) for x in zip(*(p for p, _, _ in parts), strict=True))
    )
    rows = np.concatenate([held for _, held, _ in parts])
    by_part = [calibrator.score(part) for part, _, calibrator in parts]
    predicted = np.concatenate(by_part)
    ends = [calibrator.interval(part) for part, _, calibrator in parts]
    low, high = (np.concatenate(x) for x in zip(*ends, strict=True))
    truth = score[rows]
    # A score on the end of an interval is in it, despite rounding.
    held = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    miss = np.abs(predicted - truth)
    by_fold = [
        rank_correlation(own, score[places])
        for own, (_, places, _) in zip(by_part, parts, strict=True)
        if len(places) >= FOLD_SUBJECTS
    ]
    spread = [value for value in by_fold if value is not None]
    kept = np.isfinite(found.mean)
    return {
        "method": method,
        "size": size,
        **{
            k: v
            for k, v in summarise(predicted, found, truth).items()
            if k != "num_subjects"
        },
        "mean_absolute_error_se": float(miss.std() / len(miss) ** 0.5),
        "coverage": float(held.mean()),
        "width": float((high - low).mean()),
        "kendall_se": float(np.std(spread, ddof=1) / len(spread) ** 0.5)
        if len(spread) > 1
        else None,
        "kendall_of_mean": rank_correlation(found.mean[kept], truth[kept]),
        "variance": float(np.var(found.mean[kept])) if kept.any() else None,
        "variance_full": float(np.var(truth)),
        "reference_kendall": _with_reference(predicted, subjects[rows], reference),
        "reference_kendall_of_mean": _with_reference(
            found.mean[kept], subjects[rows][kept], reference
        ),
    }


def check_reference(reference: Mapping[str, float], names: np.ndarray) -> None:
    """Refuses a reference of fewer than two of the subjects, or not of numbers.

    Raises:
        ValueError: If it is one.
    """
    known = [name for name in names.tolist() if name in reference]
    if len(known) < 2:
        raise ValueError(
            f"the reference names {len(known)} of the subjects: it needs two or more"
        )
    for name in known:
        if not np.isfinite(reference[name]):
            raise ValueError(
                f"the reference of {name!r} is {reference[name]}: leave it out"
            )


def _with_reference(score, names, reference) -> float | None:
    """Kendall's tau of scores and the reference of the subjects it names."""
    if reference is None:
        return None
    pairs = zip(score, names.tolist(), strict=True)
    known = [(value, reference[name]) for value, name in pairs if name in reference]
    if len(known) < 2:
        return None
    first, second = np.array(known, float).T
    return rank_correlation(first, second)
