"""What a user without a model of responses would compare subjects by."""

from __future__ import annotations

import numpy as np


def paired_accuracies(table, first, second) -> tuple[np.ndarray, np.ndarray]:
    """Differences of mean responses, and p-values of paired t-tests over items."""
    from scipy.stats import t as student

    values, seen = cells_of(table)
    count = (seen @ seen.T)[first, second]
    sums, products = values @ seen.T, values @ values.T
    squares = values**2 @ seen.T
    difference = (sums[first, second] - sums[second, first]) / np.maximum(count, 1)
    square = squares[first, second] + squares[second, first]
    square = (square - 2 * products[first, second]) / np.maximum(count, 1)
    degrees = np.maximum(count - 1, 1)
    error = np.sqrt(np.maximum(square - difference**2, 1e-12) / degrees)
    p_value = 2 * student.sf(np.abs(difference) / error, degrees)
    return difference, np.where(count > 1, p_value, 1.0)


def cells_of(table) -> tuple[np.ndarray, np.ndarray]:
    """Responses as shares, 0 where missing, and 1 where they are seen."""
    values = np.asarray(table.values, float)
    if table.trials is not None:
        values = values / np.maximum(table.trials, 1)
    seen = np.ones(values.shape) if table.observed is None else table.observed
    seen = np.asarray(seen, float)
    return values * seen, seen


def row_means(table, first, second) -> np.ndarray:
    """Differences of the means of all responses of each subject."""
    values, seen = cells_of(table)
    mean = values.sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    return mean[first] - mean[second]


def adjusted_means(table, first, second) -> tuple[np.ndarray, np.ndarray]:
    """Differences of subjects' effects, and their p-values, of a linear regression.

    Responses are regressed on dummies of subjects and items (least squares, one
    variance): what a user without a model of responses would use for missing cells.
    """
    from scipy.special import ndtr

    values, seen = cells_of(table)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = values.sum(axis=0) / count
    laplacian = np.diag(seen.sum(axis=1)) - (seen / count) @ seen.T
    inverse = np.linalg.pinv(laplacian)
    effect = inverse @ (values - seen * mean).sum(axis=1)
    item = ((values - seen * effect[:, None]).sum(axis=0)) / count
    residual = (values - effect[:, None] - item) * seen
    degrees = max(seen.sum() - len(seen) - seen.shape[1] + 1, 1)
    variance = np.sum(residual**2) / degrees
    of_pair = inverse[first, first] + inverse[second, second]
    error = np.sqrt(variance * np.maximum(of_pair - 2 * inverse[first, second], 1e-12))
    difference = effect[first] - effect[second]
    return difference, 2 * ndtr(-np.abs(difference) / error)
