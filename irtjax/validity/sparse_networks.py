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

import numpy as np
from scipy.special import logit

from irtjax.numerics.progress import watched
from irtjax.validity.ising import Ising, log_chances

#: gamma of each criterion, as in IsingFit and qgraph.
GAMMA = {"elasso": 0.25, "glasso": 0.5}
#: A path of 50 penalties as shares of the first, which leaves no edge. The last is
#: below the noise of a gradient for up to 30,000 subjects.
PATH = np.geomspace(1, 0.01, 50)
#: liblinear penalises the intercept too, by the penalty over this.
INTERCEPT_SCALE = 10_000
#: Stop of liblinear and of the graphical lasso. With looser inner steps the latter
#: oscillates: 100 iterations for 7, and conditions violated by 1e-4 for 1e-6.
STOP, INNER_STOP = 1e-6, 1e-10
#: Smallest eigenvalue of correlations: smaller ones are raised to it.
LEAST_EIGENVALUE = 1e-4


def check_scikit_learn() -> None:
    """Raises a ValueError with the command that installs scikit-learn if it is not."""
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
    """
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
    intercept, slope = logit(y.mean()), np.zeros(count)
    smallest = -2 * log_chances(np.full(size, intercept), y).sum()
    # Without a correlation there is no penalty at which an edge appears.
    for penalty in largest * PATH[1:] if largest > 1e-12 else ():
        solver = LogisticRegression(
            l1_ratio=1,
            C=1 / (penalty * size),
            solver="liblinear",
            intercept_scaling=INTERCEPT_SCALE,
            tol=STOP,
            max_iter=1000,
            random_state=0,  # The order of coordinates.
        ).fit(standard, y)
        eta = solver.decision_function(standard)
        each = np.log(size) + 2 * gamma * np.log(count)
        edges = np.count_nonzero(solver.coef_)
        criterion = edges * each - 2 * log_chances(eta, y).sum()
        if criterion < smallest:
            smallest, intercept, slope = (
                criterion,
                solver.intercept_[0],
                solver.coef_[0],
            )
    return float(intercept - slope @ (mean / sd)), slope / sd


def fit_glasso(
    correlation: np.ndarray, size: int, gamma: float
) -> tuple[np.ndarray, float]:
    """The precision matrix and its penalty.

    Args:
        correlation: `[items, items]`, positive definite.
        size: Subjects.
        gamma: Penalty of a further edge in the criterion; 0 is the BIC.
    """
    from sklearn.covariance import graphical_lasso
    from sklearn.exceptions import ConvergenceWarning

    count = len(correlation)
    apart = ~np.eye(count, dtype=bool)
    largest = np.abs(correlation[apart]).max()
    best, smallest = (np.eye(count), largest), float(size * count)
    for penalty in largest * PATH[1:]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                _, precision = graphical_lasso(
                    correlation, penalty, tol=STOP, enet_tol=INNER_STOP, max_iter=200
                )
            except (ConvergenceWarning, FloatingPointError):
                # Smaller penalties are harder.
                break
        fit = np.linalg.slogdet(precision)[1] - (correlation * precision).sum()
        edges = np.count_nonzero(precision[apart]) // 2
        criterion = edges * (np.log(size) + 4 * gamma * np.log(count)) - size * fit
        if criterion < smallest:
            smallest, best = criterion, (precision, penalty)
    return best


def positive_definite(correlation: np.ndarray) -> np.ndarray:
    """Correlations with eigenvalues of `LEAST_EIGENVALUE` or more."""
    values, vectors = np.linalg.eigh(correlation)
    if values[0] >= LEAST_EIGENVALUE:
        return correlation
    raised = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diagonal(raised))
    return raised / np.outer(scale, scale)
