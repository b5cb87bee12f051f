"""New tasks by features and one or several abilities, in five folds.

`python -m experiments.aims.new_tasks_abilities [NAME]` with `../shared/data/agents`
prints the area under the curve of new tasks for r further abilities, and for each
penalty of the loadings that features predict.

The logit of agent i on task j is theta_i + w'e_j + b_j + u_i'(B e_j), e_j the features,
u_i ~ N(0, I) of r abilities, b_j a residual that is 0 for a new task. It is maximised
with penalties: if the best of all penalties gains nothing with r > 0, features that
predict loadings of several abilities do not help there.
"""

import sys

import numpy as np
from scipy.optimize import minimize

from experiments.aims.cold_start import FOLDS, area, load
from irtjax.data.features import read_features

#: Further abilities and penalties of B; precisions of theta, w and b.
DESIGNS = ((0, 1), (1, 10), (1, 50), (1, 150), (2, 10), (2, 50), (2, 150), (15, 400))
PRECISIONS = 0.25, 10.0, 0.67


def fitted(values: np.ndarray, features: np.ndarray, rank: int, penalty: float):
    """theta, w, b, u and B of the responses to the old tasks."""
    rng, seen = np.random.default_rng(0), ~np.isnan(values)
    right = np.nan_to_num(values)
    (count, tasks), size = values.shape, features.shape[1]
    shapes = (count,), (size,), (tasks,), (count, rank), (size, rank)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    precision = [*PRECISIONS, 1.0, penalty]

    def parts(flat):
        pieces = np.split(flat, ends[:-1])
        return [x.reshape(shape) for x, shape in zip(pieces, shapes, strict=True)]

    def objective(flat):
        theta, w, b, u, loads = every = parts(flat)
        loadings = features @ loads
        logit = theta[:, None] + features @ w + b + u @ loadings.T
        value = -np.sum(seen * (right * logit - np.logaddexp(0, logit)))
        gap = seen * (1 / (1 + np.exp(-logit)) - right)
        gradient = [gap.sum(1), features.T @ gap.sum(0), gap.sum(0)]
        gradient += [gap @ loadings, features.T @ (gap.T @ u)]
        for place, (k, x) in enumerate(zip(precision, every, strict=True)):
            value += k * np.sum(x**2) / 2
            gradient[place] = gradient[place] + k * x
        return value, np.concatenate([x.ravel() for x in gradient])

    start = np.zeros(ends[-1])
    start[ends[2] :] = 0.2 * rng.normal(size=ends[-1] - ends[2])
    return parts(minimize(objective, start, jac=True, method="L-BFGS-B").x)


def main(name: str) -> None:
    """Prints the mean area of the folds for each design."""
    right, file = load(name)
    features = np.asarray(
        read_features(file, right.columns.to_numpy(), "item").numbers, float
    )
    features = np.where(np.isnan(features), np.nanmean(features, 0), features)
    features = (features - features.mean(0)) / (features.std(0) + 1e-9)
    values = right.to_numpy().astype(float)
    order = np.arange(values.shape[1]) % FOLDS
    fold = np.random.default_rng(0).permutation(order)
    for rank, penalty in DESIGNS:
        areas = []
        for k in range(FOLDS):
            new = fold == k
            theta, w, _, u, loads = fitted(
                values[:, ~new], features[~new], rank, penalty
            )
            logit = theta[:, None] + features[new] @ w + u @ (features[new] @ loads).T
            seen = ~np.isnan(values[:, new])
            areas.append(area(values[:, new][seen], logit[seen]))
        print(f"{rank} further, penalty {penalty}: {np.mean(areas):.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "swebench_verified")
