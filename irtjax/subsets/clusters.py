"""K-means of items by their success vectors, and the item nearest each centre."""

from __future__ import annotations

import jax
import numpy as np

from irtjax._types import KeyArray
from irtjax.numerics.random_keys import fold_in

#: Lloyd's steps at most; on every data set tried the assignments converged before.
NUM_STEPS = 30


def generator_of(key: KeyArray) -> np.random.Generator:
    """NumPy's generator for a key: draws that compile no program."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _k_means(
    points: np.ndarray, weight: np.ndarray, key: KeyArray, num_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster of each point and squared distances from centres, `[points, clusters]`.

    Lloyd's algorithm from the seeds of k-means++ (Arthur, Vassilvitskii 2007). `points`
    are `[points, dims]`, `weight` is `[points]`. In NumPy, since the number of distinct
    points, and with it a compiled program, would be another in each fold.
    """
    size = np.sum(points**2, axis=1)
    rng = generator_of(key)

    def distance(centres):
        """Squared distances from centres, `[points, centres]`."""
        inner = size[:, None] - 2 * points @ centres.T + np.sum(centres**2, axis=1)
        return np.maximum(inner, 0)

    # Before the first seed all points are equally far.
    nearest = np.full(len(points), size.max() + 1)
    centres = np.empty((num_clusters, points.shape[1]), points.dtype)
    for step in range(num_clusters):
        # Squared distances of rounding's size are none.
        far = np.where(nearest > 1e-6 * size.max(), nearest, 0) * weight
        far = np.cumsum(far if far.sum() > 0 else weight)
        chosen = np.searchsorted(far, rng.random() * far[-1], side="right")
        centres[step] = points[min(int(chosen), len(points) - 1)]
        nearest = np.minimum(nearest, distance(centres[step, None])[:, 0])
    label, before = np.argmin(distance(centres), axis=1), None
    for _ in range(NUM_STEPS):
        if before is not None and np.array_equal(label, before):
            break
        mass = np.bincount(label, weights=weight, minlength=num_clusters)
        member = np.zeros((num_clusters, len(points)), points.dtype)
        member[label, np.arange(len(points))] = weight
        mean = member @ points / np.maximum(mass, np.finfo(float).tiny)[:, None]
        centres = np.where(mass[:, None] > 0, mean, centres).astype(points.dtype)
        label, before = np.argmin(distance(centres), axis=1), label
    between = distance(centres)
    return np.argmin(between, axis=1), between


def anchors(
    vectors: np.ndarray, mass: np.ndarray, size: int, key: KeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Chosen items, heaviest first, and their weights, which sum to that of all items.

    The anchor points of tinyBenchmarks (Maia Polo et al. 2024, arXiv 2402.14992): the
    item nearest the centre of a cluster of success vectors, `[items, subjects]`, has
    the mass of the cluster. Where items repeat, clusters may be empty; then further
    items are drawn from the heaviest clusters, and the items of a cluster share its
    mass.
    """
    if size >= len(mass):
        order = np.argsort(-mass, kind="stable")
        return order, mass[order]
    # Equal items are done once: with a dozen subjects most of them are.
    groups = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
    points, place, count = groups[0], groups[1].reshape(-1), groups[2]
    clusters = min(size, len(points))
    label, between = _k_means(points, count.astype(float), key, clusters)
    item_label = label[place]
    total = np.bincount(item_label, weights=mass, minlength=clusters)
    own = between[np.arange(len(points)), label]
    # The nearest of each cluster: sort by cluster, then distance; take the first.
    near = np.lexsort((np.arange(len(mass)), own[place], item_label))
    _, first = np.unique(item_label[near], return_index=True)
    chosen = near[first]
    if len(chosen) < size:
        others = np.setdiff1d(np.arange(len(mass)), chosen)
        draw = generator_of(fold_in(key, size)).permutation(others)
        heavy = draw[np.argsort(-total[item_label[draw]], kind="stable")]
        chosen = np.concatenate([chosen, heavy[: size - len(chosen)]])
    sharing = np.bincount(item_label[chosen], minlength=clusters)
    weight = total[item_label[chosen]] / sharing[item_label[chosen]]
    order = np.argsort(-weight, kind="stable")
    return chosen[order], weight[order]
