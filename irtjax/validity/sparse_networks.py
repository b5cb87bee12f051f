r"""Sparse networks by lasso, on the solvers of scikit-learn (the extra `network`).

**eLasso** (van Borkulo et al. 2014): a logistic regression of each item on the others
with an l1 penalty. Of a path of penalties that with the smallest extended criterion

    EBIC = -2 l + n log N + 2 gamma n log(J - 1),

n the number of neighbours (Chen and Chen 2008; Ravikumar, Wainwright and Lafferty
2010). An edge has the mean of its two coefficients.

**Graphical lasso** (Friedman, Hastie and Tibshirani 2008): the precision matrix K of
normal variables with correlations S, by log det K - tr(S K) - lambda sum |k_jk| over
j != k, and the EBIC -2 l + E log N + 4 gamma E log J of E edges (Foygel and Drton
2010). Weights are the partial correlations -k_jk / sqrt(k_jj k_kk).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.numerics.progress import watched
from irtjax.validity.ising import Ising, log_chances
from irtjax.validity.tetrachoric import tetrachoric

#: gamma of each criterion, as in IsingFit and qgraph.
GAMMA = {"elasso": 0.25, "glasso": 0.5}
#: Penalties of a path, and the last as a share of the first, which leaves no edge. The
#: last is then below the noise of a gradient for up to 30,000 subjects.
PENALTIES, LAST = 50, 0.01
#: liblinear penalises the intercept too, by the penalty over this.
INTERCEPT_SCALE = 10_000
#: Stop of liblinear and of the graphical lasso. With looser inner steps the latter
#: oscillates: 100 iterations for 7, and conditions violated by 1e-4 for 1e-6.
LOGISTIC_STOP, STOP, INNER_STOP = 1e-6, 1e-6, 1e-10
#: Smallest eigenvalue of correlations: smaller ones are raised to it.
LEAST_EIGENVALUE = 1e-4


class Partial(NamedTuple):
    """A network of partial correlations.

    Attributes:
        weights: `[items, items]` partial correlations, 0 on the diagonal.
        log_likelihood: Of the normal variables, standardised.
        repair: Largest change of a correlation that made them positive definite.
        precision: `[items, items]`.
        penalty: The one of the smallest criterion.
    """

    weights: np.ndarray
    log_likelihood: float
    repair: float
    precision: np.ndarray
    penalty: float


def check_scikit_learn() -> None:
    """Refuses to go on without scikit-learn.

    Raises:
        ValueError: If it is not installed, with the command that installs it.
    """
    try:
        import sklearn  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError:
        raise ValueError(
            "sparse networks need scikit-learn: pip install 'irtjax[network]', or"
            " choose method='pseudolikelihood'"
        ) from None


def fit_elasso(right: np.ndarray, gamma: float, edge_rule: str) -> Ising:
    """An Ising model by penalised regressions.

    Args:
        right: `[subjects, items]` of 0 and 1, every item with both.
        gamma: Penalty of a further neighbour in the criterion; 0 is the BIC.
        edge_rule: "and" for edges with both coefficients, "or" for one or both.

    Raises:
        ValueError: Without scikit-learn.
    """
    check_scikit_learn()
    count = right.shape[1]
    coefficients, thresholds = np.zeros((count, count)), np.zeros(count)
    for item in watched(range(count), "item"):
        others = np.arange(count) != item
        thresholds[item], coefficients[item, others] = _neighbours(
            right[:, item], right[:, others], gamma
        )
    weights = (coefficients + coefficients.T) / 2
    if edge_rule == "and":
        weights[(coefficients == 0) | (coefficients.T == 0)] = 0
    value = log_chances(thresholds + right @ weights, right).sum()
    return Ising(thresholds, weights, float(value))


def _neighbours(
    y: np.ndarray, others: np.ndarray, gamma: float
) -> tuple[float, np.ndarray]:
    """Intercept and coefficients of one item on the others."""
    from sklearn.linear_model import LogisticRegression

    size, count = others.shape
    mean, sd = others.mean(axis=0), others.std(axis=0)
    standard = (others - mean) / sd
    largest = np.abs(standard.T @ (y - y.mean())).max() / size
    share = y.mean()
    # The first penalty leaves no neighbour.
    best = np.log(share / (1 - share)), np.zeros(count)
    smallest = -2 * log_chances(np.full(size, best[0]), y).sum()
    if largest < 1e-12:
        return float(best[0]), best[1]
    for penalty in largest * np.geomspace(1, LAST, PENALTIES)[1:]:
        solver = LogisticRegression(
            l1_ratio=1,
            C=1 / (penalty * size),
            solver="liblinear",
            intercept_scaling=INTERCEPT_SCALE,
            tol=LOGISTIC_STOP,
            max_iter=1000,
            random_state=0,  # The order of coordinates.
        ).fit(standard, y)
        slope, intercept = solver.coef_[0], solver.intercept_[0]
        value = log_chances(intercept + standard @ slope, y).sum()
        number = np.count_nonzero(slope)
        each = np.log(size) + 2 * gamma * np.log(max(count, 1))
        criterion = -2 * value + number * each
        if criterion < smallest:
            smallest, best = criterion, (intercept, slope)
    slope = best[1] / sd
    return float(best[0] - slope @ mean), slope


def fit_glasso(correlation: np.ndarray, size: int, gamma: float) -> Partial:
    """A sparse network of partial correlations.

    Args:
        correlation: `[items, items]`.
        size: Subjects.
        gamma: Penalty of a further edge in the criterion; 0 is the BIC.

    Raises:
        ValueError: Without scikit-learn.
    """
    check_scikit_learn()
    from sklearn.covariance import graphical_lasso
    from sklearn.exceptions import ConvergenceWarning

    count = len(correlation)
    repaired = positive_definite(correlation)
    repair = float(np.abs(repaired - correlation).max())
    apart = ~np.eye(count, dtype=bool)
    largest = np.abs(repaired[apart]).max()
    best, smallest = (np.eye(count), -size * count / 2, largest), size * count
    for penalty in largest * np.geomspace(1, LAST, PENALTIES)[1:]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                _, precision = graphical_lasso(
                    repaired, penalty, tol=STOP, enet_tol=INNER_STOP, max_iter=200
                )
            except (ConvergenceWarning, FloatingPointError):
                # Smaller penalties are harder.
                break
        fit = np.linalg.slogdet(precision)[1] - (repaired * precision).sum()
        edges = np.count_nonzero(precision[apart]) // 2
        each = np.log(size) + 4 * gamma * np.log(count)
        criterion = -size * fit + edges * each
        if criterion < smallest:
            smallest, best = criterion, (precision, size * fit / 2, penalty)
    precision, value, penalty = best
    root = np.sqrt(np.diagonal(precision))
    weights = np.where(apart, -precision / np.outer(root, root), 0.0) + 0.0
    constant = size * count * np.log(2 * np.pi) / 2
    return Partial(weights, float(value - constant), repair, precision, float(penalty))


def correlations(values: np.ndarray, binary: bool) -> np.ndarray:
    """`[items, items]` correlations: tetrachoric of right and wrong, else of scores."""
    if binary:
        return tetrachoric(ResponseTable.from_arrays(values.astype(np.int8)))
    return np.corrcoef(values.T)


def positive_definite(correlation: np.ndarray) -> np.ndarray:
    """Correlations with eigenvalues of at least `LEAST_EIGENVALUE`, 1 on the diagonal.

    >>> positive_definite(np.array([[1.0, 0.5], [0.5, 1.0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    values, vectors = np.linalg.eigh(correlation)
    if values[0] >= LEAST_EIGENVALUE:
        return correlation
    raised = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diagonal(raised))
    return raised / np.outer(scale, scale)
