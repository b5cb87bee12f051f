"""K-means of items by their success vectors, and the item nearest each centre."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray

#: Lloyd's steps; on every data set tried the assignments converged long before.
NUM_STEPS = 30


@partial(jax.jit, static_argnames="num_clusters")
def _k_means(
    points: Float[Array, "points dims"],
    weight: Float[Array, " points"],
    key: KeyArray,
    num_clusters: int,
) -> tuple[Array, Array]:
    """Cluster of each point and squared distances from centres, `[points, clusters]`.

    Lloyd's algorithm from the seeds of k-means++ (Arthur, Vassilvitskii 2007).
    """
    size = jnp.sum(points**2, axis=1)
    dtype = points.dtype

    def distance(centres):
        """Squared distances from centres, `[points, centres]`."""
        cross = points @ centres.T
        inner = size[:, None] - 2 * cross + jnp.sum(centres**2, axis=1)
        return jnp.maximum(inner, 0)

    def seed(carry, step):
        nearest, centres = carry
        # Squared distances of rounding's size are none.
        far = jnp.where(nearest > 1e-6 * jnp.max(size), nearest, 0) * weight
        far = jnp.where(jnp.sum(far) > 0, far, weight)
        chosen = jax.random.categorical(jax.random.fold_in(key, step), jnp.log(far))
        centre = points[chosen]
        nearest = jnp.minimum(nearest, distance(centre[None])[:, 0])
        return (nearest, centres.at[step].set(centre)), None

    empty = jnp.zeros((num_clusters, points.shape[1]), dtype)
    # Before the first seed all points are equally far.
    start = (jnp.full(len(points), jnp.max(size) + 1), empty)
    (_, centres), _ = lax.scan(seed, start, jnp.arange(num_clusters))

    def improve(_, centres):
        label = jnp.argmin(distance(centres), axis=1)
        mass = jax.ops.segment_sum(weight, label, num_clusters)
        total = jax.ops.segment_sum(points * weight[:, None], label, num_clusters)
        mean = total / jnp.maximum(mass, jnp.finfo(dtype).tiny)[:, None]
        return jnp.where(mass[:, None] > 0, mean, centres)

    between = distance(lax.fori_loop(0, NUM_STEPS, improve, centres))
    return jnp.argmin(between, axis=1), between


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
    found = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
    points, place, count = found[0], found[1].reshape(-1), found[2]
    clusters, weights = min(size, len(points)), jnp.asarray(count, points.dtype)
    found = _k_means(jnp.asarray(points), weights, key, clusters)
    label, between = (np.asarray(x) for x in found)
    item_label = label[place]
    total = np.bincount(item_label, weights=mass, minlength=clusters)
    own = between[np.arange(len(points)), label]
    # The nearest of each cluster: sort by cluster, then distance; take the first.
    near = np.lexsort((np.arange(len(mass)), own[place], item_label))
    _, first = np.unique(item_label[near], return_index=True)
    chosen = near[first]
    if len(chosen) < size:
        others = np.setdiff1d(np.arange(len(mass)), chosen)
        draw = np.asarray(jax.random.permutation(jax.random.fold_in(key, size), others))
        heavy = draw[np.argsort(-total[item_label[draw]], kind="stable")]
        chosen = np.concatenate([chosen, heavy[: size - len(chosen)]])
    sharing = np.bincount(item_label[chosen], minlength=clusters)
    weight = total[item_label[chosen]] / sharing[item_label[chosen]]
    order = np.argsort(-weight, kind="stable")
    return chosen[order], weight[order]
